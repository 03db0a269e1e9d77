use std::fs;
use std::path::Path;

use crate::support::Home;

#[test]
fn the_reference_pages_are_up_to_date() {
    let home = Home::new();
    let run = home.run(&["generate", "docs", "--dir", "made"]);
    assert_eq!(run.code, 0, "{run:?}");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut pages = 0;
    for made in fs::read_dir(home.path().join("made")).unwrap() {
        let made = made.unwrap();
        let kept = fs::read_to_string(docs.join(made.file_name())).unwrap_or_default();
        let same = kept == fs::read_to_string(made.path()).unwrap();
        assert!(same, "docs/{} is stale: run `cargo xtask docs`", made.file_name().display());
        pages += 1;
    }
    assert_eq!(pages, 4);
}

/// The first block of the README that shows `guild` at work, line by line.
#[test]
fn the_examples_of_the_readme_are_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let home = Home::new();
    let mut shown = 0;
    for (command, answer) in readme.lines().zip(readme.lines().skip(1)) {
        let Some(input) =
            command.strip_prefix("$ echo '").and_then(|c| c.strip_suffix("' | guild hash -"))
        else {
            continue;
        };
        let run = home.run_with_input(&["hash", "-"], input.as_bytes());
        let said = run.stdout.lines().chain(run.stderr.lines()).next();
        assert_eq!(said, Some(answer), "README: {command}");
        shown += 1;
    }
    assert_eq!(shown, 2);
}
