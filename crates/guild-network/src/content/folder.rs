//! Several files and directories on their way in, until it is known what is in each directory.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use guild_protocol::content::{Cid, Directory, Tree, Version};

use super::Adding;
use crate::error::code;
use crate::{Error, Result};

/// The most files and directories of one addition.
const ENTRIES_MAX: usize = 100_000;
/// The most names of a path.
const DEPTH_MAX: usize = 32;

/// Files that have been added, by their paths.
#[derive(Debug, Default)]
pub struct Folder {
    /// What is in each directory. The empty path is what is around all of them.
    directories: BTreeMap<Vec<String>, BTreeMap<String, Tree>>,
    entries: usize,
}

/// What a folder has become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The directories, each after those within it, by their paths. The one around everything has an empty path.
    pub directories: Vec<(String, Tree)>,
    /// The roots: the directory around everything, or whatever is not in another.
    pub roots: Vec<Cid>,
}

impl Folder {
    /// A file at a path: its last name is its own. Without a name it is called as its content is.
    pub fn insert(&mut self, names: &[String], tree: Tree) -> Result<String> {
        let (name, above) = match names.split_last() {
            Some((name, above)) => (name.clone(), above),
            None => (tree.cid.to_string(), names),
        };
        self.make(above)?;
        self.count()?;
        let shown = above.iter().chain([&name]).map(String::as_str).collect::<Vec<_>>().join("/");
        let directory = self.directories.entry(above.to_vec()).or_default();
        match directory.insert(name, tree) {
            None => Ok(shown),
            Some(_) => Err(twice(&shown)),
        }
    }

    /// A directory at a path, and those on the way to it.
    pub fn make(&mut self, names: &[String]) -> Result<()> {
        if names.len() > DEPTH_MAX {
            let message = format!("more than {DEPTH_MAX} directories in each other");
            return Err(Error::refused(&code::CONTENT_PATH, message));
        }
        for depth in 0..=names.len() {
            let path = names.get(..depth).unwrap_or_default();
            if !self.directories.contains_key(path) {
                self.count()?;
                self.directories.insert(path.to_vec(), BTreeMap::new());
            }
        }
        Ok(())
    }

    fn count(&mut self) -> Result<()> {
        self.entries = self.entries.saturating_add(1);
        if self.entries <= ENTRIES_MAX {
            return Ok(());
        }
        let message = format!("more than {ENTRIES_MAX} files and directories at once");
        Err(Error::refused(&code::CONTENT_TOO_WIDE, message))
    }

    /// Adds the directories, the deepest first; with `wrap` also one around everything.
    pub async fn pack(
        mut self,
        adding: &mut Adding,
        version: Version,
        wrap: bool,
    ) -> Result<Packed> {
        let mut paths: Vec<Vec<String>> = self.directories.keys().cloned().collect();
        paths.sort_by_key(|path| Reverse(path.len()));
        let mut directories = Vec::new();
        for mut path in paths.into_iter().filter(|path| wrap || !path.is_empty()) {
            let mut directory = Directory::new(version);
            for (name, tree) in self.directories.remove(&path).unwrap_or_default() {
                directory.insert(&name, tree)?;
            }
            let tree = adding.directory(&directory).await?;
            let shown = path.join("/");
            directories.push((shown.clone(), tree));
            let Some(name) = path.pop() else {
                return Ok(Packed { directories, roots: vec![tree.cid] });
            };
            if self.directories.entry(path).or_default().insert(name, tree).is_some() {
                return Err(twice(&shown));
            }
        }
        let top = self.directories.remove(&Vec::new()).unwrap_or_default();
        if top.is_empty() {
            return Err(Error::refused(&code::CONTENT_NOTHING, "there is nothing to add"));
        }
        Ok(Packed { directories, roots: top.values().map(|tree| tree.cid).collect() })
    }
}

fn twice(path: &str) -> Error {
    let shown: String = path.chars().take(100).collect();
    let code = &guild_protocol::content::code::DUPLICATE_NAME;
    Error::refused(code, format!("{shown:?} is there twice"))
}
