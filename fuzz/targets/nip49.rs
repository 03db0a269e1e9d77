//! Encrypted keys: only the passphrase opens one, and a changed one opens to nothing else.
#![no_main]

use guild_fuzz::{edits, fixed};
use guild_protocol::identity::nip49;
use libfuzzer_sys::fuzz_target;

/// Higher costs only take time.
const MAX_LOG_N: u8 = 4;
const PASSPHRASE: &str = "nostr";

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        check_text(text);
    }
    // The second byte is the cost.
    if data.get(1).is_none_or(|log_n| !(MAX_LOG_N + 1..=nip49::MAX_LOG_N).contains(log_n)) {
        check_text(&bech32("ncryptsec", data));
    }
    let (changes, passphrase) = data.split_at_checked(8).unwrap_or_default();
    check_changed(changes, &String::from_utf8_lossy(passphrase));
});

fn check_text(text: &str) {
    let Ok(key) = nip49::decrypt(text, PASSPHRASE) else { return };
    let encrypted = nip49::encrypt(&key, PASSPHRASE, &fixed::Bytes(&[7]), 1);
    let again = nip49::decrypt(&encrypted.expect("a key can be encrypted"), PASSPHRASE);
    assert_eq!(again.map(|key| key.to_bytes()), Ok(key.to_bytes()));
    assert!(nip49::decrypt(text, "another").is_err(), "another passphrase opens it");
}

fn check_changed(changes: &[u8], passphrase: &str) {
    let key = fixed::buyer();
    let log_n = 1 + changes.first().unwrap_or(&0) % MAX_LOG_N;
    let text = nip49::encrypt(&key, passphrase, &fixed::Bytes(changes), log_n);
    let text = text.expect("a key can be encrypted under any passphrase");
    let opened = nip49::decrypt(&text, passphrase).map(|key| key.to_bytes());
    assert_eq!(opened, Ok(key.to_bytes()));
    if let Ok(changed) = String::from_utf8(edits::edited(text.as_bytes(), changes))
        && let Ok(opened) = nip49::decrypt(&changed, passphrase)
    {
        assert_eq!(opened.to_bytes(), key.to_bytes(), "a changed text opens to another key");
    }
}

/// The text form of bytes with a checksum that fits, which the fuzzer would not find (BIP-173).
fn bech32(name: &str, bytes: &[u8]) -> String {
    const DIGITS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
    let mut digits: Vec<u8> = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            digits.push((bits >> count & 31) as u8);
        }
        bits &= (1 << count) - 1;
    }
    if count > 0 {
        digits.push((bits << (5 - count) & 31) as u8);
    }
    let checked = name.bytes().map(|b| b >> 5).chain([0]).chain(name.bytes().map(|b| b & 31));
    let checksum = checked.chain(digits.iter().copied()).chain([0; 6]).fold(1u32, |sum, digit| {
        let mixed = (sum & 0x1ff_ffff) << 5 ^ u32::from(digit);
        [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3]
            .iter()
            .enumerate()
            .fold(mixed, |mixed, (i, part)| {
                mixed ^ if sum >> (25 + i) & 1 == 1 { *part } else { 0 }
            })
    }) ^ 1;
    digits.extend((0..6).rev().map(|i| (checksum >> (5 * i) & 31) as u8));
    let text: String = digits.iter().map(|digit| char::from(DIGITS[usize::from(*digit)])).collect();
    format!("{name}1{text}")
}
