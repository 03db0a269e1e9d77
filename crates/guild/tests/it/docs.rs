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

/// The names of tests that hosting's page lists, each beside the part of the tree that it is in.
#[test]
fn the_tests_that_a_page_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/hosting.md")).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| attack |")).skip(2);
    let mut named = 0;
    for row in rows.take_while(|line| line.starts_with('|')) {
        for part in row.split('|').nth(2).unwrap().split(';') {
            let part = part.trim();
            let (place, names) = part.split_once(' ').unwrap();
            let place = match place {
                "guild" => "crates/guild/tests".to_owned(),
                place => format!("crates/guild-{place}/tests"),
            };
            let text = all_text(&root.join(place));
            for name in names.split(',').map(|name| name.trim().trim_matches('`')) {
                assert!(text.contains(&format!("fn {name}()")), "{part}: there is no test {name}");
                named += 1;
            }
        }
    }
    assert!(named > 60, "{named}");
}

/// All files below a directory, one behind the other.
#[expect(clippy::unwrap_used, reason = "a test that cannot read the tree has failed")]
fn all_text(directory: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => text.push_str(&all_text(&path)),
            false => text.push_str(&fs::read_to_string(path).unwrap_or_default()),
        }
    }
    text
}
