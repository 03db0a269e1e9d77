//! The protocol that all benchmarks share, also the programs that they are compared with:
//! `--generate FILE --bytes N` writes the input, `--input FILE --seconds N` measures and prints one line of JSON.

use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs};

const USAGE: &str = "give --generate FILE --bytes N, or --input FILE --seconds N";

/// Draws the same numbers on every machine (xorshift64*).
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new() -> Draw {
        Draw(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Runs a benchmark: `generate` makes about so many bytes of input, `round` turns the input into its result.
pub(crate) fn main(
    generate: fn(usize) -> Vec<u8>,
    round: fn(&[u8]) -> Result<String, guild_protocol::Error>,
) -> ExitCode {
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        // So a test run over all targets builds it and passes by.
        [] => {
            eprintln!("{USAGE}");
            Ok(())
        }
        ["--generate", file, "--bytes", bytes] => write_input(generate, file, bytes),
        ["--input", file, "--seconds", seconds] => measure(round, file, seconds),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn write_input(generate: fn(usize) -> Vec<u8>, file: &str, bytes: &str) -> Result<(), String> {
    let bytes = bytes.parse().map_err(|e| format!("--bytes {bytes}: {e}"))?;
    fs::write(file, generate(bytes)).map_err(|e| format!("{file}: {e}"))
}

fn measure(
    round: fn(&[u8]) -> Result<String, guild_protocol::Error>,
    file: &str,
    seconds: &str,
) -> Result<(), String> {
    let wanted = seconds.parse().map_err(|e| format!("--seconds {seconds}: {e}"))?;
    let wanted = Duration::try_from_secs_f64(wanted).map_err(|e| format!("--seconds: {e}"))?;
    let input = fs::read(file).map_err(|e| format!("{file}: {e}"))?;
    let run = || round(&input).map_err(|e| format!("{file}: {e}"));
    // Not counted: it warms the caches up.
    let result = run()?;
    let start = Instant::now();
    let mut rounds = 0u32;
    while rounds == 0 || start.elapsed() < wanted {
        if run()? != result {
            return Err(format!("{file}: two rounds gave two results"));
        }
        rounds += 1;
    }
    let megabytes = input.len() as f64 * f64::from(rounds) / 1e6;
    let mb_per_s = megabytes / start.elapsed().as_secs_f64();
    println!(
        r#"{{"name":"guild","per_s":{mb_per_s:.1},"bytes":{},"rounds":{rounds},"result":"{result}"}}"#,
        input.len()
    );
    Ok(())
}
