//! How fast content becomes a tree of blocks with its CID. The blocks are not stored; all cores hash.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark measures time and prints"
)]

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::thread;

use guild_protocol::content::{Importer, Options};

#[path = "shared/measure.rs"]
mod measure;

fn main() -> ExitCode {
    measure::main(random_bytes, |content| {
        let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let mut importer = Importer::new(Options::default(), |_| Ok(()))?.with_threads(threads);
        importer.push(content)?;
        Ok(importer.finish()?.cid.to_string())
    })
}

fn random_bytes(count: usize) -> Vec<u8> {
    let mut draw = measure::Draw::new();
    let mut bytes: Vec<u8> =
        (0..count.div_ceil(8)).flat_map(|_| draw.next().to_le_bytes()).collect();
    bytes.truncate(count);
    bytes
}
