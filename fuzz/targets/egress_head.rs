//! The head of a request to the proxy of a sandbox: what goes on is one request, for whom it says.
#![no_main]

use guild_sandbox::egress::{Body, Host, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(Some(end)) = Request::end(data) {
        assert!(end <= data.len() && data[..end].ends_with(b"\r\n"), "an end is an empty line");
        assert!(!data[..end - 2].windows(4).any(|four| four == b"\r\n\r\n"), "and the first one");
    }
    let Ok(request) = Request::parse(data) else { return };
    assert_eq!(Request::end(data), Ok(Some(data.len())), "what is read is one head");
    let (host, port) = request.target();
    assert_ne!(port, 0);
    assert_eq!(Host::parse(&host.to_string()).as_ref(), Some(host), "a host has one form");
    if let Request::Forward { head, body, .. } = &request {
        check_forwarded(head, host, port, *body);
    }
});

/// Made into a request to a proxy again, what the server gets is the same request for the same server.
fn check_forwarded(head: &[u8], host: &Host, port: u16, body: Body) {
    assert_eq!(Request::end(head), Ok(Some(head.len())), "one head comes out");
    let slash = head.iter().position(|byte| *byte == b'/').unwrap_or(0);
    let authority = format!("http://{host}:{port}");
    let again = [&head[..slash], authority.as_bytes(), &head[slash..]].concat();
    match Request::parse(&again) {
        Ok(Request::Forward { head: second, host: h, port: p, body: b }) => {
            assert_eq!((second.as_slice(), &h, p, b), (head, host, port, body));
        }
        // Two have been added.
        Err("there are too many fields") => {}
        other => panic!("{other:?}"),
    }
}
