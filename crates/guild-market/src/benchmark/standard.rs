//! `std-v3`: six functions of three modules, with details that a seed decides.

use std::collections::BTreeSet;

use guild_protocol::json;
use serde_json::{Value, json};

use super::expected::{
    Operation, Variant, cache_trace, checksum, count_pairs, encode_runs, parse_records, window_max,
};
use super::{Benchmark, ENTRY, Module, SEED_BYTES, Task, derived};
use crate::error::code;
use crate::judge::{Salt, Suite};
use crate::routing::Draws;
use crate::{Error, Result};

/// The memory that an answer may use.
pub(super) const MEMORY_BYTES: u64 = 256 << 20;
/// How many hidden tests each function has.
const HIDDEN: usize = 4;
/// A program that does what any task of this benchmark asks for, once its settings are filled in.
const SOLUTION: &str = include_str!("solution.py");

/// One call, and what it must give; none is a ValueError.
struct Call {
    args: Value,
    gives: Option<Value>,
}

/// One function that is asked for.
struct Function {
    module: Module,
    name: &'static str,
    arguments: &'static str,
    text: String,
    settings: Value,
}

pub(super) fn task(seed: &[u8; SEED_BYTES], modules: &BTreeSet<Module>) -> Result<Task> {
    // The generator can be run backwards: what is shown and what is not come from two of them.
    let draws = |purpose: &str| {
        let [a, b, c, d, e, f, g, h, ..] = derived(seed, purpose);
        Draws::new(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    };
    let (mut shown, mut hidden) = (draws("shown"), draws("hidden"));
    let variant = variant(&mut shown);
    let functions: Vec<Function> =
        functions(&variant).into_iter().filter(|one| modules.contains(&one.module)).collect();
    let mut tests = Vec::new();
    let mut asked = Vec::new();
    for function in &functions {
        let example = call(&variant, function.name, &mut shown);
        asked.push(function.asked(&example));
        tests.push(test(function, "smoke", 0, &example));
        for number in 0..HIDDEN {
            let one = call(&variant, function.name, &mut hidden);
            tests.push(test(function, "correctness", number, &one));
        }
        for (number, one) in edges(&variant, function.name).iter().enumerate() {
            tests.push(test(function, "edge", number, one));
        }
    }
    tests.push(json!({"id": "names", "layer": "security", "forbid": FORBIDDEN}));
    tests.push(json!({"id": "kernel", "layer": "security", "kernel": true}));
    let suite = Suite::parse(&json::to_canonical(&suite(tests))?)?;
    let salt = Salt::new(derived(seed, "salt"));
    let commitment = suite.commitment(&salt);
    let names: Vec<&str> = modules.iter().map(|module| module.name()).collect();
    let spec = json!({
        "benchmark_id": Benchmark::StdV3.name(),
        "modules": names,
        "language": "python3",
        "entry": ENTRY,
        "functions": asked,
        "commitment": commitment.to_string(),
        "answer": "A JSON object {\"files\": {\"solution.py\": \"…\"}} whose solution.py defines all functions. \
                   It runs without network and may use the standard library; tests that are not shown call it.",
    });
    Ok(Task { spec, suite, salt, commitment })
}

const FORBIDDEN: [&str; 6] = ["subprocess", "socket", "ctypes", "os.system", "eval", "exec"];

fn suite(tests: Vec<Value>) -> Value {
    let count = |layer: &str| tests.iter().filter(|test| test["layer"] == layer).count();
    json!({
        "schema_version": 1, "name": Benchmark::StdV3.name(), "language": "python", "entry": ENTRY,
        "call_timeout_ms": 10_000,
        "limits": {"wall_ms": 60_000, "cpu_hard_ms": 20_000, "memory_hard_bytes": MEMORY_BYTES, "pids": 30},
        "layers": {
            "smoke": count("smoke"), "correctness": count("correctness"), "edge": count("edge"),
            "security": count("security"),
        },
        "tests": tests,
    })
}

fn test(function: &Function, layer: &str, number: usize, call: &Call) -> Value {
    let expect = match &call.gives {
        Some(value) => json!({"value": value}),
        None => json!({"error": "ValueError"}),
    };
    json!({
        "id": format!("{}.{}.{layer}.{number}", function.module.name(), function.name),
        "layer": layer, "call": function.name, "args": call.args, "expect": expect,
    })
}

impl Function {
    /// As the provider reads it.
    fn asked(&self, example: &Call) -> Value {
        json!({
            "module": self.module.name(), "name": self.name, "arguments": self.arguments, "text": self.text,
            "settings": self.settings,
            "examples": [{"args": example.args, "gives": example.gives}],
        })
    }
}

/// A number from the first to the last of a range.
fn between(draws: &mut Draws, first: i64, last: i64) -> i64 {
    let span = u64::try_from(last.saturating_sub(first)).unwrap_or(0).saturating_add(1);
    first.saturating_add(i64::try_from(draws.below(span)).unwrap_or(0))
}

fn one_of<T: Copy>(draws: &mut Draws, of: &[T], otherwise: T) -> T {
    let count = u64::try_from(of.len()).unwrap_or(0);
    let at = usize::try_from(draws.below(count)).unwrap_or(0);
    of.get(at).copied().unwrap_or(otherwise)
}

fn variant(draws: &mut Draws) -> Variant {
    Variant {
        start: between(draws, 1, 999),
        factor: between(draws, 3, 9_999),
        modulus: between(draws, 1_000_003, 99_999_989),
        miss: between(draws, -99, -1),
        touches: draws.below(2) == 1,
        separator: one_of(draws, &[':', '=', '|', '~'], '='),
        comment: one_of(draws, &['#', ';', '%', '!'], '#'),
        keeps_first: draws.below(2) == 1,
        count_first: draws.below(2) == 1,
    }
}

fn functions(variant: &Variant) -> [Function; 6] {
    let Variant { start, factor, modulus, miss, touches, separator, comment, .. } = *variant;
    let (keeps_first, count_first) = (variant.keeps_first, variant.count_first);
    let evicts = if touches { "least recently read or written" } else { "first written" };
    let keeps = if keeps_first { "first" } else { "last" };
    let order = if count_first {
        "its length and then the letter"
    } else {
        "the letter and then its length"
    };
    let function = |module, name, arguments, text, settings| Function {
        module,
        name,
        arguments,
        text,
        settings,
    };
    [
        function(
            Module::Computation,
            "checksum",
            "numbers",
            format!(
                "Begin with {start}. For each number multiply by {factor}, add the number, and take the rest of the \
                 division by {modulus}, which is never negative. Give what is left at the end."
            ),
            json!({"start": start, "factor": factor, "modulus": modulus}),
        ),
        function(
            Module::Computation,
            "count_pairs",
            "numbers, target",
            "Count the pairs of places i < j whose numbers add up to target. Lists are long: do not compare all \
             pairs."
                .to_owned(),
            json!({}),
        ),
        function(
            Module::Memory,
            "cache_trace",
            "capacity, operations",
            format!(
                "A cache holds at most capacity keys. An operation is [key] to read or [key, value] to write. Give the \
                 list of what was read, {miss} for a key that is not there. Writing a new key into a full cache first \
                 drops the key that was {evicts}. A capacity below 1 is a ValueError."
            ),
            json!({"miss": miss, "touches": touches}),
        ),
        function(
            Module::Memory,
            "window_max",
            "numbers, width",
            "Give the largest number of each run of width neighbours, from the first run to the last. A width below 1 \
             or above the length of numbers is a ValueError."
                .to_owned(),
            json!({}),
        ),
        function(
            Module::Io,
            "parse_records",
            "text",
            format!(
                "Each line is a record: key {separator} value, split at the first {separator}, both without the spaces \
                 around them. Lines that are empty or begin with {comment} are passed over. Give an object of texts; \
                 of a key that stands twice the {keeps} counts. Any other line, and an empty key, is a ValueError."
            ),
            json!({
                "separator": separator.to_string(), "comment": comment.to_string(), "keeps_first": keeps_first,
            }),
        ),
        function(
            Module::Io,
            "encode_runs",
            "text",
            format!("Write each run of one letter as {order}, in digits, one after the other."),
            json!({"count_first": count_first}),
        ),
    ]
}

fn numbers(draws: &mut Draws, most: i64, largest: i64) -> Vec<i64> {
    let count = between(draws, 3, most);
    (0..count).map(|_| between(draws, largest.saturating_neg(), largest)).collect()
}

fn length(numbers: &[i64]) -> i64 {
    i64::try_from(numbers.len()).unwrap_or(i64::MAX)
}

/// A call of this function that nobody has seen.
fn call(variant: &Variant, name: &str, draws: &mut Draws) -> Call {
    let given = |args: Value, gives: Value| Call { args, gives: Some(gives) };
    match name {
        "checksum" => {
            let of = numbers(draws, 40, 1_000_000);
            given(json!([of]), json!(checksum(variant, &of)))
        }
        "count_pairs" => {
            let (of, target) = (numbers(draws, 60, 12), between(draws, -9, 9));
            given(json!([of, target]), json!(count_pairs(&of, target)))
        }
        "cache_trace" => {
            let capacity = between(draws, 1, 5);
            let operations = operations(draws);
            let trace = cache_trace(variant, usize::try_from(capacity).unwrap_or(1), &operations);
            given(json!([capacity, written(&operations)]), json!(trace))
        }
        "window_max" => {
            let of = numbers(draws, 40, 9_999);
            let width = between(draws, 1, length(&of));
            given(json!([of, width]), json!(window_max(&of, usize::try_from(width).unwrap_or(1))))
        }
        "parse_records" => {
            let text = records(variant, draws);
            Call { args: json!([text]), gives: parse_records(variant, &text) }
        }
        _ => {
            let letters = between(draws, 1, 30);
            let text: String =
                (0..letters).map(|_| one_of(draws, &['a', 'b', 'c', ' ', 'ä'], 'a')).collect();
            given(json!([text]), json!(encode_runs(variant, &text)))
        }
    }
}

fn operations(draws: &mut Draws) -> Vec<Operation> {
    let count = between(draws, 6, 30);
    let one = |draws: &mut Draws| {
        let key = one_of(draws, &["a", "b", "c", "d", "e", "f", "g"], "a").to_owned();
        let writes = draws.below(2) == 1;
        (key, writes.then(|| between(draws, 0, 999)))
    };
    (0..count).map(|_| one(draws)).collect()
}

fn written(operations: &[Operation]) -> Value {
    let one = |(key, value): &Operation| match value {
        Some(value) => json!([key, value]),
        None => json!([key]),
    };
    operations.iter().map(one).collect()
}

fn records(variant: &Variant, draws: &mut Draws) -> String {
    let count = between(draws, 2, 9);
    let line = |draws: &mut Draws| match draws.below(6) {
        0 => format!("{} a remark", variant.comment),
        1 => "  ".to_owned(),
        _ => {
            let key = one_of(draws, &["name", "size", "kind", "owner", "since"], "name");
            let (number, separator) = (between(draws, 0, 9_999), variant.separator);
            let more =
                if draws.below(3) == 0 { format!("{separator}{number}") } else { String::new() };
            format!("  {key} {separator}  v{number}{more} ")
        }
    };
    let lines: Vec<String> = (0..count).map(|_| line(draws)).collect();
    lines.join("\n")
}

/// What happens at the boundaries.
fn edges(variant: &Variant, name: &str) -> Vec<Call> {
    let given = |args: Value, gives: Value| Call { args, gives: Some(gives) };
    let wrong = |args: Value| Call { args, gives: None };
    let Variant { separator, comment, .. } = variant;
    match name {
        "checksum" => vec![
            given(json!([[]]), json!(checksum(variant, &[]))),
            given(json!([[-1]]), json!(checksum(variant, &[-1]))),
        ],
        "count_pairs" => vec![
            given(json!([[], 0]), json!(0)),
            given(json!([[5], 10]), json!(0)),
            given(json!([[0, 0, 0, 0], 0]), json!(6)),
        ],
        "cache_trace" => vec![
            wrong(json!([0, []])),
            given(json!([1, []]), json!([])),
            given(json!([1, [["a"]]]), json!([variant.miss])),
        ],
        "window_max" => vec![
            wrong(json!([[1, 2], 0])),
            wrong(json!([[1, 2], 3])),
            given(json!([[4], 1]), json!([4])),
        ],
        "parse_records" => vec![
            given(json!([""]), json!({})),
            given(json!([format!("{comment}only a remark")]), json!({})),
            wrong(json!(["neither"])),
            wrong(json!([format!(" {separator} value")])),
        ],
        _ => vec![given(json!([""]), json!("")), {
            let text = "z".repeat(120);
            given(json!([text]), json!(encode_runs(variant, &text)))
        }],
    }
}

/// An answer that is right, to any task of this benchmark: for tests, and for providers that shall only be tried out.
pub fn reference(spec: &Value) -> Result<Value> {
    let refused = |why: &str| Error::refused(&code::BENCHMARK_UNKNOWN, why);
    if spec["benchmark_id"] != Benchmark::StdV3.name() {
        return Err(refused("only std-v3 is known here"));
    }
    let functions = spec["functions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if functions.is_empty() {
        return Err(refused("the task does not say which functions are wanted"));
    }
    let mut settings = serde_json::Map::new();
    for function in functions {
        let of = function["settings"].as_object().into_iter().flatten();
        settings.extend(of.map(|(name, value)| (name.clone(), value.clone())));
    }
    // JSON is Python but for the names of three values, and settings are numbers, texts and truths.
    let settings: Vec<String> = settings.iter().map(|(name, value)| literal(name, value)).collect();
    let program =
        SOLUTION.replace("SETTINGS = {}", &format!("SETTINGS = {{{}}}", settings.join(", ")));
    Ok(json!({"files": {ENTRY: program}}))
}

fn literal(name: &str, value: &Value) -> String {
    let name = Value::from(name);
    match value {
        Value::Bool(true) => format!("{name}: True"),
        Value::Bool(false) => format!("{name}: False"),
        Value::Number(_) | Value::String(_) => format!("{name}: {value}"),
        _ => format!("{name}: None"),
    }
}
