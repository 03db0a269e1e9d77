//! Where models answer: `models.toml` in the data directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use guild_kernel::model::{Endpoint, Endpoints, Price, Secret};
use serde::Deserialize;

use crate::config::{Environment, Loaded};
use crate::error::{Error, InFile as _, Result, code};
use crate::input::Input;

/// The file in the data directory.
pub(crate) const FILE_NAME: &str = "models.toml";
const FILE_MAX_BYTES: usize = 1024 * 1024;
const KEY_MAX_BYTES: usize = 64 * 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ModelsFile {
    endpoint: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    provider: String,
    url: Option<String>,
    /// The variable of the environment that holds the key.
    key_env: Option<String>,
    /// The file that holds the key, beside this one.
    key_file: Option<PathBuf>,
    default_model: Option<String>,
    #[serde(default)]
    prices: BTreeMap<String, EntryPrice>,
}

/// What a million tokens cost.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryPrice {
    prompt_micro_usd: i64,
    completion_micro_usd: i64,
}

/// Enough to begin with.
const EXAMPLE: &[&str] = &[
    "# one for each service; docs/models.md has all of them",
    r#"endpoint = [{ name = "local", provider = "ollama", default_model = "qwen3" }]"#,
];

/// Refuses if this process and the node that runs here know no model, and no other process could: without a server
/// the database is theirs alone.
pub(crate) fn require(loaded: &Loaded) -> Result<()> {
    let path = loaded.data_file(FILE_NAME);
    if path.exists() || !loaded.config.store.url.is_empty() {
        return Ok(());
    }
    let message = "nothing says where models are";
    Err(Error::new(&code::MODELS_NONE, message).in_file(&path).example(EXAMPLE))
}

/// What the file says; nothing if there is none.
pub(crate) fn read(loaded: &Loaded, environment: &Environment) -> Result<Endpoints> {
    let path = loaded.data_file(FILE_NAME);
    if !path.exists() {
        return Ok(Endpoints::default());
    }
    let bytes = Input::from(path.as_os_str().to_owned()).read(FILE_MAX_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| malformed("it is not UTF-8")).in_file(&path)?;
    let file: ModelsFile =
        toml::from_str(&text).map_err(|error| malformed(error.message())).in_file(&path)?;
    let mut endpoints = Endpoints::default();
    for entry in file.endpoint {
        endpoints.list.push(endpoint(entry, loaded, environment).in_file(&path)?);
    }
    endpoints.check().in_file(&path)?;
    Ok(endpoints)
}

/// What the tools of agents may take from the environment. A variable that is not there is missed when it is wanted.
pub(crate) fn tool_env(loaded: &Loaded, environment: &Environment) -> BTreeMap<String, String> {
    let (values, missing) = loaded.config.kernel.tool_env.read(environment);
    if !missing.is_empty() {
        tracing::warn!(
            missing = missing.join(","),
            "kernel.tool_env names variables that are not set"
        );
    }
    values
}

fn malformed(words: &str) -> Error {
    Error::new(&code::MODELS_FILE, words)
}

fn endpoint(entry: Entry, loaded: &Loaded, environment: &Environment) -> Result<Endpoint> {
    let key = key(&entry, loaded, environment)?;
    let price = |price: EntryPrice| Price {
        prompt_micro_usd: price.prompt_micro_usd,
        completion_micro_usd: price.completion_micro_usd,
    };
    Ok(Endpoint {
        provider: entry.provider.parse()?,
        name: entry.name,
        url: entry.url,
        key,
        default_model: entry.default_model,
        prices: entry.prices.into_iter().map(|(model, cost)| (model, price(cost))).collect(),
    })
}

/// A key stands in a file of its own or in the environment, never among the settings, which people show each other.
fn key(entry: &Entry, loaded: &Loaded, environment: &Environment) -> Result<Option<Secret>> {
    match (&entry.key_env, &entry.key_file) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            Err(malformed(&format!("{}: key_env or key_file, not both", entry.name)))
        }
        (Some(variable), None) => match environment.secret(variable) {
            Some(key) => Ok(Some(Secret::new(key))),
            None => Err(malformed(&format!(
                "{}: the variable {variable} of the environment is not set",
                entry.name
            ))),
        },
        (None, Some(file)) => {
            let path: PathBuf = loaded.config.data_dir.join(file);
            Ok(Some(Secret::new(key_of(&path)?)))
        }
    }
}

fn key_of(path: &Path) -> Result<String> {
    let bytes = Input::from(path.as_os_str().to_owned()).read(KEY_MAX_BYTES)?;
    let key =
        String::from_utf8(bytes).map_err(|_| malformed("the key is not UTF-8")).in_file(path)?;
    Ok(key.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_can_be_used_as_it_is() {
        let file: ModelsFile = toml::from_str(&EXAMPLE.join("\n")).unwrap();
        assert_eq!(file.endpoint.len(), 1);
        assert!(file.endpoint[0].provider.parse::<guild_kernel::model::Provider>().is_ok());
    }
}
