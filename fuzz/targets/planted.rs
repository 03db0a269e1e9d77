//! A reader with a bug in it. `cargo xtask test` demands that the fuzzer finds it: if it does not, the other targets
//! run blind.
#![no_main]

use guild_protocol::json::{Doc, code};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Takes at least `{"":0,"":0`: chance alone does not get there, but each further byte reaches a new place in
    // the reader, so the fuzzer does.
    if let Err(error) = Doc::parse(data) {
        assert!(error.code() != &code::DUPLICATE_KEY, "the planted bug");
    }
});
