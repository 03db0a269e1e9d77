//! A buyer that attacks, with a real sandbox: paths that lead out, links, and addresses of the host.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::net::TcpListener;

use serde_json::json;

use super::shop::Shop;

#[test]
fn no_path_leads_out_and_no_address_of_the_host_is_reached() {
    let shop = Shop::open(&[]);
    let (_, sandbox) = shop.sandbox();
    let balance = shop.get("/v1/billing/balance").1;
    paths(&shop, &sandbox);
    links(&shop, &sandbox);
    addresses(&shop, &sandbox);
    // All of that was use of what is paid: nothing else was charged for it.
    let after = shop.get("/v1/billing/balance").1;
    let minute = shop.get(&sandbox).1["price_micro_usd_per_minute"].as_i64().unwrap();
    let free = |balance: &serde_json::Value| balance["free_micro_usd"].as_i64().unwrap();
    assert_eq!((free(&balance) - free(&after)) % minute, 0);
    shop.close();
}

fn paths(shop: &Shop, sandbox: &str) {
    let long = format!("{}x", "d/".repeat(3_000));
    for path in [
        "../x",
        "..",
        "a/../../x",
        "a/../x",
        "/etc/passwd",
        "//etc/passwd",
        "%2e%2e/x",
        "%2e%2e%2fx",
        "..%2fx",
        "%2fetc%2fpasswd",
        "a%00b",
        "%00",
        "",
        &long,
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let at = format!("{sandbox}/files?path={path}");
            let (status, said) = shop.refused(method, &at, b"x");
            assert_eq!(status, 400, "{method} {path}: {said}");
            assert!(!said.is_empty(), "{method} {path}");
        }
        if !path.is_empty() {
            let (status, said) =
                shop.refused("GET", &format!("{sandbox}/directory?path={path}"), b"");
            assert_eq!(status, 400, "{path}: {said}");
        }
    }
    // A separator of another system is a letter like others, and stays inside.
    let (status, _) = shop.ask("PUT", &format!("{sandbox}/files?path=..%5C..%5Cx"), b"x");
    assert_eq!(status, 200);
    let (_, last) =
        shop.shell(sandbox, r"[ -f '/workspace/..\..\x' ] && [ ! -e /x ] && [ ! -e /workspace/x ]");
    assert_eq!(last["exit_code"], 0, "{last}");
}

fn links(shop: &Shop, sandbox: &str) {
    let line =
        "ln -s /etc etc; ln -s /etc/passwd p; ln -s .. up; mkfifo pipe; ln -s p2 p2; mkdir d";
    let (_, last) = shop.shell(sandbox, line);
    assert_eq!(last["exit_code"], 0, "{last}");
    for path in ["etc/passwd", "p", "up/etc/passwd", "pipe", "p2", "d"] {
        let at = format!("{sandbox}/files?path={path}");
        let (status, said) = shop.refused("GET", &at, b"");
        assert!((400..500).contains(&status) && !said.is_empty(), "{path}: {status} {said}");
    }
    for path in ["etc/hostname", "up/x", "etc/x"] {
        let (status, said) = shop.refused("PUT", &format!("{sandbox}/files?path={path}"), b"x");
        assert!((400..500).contains(&status) && !said.is_empty(), "{path}: {status} {said}");
    }
    // What is written where a link stands replaces the link, not what it points at.
    let (_, _) = shop.ask("PUT", &format!("{sandbox}/files?path=p"), b"mine");
    let (_, last) = shop.shell(sandbox, "! grep -q mine /etc/passwd");
    assert_eq!(last["exit_code"], 0, "{last}");
}

fn addresses(shop: &Shop, sandbox: &str) {
    let own = shop.url.rsplit_once(':').unwrap().1.to_owned();
    // Stands for the database and everything else that listens on the host.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    for (host, port) in [
        ("169.254.169.254", "80"),
        ("127.0.0.1", own.as_str()),
        ("127.0.0.1", port.as_str()),
        ("::1", own.as_str()),
        ("10.0.0.1", "5432"),
        ("192.168.0.1", "80"),
        ("1.1.1.1", "53"),
    ] {
        let line = format!("exec 3<>/dev/tcp/{host}/{port}");
        let exec = shop.exec(sandbox, &json!({"argv": ["bash", "-c", line], "timeout_ms": 5_000}));
        let last = shop.frames(&exec).pop().unwrap();
        assert_ne!(last["exit_code"], 0, "{host}:{port} {last}");
    }
    assert!(other.accept().is_err(), "somebody came");
}
