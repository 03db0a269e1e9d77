//! What the benches of databases share: `--case NAME --directory DIR [--postgres URL] --seconds N` measures one case
//! once and prints a line of JSON for each party. A case about growth takes `--millions N` instead.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "give --case NAME --directory DIR [--postgres URL] --seconds N | --millions N";

/// What a bench is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// Which case.
    pub case: String,
    /// An empty directory on a disk.
    pub directory: PathBuf,
    /// An empty database, if the case needs one.
    pub postgres_url: Option<String>,
    /// About how long to measure, if the case is measured by time.
    pub seconds: u64,
    /// How many millions of rows, if the case is measured by growth.
    pub millions: u64,
}

impl Arguments {
    fn parse(words: &[String]) -> Result<Arguments, String> {
        let value = |flag: &str| {
            let place = words.iter().position(|word| word == flag);
            place.and_then(|i| words.get(i + 1)).cloned()
        };
        let must = |flag: &str| value(flag).ok_or_else(|| format!("{flag} is missing; {USAGE}"));
        let number = |text: String| text.parse().map_err(|e| format!("{text:?}: {e}"));
        if value("--seconds").is_none() && value("--millions").is_none() {
            return Err(USAGE.to_owned());
        }
        Ok(Arguments {
            case: must("--case")?,
            directory: must("--directory")?.into(),
            postgres_url: value("--postgres"),
            seconds: value("--seconds").map_or(Ok(0), number)?,
            millions: value("--millions").map_or(Ok(0), number)?,
        })
    }

    /// The database of a case on PostgreSQL.
    pub fn postgres_url(&self) -> Result<&str, String> {
        self.postgres_url.as_deref().ok_or_else(|| format!("--postgres is missing; {USAGE}"))
    }
}

/// The speed of one party.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Whose: `guild` is ours.
    pub name: &'static str,
    /// How many things it did in a second.
    pub per_s: f64,
    /// What it did, counted in the database: the same for all parties.
    pub result: String,
}

/// Runs a bench.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints")]
pub fn main(measure: fn(&Arguments) -> Result<Vec<Measured>, String>) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.is_empty() {
        // So a test run over all targets builds it and passes by.
        eprintln!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match Arguments::parse(&words).and_then(|arguments| measure(&arguments)) {
        Ok(measured) => {
            for Measured { name, per_s, result } in measured {
                println!(r#"{{"name":{name:?},"per_s":{per_s:.1},"result":{result:?}}}"#);
            }
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// Measures time.
#[derive(Debug, Clone, Copy)]
pub struct Watch(Instant);

impl Watch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
    pub fn start() -> Watch {
        Watch(Instant::now())
    }

    /// Whether less than this has passed.
    pub fn before(self, seconds: u64) -> bool {
        self.0.elapsed() < Duration::from_secs(seconds)
    }

    /// How long it was.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// How many of these things were done in a second.
    pub fn per_s(self, things: u64) -> f64 {
        things as f64 / self.0.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn arguments_are_read_in_any_order() {
        let parsed = Arguments::parse(&words("--seconds 2 --directory /d --case a")).unwrap();
        assert_eq!((parsed.case.as_str(), parsed.seconds), ("a", 2));
        assert!(parsed.postgres_url().unwrap_err().contains("--postgres is missing"));
        let parsed =
            Arguments::parse(&words("--case a --directory /d --postgres u --seconds 1")).unwrap();
        assert_eq!(parsed.postgres_url(), Ok("u"));
        let grown = Arguments::parse(&words("--case a --directory /d --millions 10")).unwrap();
        assert_eq!((grown.seconds, grown.millions), (0, 10));
        for wrong in [
            "--case a --directory /d",
            "--case a --seconds 1",
            "--case a --directory /d --seconds x",
            "--seconds 1",
        ] {
            assert!(Arguments::parse(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
