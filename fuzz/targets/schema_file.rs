//! Schema documents, and jobs under schemas of strangers: a job's normal form is its own normal form.
#![no_main]

use guild_protocol::schema::{Registry, Schema};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // A schema, a NUL, and a payload.
    let (document, payload) = match data.iter().position(|byte| *byte == 0) {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &b"{}"[..]),
    };
    let Ok(schema) = Schema::parse(document) else { return };
    let text = schema.to_json_pretty().expect("a schema can be written");
    let again = Schema::parse(text.as_bytes()).expect("what was written can be read");
    assert_eq!(again, schema);

    let mut registry = Registry::builtin();
    let Ok(id) = registry.add(schema) else { return };
    if let Ok(job) = registry.validate_input_text(&id, payload) {
        let again = registry.validate_input(&id, job.payload()).expect("the normal form is good");
        assert_eq!(again, job);
    }
    if let Ok(output) = registry.validate_output_text(&id, payload) {
        let again = registry.validate_output(&id, output.value()).expect("the normal form is good");
        assert_eq!(again, output);
    }
});
