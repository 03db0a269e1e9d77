//! What is allowed gets through unchanged.

use std::io::{Read, Write};
use std::net::Shutdown;

use guild_sandbox::egress::{Options, Reason, Verdict};

use super::place::{Forbidden, Names, Place, answer_once, options, rest, server};

#[test]
fn a_request_is_forwarded_and_names_nobody_between() {
    let (port, served) = server(answer_once);
    let place = Place::for_service(port, options());
    let answer = place.ask(
        format!(
            "GET http://Service.test:{port}/path?q HTTP/1.1\r\nHost: service.test:{port}\r\n\
             Proxy-Connection: keep-alive\r\nAccept: */*\r\n\r\n"
        )
        .as_bytes(),
    );
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let seen = served.join().unwrap();
    let sent = format!(
        "GET /path?q HTTP/1.1\r\nHost: service.test:{port}\r\naccept: */*\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(seen, sent);
    let report = place.finish();
    assert_eq!((report.allowed, report.refused, report.failed), (1, 0, 0));
    let [attempt] = report.attempts.as_slice() else { panic!("{report:?}") };
    assert_eq!((attempt.host.as_str(), attempt.port), ("service.test", port));
    assert_eq!((attempt.verdict, attempt.reason), (Verdict::Allowed, None));
    assert_eq!(attempt.up_bytes, u64::try_from(sent.len()).unwrap());
    assert_eq!(attempt.down_bytes, u64::try_from(answer.len()).unwrap());
    assert_eq!((report.up_bytes, report.down_bytes), (attempt.up_bytes, attempt.down_bytes));
}

#[test]
fn a_body_goes_with_its_request_and_nothing_behind_it() {
    let (port, served) = server(|mut stream| {
        let mut all = vec![0; 4096];
        let mut length = 0;
        while !all[..length].ends_with(b"0\r\n\r\n") {
            length += stream.read(&mut all[length..]).unwrap();
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // Whatever comes after the body.
        length += stream.read(&mut all[length..]).unwrap();
        String::from_utf8_lossy(&all[..length]).into_owned()
    });
    let place = Place::for_service(port, options());
    let answer = place.ask(
        format!(
            "POST http://service.test:{port}/ HTTP/1.1\r\nHost: service.test:{port}\r\n\
             Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n\
             GET http://service.test:{port}/second HTTP/1.1\r\nHost: other.test\r\n\r\n"
        )
        .as_bytes(),
    );
    assert_eq!(answer, "HTTP/1.1 204 No Content\r\n\r\n");
    let seen = served.join().unwrap();
    assert!(seen.ends_with("Connection: close\r\n\r\n4\r\nbody\r\n0\r\n\r\n"), "{seen}");
}

#[test]
fn a_tunnel_carries_bytes_and_one_side_may_end_first() {
    let (port, served) = server(|mut stream| {
        let mut all = Vec::new();
        // Until the client has ended, which must not end the tunnel.
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
        all.len()
    });
    let place = Place::for_service(port, options());
    let mut client = place.tunnel(&format!("service.test:{port}"));
    let sent = "0123456789".repeat(50_000);
    client.write_all(sent.as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut client) == sent);
    assert_eq!(served.join().unwrap(), sent.len());
    let report = place.finish();
    assert_eq!((report.up_bytes, report.down_bytes), (500_000, 500_000));
}

#[test]
fn words_behind_the_head_of_a_tunnel_are_its_first() {
    let (port, served) = server(|mut stream| {
        let mut word = [0; 5];
        stream.read_exact(&mut word).unwrap();
        word
    });
    let place = Place::for_service(port, options());
    let head = format!("CONNECT service.test:{port} HTTP/1.1\r\n\r\nearly");
    assert_eq!(place.ask(head.as_bytes()), "HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(&served.join().unwrap(), b"early");
}

#[test]
fn what_leads_nowhere_is_no_refusal() {
    let port = Forbidden::new().0;
    let place = Place::for_service(port, options());
    let answer = place.ask(format!("CONNECT service.test:{port} HTTP/1.1\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{answer}");
    let unknown = Options { outside: Names::new(&[]), ..Options::default() };
    let unknown = Place::for_service(port, unknown);
    let answer = unknown.ask(format!("CONNECT service.test:{port} HTTP/1.1\r\n\r\n").as_bytes());
    assert!(answer.ends_with("unresolved: nobody knows it\n"), "{answer}");
    for (place, reason) in [(place, Reason::Unreachable), (unknown, Reason::Unresolved)] {
        let report = place.finish();
        assert_eq!((report.refused, report.failed, report.reasons[&reason]), (0, 1, 1));
        assert!(report.refusals.is_empty());
    }
}
