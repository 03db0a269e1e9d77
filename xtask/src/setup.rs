//! Programs that the tools need beside Rust. As root they are installed, else the message says what to install.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::workspace::{self, Workspace};

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
pub(crate) const BROWSER: Tool = Tool {
    program: testbed::browser::PROGRAM,
    package: testbed::browser::PROGRAM,
    needed_for: "tests that look at the pages",
};
pub(crate) const FONT: Tool = Tool {
    program: "/usr/share/doc/fonts-inter",
    package: "fonts-inter",
    needed_for: "pictures of the pages",
};
pub(crate) const NODE: Tool =
    Tool { program: "node", package: "nodejs", needed_for: "foreign clients" };
pub(crate) const POSTGRES: Tool =
    Tool { program: "postgres", package: "postgresql", needed_for: "tests against PostgreSQL" };
pub(crate) const NATS: Tool =
    Tool { program: "nats-server", package: "nats-server", needed_for: "tests against NATS" };
pub(crate) const PYTHON: Tool =
    Tool { program: "python3", package: "python3-venv", needed_for: "a relay of another make" };
pub(crate) const RUNTIMES: &[Tool] = &[
    Tool { program: "bwrap", package: "bubblewrap", needed_for: "sandboxes of another make" },
    Tool { program: "runc", package: "runc", needed_for: "sandboxes of another make" },
    Tool { program: "podman", package: "podman", needed_for: "sandboxes of another make" },
    Tool { program: "python3", package: "python3-minimal", needed_for: "a judged program" },
];
pub(crate) const RUNC: Tool =
    Tool { program: "runc", package: "runc", needed_for: "sandboxes of an OCI runtime" };
pub(crate) const RUNSC: Tool =
    Tool { program: "runsc", package: "runsc", needed_for: "sandboxes with a kernel of their own" };
pub(crate) const NPM: Tool = Tool { program: "npm", package: "npm", needed_for: "foreign clients" };

/// Installs packages without what they would start by themselves: a NATS server on the usual port, and a PostgreSQL
/// cluster that nobody asked for. The rule against starting goes away with the shell, however it ends; a setting
/// that somebody made stays.
const QUIETLY: &str = r#"
rule=/usr/sbin/policy-rc.d
if [ ! -e $rule ]; then
    trap 'rm -f $rule' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' > $rule && chmod 755 $rule || exit
fi
clusters=/etc/postgresql-common/createcluster.conf
case "$*" in *postgresql*)
    if [ ! -e $clusters ]; then
        mkdir -p /etc/postgresql-common && echo 'create_main_cluster = false' > $clusters || exit
    fi
esac
"$@"
"#;

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
    let installed = install(&missing).or_else(|_| update().and_then(|()| install(&missing)));
    installed.map_err(|e| format!("{e}\n{}", advice(&missing)))
}

/// Installs the relay of another make that tests talk to, once, into the build directory.
pub(crate) fn nostr_relay(tree: &Workspace) -> Result {
    let directory = tree.target("python");
    let (list, program) = (directory.join("installed.txt"), directory.join("bin/nostr-relay"));
    let wanted = testbed::nostr_relay::REQUIREMENTS;
    if program.is_file() && std::fs::read_to_string(&list).is_ok_and(|has| has == wanted) {
        return Ok(());
    }
    ensure(&[PYTHON])?;
    println!("  installing nostr-relay, once");
    let mut make = tree.program("python3");
    workspace::run(make.args(["-m", "venv", "--clear"]).arg(&directory))?;
    let mut install = tree.program(directory.join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    workspace::run(install.arg(tree.path("testbed/nostr-relay.txt")))?;
    // Last: whatever was broken off before is done again.
    std::fs::write(&list, wanted).map_err(|e| format!("{} was not written: {e}", list.display()))
}

/// Installs the Python packages that a judge uses in tests, once, into the build directory.
pub(crate) fn judge_tools(tree: &Workspace) -> Result {
    use testbed::judge_tools::{DIRECTORY, REQUIREMENTS};
    python_packages(tree, DIRECTORY, REQUIREMENTS, "the tools of judges")
}

/// Installs what tools of another make speak to NATS with, once, into the build directory.
pub(crate) fn nats_py(tree: &Workspace) -> Result {
    use testbed::nats_py::{DIRECTORY, REQUIREMENTS};
    python_packages(tree, DIRECTORY, REQUIREMENTS, "nats-py")
}

/// Installs the packages of `testbed/{name}.txt` into the directory of that name.
fn python_packages(tree: &Workspace, name: &str, wanted: &str, what: &str) -> Result {
    let directory = tree.target(name);
    let list = directory.join("installed.txt");
    if std::fs::read_to_string(&list).is_ok_and(|has| has == wanted) {
        return Ok(());
    }
    println!("  installing {what}, once");
    // The relay of another make is there already, with a pip of its own.
    let mut install = tree.program(tree.target("python").join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "--upgrade", "--target"]);
    install.arg(&directory).arg("--requirement").arg(tree.path(format!("testbed/{name}.txt")));
    workspace::run(&mut install)?;
    std::fs::write(&list, wanted).map_err(|e| format!("{} was not written: {e}", list.display()))
}

/// Installs the program that makes up calls to the API, once, into the build directory.
pub(crate) fn schemathesis(tree: &Workspace) -> Result {
    use testbed::schemathesis::{DIRECTORY, REQUIREMENTS};
    python_program(tree, DIRECTORY, REQUIREMENTS)
}

/// Installs the provider of another make that tests benchmark, once, into the build directory.
pub(crate) fn nostr_dvm(tree: &Workspace) -> Result {
    use testbed::nostr_dvm::{DIRECTORY, REQUIREMENTS};
    python_program(tree, DIRECTORY, REQUIREMENTS)
}

/// Installs the program of `testbed/{name}.txt`, with a Python of its own, into the directory of that name.
fn python_program(tree: &Workspace, name: &str, wanted: &str) -> Result {
    let directory = tree.target(name);
    let list = directory.join("installed.txt");
    if std::fs::read_to_string(&list).is_ok_and(|has| has == wanted) {
        return Ok(());
    }
    ensure(&[PYTHON])?;
    println!("  installing {name}, once");
    let mut make = tree.program("python3");
    workspace::run(make.args(["-m", "venv", "--clear"]).arg(&directory))?;
    let mut install = tree.program(directory.join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    workspace::run(install.arg(tree.path(format!("testbed/{name}.txt"))))?;
    std::fs::write(&list, wanted).map_err(|e| format!("{} was not written: {e}", list.display()))
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
    let mut command = Command::new("sh");
    command.args([
        "-c",
        QUIETLY,
        "quietly",
        "apt-get",
        "install",
        "--yes",
        "--no-install-recommends",
    ]);
    unattended(command.args(packages(missing)))
}

fn update() -> Result {
    unattended(Command::new("apt-get").arg("update"))
}

fn unattended(command: &mut Command) -> Result {
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("UCF_FORCE_CONFFOLD", "1")
        .stdin(std::process::Stdio::null());
    workspace::run(command)
}

fn is_root() -> bool {
    workspace::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Whether a program is on the path (or, given as a path, exists). The servers are looked for where the tests will.
pub(crate) fn is_present(program: &str) -> bool {
    if program == POSTGRES.program {
        return testbed::postgres::program(program).is_ok();
    }
    if program == NATS.program {
        return testbed::nats::program().is_ok();
    }
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
        // Installed by now, and not necessarily on the path.
        assert!(is_present(POSTGRES.program) && is_present(NATS.program));
    }

    #[test]
    fn the_advice_names_program_purpose_and_package() {
        assert_eq!(
            advice(&[NODE, CXX_COMPILER]),
            "programs are missing:\n  node is needed for foreign clients\n  c++ is needed for building libFuzzer\n\
             install with: apt-get install nodejs g++"
        );
    }
}
