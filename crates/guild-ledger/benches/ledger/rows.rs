//! What the ledger wrote, commit by commit, so that the bare loop can write the same.

use std::collections::BTreeMap;

use guild_ledger::Result;
use guild_store::args;

use crate::world::World;

/// Rows of one commit, column by column.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    pub(crate) seq: Vec<i64>,
    pub(crate) transfer_id: Vec<String>,
    pub(crate) debit_no: Vec<i64>,
    pub(crate) credit_no: Vec<i64>,
    pub(crate) units: Vec<i64>,
    pub(crate) at_ms: Vec<i64>,
    pub(crate) debit_prev_seq: Vec<i64>,
    pub(crate) credit_prev_seq: Vec<i64>,
    /// The accounts that it touched, as they stand after it.
    pub(crate) account_no: Vec<i64>,
    pub(crate) debits: Vec<i64>,
    pub(crate) credits: Vec<i64>,
    pub(crate) last_seq: Vec<i64>,
}

/// Everything that was booked after the funding.
#[derive(Debug, Clone)]
pub(crate) struct History {
    /// What is there before: the accounts and their funding, as one batch.
    pub(crate) before: Batch,
    pub(crate) batches: Vec<Batch>,
}

type Row = (i64, String, i64, i64, i64, i64, i64, i64);

impl History {
    pub(crate) async fn read(world: &World) -> Result<History> {
        const ALL: &str =
            "SELECT seq, transfer_id, debit_no, credit_no, units, at_ms, debit_prev_seq,
             credit_prev_seq FROM ledger_transfer ORDER BY seq";
        const HEADS: &str =
            "SELECT last_seq FROM ledger_head WHERE last_seq >= $1 ORDER BY last_seq";
        let funded_seq = world.funded_seq;
        let heads: Vec<(i64,)> =
            world.store().read(move |rx| rx.all(HEADS, args![funded_seq])).await?;
        let rows: Vec<Row> = world.store().read(|rx| rx.all(ALL, args![])).await?;
        let (mut rows, mut sums) = (rows.into_iter().peekable(), BTreeMap::new());
        let mut batches: Vec<Batch> = Vec::new();
        for (head,) in heads {
            let mut some = Vec::new();
            while let Some(row) = rows.next_if(|row| row.0 <= head) {
                some.push(row);
            }
            batches.push(Batch::of(some, &mut sums));
        }
        let before = batches.remove(0);
        Ok(History { before, batches })
    }

    pub(crate) fn transfers(&self) -> u64 {
        self.batches.iter().map(|batch| batch.seq.len() as u64).sum()
    }

    /// What both parties did.
    pub(crate) fn result(&self) -> String {
        let each = self.transfers() as f64 / self.batches.len().max(1) as f64;
        format!("{} transfers, {each:.1} a commit", self.transfers())
    }
}

impl Batch {
    /// `sums` are debits and credits of each account so far.
    fn of(rows: Vec<Row>, sums: &mut BTreeMap<i64, (i64, i64)>) -> Batch {
        let (mut this, mut touched) = (Batch::default(), BTreeMap::new());
        for (seq, id, debit_no, credit_no, units, at_ms, debit_prev_seq, credit_prev_seq) in rows {
            sums.entry(debit_no).or_default().0 += units;
            sums.entry(credit_no).or_default().1 += units;
            touched.insert(debit_no, seq);
            touched.insert(credit_no, seq);
            this.seq.push(seq);
            this.transfer_id.push(id);
            this.debit_no.push(debit_no);
            this.credit_no.push(credit_no);
            this.units.push(units);
            this.at_ms.push(at_ms);
            this.debit_prev_seq.push(debit_prev_seq);
            this.credit_prev_seq.push(credit_prev_seq);
        }
        for (account_no, last_seq) in touched {
            let (debits, credits) = sums.get(&account_no).copied().unwrap_or_default();
            this.account_no.push(account_no);
            this.debits.push(debits);
            this.credits.push(credits);
            this.last_seq.push(last_seq);
        }
        this
    }
}
