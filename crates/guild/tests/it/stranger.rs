//! A provider of another make that works for a node: `provider.mjs`, on nostr-tools.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use guild_protocol::identity::PublicKey;
use serde_json::Value;

/// The other program, ended with the test however that ends.
pub(crate) struct Stranger {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    pub(crate) key: PublicKey,
}

impl Stranger {
    /// One that has announced itself at this relay. The first two of the rest are its price in msat, and of how many
    /// receipts it waits to hear before it ends.
    pub(crate) fn at_work(relay: &str, rest: &[&str]) -> Stranger {
        let script = testbed::javascript::installed().unwrap().join("provider.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg(relay).args(rest).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let key = first["provider"].as_str().unwrap().parse().unwrap();
        Stranger { child, lines, key }
    }

    /// What it says next of a receipt.
    pub(crate) fn receipt(&mut self) -> Value {
        loop {
            let said: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
            assert!(said.get("failed").is_none(), "{said}");
            if said.get("receipt").is_some() {
                return said;
            }
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
