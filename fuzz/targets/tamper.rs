//! The search for a changed byte: it ends on any text, and knows every value of a good one.
#![no_main]

use guild_protocol::json::Doc;
use guild_protocol::tamper::{leaves, path_at};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let found = leaves(data);
    assert!(found.iter().all(|leaf| leaf.span.end <= data.len() && !leaf.span.is_empty()));
    assert!(found.is_sorted_by(|a, b| a.span.end <= b.span.start), "no two values overlap");
    for offset in [0, data.len() / 2, data.len(), usize::MAX] {
        let _ = path_at(data, offset);
    }
    if let Ok(doc) = Doc::parse(data) {
        assert_eq!(found.len(), values(&doc), "every value of a good text is found");
        let alone =
            |leaf: &guild_protocol::tamper::Leaf| Doc::parse(&data[leaf.span.clone()]).is_ok();
        assert!(found.iter().all(alone), "a value is whole");
    }
});

/// How many values are neither arrays nor objects.
fn values(doc: &Doc<'_>) -> usize {
    match doc {
        Doc::Array(items) => items.iter().map(values).sum(),
        Doc::Object(members) => members.iter().map(|(_, value)| values(value)).sum(),
        _ => 1,
    }
}
