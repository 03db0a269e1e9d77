//! What can go wrong in the binary itself: files, configuration, the keystore.

use std::fmt;
use std::io;
use std::path::Path;

use guild_protocol::error::{Code, Kind};
use guild_protocol::problems::Problems;
use rustix::io::Errno;

/// The exit code of a command that answers no.
pub(crate) const EXIT_NO: u8 = 1;
/// The exit code of a command that was asked wrongly.
pub(crate) const EXIT_BAD_INPUT: u8 = 2;
/// The exit code of a command that cannot answer.
pub(crate) const EXIT_COULD_NOT_FIND_OUT: u8 = 3;

/// The codes of the binary.
pub(crate) mod code {
    guild_protocol::codes! {
        USAGE = "cli.usage", Invalid,
            "The command line is not one that guild understands.",
            "Add --help to the command to see what it takes.";
        IO_NOT_FOUND = "io.not_found", NotFound,
            "A file or directory does not exist.", "Check the path.";
        IO_DENIED = "io.denied", Denied,
            "The file system does not let guild read or write here.",
            "Change the owner or the mode of the path named, or run guild as another user.";
        IO_NOT_A_FILE = "io.not_a_file", Invalid,
            "The path is a directory or another thing that cannot be read as a file.",
            "Name a file.";
        IO_EXISTS = "io.exists", Conflict,
            "The file to write exists already; it was not changed.",
            "Name another file, or remove the old one first.";
        IO_TOO_LARGE = "io.too_large", Invalid,
            "A file is larger than the limit.", "Split it, or refer to large content by its CID.";
        IO_FAILED = "io.failed", Unavailable,
            "Reading or writing failed.", "Check the disk and the path, then try again.";
        AUDIT_NO_LEDGER = "audit.no_ledger", NotFound,
            "The directory holds neither a ledger.jsonl nor an evidence.json, so there is nothing to audit.",
            "Name the directory into which the ledger, or the evidence of some work, was exported.";
        AUDIT_UNREADABLE = "audit.unreadable", Unavailable,
            "A part of the evidence cannot be read, so nobody knows whether it holds.",
            "Make the path named a plain file or directory that you may read; links are not followed.";
        CONFIG_UNKNOWN_KEY = "config.unknown_key", Invalid,
            "A setting has a name that guild does not know.",
            "`guild config show --docs` lists every key and environment variable.";
        CONFIG_BAD_VALUE = "config.bad_value", Invalid,
            "A setting has a value of the wrong type or outside its range.",
            "`guild config show --docs` says what each key takes.";
        CONFIG_SYNTAX = "config.syntax", Invalid,
            "The configuration file is not TOML.", "Fix the line named.";
        CONFIG_NO_DATA_DIR = "config.no_data_dir", Invalid,
            "There is no home directory to put the data into.",
            "Give --data-dir, or set GUILD_DATA_DIR.";
        KEYSTORE_EXISTS = "keystore.exists", Conflict,
            "There is a keystore already; it was not changed.",
            "Use it, or choose another --data-dir. A key that is overwritten is lost for ever.";
        KEYSTORE_MISSING = "keystore.missing", NotFound,
            "There is no keystore in the data directory.", "Make one with `guild key new`.";
        KEYSTORE_PERMISSIONS = "keystore.permissions", Denied,
            "Other users of this host can read the keystore.",
            "Take their permission away with the chmod command named; if they may have read it, make a new key.";
        KEYSTORE_MALFORMED = "keystore.malformed", Invalid,
            "The keystore is not one that guild wrote, or has been changed.",
            "Restore it from a backup.";
        KEYSTORE_VERSION = "keystore.version", Invalid,
            "The keystore was written by a newer guild.", "Use that version, or a later one.";
        KEYSTORE_NO_PASSPHRASE = "keystore.no_passphrase", Invalid,
            "A passphrase is needed and there is no usable one.",
            "Run guild in a terminal, or name a file that holds the passphrase in GUILD_PASSPHRASE_FILE.";
        BUG = "internal.bug", Internal,
            "guild has a bug and stopped.",
            "Please report it, with the command you ran and these lines.";
        HOST_CA_FILE = "host.ca_file", Invalid,
            "A file of certificates holds none, or one that cannot be read.",
            "Name a file in PEM form with the certificate of whoever certifies the node.";
        HOST_CERTIFICATE = "host.certificate", Denied,
            "Whoever answers at the node's address does not prove that it is that node; nothing was sent to it.",
            "Check the address. If an authority of your own certifies it, name its file: `guild login --ca FILE`.";
        HOST_SIGNED_OUT = "host.signed_out", Denied,
            "You are not signed in at a node that sells sandboxes.", "Sign in with `guild login --host URL`.";
        AGENT_PROFILE = "agent.profile_malformed", Invalid,
            "The file with the profile of an agent cannot be read as one.",
            "Correct what is named; `guild agent run --help` shows a whole profile.";
        MODELS_FILE = "models.malformed", Invalid,
            "The file that says where models are cannot be read.",
            "Correct what is named; docs/models.md shows every setting.";
        MODELS_NONE = "models.none", NotFound,
            "There is no file that says where models are, so no agent can think.",
            "Write the file named, as in the example; a running node reads it at its next start.";
        TURN_GOES_ON = "turn.goes_on", Unavailable,
            "The turn was not over when this command was interrupted.", "It goes on at the node that runs.";
        HIRE_TREE = "hire.tree", Invalid,
            "The commands or the files for a sandbox cannot be sent as they are.",
            "Change what the message names; large files are better made by a command.";
        DEMO_FAILED = "demo.failed", Unavailable,
            "The demo did not go as it should on this host.",
            "Try again with -v to see more; a host that is very busy may be too slow for it.";
        DEMO_STOPPED = "demo.stopped", Unavailable,
            "The demo was interrupted; nothing of it is left.", "Run it again.";
        MARKET_UNKNOWN = "market.unknown", NotFound,
            "This node knows nothing under that id.", "The command `ls` lists what it knows.";
        NODE_RUNNING = "node.running", Conflict,
            "Another process holds the data directory.",
            "Use the node that runs, stop it, or choose another --data-dir.";
        NODE_NOT_RUNNING = "node.not_running", Unavailable,
            "No node runs on this data directory.", "Start it with `guild up`, or name another --data-dir.";
        NODE_NO_DATABASE = "node.no_database", NotFound,
            "This data directory has no database yet.", "Start the node once with `guild up`.";
        NODE_FILE_VERSION = "node.file_version", Invalid,
            "The file node.json was written by another version of guild.",
            "Use the version of guild that runs the node.";
        NODE_LISTEN = "node.listen", Unavailable,
            "The node's address cannot be listened on.",
            "Choose another with --set gateway.listen=127.0.0.1:0, or stop whoever uses it.";
        NODE_OTHER_IDENTITY = "node.other_identity", Conflict,
            "The database belongs to another identity than the keystore, or its keystore is gone.",
            "Put the keystore of the identity named into the data directory, or give this node a data directory and a \
             database of its own.";
        NODE_SERVICE_FAILED = "node.service_failed", Unavailable,
            "A service of the node failed, so the node stopped.", "The message names the service and the cause.";
        NODE_UNREACHABLE = "node.unreachable", Unavailable,
            "The node that holds the data directory does not answer as it should.",
            "Look at the node's own log; restart it if it hangs.";
    }
}

/// A failure of a command: its code, a sentence about this case, and where it is.
#[derive(Debug)]
pub(crate) struct Error(Box<Failure>);

#[derive(Debug)]
struct Failure {
    code: &'static Code,
    message: String,
    file: Option<String>,
    at: Option<String>,
    help: Option<String>,
    /// Lines that show what to write.
    example: &'static [&'static str],
    /// What else is wrong with the same input.
    others: Vec<Error>,
    left_out: usize,
}

/// The result of a command's parts.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(code: &'static Code, message: impl Into<String>) -> Error {
        Error(Box::new(Failure {
            code,
            message: shorten(message.into()),
            file: None,
            at: None,
            help: None,
            example: &[],
            others: Vec::new(),
            left_out: 0,
        }))
    }

    /// What the operating system said about `path`.
    pub(crate) fn io(path: &Path, error: &io::Error) -> Error {
        let code = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => &code::IO_NOT_FOUND,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => &code::IO_DENIED,
            io::ErrorKind::IsADirectory => &code::IO_NOT_A_FILE,
            io::ErrorKind::AlreadyExists => &code::IO_EXISTS,
            // Links in a circle and names that are too long: no such file can exist, and trying again changes nothing.
            _ => match Errno::from_io_error(error) {
                Some(Errno::LOOP | Errno::NAMETOOLONG) => &code::IO_NOT_FOUND,
                _ => &code::IO_FAILED,
            },
        };
        Error::new(code, plain(error)).in_file(path)
    }

    /// The same failure, placed: a field path, a line, a byte.
    #[must_use]
    pub(crate) fn at(mut self, place: impl Into<String>) -> Error {
        self.0.at = Some(shorten(place.into()));
        self
    }

    /// The same failure, in this file.
    #[must_use]
    pub(crate) fn in_file(mut self, path: &Path) -> Error {
        self.0.file = Some(path.display().to_string());
        self
    }

    /// The same failure, with help that fits this case better than the code's own.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Error {
        self.0.help = Some(help.into());
        self
    }

    /// The same failure, with lines that show what to write.
    #[must_use]
    pub(crate) fn example(mut self, lines: &'static [&'static str]) -> Error {
        self.0.example = lines;
        self
    }

    /// Lines that show what to write, if there are any.
    pub(crate) fn example_lines(&self) -> &'static [&'static str] {
        self.0.example
    }

    pub(crate) fn code(&self) -> &'static Code {
        self.0.code
    }

    pub(crate) fn kind(&self) -> Kind {
        self.0.code.kind
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.kind().exit_code()
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    pub(crate) fn place(&self) -> Option<&str> {
        self.0.at.as_deref()
    }

    /// The problems beside this first one.
    pub(crate) fn others(&self) -> &[Error] {
        &self.0.others
    }

    /// How many more there are than are listed.
    pub(crate) fn left_out(&self) -> usize {
        self.0.left_out
    }

    /// What the reader can do about it.
    pub(crate) fn remedy(&self) -> &str {
        self.0.help.as_deref().unwrap_or(self.0.code.remedy)
    }
}

/// A message may repeat what a stranger wrote: enough of it to recognise it, never a screen full.
fn shorten(text: String) -> String {
    const MAX_CHARS: usize = 400;
    match text.char_indices().nth(MAX_CHARS) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// The system's words without its number: "No such file or directory".
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words).to_owned()
}

impl From<guild_protocol::Error> for Error {
    fn from(error: guild_protocol::Error) -> Error {
        let same = Error::new(error.code(), error.message());
        if let Some(place) = error.place() { same.at(place) } else { same }
    }
}

impl From<guild_store::Error> for Error {
    fn from(error: guild_store::Error) -> Error {
        Error::from(guild_roles::Error::from(error))
    }
}

impl From<guild_bus::Error> for Error {
    fn from(error: guild_bus::Error) -> Error {
        Error::new(error.code(), error.to_string())
    }
}

impl From<guild_sandbox::Error> for Error {
    fn from(error: guild_sandbox::Error) -> Error {
        Error::new(error.code(), error.to_string())
    }
}

impl From<guild_sandbox::agent::Error> for Error {
    fn from(error: guild_sandbox::agent::Error) -> Error {
        Error::new(error.code(), error.to_string())
    }
}

impl From<guild_ledger::Error> for Error {
    fn from(error: guild_ledger::Error) -> Error {
        Error::new(error.code(), error.to_string())
    }
}

impl From<guild_market::Error> for Error {
    fn from(error: guild_market::Error) -> Error {
        Error::new(error.code(), error.to_string())
    }
}

impl From<guild_hosting::Error> for Error {
    fn from(error: guild_hosting::Error) -> Error {
        Error::new(error.code(), error.to_string())
    }
}

impl From<guild_kernel::Error> for Error {
    fn from(error: guild_kernel::Error) -> Error {
        Error::new(error.code(), error.to_string())
    }
}

impl From<guild_network::Error> for Error {
    fn from(error: guild_network::Error) -> Error {
        Error::new(error.code(), error.to_string())
    }
}

impl From<guild_roles::Error> for Error {
    fn from(error: guild_roles::Error) -> Error {
        Error::new(error.code(), error.to_string())
    }
}

impl From<guild_gateway::Error> for Error {
    fn from(error: guild_gateway::Error) -> Error {
        Error::new(error.code(), error.to_string())
    }
}

impl From<Problems> for Error {
    fn from(problems: Problems) -> Error {
        let left_out = problems.left_out();
        let mut all = problems.iter().cloned().map(Error::from);
        let first = all.next();
        let others = all.collect();
        match first {
            Some(mut first) => {
                (first.0.others, first.0.left_out) = (others, left_out);
                first
            }
            // There is always a first one; what is made of it alone would say the same.
            None => guild_protocol::Error::from(problems).into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}

/// Names the file in the errors of what was read from it.
pub(crate) trait InFile<T> {
    fn in_file(self, path: &Path) -> Result<T>;
}

impl<T, E: Into<Error>> InFile<T> for std::result::Result<T, E> {
    fn in_file(self, path: &Path) -> Result<T> {
        self.map_err(|e| e.into().in_file(path))
    }
}

/// Every error code that any command can show, by name.
pub(crate) fn all_codes() -> Vec<&'static Code> {
    let own = [
        guild_store::code::ALL,
        guild_bus::code::ALL,
        guild_sandbox::code::ALL,
        guild_sandbox::agent::code::ALL,
        guild_ledger::code::ALL,
        guild_ledger::evidence::code::ALL,
        guild_ledger::policy::code::ALL,
        guild_ledger::quote::code::ALL,
        guild_network::code::ALL,
        guild_hosting::access::code::ALL,
        guild_hosting::code::ALL,
        guild_hosting::machine::code::ALL,
        guild_kernel::code::ALL,
        guild_market::code::ALL,
        guild_memory::embed::code::ALL,
        guild_roles::code::ALL,
        guild_gateway::code::ALL,
        code::ALL,
    ];
    let own = own.into_iter().flatten().copied();
    let mut all: Vec<_> = guild_protocol::codes().chain(own).collect();
    all.sort_by_key(|code| code.name);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_codes_share_a_name_and_all_say_what_to_do() {
        let all = all_codes();
        for pair in all.windows(2) {
            assert_ne!(pair[0].name, pair[1].name);
        }
        for code in all {
            let (area, reason) = code.name.split_once('.').unwrap_or_default();
            let word = |s: &str| {
                !s.is_empty()
                    && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            };
            assert!(word(area) && word(reason), "{} is not area.reason", code.name);
            assert!(code.meaning.ends_with('.') && code.remedy.ends_with('.'), "{}", code.name);
        }
    }

    #[test]
    fn the_system_s_errors_have_codes() {
        let code = |kind| Error::io(Path::new("x"), &io::Error::from(kind)).code().name;
        assert_eq!(code(io::ErrorKind::NotFound), "io.not_found");
        assert_eq!(code(io::ErrorKind::PermissionDenied), "io.denied");
        assert_eq!(code(io::ErrorKind::TimedOut), "io.failed");
        for hopeless in [Errno::LOOP, Errno::NAMETOOLONG] {
            let error = Error::io(Path::new("x"), &hopeless.into());
            assert_eq!((error.code().name, error.exit_code()), ("io.not_found", 2));
        }
    }
}
