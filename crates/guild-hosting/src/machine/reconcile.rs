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

/// What is wrong. `before` are the rows that wanted something before the machine was asked what it has, `after` the
/// rows of what was found, read afterwards: whoever came or went in between is in order.
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
    // One that cannot be put right keeps none of the others: what leaks costs money that nobody pays.
    let mut failure = None;
    for wrong in compare(driver.machine.name(), &before, &found, &after) {
        if let Err(error) = put_right(driver, &wrong).await {
            tracing::warn!(?wrong, %error, code = error.code().name, "it cannot be put right now");
            failure = failure.or(Some(error));
        }
    }
    failure.map_or(Ok(()), Err)
}

async fn put_right(driver: &Driver, wrong: &Wrong) -> Result<()> {
    match wrong {
        // Whoever does something with it now leaves it in order, or the next look finds it.
        Wrong::Leak(id) | Wrong::Lost(id) if driver.is_under_way(id) => Ok(()),
        Wrong::Leak(sandbox_id) => {
            driver.counts.add("leak");
            tracing::warn!(%sandbox_id, "a sandbox that nobody wants is removed");
            Ok(driver.machine.destroy(sandbox_id).await?)
        }
        Wrong::Lost(sandbox_id) => {
            driver.counts.add("lost");
            tracing::warn!(%sandbox_id, "a sandbox is lost");
            let (id, words) = (sandbox_id.clone(), "its agent is gone");
            let failed = driver.write(move |tx, now_ms| sandbox::failed(tx, &id, words, now_ms));
            match failed.await {
                Err(error) if error.code() == &crate::code::SANDBOX_ENDED => Ok(()),
                Err(error) => Err(error),
                Ok(_) => Ok(driver.machine.destroy(sandbox_id).await?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use guild_protocol::identity::PublicKey;

    use super::*;
    use crate::machine::Instance;
    use crate::machine::tests::row;

    const KEY: &str = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
    const OTHER: &str = "c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5";

    fn id(n: u32) -> SandboxId {
        format!("sbx_{n:032x}").parse().unwrap()
    }

    fn wants(n: u32, status: Status) -> Sandbox {
        Sandbox {
            sandbox_id: id(n),
            status,
            endpoint: Some("127.0.0.1:1".to_owned()),
            agent_key: Some(KEY.to_owned()),
            ..row()
        }
    }

    fn has(n: u32, key: Option<&str>) -> Found {
        let instance = |agent_key: PublicKey| Instance {
            sandbox_id: id(n),
            name: "x".to_owned(),
            endpoint: "127.0.0.1:1".to_owned(),
            agent_key,
        };
        let key = key.map(|key| key.parse().unwrap());
        Found { sandbox_id: id(n), instance: key.map(instance) }
    }

    fn rows(rows: &[Sandbox]) -> BTreeMap<SandboxId, Sandbox> {
        rows.iter().map(|row| (row.sandbox_id.clone(), row.clone())).collect()
    }

    #[test]
    fn what_is_as_it_should_be_is_left() {
        let all = [
            wants(1, Status::Running),
            wants(2, Status::Starting),
            wants(3, Status::Stopped),
            wants(4, Status::Ending),
            wants(5, Status::Destroying),
        ];
        let found: Vec<Found> = (1..=5).map(|n| has(n, (n != 2).then_some(KEY))).collect();
        assert_eq!(compare("local", &all, &found, &rows(&all)), []);
        // What starts is made by whoever drives; what ends or is gone is lost to nobody.
        assert_eq!(compare("local", &all[1..], &[], &BTreeMap::new()), []);
    }

    #[test]
    fn what_nobody_wants_is_a_leak() {
        let elsewhere = Sandbox { machine: "other".to_owned(), ..wants(3, Status::Running) };
        let after = [wants(1, Status::Destroyed), wants(2, Status::Failed), elsewhere];
        let found: Vec<Found> = (1..=4).map(|n| has(n, Some(KEY))).collect();
        let expected = [1, 2, 3, 4].map(|n| Wrong::Leak(id(n)));
        assert_eq!(compare("local", &[], &found, &rows(&after)), expected);
    }

    #[test]
    fn what_should_run_and_is_not_there_is_lost() {
        let all = [wants(1, Status::Running), wants(2, Status::Running), wants(3, Status::Running)];
        let found = [has(2, None), has(3, Some(OTHER))];
        let expected = [1, 2, 3].map(|n| Wrong::Lost(id(n)));
        assert_eq!(compare("local", &all, &found, &rows(&all)), expected);
        let elsewhere = all.map(|row| Sandbox { machine: "other".to_owned(), ..row });
        assert_eq!(compare("local", &elsewhere, &[], &BTreeMap::new()), []);
    }
}
