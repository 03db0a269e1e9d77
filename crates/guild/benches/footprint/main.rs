//! What a node takes that has nothing to do: `ready` counts how many fresh nodes are ready one after another in a
//! minute, `memory` how many idle ones fit into ten gigabytes. Beside it stands the limit that is promised.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use testbed::bench::{self, Arguments, Measured, Watch};

/// From the start of the process until everything runs.
const READY_LIMIT_MS: f64 = 300.0;
/// Resident, in kilobytes of 1024 bytes as the system counts them.
const MEMORY_LIMIT_KB: f64 = 60.0 * 1_000_000.0 / 1_024.0;
/// How long a node is left alone before it is looked at.
const IDLE_MS: u64 = 10_000;
const TEN_GB_IN_KB: f64 = 10_000_000_000.0 / 1_024.0;

fn main() -> ExitCode {
    bench::main(measure)
}

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let watch = Watch::start();
    let node = Node::start(&arguments.directory)?;
    node.is_ready()?;
    let in_a_minute = watch.per_s(60);
    let (guild, limit, result) = match arguments.case.as_str() {
        "ready" => {
            let result = format!("ready after {:.0} ms", 60_000.0 / in_a_minute);
            (in_a_minute, 60_000.0 / READY_LIMIT_MS, result)
        }
        "memory" => {
            testbed::wait_ms(IDLE_MS);
            let (now_kb, most_kb) = (node.status_kb("VmRSS:")?, node.status_kb("VmHWM:")?);
            let result = format!("{now_kb:.0} kB resident when idle, {most_kb:.0} kB at most");
            (TEN_GB_IN_KB / now_kb, TEN_GB_IN_KB / MEMORY_LIMIT_KB, result)
        }
        case => return Err(format!("there is no case {case:?}")),
    };
    Ok(vec![
        Measured { name: "guild", per_s: guild, result: result.clone() },
        Measured { name: "limit", per_s: limit, result },
    ])
}

/// A node of this very build, with its usual settings but for the port.
struct Node {
    child: Child,
    url: String,
}

impl Node {
    fn start(directory: &Path) -> Result<Node, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_guild"));
        command.args(["up", "--json", "--quiet", "--data-dir"]).arg(directory);
        command.args(["--set", "gateway.listen=127.0.0.1:0"]);
        command.env_clear().env("HOME", directory).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut node = Node { child: command.spawn().map_err(said)?, url: String::new() };
        let stdout = node.child.stdout.take().ok_or("the node has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(said)?;
        let begin = line.find("http://").ok_or_else(|| format!("no address in {line:?}"))?;
        let rest = line.get(begin..).unwrap_or_default();
        node.url = rest.split('"').next().unwrap_or_default().to_owned();
        Ok(node)
    }

    fn is_ready(&self) -> Result<(), String> {
        let answer = ureq::get(format!("{}/readyz", self.url)).call().map_err(said)?;
        if answer.status().is_success() { Ok(()) } else { Err("it is not ready".to_owned()) }
    }

    /// A line of what the system knows of the process.
    fn status_kb(&self, name: &str) -> Result<f64, String> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).map_err(said)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).ok_or_else(|| format!("there is no {name}"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended; there is nothing else to do then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
