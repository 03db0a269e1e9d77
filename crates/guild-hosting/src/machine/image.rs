//! Which systems can be bought. An image has a name and a version, is never changed, and nothing else is run.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use guild_protocol::hash::{Hash, Hasher};

use super::code;
use crate::{Error, Result};

const MAX_NAME_BYTES: usize = 64;
/// How deep and how large a tree may be that is hashed.
const MAX_DEPTH: usize = 64;
const MAX_ENTRIES: usize = 5_000_000;

/// The name and version of an image, as `sandbox-base:v1.2.3`. There is no `latest`.
///
/// ```
/// # use guild_hosting::machine::image::ImageName;
/// let name: ImageName = "sandbox-base:v1.2.3".parse()?;
/// assert_eq!(name.to_string(), "sandbox-base:v1.2.3");
/// for refused in ["sandbox-base", "sandbox-base:latest", "sandbox-base:v1.2", "sandbox-base:v1.2.03", "a/b:v1.0.0"] {
///     assert!(refused.parse::<ImageName>().is_err());
/// }
/// # Ok::<(), guild_hosting::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageName(String);

impl FromStr for ImageName {
    type Err = Error;

    fn from_str(text: &str) -> Result<ImageName> {
        let letters = |name: &str| {
            let first = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
            first && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.len() <= 6;
            let plain = plain && digits.bytes().all(|b| b.is_ascii_digit());
            plain && (digits == "0" || !digits.starts_with('0'))
        };
        let version = |version: &str| {
            let parts: Vec<&str> = version.split('.').collect();
            parts.len() == 3 && parts.into_iter().all(number)
        };
        let good = text.len() <= MAX_NAME_BYTES
            && text.split_once(":v").is_some_and(|(name, rest)| letters(name) && version(rest));
        match good {
            true => Ok(ImageName(text.to_owned())),
            false => {
                let why = "an image is a name and a whole version, as sandbox-base:v1.2.3";
                Err(Error::refused(&code::NO_SUCH_IMAGE, why))
            }
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an image shows to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The host's own system, which changes with its packages; so it has no digest. For development.
    Host,
    /// The directories below this one.
    Directory {
        /// Where.
        path: PathBuf,
        /// Of the whole tree, by [`tree_digest`].
        digest: Hash,
    },
}

/// All images that can be bought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Images(BTreeMap<ImageName, Source>);

impl Images {
    /// None.
    pub fn new() -> Images {
        Images::default()
    }

    /// The same with one more.
    #[must_use]
    pub fn with(mut self, name: ImageName, source: Source) -> Images {
        self.0.insert(name, source);
        self
    }

    /// What a name stands for; whatever is not listed is refused.
    pub fn get(&self, name: &str) -> Result<&Source> {
        let name: ImageName = name.parse()?;
        self.0.get(&name).ok_or_else(|| {
            Error::refused(&code::NO_SUCH_IMAGE, format!("there is no image {name}"))
        })
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (&ImageName, &Source)> {
        self.0.iter()
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &ImageName> {
        self.0.keys()
    }

    /// Reads every tree and compares it with its digest. Takes as long as it takes to read them all.
    pub fn verify(&self) -> Result<()> {
        for (name, source) in &self.0 {
            let Source::Directory { path, digest } = source else { continue };
            let found = tree_digest(path).map_err(|e| {
                let why = format!("{name}: {}: {e}", path.display());
                Error::refused(&code::IMAGE_CHANGED, why)
            })?;
            if found != *digest {
                let why = format!("{name}: {} has the digest {found}", path.display());
                return Err(Error::refused(&code::IMAGE_CHANGED, why));
            }
        }
        Ok(())
    }
}

/// The digest of a tree: of the names, kinds, permissions and contents of all that is in it, in the order of names.
/// Owners and times do not count. Anything but files, directories and links is an error.
pub fn tree_digest(root: &Path) -> io::Result<Hash> {
    let mut hasher = Hasher::new();
    hasher.update(b"guildhall/image/v1\n");
    let mut left = MAX_ENTRIES;
    add_directory(&mut hasher, root, Path::new(""), MAX_DEPTH, &mut left)?;
    Ok(hasher.finish())
}

fn add_directory(
    hasher: &mut Hasher,
    root: &Path,
    below: &Path,
    depth: usize,
    left: &mut usize,
) -> io::Result<()> {
    let depth = depth.checked_sub(1).ok_or_else(|| io::Error::other("the tree is too deep"))?;
    let mut names = fs::read_dir(root.join(below))?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    for name in names {
        let too_many = || io::Error::other("the tree is too large");
        *left = left.checked_sub(1).ok_or_else(too_many)?;
        let (path, at) = (root.join(below).join(&name), below.join(&name));
        let about = fs::symlink_metadata(&path)?;
        let kind = about.file_type();
        let mode = about.permissions().mode() & 0o7777;
        let mut add = |word: &str, content: &[u8]| {
            let path = at.as_os_str().as_bytes();
            // Lengths stand before what they measure: no two trees are written alike.
            let head = format!("{word} {mode:o} {} {}\n", path.len(), content.len());
            [head.as_bytes(), path, content].iter().for_each(|part| hasher.update(part));
        };
        if kind.is_symlink() {
            add("link", fs::read_link(&path)?.as_os_str().as_bytes());
        } else if kind.is_file() {
            add("file", file_digest(&path)?.hex().as_bytes());
        } else if kind.is_dir() {
            add("directory", b"");
            add_directory(hasher, root, &at, depth, left)?;
        } else {
            return Err(io::Error::other(format!("{} is a special file", at.display())));
        }
    }
    Ok(())
}

fn file_digest(path: &Path) -> io::Result<Hash> {
    let mut file = fs::File::open(path)?;
    let mut hasher = Hasher::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(piece.get(..read).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_versions_are_names() {
        let too_long = format!("{}:v1.0.0", "a".repeat(64));
        let bad = [
            "",
            ":v1.0.0",
            "Base:v1.0.0",
            "base:1.0.0",
            "base:v1.0",
            "base:v1.0.0.0",
            "base:v01.0.0",
            "base:v1.0.0-rc1",
            "base:v1.0.9999999",
            "base:v1.0.0 ",
            "base:latest",
            "base",
            "../base:v1.0.0",
            &too_long,
        ];
        for text in bad {
            let error = text.parse::<ImageName>().unwrap_err();
            assert_eq!(error.code(), &code::NO_SUCH_IMAGE, "{text}");
        }
    }

    #[test]
    fn what_is_not_listed_is_refused() {
        let name: ImageName = "sandbox-base:v1.2.3".parse().unwrap();
        let images = Images::new().with(name, Source::Host);
        assert_eq!(images.get("sandbox-base:v1.2.3").unwrap(), &Source::Host);
        for text in ["sandbox-base:v1.2.4", "other:v1.2.3", "sandbox-base:latest"] {
            assert_eq!(images.get(text).unwrap_err().code(), &code::NO_SUCH_IMAGE, "{text}");
        }
    }

    #[test]
    fn a_changed_tree_has_another_digest_and_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("image");
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::write(root.join("usr/bin/a"), "one").unwrap();
        std::os::unix::fs::symlink("a", root.join("usr/bin/b")).unwrap();
        let digest = tree_digest(&root).unwrap();
        assert_eq!(tree_digest(&root).unwrap(), digest);
        let name: ImageName = "sandbox-base:v1.0.0".parse().unwrap();
        let source = Source::Directory { path: root.clone(), digest };
        let images = Images::new().with(name, source);
        images.verify().unwrap();
        let changes: [&dyn Fn(); 4] = [
            &|| fs::write(root.join("usr/bin/a"), "two").unwrap(),
            &|| fs::rename(root.join("usr/bin/a"), root.join("usr/bin/c")).unwrap(),
            &|| fs::create_dir(root.join("more")).unwrap(),
            &|| {
                let mode = fs::Permissions::from_mode(0o4755);
                fs::set_permissions(root.join("usr/bin/c"), mode).unwrap();
            },
        ];
        let mut seen = vec![digest];
        for change in changes {
            change();
            let now = tree_digest(&root).unwrap();
            assert!(!seen.contains(&now));
            seen.push(now);
            assert_eq!(images.verify().unwrap_err().code(), &code::IMAGE_CHANGED);
        }
    }
}
