//! What the node itself needs: a place for its data, time, randomness, locks, a port.

use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use guild_protocol::env::Clock;
use guild_store::{Access, Place, Sqlite, Val, connect};
use rustix::fs::{FlockOperation, flock, statvfs};

use super::Check;
use crate::config::Loaded;
use crate::node;
use crate::real::{SystemClock, SystemRandom};

/// 2025-01-01T00:00:00Z: an earlier clock is a wrong one.
const EARLIEST_SANE_MS: i64 = 1_735_689_600_000;
/// 2100-01-01T00:00:00Z: a later one too.
const LATEST_SANE_MS: i64 = 4_102_444_800_000;
/// A server that needs longer to be reached is as good as none.
const REACH: Duration = Duration::from_secs(3);
/// Below this a database soon stops.
const LITTLE_SPACE_BYTES: u64 = 1024 * 1024 * 1024;

pub(super) fn checks(loaded: &Loaded) -> Vec<Check> {
    let dir = &loaded.config.data_dir;
    let all = [
        data_directory(dir),
        free_space(dir),
        file_locking(dir),
        store(loaded),
        clock(SystemClock.now_ms()),
        randomness(),
        listener(loaded),
        bus(loaded),
    ];
    all.map(Check::required).into()
}

/// The directory itself, or the nearest one above it that exists: that is where it would be made.
fn nearest_existing(dir: &Path) -> &Path {
    dir.ancestors().find(|path| path.is_dir()).unwrap_or(dir)
}

/// A file that is gone when the check is over.
struct Probe {
    path: PathBuf,
    file: File,
}

impl Probe {
    fn make(dir: &Path) -> io::Result<Probe> {
        let path = nearest_existing(dir).join(format!(".guild-doctor-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Probe { path, file })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // Nothing can be done about it, and the name says what the file was.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn data_directory(dir: &Path) -> Check {
    let name = "data directory";
    match Probe::make(dir) {
        Ok(_) if dir.is_dir() => Check::ok(name, format!("{} is writable", dir.display())),
        Ok(_) => Check::ok(name, format!("{} will be made on first use", dir.display())),
        Err(e) => Check::missing(
            name,
            format!("{} is not writable: {e}", dir.display()),
            "Choose another with --data-dir, or change its owner.",
        ),
    }
}

/// The store that the settings name.
fn store(loaded: &Loaded) -> Check {
    let options = node::store_options(loaded);
    match options.place() {
        Ok(Place::SqliteFile(file)) => database_file(&file),
        Ok(Place::PostgresServer(_)) => database_server(&options),
        Err(e) => Check::missing("database", e.to_string(), e.code().remedy),
    }
}

/// A real database, made and migrated where the node's would be.
fn database_file(file: &Path) -> Check {
    let name = "database";
    let dir = file.parent().unwrap_or(file);
    let path = nearest_existing(dir).join(format!(".guild-doctor-{}.db", std::process::id()));
    let made = Sqlite::open(&path).and_then(|mut db| node::migrations().apply(&mut db, 0));
    for end in ["", "-wal", "-shm"] {
        let mut file = path.clone().into_os_string();
        file.push(end);
        // Whatever was not made need not be removed.
        let _ = std::fs::remove_file(file);
    }
    match made {
        Ok(()) => {
            let found = format!("SQLite {}, with a write-ahead log", Sqlite::version());
            Check::ok(name, format!("{found}, in {}", file.display()))
        }
        Err(e) => Check::missing(
            name,
            format!("SQLite cannot work in {}: {e}", dir.display()),
            "Choose a --data-dir on a local file system.",
        ),
    }
}

/// Whether the server answers, and whether its schema is one that this program knows.
fn database_server(options: &guild_store::Options) -> Check {
    let (name, url) = ("database", options.shown_url());
    let asked = connect(options, Access::Read).and_then(|mut db| {
        let mut version = String::new();
        db.query("SELECT current_setting('server_version')", &[], &mut |row| {
            if let Val::Text(text) = row.val(0)? {
                text.clone_into(&mut version);
            }
            Ok(())
        })?;
        Ok((version, node::migrations().pending(&mut *db)?))
    });
    match asked {
        Ok((version, pending)) => {
            let schema = match pending.len() {
                0 => "its schema is up to date".to_owned(),
                count => format!("`guild up` will apply {count} migrations"),
            };
            Check::ok(name, format!("PostgreSQL {version} at {url} is reachable; {schema}"))
        }
        Err(e) => Check::missing(name, format!("{url}: {e}"), e.code().remedy),
    }
}

fn free_space(dir: &Path) -> Check {
    let name = "free space";
    let advice = "Free some space, or choose another --data-dir.";
    match statvfs(nearest_existing(dir)) {
        Ok(stat) => {
            let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
            let found = format!("{} MiB", free_bytes / (1024 * 1024));
            if free_bytes < LITTLE_SPACE_BYTES {
                Check::weaker(name, found, advice)
            } else {
                Check::ok(name, found)
            }
        }
        Err(e) => Check::weaker(name, format!("unknown: {e}"), advice),
    }
}

/// Two handles of one file must not both hold its lock: that is what keeps two nodes out of one directory.
fn file_locking(dir: &Path) -> Check {
    let name = "file locking";
    let advice = "Use a local disk for --data-dir; some network file systems do not lock.";
    let attempt = || -> io::Result<bool> {
        let first = Probe::make(dir)?;
        flock(&first.file, FlockOperation::NonBlockingLockExclusive)?;
        let second = File::open(&first.path)?;
        match flock(&second, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
            Ok(()) => Ok(false),
            Err(e) => Err(e.into()),
        }
    };
    match attempt() {
        Ok(true) => Check::ok(name, "a second holder is kept out"),
        Ok(false) => Check::missing(name, "a second holder is let in", advice),
        Err(e) => Check::missing(name, e.to_string(), advice),
    }
}

fn clock(now_ms: i64) -> Check {
    let name = "clock";
    let shown = jiff::Timestamp::from_millisecond(now_ms)
        .map_or_else(|_| format!("{now_ms} ms"), |time| format!("{time:.0}"));
    if (EARLIEST_SANE_MS..LATEST_SANE_MS).contains(&now_ms) {
        Check::ok(name, shown)
    } else {
        let advice = "Set the clock, for instance with NTP: others refuse what is dated wrongly.";
        Check::missing(name, format!("{shown} cannot be right"), advice)
    }
}

fn randomness() -> Check {
    let name = "randomness";
    let mut bytes = [0; 32];
    match SystemRandom::try_fill(&mut bytes) {
        Ok(()) => Check::ok(name, "from the operating system"),
        Err(e) => Check::missing(name, e.to_string(), "Allow the getrandom system call."),
    }
}

fn listener(loaded: &Loaded) -> Check {
    let name = "listener";
    let address = loaded.config.gateway.listen;
    let advice = "Set another with gateway.listen.";
    match TcpListener::bind(address) {
        Ok(_) => Check::ok(name, format!("{address} is free")),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            Check::weaker(name, format!("{address} is taken, perhaps by a running node"), advice)
        }
        Err(e) => Check::missing(name, format!("{address} cannot be used: {e}"), advice),
    }
}

/// Bells are hints, so a server that is out of reach only makes the node slower to notice.
fn bus(loaded: &Loaded) -> Check {
    let name = "bus";
    let Some(options) = node::nats_options(loaded) else {
        return Check::ok(name, "bells within this process");
    };
    let address = match options.check() {
        Ok(address) => address,
        Err(e) => return Check::missing(name, e.to_string(), e.code().remedy),
    };
    let reach = || -> io::Result<()> {
        let mut last = Err(io::Error::from(io::ErrorKind::NotFound));
        for address in (address.host(), address.port()).to_socket_addrs()? {
            last = TcpStream::connect_timeout(&address, REACH).map(drop);
            if last.is_ok() {
                break;
            }
        }
        last
    };
    match reach() {
        Ok(()) => Check::ok(name, format!("{address} is reachable")),
        Err(e) => Check::weaker(
            name,
            format!("{address} is out of reach: {e}"),
            "Start the NATS server, or correct bus.url; until then other processes notice later.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_wrong_clock_is_seen() {
        assert_eq!(clock(0).status, Status::Missing);
        assert_eq!(clock(i64::MAX).status, Status::Missing);
        let sane = clock(EARLIEST_SANE_MS);
        assert_eq!((sane.status, sane.found.as_str()), (Status::Ok, "2025-01-01T00:00:00Z"));
    }

    #[test]
    fn a_probe_leaves_nothing_behind_and_needs_a_writable_place() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(file_locking(&dir.path().join("not/yet")).status, Status::Ok);
        assert_eq!(data_directory(dir.path()).status, Status::Ok);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(data_directory(Path::new("/proc/guild")).status, Status::Missing);
    }
}
