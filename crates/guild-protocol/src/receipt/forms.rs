//! What the text of each field must look like, and what the fields say together.

use std::str::FromStr;

use super::{Rail, SIGNATURE_SCHEME, Status, code};
use crate::amount::AssetId;
use crate::hash::{Hash, from_hex};
use crate::id::ReceiptId;
use crate::identity::{PublicKey, Signature};
use crate::json::Doc;
use crate::timestamp::Timestamp;
use crate::verification::Problem;
use crate::wire::{at, integer_at, text_at};

/// Names that others chose are kept short.
const MAX_NAME_BYTES: usize = 200;

type Form = fn(&str) -> Result<(), String>;

const FORMS: &[(&str, Form)] = &[
    ("amount.asset_id", asset_id),
    ("approval_rule_id", name),
    ("asset_id", asset_id),
    ("buyer_id", npub),
    ("digest", reads::<Hash>),
    ("idempotency_key", name),
    ("job_hash", reads::<Hash>),
    ("policy_bundle_id", name),
    ("provider_id", npub),
    ("rail", |text| word(text, Rail::from_word(text).is_some())),
    ("receipt_id", reads::<ReceiptId>),
    ("request_id", name),
    ("session_id", name),
    ("signature.public_key", hex_key),
    ("signature.scheme", |text| word(text, text == SIGNATURE_SCHEME)),
    ("signature.value", reads::<Signature>),
    ("status", |text| word(text, Status::from_word(text).is_some())),
    ("timestamp", reads::<Timestamp>),
    ("trajectory_hash", reads::<Hash>),
    ("verdict_hash", reads::<Hash>),
];

fn reads<T: FromStr<Err = crate::Error>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(drop).map_err(|e| e.message().to_owned())
}

fn asset_id(text: &str) -> Result<(), String> {
    AssetId::new(text).map(drop).map_err(|e| e.message().to_owned())
}

fn npub(text: &str) -> Result<(), String> {
    let key = text.parse::<PublicKey>().map_err(|e| e.message().to_owned())?;
    // Bech32 also reads upper case; one key has one text.
    if key.npub() == text { Ok(()) } else { Err("must be written as an npub".to_owned()) }
}

fn hex_key(text: &str) -> Result<(), String> {
    let key = text.parse::<PublicKey>().map_err(|e| e.message().to_owned())?;
    if key.hex() == text { Ok(()) } else { Err("must be 64 lower-case hex digits".to_owned()) }
}

fn word(text: &str, known: bool) -> Result<(), String> {
    if known { Ok(()) } else { Err(format!("{:?} is not known", crate::hash::shorten(text))) }
}

/// A name given by somebody: not empty, short, without control characters.
fn name(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > MAX_NAME_BYTES || text.chars().any(char::is_control) {
        return Err("must be 1 to 200 bytes without control characters".to_owned());
    }
    Ok(())
}

/// Every field that does not have its form.
pub(super) fn forms(doc: &Doc<'_>) -> Vec<Problem> {
    forms_of(doc, |_| true)
}

/// The same of the fields by which a receipt and a replay alike state a payment.
pub(crate) fn payment_forms(doc: &Doc<'_>) -> Vec<Problem> {
    let mut problems =
        forms_of(doc, |field| matches!(field, "amount.asset_id" | "asset_id" | "rail"));
    let whole = |proof: &Doc<'_>| match proof {
        Doc::Null => true,
        Doc::Object(members) => {
            members.len() == 2 && text_at(proof, "type").is_some() && proof.get("value").is_some()
        }
        _ => false,
    };
    if doc.get("payment_proof").is_some_and(|proof| !whole(proof)) {
        let message = "must be null, or an object of type and value";
        problems.push(malformed("payment_proof", message.to_owned()));
    }
    problems
}

fn malformed(field: &str, message: String) -> Problem {
    Problem::new(&code::BAD_VALUE, message).at(field)
}

fn forms_of(doc: &Doc<'_>, wanted: fn(&str) -> bool) -> Vec<Problem> {
    let mut problems: Vec<_> = FORMS
        .iter()
        .filter(|(field, _)| wanted(field))
        .filter_map(|(field, form)| Some(malformed(field, form(text_at(doc, field)?).err()?)))
        .collect();
    if let Some((field, message)) = proof_problem(doc) {
        problems.push(malformed(field, message));
    }
    for field in ["amount.units", "amount_msats"] {
        if integer_at(doc, field).is_some_and(|units| units < 0) {
            problems.push(malformed(field, "must not be negative".to_owned()));
        }
    }
    problems
}

fn proof_problem(doc: &Doc<'_>) -> Option<(&'static str, String)> {
    const VALUE: &str = "payment_proof.value";
    let proof_type = text_at(doc, "payment_proof.type")?;
    let value = at(doc, VALUE)?;
    let digits = |text: &str| from_hex(text).is_some_and(|bytes| bytes.len() == 32);
    let text = |fits: &dyn Fn(&str) -> bool| matches!(value, Doc::Text(text) if fits(text));
    let (fits, wanted) = match proof_type {
        "lightning_preimage" => (text(&digits), "64 lower-case hex digits"),
        "cashu_proof" => (text(&is_cashu_token), "a token that begins with cashuA or cashuB"),
        "onchain_txid" => (
            text(&|text| digits(text.strip_prefix("0x").unwrap_or(text))),
            "64 lower-case hex digits, after 0x on EVM chains",
        ),
        "taproot_assets_proof" => {
            (text(&|text| text.parse::<Hash>().is_ok()), "the sha256: hash of the proof file")
        }
        "ledger_transfer" => return transfer_problem(value),
        other => {
            let short = crate::hash::shorten(other);
            return Some(("payment_proof.type", format!("{short:?} is not known")));
        }
    };
    (!fits).then(|| (VALUE, format!("must be {wanted}")))
}

fn is_cashu_token(text: &str) -> bool {
    let body = text.strip_prefix("cashuA").or_else(|| text.strip_prefix("cashuB"));
    let base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'=');
    body.is_some_and(|body| !body.is_empty() && body.bytes().all(base64))
}

fn transfer_problem(value: &Doc<'_>) -> Option<(&'static str, String)> {
    let Doc::Object(members) = value else {
        return Some(("payment_proof.value", "must be an object".to_owned()));
    };
    if members.len() > 2 {
        let message = "must hold transfer_id and ledger_head only".to_owned();
        return Some(("payment_proof.value", message));
    }
    let member = |field: &'static str, key, form: Form| match text_at(value, key) {
        None => Some((field, "must be a text".to_owned())),
        Some(text) => form(text).err().map(|message| (field, message)),
    };
    member("payment_proof.value.transfer_id", "transfer_id", name)
        .or_else(|| member("payment_proof.value.ledger_head", "ledger_head", reads::<Hash>))
}

/// The fields that state the amount agree.
pub(crate) fn amounts(doc: &Doc<'_>) -> Option<Vec<Problem>> {
    let differs = |field: &str, message: &str| Problem::new(&code::AMOUNT, message).at(field);
    let mut problems = Vec::new();
    let units = integer_at(doc, "amount.units");
    let asset_id = text_at(doc, "amount.asset_id")?;
    if text_at(doc, "asset_id") != Some(asset_id) {
        problems.push(differs("asset_id", "differs from amount.asset_id"));
    }
    let msat = AssetId::new(asset_id).ok()?.is_msat();
    match integer_at(doc, "amount_msats") {
        None if msat => problems.push(differs("amount_msats", "is missing: the asset is msat")),
        Some(_) if !msat => {
            problems.push(differs("amount_msats", "must be absent: the asset is not msat"));
        }
        msats if msat && msats != units => {
            problems.push(differs("amount_msats", "differs from amount.units"));
        }
        _ => {}
    }
    Some(problems)
}

/// Rail, asset and proof belong together.
pub(crate) fn rails(doc: &Doc<'_>) -> Option<Vec<Problem>> {
    let rail = Rail::from_word(text_at(doc, "rail")?)?;
    let asset = AssetId::new(text_at(doc, "amount.asset_id")?).ok()?;
    let mut problems = Vec::new();
    if !rail.carries(&asset) {
        let message = format!("{} does not move {asset}", rail.as_str());
        problems.push(Problem::new(&code::RAIL, message).at("rail"));
    }
    let proof_type = text_at(doc, "payment_proof.type");
    if proof_type.is_some_and(|proof_type| proof_type != rail.proof_type()) {
        let message = format!("{} is proved by {}", rail.as_str(), rail.proof_type());
        problems.push(Problem::new(&code::RAIL, message).at("payment_proof.type"));
    }
    Some(problems)
}

/// The status agrees with verdict, proof and job.
pub(super) fn statuses(doc: &Doc<'_>) -> Option<Vec<Problem>> {
    let there = |field| at(doc, field).is_some_and(|value| *value != Doc::Null);
    let status = Status::from_word(text_at(doc, "status")?)?;
    let (job, verdict) = (there("job_hash"), there("verdict_hash"));
    let settled = matches!(status, Status::Released | Status::Withheld);
    let rules = [
        (there("request_id") && !job, "job_hash", "is null although a request is named"),
        (verdict && !job, "verdict_hash", "judges a job, and job_hash is null"),
        (settled && job && !verdict, "verdict_hash", "is null although the job was settled"),
        (
            status == Status::Prepaid && verdict,
            "verdict_hash",
            "must be null: the money was paid before the work",
        ),
        (
            status != Status::Withheld && !there("payment_proof"),
            "payment_proof",
            "is null although money moved",
        ),
    ];
    let broken = rules.into_iter().filter(|(broken, _, _)| *broken);
    Some(broken.map(|(_, field, message)| Problem::new(&code::STATUS, message).at(field)).collect())
}
