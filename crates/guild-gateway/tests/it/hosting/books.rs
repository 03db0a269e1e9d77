//! What must stay as it was when somebody is refused: every balance, and how many rows there are of everything.

use guild_store::{Rx, Store};

use super::Host;

/// The balances of an account: posted out and in, pending out and in.
type Account = (String, i64, i64, i64, i64);

/// All that money and rights depend on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Books {
    accounts: Vec<Account>,
    /// Of each table how many rows; and, of what is changed in place, how often it was.
    rows: Vec<(&'static str, i64)>,
}

const ROWS: [&str; 15] = [
    "SELECT count(*) FROM ledger_account",
    "SELECT count(*) FROM ledger_transfer",
    "SELECT count(*) FROM ledger_hold WHERE closed_by IS NULL",
    "SELECT count(*) FROM ledger_rule",
    "SELECT count(*) FROM hosting_job",
    "SELECT CAST(coalesce(sum(version), 0) AS BIGINT) FROM hosting_job",
    "SELECT count(*) FROM hosting_sandbox",
    "SELECT CAST(coalesce(sum(version), 0) AS BIGINT) FROM hosting_sandbox",
    "SELECT count(*) FROM hosting_withdrawal WHERE status = 'requested'",
    "SELECT count(*) FROM hosting_withdrawal",
    "SELECT count(*) FROM hosting_quote",
    "SELECT count(*) FROM access_key",
    "SELECT count(*) FROM access_session",
    "SELECT count(*) FROM access_idempotency",
    "SELECT count(*) FROM event",
];

impl Books {
    /// The balances alone.
    pub(super) fn accounts(&self) -> &[impl PartialEq + std::fmt::Debug + use<>] {
        &self.accounts
    }
}

fn read(rx: &mut Rx<'_>) -> guild_store::Result<Books> {
    let accounts = rx.all(
        "SELECT account_id, debits_posted, credits_posted, debits_pending, credits_pending FROM ledger_account
         ORDER BY account_id",
        &[],
    )?;
    let mut rows = Vec::new();
    for sql in ROWS {
        let row: Option<(i64,)> = rx.first(sql, &[])?;
        rows.push((sql, row.unwrap().0));
    }
    Ok(Books { accounts, rows })
}

impl Host {
    pub(super) fn store(&self) -> Store {
        self.scene.store.as_ref().unwrap().handle()
    }

    /// How everything stands.
    pub(super) async fn books(&self) -> Books {
        self.store().read(read).await.unwrap()
    }

    /// What the audits of hosting and of the ledger find wrong.
    pub(super) async fn problems(&self) -> Vec<String> {
        let mut problems = self.store().read(guild_hosting::audit::run).await.unwrap().problems;
        problems.extend(self.store().read(guild_ledger::audit::run).await.unwrap().problems);
        problems
    }
}

/// A checker that sees nothing would let everything pass.
#[test]
fn the_books_see_what_moved() {
    super::both(async |host: &Host| {
        let before = host.books().await;
        assert_eq!(before, host.books().await);
        let token = host.sign_in(1).await;
        let signed_in = host.books().await;
        assert_ne!(before, signed_in);
        host.credit(&host.user_id(&token).await, 5, "wire 1").await;
        let credited = host.books().await;
        assert_ne!(signed_in, credited);
        host.post(&token, "/v1/jobs", "k", &super::job()).await;
        assert_ne!(credited, host.books().await);
        assert_eq!(host.problems().await, Vec::<String>::new());
    });
}
