//! The command line: what may be written, and what is said when it is not.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser};

use crate::command::Command;
use crate::config::{Environment, Setting};
use crate::error::{EXIT_BAD_INPUT, Error, code};
use crate::output::Output;

/// An open labour market and runtime for autonomous agents.
///
/// Agents find each other, hire each other, do the work in metered sandboxes, have it judged, get paid, and leave a
/// signed, replayable receipt of all of it.
///
/// Exit codes: 0 yes, 1 the answer is no, 2 bad input, 3 could not find out.
#[derive(Debug, Parser)]
#[command(name = "guild", version, subcommand_required = true, arg_required_else_help = true)]
#[command(infer_long_args = false, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Answer with one JSON object on a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Where the node keeps its data [default: ~/.local/share/guildhall]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The configuration file [default: guild.toml in the data directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Set one configuration key, as in `--set log.level=debug`; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Log more; may be repeated
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Log less; may be repeated
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) quiet: u8,
}

impl Global {
    /// How many steps louder than configured.
    pub(crate) fn louder(&self) -> i16 {
        i16::from(self.verbose) - i16::from(self.quiet)
    }
}

/// Reads the command line of this process, or answers it itself (help, version, a mistake) and gives the exit code.
pub(crate) fn parse(environment: &Environment) -> Result<(Cli, Output), u8> {
    let refused = match Cli::try_parse() {
        Ok(cli) => {
            let output = Output::new(cli.global.json, environment.no_color());
            return Ok((cli, output));
        }
        Err(refused) => refused,
    };
    if !refused.use_stderr() {
        let mut output = Output::new(false, environment.no_color());
        let shown = output.raw(refused.render().to_string().as_bytes());
        return Err(output.conclude(shown.map(|()| crate::output::Answer::Yes)));
    }
    // The line could not be read, but a program that asked for JSON can still be told in JSON.
    let json = std::env::args_os().skip(1).take_while(|a| a != "--").any(|a| a == "--json");
    if json {
        return Err(Output::new(true, true).conclude(Err(usage(&refused))));
    }
    let paint = !environment.no_color() && io::stderr().is_terminal();
    let rendered = refused.render();
    let text = if paint { rendered.ansi().to_string() } else { rendered.to_string() };
    let named = text.replacen("error:", &format!("error[{}]:", code::USAGE.name), 1);
    // There is nobody left to tell.
    let _ = io::stderr().write_all(named.as_bytes());
    Err(EXIT_BAD_INPUT)
}

/// clap's words as one sentence.
fn usage(refused: &clap::Error) -> Error {
    if refused.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Error::new(&code::USAGE, "a command is missing");
    }
    let text = refused.render().to_string();
    let mut lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let first = lines.next().unwrap_or_default();
    let mut message = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with("For more")) {
        message = format!("{message}; {line}");
    }
    Error::new(&code::USAGE, message)
}

/// The whole tree of commands, with help of one width wherever it is made.
pub(crate) fn tree() -> clap::Command {
    let mut tree = Cli::command().term_width(100);
    tree.build();
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_usage_error_is_one_sentence() {
        let refused = Cli::try_parse_from(["guild", "hash", "--jsn", "x"]).unwrap_err();
        assert_eq!(
            usage(&refused).message(),
            "unexpected argument '--jsn' found; tip: a similar argument exists: '--json'"
        );
    }
}
