//! The policy bundle of this node.

use guild_ledger::policy::{Bundle, MAX_BYTES};

use crate::config::Loaded;
use crate::error::{InFile, Result};
use crate::input::Input;

/// The bundle that the settings name, or the built-in one.
pub(crate) fn own_bundle(loaded: &Loaded) -> Result<Bundle> {
    match loaded.policy_file() {
        Some(path) => {
            let text = Input::from(path.clone().into_os_string()).read(MAX_BYTES)?;
            Bundle::parse(&text).in_file(&path)
        }
        None => Ok(Bundle::builtin()?),
    }
}
