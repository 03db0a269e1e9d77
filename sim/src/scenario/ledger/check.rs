//! The end of a run, and moments in between: the history as a stranger would check it, and the audit of the database.

use guild_ledger::evidence::Checker;
use guild_ledger::export::export;
use guild_ledger::{Error, audit};
use guild_protocol::env::Clock;

use super::{Shared, lock};

/// Looks at random moments, until something is wrong or nobody asks any more.
pub(super) async fn now_and_then(shared: Shared) {
    loop {
        shared.world.sleep(100 + shared.world.below_ms(900)).await;
        let finished = lock(&shared.diary).finished == shared.clients;
        if finished || shared.world.is_violated() {
            return;
        }
        check(&shared);
    }
}

/// What must hold in the end, and that something happened at all.
pub(super) fn at_the_end(shared: &Shared) {
    if lock(&shared.diary).alarmed {
        return;
    }
    let accounts = check(shared);
    let wanted = super::client::accounts_of_all(shared.clients);
    if accounts.is_some_and(|accounts| accounts != wanted) {
        shared.world.violate(format!("{accounts:?} accounts are open, not {wanted}"));
    }
}

/// Everything that can be checked from the export, the calls and the tables. The number of accounts.
fn check(shared: &Shared) -> Option<u64> {
    let exported = shared.database.read(|rx| {
        let mut lines = Vec::new();
        export(rx, &mut lines)?;
        Ok::<_, Error>(lines)
    });
    let lines = match exported {
        Ok(lines) => lines,
        Err(error) => {
            shared.world.violate(format!("[export] the history cannot be exported: {error}"));
            return None;
        }
    };
    let mut checker = Checker::new().with_calls(lock(&shared.diary).calls());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        checker.line(line);
    }
    let report = checker.finish();
    let mut alarms: Vec<String> =
        report.problems.iter().map(|p| format!("[{}] {p}", p.code.name)).collect();
    match shared.database.read(audit::run) {
        Ok(audit) => alarms.extend(audit.problems.iter().map(|p| format!("[audit] {p}"))),
        Err(error) => alarms.push(format!("[audit] it cannot be run: {error}")),
    }
    lock(&shared.diary).alarmed |= !alarms.is_empty();
    alarms.into_iter().for_each(|alarm| shared.world.violate(alarm));
    // The last line holds the last head, which covers all that happened.
    let last = lines.split_inclusive(|byte| *byte == b'\n').next_back().unwrap_or_default();
    shared.world.note_text(&String::from_utf8_lossy(last));
    Some(report.accounts)
}
