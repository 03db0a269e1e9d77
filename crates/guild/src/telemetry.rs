//! What the program says about itself while it runs: to standard error, so that answers stay clean.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::{Level, Log, LogFormat};

/// Starts the log, `louder` steps above the configured level (below, if negative). Only the first call counts.
pub(crate) fn start(log: &Log, louder: i16) {
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        // A file that is read later should not be full of colours.
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(directives(filter(log.level, louder)));
    // A second start would be refused: the first one stays.
    let _ = match log.format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Our own words and those of the libraries. The NATS client is silent: the bus says what happens to it, and the client
/// would show the server's address with its password.
fn directives(level: LevelFilter) -> EnvFilter {
    EnvFilter::new(format!("{level},async_nats=off"))
}

fn filter(level: Level, louder: i16) -> LevelFilter {
    const STEPS: [LevelFilter; 6] = [
        LevelFilter::OFF,
        LevelFilter::ERROR,
        LevelFilter::WARN,
        LevelFilter::INFO,
        LevelFilter::DEBUG,
        LevelFilter::TRACE,
    ];
    let wanted = (level as i16).saturating_add(louder).clamp(0, 5);
    usize::try_from(wanted).ok().and_then(|i| STEPS.get(i)).copied().unwrap_or(LevelFilter::INFO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nats_client_is_never_heard() {
        let shown = directives(LevelFilter::TRACE).to_string();
        assert!(shown.contains("async_nats=off") && shown.contains("trace"), "{shown}");
    }

    #[test]
    fn flags_move_the_level_within_its_ends() {
        assert_eq!(filter(Level::Info, 0), LevelFilter::INFO);
        assert_eq!(filter(Level::Info, 1), LevelFilter::DEBUG);
        assert_eq!(filter(Level::Info, -9), LevelFilter::OFF);
        assert_eq!(filter(Level::Trace, i16::MAX), LevelFilter::TRACE);
    }
}
