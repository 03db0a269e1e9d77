//! Names that must not stand in a submission.
//!
//! Of Python, the code is looked at without its comments and texts; names that an import gives are followed. Of any
//! other file, the bytes are. This finds what is written plainly. What is put together while the program runs
//! (`getattr(os, "sys" + "tem")`, `exec` of a text), written in another encoding or with letters that Python takes for
//! others is not found here: the kernel sees what it does.

use std::collections::{BTreeMap, BTreeSet};

use super::submission::Submission;
use super::suite::Language;

/// Whether a text is a dotted name, as `os.system`.
pub(super) fn is_name(text: &str) -> bool {
    let word = |part: &str| {
        let first = part.chars().next().is_some_and(begins_name);
        first && part.chars().all(goes_on)
    };
    text.len() <= 200 && text.split('.').all(word)
}

fn begins_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn goes_on(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where a name was found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The file.
    pub file: String,
    /// The line, counted from one; 0 in a file that has none.
    pub line: u64,
    /// The name.
    pub name: String,
}

/// The first place of each name in each file.
pub(super) fn find(language: Language, submission: &Submission, names: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, bytes) in submission.files() {
        let found = match language {
            Language::Executable => in_bytes(bytes, names),
            Language::Python | Language::Pytest if file.ends_with(".py") => {
                in_python(&String::from_utf8_lossy(bytes), names)
            }
            Language::Python | Language::Pytest => continue,
        };
        let place = |(name, line)| Finding { file: file.clone(), line, name };
        findings.extend(found.into_iter().map(place));
    }
    findings
}

fn in_bytes(bytes: &[u8], names: &[String]) -> BTreeMap<String, u64> {
    let holds = |name: &String| bytes.windows(name.len().max(1)).any(|at| at == name.as_bytes());
    names.iter().filter(|name| holds(name)).map(|name| (name.clone(), 0)).collect()
}

fn in_python(text: &str, names: &[String]) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for (used, line) in used_names(text) {
        for name in names {
            let below = used.strip_prefix(name.as_str());
            if below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
                found.entry(name.clone()).or_insert(line);
            }
        }
    }
    found
}

/// A piece of code: a name, or one other character.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Name(String),
    Other(char),
    End,
}

/// Every dotted name in the code, as it is written and with its import followed.
fn used_names(text: &str) -> Vec<(String, u64)> {
    let mut tokens = Vec::new();
    tokenize(text, 1, &mut tokens);
    let mut aliases: BTreeMap<String, String> = BTreeMap::new();
    let mut used = Vec::new();
    let mut at = 0;
    while let Some((token, line)) = tokens.get(at) {
        let next = match token {
            Token::Name(word) if word == "import" => plain_import(&tokens, at, &mut aliases),
            Token::Name(word) if word == "from" => from_import(&tokens, at, &mut aliases),
            Token::Name(_) if !follows_dot(&tokens, at) => {
                let (name, end) = dotted(&tokens, at);
                Some((vec![name], end))
            }
            _ => None,
        };
        match next {
            Some((names, end)) => {
                for name in names {
                    let (first, rest) = name.split_once('.').unwrap_or((&name, ""));
                    if let Some(real) = aliases.get(first) {
                        let real =
                            if rest.is_empty() { real.clone() } else { format!("{real}.{rest}") };
                        used.push((real, *line));
                    }
                    used.push((name, *line));
                }
                at = end.max(at.saturating_add(1));
            }
            None => at = at.saturating_add(1),
        }
    }
    // An alias may be used above the line that makes it: in a function that is called later.
    let late: Vec<_> =
        used.iter().filter_map(|(name, line)| followed(name, *line, &aliases)).collect();
    used.extend(late);
    let mut seen = BTreeSet::new();
    used.retain(|name| seen.insert(name.clone()));
    used
}

fn followed(name: &str, line: u64, aliases: &BTreeMap<String, String>) -> Option<(String, u64)> {
    let (first, rest) = name.split_once('.').unwrap_or((name, ""));
    let real = aliases.get(first)?;
    Some((if rest.is_empty() { real.clone() } else { format!("{real}.{rest}") }, line))
}

fn is_dot(token: Option<&(Token, u64)>) -> bool {
    matches!(token, Some((Token::Other('.'), _)))
}

fn follows_dot(tokens: &[(Token, u64)], at: usize) -> bool {
    at.checked_sub(1).is_some_and(|before| is_dot(tokens.get(before)))
}

/// A name with what follows it by dots, and where it ends.
fn dotted(tokens: &[(Token, u64)], at: usize) -> (String, usize) {
    let mut name = String::new();
    let mut end = at;
    while let Some((Token::Name(word), _)) = tokens.get(end) {
        name.push_str(word);
        end = end.saturating_add(1);
        if !is_dot(tokens.get(end)) {
            break;
        }
        if matches!(tokens.get(end.saturating_add(1)), Some((Token::Name(_), _))) {
            name.push('.');
            end = end.saturating_add(1);
        }
    }
    (name, end)
}

/// `a.b as c`: the name, what it is called here, and where it ends.
fn renamed(tokens: &[(Token, u64)], at: usize) -> (String, Option<String>, usize) {
    let (name, end) = dotted(tokens, at);
    let after = |n: usize| tokens.get(end.saturating_add(n)).map(|(token, _)| token);
    match (after(0), after(1)) {
        (Some(Token::Name(word)), Some(Token::Name(alias))) if word == "as" => {
            (name, Some(alias.clone()), end.saturating_add(2))
        }
        _ => (name, None, end),
    }
}

type Imported = Option<(Vec<String>, usize)>;

/// `import a.b as c, d`
fn plain_import(
    tokens: &[(Token, u64)],
    at: usize,
    aliases: &mut BTreeMap<String, String>,
) -> Imported {
    let mut names = Vec::new();
    let mut end = at.saturating_add(1);
    loop {
        let (name, alias, next) = renamed(tokens, end);
        if name.is_empty() {
            return Some((names, next));
        }
        if let Some(alias) = alias {
            aliases.insert(alias, name.clone());
        }
        names.push(name);
        match tokens.get(next) {
            Some((Token::Other(','), _)) => end = next.saturating_add(1),
            _ => return Some((names, next)),
        }
    }
}

/// `from a.b import (c as d, e)`; `from a import *` is `a` itself.
fn from_import(
    tokens: &[(Token, u64)],
    at: usize,
    aliases: &mut BTreeMap<String, String>,
) -> Imported {
    let (module, mut end) = dotted(tokens, at.saturating_add(1));
    match tokens.get(end) {
        Some((Token::Name(word), _)) if word == "import" && !module.is_empty() => {}
        _ => return None,
    }
    end = end.saturating_add(1);
    let mut names = vec![module.clone()];
    let in_brackets = matches!(tokens.get(end), Some((Token::Other('('), _)));
    if in_brackets {
        end = end.saturating_add(1);
    }
    loop {
        while in_brackets && matches!(tokens.get(end), Some((Token::End, _))) {
            end = end.saturating_add(1);
        }
        let (name, alias, next) = renamed(tokens, end);
        if name.is_empty() {
            return Some((names, next));
        }
        let whole = format!("{module}.{name}");
        aliases.insert(alias.unwrap_or(name), whole.clone());
        names.push(whole);
        end = next;
        while in_brackets && matches!(tokens.get(end), Some((Token::End, _))) {
            end = end.saturating_add(1);
        }
        match tokens.get(end) {
            Some((Token::Other(','), _)) => end = end.saturating_add(1),
            _ => return Some((names, end)),
        }
    }
}

/// The code without comments and texts. What stands in the fields of an f-string is code.
fn tokenize(text: &str, first_line: u64, tokens: &mut Vec<(Token, u64)>) {
    let mut chars = Cursor { rest: text, line: first_line };
    while let Some(c) = chars.next() {
        let line = chars.line;
        match c {
            '#' => chars.skip_while(|c| c != '\n'),
            '\\' if chars.rest.starts_with('\n') => {
                chars.next();
            }
            '\n' => tokens.push((Token::End, line)),
            '"' | '\'' => literal(&mut chars, c, "", tokens),
            c if begins_name(c) => {
                let word = chars.word(c);
                let prefix = word.to_ascii_lowercase();
                let is_prefix =
                    ["r", "b", "u", "f", "br", "rb", "fr", "rf"].contains(&prefix.as_str());
                match chars.rest.chars().next() {
                    Some(quote @ ('"' | '\'')) if is_prefix => {
                        chars.next();
                        literal(&mut chars, quote, &prefix, tokens);
                    }
                    _ => tokens.push((Token::Name(word), line)),
                }
            }
            // A number may end in letters, which are no name.
            c if c.is_ascii_digit() => chars.skip_while(goes_on),
            c if c.is_whitespace() => {}
            c => tokens.push((Token::Other(c), line)),
        }
    }
}

struct Cursor<'a> {
    rest: &'a str,
    line: u64,
}

impl Cursor<'_> {
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        if c == '\n' {
            self.line = self.line.saturating_add(1);
        }
        Some(c)
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.rest.chars().next().is_some_and(&wanted) {
            self.next();
        }
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        while let Some(c) = self.rest.chars().next().filter(|c| goes_on(*c)) {
            word.push(c);
            self.next();
        }
        word
    }
}

/// Goes behind a text whose first quote has been read.
fn literal(chars: &mut Cursor<'_>, quote: char, prefix: &str, tokens: &mut Vec<(Token, u64)>) {
    let three: String = [quote; 2].iter().collect();
    let is_long = chars.rest.starts_with(&three);
    if is_long {
        chars.next();
        chars.next();
    }
    let start = chars.line;
    let mut content = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
                content.push(' ');
                continue;
            }
            // It is not closed, so this is no Python; the rest of the line counts as text.
            '\n' if !is_long => break,
            c if c == quote && (!is_long || chars.rest.starts_with(&three)) => {
                if is_long {
                    chars.next();
                    chars.next();
                }
                break;
            }
            _ => {}
        }
        content.push(c);
    }
    if prefix.contains('f') {
        fields(&content, start, tokens);
    }
}

/// The code in the fields of an f-string.
fn fields(content: &str, mut line: u64, tokens: &mut Vec<(Token, u64)>) {
    let mut depth = 0u32;
    let mut field = String::new();
    let mut chars = content.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' if depth == 0 && chars.peek() == Some(&'{') => drop(chars.next()),
            '{' => {
                // Inside a field they belong to a text or a set of its own.
                field.extend((depth > 0).then_some('{'));
                depth = depth.saturating_add(1);
            }
            '}' if depth > 1 => {
                depth = depth.saturating_sub(1);
                field.push('}');
            }
            '}' if depth == 1 => {
                depth = 0;
                tokenize(&std::mem::take(&mut field), line, tokens);
                tokens.push((Token::End, line));
            }
            '\n' => line = line.saturating_add(1),
            c if depth > 0 => field.push(c),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(text: &str, name: &str) -> Option<u64> {
        in_python(text, &[name.to_owned()]).get(name).copied()
    }

    #[test]
    fn code_is_found_however_it_is_imported() {
        let found = [
            ("import os\nos.system('x')", "os.system", 2),
            ("import os as o\n\no.system('x')", "os.system", 3),
            ("def f(): o.system('x')\nimport os as o", "os.system", 1),
            ("from os import path, system as s", "os.system", 1),
            ("from os import (\n  path,\n  system,\n)", "os.system", 1),
            ("from os import system\nsystem('x')", "os.system", 1),
            ("import a, subprocess", "subprocess", 1),
            ("import subprocess.popen", "subprocess", 1),
            ("from subprocess import *", "subprocess", 1),
            ("x = 1\ny = eval ('1')", "eval", 2),
            ("x = f'{eval(\"1\")}'", "eval", 1),
            ("x = f'''a\n{ f\"{eval(1)}\" }'''", "eval", 1),
            ("os\\\n.system()", "os.system", 1),
        ];
        for (text, name, line) in found {
            assert!(finds(text, name).is_some_and(|at| at.abs_diff(line) <= 1), "{text}");
        }
    }

    #[test]
    fn words_in_texts_and_comments_are_no_code() {
        let not = [
            ("# eval(x)", "eval"),
            ("'eval(x)'", "eval"),
            ("\"\"\"\neval(x)\n'\"\"\"", "eval"),
            ("x = 'a\\'eval(x)'", "eval"),
            ("f'{{eval}}'", "eval"),
            ("rb'eval'", "eval"),
            ("self.eval(x)", "eval"),
            ("evaluate(x)", "eval"),
            ("import osx", "os"),
            ("x = 0xeval", "eval"),
        ];
        for (text, name) in not {
            assert_eq!(finds(text, name), None, "{text}");
        }
    }

    #[test]
    fn names_are_dotted_words() {
        assert!(["os", "os.system", "__import__", "é"].into_iter().all(is_name));
        assert!(!["", ".", "os.", "a b", "1a", "a-b", "os..system"].into_iter().any(is_name));
    }

    #[test]
    fn other_files_are_bytes() {
        let program = Submission::new([("run".to_owned(), b"\0\x7fELF connect\0".to_vec())]);
        let found =
            find(Language::Executable, &program, &["connect".to_owned(), "socket".to_owned()]);
        assert_eq!(
            found,
            [Finding { file: "run".to_owned(), line: 0, name: "connect".to_owned() }]
        );
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_text_is_read_to_its_end(text in "[ -~\n\\\\\"'{}#é]{0,200}") {
            let _ = used_names(&text);
        }
    }
}
