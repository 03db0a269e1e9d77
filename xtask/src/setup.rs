//! Programs that the tools need beside Rust. As root they are installed, else the message says what to install.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::workspace;

/// A program and the Debian package that brings it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    pub(crate) needed_for: &'static str,
}

pub(crate) const C_COMPILER: Tool =
    Tool { program: "cc", package: "gcc", needed_for: "building SQLite and secp256k1" };
pub(crate) const LIBC_HEADERS: Tool =
    Tool { program: "/usr/include/stdio.h", package: "libc6-dev", needed_for: "compiling C" };
pub(crate) const CXX_COMPILER: Tool =
    Tool { program: "c++", package: "g++", needed_for: "building libFuzzer" };
pub(crate) const NODE: Tool =
    Tool { program: "node", package: "nodejs", needed_for: "the bench peers" };
pub(crate) const NPM: Tool = Tool { program: "npm", package: "npm", needed_for: "the bench peers" };

/// Makes sure that these tools are there.
pub(crate) fn ensure(tools: &[Tool]) -> Result {
    let missing = missing(tools, is_present);
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || !is_present("apt-get") {
        return Err(advice(&missing));
    }
    println!("installing {}", packages(&missing).join(" "));
    // The lists may be absent or old: fetch them only if the first try fails.
    let installed =
        install(&missing).or_else(|_| apt_get(&["update"]).and_then(|()| install(&missing)));
    installed.map_err(|e| format!("{e}\n{}", advice(&missing)))
}

fn missing(tools: &[Tool], is_present: impl Fn(&str) -> bool) -> Vec<Tool> {
    tools.iter().filter(|tool| !is_present(tool.program)).copied().collect()
}

fn packages(tools: &[Tool]) -> Vec<&'static str> {
    tools.iter().map(|tool| tool.package).collect()
}

fn advice(missing: &[Tool]) -> String {
    let wants = missing.iter().map(|t| format!("  {} is needed for {}", t.program, t.needed_for));
    let install = format!("install with: apt-get install {}", packages(missing).join(" "));
    wants
        .chain([install])
        .fold("programs are missing:".to_owned(), |text, line| text + "\n" + &line)
}

fn install(missing: &[Tool]) -> Result {
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages(missing));
    apt_get(&arguments)
}

fn apt_get(arguments: &[&str]) -> Result {
    let mut command = Command::new("apt-get");
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(std::process::Stdio::null());
    workspace::run(&mut command)
}

fn is_root() -> bool {
    workspace::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Whether a program is on the path (or, given as a path, exists).
pub(crate) fn is_present(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Path::new(program).is_absolute() && Path::new(program).exists()
        || std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_asked_for() {
        assert_eq!(
            missing(&[NODE, NPM, CXX_COMPILER], |program| program == "node"),
            [NPM, CXX_COMPILER]
        );
        assert!(is_present("sh") && !is_present("no-such-program"));
        assert!(is_present("/bin/sh") && !is_present("/no/such/program"));
    }

    #[test]
    fn the_advice_names_program_purpose_and_package() {
        assert_eq!(
            advice(&[NODE, CXX_COMPILER]),
            "programs are missing:\n  node is needed for the bench peers\n  c++ is needed for building libFuzzer\n\
             install with: apt-get install nodejs g++"
        );
    }
}
