//! Our relay: a node of this very build.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::said;

/// A node that serves until it is dropped.
pub(crate) struct Node {
    child: Child,
    address: String,
}

impl Node {
    /// Starts a node with its data in an empty directory, and no limit that a benchmark could reach.
    pub(crate) fn start(directory: &Path) -> Result<Node, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_guild"));
        command.args(["up", "--json", "--quiet", "--data-dir"]).arg(directory);
        command.args(["--set", "gateway.listen=127.0.0.1:0"]);
        for limit in ["frames_per_minute", "events_per_minute", "key_events_per_minute"] {
            command.args(["--set", &format!("relay.{limit}=1000000000")]);
        }
        command.env_clear().env("HOME", directory).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(said)?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("the node has no output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(said)?;
        let begin = line.find("127.0.0.1:").ok_or_else(|| format!("no address in {line:?}"))?;
        let rest = line.get(begin..).unwrap_or_default();
        let address = rest.split('"').next().unwrap_or_default().to_owned();
        Ok(Node { child, address })
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/relay", self.address)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended; there is nothing else to do then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
