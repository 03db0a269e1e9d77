//! Many turns: whether the last ones cost as much as the first, and how soon a worker that has nothing to do begins.

use std::time::Duration;

use guild_bus::ANYTHING;
use guild_kernel::TOPIC;
use testbed::bench::{Arguments, Measured, Watch};

use crate::hall::Hall;

/// The first ones are compared with the rest.
const FIRST: u64 = 10_000;
/// By then the database is larger than the page caches of its five connections, 64 MB each, and all of them are full.
const SETTLED: u64 = 300_000;
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
    // Writing is not done before the log of writes has come home, which happens when it is long, or nobody writes any
    // more: the first turns alone would never pay for theirs.
    let first = per_s_until_closed(hall.work("plain", "p000", FIRST)?, FIRST, hall);
    eprintln!("{FIRST} turns: {first:.0} a second with their log");
    let hall = Hall::open("sqlite", arguments)?;
    let (mut done, mut last) = (FIRST, (0.0, 1));
    let mut settled_mb = None;
    while done < total {
        let some = 100_000 - done % 100_000;
        let per_s = hall.work("plain", &format!("p{:03}", done / 10_000), some)?;
        (done, last) = (done + some, (per_s, some));
        let memory_mb = resident_mb()?;
        eprintln!("{done} turns: {per_s:.0} a second, {memory_mb} MB in memory");
        if done < SETTLED {
            continue;
        }
        let settled_mb = *settled_mb.get_or_insert(memory_mb);
        if memory_mb > settled_mb + GROWTH_MAX_MB {
            return Err(format!("the memory grew from {settled_mb} to {memory_mb} MB"));
        }
    }
    let last = per_s_until_closed(last.0, last.1, hall);
    let hall = Hall::open("sqlite", arguments)?;
    hall.all_ended_once(total + LONELY as u64)?;
    hall.close();
    let result = || format!("{total} turns ended once");
    Ok(vec![
        Measured { name: "guild", per_s: last, result: result() },
        Measured { name: "the first turns", per_s: first, result: result() },
    ])
}

/// How many in a second, if closing the database belongs to them.
fn per_s_until_closed(per_s: f64, count: u64, hall: Hall) -> f64 {
    let watch = Watch::start();
    hall.close();
    let closing_s = 1.0 / watch.per_s(1);
    count as f64 / (count as f64 / per_s + closing_s)
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
