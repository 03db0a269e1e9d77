//! The whole history as a file, one JSON object a line, that a stranger can check with nothing else in hand.
//!
//! First a line that names the form; then every record with the heads between them; then the balances, and a last line
//! without which the file was cut. The lines are those of [`crate::record`].

use std::io::Write;

use guild_store::Rx;

use crate::error::code;
use crate::head::Head;
use crate::history::{PAGE_MAX, heads_around, heads_between, history_after};
use crate::record::{FIRST_LINE, write_balance, write_end, write_head, write_slice};
use crate::{Error, Result, TransferId, ledger};

/// A slice is never longer than this: it is one commit.
const SLICE_MAX_RECORDS: usize = 10_000;

/// Writes the export, page by page, from the one snapshot that `rx` sees. The head it ends with.
///
/// The closure of a read may run more than once: it must begin with an empty file each time.
pub fn export(rx: &mut Rx<'_>, out: &mut dyn Write) -> Result<Head> {
    put(out, FIRST_LINE)?;
    let mut lines = String::new();
    let mut after = 0;
    loop {
        let page = history_after(rx, after, PAGE_MAX)?;
        // Heads that belong to no record are shown too: the reader shall see what is stored.
        let until = page.last().map_or(i64::MAX, |last| last.seq);
        let mut heads = heads_between(rx, after, until)?.into_iter().peekable();
        for record in &page {
            while let Some(head) = heads.next_if(|head| head.last_seq < record.seq) {
                write_head(&head, &mut lines);
            }
            record.write_line(&mut lines);
        }
        heads.for_each(|head| write_head(&head, &mut lines));
        put(out, &lines)?;
        lines.clear();
        match page.last() {
            Some(last) => after = last.seq,
            None => break,
        }
    }
    for (account_id, entry) in ledger::all_entries(rx)? {
        write_balance(&account_id, &entry.balance, &mut lines);
    }
    let head = ledger::head(rx)?;
    write_end(&head, &mut lines);
    put(out, &lines)?;
    out.flush().map_err(failed)?;
    Ok(head)
}

/// The commit in which a transfer was booked, as lines: the head before it, its records, and the head after it. Whoever
/// has a receipt that names this head sees that the transfer is in the history that was signed for, and nothing of the
/// rest of it. None if the transfer is not booked.
pub fn slice(rx: &mut Rx<'_>, transfer_id: &TransferId) -> Result<Option<String>> {
    let Some(booked) = ledger::booked(rx, std::slice::from_ref(transfer_id))?.remove(transfer_id)
    else {
        return Ok(None);
    };
    let (before, head) = heads_around(rx, booked.seq)?;
    let mut lines = String::new();
    write_slice(&before, &mut lines);
    let (mut after, mut count) = (before.last_seq, 0_usize);
    while after < head.last_seq {
        let page = history_after(rx, after, PAGE_MAX)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        count = count.saturating_add(page.len());
        if count > SLICE_MAX_RECORDS {
            let message = format!("the commit of {transfer_id} is too large for a slice");
            return Err(Error::refused(&code::EXPORT, message));
        }
        page.iter()
            .filter(|record| record.seq <= head.last_seq)
            .for_each(|record| record.write_line(&mut lines));
    }
    write_head(&head, &mut lines);
    Ok(Some(lines))
}

fn put(out: &mut dyn Write, lines: &str) -> Result<()> {
    out.write_all(lines.as_bytes()).map_err(failed)
}

fn failed(error: std::io::Error) -> Error {
    Error::refused(&code::EXPORT, error.to_string())
}
