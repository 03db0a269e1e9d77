//! The images that commands can run in here, and what they may use.

use std::collections::BTreeMap;
use std::path::Path;

use guild_market::sandbox_run::Bounds;
use guild_protocol::hash::{Hash, Hasher};
use guild_sandbox::{Image, Limits};

use crate::config::Config;

const MIB: u64 = 1 << 20;

/// What is installed below a host's `/usr` is in the database of its package manager; where there is none, in the name
/// of the system. Two hosts with the same packages are one image.
const INSTALLED: [&str; 4] = [
    "/usr/lib/os-release",
    "/var/lib/dpkg/status",
    "/lib/apk/db/installed",
    "/var/lib/rpm/rpmdb.sqlite",
];

/// What commands may use by these settings.
pub(crate) fn bounds(config: &Config) -> Bounds {
    let settings = &config.sandbox_run;
    let mib = |number: u32| u64::from(number).saturating_mul(MIB);
    let usual = Limits::job();
    let limits = Limits {
        cores_milli: settings.max_cores.saturating_mul(1_000),
        memory_soft_bytes: mib(settings.max_memory_mb),
        memory_hard_bytes: mib(settings.max_memory_mb),
        disk_bytes: mib(settings.max_disk_mb),
        wall_ms: u64::from(settings.max_timeout_s).saturating_mul(1_000),
        ..usual
    };
    Bounds { limits, images: images(config) }
}

/// Every image by its digest.
pub(crate) fn images(config: &Config) -> BTreeMap<String, Image> {
    let named = config.sandbox_run.images.0.iter();
    let mut images: BTreeMap<String, Image> = named
        .map(|(digest, directory)| (digest.clone(), Image::Directory(directory.clone())))
        .collect();
    // With a directory in its place nobody sees the host's own.
    if config.sandbox.image.is_empty() {
        images.insert(host_digest(), Image::Host);
    }
    images
}

/// The digest of this host's own `/usr`.
pub(crate) fn host_digest() -> String {
    digest_of(&INSTALLED.map(Path::new)).to_string()
}

fn digest_of(files: &[&Path]) -> Hash {
    let mut hasher = Hasher::new();
    hasher.update(format!("guild.host_image.v1\n{}\n", std::env::consts::ARCH).as_bytes());
    for file in files {
        // What is not there is not how this system keeps its books.
        let Ok(bytes) = std::fs::read(file) else { continue };
        hasher.update(format!("{} {}\n", file.display(), bytes.len()).as_bytes());
        hasher.update(&bytes);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_other_packages_is_another_image() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, "Package: x").unwrap();
        let before = digest_of(&[&a, &b]);
        assert_eq!(before, digest_of(&[&a, &b]));
        std::fs::write(&b, "").unwrap();
        let with_empty = digest_of(&[&a, &b]);
        assert_ne!(before, with_empty);
        std::fs::write(&a, "Package: y").unwrap();
        assert_ne!(with_empty, digest_of(&[&a, &b]));
    }

    #[test]
    fn the_default_bounds_can_be_given() {
        let bounds = bounds(&Config::default());
        assert_eq!(bounds.limits.check(), Ok(()));
        assert!(bounds.images[&host_digest()] == Image::Host);
    }
}
