//! Many turns: whether the last ones cost as much as the first, and how soon a worker that has nothing to do begins.

use std::time::Duration;

use guild_bus::ANYTHING;
use guild_kernel::TOPIC;
use testbed::bench::{Arguments, Measured, Watch};

use crate::hall::Hall;

/// The first ones are compared with the rest.
const FIRST: u64 = 10_000;
/// Allocators are not even.
const GROWTH_MAX_MB: u64 = 64;
/// So many turns are asked for one by one, each when nothing else is to be done.
const LONELY: usize = 500;

#[expect(clippy::print_stderr, reason = "a benchmark prints")]
pub(crate) fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let total = arguments.millions.max(1) * 1_000_000;
    let hall = Hall::open("sqlite", arguments)?;
    let lonely = hall.lonely(LONELY)?;
    for percent in [50, 99] {
        eprintln!(
            "from the wish to the first write, {percent} of 100 within {:?}",
            at(&lonely, percent)
        );
    }
    let mut first = 0.0;
    let mut done = 0;
    let mut last = 0.0;
    let mut settled_mb = None;
    while done < total {
        let some = if done == 0 { FIRST } else { 100_000 - done % 100_000 };
        let per_s = hall.run("plain", &format!("p{done}"), some)?;
        done += some;
        if done == FIRST {
            first = per_s;
        }
        last = per_s;
        let memory_mb = resident_mb()?;
        eprintln!("{done} turns: {per_s:.0} a second, {memory_mb} MB in memory");
        // By then every cache is full.
        let settled_mb = *settled_mb.get_or_insert(memory_mb.max(128));
        if memory_mb > settled_mb + settled_mb / 4 + GROWTH_MAX_MB {
            return Err(format!("the memory grew from {settled_mb} to {memory_mb} MB"));
        }
    }
    hall.close();
    let result = || format!("{total} turns ended once");
    Ok(vec![
        Measured { name: "guild", per_s: last, result: result() },
        Measured { name: "the first turns", per_s: first, result: result() },
    ])
}

fn at(times: &[Duration], percent: usize) -> Duration {
    let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(place).copied().unwrap_or_default()
}

fn resident_mb() -> Result<u64, String> {
    let statm = std::fs::read_to_string("/proc/self/statm").map_err(crate::said)?;
    let pages = statm.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok());
    Ok(pages.ok_or("statm has no second number")? * 4096 / 1_000_000)
}

impl Hall {
    /// How long it takes from the answer to a wish until a worker that waits has written, each time; sorted.
    fn lonely(&self, count: usize) -> Result<Vec<Duration>, String> {
        self.while_working("plain", "lonely", async |working| {
            let mut listener = self.bus().listen(TOPIC);
            let mut times = Vec::with_capacity(count);
            for number in 0..count {
                let number = u64::try_from(number).map_err(crate::said)?;
                working.ask_for(&[number]).await?;
                let watch = Watch::start();
                // What was rung for the wish itself.
                let _ = listener.try_hear();
                let heard = listener.hear().await;
                assert!(heard >= ANYTHING, "numbers of events");
                times.push(watch.elapsed());
                working.until(number + 1).await;
            }
            times.sort_unstable();
            Ok(times)
        })
    }
}
