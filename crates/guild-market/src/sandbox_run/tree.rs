//! The tree of files that a job brings along.
//!
//! The schema has room for a URL of a repository, and nothing here fetches from anywhere: what is not in the request
//! is not in the job. A tree stands in variables of the job's environment, as JSON, and `repo.source` names them:
//!
//! ```text
//! repo.source   env:TREE            or  env:TREE,TREE_1,…
//! env.TREE      {"check.py": "assert 6 * 7 == 42\n", "bin/x": {"hex": "7f45…", "executable": true}}
//! ```
//!
//! So a tree is part of the job hash, travels encrypted if the request does, and needs nothing but what the schema has.
//! The variables themselves are not seen by the commands.

use std::collections::BTreeMap;

use guild_protocol::hash::{from_hex, to_hex};
use guild_protocol::json;
use guild_sandbox::{File, Limits};
use serde_json::{Map, Value, json};

use super::plan::{malformed, refused};
use crate::error::code;
use crate::job::Refusal;

/// The variable that holds the first part of a tree; the others have a number behind it.
pub const TREE_VARIABLE: &str = "TREE";

const SCHEME: &str = "env:";
/// What the schema lets a variable hold.
const VARIABLE_MAX_BYTES: usize = 32_768;
/// How many variables it lets a job have.
const VARIABLES_MAX: usize = 256;
const PATH_MAX_BYTES: usize = 1_024;
const FILES_MAX: usize = 5_000;

/// Whether a path is one of a tree: relative, without `.`, `..` and empty parts.
pub(super) fn is_plain(path: &str) -> bool {
    let odd = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains('\0');
    path.len() <= PATH_MAX_BYTES && !path.split('/').any(odd)
}

/// The files of a job at their places below `mount`, in the order of their paths, and the variables that are left.
pub(super) fn unpack(
    payload: &Value,
    mount: &str,
    limits: &Limits,
) -> Result<(Vec<File>, BTreeMap<String, String>), Refusal> {
    let mut env = variables(payload);
    let repo = |name: &str| payload.get("repo").and_then(|repo| repo.get(name)?.as_str());
    let source = repo("source").unwrap_or_default();
    if source.is_empty() {
        return Ok((Vec::new(), env));
    }
    let Some(names) = source.strip_prefix(SCHEME) else {
        let why = "nothing is fetched here: the tree comes with the request, as env:TREE";
        return Err(refused(&code::SOURCE_REFUSED, "repo.source", why));
    };
    if repo("git_ref").is_some() {
        let why = "a tree that comes with the request has no versions";
        return Err(refused(&code::SOURCE_REFUSED, "repo.git_ref", why));
    }
    let mut tree = BTreeMap::new();
    for name in names.split(',') {
        let Some(text) = env.remove(name) else {
            return Err(malformed(
                "repo.source",
                "it names a variable that is not in env, or twice",
            ));
        };
        read_part(&format!("env.{}", name.escape_debug()), &text, &mut tree)?;
    }
    check_tree(&tree, limits)?;
    let placed = |(path, (executable, bytes)): (String, (bool, Vec<u8>))| File {
        at: format!("{mount}/{path}"),
        executable,
        bytes,
    };
    Ok((tree.into_iter().map(placed).collect(), env))
}

/// Whether a file can be executed, and its bytes, by path.
type Tree = BTreeMap<String, (bool, Vec<u8>)>;

fn variables(payload: &Value) -> BTreeMap<String, String> {
    let members = payload.get("env").and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

fn read_part(field: &str, text: &str, tree: &mut Tree) -> Result<(), Refusal> {
    let read = json::decode::<Value>(text.as_bytes());
    let read = read.map_err(|error| malformed(field, &format!("it is no tree: {error}")))?;
    let Value::Object(members) = read else {
        return Err(malformed(
            field,
            "it is no tree: there must be an object, a file for each path",
        ));
    };
    for (path, content) in members {
        if !is_plain(&path) {
            let path: String = path.chars().take(60).collect();
            return Err(malformed(field, &format!("{path:?} is not a plain path below the tree")));
        }
        let Some(file) = file(&content) else {
            let path: String = path.chars().take(60).collect();
            let why = "a file is a text, or {\"text\" or \"hex\", \"executable\"}";
            return Err(malformed(field, &format!("{path:?}: {why}")));
        };
        if tree.insert(path, file).is_some() {
            return Err(malformed(field, "a path is there twice"));
        }
    }
    Ok(())
}

fn file(content: &Value) -> Option<(bool, Vec<u8>)> {
    if let Value::String(text) = content {
        return Some((false, text.clone().into_bytes()));
    }
    let members = content.as_object()?;
    let known = |name: &String| matches!(name.as_str(), "text" | "hex" | "executable");
    let text = members.get("text").map(|text| text.as_str().map(|text| text.as_bytes().to_vec()));
    let hex = members.get("hex").map(|hex| hex.as_str().and_then(from_hex));
    let executable = members.get("executable").map_or(Some(false), Value::as_bool)?;
    let bytes = match (text, hex) {
        (Some(bytes), None) | (None, Some(bytes)) => bytes?,
        _ => return None,
    };
    members.keys().all(known).then_some((executable, bytes))
}

/// A path cannot be a file and a directory, and all must fit.
fn check_tree(tree: &Tree, limits: &Limits) -> Result<(), Refusal> {
    let files_max = FILES_MAX.min(usize::try_from(limits.inodes / 2).unwrap_or(FILES_MAX));
    if tree.len() > files_max {
        let why = format!("{} files are more than fit, {files_max}", tree.len());
        return Err(malformed("repo.source", &why));
    }
    let bytes = tree.values().fold(0usize, |sum, (_, bytes)| sum.saturating_add(bytes.len()));
    if u64::try_from(bytes).unwrap_or(u64::MAX) > limits.disk_bytes {
        return Err(malformed("repo.source", "the tree is larger than the disk"));
    }
    let above_is_a_file = |path: &String| {
        path.match_indices('/')
            .any(|(at, _)| path.get(..at).is_some_and(|up| tree.contains_key(up)))
    };
    match tree.keys().find(|path| above_is_a_file(path)) {
        Some(path) => {
            let path: String = path.chars().take(60).collect();
            Err(malformed("repo.source", &format!("{path:?} is below a file")))
        }
        None => Ok(()),
    }
}

/// A tree as a job carries it: `repo.source`, and the variables that it names. `None` if it does not fit.
///
/// ```
/// use guild_market::sandbox_run::pack;
/// let (source, env) = pack([("a/b.txt".to_owned(), false, b"hello".to_vec())]).unwrap();
/// assert_eq!((source.as_str(), env["TREE"].as_str()), ("env:TREE", r#"{"a/b.txt":"hello"}"#));
/// ```
pub fn pack(
    files: impl IntoIterator<Item = (String, bool, Vec<u8>)>,
) -> Option<(String, BTreeMap<String, String>)> {
    let (mut parts, mut part, mut part_bytes) = (Vec::new(), Map::new(), 2usize);
    for (path, executable, bytes) in files {
        let content = match (String::from_utf8(bytes), executable) {
            (Ok(text), false) => Value::String(text),
            (Ok(text), true) => json!({"text": text, "executable": true}),
            (Err(error), executable) => {
                json!({"hex": to_hex(error.as_bytes()), "executable": executable})
            }
        };
        let member = json!({ path.as_str(): content }).to_string().len();
        if part_bytes.saturating_add(member) > VARIABLE_MAX_BYTES && !part.is_empty() {
            parts.push(Value::Object(std::mem::take(&mut part)).to_string());
            part_bytes = 2;
        }
        part_bytes = part_bytes.saturating_add(member);
        part.insert(path, content);
    }
    parts.push(Value::Object(part).to_string());
    let fits =
        parts.len() < VARIABLES_MAX && parts.iter().all(|part| part.len() <= VARIABLE_MAX_BYTES);
    let name = |i: usize| match i {
        0 => TREE_VARIABLE.to_owned(),
        i => format!("{TREE_VARIABLE}_{i}"),
    };
    let names: Vec<String> = (0..parts.len()).map(name).collect();
    let source = format!("{SCHEME}{}", names.join(","));
    fits.then(|| (source, names.into_iter().zip(parts).collect()))
}
