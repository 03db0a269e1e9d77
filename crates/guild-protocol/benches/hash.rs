//! How fast a JSON text becomes the hash over its canonical form.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark measures time and prints"
)]

use std::fmt::Write;
use std::process::ExitCode;

use guild_protocol::json;

#[path = "shared/measure.rs"]
mod measure;

use measure::Draw;

fn main() -> ExitCode {
    measure::main(document, |text| Ok(json::hash_text(text)?.to_string()))
}

/// Records of finished requests, in the proportions of real ones: mostly prose and log lines, some numbers, keys in
/// the order in which programs write them, and indented as people read them.
fn document(bytes: usize) -> Vec<u8> {
    let mut draw = Draw::new();
    let mut out = String::from("{\n  \"schema_version\": 1,\n  \"records\": [");
    let mut separator = "\n";
    while out.len() < bytes {
        out.push_str(separator);
        record(&mut draw, &mut out);
        separator = ",\n";
    }
    out.push_str("\n  ]\n}\n");
    out.into_bytes()
}

fn below(draw: &mut Draw, end: u64) -> u64 {
    (draw.next() >> 11) % end
}

fn record(draw: &mut Draw, out: &mut String) {
    let request = format!("{:016x}{:016x}", draw.next(), draw.next());
    let (tokens, cost) = (below(draw, 200_000), below(draw, 9_000_000_000));
    // Up to six digits, as scores and prices have.
    let (score, seconds) = (below(draw, 1_000_000), below(draw, 90_000));
    let done = below(draw, 4) > 0;
    write!(
        out,
        "    {{\n      \"request_id\": \"0x{request}\",\n      \"status\": \"{}\",\n      \
         \"metrics\": {{\"tokens\": {tokens}, \"cost_micro_usd\": {cost}, \"score\": 0.{score:06}, \
         \"seconds\": {}.{:03}, \"drift\": {}e-9, \"retries\": null}},\n      \"tags\": [",
        if done { "completed" } else { "failed" },
        seconds / 1000,
        seconds % 1000,
        below(draw, 5000),
    )
    .ok();
    for i in 0..below(draw, 6) {
        out.push_str(if i > 0 { ", " } else { "" });
        string(draw, out, 1);
    }
    out.push_str("],\n      \"prompt\": ");
    let words = 20 + below(draw, 60);
    string(draw, out, words);
    out.push_str(",\n      \"steps\": [");
    for i in 0..below(draw, 5) {
        out.push_str(if i > 0 { ", " } else { "" });
        write!(out, "{{\"tool\": \"run\", \"index\": {i}, \"ok\": {done}, \"output\": ").ok();
        let words = 5 + below(draw, 40);
        string(draw, out, words);
        out.push_str(", \"context\": {\"z\": [1, 2, 3], \"a\": {\"größe\": 12.5, \"deep\": {}}}}");
    }
    out.push_str("],\n      \"Author\": \"agent\"\n    }");
}

const WORDS: [&str; 24] = [
    "the",
    "agent",
    "request",
    "returned",
    "delivery",
    "checks",
    "passed",
    "with",
    "error:",
    "budget",
    "naïve",
    "größer",
    "日本語",
    "🙂",
    "\\n",
    "\\t",
    "\\\"quoted\\\"",
    "C:\\\\temp",
    "caf\\u00e9",
    "https://example.org/a?b=c&d=e",
    "assert_eq!(a, b);",
    "of",
    "and",
    "verified.",
];

fn string(draw: &mut Draw, out: &mut String, words: u64) {
    out.push('"');
    for i in 0..words {
        out.push_str(if i > 0 { " " } else { "" });
        // Half of the words are plain ones from the first ten.
        let range = if below(draw, 2) == 0 { 10 } else { 24 };
        let place = usize::try_from(below(draw, range)).unwrap_or(0);
        out.push_str(WORDS.get(place).copied().unwrap_or_default());
    }
    out.push('"');
}
