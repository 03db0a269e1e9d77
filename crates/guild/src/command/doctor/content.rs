//! What is kept by its hash: how much, and how much more may be.

use guild_network::content::Summary;

use super::Check;
use crate::config::Loaded;
use crate::error::{Result, code};
use crate::node;
use crate::real::runtime;

/// So full, in hundredths, that somebody should know.
const FULL_PCT: u64 = 90;

pub(super) fn check(loaded: &Loaded) -> Check {
    let name = "content";
    let max_bytes = u64::from(loaded.config.content.max_mb).saturating_mul(1_000_000);
    match summary(loaded) {
        Ok(summary) => told(&summary, max_bytes),
        Err(error) if error.code() == &code::NODE_NO_DATABASE => {
            Check::ok(name, format!("nothing yet, of {} MB", loaded.config.content.max_mb))
        }
        Err(error) => Check::weaker(name, format!("unknown: {error}"), error.code().remedy),
    }
}

fn summary(loaded: &Loaded) -> Result<Summary> {
    let service = node::open_read_only(loaded)?;
    let asked = runtime().and_then(|runtime| {
        let content = node::content::read_only(loaded, service.handle())?;
        Ok(runtime.block_on(content.summary())?)
    });
    service.close();
    asked
}

fn told(summary: &Summary, max_bytes: u64) -> Check {
    let name = "content";
    let Summary { blocks, bytes, pins, aside } = *summary;
    let mb = |bytes: u64| bytes / 1_000_000;
    let found = format!("{blocks} blocks, {} of {} MB, {pins} pins", mb(bytes), mb(max_bytes));
    if aside > 0 {
        let found = format!("{found}; {aside} blocks had wrong bytes and are set aside");
        let advice = "`guild content verify` names them; add them again, and look at the disk.";
        return Check::weaker(name, found, advice);
    }
    if bytes.saturating_mul(100) >= max_bytes.saturating_mul(FULL_PCT) {
        return Check::weaker(name, found, "Unpin what is not needed, or raise content.max_mb.");
    }
    Check::ok(name, found)
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn what_is_full_or_broken_is_said() {
        let summary = |bytes, aside| Summary { blocks: 3, bytes, pins: 1, aside };
        let good = told(&summary(5_000_000, 0), 100_000_000);
        assert_eq!(
            (good.status, good.found.as_str()),
            (Status::Ok, "3 blocks, 5 of 100 MB, 1 pins")
        );
        assert_eq!(told(&summary(90_000_000, 0), 100_000_000).status, Status::Weaker);
        let broken = told(&summary(1, 2), 100_000_000);
        assert!(
            broken.status == Status::Weaker && broken.found.contains("2 blocks had wrong bytes")
        );
    }
}
