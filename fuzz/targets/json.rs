//! Canonical JSON: whatever is read can be written, and read again as the same thing.
#![no_main]

use guild_protocol::json::{Doc, code, legacy};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(doc) = Doc::parse(data) {
        assert!(is_json(data), "only JSON is accepted");
        check_canonical(&doc);
    }
    if let Ok(text) = legacy::to_legacy(data) {
        assert!(is_json(&text), "the legacy text is JSON");
    }
});

fn check_canonical(doc: &Doc<'_>) {
    let canonical = doc.to_canonical();
    assert!(is_json(&canonical), "the canonical text is JSON");
    match Doc::parse(&canonical) {
        Ok(again) => assert_eq!(again.to_canonical(), canonical, "canonical stays canonical"),
        // A double such as 1e20 is written without exponent, which reads as an integer out of range.
        Err(error) => assert_eq!(error.code(), &code::INTEGER_RANGE, "{error}"),
    }
}

/// By the judgement of another reader, which nests one level less.
fn is_json(text: &[u8]) -> bool {
    match serde_json::from_slice::<serde_json::Value>(text) {
        Ok(_) => true,
        Err(error) => error.to_string().contains("recursion limit"),
    }
}
