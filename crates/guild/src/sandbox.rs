//! The sandbox of this node, as the settings say.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use guild_sandbox::{Defaults, Image, Ns, Oci, OciOptions, Options, Sandbox};

use crate::config::{Backend, Config, Environment};
use crate::error::{Error, Result};

/// This very program, also if its file has been replaced since.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// The one way to a sandbox: whoever runs a stranger's program gets it here, so that the settings hold for all.
pub(crate) fn open(config: &Config, environment: &Environment) -> Result<Arc<dyn Sandbox>> {
    let settings = &config.sandbox;
    let defaults = defaults(config);
    match settings.backend {
        Backend::Ns => {
            let ahead = usize::try_from(settings.ahead).unwrap_or(0);
            Ok(Arc::new(Ns::new(Options { ahead, defaults, ..Options::new(THIS_PROGRAM) })?))
        }
        Backend::Oci => Ok(Arc::new(Oci::new(oci_options(config, environment, defaults)?)?)),
    }
}

fn oci_options(
    config: &Config,
    environment: &Environment,
    defaults: Defaults,
) -> Result<OciOptions> {
    let settings = &config.sandbox;
    let runtime = runtime(&settings.runtime, environment).ok_or_else(|| {
        let message = format!("there is no program {:?} on PATH", settings.runtime);
        Error::new(&guild_sandbox::code::RUNTIME, message).at("sandbox.runtime")
    })?;
    Ok(OciOptions {
        platform: filled(&settings.platform),
        timeout_ms: u64::from(settings.timeout_ms),
        defaults,
        ..OciOptions::new(THIS_PROGRAM, runtime)
    })
}

/// A runtime by its path or its name. Those of Debian are where only root looks.
pub(crate) fn runtime(name: &str, environment: &Environment) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name));
    }
    let found = environment.find_program(name);
    found.or_else(|| Some(Path::new("/usr/sbin").join(name)).filter(|path| path.is_file()))
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
