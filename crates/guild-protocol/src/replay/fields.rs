//! What each field of a line must look like, whatever stands around the line.

use super::{TRAJECTORY_HASH_ALG, code, tables};
use crate::hash::{Hash, shorten};
use crate::json::{self, Doc};
use crate::receipt;
use crate::timestamp::Timestamp;
use crate::verification::Problem;
use crate::wire::{Reading, integer_at, text_at};

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident $(| $other:literal)*),+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = concat!("`", stringify!($variant), "`")] $variant,)+
        }

        impl $name {
            /// The word that stands in files.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => stringify!($variant),)+
                }
            }

            /// Reads the word; tolerantly in any case, and the words that other systems use.
            pub fn read(word: &str, reading: Reading) -> Option<$name> {
                let same = |known: &str| match reading {
                    Reading::Strict => known == word,
                    Reading::Tolerant => known.eq_ignore_ascii_case(word),
                };
                $(
                    if same(stringify!($variant)) {
                        return Some($name::$variant);
                    }
                    $(if reading == Reading::Tolerant && same($other) {
                        return Some($name::$variant);
                    })*
                )+
                None
            }
        }
    )+};
}

statuses! {
    /// How a step ended.
    StepStatus { Success, Failed | "failure" | "error", Skipped, MaxIterationsReached | "max_iterations_reached" }
    /// How a session ended.
    SessionStatus { Success, Failed | "failure" | "error", Cancelled | "canceled", Timeout | "timed_out" }
}

/// Reads a moment as strictly as the file.
pub(super) fn moment(text: &str, reading: Reading) -> crate::Result<Timestamp> {
    match reading {
        Reading::Strict => text.parse(),
        Reading::Tolerant => Timestamp::parse_liberal(text),
    }
}

fn read_hash(text: &str, reading: Reading) -> crate::Result<Hash> {
    match reading {
        Reading::Strict => text.parse(),
        Reading::Tolerant => Hash::parse_liberal(text),
    }
}

/// Everything wrong with the fields of one line.
pub(super) fn problems(doc: &Doc<'_>, reading: Reading) -> Vec<Problem> {
    let event = text_at(doc, "event").unwrap_or_default();
    let Some(wire) = tables::of(event) else {
        return match (event, reading) {
            ("", _) => vec![Problem::new(&code::FIELD, "is missing or not a text").at("event")],
            // Files of others may hold events that are not known here.
            (_, Reading::Tolerant) => Vec::new(),
            _ => {
                let message = format!("{:?} is not an event of this version", shorten(event));
                vec![Problem::new(&code::FIELD, message).at("event")]
            }
        };
    };
    if let Err(error) = wire.check(doc, reading) {
        return vec![Problem { code: &code::FIELD, ..error.into() }];
    }
    let Doc::Object(members) = doc else { return Vec::new() };
    let mut problems: Vec<_> = members
        .iter()
        .filter_map(|(key, value)| {
            let message = form(event, key, value, reading).err()?;
            Some(Problem::new(&code::FIELD, message).at(shorten(key)))
        })
        .collect();
    problems.extend(payment_problems(doc, event, reading));
    problems.extend(lone_origin(doc, reading));
    problems.extend(lengths(doc));
    problems
}

/// One key means the same in every event, so one function knows all forms.
fn form(event: &str, key: &str, value: &Doc<'_>, reading: Reading) -> Result<(), String> {
    let said = |error: crate::Error| error.message().to_owned();
    match (key, value) {
        ("t" | "created_at", Doc::Text(text)) => moment(text, reading).map(drop).map_err(said),
        (
            "chain" | "job_hash" | "output_hash" | "params_hash" | "payload_hash" | "plan_hash"
            | "trajectory_hash",
            Doc::Text(text),
        ) => read_hash(text, reading).map(drop).map_err(said),
        ("status", Doc::Text(word)) => {
            let known = match event {
                "StepComplete" => StepStatus::read(word, reading).is_some(),
                "SessionEnd" => SessionStatus::read(word, reading).is_some(),
                "Payment" => {
                    reading == Reading::Tolerant || receipt::Status::from_word(word).is_some()
                }
                _ => true,
            };
            known_word(known, word)
        }
        ("trajectory_hash_alg", Doc::Text(word)) if reading == Reading::Strict => {
            known_word(word == TRAJECTORY_HASH_ALG, word)
        }
        ("output_encoding", Doc::Text(word)) if reading == Reading::Strict => {
            known_word(word == "raw" || word == "json", word)
        }
        (
            "id" | "policy_bundle_id" | "producer" | "session_id" | "step_id" | "tool",
            Doc::Text(name),
        ) => {
            if name.is_empty() || name.len() > 200 {
                return Err("must be 1 to 200 bytes".to_owned());
            }
            Ok(())
        }
        ("imported" | "repaired", Doc::Bool(false)) if reading == Reading::Strict => {
            Err("must be true where it stands".to_owned())
        }
        (_, Doc::Number(written)) => range(key, written),
        ("exit_codes", Doc::Array(codes)) => codes.iter().try_for_each(|code| match code {
            Doc::Number(written) => range("exit_code", written),
            _ => Ok(()),
        }),
        _ => Ok(()),
    }
}

fn known_word(known: bool, word: &str) -> Result<(), String> {
    if known { Ok(()) } else { Err(format!("{:?} is not known", shorten(word))) }
}

fn range(key: &str, written: &str) -> Result<(), String> {
    let (least, most) = match key {
        "step_utility" => (-1.0, 1.0),
        "confidence" => (0.0, 1.0),
        "iterations" => (0.0, f64::from(u8::MAX)),
        "exit_code" | "verification_delta" => (f64::from(i32::MIN), f64::from(i32::MAX)),
        "latency_ms" | "seq" | "step_count" | "total_latency_ms" | "total_tool_calls" => {
            (0.0, f64::INFINITY)
        }
        _ => return Ok(()),
    };
    match written.parse::<f64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(()),
        _ if most.is_infinite() => Err("must not be negative".to_owned()),
        _ => Err(format!("must be from {least} to {most}")),
    }
}

fn payment_problems(doc: &Doc<'_>, event: &str, reading: Reading) -> Vec<Problem> {
    if event != "Payment" || doc.get("amount").is_none() {
        return Vec::new();
    }
    // Others may have rails and proofs of their own.
    let forms = (reading == Reading::Strict).then(|| receipt::payment_form_problems(doc));
    let checks = [forms, receipt::amount_problems(doc), receipt::rail_problems(doc)];
    checks.into_iter().flatten().flatten().map(|p| Problem { code: &code::FIELD, ..p }).collect()
}

/// A file that says where it was imported from says that it was: half a mark must not pass as none.
fn lone_origin(doc: &Doc<'_>, reading: Reading) -> Option<Problem> {
    let lone = reading == Reading::Strict
        && doc.get("imported_from").is_some()
        && doc.get("imported").is_none();
    lone.then(|| Problem::new(&code::FIELD, "stands without imported").at("imported_from"))
}

fn lengths(doc: &Doc<'_>) -> Option<Problem> {
    let (Doc::Array(commands), Doc::Array(exit_codes)) =
        (doc.get("commands")?, doc.get("exit_codes")?)
    else {
        return None;
    };
    (commands.len() != exit_codes.len()).then(|| {
        let message = format!("{} exit codes for {} commands", exit_codes.len(), commands.len());
        Problem::new(&code::FIELD, message).at("exit_codes")
    })
}

/// The hashes that a line states of its own content.
pub(super) fn hash_problems(doc: &Doc<'_>, text: &[u8], reading: Reading) -> Vec<Problem> {
    [("params", "params_hash"), ("payload", "payload_hash")]
        .into_iter()
        .filter_map(|(content, stated)| {
            let hash = read_hash(text_at(doc, stated)?, reading).ok()?;
            let value = doc.get(content)?;
            let fits = value.hash() == hash
                || (reading == Reading::Tolerant && legacy_hash(text, content) == Some(hash));
            (!fits).then(|| {
                Problem::new(&code::HASH, format!("does not have the hash in {stated}")).at(content)
            })
        })
        .collect()
}

/// The hash as earlier systems computed it, over the member as it is written.
fn legacy_hash(text: &[u8], key: &str) -> Option<Hash> {
    let members: std::collections::BTreeMap<String, &serde_json::value::RawValue> =
        serde_json::from_slice(text).ok()?;
    json::legacy::hash_text(members.get(key)?.get().as_bytes()).ok()
}

/// A count that has passed the checks.
pub(super) fn count(doc: &Doc<'_>, key: &str) -> u64 {
    integer_at(doc, key).and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}
