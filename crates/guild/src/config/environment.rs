//! The environment of the process, read once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Names the file with the passphrase of the keystore.
pub(crate) const PASSPHRASE_FILE: &str = "GUILD_PASSPHRASE_FILE";
/// What every variable of ours begins with.
pub(crate) const PREFIX: &str = "GUILD_";

/// The variables that guild looks at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, OsString>,
}

impl Environment {
    /// Those of this process. Names that are not UTF-8 cannot be ours.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub(crate) fn of_this_process() -> Environment {
        let named = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value));
        Environment { variables: std::env::vars_os().filter_map(named).collect() }
    }

    /// An empty variable is as good as none.
    fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(name).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// A key that somebody has put there for a service of others.
    pub(crate) fn secret(&self, name: &str) -> Option<String> {
        self.get(name).and_then(OsStr::to_str).map(str::to_owned)
    }

    /// Those that are meant for guild.
    pub(crate) fn ours(&self) -> impl Iterator<Item = (&str, &OsStr)> {
        let all = self.variables.iter().filter(|(name, _)| name.starts_with(PREFIX));
        all.map(|(name, value)| (name.as_str(), value.as_os_str()))
    }

    /// `$XDG_DATA_HOME/guildhall`, or `~/.local/share/guildhall`.
    pub(crate) fn default_data_dir(&self) -> Option<PathBuf> {
        // The specification says that a relative path is to be ignored.
        let absolute = |name| self.get(name).map(Path::new).filter(|path| path.is_absolute());
        absolute("XDG_DATA_HOME")
            .map(Path::to_path_buf)
            .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
            .map(|share| share.join("guildhall"))
    }

    pub(crate) fn passphrase_file(&self) -> Option<&Path> {
        self.get(PASSPHRASE_FILE).map(Path::new)
    }

    /// Whether colours are unwanted (see no-color.org).
    pub(crate) fn no_color(&self) -> bool {
        self.get("NO_COLOR").is_some()
    }

    /// Where a program of this name is found.
    pub(crate) fn find_program(&self, name: &str) -> Option<PathBuf> {
        let runs = |path: &PathBuf| {
            path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
        };
        std::env::split_paths(self.get("PATH")?).map(|dir| dir.join(name)).find(runs)
    }
}
