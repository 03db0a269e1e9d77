//! What a review says in JSON, and what it can be checked by.
//!
//! A field that has another type than expected is not understood and left out; texts and lists that are too long are
//! cut. So whatever was read can be kept and shown, and one odd field hides no review.

use serde_json::{Map, Value, json};

use super::{MOST_BP, code};
use crate::hash::Hash;
use crate::id::ReceiptId;
use crate::json::{self, MAX_SAFE_INTEGER};
use crate::nostr::EventId;
use crate::{Error, Result};

/// The content of a review is read within these.
const LIMITS: json::Limits = json::Limits { max_bytes: 16 * 1_024, max_depth: 8 };
/// The longest text.
const TEXT_MAX_CHARS: usize = 400;
/// The longest item of a list, and the longest name.
const ITEM_MAX_CHARS: usize = 160;
/// The longest list.
const LIST_MAX: usize = 8;

/// What is said in words and numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// For people.
    pub summary: Option<String>,
    /// What is good.
    pub strengths: Vec<String>,
    /// What is not.
    pub weaknesses: Vec<String>,
    /// The part of the tests that passed, in ten-thousandths.
    pub test_score_bp: Option<u32>,
    /// Half of all results came in this time.
    pub latency_p50_ms: Option<u64>,
    /// All but a twentieth came in this time.
    pub latency_p95_ms: Option<u64>,
    /// What to do, in words.
    pub recommendation: Option<String>,
    /// Where more evidence can be had, by its content.
    pub evidence_cid: Option<String>,
    /// Why everybody should know at once, such as `security_violation`.
    pub alert: Option<String>,
}

/// The payment of what a review is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// The receipt that the reviewer signed.
    pub receipt_id: ReceiptId,
    /// The hash of all its bytes, the signature included.
    pub receipt_hash: Hash,
}

/// What a judged benchmark committed to before, revealed: whoever has it can judge again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reveal {
    /// What the request named.
    pub commitment: Hash,
    /// What made it say nothing then, in hex digits.
    pub salt: String,
    /// The name of the benchmark.
    pub benchmark: String,
    /// From which its tests follow, in hex digits.
    pub seed: String,
}

/// What a review can be checked by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The request, signed by the reviewer.
    pub request_id: Option<EventId>,
    /// The result, signed by the subject.
    pub result_id: Option<EventId>,
    /// What was asked for.
    pub job_hash: Option<Hash>,
    /// The document of the verdict.
    pub verdict_hash: Option<Hash>,
    /// How it was paid.
    pub payment: Option<Payment>,
    /// What it was judged by.
    pub reveal: Option<Reveal>,
}

impl Content {
    pub(super) fn check(&self) -> Result<()> {
        let not_allowed = |what: String, at: &str| Err(Error::new(&code::BAD_VALUE, what).at(at));
        let texts = [
            ("summary", &self.summary, TEXT_MAX_CHARS),
            ("recommendation", &self.recommendation, TEXT_MAX_CHARS),
            ("evidence_cid", &self.evidence_cid, ITEM_MAX_CHARS),
            ("alert", &self.alert, ITEM_MAX_CHARS),
        ];
        for (name, text, most) in texts {
            if text.as_ref().is_some_and(|text| text.chars().count() > most) {
                return not_allowed(format!("has at most {most} characters"), name);
            }
        }
        for (name, list) in [("strengths", &self.strengths), ("weaknesses", &self.weaknesses)] {
            let long = list.iter().any(|item| item.chars().count() > ITEM_MAX_CHARS);
            if list.len() > LIST_MAX || long {
                let what =
                    format!("has at most {LIST_MAX} lines of at most {ITEM_MAX_CHARS} characters");
                return not_allowed(what, name);
            }
        }
        let long = |ms: &Option<u64>| ms.is_some_and(|ms| ms > MAX_SAFE_INTEGER);
        if long(&self.latency_p50_ms)
            || long(&self.latency_p95_ms)
            || self.test_score_bp.is_some_and(|bp| bp > MOST_BP)
        {
            return not_allowed("a number is out of its range".to_owned(), "metrics");
        }
        Ok(())
    }
}

/// Reads the content of a review: nothing, an object, or, as others write, a plain text. Evidence only if there is such
/// a part in it.
pub(super) fn parse(text: &str) -> Result<(Content, Option<Evidence>)> {
    let plain = text.trim_start();
    if plain.is_empty() {
        return Ok((Content::default(), None));
    }
    if text.len() > LIMITS.max_bytes {
        let what = format!("{} bytes are more than {}", text.len(), LIMITS.max_bytes);
        return Err(Error::new(&code::MALFORMED, what));
    }
    if !plain.starts_with('{') {
        let summary = Some(cut(text, TEXT_MAX_CHARS));
        return Ok((Content { summary, ..Content::default() }, None));
    }
    let object: Map<String, Value> = json::decode_within(text.as_bytes(), LIMITS)?;
    let metrics = object.get("metrics").and_then(Value::as_object);
    let metric = |name: &str| metrics.and_then(|metrics| metrics.get(name));
    let content = Content {
        summary: text_of(&object, "summary", TEXT_MAX_CHARS),
        strengths: list_of(&object, "strengths"),
        weaknesses: list_of(&object, "weaknesses"),
        test_score_bp: metric("test_score").and_then(score_bp),
        latency_p50_ms: metric("latency_p50_ms").and_then(milliseconds),
        latency_p95_ms: metric("latency_p95_ms").and_then(milliseconds),
        recommendation: text_of(&object, "recommendation", TEXT_MAX_CHARS),
        evidence_cid: text_of(&object, "evidence_cid", ITEM_MAX_CHARS),
        alert: text_of(&object, "alert", ITEM_MAX_CHARS),
    };
    let evidence = object.get("evidence").and_then(Value::as_object).map(evidence_of);
    Ok((content, evidence))
}

fn text_of(object: &Map<String, Value>, name: &str, most: usize) -> Option<String> {
    object.get(name).and_then(Value::as_str).map(|text| cut(text, most))
}

fn list_of(object: &Map<String, Value>, name: &str) -> Vec<String> {
    let items = object.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts = items.iter().filter_map(Value::as_str).take(LIST_MAX);
    texts.map(|text| cut(text, ITEM_MAX_CHARS)).collect()
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

fn score_bp(value: &Value) -> Option<u32> {
    let score = value.as_f64().filter(|score| (0.0..=1.0).contains(score))?;
    Some((score * f64::from(MOST_BP)).round() as u32)
}

/// A whole number; others write a fraction of a millisecond.
fn milliseconds(value: &Value) -> Option<u64> {
    let most = MAX_SAFE_INTEGER as f64;
    let whole = value.as_u64().filter(|ms| *ms <= MAX_SAFE_INTEGER);
    let fraction = || value.as_f64().filter(|ms| (0.0..=most).contains(ms)).map(|ms| ms as u64);
    whole.or_else(fraction)
}

fn evidence_of(object: &Map<String, Value>) -> Evidence {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let hash = |name: &str| text(name).and_then(|text| Hash::parse_liberal(text).ok());
    let id = |name: &str| text(name).and_then(|text| text.parse::<EventId>().ok());
    let payment = || {
        let receipt_id = text("receipt_id")?.parse().ok()?;
        Some(Payment { receipt_id, receipt_hash: hash("receipt_hash")? })
    };
    Evidence {
        request_id: id("request_id"),
        result_id: id("result_id"),
        job_hash: hash("job_hash"),
        verdict_hash: hash("verdict_hash"),
        payment: payment(),
        reveal: object.get("reveal").and_then(Value::as_object).and_then(reveal_of),
    }
}

fn reveal_of(object: &Map<String, Value>) -> Option<Reveal> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    Some(Reveal {
        commitment: Hash::parse_liberal(text("commitment")?).ok()?,
        salt: cut(text("salt")?, ITEM_MAX_CHARS),
        benchmark: cut(text("benchmark")?, ITEM_MAX_CHARS),
        seed: cut(text("seed")?, ITEM_MAX_CHARS),
    })
}

/// The content in canonical JSON.
pub(super) fn to_json(content: &Content, evidence: &Evidence) -> Result<String> {
    let mut object = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        object.extend(value.map(|value| (name.to_owned(), value)));
    };
    let list = |items: &Vec<String>| (!items.is_empty()).then(|| json!(items));
    put("summary", content.summary.as_ref().map(|text| json!(text)));
    put("strengths", list(&content.strengths));
    put("weaknesses", list(&content.weaknesses));
    put("metrics", metrics(content));
    put("recommendation", content.recommendation.as_ref().map(|text| json!(text)));
    put("evidence_cid", content.evidence_cid.as_ref().map(|text| json!(text)));
    put("alert", content.alert.as_ref().map(|text| json!(text)));
    put("evidence", written(evidence));
    let bytes = json::to_canonical(&Value::Object(object))?;
    if bytes.len() > LIMITS.max_bytes {
        let what = format!("{} bytes are more than {}", bytes.len(), LIMITS.max_bytes);
        return Err(Error::new(&code::BAD_VALUE, what).at("content"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn metrics(content: &Content) -> Option<Value> {
    let mut object = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        object.extend(value.map(|value| (name.to_owned(), value)));
    };
    // The shortest decimal of this quotient is the number of ten-thousandths itself.
    let score = content.test_score_bp.map(|bp| f64::from(bp) / f64::from(MOST_BP));
    put("test_score", score.map(|score| json!(score)));
    put("latency_p50_ms", content.latency_p50_ms.map(|ms| json!(ms)));
    put("latency_p95_ms", content.latency_p95_ms.map(|ms| json!(ms)));
    (!object.is_empty()).then_some(Value::Object(object))
}

fn written(evidence: &Evidence) -> Option<Value> {
    let mut object = Map::new();
    let mut put = |name: &str, value: Option<String>| {
        object.extend(value.map(|value| (name.to_owned(), json!(value))));
    };
    put("request_id", evidence.request_id.map(|id| id.hex()));
    put("result_id", evidence.result_id.map(|id| id.hex()));
    put("job_hash", evidence.job_hash.map(|hash| hash.to_string()));
    put("verdict_hash", evidence.verdict_hash.map(|hash| hash.to_string()));
    if let Some(payment) = &evidence.payment {
        put("receipt_id", Some(payment.receipt_id.to_string()));
        put("receipt_hash", Some(payment.receipt_hash.to_string()));
    }
    if let Some(reveal) = &evidence.reveal {
        let Reveal { commitment, salt, benchmark, seed } = reveal;
        let revealed = json!({
            "commitment": commitment.to_string(), "salt": salt, "benchmark": benchmark, "seed": seed,
        });
        object.insert("reveal".to_owned(), revealed);
    }
    (!object.is_empty()).then_some(Value::Object(object))
}
