//! Whose a machine is. Several nodes may share a database, and each drives what runs on its own host: a machine is
//! named in the rows, and the name belongs to one directory at a time.
//!
//! The directory holds a random token, made once. Whoever has it holds the lease `machine:NAME` of the store: the same
//! directory gets it again at once, whatever died; another one is refused, and drives nothing.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use guild_protocol::env::{Random, UnixMs};
use guild_store::Tx;
use guild_store::lease::{self, Lease};
use serde::{Deserialize, Serialize};

use super::code;
use crate::{Error, Result, SandboxId};

/// How long a claim stands that nobody renews. Half of what a lease can last: one that seems to last longer counts as
/// given under a wrong clock, and clocks differ.
pub const CLAIM_MS: i64 = lease::TTL_MAX_MS / 2;

const NAME_MAX_BYTES: usize = 40;
const TOKEN_BYTES: usize = 32;
const FILE: &str = "machine.json";
const FILE_MAX_BYTES: u64 = 4_096;

/// The name of a machine: lower-case letters, digits and hyphens, at most 40 of them.
///
/// ```
/// # use guild_hosting::machine::claim::MachineName;
/// assert_eq!("host-2".parse::<MachineName>()?.as_str(), "host-2");
/// for refused in ["", "Host", "a b", "a/b", &"a".repeat(41)] {
///     assert!(refused.parse::<MachineName>().is_err());
/// }
/// # Ok::<(), guild_hosting::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineName(String);

impl MachineName {
    /// As it stands in rows.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MachineName {
    type Err = Error;

    fn from_str(text: &str) -> Result<MachineName> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=NAME_MAX_BYTES).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(MachineName(text.to_owned()));
        }
        let why = format!(
            "the name of a machine has 1 to {NAME_MAX_BYTES} lower-case letters, digits and hyphens"
        );
        Err(Error::refused(&crate::code::MALFORMED, why))
    }
}

impl fmt::Display for MachineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What stands in the file.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The name under which the sandboxes in this directory were made.
    name: String,
    token: String,
}

/// The right of one directory to one machine.
#[derive(Clone)]
pub struct Claim {
    name: MachineName,
    holder: String,
    token: String,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the token.
        write!(f, "Claim({} for {})", self.name, self.holder)
    }
}

impl Claim {
    /// The claim of whoever has this directory of sandboxes to a machine of this name. Its token is made now, if there
    /// is none. A directory whose sandboxes were made under another name is refused: nobody would look after them.
    pub fn of(name: MachineName, root: &Path, random: &dyn Random) -> Result<Claim> {
        let failed = |e: io::Error| {
            let why = format!("{}: {e}", root.join(FILE).display());
            Error::refused(&code::MACHINE, why)
        };
        let holder = root.display().to_string().chars().take(100).collect();
        let token = match read(root).map_err(failed)? {
            Some(kept) if kept.name == name.as_str() => kept.token,
            Some(kept) if has_sandboxes(root).map_err(failed)? => {
                let why = format!(
                    "the sandboxes of {} were made as those of the machine {:?}; destroy them before it gets another \
                     name, or set hosting.machine back",
                    root.display(),
                    kept.name,
                );
                return Err(Error::refused(&code::MACHINE_TAKEN, why));
            }
            kept => {
                let token = kept.map_or_else(|| fresh(random), |kept| kept.token);
                let kept = Kept { name: name.to_string(), token: token.clone() };
                write(root, &kept).map_err(failed)?;
                token
            }
        };
        Ok(Claim { name, holder, token })
    }

    /// The name that is claimed.
    pub fn name(&self) -> &MachineName {
        &self.name
    }

    /// Takes the machine or makes the claim last longer; nothing if another directory has it.
    pub fn take(&self, tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<Option<Lease>> {
        let name = format!("machine:{}", self.name);
        Ok(lease::acquire(tx, &name, &self.holder, &self.token, CLAIM_MS, now_ms)?)
    }

    /// As [`Claim::take`], for whoever starts: a machine that another directory has is refused.
    pub fn require(&self, tx: &mut Tx<'_>, now_ms: UnixMs) -> Result<Lease> {
        self.take(tx, now_ms)?.ok_or_else(|| self.refused())
    }

    pub(super) fn refused(&self) -> Error {
        let why = format!(
            "another directory of this database drives the machine {}; set hosting.machine to another name here",
            self.name
        );
        Error::refused(&code::MACHINE_TAKEN, why)
    }
}

fn fresh(random: &dyn Random) -> String {
    let mut bytes = [0; TOKEN_BYTES];
    random.fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn has_sandboxes(root: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(root)? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(|name| name.parse::<SandboxId>().is_ok()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read(root: &Path) -> io::Result<Option<Kept>> {
    let file = match File::open(root.join(FILE)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES).read_to_end(&mut bytes)?;
    // Written whole: one that makes no sense was changed by somebody, and another token would lose the machine.
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Writes it whole, on the disk before it has its name.
fn write(root: &Path, kept: &Kept) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    let (draft, path): (PathBuf, PathBuf) = (root.join(format!(".{FILE}")), root.join(FILE));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(&serde_json::to_vec(kept)?)?;
    file.sync_all()?;
    fs::rename(draft, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Count(std::sync::atomic::AtomicU8);

    impl Random for Count {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
        }
    }

    fn claim(name: &str, root: &Path, random: &Count) -> Result<Claim> {
        Claim::of(name.parse()?, root, random)
    }

    #[test]
    fn a_directory_has_one_token_that_nobody_else_can_read() {
        let (directory, random) = (tempfile::tempdir().unwrap(), Count(0.into()));
        let root = directory.path().join("sandboxes");
        let first = claim("local", &root, &random).unwrap();
        assert_eq!(claim("local", &root, &random).unwrap().token, first.token);
        assert_eq!(first.token.len(), 2 * TOKEN_BYTES);
        let mode = fs::metadata(root.join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = claim("local", &directory.path().join("other"), &random).unwrap();
        assert_ne!(other.token, first.token);
        assert!(!format!("{first:?}").contains(&first.token));
    }

    #[test]
    fn a_machine_gets_another_name_only_when_nothing_is_on_it() {
        let (directory, random) = (tempfile::tempdir().unwrap(), Count(0.into()));
        let root = directory.path();
        let first = claim("local", root, &random).unwrap();
        let sandbox = root.join(format!("sbx_{:032x}", 1));
        fs::create_dir(&sandbox).unwrap();
        let error = claim("other", root, &random).unwrap_err();
        assert_eq!(error.code(), &code::MACHINE_TAKEN);
        assert!(error.to_string().contains("hosting.machine"), "{error}");
        claim("local", root, &random).unwrap();
        fs::remove_dir(&sandbox).unwrap();
        assert_eq!(claim("other", root, &random).unwrap().token, first.token);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_not_replaced() {
        let (directory, random) = (tempfile::tempdir().unwrap(), Count(0.into()));
        fs::write(directory.path().join(FILE), "{").unwrap();
        let error = claim("local", directory.path(), &random).unwrap_err();
        assert_eq!(error.code(), &code::MACHINE);
    }
}
