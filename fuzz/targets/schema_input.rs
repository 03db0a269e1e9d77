//! Payloads under the built-in schemas: a sparse request and its normal form are one job.
#![no_main]

use std::sync::LazyLock;

use guild_protocol::json;
use guild_protocol::schema::Registry;
use libfuzzer_sys::fuzz_target;

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);

fuzz_target!(|data: &[u8]| {
    for schema in REGISTRY.iter() {
        let Ok(job) = REGISTRY.validate_input_text(&schema.schema_id, data) else { continue };
        let normal = json::to_canonical(job.payload()).expect("a payload can be written");
        let again = REGISTRY.validate_input_text(&schema.schema_id, &normal);
        assert_eq!(again.expect("the normal form is good"), job);
        let without_id = json::hash_text(&normal).expect("a payload can be hashed");
        assert_eq!(job.payload_hash(), without_id);
        assert_ne!(job.job_hash(), without_id, "the schema is part of the job");
    }
});
