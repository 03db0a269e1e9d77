//! The error of this crate.

use guild_protocol::error::{Code, Kind};

/// The codes of this crate.
pub mod code {
    guild_protocol::codes! {
        FENCED = "store.fenced", Conflict,
            "Another holder has taken over what this write was about.",
            "Read the state again; the new holder goes on with the work.";
        BUSY = "store.busy", Unavailable,
            "The write queue is full, or the database is locked or kept busy by other processes.",
            "Try again in a moment; if it stays, look for a process that holds the database.";
        CLOSED = "store.closed", Unavailable,
            "The store has been shut down.", "Start the node again.";
        UNREACHABLE = "store.unreachable", Unavailable,
            "The database cannot be reached.",
            "See that the server runs and that store.url names it; the node goes on by itself when it is back.";
        COMMIT_UNKNOWN = "store.commit_unknown", Unavailable,
            "The database did not say whether the write was committed.",
            "Repeat the call with the same id: it is applied at most once.";
        DATABASE = "store.database", Unavailable,
            "The database refused a statement.",
            "The message names the cause: a full disk, missing rights, or a damaged file.";
        PANICKED = "store.panicked", Internal,
            "A write stopped in the middle by a bug and was rolled back.", "Please report it.";
        DECODE = "store.decode", Corrupt,
            "A stored row does not have the form its reader expects.",
            "The database was changed by another program; restore a backup.";
        NEWER_SCHEMA = "store.newer_schema", Conflict,
            "The database was written by a newer version of the program.",
            "Use that version, or a data directory of its own.";
        OLDER_SCHEMA = "store.older_schema", Unavailable,
            "The database was written by an older version of the program, or is just being made.",
            "Start the node once: it brings the database up to date.";
        CHANGED_MIGRATION = "store.changed_migration", Corrupt,
            "A migration that this database has applied differs from the one in the program.",
            "Use the version of the program that wrote the database.";
        BAD_URL = "store.bad_url", Invalid,
            "The store's URL is not one this program can open.",
            "Use sqlite:///absolute/path/to/file.db, postgresql://user@host:port/database, or leave store.url empty.";
        EVENT_CONFLICT = "store.event_conflict", Conflict,
            "An event with this id is stored already, with other content.",
            "Use a new id for new content.";
        OUTBOX_CONFLICT = "store.outbox_conflict", Conflict,
            "A message with this idempotency key is in the outbox already, with other content.",
            "Use a new key for new content.";
        ENTRY_MALFORMED = "audit.malformed", Invalid,
            "An audit entry has a field that is empty, too long or of the wrong form.",
            "Correct the field named.";
        NO_SUCH_EVENT = "store.no_such_event", NotFound,
            "There is no event with this id.", "Check the id; it may have been forgotten before it was pinned.";
        FULL = "store.full", Unavailable,
            "The disk has no room for the database; nothing was changed.",
            "Make room: the node goes on by itself.";
        IO = "store.io", Unavailable,
            "The disk under the database, or the system around it, failed; nothing was changed.",
            "The message names the cause: a failing disk, or no memory. The node goes on by itself.";
        GONE = "store.gone", Unavailable,
            "The database file was moved, replaced or deleted while the node used it.",
            "Put the file back or restore a backup, then start the node again.";
        NOT_A_DATABASE = "store.not_a_database", Corrupt,
            "The file is not a database.", "Name the right file, or restore a backup.";
        DAMAGED = "store.damaged", Corrupt,
            "The database file is damaged.",
            "Stop the node, keep the file for a rescue, and restore a backup.";
        INCONSISTENT = "store.inconsistent", Corrupt,
            "The tables of the database contradict each other.",
            "Another program has changed them, or this one has a bug: please report it. Restore a backup.";
        BACKUP_EXISTS = "store.backup_exists", Conflict,
            "The file to write the backup to exists already; it was not changed.",
            "Name another file, or add --force.";
        BACKUP_FAILED = "store.backup_failed", Unavailable,
            "The backup could not be made.", "The message names the cause; nothing was left behind.";
        NO_PG_DUMP = "store.no_pg_dump", Unavailable,
            "A backup of PostgreSQL needs a program that is not on this host.",
            "Install the package postgresql-client, of the server's version or a later one.";
        BAD_OPTIONS = "store.bad_options", Invalid,
            "A setting of the store or the outbox is out of its range.", "Correct the setting named.";
    }
}

/// What can go wrong in the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A fenced write found another holder.
    #[error("another holder has taken over")]
    Fenced,
    /// The queue is full.
    #[error("the write queue is full ({0} calls wait)")]
    QueueFull(usize),
    /// The database is locked by somebody else.
    #[error("the database is locked by another process")]
    Locked,
    /// The store has been shut down, or died with its process.
    #[error("the store is closed")]
    Closed,
    /// The same transaction may succeed if it is run again. Seen by a caller only when that never helped.
    #[error("the database could not settle a conflict: {0}")]
    Conflict(String),
    /// No connection to the database.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// A commit without an answer: it may or may not have happened.
    #[error("the database did not say whether the commit happened: {0}")]
    CommitUnknown(String),
    /// The closure panicked.
    #[error("a write panicked and was rolled back")]
    Panicked,
    /// The database refused.
    #[error("the database says: {0}")]
    Database(String),
    /// A row is not what its reader expects.
    #[error("a stored row cannot be read: {0}")]
    Decode(String),
    /// The database is newer than the program.
    #[error("the database has migration {0}, which this program does not know")]
    NewerSchema(String),
    /// The program is newer than the database.
    #[error("the database lacks migration {0}")]
    OlderSchema(String),
    /// An applied migration is not the one we have.
    #[error("migration {0} differs from the one this database has applied")]
    ChangedMigration(String),
    /// An unusable URL.
    #[error("{url:?} is not a store URL: {reason}")]
    BadUrl {
        /// As it was given, without a password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An event id used again for other content.
    #[error("event {0} is stored with other content")]
    EventConflict(String),
    /// An idempotency key used again for other content.
    #[error("message {0} is in the outbox with other content")]
    OutboxConflict(String),
    /// An audit entry that breaks a rule.
    #[error("{field}: {message}")]
    EntryMalformed {
        /// The field that is wrong.
        field: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// An event that is not there.
    #[error("there is no event {0}")]
    NoSuchEvent(String),
    /// No room.
    #[error("there is no room: {0}")]
    Full(String),
    /// The disk or the system failed, not the statement.
    #[error("the database cannot read or write: {0}")]
    Io(String),
    /// The file is another one, or none.
    #[error("{0} is not the file any more that was opened")]
    Gone(String),
    /// Another kind of file.
    #[error("this is not a database: {0}")]
    NotADatabase(String),
    /// A file whose pages are wrong.
    #[error("the database file is damaged: {0}")]
    Damaged(String),
    /// Tables that contradict each other.
    #[error("{0}")]
    Inconsistent(String),
    /// Something is where the backup should go.
    #[error("{0} exists already")]
    BackupExists(String),
    /// No backup.
    #[error("{0}")]
    BackupFailed(String),
    /// A program of PostgreSQL is missing.
    #[error("{0} is not on this host")]
    NoPgDump(String),
    /// A setting out of range.
    #[error("{0}")]
    BadOptions(String),
    /// The simulated process is dead. Never seen in production.
    #[error("the simulated process crashed")]
    Crashed,
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The stable code.
    pub fn code(&self) -> &'static Code {
        match self {
            Error::Fenced => &code::FENCED,
            Error::QueueFull(_) | Error::Locked | Error::Conflict(_) => &code::BUSY,
            Error::Closed | Error::Crashed => &code::CLOSED,
            Error::Unreachable(_) => &code::UNREACHABLE,
            Error::CommitUnknown(_) => &code::COMMIT_UNKNOWN,
            Error::Panicked => &code::PANICKED,
            Error::Database(_) => &code::DATABASE,
            Error::Decode(_) => &code::DECODE,
            Error::NewerSchema(_) => &code::NEWER_SCHEMA,
            Error::OlderSchema(_) => &code::OLDER_SCHEMA,
            Error::ChangedMigration(_) => &code::CHANGED_MIGRATION,
            Error::BadUrl { .. } => &code::BAD_URL,
            Error::EventConflict(_) => &code::EVENT_CONFLICT,
            Error::OutboxConflict(_) => &code::OUTBOX_CONFLICT,
            Error::EntryMalformed { .. } => &code::ENTRY_MALFORMED,
            Error::NoSuchEvent(_) => &code::NO_SUCH_EVENT,
            Error::Full(_) => &code::FULL,
            Error::Io(_) => &code::IO,
            Error::Gone(_) => &code::GONE,
            Error::NotADatabase(_) => &code::NOT_A_DATABASE,
            Error::Damaged(_) => &code::DAMAGED,
            Error::Inconsistent(_) => &code::INCONSISTENT,
            Error::BackupExists(_) => &code::BACKUP_EXISTS,
            Error::BackupFailed(_) => &code::BACKUP_FAILED,
            Error::NoPgDump(_) => &code::NO_PG_DUMP,
            Error::BadOptions(_) => &code::BAD_OPTIONS,
        }
    }

    /// Whether the transaction is over, not only the call in which it was met.
    pub(crate) fn ends_transaction(&self) -> bool {
        matches!(self, Error::Crashed | Error::Conflict(_) | Error::Unreachable(_))
    }

    /// Whether every call of the group would meet it alone too, or must not be run again.
    pub(crate) fn concerns_all(&self) -> bool {
        matches!(
            self,
            Error::CommitUnknown(_) | Error::Locked | Error::Conflict(_) | Error::Unreachable(_)
        )
    }

    /// Whether the same call may succeed later though nobody changes it. What the tables refuse they refuse again.
    ///
    /// ```
    /// use guild_store::Error;
    /// assert!(Error::Full("no room".to_owned()).is_passing());
    /// assert!(!Error::Database("CHECK constraint failed".to_owned()).is_passing());
    /// ```
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Error::QueueFull(_)
                | Error::Locked
                | Error::Conflict(_)
                | Error::Unreachable(_)
                | Error::CommitUnknown(_)
                | Error::Full(_)
                | Error::Io(_)
        )
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code().kind
    }
}
