//! The settings in force, for a person and for a program. No password is ever shown.

use std::collections::BTreeMap;

use serde::Serialize;

use super::key::{self, Show, leaves, tree_of};
use super::{Config, Loaded};

/// The answer of `config show --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Body {
    config: toml::Table,
    /// By key; without `--origin` only of what is not the default.
    origins: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

pub(crate) fn body(loaded: &Loaded, all: bool) -> Body {
    let origins = key::KEYS.iter().filter_map(|key| {
        let origin = origin(loaded, key.path);
        (all || origin.is_some())
            .then(|| (key.path.to_owned(), origin.unwrap_or_else(|| "default".to_owned())))
    });
    Body {
        config: tree_of(&shown(&loaded.config)),
        origins: origins.collect(),
        file: loaded.file.as_ref().map(|file| file.display().to_string()),
    }
}

/// The effective `guild.toml`; a comment names the origin of what is not the default.
pub(crate) fn text(loaded: &Loaded, all: bool) -> String {
    let values = leaves(&tree_of(&shown(&loaded.config)));
    let mut text = match &loaded.file {
        Some(file) => format!("# Read {}\n", file.display()),
        None => format!("# There is no {}\n", loaded.data_file(super::FILE_NAME).display()),
    };
    let mut current = "";
    for key in key::KEYS {
        let (section, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        if section != current {
            text.push_str(&format!("\n[{section}]\n"));
            current = section;
        }
        let value = values.get(key.path).map(ToString::to_string).unwrap_or_default();
        // A file must not name its own directory, so that line is a comment.
        let comment = if key.path == "data_dir" { "# " } else { "" };
        text.push_str(&format!("{comment}{name} = {value}"));
        match origin(loaded, key.path) {
            Some(origin) => text.push_str(&format!("  # from {origin}")),
            None if all => text.push_str("  # default"),
            None => {}
        }
        text.push('\n');
    }
    text
}

fn origin(loaded: &Loaded, path: &str) -> Option<String> {
    loaded.origins.get(path).map(|origin| origin.to_string().escape_default().to_string())
}

/// The settings with every secret hidden.
fn shown(config: &Config) -> Config {
    let mut tree = tree_of(config);
    for key in key::KEYS.iter().filter(|key| key.show == Show::Url) {
        let hidden = leaves(&tree).get(key.path).and_then(|v| v.as_str().map(hide_password));
        if let Some(hidden) = hidden {
            super::load::insert(&mut tree, key.path, hidden.into());
        }
    }
    tree.try_into().unwrap_or_default()
}

/// `postgres://user:password@host/name?password=x` without what must not be seen.
fn hide_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Not an address we know how to read: show nothing rather than too much.
        return if url.is_empty() { String::new() } else { "***".to_owned() };
    };
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?***"));
    // A password may hold an @ or a / that nobody escaped, so the last @ counts.
    let host = match rest.rsplit_once('@') {
        Some((user, host)) => {
            let name = user.split_once(':').map_or(user, |(name, _)| name);
            let colon = if user.contains(':') { ":***" } else { "" };
            format!("{name}{colon}@{host}")
        }
        None => rest.to_owned(),
    };
    format!("{scheme}://{host}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_wherever_they_stand() {
        let cases = [
            ("", ""),
            ("postgres://u:secret@h/db", "postgres://u:***@h/db"),
            ("postgres://u:se@cr/et@h/db", "postgres://u:***@h/db"),
            ("postgres://u@h/db", "postgres://u@h/db"),
            ("postgres://h/db?password=secret", "postgres://h/db?***"),
            ("host=h password=secret", "***"),
        ];
        for (url, shown) in cases {
            assert_eq!(hide_password(url), shown);
        }
    }
}
