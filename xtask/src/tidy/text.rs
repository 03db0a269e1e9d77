//! What stands inside the files.

use super::lexer::{code_only, without_texts};
use super::{Finding, Tree};

const MAX_COLUMNS: usize = 120;
const MAX_FILE_LINES: usize = 1000;
const MANY_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 100;

/// Files that people write. Test data may look as it likes.
const WRITTEN: &[&str] =
    &[".rs", ".toml", ".md", ".mjs", ".sh", ".sql", ".html", ".css", ".yml", ".ci/run"];

/// What must not stand in Rust code. Split here, so that this file does not break its own rule.
const BANNED_CODE: &[(&str, &str)] = &[
    (concat!("#[al", "low("), "expect the lint, with a reason"),
    (concat!("#![al", "low("), "expect the lint, with a reason"),
    (concat!("#[ign", "ore"), "a test that does not run is no test"),
    (concat!("to", "do!"), "finish it"),
];

/// What must not stand in any written file.
const BANNED_WORDS: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO")];

/// No tabs, nothing invisible at the end.
pub(super) fn white_space(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(WRITTEN) {
        for (at, line) in (1..).zip(text.lines()) {
            if line.ends_with([' ', '\t', '\r']) {
                findings.push(Finding::new(path, at, "white space at the end of the line"));
            }
            if path.ends_with(".rs") && line.contains('\t') {
                findings.push(Finding::new(path, at, "a tab"));
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            findings.push(Finding::new(path, 0, "the last line has no end"));
        }
    }
    findings
}

/// Lines that need no scrolling. The texts of tests do not count: a snapshot is as long as what it shows.
pub(super) fn columns(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[".rs"]) {
        let product = match path.contains("tests/") {
            true => "",
            false => text.split("#[cfg(test)]").next().unwrap_or_default(),
        };
        let first_of_tests = product.lines().count();
        let bare = without_texts(text);
        for (at, (line, bare)) in (1..).zip(text.lines().zip(bare.lines())) {
            let counted = if at > first_of_tests { bare } else { line };
            let columns = counted.chars().count();
            if columns > MAX_COLUMNS && !is_unbreakable(line) {
                let message = format!("{columns} columns, at most {MAX_COLUMNS}");
                findings.push(Finding::new(path, at, message));
            }
        }
    }
    findings
}

/// A URL, a row of a table, or another word that leaves no room for a line break.
fn is_unbreakable(line: &str) -> bool {
    let row = ["/// |", "//! |"].iter().any(|start| line.trim_start().starts_with(start));
    let long = |word: &str| word.chars().count() > MAX_COLUMNS - 40;
    row || line.contains("://") || line.split_whitespace().any(long)
}

/// No marks of unfinished work, no silenced lints, no skipped tests.
pub(super) fn words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(WRITTEN) {
        for (at, line) in (1..).zip(text.lines()) {
            if let Some(word) = BANNED_WORDS.iter().find(|word| has_word(line, word)) {
                findings.push(Finding::new(
                    path,
                    at,
                    format!("{word}: finish it, or open an issue"),
                ));
            }
        }
        if !path.ends_with(".rs") {
            continue;
        }
        for (at, line) in (1..).zip(code_only(text).lines()) {
            if let Some((code, why)) = BANNED_CODE.iter().find(|(code, _)| line.contains(code)) {
                findings.push(Finding::new(path, at, format!("{code}: {why}")));
            }
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

/// No path that exists on one machine only.
pub(super) fn home_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for (at, line) in (1..).zip(file.text.as_deref().unwrap_or_default().lines()) {
            if has_home_path(line) {
                findings.push(Finding::new(&file.path, at, "a path of one person's machine"));
            }
        }
    }
    findings
}

fn has_home_path(line: &str) -> bool {
    [concat!("/ro", "ot/"), concat!("/ho", "me/")].iter().any(|home| {
        line.match_indices(home).any(|(at, _)| {
            let before = line.get(..at).and_then(|before| before.chars().next_back());
            !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '>'))
        })
    })
}

/// Files that can be read in one sitting.
pub(super) fn file_lengths(tree: &Tree) -> Vec<Finding> {
    let lengths = tree.texts(&[".rs"]).map(|(path, text)| (path, text.lines().count()));
    lengths
        .filter_map(|(path, length)| match length {
            _ if length > MAX_FILE_LINES => {
                let message =
                    format!("{length} lines, at most {MAX_FILE_LINES}: split it by meaning");
                Some(Finding::new(path, 0, message))
            }
            _ if length > MANY_FILE_LINES => Some(Finding::note(path, format!("{length} lines"))),
            _ => None,
        })
        .collect()
}

/// Functions that fit on a screen. Tests may tell longer stories.
pub(super) fn function_lengths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[".rs"]).filter(|(path, _)| !path.contains("tests/")) {
        for function in functions(&code_only(text)) {
            if !function.in_tests && function.lines > MAX_FUNCTION_LINES {
                let message = format!(
                    "fn {} has {} lines, at most {MAX_FUNCTION_LINES}",
                    function.name, function.lines
                );
                findings.push(Finding::new(path, function.line, message));
            }
        }
    }
    findings
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
    in_tests: bool,
}

/// The functions of a file whose texts and comments are blanked out.
fn functions(code: &str) -> Vec<Function> {
    let tests = test_modules(code);
    code.match_indices("fn ")
        .filter(|(at, _)| !code.get(..*at).is_some_and(|before| before.ends_with(is_word)))
        .filter_map(|(at, _)| {
            let rest = code.get(at..)?;
            let name = rest.get(3..)?.split(|c| !is_word(c)).next()?;
            let body = block(rest).filter(|_| !name.is_empty())?;
            Some(Function {
                name: name.to_owned(),
                line: code.get(..at)?.lines().count().max(1),
                lines: body.lines().count(),
                in_tests: tests.iter().any(|range| range.contains(&at)),
            })
        })
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the modules are that exist only for tests.
fn test_modules(code: &str) -> Vec<std::ops::Range<usize>> {
    let marks = code.match_indices("#[cfg(test)]");
    marks.filter_map(|(at, _)| Some(at..at + block(code.get(at..)?)?.len())).collect()
}

/// From here to the end of the first block in braces; `None` if a semicolon comes first.
fn block(code: &str) -> Option<&str> {
    let (mut braces, mut brackets) = (0usize, 0usize);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return code.get(..=at);
                }
            }
            ';' if braces == 0 && brackets == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::planted::{shown, tree};
    use super::*;

    #[test]
    fn stray_white_space_is_caught() {
        let planted = tree(&[("a.rs", "let a; \n\tlet b;\n"), ("f.toml", "a = 1")]);
        assert_eq!(
            shown(&white_space(&planted)),
            [
                "a.rs:1: white space at the end of the line",
                "a.rs:2: a tab",
                "f.toml: the last line has no end",
            ]
        );
    }

    #[test]
    fn long_lines_are_caught_but_not_what_cannot_be_broken() {
        let long = "ab ".repeat(41).trim_end().to_owned();
        let code = format!("{long}\n");
        let text = format!("f(\"{long}\");\n");
        let in_tests = format!("f();\n#[cfg(test)]\nmod tests {{\n{text}// {long}\n}}\n");
        let url = format!("// {long} https://example.org\n");
        let row = format!("/// | {long} |\n");
        let hex = format!("    \"{}\",\n", "f".repeat(128));
        let planted = tree(&[
            ("a.rs", &code),
            ("b.rs", &text),
            ("c.rs", &in_tests),
            ("tests/it/d.rs", &text),
            ("e.rs", &url),
            ("f.rs", &row),
            ("g.rs", &hex),
            ("h.md", &code),
        ]);
        assert_eq!(
            shown(&columns(&planted)),
            [
                "a.rs:1: 122 columns, at most 120",
                "b.rs:1: 128 columns, at most 120",
                "c.rs:5: 125 columns, at most 120",
            ]
        );
    }

    #[test]
    fn unfinished_work_is_caught() {
        for (code, _) in BANNED_CODE {
            assert_eq!(words(&tree(&[("a.rs", &format!("{code}\n"))])).len(), 1, "{code}");
            assert_eq!(
                words(&tree(&[("a.rs", &format!("let a = r##\"{code}\"##;\n"))])),
                [],
                "{code}"
            );
        }
        for word in BANNED_WORDS {
            assert_eq!(words(&tree(&[("a.md", &format!("({word}: later)\n"))])).len(), 1, "{word}");
            assert_eq!(words(&tree(&[("a.md", &format!("mktemp {word}{word}\n"))])), [], "{word}");
        }
    }

    #[test]
    fn home_paths_are_caught() {
        let root = concat!("see /ro", "ot/x");
        let home = concat!("\"/ho", "me/ann/x\"");
        for bad in [root, home] {
            assert_eq!(home_paths(&tree(&[("any.json", bad)])).len(), 1, "{bad}");
        }
        let url = concat!("https://example.org/ho", "me/index.html");
        for good in [url, "/root", "a/chroot/b"] {
            assert_eq!(home_paths(&tree(&[("any.json", good)])), [], "{good}");
        }
    }

    #[test]
    fn long_files_are_caught_and_rather_long_ones_noted() {
        let file = |lines: usize| "x\n".repeat(lines);
        let planted = tree(&[("a.rs", &file(1001)), ("b.rs", &file(601)), ("c.rs", &file(600))]);
        assert_eq!(
            shown(&file_lengths(&planted)),
            ["a.rs: 1001 lines, at most 1000: split it by meaning", "note: b.rs: 601 lines"]
        );
    }

    #[test]
    fn long_functions_are_caught_outside_tests() {
        let long = format!("fn long(x: [u8; 2]) {{\n{}}}\n", "  a(\"}\");\n".repeat(100));
        let fine = format!("fn fine() {{\n{}}}\n", "  if a {{ b }}\n".repeat(98));
        let planted = format!(
            "{fine}trait T {{ fn none(); }}\nimpl T {{ {long} }}\n#[cfg(test)]\nmod tests {{\n{long}}}\n"
        );
        assert_eq!(
            shown(&function_lengths(&tree(&[("a.rs", &planted), ("tests/it/b.rs", &long)]))),
            ["a.rs:102: fn long has 102 lines, at most 100"]
        );
    }
}
