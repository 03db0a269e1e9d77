//! An order of `oa.sandbox_run.v1`, from a directory and command lines.

use std::path::Path;

use guild_market::sandbox_run::pack;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result, code};
use crate::image;

/// More files, or larger ones, do not fit into a request anyway.
const FILES_MAX: usize = 2_000;
const BYTES_MAX: u64 = 256 * 1_024;
/// What is no part of a tree, whatever directory it is.
const LEFT_OUT: &str = ".git";

/// The input with these commands, on these files, in this image: this host's own if none is named.
pub(super) fn input(
    input: Option<Value>,
    commands: &[String],
    tree: Option<&Path>,
    image_digest: Option<&str>,
) -> Result<Value> {
    let mut input = match input {
        Some(Value::Object(members)) => members,
        None => Map::new(),
        Some(_) => return Err(unusable("the input is not an object")),
    };
    let lines: Vec<Value> = commands.iter().map(|line| json!({ "cmd": line })).collect();
    set(&mut input, "commands", json!(lines))?;
    let sandbox = object(&mut input, "sandbox")?;
    if let Some(digest) = image_digest {
        sandbox.insert("image_digest".to_owned(), json!(digest));
    }
    sandbox.entry("image_digest").or_insert_with(|| json!(image::host_digest()));
    if let Some(directory) = tree {
        let packed = pack(read(directory)?);
        let too_large = || {
            let message = "the tree does not fit into a request: no file may have more than 32768 bytes as JSON";
            Error::new(&code::HIRE_TREE, message).in_file(directory)
        };
        let (source, variables) = packed.ok_or_else(too_large)?;
        set(object(&mut input, "repo")?, "source", json!(source))?;
        let env = object(&mut input, "env")?;
        for (name, part) in variables {
            set(env, &name, json!(part))?;
        }
    }
    Ok(Value::Object(input))
}

fn unusable(message: impl Into<String>) -> Error {
    Error::new(&code::HIRE_TREE, message)
}

/// Sets what nobody has set.
fn set(members: &mut Map<String, Value>, name: &str, value: Value) -> Result<()> {
    match members.insert(name.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(unusable(format!("{name} is in the input already"))),
    }
}

fn object<'a>(
    members: &'a mut Map<String, Value>,
    name: &str,
) -> Result<&'a mut Map<String, Value>> {
    let member = members.entry(name).or_insert_with(|| json!({}));
    member.as_object_mut().ok_or_else(|| unusable(format!("{name} in the input is not an object")))
}

/// The files below a directory, by path. A link is refused: what it leads to may be anywhere.
fn read(directory: &Path) -> Result<Vec<(String, bool, Vec<u8>)>> {
    let (mut files, mut bytes) = (Vec::new(), 0_u64);
    let mut waiting = vec![String::new()];
    while let Some(below) = waiting.pop() {
        let here = directory.join(&below);
        let entries = std::fs::read_dir(&here).map_err(|e| Error::io(&here, &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| Error::io(&here, &e))?;
            let path = entry.path();
            let refused = |why: &str| unusable(why).in_file(&path);
            let name = entry.file_name().into_string();
            let name = name.map_err(|_| refused("the name is not UTF-8"))?;
            let kind = entry.file_type().map_err(|e| Error::io(&path, &e))?;
            let place = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
            if kind.is_dir() && name != LEFT_OUT {
                waiting.push(place);
            } else if kind.is_file() {
                let (executable, content) = read_file(&path)?;
                bytes = bytes.saturating_add(u64::try_from(content.len()).unwrap_or(u64::MAX));
                files.push((place, executable, content));
            } else if name != LEFT_OUT {
                return Err(refused("only files and directories travel, no links or devices"));
            }
            if files.len() > FILES_MAX || bytes > BYTES_MAX {
                let most = format!("{FILES_MAX} files and {} KiB", BYTES_MAX / 1_024);
                let message = format!("the tree does not fit into a request: at most {most}");
                return Err(unusable(message).in_file(directory));
            }
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path) -> Result<(bool, Vec<u8>)> {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    let failed = |e: std::io::Error| Error::io(path, &e);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    let mut content = Vec::new();
    file.take(BYTES_MAX.saturating_add(1)).read_to_end(&mut content).map_err(failed)?;
    Ok((mode & 0o100 != 0, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_commands_become_an_input() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/.git")).unwrap();
        std::fs::write(dir.path().join("a/x"), "hello").unwrap();
        std::fs::write(dir.path().join("a/.git/config"), "secret").unwrap();
        let made = |extra| input(extra, &["make".to_owned()], Some(dir.path()), Some("sha256:x"));
        let expected = json!({
            "commands": [{"cmd": "make"}], "sandbox": {"image_digest": "sha256:x", "resources": {"cpus": 2}},
            "repo": {"source": "env:TREE"}, "env": {"TREE": "{\"a/x\":\"hello\"}", "A": "B"},
        });
        let extra = json!({"sandbox": {"resources": {"cpus": 2}}, "env": {"A": "B"}});
        assert_eq!(made(Some(extra)).unwrap(), expected);
        let refused = |extra| made(Some(extra)).unwrap_err().to_string();
        assert_eq!(refused(json!({"commands": []})), "commands is in the input already");
        assert_eq!(refused(json!({"env": {"TREE": ""}})), "TREE is in the input already");
        assert_eq!(refused(json!({"sandbox": 1})), "sandbox in the input is not an object");
        let own = input(None, &["x".to_owned()], None, None).unwrap();
        assert_eq!(own["sandbox"]["image_digest"], image::host_digest());
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        let link = made(None).unwrap_err();
        assert!(link.to_string().contains("no links") && link.file().unwrap().ends_with("/link"));
        std::fs::remove_file(dir.path().join("link")).unwrap();
        std::fs::write(dir.path().join("large"), vec![b'x'; 300 * 1_024]).unwrap();
        assert!(made(None).unwrap_err().to_string().contains("at most 2000 files and 256 KiB"));
        std::fs::write(dir.path().join("large"), vec![b'x'; 40_000]).unwrap();
        assert!(made(None).unwrap_err().to_string().contains("32768 bytes"));
    }
}
