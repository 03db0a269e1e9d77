//! Invoices of strangers: rubbish is refused, what was signed is read as it was meant, and one changed letter shows.
#![no_main]

use guild_protocol::amount::Msat;
use guild_protocol::bolt11::{Invoice, Network, NewInvoice};
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;
use libfuzzer_sys::fuzz_target;

const NETWORKS: [Network; 4] =
    [Network::Bitcoin, Network::Testnet, Network::Signet, Network::Regtest];

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(invoice) = Invoice::parse(text)
    {
        assert!(invoice.expires_s() >= invoice.created_s);
        assert_eq!(invoice.payee().len(), 66);
        assert_eq!(Invoice::parse(&text.to_ascii_uppercase()).ok(), uppercased(text, invoice));
    }
    signed(data);
});

/// The same, unless its scheme, which has one spelling, was changed too.
fn uppercased(text: &str, invoice: Invoice) -> Option<Invoice> {
    (!text.starts_with("lightning:")).then_some(invoice)
}

fn signed(data: &[u8]) {
    let Some((head, text)) = data.split_first_chunk::<20>() else { return };
    let number = |at: usize| -> u64 {
        let bytes = head[at..at + 4].iter().chain(&[0; 4]);
        u64::from_le_bytes(std::array::from_fn(|n| bytes.clone().nth(n).copied().unwrap_or(0)))
    };
    let new = NewInvoice {
        network: NETWORKS[usize::from(head[0] % 4)],
        amount: (head[1] > 0).then(|| Msat(1 + i64::try_from(number(4)).unwrap_or(0))),
        created_s: number(8),
        expiry_s: number(12),
        payment_hash: Hash::of(text),
        description: String::from_utf8_lossy(text).into_owned(),
    };
    let Ok(key) = SecretKey::from_bytes([7; 32]) else { return };
    let Ok(written) = new.sign(&key) else { return };
    let Ok(read) = Invoice::parse(&written) else { panic!("{new:?} cannot be read: {written}") };
    assert_eq!((read.network, read.amount), (new.network, new.amount));
    assert_eq!((read.created_s, read.expiry_s), (new.created_s, new.expiry_s));
    assert_eq!(read.description, Some(new.description));
    let at = usize::from(head[16]) % written.len();
    let other = if written.as_bytes()[at] == b'q' { 'p' } else { 'q' };
    let mut changed = written.clone();
    changed.replace_range(at..=at, &other.to_string());
    assert!(Invoice::parse(&changed).is_err(), "{changed} is not what was signed");
}
