//! Lightning invoices (BOLT 11): read, checked, and written.
//!
//! An invoice says how much is asked, on which network, by whom and until when, and is signed by whoever asks. Nothing
//! of it may be believed before all of it was checked: a text that reads well can still be an invoice of another
//! network, of a larger amount, or an old one.

use std::fmt;

use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use secp256k1::{Message, PublicKey as PayeeKey, SECP256K1};

use crate::amount::Msat;
use crate::hash::{Hash, shorten, to_hex};
use crate::identity::SecretKey;
use crate::{Error, Result};

mod bech32;

/// The codes of this module.
pub mod code {
    crate::codes! {
        MALFORMED = "bolt11.malformed", Invalid,
            "A text is not a Lightning invoice: its letters, its checksum or its fields are wrong.",
            "Ask for a new invoice; do not pay this one.";
        AMOUNT = "bolt11.amount_malformed", Invalid,
            "The amount of a Lightning invoice is no amount, or is not a whole number of millisatoshi.",
            "Ask for a new invoice; do not pay this one.";
        SIGNATURE = "bolt11.signature_wrong", Denied,
            "A Lightning invoice is not signed by the key that it names.",
            "Do not pay it: somebody changed it, or made it up.";
    }
}

/// The longest invoice that is read.
pub const MAX_BYTES: usize = 4_096;
/// How long an invoice that does not say so can be paid.
pub const DEFAULT_EXPIRY_S: u64 = 3_600;

/// Where an invoice can be paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Network {
    /// Bitcoin itself.
    Bitcoin,
    /// The test network.
    Testnet,
    /// The signed test network.
    Signet,
    /// One's own machine.
    Regtest,
}

impl Network {
    /// All of them. Of two prefixes that begin alike the longer stands first.
    const ALL: [Network; 4] =
        [Network::Regtest, Network::Signet, Network::Bitcoin, Network::Testnet];

    fn prefix(self) -> &'static str {
        match self {
            Network::Bitcoin => "bc",
            Network::Testnet => "tb",
            Network::Signet => "tbs",
            Network::Regtest => "bcrt",
        }
    }

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Network::Bitcoin => "bitcoin",
            Network::Testnet => "testnet",
            Network::Signet => "signet",
            Network::Regtest => "regtest",
        }
    }

    /// The network of that name.
    ///
    /// ```
    /// use guild_protocol::bolt11::Network;
    /// assert_eq!(Network::named("signet"), Some(Network::Signet));
    /// ```
    pub fn named(name: &str) -> Option<Network> {
        Network::ALL.into_iter().find(|network| network.name() == name)
    }
}

/// An invoice that was signed by its payee.
#[derive(Clone, PartialEq, Eq)]
pub struct Invoice {
    /// Where it can be paid.
    pub network: Network,
    /// How much is asked; none leaves it to whoever pays.
    pub amount: Option<Msat>,
    /// When it was made, in Unix seconds.
    pub created_s: u64,
    /// How long it can be paid.
    pub expiry_s: u64,
    /// The hash whose preimage proves the payment.
    pub payment_hash: Hash,
    /// What it is for, if it says so.
    pub description: Option<String>,
    payee: [u8; 33],
}

impl Invoice {
    /// Reads an invoice: its checksum, its fields and its signature.
    ///
    /// ```
    /// use guild_protocol::bolt11::{Invoice, Network, NewInvoice};
    /// use guild_protocol::{amount::Msat, hash::Hash, identity::SecretKey};
    /// let key: SecretKey = format!("{:064x}", 7).parse().unwrap();
    /// let new = NewInvoice {
    ///     network: Network::Regtest,
    ///     amount: Some(Msat(1_000)),
    ///     created_s: 1_700_000_000,
    ///     expiry_s: 60,
    ///     payment_hash: Hash::of(b"secret"),
    ///     description: "a test".to_owned(),
    /// };
    /// let invoice = Invoice::parse(&new.sign(&key).unwrap()).unwrap();
    /// assert_eq!((invoice.amount, invoice.expires_s()), (Some(Msat(1_000)), 1_700_000_060));
    /// ```
    pub fn parse(text: &str) -> Result<Invoice> {
        let text = text.strip_prefix("lightning:").unwrap_or(text);
        if text.len() > MAX_BYTES {
            return Err(malformed(format!("{} bytes are more than {MAX_BYTES}", text.len())));
        }
        let (human, words) = bech32::decode(text).ok_or_else(|| {
            malformed(format!("{:?} is not written as invoices are", shorten(text)))
        })?;
        let (network, amount) = terms(&human)?;
        let signed = words.len().checked_sub(SIGNATURE_WORDS);
        let (data, signature) = signed
            .and_then(|at| words.split_at_checked(at))
            .ok_or_else(|| malformed("there is no signature"))?;
        let (time, fields) =
            data.split_at_checked(TIME_WORDS).ok_or_else(|| malformed("there is no time"))?;
        let fields = Fields::read(fields)?;
        let payee = payee(&human, data, signature, fields.payee)?;
        Ok(Invoice {
            network,
            amount,
            created_s: bech32::number(time),
            expiry_s: fields.expiry_s.unwrap_or(DEFAULT_EXPIRY_S),
            payment_hash: fields.payment_hash.ok_or_else(|| malformed("no payment hash"))?,
            description: fields.description,
            payee,
        })
    }

    /// Until when it can be paid, in Unix seconds.
    pub fn expires_s(&self) -> u64 {
        self.created_s.saturating_add(self.expiry_s)
    }

    /// The key of the node that is paid, as 66 hex digits.
    pub fn payee(&self) -> String {
        to_hex(&self.payee)
    }
}

impl fmt::Debug for Invoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What it is for is a stranger's text, and belongs into no log.
        let Invoice { network, amount, created_s, expiry_s, .. } = self;
        write!(f, "Invoice({} {amount:?}, at {created_s}, for {expiry_s} s)", network.name())
    }
}

const SIGNATURE_WORDS: usize = 104;
const TIME_WORDS: usize = 7;
/// A hash in groups of five bits.
const HASH_WORDS: usize = 52;
const PAYEE_WORDS: usize = 53;

fn malformed(message: impl Into<String>) -> Error {
    Error::new(&code::MALFORMED, message)
}

/// Network and amount, which stand before the data.
fn terms(human: &str) -> Result<(Network, Option<Msat>)> {
    let rest = human.strip_prefix("ln").ok_or_else(|| malformed("it does not begin with ln"))?;
    let fits = |network: &Network| {
        let rest = rest.strip_prefix(network.prefix())?;
        let amount = rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit());
        amount.then_some((*network, rest))
    };
    let (network, written) = Network::ALL
        .iter()
        .find_map(fits)
        .ok_or_else(|| malformed(format!("{:?} is no network", shorten(rest))))?;
    match written {
        "" => Ok((network, None)),
        written => Ok((network, Some(msat(written)?))),
    }
}

/// A number of bitcoin, or of a thousandth (m), a millionth (u), a billionth (n) or a trillionth (p) of one.
fn msat(written: &str) -> Result<Msat> {
    const PICO_PER_MSAT: u128 = 10;
    let wrong =
        |why: &str| Error::new(&code::AMOUNT, format!("the amount {:?} {why}", shorten(written)));
    let (digits, pico) = match written.strip_suffix(|c: char| !c.is_ascii_digit()) {
        None => (written, 1_000_000_000_000),
        Some(digits) => match written.chars().next_back() {
            Some('m') => (digits, 1_000_000_000),
            Some('u') => (digits, 1_000_000),
            Some('n') => (digits, 1_000),
            Some('p') => (digits, 1),
            _ => return Err(wrong("has an unknown unit")),
        },
    };
    if digits.starts_with('0') || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong("is not a positive whole number"));
    }
    let number: u128 = digits.parse().map_err(|_| wrong("is no number"))?;
    let total: u128 = number.checked_mul(pico).ok_or_else(|| wrong("is too large"))?;
    if total.checked_rem(PICO_PER_MSAT) != Some(0) {
        return Err(wrong("is not a whole number of millisatoshi"));
    }
    let units = total.checked_div(PICO_PER_MSAT).and_then(|units| i64::try_from(units).ok());
    units.map(Msat).ok_or_else(|| wrong("is too large"))
}

/// The fields that are used here. What is unknown, or has another length than its kind, is passed over, as the
/// specification wants it.
#[derive(Default)]
struct Fields {
    payment_hash: Option<Hash>,
    description: Option<String>,
    expiry_s: Option<u64>,
    payee: Option<[u8; 33]>,
}

impl Fields {
    fn read(mut words: &[u8]) -> Result<Fields> {
        let mut fields = Fields::default();
        while let Some((head, rest)) = words.split_at_checked(3) {
            let (kind, length) = head.split_at_checked(1).unwrap_or_default();
            let length = usize::try_from(bech32::number(length)).unwrap_or(usize::MAX);
            let (data, rest) = rest
                .split_at_checked(length)
                .ok_or_else(|| malformed("a field is longer than the invoice"))?;
            fields.take(kind.first().copied().unwrap_or(0), data)?;
            words = rest;
        }
        if words.is_empty() { Ok(fields) } else { Err(malformed("something is left over")) }
    }

    /// Of each kind the first counts.
    fn take(&mut self, kind: u8, data: &[u8]) -> Result<()> {
        const PAYMENT_HASH: u8 = 1;
        const EXPIRY: u8 = 6;
        const DESCRIPTION: u8 = 13;
        const PAYEE: u8 = 19;
        let bytes = || bech32::to_bytes(data);
        match kind {
            PAYMENT_HASH if data.len() == HASH_WORDS && self.payment_hash.is_none() => {
                self.payment_hash = bytes().try_into().ok().map(Hash::from_bytes);
            }
            EXPIRY if self.expiry_s.is_none() => {
                // More bits than a number has are no time that anybody waits.
                self.expiry_s = Some(if data.len() > 12 { u64::MAX } else { bech32::number(data) });
            }
            DESCRIPTION if self.description.is_none() => {
                let text = String::from_utf8(bytes());
                self.description = Some(text.map_err(|_| malformed("a text is not UTF-8"))?);
            }
            PAYEE if data.len() == PAYEE_WORDS && self.payee.is_none() => {
                self.payee = bytes().try_into().ok();
            }
            _ => {}
        }
        Ok(())
    }
}

/// What is signed: everything that stands before the signature.
fn digest(human: &str, data: &[u8]) -> Message {
    let mut signed = human.as_bytes().to_vec();
    signed.extend(bech32::to_padded_bytes(data));
    Message::from_digest(*Hash::of(&signed).as_bytes())
}

/// Whoever signed it; if it names its payee, that one must have.
fn payee(human: &str, data: &[u8], signature: &[u8], named: Option<[u8; 33]>) -> Result<[u8; 33]> {
    let wrong = |why: &str| Error::new(&code::SIGNATURE, why);
    let bytes = bech32::to_bytes(signature);
    let (rs, which) = bytes.split_at_checked(64).unwrap_or_default();
    let which = which.first().and_then(|which| RecoveryId::try_from(i32::from(*which)).ok());
    let which = which.ok_or_else(|| wrong("the signature names no key"))?;
    let signature = RecoverableSignature::from_compact(rs, which)
        .map_err(|_| wrong("the signature is no point of the curve"))?;
    let message = digest(human, data);
    let Some(named) = named else {
        let key = SECP256K1.recover_ecdsa(&message, &signature);
        return key.map(|key| key.serialize()).map_err(|_| wrong("no key fits the signature"));
    };
    let key = PayeeKey::from_slice(&named).map_err(|_| wrong("the payee is no key"))?;
    let mut standard = signature.to_standard();
    standard.normalize_s();
    SECP256K1
        .verify_ecdsa(&message, &standard, &key)
        .map_err(|_| wrong("it is not signed by the payee that it names"))?;
    Ok(named)
}

/// What an invoice shall say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInvoice {
    /// Where it can be paid.
    pub network: Network,
    /// How much is asked; none leaves it to whoever pays.
    pub amount: Option<Msat>,
    /// When it was made, in Unix seconds.
    pub created_s: u64,
    /// How long it can be paid.
    pub expiry_s: u64,
    /// The hash whose preimage proves the payment.
    pub payment_hash: Hash,
    /// What it is for.
    pub description: String,
}

impl NewInvoice {
    /// The invoice, signed by this key.
    pub fn sign(&self, key: &SecretKey) -> Result<String> {
        const TEXT_MAX_BYTES: usize = 639;
        if self.description.len() > TEXT_MAX_BYTES || self.amount.is_some_and(|msat| msat.0 < 1) {
            return Err(malformed("an invoice asks for something, in at most 639 bytes of text"));
        }
        let amount = self.amount.map(|msat| format!("{}0p", msat.0)).unwrap_or_default();
        let human = format!("ln{}{amount}", self.network.prefix());
        let mut data = bech32::words_of(self.created_s, TIME_WORDS);
        field(&mut data, 1, bech32::from_bytes(self.payment_hash.as_bytes()));
        field(&mut data, 13, bech32::from_bytes(self.description.as_bytes()));
        field(&mut data, 6, bech32::words_of(self.expiry_s, 12));
        let key = secp256k1::SecretKey::from_slice(&key.to_bytes())
            .map_err(|_| malformed("the key is no key"))?;
        let signature = SECP256K1.sign_ecdsa_recoverable(&digest(&human, &data), &key);
        let (which, rs) = signature.serialize_compact();
        let which = u8::try_from(i32::from(which)).unwrap_or(0);
        data.extend(bech32::from_bytes(&[&rs[..], &[which]].concat()));
        Ok(bech32::encode(&human, &data))
    }
}

fn field(data: &mut Vec<u8>, kind: u8, words: Vec<u8>) {
    data.push(kind);
    data.extend(bech32::words_of(u64::try_from(words.len()).unwrap_or(0), 2));
    data.extend(words);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // The examples of the specification.
    const DONATION: &str = "lnbc1pvjluezsp5zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zygspp5qqqsyqcyq5rqwzqfq\
                            qqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqypqdpl2pkx2ctnv5sxxmmwwd5kgetjypeh2ursdae8g6twvus8g6rfw\
                            vs8qun0dfjkxaq9qrsgq357wnc5r2ueh7ck6q93dj32dlqnls087fxdwk8qakdyafkq3yap9us6v52vjjsrvywa\
                            6rt52cm9r9zqt8r2t7mlcwspyetp5h2tztugp9lfyql";
    const COFFEE: &str = "lnbc2500u1pvjluezsp5zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zygspp5qqqsyqcyq5rqwz\
                          qfqqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqypqdq5xysxxatsyp3k7enxv4jsxqzpu9qrsgquk0rl77nj30yxdy8j\
                          9vdx85fkpmdla2087ne0xh8nhedh8w27kyke0lp53ut353s06fv3qfegext0eh0ymjpf39tuven09sam30g4vgpfn\
                          a3rh";
    const HASHED: &str = "lnbc20m1pvjluezsp5zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zygspp5qqqsyqcyq5rqwzqf\
                          qqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqypqhp58yjmdan79s6qqdhdzgynm4zwqd5d7xmw5fk98klysy043l2ahr\
                          qs9qrsgq7ea976txfraylvgzuxs8kgcw23ezlrszfnh8r6qtfpr6cxga50aj6txm9rxrydzd06dfeawfk6swupvz4\
                          erwnyutnjq7x39ymw6j38gp7ynn44";
    const PAYEE: &str = "03e7156ae33b0a208d0744199163177e909e80176e55d97a2f221ede0f934dd9ad";

    fn key(n: u8) -> SecretKey {
        format!("{n:064x}").parse().unwrap()
    }

    fn new(amount: Option<i64>) -> NewInvoice {
        NewInvoice {
            network: Network::Signet,
            amount: amount.map(Msat),
            created_s: 1_800_000_000,
            expiry_s: 600,
            payment_hash: Hash::of(b"preimage"),
            description: "work".to_owned(),
        }
    }

    #[test]
    fn the_examples_of_the_specification_are_read() {
        let hash = "0001020304050607080900010203040506070809000102030405060708090102";
        let told = |text: &str| {
            let read = Invoice::parse(text).unwrap();
            assert_eq!((read.payee().as_str(), read.created_s), (PAYEE, 1_496_314_658));
            assert_eq!((read.payment_hash.hex().as_str(), read.network), (hash, Network::Bitcoin));
            (read.amount.map(|msat| msat.0), read.expiry_s, read.description)
        };
        let words = "Please consider supporting this project".to_owned();
        assert_eq!(told(DONATION), (None, 3_600, Some(words)));
        assert_eq!(told(COFFEE), (Some(250_000_000), 60, Some("1 cup coffee".to_owned())));
        assert_eq!(told(HASHED), (Some(2_000_000_000), 3_600, None));
        assert_eq!(told(&COFFEE.to_uppercase()), told(&format!("lightning:{COFFEE}")));
    }

    #[test]
    fn what_was_changed_is_refused() {
        let code = |text: &str| Invoice::parse(text).unwrap_err().code().name;
        let last = format!("{}q", &COFFEE[..COFFEE.len() - 1]);
        let mixed = COFFEE.replacen("lnbc", "LNBC", 1);
        let long = "q".repeat(MAX_BYTES + 1);
        for text in [last.as_str(), &mixed, "", "lnbc1", "lnbc", "lnxx1", &long] {
            assert_eq!(code(text), "bolt11.malformed", "{text}");
        }
        // Whoever makes a checksum of its own still has no signature of the payee: another key is found, or none.
        let (human, mut words) = bech32::decode(COFFEE).unwrap();
        let more = human.replace("2500u", "9500u");
        let forged = bech32::encode(&more, &words);
        assert!(Invoice::parse(&forged).map_or(true, |read| read.payee() != PAYEE));
        words.truncate(50);
        assert_eq!(code(&bech32::encode(&human, &words)), "bolt11.malformed");
        for amount in ["2500x", "01u", "1p", "0", "99999999999999999999999999999999999999999"] {
            let text = bech32::encode(&format!("lnbc{amount}"), &bech32::decode(COFFEE).unwrap().1);
            assert_eq!(code(&text), "bolt11.amount_malformed", "{amount}");
        }
    }

    #[test]
    fn a_payee_that_is_named_must_have_signed() {
        let (human, words) = bech32::decode(&new(Some(5)).sign(&key(3)).unwrap()).unwrap();
        let mut data = words[..words.len() - SIGNATURE_WORDS].to_vec();
        let other = secp256k1::SecretKey::from_slice(&key(4).to_bytes()).unwrap();
        let named = PayeeKey::from_secret_key(SECP256K1, &other).serialize();
        field(&mut data, 19, bech32::from_bytes(&named));
        let signed = |by: u8| {
            let by = secp256k1::SecretKey::from_slice(&key(by).to_bytes()).unwrap();
            let made = SECP256K1.sign_ecdsa_recoverable(&digest(&human, &data), &by);
            let (which, rs) = made.serialize_compact();
            let which = u8::try_from(i32::from(which)).unwrap();
            let signature = bech32::from_bytes(&[&rs[..], &[which]].concat());
            Invoice::parse(&bech32::encode(&human, &[data.clone(), signature].concat()))
        };
        assert_eq!(signed(4).unwrap().payee(), to_hex(&named));
        assert_eq!(signed(3).unwrap_err().code().name, "bolt11.signature_wrong");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(msat in 1..i64::MAX / 10, network in 0_usize..4, text in ".{0,40}") {
            let new = NewInvoice {
                network: Network::ALL[network],
                description: text.clone(),
                ..new(Some(msat))
            };
            let read = Invoice::parse(&new.sign(&key(9)).unwrap()).unwrap();
            prop_assert_eq!((read.amount, read.network), (Some(Msat(msat)), new.network));
            prop_assert_eq!(read.expires_s(), 1_800_000_600);
            prop_assert_eq!(read.description, Some(text));
        }

        #[test]
        fn nothing_panics(text in "ln(bc|tb|bcrt|tbs)[0-9]{0,3}[munp]?1[a-z0-9]{0,200}") {
            let _ = Invoice::parse(&text);
        }
    }
}
