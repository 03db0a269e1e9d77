//! The lines of an export, read strictly.

use std::borrow::Cow;

use guild_protocol::amount::AssetId;
use guild_protocol::hash::Hash;
use guild_protocol::json::{Doc, Limits};

use super::finding::Refusal;
use super::{MAX_LINE_BYTES, code};

/// The 32 bytes of an account id.
pub(super) type AccountKey = [u8; 32];
/// The 16 bytes of a transfer id.
pub(super) type TransferKey = [u8; 16];

pub(super) type Read<T> = Result<T, Refusal>;

const NAME_MAX_BYTES: usize = 200;
const LETS_THROUGH_MAX: usize = 32;

/// A line that is what it says.
#[derive(Debug)]
pub(super) enum Record<'a> {
    Export { schema_version: &'a str },
    Account(Opened<'a>),
    Rule(Rule<'a>),
    Transfer(Transfer<'a>),
    Head { hash: Hash, last_seq: i64 },
    Balance { account: AccountKey, counters: Counters },
    End { head: Hash, last_seq: i64 },
}

#[derive(Debug)]
pub(super) struct Opened<'a> {
    pub(super) account: AccountKey,
    pub(super) owner: &'a str,
    pub(super) purpose: &'a str,
    pub(super) asset_id: &'a str,
    pub(super) limit: Limit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    NeverNegative,
    NeverPositive,
    None,
}

#[derive(Debug)]
pub(super) struct Rule<'a> {
    pub(super) account: AccountKey,
    pub(super) credit_units: Option<i128>,
    pub(super) gate: Option<Gate<'a>>,
}

#[derive(Debug)]
pub(super) struct Gate<'a> {
    pub(super) reserve_units: i128,
    pub(super) lets_through: Vec<&'a str>,
}

#[derive(Debug)]
pub(super) struct Transfer<'a> {
    pub(super) transfer: TransferKey,
    pub(super) step: Step,
    pub(super) debit: AccountKey,
    pub(super) credit: AccountKey,
    /// Not checked yet: it may be any number.
    pub(super) units: i128,
    pub(super) memo: &'a str,
    pub(super) at_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Post,
    Hold { expires_ms: i64 },
    Settle { hold: TransferKey },
    Void { hold: TransferKey },
    Expire { hold: TransferKey },
}

impl Step {
    pub(super) fn word(self) -> &'static str {
        match self {
            Step::Post => "post",
            Step::Hold { .. } => "hold",
            Step::Settle { .. } => "settle",
            Step::Void { .. } => "void",
            Step::Expire { .. } => "expire",
        }
    }

    pub(super) fn hold(self) -> Option<TransferKey> {
        match self {
            Step::Post | Step::Hold { .. } => None,
            Step::Settle { hold } | Step::Void { hold } | Step::Expire { hold } => Some(hold),
        }
    }

    pub(super) fn expires_ms(self) -> Option<i64> {
        match self {
            Step::Hold { expires_ms } => Some(expires_ms),
            _ => None,
        }
    }
}

/// What has gone through an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) credits_pending: i128,
    pub(super) credits_posted: i128,
    pub(super) debits_pending: i128,
    pub(super) debits_posted: i128,
}

/// The JSON of a line, without its line feed.
pub(super) fn parse(line: &[u8]) -> Read<Doc<'_>> {
    if line.len() >= MAX_LINE_BYTES {
        return Err(form(format!("is longer than {MAX_LINE_BYTES} bytes")));
    }
    let limits = Limits { max_bytes: MAX_LINE_BYTES, ..Limits::default() };
    Doc::parse_within(line, limits).map_err(|error| form(format!("is not strict JSON: {error}")))
}

/// The number of a record, whatever else is wrong with it.
pub(super) fn seq_of(doc: &Doc<'_>) -> Option<i64> {
    doc.get("seq").and_then(|seq| integer("seq", seq).ok())
}

impl<'a> Record<'a> {
    pub(super) fn of(doc: &'a Doc<'a>) -> Read<Record<'a>> {
        match doc.get("record") {
            Some(Doc::Text(kind)) => match kind.as_ref() {
                "export" => export(doc),
                "account" => account(doc),
                "rule" => rule(doc),
                "transfer" => transfer(doc),
                "head" => {
                    let [hash, last_seq, _] = fields(doc, ["hash", "last_seq", "record"])?;
                    let hash = head("hash", hash)?;
                    Ok(Record::Head { hash, last_seq: integer("last_seq", last_seq)? })
                }
                "balance" => balance(doc),
                "end" => {
                    let [hash, last_seq, _] = fields(doc, ["head", "last_seq", "record"])?;
                    let head = head("head", hash)?;
                    Ok(Record::End { head, last_seq: integer("last_seq", last_seq)? })
                }
                other => Err(form(format!("is a record of no known kind: {}", quoted(other)))),
            },
            _ => Err(form("has no field `record` that says what it is")),
        }
    }
}

fn export<'a>(doc: &'a Doc<'a>) -> Read<Record<'a>> {
    let [_, schema_version] = fields(doc, ["record", "schema_version"])?;
    Ok(Record::Export { schema_version: text("schema_version", schema_version)? })
}

fn account<'a>(doc: &'a Doc<'a>) -> Read<Record<'a>> {
    let [id, asset_id, at_ms, limit, owner, purpose, _, seq] = fields(
        doc,
        ["account_id", "asset_id", "at_ms", "limit", "owner", "purpose", "record", "seq"],
    )?;
    time("at_ms", at_ms)?;
    integer("seq", seq)?;
    let asset_id = text("asset_id", asset_id)?;
    AssetId::new(asset_id).map_err(|error| form(error.message()))?;
    let limit = match text("limit", limit)? {
        "never_negative" => Limit::NeverNegative,
        "never_positive" => Limit::NeverPositive,
        "none" => Limit::None,
        other => return Err(form(format!("knows no limit {}", quoted(other)))),
    };
    Ok(Record::Account(Opened {
        account: account_key("account_id", id)?,
        owner: plain("owner", owner)?,
        purpose: plain("purpose", purpose)?,
        asset_id,
        limit,
    }))
}

fn rule<'a>(doc: &'a Doc<'a>) -> Read<Record<'a>> {
    let [id, at_ms, credit_units, gate, _, seq] =
        fields(doc, ["account_id", "at_ms", "credit_units", "gate", "record", "seq"])?;
    time("at_ms", at_ms)?;
    integer("seq", seq)?;
    let credit_units = match credit_units {
        Doc::Null => None,
        said => Some(not_negative("credit_units", said)?),
    };
    let gate = match gate {
        Doc::Null => None,
        said => {
            let [lets_through, reserve_units] = fields(said, ["lets_through", "reserve_units"])?;
            let Doc::Array(purposes) = lets_through else {
                return Err(form("has a `lets_through` that is no list"));
            };
            if purposes.len() > LETS_THROUGH_MAX {
                let message =
                    format!("has more than {LETS_THROUGH_MAX} purposes in `lets_through`");
                return Err(form(message));
            }
            let lets_through =
                purposes.iter().map(|p| plain("lets_through", p)).collect::<Read<_>>()?;
            Some(Gate {
                reserve_units: not_negative("reserve_units", reserve_units)?,
                lets_through,
            })
        }
    };
    Ok(Record::Rule(Rule { account: account_key("account_id", id)?, credit_units, gate }))
}

const TRANSFER: [&str; 11] = [
    "at_ms",
    "credit",
    "debit",
    "expires_ms",
    "hold",
    "memo",
    "record",
    "seq",
    "step",
    "transfer_id",
    "units",
];

fn transfer<'a>(doc: &'a Doc<'a>) -> Read<Record<'a>> {
    let [at_ms, credit, debit, expires_ms, hold, memo, _, seq, step, id, amount] =
        fields(doc, TRANSFER)?;
    integer("seq", seq)?;
    let step = match (text("step", step)?, hold, expires_ms) {
        ("post", Doc::Null, Doc::Null) => Step::Post,
        ("hold", Doc::Null, at) => Step::Hold { expires_ms: time("expires_ms", at)? },
        ("settle", hold, Doc::Null) => Step::Settle { hold: transfer_key("hold", hold)? },
        ("void", hold, Doc::Null) => Step::Void { hold: transfer_key("hold", hold)? },
        ("expire", hold, Doc::Null) => Step::Expire { hold: transfer_key("hold", hold)? },
        ("post" | "settle" | "void" | "expire", _, _) => {
            return Err(form("has a `hold` or `expires_ms` that its step does not take"));
        }
        (other, _, _) => return Err(form(format!("knows no step {}", quoted(other)))),
    };
    Ok(Record::Transfer(Transfer {
        transfer: transfer_key("transfer_id", id)?,
        step,
        debit: account_key("debit", debit)?,
        credit: account_key("credit", credit)?,
        units: units("units", amount)?,
        memo: plain("memo", memo)?,
        at_ms: time("at_ms", at_ms)?,
    }))
}

fn balance<'a>(doc: &'a Doc<'a>) -> Read<Record<'a>> {
    let [id, credits_pending, credits_posted, debits_pending, debits_posted, _] = fields(
        doc,
        [
            "account_id",
            "credits_pending",
            "credits_posted",
            "debits_pending",
            "debits_posted",
            "record",
        ],
    )?;
    Ok(Record::Balance {
        account: account_key("account_id", id)?,
        counters: Counters {
            credits_pending: units("credits_pending", credits_pending)?,
            credits_posted: units("credits_posted", credits_posted)?,
            debits_pending: units("debits_pending", debits_pending)?,
            debits_posted: units("debits_posted", debits_posted)?,
        },
    })
}

/// The values of exactly these fields; `keys` are in canonical order, as the members of a [`Doc`] are.
fn fields<'d, 'a, const N: usize>(doc: &'d Doc<'a>, keys: [&str; N]) -> Read<[&'d Doc<'a>; N]> {
    let Doc::Object(members) = doc else {
        return Err(form("holds something else where an object is wanted"));
    };
    let known = |key: &Cow<'_, str>| keys.contains(&key.as_ref());
    if let Some((unknown, _)) = members.iter().find(|(key, _)| !known(key)) {
        return Err(form(format!("has a field {} that is not known", quoted(unknown))));
    }
    if members.len() != N {
        let missing = keys.iter().find(|key| doc.get(key).is_none());
        return Err(form(format!("has no field `{}`", missing.unwrap_or(&"?"))));
    }
    // All known, none twice, as many as there are keys: they are the keys, in the same order.
    Ok(std::array::from_fn(|i| members.get(i).map_or(&Doc::Null, |(_, value)| value)))
}

pub(super) fn form(message: impl Into<String>) -> Refusal {
    Refusal::new(&code::FORM, message)
}

/// What a stranger wrote, never more than a few words of it.
pub(super) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
    }
}

pub(super) fn text<'d>(field: &str, doc: &'d Doc<'_>) -> Read<&'d str> {
    match doc {
        Doc::Text(text) => Ok(text),
        _ => Err(form(format!("has a `{field}` that is no text"))),
    }
}

/// Text that a person may see, and that cannot hold a line feed.
pub(super) fn plain<'d>(field: &str, doc: &'d Doc<'_>) -> Read<&'d str> {
    let text = text(field, doc)?;
    if text.is_empty() || text.len() > NAME_MAX_BYTES || text.chars().any(char::is_control) {
        let message =
            format!("has a `{field}` that is not 1 to {NAME_MAX_BYTES} bytes of plain text");
        return Err(form(message));
    }
    Ok(text)
}

pub(super) fn integer(field: &str, doc: &Doc<'_>) -> Read<i64> {
    let number = match doc {
        Doc::Number(written) => written.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| form(format!("has a `{field}` that is no integer")))
}

/// A time of the ledger. JSON itself ends at 2^53.
fn time(field: &str, doc: &Doc<'_>) -> Read<i64> {
    let at_ms = integer(field, doc)?;
    if at_ms < 0 {
        return Err(form(format!("has a `{field}` before 1970")));
    }
    Ok(at_ms)
}

/// A whole number as text, of any size; what does not fit is as large as a number can be.
pub(super) fn units(field: &str, doc: &Doc<'_>) -> Read<i128> {
    let refused = || form(format!("has a `{field}` that is no whole number in a text"));
    let Doc::Text(text) = doc else { return Err(refused()) };
    let digits = text.strip_prefix('-').unwrap_or(text);
    let whole = digits.bytes().all(|b| b.is_ascii_digit());
    if digits.is_empty() || !whole || (digits.starts_with('0') && text != "0") {
        return Err(refused());
    }
    let beyond = if text.starts_with('-') { i128::MIN } else { i128::MAX };
    Ok(text.parse().unwrap_or(beyond))
}

fn not_negative(field: &str, doc: &Doc<'_>) -> Read<i128> {
    let units = units(field, doc)?;
    if (0..=i128::from(i64::MAX)).contains(&units) {
        return Ok(units);
    }
    let message = format!("{field} is {units}, not between 0 and {}", i64::MAX);
    Err(Refusal::new(&code::AMOUNT, message))
}

fn head(field: &str, doc: &Doc<'_>) -> Read<Hash> {
    text(field, doc)?.parse().map_err(|_| {
        form(format!("has a `{field}` that is not sha256: and 64 lower-case hex digits"))
    })
}

pub(super) fn account_key(field: &str, doc: &Doc<'_>) -> Read<AccountKey> {
    let text = text(field, doc)?;
    key("acct_", text).ok_or_else(|| bad_id(field, text))
}

pub(super) fn transfer_key(field: &str, doc: &Doc<'_>) -> Read<TransferKey> {
    let text = text(field, doc)?;
    key("xfer_", text).ok_or_else(|| bad_id(field, text))
}

/// The bytes of a transfer id, if it is one.
pub(super) fn transfer_key_of(text: &str) -> Option<TransferKey> {
    key("xfer_", text)
}

fn bad_id(field: &str, text: &str) -> Refusal {
    Refusal::new(&code::ID, format!("the {field} {} has not the form of its ids", quoted(text)))
}

fn key<const N: usize>(prefix: &str, text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.strip_prefix(prefix)?.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let nibble = |b: u8| match b {
        b'0'..=b'9' => b.checked_sub(b'0'),
        b'a'..=b'f' => b.checked_sub(b'a')?.checked_add(10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = (nibble(*high)? << 4) | nibble(*low)?;
    }
    Some(bytes)
}

/// The text of an account id.
pub(super) fn account_text(key: &AccountKey) -> String {
    format!("acct_{}", guild_protocol::hash::to_hex(key))
}

/// The text of a transfer id.
pub(super) fn transfer_text(key: &TransferKey) -> String {
    format!("xfer_{}", guild_protocol::hash::to_hex(key))
}
