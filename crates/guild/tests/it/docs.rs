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
    assert_eq!(pages, 3);
}
