//! A copy of the whole store, made beside a running node, and checked before it gets its name.
//!
//! SQLite writes the copy itself (`VACUUM INTO`): one file, as of one moment. PostgreSQL's is what `pg_dump` makes, to
//! be read back with `pg_restore`.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::postgres::{connect_timeout, redacted};
use crate::refusal::{at, of_sqlite, open_reader};
use crate::{Error, Migrations, Options, Place, Result, Service, check};

/// What to do when there is a file of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leave it, and refuse.
    Keep,
    /// Replace it, once the new one is whole.
    Replace,
}

/// Copies the store to `target`, readable by its owner only; how many bytes it has. The copy is checked before it takes
/// the name, so whatever happens there is the old file, or none, or a whole new one.
pub fn make(
    options: &Options,
    migrations: &Migrations,
    target: &Path,
    existing: Existing,
) -> Result<u64> {
    if existing == Existing::Keep && target.symlink_metadata().is_ok() {
        return Err(Error::BackupExists(target.display().to_string()));
    }
    let place = options.place()?;
    if let Place::SqliteFile(path) = &place {
        spare_store(path, target)?;
    }
    let draft = Draft::make(target)?;
    match place {
        Place::SqliteFile(path) => {
            vacuum_into(&path, &draft.path)?;
            check_copy(&draft.path, migrations)?;
        }
        Place::PostgresServer(url) => {
            dump(&url, &draft.path)?;
            list(&draft.path)?;
        }
    }
    draft.put_in_place(target, existing)
}

/// A copy in the place of the store, or of a file that belongs to it, would lose what is written meanwhile.
fn spare_store(store: &Path, target: &Path) -> Result<()> {
    let identity = |file: std::fs::Metadata| (file.dev(), file.ino());
    let Ok(there) = target.symlink_metadata().map(identity) else { return Ok(()) };
    let own = ["", "-wal", "-shm"].map(|end| {
        let mut name = store.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    });
    if own.iter().any(|own| own.metadata().map(identity).is_ok_and(|own| own == there)) {
        let message = format!("{} belongs to the store itself", target.display());
        return Err(Error::BackupFailed(message));
    }
    Ok(())
}

/// The copy under a name of its own; gone unless it is put in place.
struct Draft {
    path: PathBuf,
    directory: PathBuf,
}

impl Draft {
    fn make(target: &Path) -> Result<Draft> {
        let directory = match target.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = directory.join(format!(".{name}.{}.tmp", std::process::id()));
        // Left by a killed process that had our number.
        let _ = std::fs::remove_file(&path);
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(|e| failed(target, &e))?;
        Ok(Draft { path, directory: directory.to_owned() })
    }

    fn put_in_place(self, target: &Path, existing: Existing) -> Result<u64> {
        let placed = || {
            let file = File::open(&self.path)?;
            file.sync_all()?;
            match existing {
                Existing::Replace => std::fs::rename(&self.path, target)?,
                // A link never replaces: somebody may have made the file meanwhile.
                Existing::Keep => std::fs::hard_link(&self.path, target)?,
            }
            File::open(&self.directory)?.sync_all()?;
            Ok(file.metadata()?.len())
        };
        placed().map_err(|e: std::io::Error| match e.kind() {
            std::io::ErrorKind::AlreadyExists => Error::BackupExists(target.display().to_string()),
            _ => failed(target, &e),
        })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It may have its name by now; what is left over is of no use.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn failed(target: &Path, error: &std::io::Error) -> Error {
    Error::BackupFailed(format!("{}: {error}", target.display()))
}

/// On a connection that only reads: a backup can never harm what it copies.
fn vacuum_into(from: &Path, to: &Path) -> Result<()> {
    let connection = open_reader(from)?;
    let Some(name) = to.to_str() else {
        let message = format!("{} is not a name in UTF-8", to.display());
        return Err(Error::BackupFailed(message));
    };
    // Whatever it is that fails, it is the copy; unless the source itself is damaged.
    let vacuumed = connection.execute("VACUUM INTO ?1", [name]).map_err(|e| of_sqlite(&e));
    vacuumed.map(|_| ()).map_err(|error| match error {
        Error::Database(said) => Error::BackupFailed(said),
        other => other,
    })
}

/// A store of another version is copied as well: before an upgrade, above all. Then its pages alone are judged.
fn check_copy(copy: &Path, migrations: &Migrations) -> Result<()> {
    let problems = match check::file(copy, migrations) {
        Err(Error::OlderSchema(_) | Error::NewerSchema(_) | Error::ChangedMigration(_)) => {
            return Ok(());
        }
        problems => problems?,
    };
    match problems.into_iter().next() {
        None => Ok(()),
        Some(problem) => {
            Err(Error::BackupFailed(format!("the copy is wrong: {}", problem.message)))
        }
    }
}

/// The first bytes of what `pg_dump` makes.
const DUMP_MAGIC: &[u8] = b"PGDMP";

/// Whether this file is a backup of PostgreSQL.
pub fn is_dump(path: &Path) -> Result<bool> {
    use std::io::Read;
    let mut first = Vec::new();
    let file = File::open(path).map_err(|e| at(path, &e))?;
    let length = u64::try_from(DUMP_MAGIC.len()).unwrap_or(u64::MAX);
    file.take(length).read_to_end(&mut first).map_err(|e| at(path, &e))?;
    Ok(first == DUMP_MAGIC)
}

/// Settings go by the environment: arguments are seen by everybody on the host, and there is a password among them.
fn dump(url: &str, to: &Path) -> Result<()> {
    let config: tokio_postgres::Config = url.parse().map_err(|e| Error::BadUrl {
        url: redacted(url),
        reason: format!("PostgreSQL's client says: {e}"),
    })?;
    run("pg_dump", |command| {
        command.args(["--format=custom", "--no-password", "--file"]).arg(to);
        for (name, value) in settings(&config) {
            match value.is_empty() {
                true => command.env_remove(name),
                false => command.env(name, value),
            };
        }
    })
    .map(|_| ())
}

/// What the program must know, and what it must not take from our own surroundings (empty here): it would copy another
/// database than the one that the store is in.
fn settings(config: &tokio_postgres::Config) -> Vec<(&'static str, String)> {
    let hosts = config.get_hosts().iter().map(|host| match host {
        tokio_postgres::config::Host::Tcp(name) => name.clone(),
        tokio_postgres::config::Host::Unix(directory) => directory.display().to_string(),
    });
    let ports = config.get_ports().iter().map(ToString::to_string);
    let ports = ports.collect::<Vec<_>>().join(",");
    let user = config.get_user().unwrap_or_default();
    let password = config.get_password().unwrap_or_default();
    vec![
        ("PGHOST", hosts.collect::<Vec<_>>().join(",")),
        ("PGPORT", if ports.is_empty() { "5432".to_owned() } else { ports }),
        ("PGUSER", user.to_owned()),
        ("PGDATABASE", config.get_dbname().unwrap_or(user).to_owned()),
        ("PGPASSWORD", String::from_utf8_lossy(password).into_owned()),
        ("PGCONNECT_TIMEOUT", connect_timeout(config).as_secs().to_string()),
        ("PGHOSTADDR", String::new()),
        ("PGOPTIONS", String::new()),
        ("PGSERVICE", String::new()),
    ]
}

/// Reads the table of contents of a backup of PostgreSQL. A dump that was cut off has none.
pub fn list(dump: &Path) -> Result<()> {
    let contents = run("pg_restore", |command| {
        command.arg("--list").arg(dump);
    })?;
    if contents.contains("schema_migration") {
        return Ok(());
    }
    Err(Error::BackupFailed("the backup holds no store".to_owned()))
}

/// Runs a program of PostgreSQL to its end; what it printed.
fn run(program: &str, arrange: impl Fn(&mut Command)) -> Result<String> {
    for path in places(program, Path::new("/usr/lib/postgresql")) {
        let mut command = Command::new(&path);
        arrange(&mut command);
        let output = match command.stdin(Stdio::null()).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            output => output.map_err(|e| failed(&path, &e))?,
        };
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().unwrap_or("it failed without a word");
        return Err(Error::BackupFailed(first.to_owned()));
    }
    Err(Error::NoPgDump(program.to_owned()))
}

/// Where a program may be: on the path, or where Debian puts every version, the newest first.
fn places(program: &str, debian: &Path) -> Vec<PathBuf> {
    let versions = std::fs::read_dir(debian).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    versions.sort();
    let kept = versions.into_iter().rev().map(|(_, path)| path.join("bin").join(program));
    std::iter::once(PathBuf::from(program)).chain(kept).collect()
}

/// Opens a backup of SQLite for reading, as a store.
pub fn open(path: &Path, migrations: &Migrations) -> Result<Service> {
    let path = std::path::absolute(path).map_err(|e| at(path, &e))?;
    Service::open_read_only(&Options::file(&path), migrations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_nowhere_is_named() {
        let missing = run("pg_no_such_program", |_| {}).unwrap_err();
        assert_eq!(missing, Error::NoPgDump("pg_no_such_program".to_owned()));
        assert!(missing.code().remedy.contains("postgresql-client"));
    }

    #[test]
    fn no_other_database_is_copied_whatever_the_surroundings_say() {
        let told = |url: &str| {
            let settings = settings(&url.parse().unwrap());
            settings.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let all = told("postgresql://ann:secret@a:1,b:2/guild");
        let given = ["PGHOST=a,b", "PGPORT=1,2", "PGUSER=ann", "PGDATABASE=guild"];
        let more = ["PGPASSWORD=secret", "PGCONNECT_TIMEOUT=5"];
        let kept_out = ["PGHOSTADDR=", "PGOPTIONS=", "PGSERVICE="];
        assert_eq!(all, [&given[..], &more, &kept_out].concat());
        let few = told("postgresql://ann@a");
        assert_eq!(few[..4], ["PGHOST=a", "PGPORT=5432", "PGUSER=ann", "PGDATABASE=ann"]);
    }

    #[test]
    fn the_newest_version_comes_first_after_the_path() {
        let dir = tempfile::tempdir().unwrap();
        for version in ["9", "15", "notes"] {
            std::fs::create_dir(dir.path().join(version)).unwrap();
        }
        let found = places("pg_dump", dir.path());
        let wanted = ["15/bin/pg_dump", "9/bin/pg_dump"].map(|end| dir.path().join(end));
        assert_eq!(found, [&[PathBuf::from("pg_dump")], &wanted[..]].concat());
    }
}
