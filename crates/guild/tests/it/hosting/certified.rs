//! A certificate authority of our own, and a server that speaks TLS in front of a node.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::sign::SigningKey;
use tokio_rustls::rustls::{ServerConfig, SignatureScheme};

const SEQUENCE: u8 = 0x30;
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 17];
/// From when until when something is good: for long, and not any more.
pub(super) const GOOD: [&str; 2] = ["200101000000Z", "491231235959Z"];
pub(super) const OVER: [&str; 2] = ["200101000000Z", "210101000000Z"];

/// A value of DER.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    let length: &[u8] = match length {
        [0, short] if short < 128 => &[short],
        [0, long] => &[0x81, long],
        [high, low] => &[0x82, high, low],
    };
    [&[tag], length, &content].concat()
}

fn name(words: &str) -> Vec<u8> {
    let words = der(0x0c, &[words.as_bytes()]);
    let one = der(SEQUENCE, &[&der(6, &[COMMON_NAME]), &words]);
    der(SEQUENCE, &[&der(0x31, &[&one])])
}

fn algorithm() -> Vec<u8> {
    der(SEQUENCE, &[&der(6, &[ED25519])])
}

/// A key of 32 bytes that are all the same.
fn key(seed: u8) -> PrivateKeyDer<'static> {
    let inner = der(4, &[&[seed; 32]]);
    let key = der(SEQUENCE, &[&der(2, &[&[0]]), &algorithm(), &der(4, &[&inner])]);
    PrivatePkcs8KeyDer::from(key).into()
}

/// Certifies.
pub(super) struct Authority(Arc<dyn SigningKey>, u8);

impl Authority {
    pub(super) fn new(seed: u8) -> Authority {
        Authority(ring::sign::any_supported_type(&key(seed)).unwrap(), seed)
    }

    fn name(&self) -> Vec<u8> {
        name(&format!("authority {}", self.1))
    }

    fn certify(
        &self,
        subject: &[u8],
        key: &dyn SigningKey,
        times: [&str; 2],
        more: &[u8],
    ) -> Vec<u8> {
        let [from, until] = times.map(|time| der(0x17, &[time.as_bytes()]));
        let body = der(
            SEQUENCE,
            &[
                &der(0xa0, &[&der(2, &[&[2]])]),
                &der(2, &[&[1]]),
                &algorithm(),
                &self.name(),
                &der(SEQUENCE, &[&from, &until]),
                subject,
                &key.public_key().unwrap(),
                &der(0xa3, &[&der(SEQUENCE, &[more])]),
            ],
        );
        let signer = self.0.choose_scheme(&[SignatureScheme::ED25519]).unwrap();
        let signature = signer.sign(&body).unwrap();
        der(SEQUENCE, &[&body, &algorithm(), &der(3, &[&[0], &signature])])
    }

    /// Its own certificate, as a file holds it.
    pub(super) fn pem(&self) -> String {
        let constraints = der(4, &[&der(SEQUENCE, &[&der(1, &[&[255]])])]);
        let extension = der(SEQUENCE, &[&der(6, &[BASIC_CONSTRAINTS]), &constraints]);
        let own = self.certify(&self.name(), &*self.0, GOOD, &extension);
        let text = STANDARD.encode(own);
        let lines: Vec<&str> =
            (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    /// What a server needs that is called like this.
    pub(super) fn server(&self, called: &str, times: [&str; 2]) -> ServerConfig {
        let names = der(4, &[&der(SEQUENCE, &[&der(0x82, &[called.as_bytes()])])]);
        let extension = der(SEQUENCE, &[&der(6, &[ALTERNATIVE_NAMES]), &names]);
        let own = key(200);
        let signing = ring::sign::any_supported_type(&own).unwrap();
        let certificate = self.certify(&name(called), &*signing, times, &extension);
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.into()], own)
            .unwrap()
    }
}

/// Speaks TLS in front of somebody who does not. Runs until the test ends.
pub(super) struct Front {
    pub(super) port: u16,
    behind: Arc<OnceLock<String>>,
    believed: Arc<AtomicUsize>,
}

impl Front {
    pub(super) fn open(config: ServerConfig) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (behind, believed) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
        let (acceptor, to, count) =
            (TlsAcceptor::from(Arc::new(config)), behind.clone(), believed.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let (acceptor, to, count) = (acceptor.clone(), to.clone(), count.clone());
                thread::spawn(move || carry(client.unwrap(), &acceptor, &to, &count));
            }
        });
        Front { port, behind, believed }
    }

    pub(super) fn stand_before(&self, address: &str) {
        self.behind.set(address.to_owned()).unwrap();
    }

    /// How many have believed its certificate, and could send something.
    pub(super) fn believed(&self) -> usize {
        self.believed.load(Ordering::SeqCst)
    }
}

fn carry(
    client: TcpStream,
    acceptor: &TlsAcceptor,
    behind: &OnceLock<String>,
    believed: &AtomicUsize,
) -> io::Result<()> {
    client.set_nonblocking(true)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut client = acceptor.accept(tokio::net::TcpStream::from_std(client)?).await?;
        believed.fetch_add(1, Ordering::SeqCst);
        let behind = behind.get().map(String::as_str).unwrap_or_default();
        let mut server = tokio::net::TcpStream::connect(behind).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
    })
}
