//! The rules of the tree. Each is a pure function from a [`Tree`] to what it found wrong, so each has a test that
//! plants a violation. `cargo xtask tidy` and a test run all of them on the real tree.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::workspace::{Package, Workspace};

mod documents;
mod layers;
mod lexer;
mod manifests;
mod names;
mod text;

/// Everything the rules look at.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<SourceFile>,
    /// The crates of the workspace, their paths below the root.
    pub(crate) packages: Vec<Package>,
}

/// A tracked file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Below the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// `None` if it is not UTF-8.
    pub(crate) text: Option<String>,
}

/// Something that a rule found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// From 1; 0 for the whole file.
    pub(crate) line: usize,
    pub(crate) message: String,
    /// A note asks for thought; anything else fails.
    pub(crate) note: bool,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into(), note: false }
    }

    pub(crate) fn note(path: &str, message: impl Into<String>) -> Finding {
        Finding { note: true, ..Finding::new(path, 0, message) }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let note = if self.note { "note: " } else { "" };
        match self.line {
            0 => write!(f, "{note}{}: {}", self.path, self.message),
            line => write!(f, "{note}{}:{line}: {}", self.path, self.message),
        }
    }
}

impl Tree {
    pub(crate) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The text of a file, or nothing.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.file(path).and_then(|file| file.text.as_deref()).unwrap_or_default()
    }

    /// The text files whose name ends so.
    pub(crate) fn texts<'a>(
        &'a self,
        ends: &'a [&'a str],
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let wanted = |path: &str| ends.iter().any(|end| path.ends_with(end));
        let texts = self.files.iter().filter_map(|f| Some((f.path.as_str(), f.text.as_deref()?)));
        texts.filter(move |(path, _)| wanted(path))
    }
}

/// All rules.
const RULES: &[fn(&Tree) -> Vec<Finding>] = &[
    layers::known_crates,
    layers::edges,
    layers::outside_crates,
    names::files,
    names::file_sizes,
    names::integration_tests,
    text::white_space,
    text::columns,
    text::words,
    text::home_paths,
    text::file_lengths,
    text::function_lengths,
    manifests::inheritance,
    manifests::dependency_reasons,
    manifests::bench_floors,
    manifests::fuzz_seeds,
    documents::links,
];

/// Applies all rules.
fn check(tree: &Tree) -> Vec<Finding> {
    RULES.iter().flat_map(|rule| rule(tree)).collect()
}

/// Reads the tree, applies all rules and prints what they found.
pub(crate) fn run(workspace: &Workspace) -> Result {
    let tree = read(workspace)?;
    let findings = check(&tree);
    for finding in &findings {
        println!("  {finding}");
    }
    let wrong = findings.iter().filter(|finding| !finding.note).count();
    println!("  {} files, {} crates, {wrong} violations", tree.files.len(), tree.packages.len());
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} rules of the tree are broken")) }
}

fn read(workspace: &Workspace) -> Result<Tree> {
    let paths = tracked(workspace).unwrap_or_else(|| walk(&workspace.root));
    let files = paths.into_iter().filter_map(|path| {
        let bytes = std::fs::read(workspace.path(&path)).ok()?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Some(SourceFile { path, bytes: length, text: String::from_utf8(bytes).ok() })
    });
    let below_root = |path: &Path| path.strip_prefix(&workspace.root).unwrap_or(path).to_owned();
    let mut packages = workspace.metadata.packages.clone();
    for package in &mut packages {
        package.manifest_path = below_root(&package.manifest_path);
        for dependency in &mut package.dependencies {
            dependency.path = dependency.path.as_deref().map(below_root);
        }
    }
    Ok(Tree { files: files.collect(), packages })
}

/// What git tracks; `None` outside a checkout.
fn tracked(workspace: &Workspace) -> Option<Vec<String>> {
    let mut git = workspace.program("git");
    let output = git.args(["ls-files", "-z"]).stderr(std::process::Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    let paths: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
    (!paths.is_empty()).then_some(paths)
}

/// What is there, without what is built or fetched.
fn walk(root: &Path) -> Vec<String> {
    const SKIPPED: [&str; 5] = [".git", "target", "node_modules", "fuzz/corpus", "fuzz/artifacts"];
    let mut paths = Vec::new();
    let mut open: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let below = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            let skipped = SKIPPED.iter().any(|s| below == *s || below.ends_with(&format!("/{s}")));
            match path.is_dir() {
                _ if skipped || path.is_symlink() => {}
                true => open.push(path),
                false => paths.push(below),
            }
        }
    }
    paths.sort();
    paths
}

#[cfg(test)]
pub(crate) mod planted {
    //! Trees made for tests.

    use super::*;
    use crate::workspace::Dependency;

    pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
        let file = |(path, text): &(&str, &str)| SourceFile {
            path: (*path).to_owned(),
            bytes: u64::try_from(text.len()).unwrap(),
            text: Some((*text).to_owned()),
        };
        Tree { files: files.iter().map(file).collect(), packages: Vec::new() }
    }

    /// A crate with normal (`store`), development (`dev:insta`) and build (`build:cc`) dependencies. Those named
    /// `guild…`, `sim` and `xtask` are inside the tree.
    pub(crate) fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependency = |text: &&str| {
            let (kind, name) = match text.split_once(':') {
                Some((kind, name)) => (Some(kind.to_owned()), name),
                None => (None, *text),
            };
            let inside = name.starts_with("guild") || ["sim", "xtask"].contains(&name);
            let path = inside.then(|| PathBuf::from(format!("crates/{name}")));
            Dependency { name: name.to_owned(), kind, path }
        };
        Package {
            name: name.to_owned(),
            manifest_path: format!("crates/{name}/Cargo.toml").into(),
            dependencies: dependencies.iter().map(dependency).collect(),
            targets: Vec::new(),
        }
    }

    pub(crate) fn workspace(packages: Vec<Package>) -> Tree {
        Tree { files: Vec::new(), packages }
    }

    /// The findings as text, in order.
    pub(crate) fn shown(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_keeps_its_rules() {
        let tree = read(&Workspace::find().unwrap()).unwrap();
        assert!(tree.file("Cargo.toml").is_some() && tree.file("xtask/src/tidy.rs").is_some());
        let wrong: Vec<_> = check(&tree).into_iter().filter(|finding| !finding.note).collect();
        assert!(wrong.is_empty(), "{}", planted::shown(&wrong).join("\n"));
    }

    #[test]
    fn without_git_the_files_are_walked() {
        let root = tempfile::tempdir().unwrap();
        for path in ["a.rs", "b/c.rs", "target/x", "b/node_modules/y", "fuzz/corpus/z"] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        assert_eq!(walk(root.path()), ["a.rs", "b/c.rs"]);
    }
}
