//! Real programs in real sandboxes.

use std::io::Write;
use std::net::TcpListener;

use guild_sandbox::egress::{self, Allow, Egress, Options, Reason, Report};
use guild_sandbox::{Collected, Sandbox, Spec};

use super::super::support::{printed, python, sandbox, shell};
use super::super::traces::Traces;
use super::place::options;

/// A server that answers everybody, for as long as the tests run.
fn service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("{error}"));
    let port = listener.local_addr().map_or(0, |address| address.port());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut piece = [0; 4096];
            let mut stream = stream;
            let _ = std::io::Read::read(&mut stream, &mut piece);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
    });
    port
}

/// Runs a program with a proxy that lets `service.test` through to this port, and looks whether anything is left.
#[expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]
fn run(spec: Spec, port: u16, options: Options) -> (Collected, Report) {
    let rules = [format!("service.test:{port}"), format!("127.0.0.1:{port}")];
    let mut running = sandbox().start(&egress::through_proxy(spec)).unwrap();
    let listener = running.proxy.take().unwrap();
    let egress = Egress::serve(listener, Allow::parse(&rules).unwrap(), options).unwrap();
    let collected = running.collect().unwrap();
    let report = egress.finish();
    Traces::now().assert_none();
    (collected, report)
}

#[test]
fn python_reaches_what_is_allowed_and_nothing_else() {
    let port = service();
    let code = format!(
        "import urllib.request, urllib.error\n\
         def get(url):\n\
         \x20   try: print(urllib.request.urlopen(url).read().decode())\n\
         \x20   except urllib.error.URLError as error: print(error)\n\
         get('http://service.test:{port}/')\n\
         get('http://other.test:{port}/')\n\
         get('https://other.test/')\n\
         get('http://169.254.169.254/latest/meta-data/')\n\
         import socket\n\
         try: socket.create_connection(('127.0.0.1', {port}))\n\
         except OSError as error: print(error)\n"
    );
    let (collected, report) = run(python(&code), port, options());
    assert_eq!(
        printed(&collected),
        "hello\nHTTP Error 403: Forbidden\n\
         <urlopen error Tunnel connection failed: 403 Forbidden>\nHTTP Error 403: Forbidden\n\
         [Errno 111] Connection refused\n"
    );
    // What was wanted is on record, and no crime.
    assert!(collected.outcome.succeeded(), "{:?}", collected.outcome);
    assert!(collected.outcome.flags.is_empty());
    assert_eq!((report.allowed, report.refused), (1, 3));
    let wanted: Vec<_> =
        report.refusals.iter().map(|r| (r.host.as_str(), r.port, r.reason)).collect();
    let refused = |host, port| (host, port, Reason::NotListed);
    assert_eq!(
        wanted,
        [refused("other.test", port), refused("other.test", 443), refused("169.254.169.254", 80)]
    );
}

/// The greeting of a real library is understood.
#[test]
fn python_s_greeting_is_read() {
    let port = service();
    let code = format!(
        "import ssl, socket\n\
         context = ssl._create_unverified_context()\n\
         for name in ('service.test', 'other.test', None):\n\
         \x20   s = socket.create_connection(('127.0.0.1', 3128))\n\
         \x20   s.sendall(b'CONNECT service.test:{port} HTTP/1.1\\r\\n\\r\\n')\n\
         \x20   assert s.recv(100).startswith(b'HTTP/1.1 200')\n\
         \x20   try: context.wrap_socket(s, server_hostname=name)\n\
         \x20   except ssl.SSLError as error: print(error.reason)\n"
    );
    let options = Options { tls_ports: [port].into(), ..options() };
    let (collected, report) = run(python(&code), port, options);
    let denied = "TLSV1_ALERT_ACCESS_DENIED";
    let text = printed(&collected);
    let lines: Vec<&str> = text.lines().collect();
    // The server speaks no TLS: whose greeting passed is told so.
    assert_eq!(lines, ["WRONG_VERSION_NUMBER", denied, denied]);
    let reasons: Vec<_> = report.refusals.iter().map(|refusal| refusal.reason).collect();
    assert_eq!(reasons, [Reason::OtherServerName, Reason::NoServerName]);
    assert_eq!(report.allowed, 1);
}

/// What is set by whoever starts the program stays.
#[test]
fn the_proxy_is_told_by_the_usual_variables() {
    let mut spec = shell("echo $http_proxy $https_proxy $HTTP_PROXY $HTTPS_PROXY $no_proxy");
    spec.env.insert("no_proxy".to_owned(), "mine".to_owned());
    let proxy = "http://127.0.0.1:3128";
    let (collected, report) = run(spec, 80, options());
    assert_eq!(printed(&collected), format!("{proxy} {proxy} {proxy} {proxy} mine\n"));
    assert_eq!(report, Report::default());
}
