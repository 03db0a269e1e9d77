//! The files of a dossier as values: whoever reads a directory fills it, and so does whoever changes a byte to see.

use std::collections::BTreeMap;

/// What lies at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A file that was read.
    Whole(Vec<u8>),
    /// A file that is longer than it may be; it was not read.
    TooLarge,
    /// A link, a device, or a directory where a file should be; it was not opened.
    NotPlain,
}

/// A directory, as far as it is looked at: paths from its root, with `/`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folder {
    files: BTreeMap<String, Found>,
}

impl Folder {
    /// Nothing in it.
    pub fn new() -> Folder {
        Folder::default()
    }

    /// One with these files.
    pub fn of(files: &BTreeMap<String, Vec<u8>>) -> Folder {
        let whole =
            |(path, bytes): (&String, &Vec<u8>)| (path.clone(), Found::Whole(bytes.clone()));
        Folder { files: files.iter().map(whole).collect() }
    }

    /// Puts something at a place; what was there is gone.
    pub fn put(&mut self, path: impl Into<String>, found: Found) {
        self.files.insert(path.into(), found);
    }

    /// Takes something away.
    pub fn remove(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// What lies at a place, if something does.
    pub fn get(&self, path: &str) -> Option<&Found> {
        self.files.get(path)
    }

    /// All places, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }
}
