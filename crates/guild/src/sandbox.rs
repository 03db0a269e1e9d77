//! The sandbox of this node, as the settings say.

use std::path::PathBuf;
use std::sync::Arc;

use guild_sandbox::{Defaults, Image, Ns, Options, Sandbox};

use crate::config::{Backend, Config, Environment};
use crate::error::{Error, Result, code};

/// This very program, also if its file has been replaced since.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// The one way to a sandbox: whoever runs a stranger's program gets it here, so that the settings hold for all.
pub(crate) fn open(config: &Config, _environment: &Environment) -> Result<Arc<dyn Sandbox>> {
    let settings = &config.sandbox;
    let defaults = defaults(config);
    match settings.backend {
        Backend::Ns => {
            let ahead = usize::try_from(settings.ahead).unwrap_or(0);
            Ok(Arc::new(Ns::new(Options { ahead, defaults, ..Options::new(THIS_PROGRAM) })?))
        }
        Backend::Oci => Err(Error::new(&code::CONFIG_BAD_VALUE, "there is no OCI backend yet")),
    }
}

fn defaults(config: &Config) -> Defaults {
    let settings = &config.sandbox;
    let image = match filled(&settings.image) {
        Some(path) => Image::Directory(config.data_dir.join(PathBuf::from(path))),
        None => Image::Host,
    };
    Defaults { image, require: settings.require.0.clone(), mac: filled(&settings.mac_profile) }
}

fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
