//! What files are called, how large they are, and where tests stand.

use std::collections::BTreeSet;

use super::{Finding, Tree};

const MAX_FILE_BYTES: u64 = 512 * 1024;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["common", "helper", "helpers", "manager", "misc", "util", "utils"];

/// No `mod.rs`, no empty names, no `_v2`.
pub(super) fn files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in tree.files.iter().map(|file| file.path.as_str()) {
        if path.rsplit('/').next() == Some("mod.rs") {
            findings.push(Finding::new(path, 0, "write foo.rs beside foo/, not foo/mod.rs"));
        }
        if let Some(name) = path.split('/').find(|name| is_empty_name(name)) {
            let message = format!("{name:?} does not say what is inside");
            findings.push(Finding::new(path, 0, message));
        }
    }
    findings
}

fn is_empty_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name);
    let last = stem.rsplit(['_', '-']).next().unwrap_or(stem);
    let version = last.strip_prefix('v').unwrap_or_default();
    let is_version = !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit());
    EMPTY_NAMES.contains(&last) || (last != stem && is_version && name.ends_with(".rs"))
}

/// No file is large: what is large is made, not kept.
pub(super) fn file_sizes(tree: &Tree) -> Vec<Finding> {
    let large = tree.files.iter().filter(|file| file.bytes > MAX_FILE_BYTES);
    large
        .map(|file| {
            let message = format!("{} bytes are more than {MAX_FILE_BYTES}", file.bytes);
            Finding::new(&file.path, 0, message)
        })
        .collect()
}

/// The integration tests of a crate are one program: `tests/it/main.rs`.
pub(super) fn integration_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut crates = BTreeSet::new();
    for path in tree.files.iter().map(|file| file.path.as_str()) {
        let Some((directory, rest)) = path.split_once("/tests/") else { continue };
        let is_crate = tree.file(&format!("{directory}/Cargo.toml")).is_some();
        if !is_crate || !path.ends_with(".rs") {
            continue;
        }
        crates.insert(directory);
        let second_program =
            !rest.contains('/') || (rest.ends_with("/main.rs") && rest != "it/main.rs");
        if second_program {
            findings.push(Finding::new(
                path,
                0,
                "integration tests stand in tests/it/, as one program",
            ));
        }
    }
    for directory in crates {
        let main = format!("{directory}/tests/it/main.rs");
        if tree.file(&main).is_none() {
            findings.push(Finding::new(
                &main,
                0,
                "is missing: it lists the crate's integration tests",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::SourceFile;
    use super::super::planted::{shown, tree};
    use super::*;

    #[test]
    fn empty_names_are_caught() {
        for bad in [
            "crates/a/src/mod.rs",
            "crates/a/src/utils.rs",
            "crates/a/src/common/x.rs",
            "crates/a/src/turn_manager.rs",
            "crates/a/src/receipt_v2.rs",
            "docs/misc.md",
        ] {
            assert_eq!(files(&tree(&[(bad, "")])).len(), 1, "{bad}");
        }
        for good in
            ["crates/a/src/model.rs", "src/v1.rs", "src/nip44_v2.json", "src/commons_api.rs"]
        {
            assert_eq!(files(&tree(&[(good, "")])), [], "{good}");
        }
    }

    #[test]
    fn a_large_file_is_caught() {
        let file = |bytes| SourceFile { path: "x.bin".into(), bytes, text: None };
        let files = vec![file(MAX_FILE_BYTES), file(MAX_FILE_BYTES + 1)];
        let findings = file_sizes(&Tree { files, packages: Vec::new() });
        assert_eq!(shown(&findings), ["x.bin: 524289 bytes are more than 524288"]);
    }

    #[test]
    fn a_second_test_program_is_caught() {
        let one = [
            ("a/Cargo.toml", ""),
            ("a/tests/it/main.rs", ""),
            ("a/tests/it/x.rs", ""),
            ("a/tests/data/y.json", ""),
        ];
        assert_eq!(integration_tests(&tree(&one)), []);
        let two = [("a/Cargo.toml", ""), ("a/tests/it/main.rs", ""), ("a/tests/other.rs", "")];
        assert_eq!(integration_tests(&tree(&two)).len(), 1);
        let none = [("a/Cargo.toml", ""), ("a/tests/it/x.rs", "")];
        assert_eq!(
            shown(&integration_tests(&tree(&none))),
            ["a/tests/it/main.rs: is missing: it lists the crate's integration tests"]
        );
    }
}
