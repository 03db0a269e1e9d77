//! Receipts: what holds is exactly what its signer would write again.
#![no_main]

use guild_fuzz::fixed;
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::id::ReceiptId;
use guild_protocol::json::{self, Doc};
use guild_protocol::receipt::{Receipt, explain, verify};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

fuzz_target!(|data: &[u8]| {
    check(data);
    if let Ok(Value::Object(stated)) = serde_json::from_slice(data)
        && let Some(sealed) = sealed(stated)
    {
        check(&sealed);
    }
});

fn check(bytes: &[u8]) {
    let holds = verify(bytes).is_ok_and(|verification| verification.holds());
    let read = Receipt::from_bytes(bytes);
    assert_eq!(holds, read.is_ok(), "what holds can be read: {read:?}");
    let Ok(receipt) = read else { return };
    assert_eq!(receipt.as_bytes(), bytes);
    assert!(explain(bytes).is_ok_and(|verification| verification.holds()));
    let canonical = Doc::parse(bytes).map(|doc| doc.to_canonical());
    assert_eq!(canonical.as_deref(), Ok(bytes));
    if receipt.stated().buyer_id == fixed::buyer().public_key() {
        let again = receipt.stated().sign(&fixed::buyer());
        assert_eq!(
            again.as_ref().map(Receipt::as_bytes),
            Ok(bytes),
            "signed again, it is the same"
        );
    }
}

/// The fuzzer's statement with the id, the digest and the signature that it would not find.
fn sealed(mut stated: Map<String, Value>) -> Option<Vec<u8>> {
    let key = fixed::buyer();
    for field in ["receipt_id", "digest", "signature"] {
        stated.remove(field);
    }
    stated.insert("buyer_id".to_owned(), key.public_key().npub().into());
    let receipt_id = ReceiptId::of(&json::hash(&stated).ok()?);
    stated.insert("receipt_id".to_owned(), receipt_id.as_str().into());
    let digest: Hash = json::hash(&stated).ok()?;
    let signature = key.sign_digest(digest.as_bytes()).ok()?;
    stated.insert("digest".to_owned(), digest.to_string().into());
    let public_key = key.public_key().hex();
    let signature =
        json!({ "public_key": public_key, "scheme": "bip340", "value": signature.hex() });
    stated.insert("signature".to_owned(), signature);
    json::to_canonical(&stated).ok()
}
