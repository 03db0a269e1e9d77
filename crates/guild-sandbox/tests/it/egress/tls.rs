//! The name in the greeting of TLS must be the name that was judged.

use std::collections::BTreeSet;
use std::io::{Read, Write};

use guild_sandbox::egress::{Options, Reason};

use super::place::{Place, options, rest, server};

/// A greeting that names a server, or nobody.
fn greeting(name: Option<&str>) -> Vec<u8> {
    let byte = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
    let extensions = name.map_or(Vec::new(), |name| {
        let length = byte(name.len());
        let head = [0, 0, 0, length + 5, 0, length + 3, 0, 0, length];
        [&head[..], name.as_bytes()].concat()
    });
    let mut body = vec![3, 3];
    body.extend([9; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0, 0, byte(extensions.len())]);
    body.extend(extensions);
    let length = byte(body.len());
    [&[22, 3, 1, 0, length + 4, 1, 0, 0, length], body.as_slice()].concat()
}

fn checked(port: u16, rules: &[String]) -> Place {
    Place::new(rules, Options { tls_ports: BTreeSet::from([port]), ..options() })
}

/// What the server saw, and what the client got after its greeting.
fn try_greeting(target: &str, bytes: &[u8]) -> (Vec<u8>, Vec<u8>, Option<Reason>) {
    let (port, served) = server(|mut stream| {
        let mut seen = vec![0; 1000];
        let length = stream.read(&mut seen).unwrap_or(0);
        seen.truncate(length);
        let _ = stream.write_all(b"hello");
        seen
    });
    let rules = [format!("service.test:{port}"), format!("127.0.0.1:{port}")];
    let place = checked(port, &rules);
    let mut client = place.tunnel(&format!("{target}:{port}"));
    client.write_all(bytes).unwrap_or_default();
    let _ = client.shutdown(std::net::Shutdown::Write);
    let mut got = Vec::new();
    let _ = client.read_to_end(&mut got);
    let report = place.finish();
    let reason = report.refusals.first().map(|refusal| refusal.reason);
    (served.join().unwrap_or_default(), got, reason)
}

#[test]
fn the_right_name_passes_unchanged() {
    let bytes = greeting(Some("Service.TEST"));
    assert_eq!(try_greeting("service.test", &bytes), (bytes, b"hello".to_vec(), None));
}

#[test]
fn another_name_reaches_nobody() {
    let alert = vec![21, 3, 3, 0, 2, 2, 49];
    for (bytes, reason) in [
        (greeting(Some("other.test")), Reason::OtherServerName),
        (greeting(Some("service.test.evil.org")), Reason::OtherServerName),
        (greeting(Some("x.service.test")), Reason::OtherServerName),
        (greeting(None), Reason::NoServerName),
        (b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n".to_vec(), Reason::NotTls),
        (b"SSH-2.0-x\r\n".to_vec(), Reason::NotTls),
        (greeting(Some("127.0.0.1")), Reason::NotTls),
        (greeting(Some("service.test"))[..30].to_vec(), Reason::NotTls),
    ] {
        let (seen, got, why) = try_greeting("service.test", &bytes);
        assert_eq!((seen, got, why), (Vec::new(), alert.clone(), Some(reason)), "{bytes:?}");
    }
}

/// Whoever may reach an address may say there what it likes.
#[test]
fn an_address_needs_no_name() {
    for bytes in [greeting(None), greeting(Some("other.test")), b"SSH-2.0-x\r\n".to_vec()] {
        let (seen, got, reason) = try_greeting("127.0.0.1", &bytes);
        assert_eq!((seen, got, reason), (bytes, b"hello".to_vec(), None));
    }
}

#[test]
fn a_greeting_that_does_not_come_is_not_waited_for() {
    let (port, served) = server(|mut stream| rest(&mut stream));
    let rules = [format!("service.test:{port}"), format!("127.0.0.1:{port}")];
    let tls_ports = BTreeSet::from([port]);
    let place = Place::new(&rules, Options { tls_ports, head_ms: 200, ..options() });
    let mut client = place.tunnel(&format!("service.test:{port}"));
    client.write_all(&[22]).unwrap();
    let mut alert = Vec::new();
    let _ = client.read_to_end(&mut alert);
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, 49]);
    assert_eq!(served.join().unwrap(), "");
    assert_eq!(place.finish().reasons[&Reason::TooSlow], 1);
}
