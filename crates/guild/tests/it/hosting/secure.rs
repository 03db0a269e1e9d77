//! A node behind TLS: it is reached by whoever trusts its certificate, and hears nothing from anybody else.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::certified::{Authority, Front, GOOD, OVER};
use super::{HOSTING, good, text};
use crate::node::Node;
use crate::support::Home;

fn refused(home: &Home, args: &[&str]) -> (String, String) {
    let (code, answer) = home.json(args);
    assert_ne!(code, 0, "{args:?}: {answer}");
    (text(&answer["error"], "code"), text(&answer["error"], "message"))
}

/// Answers each line in capitals, and says when there are no more. Asked to turn it says all first, and then tells how
/// much it has heard.
const SHOUT: &str = "import socketserver, socket\n\
class H(socketserver.StreamRequestHandler):\n\
\x20   def handle(self):\n\
\x20       for line in self.rfile:\n\
\x20           if line == b'turn\\n':\n\
\x20               self.request.shutdown(socket.SHUT_WR)\n\
\x20               return print(len(self.rfile.read()), flush=True)\n\
\x20           self.wfile.write(line.upper())\n\
\x20       self.wfile.write(b'end')\n\
s = socketserver.TCPServer(('127.0.0.1', 9000), H)\n\
print('up', flush=True)\n\
s.serve_forever()\n";

#[test]
fn a_node_behind_tls_is_used_by_whoever_trusts_its_certificate() {
    let (operator, buyer) = (Home::new(), Home::new());
    let authority = Authority::new(1);
    let front = Front::open(authority.server("localhost", GOOD));
    let url = format!("https://localhost:{}", front.port);
    let origins = format!("hosting.origins={url}");
    let node = Node::up(&operator, &[&HOSTING, &["--set", &origins][..]].concat());
    front.stand_before(node.address());
    good(&buyer, &["key", "new"]);
    buyer.write("ca.pem", authority.pem());
    buyer.write("other.pem", Authority::new(2).pem());

    // Nobody here trusts it, and it is not reached by another name: it hears nothing.
    let login = ["login", "--host", &url];
    let before = buyer.contents();
    for more in [&["--ca", "other.pem"][..], &["--ca", "other.pem", "--nostr"]] {
        let (code, said) = refused(&buyer, &[&login, more].concat());
        assert_eq!(code, "host.certificate", "{said}");
        assert!(said.contains("is of nobody who is trusted here; nothing was sent"), "{said}");
    }
    assert_eq!(refused(&buyer, &login).0, "host.certificate", "the host does not trust it");
    let by_number = format!("https://127.0.0.1:{}", front.port);
    let (code, said) = refused(&buyer, &["login", "--host", &by_number, "--ca", "ca.pem"]);
    assert!(code == "host.certificate" && said.contains("is for another name"), "{said}");
    let over = Front::open(authority.server("localhost", OVER));
    let old = format!("https://localhost:{}", over.port);
    let (code, said) = refused(&buyer, &["login", "--host", &old, "--ca", "ca.pem"]);
    assert!(code == "host.certificate" && said.contains("has expired"), "{said}");
    assert_eq!((front.believed(), over.believed()), (0, 0));
    assert_eq!(buyer.contents(), before, "nobody is signed in");

    // Whoever names its authority is signed in, and the later commands remember that.
    let signed_in = good(&buyer, &[&login[..], &["--ca", "ca.pem"]].concat());
    assert_eq!(text(&signed_in, "url"), url);
    let user_id = text(&signed_in, "user_id");
    good(&operator, &["billing", "credit", &user_id, "1usd", "--reference", "wire 1"]);
    assert_eq!(good(&buyer, &["billing", "balance"])["free_micro_usd"], 1_000_000);
    let job = good(&buyer, &["job", "create", "--budget", "50c", "--ttl", "1h"]);
    let sandbox = good(&buyer, &["sandbox", "create", &text(&job, "job_id")]);
    let id = text(&sandbox, "sandbox_id");
    let mut server = buyer.command(&["sandbox", "exec", &id, "--", "python3", "-uc", SHOUT]);
    let mut server =
        server.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut printed = BufReader::new(server.stdout.take().unwrap()).lines();
    assert_eq!(printed.next().unwrap().unwrap(), "up");
    let mut forward = buyer.command(&["sandbox", "forward", &id, "0:9000", "--json"]);
    let mut forward = forward.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(forward.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let near: Value = serde_json::from_str(&line).unwrap();
    // One side may say all before the other: it is heard through TLS, the node and the agent, and the rest still comes.
    let connect = || {
        let stream = TcpStream::connect(text(&near, "address")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        stream
    };
    let mut heard = String::new();
    let mut stream = connect();
    stream.write_all(b"hello\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "HELLO\nend");
    let mut stream = connect();
    stream.write_all(b"turn\n").unwrap();
    assert_eq!(stream.read_to_string(&mut heard).unwrap(), 0, "it has said all");
    (0..10).for_each(|_| stream.write_all(&[7; 30_000]).unwrap());
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(printed.next().unwrap().unwrap(), "300000");
    good(&buyer, &["sandbox", "destroy", &id]);
    let _ = forward.kill();
    let _ = (forward.wait(), server.wait());

    // Also if it is not there any more.
    std::fs::remove_file(buyer.path().join("ca.pem")).unwrap();
    assert_eq!(refused(&buyer, &["billing", "balance"]).0, "io.not_found");
    node.stop();
}

#[test]
fn files_of_certificates_and_addresses_that_are_none_are_refused() {
    let home = Home::new();
    good(&home, &["key", "new"]);
    home.write("none.pem", "nothing");
    let at = |url: &'static str| ["login", "--host", url, "--ca", "none.pem"];
    assert_eq!(refused(&home, &at("https://localhost:1")).0, "host.ca_file");
    assert_eq!(refused(&home, &at("http://localhost:1")).0, "cli.usage");
    // Whoever does not speak TLS is not there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let away =
            "HTTP/1.1 307 Away\r\nlocation: https://localhost:1/\r\ncontent-length: 0\r\n\r\n";
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(away.as_bytes());
        }
    });
    home.write("ca.pem", Authority::new(1).pem());
    let secure = format!("https://localhost:{port}");
    let (code, said) = refused(&home, &["login", "--host", &secure, "--ca", "ca.pem"]);
    assert_eq!(code, "node.unreachable", "{said}");
    // An answer leads nowhere.
    let plain = format!("http://localhost:{port}");
    let (code, said) = refused(&home, &["login", "--host", &plain]);
    assert!(
        code == "node.unreachable" && said.contains("points to https://localhost:1/"),
        "{said}"
    );
}
