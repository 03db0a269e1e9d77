//! What each version of an image was when it was first offered here. A version is never changed: who bought it
//! yesterday buys the same today.
//!
//! It stands in a file beside the sandboxes, `images.json`, from the name and version of each image to the digest of
//! its tree. This host's own system has no digest, and is not kept.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use guild_protocol::hash::Hash;

use super::code;
use super::image::{Images, Source};
use crate::{Error, Result};

const FILE: &str = "images.json";
/// More than ten thousand versions.
const FILE_MAX_BYTES: u64 = 2 << 20;

type Pins = BTreeMap<String, Hash>;

/// Compares these images with what their versions were before, and keeps those that are new. What was changed is
/// refused, and then nothing is kept.
pub fn keep(root: &Path, images: &Images) -> Result<()> {
    let path = root.join(FILE);
    let failed = |e: io::Error| Error::refused(&code::MACHINE, format!("{}: {e}", path.display()));
    let mut pins = read(&path).map_err(failed)?;
    let known = pins.len();
    for (name, source) in images.all() {
        let before = pins.get(&name.to_string());
        match (before, source) {
            (None, Source::Host) => {}
            (None, Source::Directory { digest, .. }) => {
                pins.insert(name.to_string(), *digest);
            }
            (Some(before), Source::Directory { digest, .. }) if before == digest => {}
            (Some(before), source) => {
                let now = match source {
                    Source::Host => "this host's own system".to_owned(),
                    Source::Directory { digest, .. } => digest.to_string(),
                };
                let why =
                    format!("{name} was {before} when it was first offered here, and is {now} now");
                return Err(Error::refused(&code::IMAGE_CHANGED, why));
            }
        }
    }
    if pins.len() > known {
        write(root, &pins).map_err(failed)?;
    }
    Ok(())
}

fn read(path: &Path) -> io::Result<Pins> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Pins::new()),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES).read_to_end(&mut bytes)?;
    // One that makes no sense is not begun anew: what it said is what was sold.
    Ok(serde_json::from_slice(&bytes)?)
}

/// Writes it whole, on the disk before it has its name.
fn write(root: &Path, pins: &Pins) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    let (draft, path) = (root.join(format!(".{FILE}")), root.join(FILE));
    let bytes = serde_json::to_vec_pretty(pins)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length >= FILE_MAX_BYTES) {
        return Err(io::Error::other("there are too many versions of images"));
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(version: &str, content: Option<&[u8]>) -> Images {
        let source = match content {
            None => Source::Host,
            Some(content) => Source::Directory { path: "/x".into(), digest: Hash::of(content) },
        };
        Images::new().with(format!("base:{version}").parse().unwrap(), source)
    }

    #[test]
    fn a_version_stays_what_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("sandboxes");
        let keep = |images: Images| keep(&root, &images);
        keep(offered("v1.0.0", None)).unwrap();
        assert!(!root.join(FILE).exists(), "the host's own system has no digest");
        keep(offered("v1.0.0", Some(b"one"))).unwrap();
        keep(offered("v1.0.0", Some(b"one"))).unwrap();
        for changed in [Some(&b"two"[..]), None] {
            let both =
                offered("v1.0.0", changed).with("base:v1.2.0".parse().unwrap(), Source::Host);
            let error = keep(both).unwrap_err();
            assert_eq!(error.code(), &code::IMAGE_CHANGED);
            assert!(error.to_string().contains(&Hash::of(b"one").to_string()), "{error}");
        }
        keep(offered("v1.0.1", Some(b"two"))).unwrap();
        // Also what was not offered meanwhile is still known.
        assert_eq!(keep(offered("v1.0.0", Some(b"two"))).unwrap_err().code(), &code::IMAGE_CHANGED);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_not_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), "{\"base:v1.0.0\": \"sha").unwrap();
        let error = keep(directory.path(), &offered("v1.0.0", Some(b"one"))).unwrap_err();
        assert_eq!(error.code(), &code::MACHINE);
    }
}
