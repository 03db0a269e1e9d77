//! Everything has an end: heads, silence, connections, and the proxy itself.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use guild_sandbox::egress::{Options, Outside, Reason};

use super::place::{Place, options, rest, server};

#[expect(clippy::disallowed_methods, reason = "a test may wait for another thread")]
fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[test]
fn a_head_that_drips_is_cut_off() {
    let place = Place::for_service(80, Options { head_ms: 300, ..options() });
    let mut client = place.client();
    let mut dripping = client.try_clone().unwrap();
    let drips = std::thread::spawn(move || {
        // For as long as somebody listens.
        while dripping.write_all(b"X").is_ok() {
            sleep_ms(20);
        }
    });
    let answer = rest(&mut client);
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    drop(client);
    drips.join().unwrap();
    assert_eq!(place.finish().reasons[&Reason::TooSlow], 1);
}

#[test]
fn a_long_head_is_cut_off() {
    let place = Place::for_service(80, options());
    let head = format!("GET http://service.test/ HTTP/1.1\r\nX: {}", "x".repeat(20_000));
    let answer = place.ask(head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let head = format!("{head}\r\n\r\n");
    assert!(place.ask(head.as_bytes()).starts_with("HTTP/1.1 431 "));
    assert_eq!(place.finish().reasons[&Reason::TooLarge], 2);
}

#[test]
fn silence_ends_a_tunnel() {
    let (port, served) = server(|mut stream| rest(&mut stream));
    let place = Place::for_service(port, Options { idle_ms: 200, ..options() });
    let mut client = place.tunnel(&format!("service.test:{port}"));
    assert_eq!((rest(&mut client).as_str(), served.join().unwrap().as_str()), ("", ""));
    assert_eq!(place.finish().allowed, 1);
}

/// A thousand at once get no more threads than there is room for, and whoever comes later is served.
#[test]
fn a_flood_is_bounded() {
    let place = Place::for_service(80, Options { connections: 16, ..options() });
    let mut clients: Vec<TcpStream> = Vec::new();
    let mut most = 0;
    let mut turned_away = 0;
    for number in 1..=1_000 {
        clients.push(place.client());
        // The first ones have all the room before the others come.
        while number <= 16 && place.egress.open() < number {
            sleep_ms(1);
        }
        most = most.max(place.egress.open());
        // Those that are turned away are let go, so that the test needs few descriptors itself.
        if clients.len() > 100 {
            let mut early = clients.remove(16);
            turned_away += usize::from(rest(&mut early).starts_with("HTTP/1.1 503 "));
        }
    }
    assert_eq!(most, 16);
    assert_eq!(turned_away, 900);
    while place.egress.report().refused < 984 {
        sleep_ms(5);
    }
    drop(clients);
    while place.egress.open() > 0 {
        sleep_ms(5);
    }
    let answer = place.ask(b"CONNECT other.test:443 HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let report = place.finish();
    assert_eq!(report.reasons[&Reason::TooMany], 984);
    assert_eq!((report.refusals.len(), report.attempts.len()), (2, 256));
    assert_eq!(report.forgotten, 985 - 256);
}

#[test]
fn a_pace_changes_nothing_but_the_time() {
    let (port, served) = server(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let place = Place::for_service(port, Options { bytes_per_s: Some(200_000), ..options() });
    let mut client = place.tunnel(&format!("service.test:{port}"));
    let sent = "abcdefghij".repeat(4_000);
    client.write_all(sent.as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut client) == sent);
    served.join().unwrap();
    let report = place.finish();
    assert_eq!((report.up_bytes, report.down_bytes), (40_000, 40_000));
}

#[test]
fn dropping_ends_every_connection() {
    let (port, served) = server(|mut stream| rest(&mut stream));
    let place = Place::for_service(port, options());
    let mut tunnel = place.tunnel(&format!("service.test:{port}"));
    let mut waiting = place.client();
    waiting.write_all(b"GET http://").unwrap();
    while place.egress.open() < 2 {
        sleep_ms(1);
    }
    let proxy = place.proxy;
    drop(place);
    assert_eq!((rest(&mut tunnel), rest(&mut waiting)), (String::new(), String::new()));
    assert_eq!(served.join().unwrap(), "");
    assert!(TcpStream::connect(proxy).is_err());
}

/// A name service that says nothing holds up neither the client for ever nor the end.
#[test]
fn a_name_that_never_answers_holds_nobody() {
    struct Never(Mutex<Receiver<()>>);
    impl Outside for Never {
        fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            let _ = self.0.lock().map(|never| never.recv());
            Ok(Vec::new())
        }
        fn is_own(&self, _: IpAddr) -> bool {
            false
        }
    }
    let (released, never) = mpsc::channel();
    let outside: Arc<dyn Outside> = Arc::new(Never(Mutex::new(never)));
    let short = Options { outside: outside.clone(), connect_ms: 200, ..Options::default() };
    let place = Place::for_service(80, short);
    let answer = place.ask(b"CONNECT service.test:80 HTTP/1.1\r\n\r\n");
    assert!(answer.ends_with("unresolved: there is no answer\n"), "{answer}");
    drop(place);
    let place = Place::for_service(80, Options { outside, ..Options::default() });
    let mut client = place.client();
    client.write_all(b"CONNECT service.test:80 HTTP/1.1\r\n\r\n").unwrap();
    while place.egress.open() == 0 {
        sleep_ms(1);
    }
    drop(place);
    assert_eq!(rest(&mut client), "");
    drop(released);
}

#[test]
fn a_proxy_for_nothing_is_refused() {
    for options in
        [Options { connections: 0, ..options() }, Options { bytes_per_s: Some(0), ..options() }]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = guild_sandbox::egress::Egress::serve(listener, Default::default(), options);
        assert_eq!(error.unwrap_err().code().name, "sandbox.bad_spec");
    }
}
