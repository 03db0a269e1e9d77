use std::collections::BTreeMap;

use guild_protocol::wire_types;

/// A type whose fields change needs a new version: give it one, and add a row. A row is never changed or removed
/// while files of its version may exist.
#[test]
fn no_field_changes_without_a_new_version() {
    let kept: BTreeMap<String, String> =
        serde_json::from_str(include_str!("../../vectors/wire_versions.json")).unwrap();
    let present: BTreeMap<String, String> = wire_types()
        .map(|wire| (wire.schema_version.to_owned(), wire.fingerprint().to_string()))
        .collect();
    assert_eq!(present.len(), wire_types().count(), "a version stands twice");
    assert_eq!(kept, present, "{}", serde_json::to_string_pretty(&present).unwrap());
}

#[test]
fn tables_are_sorted_and_nest_properly() {
    for wire in wire_types() {
        let paths: Vec<_> = wire.fields.iter().map(|field| field.path).collect();
        assert!(paths.is_sorted(), "{}", wire.schema_version);
        for path in &paths {
            if let Some((outer, _)) = path.rsplit_once('.') {
                assert!(
                    paths.contains(&outer),
                    "{}: {path} stands in nothing",
                    wire.schema_version
                );
            }
        }
    }
}

#[test]
fn the_documentation_names_every_field() {
    let documents = [
        ("guild.receipt.v1", include_str!("../../../../docs/formats/receipt.md")),
        ("guild.replay.v1/", include_str!("../../../../docs/formats/replay.md")),
    ];
    for wire in wire_types() {
        for (_, text) in documents.iter().filter(|(v, _)| wire.schema_version.starts_with(v)) {
            for field in wire.fields {
                let name = field.path.rsplit('.').next().unwrap();
                let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                assert!(words.into_iter().any(|word| word == name), "{}", field.path);
            }
        }
    }
}
