//! Just enough of Rust's grammar to tell code from texts and comments.

/// The same text with every comment, string and character blanked out. Lines and columns stay.
pub(super) fn code_only(source: &str) -> String {
    let blank = |hidden: &str| hidden.chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
    transform(source, |part| match part {
        Part::Code(c) => c.to_string(),
        Part::Comment(hidden) | Part::Text(hidden) => blank(hidden),
    })
}

/// The same text with every string taken out. Lines stay.
pub(super) fn without_texts(source: &str) -> String {
    transform(source, |part| match part {
        Part::Code(c) => c.to_string(),
        Part::Comment(comment) => comment.to_owned(),
        Part::Text(hidden) => hidden.chars().filter(|c| *c == '\n').collect(),
    })
}

enum Part<'a> {
    Code(char),
    Comment(&'a str),
    /// A string or a character, with its quotes.
    Text(&'a str),
}

fn transform(source: &str, write: impl Fn(Part<'_>) -> String) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut after_word = false;
    while let Some(c) = rest.chars().next() {
        let raw = raw_string(rest).filter(|_| !after_word);
        let (length, is_comment) = match c {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), true),
            '/' if rest.starts_with("/*") => (block_comment(rest), true),
            '"' => (quoted(rest, '"'), false),
            _ => (raw.or_else(|| character(rest)).unwrap_or(0), false),
        };
        let (part, tail) = rest.split_at_checked(length.max(c.len_utf8())).unwrap_or((rest, ""));
        out += &match (length, is_comment) {
            (0, _) => write(Part::Code(c)),
            (_, true) => write(Part::Comment(part)),
            (_, false) => write(Part::Text(part)),
        };
        rest = tail;
        after_word = c.is_alphanumeric() || c == '_';
    }
    out
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut depth, mut at) = (0usize, 0usize);
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth.saturating_sub(1), at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// From an opening quote to behind its closing one.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, `br"…"` and `cr"…"`.
fn raw_string(rest: &str) -> Option<usize> {
    let after_r = ["r", "br", "cr"].iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    let inside = after_r.trim_start_matches('#');
    let hashes = after_r.len() - inside.len();
    let inside = inside.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let before = rest.len() - inside.len();
    Some(inside.find(&end).map_or(rest.len(), |at| before + at + end.len()))
}

/// `'x'` or `'\n'`, but not the lifetime `'x`.
fn character(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let mut chars = inside.char_indices();
    match chars.next()?.1 {
        '\\' => Some(quoted(rest, '\'')),
        _ => chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_comments_are_blanked() {
        let cases = [
            ("a // { \n b", "a b"),
            ("a /* { /* } */ { */ b", "a b"),
            (r#"f("{\"}", 1)"#, "f( , 1)"),
            ("r#\"{\"}\"# + x", "+ x"),
            ("'{' 'a '\\'' c'\"'", "'a c"),
            ("for r in x {}", "for r in x {}"),
            ("bar\"{\"", "bar"),
        ];
        for (source, expected) in cases {
            let code = code_only(source);
            assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expected, "{source}");
            assert_eq!(code.chars().count(), source.chars().count(), "columns stay: {source}");
        }
    }

    #[test]
    fn texts_alone_can_be_taken_out() {
        assert_eq!(without_texts("f(\"a\\\nb\") // \"c\"\n'x'"), "f(\n) // \"c\"\n");
    }

    #[test]
    fn unfinished_texts_end_with_the_file() {
        for source in ["\"{", "/* {", "r#\"{", "'\\"] {
            assert!(code_only(source).trim().is_empty(), "{source}");
        }
        assert_eq!(code_only("'"), "'");
    }
}
