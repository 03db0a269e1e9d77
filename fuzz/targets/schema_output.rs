//! Results under the built-in schemas: the normal form of a result has the same hashes as the result.
#![no_main]

use std::sync::LazyLock;

use guild_protocol::json;
use guild_protocol::schema::{Registry, verification_hash, verification_projection};
use libfuzzer_sys::fuzz_target;

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);

fuzz_target!(|data: &[u8]| {
    for schema in REGISTRY.iter() {
        let Ok(output) = REGISTRY.validate_output_text(&schema.schema_id, data) else { continue };
        let normal = json::to_canonical(output.value()).expect("an output can be written");
        let again = REGISTRY.validate_output_text(&schema.schema_id, &normal);
        let again = again.expect("the normal form is good");
        assert_eq!(again, output);
        assert_eq!(verification_hash(schema, &again), verification_hash(schema, &output));
        let compared = verification_projection(schema, &output);
        assert!(compared.get("provenance").is_none(), "each provider has its own");
    }
});
