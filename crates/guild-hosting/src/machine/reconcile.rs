//! Comparing what a machine has with what the rows want. What no row wants is removed; what a row wants and the machine
//! has not is lost, and told so. Both are counted: neither should ever be there.

use std::collections::BTreeMap;

use super::Found;
use super::driver::{Driver, is_of};
use crate::sandbox::{self, Sandbox, Status};
use crate::{Result, SandboxId};

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// The machine has it, and no row wants it there.
    Leak(SandboxId),
    /// A row wants it to run, and the machine has it not.
    Lost(SandboxId),
}

/// What is wrong. `before` are the rows that wanted something before the machine was asked what it has, `after` the rows
/// of what was found, read afterwards: whoever came or went in between is in order.
pub fn compare(
    machine: &str,
    before: &[Sandbox],
    found: &[Found],
    after: &BTreeMap<SandboxId, Sandbox>,
) -> Vec<Wrong> {
    let is_wanted = |found: &&Found| {
        after.get(&found.sandbox_id).is_some_and(|row| {
            row.machine == machine && !matches!(row.status, Status::Destroyed | Status::Failed)
        })
    };
    let leaks = found.iter().filter(|found| !is_wanted(found));
    let leaks = leaks.map(|found| Wrong::Leak(found.sandbox_id.clone()));
    let has = |row: &Sandbox| {
        let mut of_it = found.iter().filter(|found| found.sandbox_id == row.sandbox_id);
        of_it.any(|found| found.instance.as_ref().is_some_and(|instance| is_of(row, instance)))
    };
    let should_run =
        before.iter().filter(|row| row.machine == machine && row.status == Status::Running);
    let lost = should_run.filter(|row| !has(row));
    let lost = lost.map(|row| Wrong::Lost(row.sandbox_id.clone()));
    leaks.chain(lost).collect()
}

/// Compares once, and puts right what is wrong.
pub(super) async fn run(driver: &Driver) -> Result<()> {
    let before = driver.rows().await?;
    let found = driver.machine.list().await?;
    let ids: Vec<String> = found.iter().map(|found| found.sandbox_id.to_string()).collect();
    let after = driver.store.read(move |rx| {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        if ids.is_empty() { Ok(Vec::new()) } else { sandbox::with_ids(rx, &ids) }
    });
    let after = after.await?.into_iter().map(|row| (row.sandbox_id.clone(), row)).collect();
    for wrong in compare(driver.machine.name(), &before, &found, &after) {
        match wrong {
            // Whoever does something with it now leaves it in order, or the next look finds it.
            Wrong::Leak(id) | Wrong::Lost(id) if driver.is_under_way(&id) => {}
            Wrong::Leak(sandbox_id) => {
                driver.counts.add("leak");
                tracing::warn!(%sandbox_id, "a sandbox that nobody wants is removed");
                driver.machine.destroy(&sandbox_id).await?;
            }
            Wrong::Lost(sandbox_id) => {
                driver.counts.add("lost");
                tracing::warn!(%sandbox_id, "a sandbox is lost");
                let (id, words) = (sandbox_id.clone(), "its agent is gone");
                let failed =
                    driver.write(move |tx, now_ms| sandbox::failed(tx, &id, words, now_ms));
                match failed.await {
                    Err(error) if error.code() == &crate::code::SANDBOX_ENDED => {}
                    Err(error) => return Err(error),
                    Ok(_) => driver.machine.destroy(&sandbox_id).await?,
                }
            }
        }
    }
    Ok(())
}
