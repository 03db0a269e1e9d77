//! Programs that want somewhere else.

use guild_sandbox::egress::{Options, Reason};

use super::place::{Forbidden, Names, Place, answer_once, options, server};

fn refused_as(answer: &str, status: &str, reason: Reason) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(answer.contains(&format!("\r\n\r\n{}: ", reason.name())), "{answer}");
}

#[test]
fn what_is_not_named_is_not_even_asked_for() {
    let names = Names::new(&[&["127.0.0.1"]]);
    let (port, server) = Forbidden::new();
    let options = Options { outside: names.clone(), ..Options::default() };
    let place = Place::for_service(port, options);
    for target in [
        format!("other.test:{port}"),
        format!("secret.service.test:{port}"),
        "service.test:1".to_owned(),
        "127.0.0.1:1".to_owned(),
        format!("127.0.0.2:{port}"),
        format!("[::1]:{port}"),
        format!("localhost:{port}"),
    ] {
        let answer = place.ask(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes());
        refused_as(&answer, "403", Reason::NotListed);
        let head = format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n");
        refused_as(&place.ask(head.as_bytes()), "403", Reason::NotListed);
    }
    server.assert_unseen();
    assert_eq!(names.asked(), 0);
    let report = place.finish();
    assert_eq!((report.allowed, report.refused, report.refusals.len()), (0, 14, 7));
    let first = &report.refusals[0];
    assert_eq!((first.host.as_str(), first.port, first.count), ("other.test", port, 2));
}

/// A name that is allowed may lead into the open network only, whatever its owner makes it say.
#[test]
fn a_name_leads_to_no_special_address() {
    for (address, kind) in [
        ("127.0.0.1", "loopback"),
        ("127.8.8.8", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("10.1.2.3", "private"),
        ("172.20.0.1", "private"),
        ("192.168.0.1", "private"),
        ("100.64.0.1", "shared"),
        ("169.254.169.254", "metadata"),
        ("169.254.1.1", "link_local"),
        ("224.0.0.251", "multicast"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "mapped"),
        ("::ffff:169.254.169.254", "mapped"),
        ("64:ff9b::7f00:1", "translated"),
        ("64:ff9b::a9fe:a9fe", "translated"),
        ("2002:7f00:1::", "translated"),
        ("fd00::1", "private"),
        ("fd00:ec2::254", "metadata"),
        ("fe80::1", "link_local"),
        ("ff02::1", "multicast"),
    ] {
        let outside = Names::new(&[&[address]]);
        let rules = ["*.test:*", "0.0.0.0/0:*", "[::/0]:*"].map(str::to_owned);
        let place = Place::new(&rules, Options { outside, ..Options::default() });
        let answer = place.ask(b"CONNECT service.test:5 HTTP/1.1\r\n\r\n");
        refused_as(&answer, "403", Reason::SpecialAddress);
        assert!(answer.ends_with(&format!(" is {kind}\n")), "{address}: {answer}");
        // The same for somebody who writes the address.
        let plain = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let answer = place.ask(format!("CONNECT {plain}:5 HTTP/1.1\r\n\r\n").as_bytes());
        refused_as(&answer, "403", Reason::SpecialAddress);
        assert_eq!(place.finish().refused, 2);
    }
}

#[test]
fn the_host_s_own_addresses_must_be_named_alone() {
    struct Own;
    impl guild_sandbox::egress::Outside for Own {
        fn addresses(&self, _: &str) -> std::io::Result<Vec<std::net::IpAddr>> {
            Ok(vec![[8, 8, 8, 8].into()])
        }
        fn is_own(&self, address: std::net::IpAddr) -> bool {
            address == std::net::IpAddr::from([8, 8, 8, 8])
        }
    }
    let rules = ["service.test:*", "8.8.0.0/16:*"].map(str::to_owned);
    let options = Options { outside: std::sync::Arc::new(Own), ..Options::default() };
    let place = Place::new(&rules, options);
    for target in ["service.test:5", "8.8.8.8:5"] {
        let answer = place.ask(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes());
        assert!(answer.ends_with("special_address: 8.8.8.8 is own\n"), "{answer}");
    }
}

/// The name is asked for once; what it says the next time is judged the next time.
#[test]
fn a_name_that_changes_its_mind_gains_nothing() {
    let (port, served) = server(answer_once);
    let names = Names::new(&[&["127.0.0.1"], &["169.254.169.254"]]);
    let options = Options { outside: names.clone(), ..Options::default() };
    let place = Place::for_service(port, options);
    let head = format!("GET http://service.test:{port}/ HTTP/1.0\r\n\r\n");
    assert!(place.ask(head.as_bytes()).ends_with("hello"));
    served.join().unwrap();
    assert_eq!(names.asked(), 1);
    let answer = place.ask(head.as_bytes());
    refused_as(&answer, "403", Reason::SpecialAddress);
    assert!(answer.ends_with("169.254.169.254 is metadata\n"), "{answer}");
    assert_eq!(names.asked(), 2);
}

#[test]
fn of_several_addresses_only_those_are_tried_that_may_be() {
    let (port, served) = server(answer_once);
    let outside = Names::new(&[&["10.0.0.1", "169.254.169.254", "127.0.0.1"]]);
    let place = Place::for_service(port, Options { outside, ..Options::default() });
    let head = format!("GET http://service.test:{port}/ HTTP/1.0\r\n\r\n");
    assert!(place.ask(head.as_bytes()).ends_with("hello"));
    served.join().unwrap();
}

#[test]
fn heads_that_can_be_read_in_two_ways_reach_nobody() {
    let (port, server) = Forbidden::new();
    let place = Place::for_service(port, options());
    let own = format!("service.test:{port}");
    let get = |fields: &str| format!("GET http://{own}/ HTTP/1.1\r\nHost: {own}\r\n{fields}\r\n");
    let heads = [
        get(&format!("Host: {own}\r\n")),
        get("Host: other.test\r\n"),
        get("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"),
        get("Content-Length: 3\r\nContent-Length: 4\r\n"),
        get("Transfer-Encoding: xchunked\r\n"),
        get("Transfer-Encoding : chunked\r\n"),
        get("X: a\nHost: other.test\r\n"),
        get("X: a\rHost: other.test\r\n"),
        get("X: a\r\n folded\r\n"),
        get("Connection: Content-Length\r\nContent-Length: 3\r\n"),
        format!("GET http://{own}/ HTTP/1.1\r\nHost: other.test\r\n\r\n"),
        format!("GET http://{own}/ HTTP/1.1\r\n\r\n"),
        format!("GET http://x@{own}/ HTTP/1.1\r\nHost: {own}\r\n\r\n"),
        format!("GET http://{own}/\r\nX: y HTTP/1.1\r\nHost: {own}\r\n\r\n"),
        format!("GET http://{own}/ HTTP/1.1\nHost: {own}\n\n"),
        format!("GET / HTTP/1.1\r\nHost: {own}\r\n\r\n"),
        format!("GET https://{own}/ HTTP/1.1\r\nHost: {own}\r\n\r\n"),
        format!("CONNECT {own} HTTP/1.1\r\nHost: other.test\r\n\r\n"),
        format!("CONNECT {own} HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
        "CONNECT 2130706433:80 HTTP/1.1\r\n\r\n".to_owned(),
        "\x16\x03\x01\x02\x00\n".to_owned(),
    ];
    for head in &heads {
        refused_as(&place.ask(head.as_bytes()), "400", Reason::BadRequest);
    }
    server.assert_unseen();
    let report = place.finish();
    assert_eq!(report.reasons[&Reason::BadRequest], u64::try_from(heads.len()).unwrap());
    assert_eq!(report.allowed, 0);
}

#[test]
fn a_body_that_lies_is_cut_off() {
    let (port, served) = server(|mut stream| super::place::rest(&mut stream));
    let place = Place::for_service(port, options());
    let head = format!("POST http://service.test:{port}/ HTTP/1.0\r\nContent-Length: 3\r\n\r\nab");
    let mut client = place.client();
    std::io::Write::write_all(&mut client, head.as_bytes()).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(super::place::rest(&mut client), "");
    assert!(served.join().unwrap().ends_with("\r\n\r\nab"));
    let report = place.finish();
    assert_eq!(report.reasons[&Reason::BadRequest], 1);
    assert_eq!(report.refusals[0].detail, "the body ends early");
}
