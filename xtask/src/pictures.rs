//! `cargo xtask pictures`: pictures of the pages, made by the test that looks at them, for the documents.

use std::path::Path;

use crate::workspace::Workspace;
use crate::{Result, setup};

/// `cargo xtask pictures [--to DIR]`
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where they go.
    #[arg(long, default_value = "docs/pictures")]
    to: std::path::PathBuf,
}

/// The pictures that documents show. The test makes more.
const SHOWN: [&str; 5] = [
    "overview-light.png",
    "request-dark.png",
    "receipt-phone.png",
    "overview-phone.png",
    "hosting-light.png",
];

pub(crate) fn run(tree: &Workspace, options: &Options) -> Result {
    setup::ensure(&[setup::BROWSER, setup::FONT])?;
    tree.cargo(&["test", "-q", "-p", "guild-gateway", "--test", "it", "pictures"])?;
    copy(&tree.target("tmp/pictures"), &tree.path(&options.to))
}

fn copy(from: &Path, to: &Path) -> Result {
    std::fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
    for name in SHOWN {
        let (from, to) = (from.join(name), to.join(name));
        std::fs::copy(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
        println!("{}", to.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_that_was_not_made_is_missed() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in SHOWN {
            let missed = copy(from.path(), to.path()).unwrap_err();
            assert!(missed.contains(name), "{missed}");
            std::fs::write(from.path().join(name), name).unwrap();
        }
        copy(from.path(), to.path()).unwrap();
        assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), SHOWN.len());
    }
}
