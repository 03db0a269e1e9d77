//! The greeting of TLS: a name is found only in a whole greeting, and it is a name.
#![no_main]

use guild_sandbox::egress::{Hello, Host};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let read = Hello::read(data);
    if let Hello::Name(name) = &read {
        assert_eq!(Host::parse(name), Some(Host::Name(name.clone())), "a name has one form");
    }
    // Bytes that are still to come never change what has been said.
    for end in (0..data.len()).step_by(data.len() / 64 + 1) {
        match Hello::read(&data[..end]) {
            Hello::More => {}
            early => assert_eq!(early, read, "after {end} bytes"),
        }
    }
});
