//! The limit: nothing but keys and signatures.

use guild_protocol::nostr::Event;
use secp256k1::{SECP256K1, XOnlyPublicKey, schnorr};
use testbed::bench::Watch;

struct Signed {
    key: [u8; 32],
    id: [u8; 32],
    sig: Vec<u8>,
}

/// Parses every key and checks every signature, on all cores; how many in a second, and how many hold.
pub(crate) fn run(events: &[Event]) -> Result<(f64, u64), String> {
    let signed = |event: &Event| {
        let sig = guild_protocol::hash::from_hex(&event.sig.hex()).ok_or("a signature")?;
        Ok(Signed { key: *event.pubkey.as_bytes(), id: *event.id.as_bytes(), sig })
    };
    let signed: Vec<Signed> = events.iter().map(signed).collect::<Result<_, String>>()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let watch = Watch::start();
    let checked: u64 = std::thread::scope(|scope| {
        let part = signed.len().div_ceil(threads).max(1);
        let parts: Vec<_> =
            signed.chunks(part).map(|part| scope.spawn(move || check(part))).collect();
        parts.into_iter().map(|part| part.join().map_err(|_| "panicked")).sum::<Result<u64, _>>()
    })?;
    Ok((watch.per_s(checked), checked))
}

fn check(part: &[Signed]) -> u64 {
    let holds = |signed: &&Signed| {
        let key = XOnlyPublicKey::from_slice(&signed.key);
        let sig = schnorr::Signature::from_slice(&signed.sig);
        matches!((key, sig), (Ok(key), Ok(sig)) if SECP256K1.verify_schnorr(&sig, &signed.id, &key).is_ok())
    };
    part.iter().filter(holds).count() as u64
}
