//! The layers of settings, laid over each other. Every value is checked on its own, so that a refusal can name the
//! place the value came from.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::key::{self, leaves, tree_of};
use super::{Config, Environment, FILE_NAME, environment};
use crate::cli::Global;
use crate::error::{Error, Result, code};
use crate::input::Input;
use crate::suggest;

/// A configuration file larger than this is something else.
const MAX_FILE_BYTES: usize = 1024 * 1024;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    File(PathBuf),
    Environment(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path) => path.display().fmt(f),
            Origin::Environment(name) => f.write_str(name),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

/// The settings in force.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// Of every value that was set, by key.
    pub(crate) origins: BTreeMap<String, Origin>,
    /// The file that was read, if there was one.
    pub(crate) file: Option<PathBuf>,
}

impl Loaded {
    /// Settings that the program itself chose: no file or variable has a say.
    pub(crate) fn chosen(config: Config) -> Loaded {
        // An address that was chosen is not given up for another one.
        let listen = ("gateway.listen".to_owned(), Origin::Flag("demo"));
        Loaded { config, origins: BTreeMap::from([listen]), file: None }
    }

    /// The same for a node that is gone in a moment: nobody has to find it, and it promises nobody to work.
    pub(crate) fn for_a_moment(&self) -> Loaded {
        let mut loaded = self.clone();
        loaded.config.provider.enabled = false;
        loaded.config.gateway.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        loaded.origins.insert("gateway.listen".to_owned(), Origin::Flag("hire"));
        loaded
    }

    /// A file in the data directory.
    pub(crate) fn data_file(&self, name: &str) -> PathBuf {
        self.config.data_dir.join(name)
    }

    /// The policy bundle of this node, unless it is the built-in one.
    pub(crate) fn policy_file(&self) -> Option<PathBuf> {
        let file = &self.config.policy.file;
        (!file.is_empty()).then(|| self.data_file(file))
    }
}

/// `--set key=value`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    key: String,
    value: String,
}

impl FromStr for Setting {
    type Err = String;
    fn from_str(text: &str) -> Result<Setting, String> {
        let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
        Ok(Setting { key: key.trim().to_owned(), value: value.to_owned() })
    }
}

struct Layered {
    tree: toml::Table,
    origins: BTreeMap<String, Origin>,
}

/// Reads all layers. A file that is not there is no error unless it was named.
pub(crate) fn load(global: &Global, environment: &Environment) -> Result<Loaded> {
    let mut over_file = Layered { tree: toml::Table::new(), origins: BTreeMap::new() };
    set_from_environment(&mut over_file, environment)?;
    for setting in &global.set {
        over_file.set_text(&setting.key, &setting.value, Origin::Flag("--set"))?;
    }
    if let Some(dir) = &global.data_dir {
        let dir = dir.to_str().ok_or_else(|| not_utf8("--data-dir"))?;
        over_file.set_text("data_dir", dir, Origin::Flag("--data-dir"))?;
    }

    let mut all = Layered { tree: tree_of(&Config::default()), origins: BTreeMap::new() };
    let file = match &global.config {
        Some(named) => Some(named.clone()),
        None => implied_file(&over_file, environment)?,
    };
    if let Some(path) = &file {
        set_from_file(&mut all, path, global.config.is_some())?;
    }
    for (path, value) in leaves(&over_file.tree) {
        insert(&mut all.tree, &path, value);
    }
    all.origins.extend(over_file.origins);

    let mut config: Config = all.tree.try_into().map_err(|e: toml::de::Error| {
        Error::new(&code::CONFIG_BAD_VALUE, e.message().to_owned())
    })?;
    if config.data_dir.as_os_str().is_empty() {
        config.data_dir = default_data_dir(environment)?;
    }
    config.data_dir = absolute(&config.data_dir)?;
    Ok(Loaded { config, origins: all.origins, file })
}

fn default_data_dir(environment: &Environment) -> Result<PathBuf> {
    environment.default_data_dir().ok_or_else(|| {
        let message = "neither XDG_DATA_HOME nor HOME names a directory";
        Error::new(&code::CONFIG_NO_DATA_DIR, message)
    })
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::io(path, &e))
}

/// `guild.toml` in the data directory, if it is there.
fn implied_file(set: &Layered, environment: &Environment) -> Result<Option<PathBuf>> {
    let named = set.tree.get("data_dir").and_then(toml::Value::as_str).filter(|s| !s.is_empty());
    let dir = match named {
        Some(dir) => PathBuf::from(dir),
        None => default_data_dir(environment)?,
    };
    let path = absolute(&dir)?.join(FILE_NAME);
    match path.symlink_metadata() {
        Ok(_) => Ok(Some(path)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io(&path, &e)),
    }
}

fn set_from_file(layers: &mut Layered, path: &Path, named: bool) -> Result<()> {
    let bytes = Input::from(path.as_os_str().to_owned()).read(MAX_FILE_BYTES)?;
    let syntax = |message: String| Error::new(&code::CONFIG_SYNTAX, message).in_file(path);
    let text = String::from_utf8(bytes).map_err(|_| syntax("the file is not UTF-8".to_owned()))?;
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let message = e.message().lines().collect::<Vec<_>>().join(", ");
        match e.span() {
            Some(span) => syntax(message).at(line_and_column(&text, span.start)),
            None => syntax(message),
        }
    })?;
    for (key, value) in leaves(&table) {
        if key == "data_dir" && !named {
            let message = "this file is found through the data directory, so it cannot move it";
            return Err(Error::new(&code::CONFIG_BAD_VALUE, message)
                .in_file(path)
                .at(key)
                .help("Give --data-dir or GUILD_DATA_DIR, or name the file with --config."));
        }
        layers.set(&key, value, Origin::File(path.to_owned()))?;
    }
    Ok(())
}

fn line_and_column(text: &str, byte: usize) -> String {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}")
}

fn set_from_environment(layers: &mut Layered, environment: &Environment) -> Result<()> {
    for (name, value) in environment.ours() {
        if name == environment::PASSPHRASE_FILE {
            continue;
        }
        let Some(key) = key::KEYS.iter().find(|key| key.env() == name) else {
            return Err(unknown_variable(name));
        };
        let value = value.to_str().ok_or_else(|| not_utf8(name))?;
        layers.set_text(key.path, value, Origin::Environment(name.to_owned()))?;
    }
    Ok(())
}

fn not_utf8(place: &str) -> Error {
    Error::new(&code::CONFIG_BAD_VALUE, "the value is not UTF-8").at(place)
}

fn unknown_variable(name: &str) -> Error {
    let known: Vec<String> = key::KEYS.iter().map(key::Key::env).collect();
    let known = known.iter().map(String::as_str).chain([environment::PASSPHRASE_FILE]);
    let error = Error::new(
        &code::CONFIG_UNKNOWN_KEY,
        format!("the environment variable {name} is none of guild's"),
    );
    match suggest::nearest(name, known) {
        Some(near) => error.help(format!("Did you mean {near}? Otherwise unset it.")),
        None => error,
    }
}

fn unknown_key(path: &str, origin: &Origin) -> Error {
    let short: String = path.chars().take(80).collect();
    let section = format!("{path}.");
    if let Some(inside) = key::KEYS.iter().find(|key| key.path.starts_with(&section)) {
        let message = format!("{short} is a section, not a key");
        return Error::new(&code::CONFIG_UNKNOWN_KEY, message)
            .at(origin.to_string())
            .help(format!("Set a key inside it, such as {}.", inside.path));
    }
    let error = Error::new(&code::CONFIG_UNKNOWN_KEY, format!("there is no key {short}"))
        .at(origin.to_string());
    match suggest::nearest(path, key::KEYS.iter().map(|key| key.path)) {
        Some(near) => error.help(format!("Did you mean {near}?")),
        None => error,
    }
}

impl Layered {
    /// Sets a key from a text, read as the type that its default has.
    fn set_text(&mut self, path: &str, text: &str, origin: Origin) -> Result<()> {
        let defaults = leaves(&tree_of(&Config::default()));
        let default = defaults.get(path).ok_or_else(|| unknown_key(path, &origin))?;
        let bad = |what: &str| {
            let message = format!("{path} must be {what}");
            Error::new(&code::CONFIG_BAD_VALUE, message).at(origin.to_string())
        };
        let value = match default {
            toml::Value::Integer(_) => {
                toml::Value::Integer(text.trim().parse().map_err(|_| bad("a whole number"))?)
            }
            toml::Value::Boolean(_) => {
                toml::Value::Boolean(text.trim().parse().map_err(|_| bad("true or false"))?)
            }
            _ => toml::Value::String(text.to_owned()),
        };
        self.set(path, value, origin)
    }

    /// Sets a key, if it exists and takes this value.
    fn set(&mut self, path: &str, value: toml::Value, origin: Origin) -> Result<()> {
        let known = key::find(path).ok_or_else(|| unknown_key(path, &origin))?;
        if let Err(why) = try_value(known, &value) {
            let message = format!("{path}: {why}");
            return Err(Error::new(&code::CONFIG_BAD_VALUE, message).at(origin.to_string()));
        }
        insert(&mut self.tree, path, value);
        self.origins.insert(path.to_owned(), origin);
        Ok(())
    }
}

/// Whether the defaults with this one value are settings.
fn try_value(key: &key::Key, value: &toml::Value) -> Result<(), String> {
    let mut tree = tree_of(&Config::default());
    insert(&mut tree, key.path, value.clone());
    tree.try_into::<Config>().map_err(|e| e.message().trim().replace('\n', " "))?;
    match (value.as_integer(), key.range) {
        (Some(number), Some((least, most))) if !(least..=most).contains(&number) => {
            Err(format!("{number} is not from {least} to {most}"))
        }
        _ => Ok(()),
    }
}

pub(super) fn insert(tree: &mut toml::Table, path: &str, value: toml::Value) {
    match path.split_once('.') {
        None => {
            tree.insert(path.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = tree.entry(section).or_insert_with(|| toml::Table::new().into());
            if let toml::Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use guild_protocol::error::Kind;
    use proptest::prelude::*;

    use super::*;

    fn any_path() -> impl Strategy<Value = String> {
        let known: Vec<_> = key::KEYS.iter().map(|key| key.path.to_owned()).collect();
        prop_oneof![4 => prop::sample::select(known), 1 => "[a-z._]{0,20}"]
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), any::<i64>().prop_map(|n| n.to_string()), "[0-9.:a-z]{0,20}"]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_setting_is_taken_or_refused(path in any_path(), text in any_text()) {
            let mut layers = Layered { tree: tree_of(&Config::default()), origins: BTreeMap::new() };
            match layers.set_text(&path, &text, Origin::Flag("--set")) {
                Ok(()) => prop_assert!(layers.tree.try_into::<Config>().is_ok()),
                Err(refused) => {
                    prop_assert_eq!(refused.kind(), Kind::Invalid);
                    prop_assert_eq!(layers.tree, tree_of(&Config::default()));
                }
            }
        }
    }
}
