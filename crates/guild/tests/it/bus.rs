//! A node whose bells go over a NATS server.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use testbed::Nats;

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

/// Somebody else on the server, who hears a namespace.
struct Outsider(BufReader<TcpStream>);

impl Outsider {
    fn listen(url: &str, namespace: &str) -> Outsider {
        let mut stream = TcpStream::connect(url.strip_prefix("nats://").unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        write!(stream, "CONNECT {{\"verbose\":false}}\r\nSUB {namespace}.> 1\r\nPING\r\n").unwrap();
        let mut outsider = Outsider(BufReader::new(stream));
        // The server answers in order: from here on everything is heard.
        outsider.line_with("PONG");
        outsider
    }

    fn line_with(&mut self, start: &str) -> String {
        line_with(&mut self.0, |line| line.starts_with(start))
    }

    /// The number of the next bell of a topic.
    fn hear(&mut self, subject: &str) -> i64 {
        self.line_with(&format!("MSG {subject} "));
        line_with(&mut self.0, |_| true).trim().parse().unwrap()
    }
}

fn line_with(stream: &mut impl BufRead, wanted: impl Fn(&str) -> bool) -> String {
    loop {
        let mut line = String::new();
        let read = stream.read_line(&mut line).unwrap_or_else(|e| panic!("nothing was heard: {e}"));
        assert_ne!(read, 0, "the stream ended");
        if wanted(&line) {
            return line;
        }
    }
}

fn settings(url: &str, namespace: &str) -> [String; 4] {
    let (url, namespace) = (format!("bus.url={url}"), format!("bus.namespace={namespace}"));
    ["--set".to_owned(), url, "--set".to_owned(), namespace]
}

fn args(settings: &[String]) -> Vec<&str> {
    settings.iter().map(String::as_str).chain(ANY_PORT).collect()
}

#[test]
fn a_log_is_written_and_followed_as_without_a_server_and_others_hear_it() {
    let (url, namespace) = (Nats::shared_url().unwrap(), format!("node_{}", std::process::id()));
    let mut outsider = Outsider::listen(&url, &namespace);
    let home = Home::new();
    let node = Node::up(&home, &args(&settings(&url, &namespace)));
    assert_eq!(node.ready["bus"].as_str(), Some(url.as_str()));
    let mut command = home.command(&["log", "tail", "--follow", "--json", "-n", "100"]);
    let mut tail = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = || {
        let entry: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        (entry["seq"].as_i64().unwrap(), entry["action"].as_str().unwrap().to_owned())
    };
    assert_eq!(next(), (1, "node.started".to_owned()));
    for seq in 2..6 {
        let action = format!("test.entry{seq}");
        assert_eq!(home.run(&["log", "append", &action]).code, 0);
        assert_eq!(next(), (seq, action));
    }
    // Bells that wait for the connection become one, so there is at least one, and it is early enough.
    let heard = outsider.hear(&format!("{namespace}.bell.audit"));
    assert!((0..5).contains(&heard), "{heard}");
    tail.kill().unwrap();
    tail.wait().unwrap();
    assert_eq!(node.stop(), 0);
}

#[test]
fn a_server_out_of_reach_is_told_and_stops_nothing() {
    let mut server = Nats::start().unwrap();
    server.stop();
    let home = Home::new();
    let with_password = server.url().replace("nats://", "nats://guild:secret@");
    let (node, mut log) = Node::up_with_log(&home, &args(&settings(&with_password, "guild")));
    assert_eq!(node.ready["bus"].as_str(), Some(server.url().as_str()));
    // Bells and letters have a connection each.
    let told = line_with(&mut log, |line| line.contains("the bus does not reach its server"));
    assert!(told.contains("WARN"), "{told}");
    assert!(told.contains(&server.url()) && !told.contains("secret"), "{told}");
    assert_eq!(home.run(&["log", "append", "without.bells"]).code, 0);
    server.resume().unwrap();
    let mut outsider = Outsider::listen(&server.url(), "guild");
    line_with(&mut log, |line| line.contains("the bus is connected"));
    assert_eq!(home.run(&["log", "append", "with.bells"]).code, 0);
    let heard = outsider.hear("guild.bell.audit");
    assert!((0..=2).contains(&heard), "{heard}");
    assert_eq!(node.stop(), 0);
}

#[test]
fn a_wrong_bus_is_refused_before_anything_starts() {
    let home = Home::new();
    for (settings, code) in [
        (settings("http://127.0.0.1", "guild"), "bus.bad_url"),
        (settings("nats://127.0.0.1", "a.b"), "bus.bad_namespace"),
    ] {
        let (exit, answer) = home.json(&[&["up"], &args(&settings)[..]].concat());
        assert_eq!((exit, answer["error"]["code"].as_str()), (2, Some(code)));
    }
}
