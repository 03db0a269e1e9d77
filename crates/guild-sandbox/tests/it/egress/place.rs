//! A proxy, a server behind it, and a client.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use guild_sandbox::egress::{Allow, Egress, Options, Outside, Report};

/// Names that lead to these addresses: each question takes the next answer, the last one stays.
#[derive(Default)]
pub(super) struct Names {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    own: Vec<IpAddr>,
    pub(super) asked: AtomicUsize,
}

impl Names {
    pub(super) fn new(answers: &[&[&str]]) -> Arc<Names> {
        let address = |text: &&str| text.parse().unwrap();
        let answers = answers.iter().map(|answer| answer.iter().map(address).collect());
        Arc::new(Names { answers: Mutex::new(answers.collect()), ..Names::default() })
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Outside for Names {
    fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        match answers.len() {
            0 => Err(io::Error::other("nobody knows it")),
            1 => Ok(answers[0].clone()),
            _ => Ok(answers.pop_front().unwrap()),
        }
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.own.contains(&address)
    }
}

/// Options for a test: short waits, and names that lead here.
pub(super) fn options() -> Options {
    Options { outside: Names::new(&[&["127.0.0.1"]]), ..Options::default() }
}

/// A proxy on a port of its own.
pub(super) struct Place {
    pub(super) egress: Egress,
    pub(super) proxy: std::net::SocketAddr,
}

impl Place {
    pub(super) fn new(rules: &[String], options: Options) -> Place {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let egress = Egress::serve(listener, Allow::parse(rules).unwrap(), options).unwrap();
        Place { egress, proxy }
    }

    /// A proxy that lets `service.test` through to a server here.
    pub(super) fn for_service(port: u16, options: Options) -> Place {
        Place::new(&[format!("service.test:{port}"), format!("127.0.0.1:{port}")], options)
    }

    pub(super) fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.proxy).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client
    }

    /// Says something and reads until the end. The other side may be gone before all is said.
    pub(super) fn ask(&self, bytes: &[u8]) -> String {
        let mut client = self.client();
        let _ = client.write_all(bytes);
        rest(&mut client)
    }

    /// Opens a tunnel.
    pub(super) fn tunnel(&self, target: &str) -> TcpStream {
        let mut client = self.client();
        write!(client, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
        let mut answer = [0; 19];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK\r\n\r\n");
        client
    }

    pub(super) fn finish(self) -> Report {
        self.egress.finish()
    }
}

/// All that comes until the end; a connection that breaks has ended.
pub(super) fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => bytes.extend(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A server for one connection: hands it to a function.
pub(super) fn server<T: Send + 'static>(
    serve: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (u16, std::thread::JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, std::thread::spawn(move || serve(listener.accept().unwrap().0)))
}

/// A server that nobody must reach.
pub(super) struct Forbidden(TcpListener);

impl Forbidden {
    pub(super) fn new() -> (u16, Forbidden) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        (listener.local_addr().unwrap().port(), Forbidden(listener))
    }

    pub(super) fn assert_unseen(&self) {
        assert_eq!(self.0.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}

/// Reads a head, answers, and gives what was read.
pub(super) fn answer_once(mut stream: TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    let _ = stream.shutdown(Shutdown::Write);
    String::from_utf8(head).unwrap()
}
