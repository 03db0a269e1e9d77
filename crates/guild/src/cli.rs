//! The command line: what may be written, and what is said when it is not.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser};

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

/// What every command takes, before and after its name: see [`spread`].
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Answer with one JSON object on a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the node keeps its data [default: ~/.local/share/guildhall]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The configuration file [default: guild.toml in the data directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Set one configuration key, as in `--set log.level=debug`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Log more; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Log less; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) quiet: u8,
}

impl Global {
    /// How many steps louder than configured.
    pub(crate) fn louder(&self) -> i16 {
        i16::from(self.verbose) - i16::from(self.quiet)
    }

    /// What was given before the name of a command, and what after it. What may be repeated adds up; of the rest each
    /// may be said once, because nobody could tell which of two was meant.
    fn and(self, inner: Global) -> Result<Global, clap::Error> {
        Ok(Global {
            json: self.json || inner.json,
            data_dir: either("--data-dir <DIR>", self.data_dir, inner.data_dir)?,
            config: either("--config <FILE>", self.config, inner.config)?,
            set: [self.set, inner.set].concat(),
            verbose: self.verbose.saturating_add(inner.verbose),
            quiet: self.quiet.saturating_add(inner.quiet),
        })
    }
}

fn either<T>(name: &str, outer: Option<T>, inner: Option<T>) -> Result<Option<T>, clap::Error> {
    if outer.is_some() && inner.is_some() {
        let message = format!("the argument '{name}' cannot be used multiple times\n");
        return Err(command().error(ErrorKind::ArgumentConflict, message));
    }
    Ok(outer.or(inner))
}

/// The commands, each with the global options as its own.
fn command() -> clap::Command {
    spread(Cli::command())
}

/// clap's own global options forget: of a list that is given before and after the name of a command, the later part
/// alone is kept, and so it is with counts. So every command has them as its own, and [`read`] puts them together.
fn spread(command: clap::Command) -> clap::Command {
    let global = Global::augment_args(clap::Command::new("global"));
    let every = global.get_arguments().cloned().collect::<Vec<_>>();
    command.mut_subcommands(|below| spread(below).args(&every))
}

/// Reads a command line.
fn read<I, T>(words: I) -> Result<Cli, clap::Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let matches = command().try_get_matches_from(words)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    let mut level: &ArgMatches = &matches;
    while let Some((_, below)) = level.subcommand() {
        cli.global = cli.global.and(Global::from_arg_matches(below)?)?;
        level = below;
    }
    Ok(cli)
}

/// Reads the command line of this process, or answers it itself (help, version, a mistake) and gives the exit code.
pub(crate) fn parse(environment: &Environment) -> Result<(Cli, Output), u8> {
    let refused = match read(std::env::args_os()) {
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
    let named =
        in_plain_words(&text).replacen("error:", &format!("error[{}]:", code::USAGE.name), 1);
    // There is nobody left to tell.
    let _ = io::stderr().write_all(named.as_bytes());
    Err(EXIT_BAD_INPUT)
}

/// What the standard library says of numbers, in words for whoever types them.
fn in_plain_words(text: &str) -> String {
    let words = [
        ("invalid digit found in string", "write a whole number"),
        ("cannot parse integer from empty string", "write a whole number"),
        ("number too large to fit in target type", "the number is too large"),
        ("number too small to fit in target type", "the number is too small"),
    ];
    words.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// clap's words as one sentence.
fn usage(refused: &clap::Error) -> Error {
    if refused.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Error::new(&code::USAGE, "a command is missing");
    }
    let text = in_plain_words(&refused.render().to_string());
    let mut lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let first = lines.next().unwrap_or_default();
    let mut message = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with("For more")) {
        message = format!("{message}; {line}");
    }
    Error::new(&code::USAGE, message)
}

/// The whole tree of commands, to be described: with help of one width wherever it is made, and the global options
/// marked as what they are.
pub(crate) fn tree() -> clap::Command {
    let mut tree = Cli::command().mut_args(|arg| arg.global(true)).term_width(100);
    tree.build();
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn what_is_described_is_what_is_read() {
        fn options(of: &clap::Command, all: &mut Vec<String>) {
            let of_this =
                of.get_arguments().map(|arg| format!("{}/{}", of.get_name(), arg.get_id()));
            all.extend(of_this);
            of.get_subcommands()
                .filter(|sub| sub.get_name() != "help")
                .for_each(|sub| options(sub, all));
        }
        let (mut read, mut described) = (Vec::new(), Vec::new());
        let mut built = command();
        built.build();
        options(&built, &mut read);
        options(&tree(), &mut described);
        read.sort();
        described.sort();
        assert_eq!(read, described);
    }

    fn global(line: &str) -> Global {
        read(line.split(' ')).unwrap().global
    }

    #[test]
    fn what_is_said_before_and_after_a_command_adds_up() {
        let [a, b, c] = ["a=1", "b=2", "c=3"].map(|text| text.parse::<Setting>().unwrap());
        assert_eq!(global("guild --set a=1 up --set=b=2").set, [a.clone(), b.clone()]);
        let all = global("guild --set=a=1 ledger --set b=2 accounts --set c=3").set;
        assert_eq!(all, [a, b, c]);
        assert_eq!(global("guild up").set, []);
        assert_eq!(global("guild -v up -vv").louder(), 3);
        assert_eq!(global("guild -qq up --verbose").louder(), -1);
        assert!(global("guild --json up").json && global("guild up --json").json);
        assert!(global("guild --json up --json").json);
        for line in ["guild --data-dir d up --config c", "guild --config c up --data-dir d"] {
            let Global { data_dir, config, .. } = global(line);
            assert_eq!((data_dir, config), (Some("d".into()), Some("c".into())), "{line}");
        }
    }

    #[test]
    fn of_what_may_be_said_once_two_are_refused() {
        for (line, name) in [
            ("guild --data-dir a up --data-dir b", "--data-dir <DIR>"),
            ("guild up --data-dir a --data-dir b", "--data-dir <DIR>"),
            ("guild --config a ledger accounts --config b", "--config <FILE>"),
        ] {
            let told = usage(&read(line.split(' ')).unwrap_err()).message().to_owned();
            assert_eq!(
                told,
                format!("the argument '{name}' cannot be used multiple times"),
                "{line}"
            );
        }
    }

    #[test]
    fn the_words_of_a_program_that_is_run_are_its_own() {
        let told = global("guild sandbox run echo -v --set a=1");
        assert_eq!((told.louder(), told.set.len()), (0, 0));
    }

    #[test]
    fn a_number_that_is_none_is_told_in_plain_words() {
        let told = |line: &str| usage(&read(line.split(' ')).unwrap_err()).message().to_owned();
        for (line, words) in [
            (
                "guild log tail -n x",
                "invalid value 'x' for '--lines <COUNT>': write a whole number",
            ),
            ("guild outbox retry 1x", "invalid value '1x' for '[SEQ]...': write a whole number"),
            (
                "guild relay query --since 99999999999999999999",
                "invalid value '99999999999999999999' for '--since <SECONDS>': the number is too large",
            ),
        ] {
            assert_eq!(told(line), words);
        }
    }

    #[test]
    fn a_usage_error_is_one_sentence() {
        let refused = read(["guild", "hash", "--jsn", "x"]).unwrap_err();
        assert_eq!(
            usage(&refused).message(),
            "unexpected argument '--jsn' found; tip: a similar argument exists: '--json'"
        );
    }
}
