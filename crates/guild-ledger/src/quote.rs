//! Quotes: a payment is decided by the policy first, approved by a guardian if it must be, and then reserved.
//!
//! | from | to | when |
//! |---|---|---|
//! | | `quoted` | [`make`]: the policy asks a guardian |
//! | | `approved`, `denied` | [`make`]: the policy decides by itself |
//! | `quoted` | `approved`, `denied` | [`approve`]: the guardian has signed |
//! | `quoted` | `denied` | nobody approved before it ran out |
//! | `approved` | `reserved` | [`reserve`], once; the same again gives the same answer |
//! | `approved` | `expired` | nobody reserved before it ran out |
//!
//! A quote stands under the policy by which it was decided, even if the node has another one by now. What it is about
//! is one canonical JSON document ([`Terms::to_canonical`]); its hash is what a guardian signs.

use guild_protocol::amount::Amount;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::receipt::Rail;
use guild_protocol::schema::SchemaId;
use guild_protocol::typed_id;
use guild_store::{Error as StoreError, Migration, Rx, Sql, Tx, args};

use crate::account::AccountId;
use crate::error::code as ledger_code;
use crate::history::PAGE_MAX;
use crate::policy::{Action, Asked, Bundle, Decision, PolicyBundleId, Tier, decide};
use crate::transfer::{NewTransfer, Step, TransferId};
use crate::{Error, Result};

mod approval;
mod document;

pub use approval::{Approval, Verdict};
pub use document::Terms;

/// The codes of this module.
pub mod code {
    guild_protocol::codes! {
        MALFORMED = "quote.malformed", Invalid,
            "A quote runs out in the past or too late, or its subject is empty or too long.",
            "Correct the field named.";
        VERSION = "quote.unknown_version", Invalid,
            "A quote or an approval has a schema_version that this program does not know.",
            "Use a newer program, or ask for the version named.";
        UNKNOWN = "quote.unknown", NotFound,
            "There is no such quote.", "Copy the id whole, or make a new quote.";
        CONFLICT = "quote.conflict", Conflict,
            "A quote with this id exists, with other content.", "Make a new id for a new quote.";
        EXPIRED = "quote.expired", Conflict,
            "The quote has run out.", "Make a new quote.";
        DENIED = "quote.denied", Denied,
            "The policy or the guardian has denied this payment.",
            "Pay less, choose another provider, or change the policy; then make a new quote.";
        NOT_APPROVED = "quote.not_approved", Conflict,
            "The quote waits for its guardian.", "Have the key named approve it before it runs out.";
        NO_GUARDIAN = "quote.no_guardian", Conflict,
            "The policy decided this quote without a guardian, so there is nothing to approve.",
            "Reserve it if it is approved; make a new quote if it is denied.";
        DECIDED = "quote.decided", Conflict,
            "The guardian has decided already, and otherwise.", "Make a new quote.";
        WRONG_GUARDIAN = "quote.wrong_guardian", Denied,
            "The approval is not signed by the key that the policy names.",
            "Have it signed by the guardian named.";
        WRONG_QUOTE = "quote.wrong_quote", Invalid,
            "The approval names another quote, or other content of it.",
            "Show the guardian the quote as it is, and have that signed.";
    }
}

/// The longest time for which a quote stands, and for which its money is held after that: 30 days.
pub const MAX_LIFETIME_MS: i64 = 30 * 24 * 3_600 * 1_000;
/// The most bytes of a subject.
pub const MAX_SUBJECT_BYTES: usize = 500;

/// What the hold of a reserved quote is booked for.
const MEMO: &str = "quote.hold";

typed_id! {
    /// Names a quote. Made before it is asked for, so that asking again is asking for the same quote.
    QuoteId = "quote", made;
}

/// A payment for which a quote is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewQuote {
    /// Names it.
    pub quote_id: QuoteId,
    /// Who pays.
    pub debit: AccountId,
    /// Who is paid, if it is settled.
    pub credit: AccountId,
    /// How much.
    pub amount: Amount,
    /// What for, in words that a guardian understands.
    pub subject: String,
    /// How far the provider is trusted.
    pub provider_tier: Tier,
    /// The kind of work, if it has a schema.
    pub schema_id: Option<SchemaId>,
    /// What is to move the money.
    pub rail: Rail,
    /// Until when it can be approved and reserved.
    pub expires_ms: UnixMs,
    /// Until when the money is held once it is reserved: long enough for the work and its verification.
    pub hold_until_ms: UnixMs,
}

impl NewQuote {
    fn asked(&self) -> Asked {
        Asked {
            amount: self.amount.clone(),
            provider_tier: self.provider_tier,
            schema_id: self.schema_id.clone(),
            rail: self.rail,
        }
    }

    fn check(&self, now_ms: UnixMs) -> Result<()> {
        let malformed = |message: String| Err(Error::refused(&code::MALFORMED, message));
        let subject = &self.subject;
        if subject.is_empty()
            || subject.len() > MAX_SUBJECT_BYTES
            || subject.chars().any(|c| c.is_control() || misleads(c))
        {
            return malformed(format!(
                "subject must be 1 to {MAX_SUBJECT_BYTES} bytes of plain text"
            ));
        }
        let latest_ms = |from_ms: UnixMs| from_ms.saturating_add(MAX_LIFETIME_MS);
        if self.expires_ms <= now_ms || self.expires_ms > latest_ms(now_ms) {
            return malformed("expires_ms must be in the future, by at most 30 days".to_owned());
        }
        if self.hold_until_ms <= self.expires_ms || self.hold_until_ms > latest_ms(self.expires_ms)
        {
            return malformed(
                "hold_until_ms must be after expires_ms, by at most 30 days".to_owned(),
            );
        }
        if self.amount.units < 1 {
            return Err(Error::refused(&ledger_code::BAD_AMOUNT, "a quote is for at least 1 unit"));
        }
        if self.debit == self.credit {
            let message = format!("{} is on both sides", self.debit);
            return Err(Error::refused(&ledger_code::SAME_ACCOUNT, message));
        }
        if !self.rail.carries(&self.amount.asset_id) {
            let (rail, asset_id) = (self.rail.as_str(), &self.amount.asset_id);
            let message = format!("the rail {rail} does not move {asset_id}");
            return Err(Error::refused(&ledger_code::WRONG_ASSET, message));
        }
        Ok(())
    }
}

/// Whether a character makes a text look like another one to the guardian who reads it: it changes the direction of
/// what follows, or ends the line.
fn misleads(c: char) -> bool {
    matches!(
        c,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Where a quote stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It waits for its guardian.
    Quoted,
    /// It can be reserved.
    Approved,
    /// It was refused, by the policy, by the guardian, or because the guardian did not answer in time.
    Denied,
    /// Its money is held, or may be at any time.
    Reserved,
    /// It was approved, and ran out before anybody reserved it.
    Expired,
}

impl State {
    /// All of them.
    pub const ALL: [State; 5] =
        [State::Quoted, State::Approved, State::Denied, State::Reserved, State::Expired];

    /// The word in the database and in exports.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Quoted => "quoted",
            State::Approved => "approved",
            State::Denied => "denied",
            State::Reserved => "reserved",
            State::Expired => "expired",
        }
    }
}

/// A quote as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    /// What it is about, and how it was decided: never changed.
    pub terms: Terms,
    /// The hash of the terms: what a guardian signs.
    pub quote_hash: Hash,
    /// Where it stands, as last written; see [`Quote::state_at`].
    pub state: State,
    /// When that was written.
    pub changed_ms: UnixMs,
    /// What the guardian signed, if a guardian has decided.
    pub approval: Option<Approval>,
    /// The transfer that holds its money, if it is reserved.
    pub transfer_id: Option<TransferId>,
}

impl Quote {
    /// Where it stands at this moment, whether or not somebody has written it down yet.
    pub fn state_at(&self, now_ms: UnixMs) -> State {
        let due = now_ms >= self.terms.wanted.expires_ms;
        match self.state {
            State::Quoted if due => State::Denied,
            State::Approved if due => State::Expired,
            state => state,
        }
    }

    /// The id of the transfer that holds its money: made from what the quote is.
    fn hold_id(&self) -> TransferId {
        TransferId::named(self.terms.made_ms, &["quote.hold", self.terms.wanted.quote_id.as_str()])
    }

    fn reservation(self) -> Result<Reservation> {
        let NewQuote { debit, credit, amount, hold_until_ms, .. } = self.terms.wanted.clone();
        let hold = Step::Hold { debit, credit, amount, expires_ms: hold_until_ms };
        Ok(Reservation {
            hold: NewTransfer::new(self.hold_id(), hold, MEMO)?,
            policy_bundle_id: self.terms.policy_bundle_id.clone(),
            approval_rule_id: self.terms.decision.approval_rule_id.clone(),
            quote: self,
        })
    }
}

/// What the holder of an approved quote may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Books the hold. To be booked in the transaction that reserved.
    pub hold: NewTransfer,
    /// For the receipt.
    pub policy_bundle_id: PolicyBundleId,
    /// For the receipt: the rule that decided; none if the cap did.
    pub approval_rule_id: Option<String>,
    /// The quote.
    pub quote: Quote,
}

/// The tables of quotes.
pub(crate) fn migration() -> Migration {
    Migration {
        area: "ledger",
        number: 3,
        name: "quotes",
        sql: Sql {
            lite: include_str!("../migrations/sqlite/0003_quotes.sql"),
            pg: include_str!("../migrations/postgres/0003_quotes.sql"),
        },
    }
}

/// Makes a quote and decides it by the policy. The same again gives the quote as it stands, whatever the policy says
/// by now.
pub fn make(tx: &mut Tx<'_>, wanted: &NewQuote, bundle: &Bundle, now_ms: UnixMs) -> Result<Quote> {
    if let Some(known) = find(tx, &wanted.quote_id)? {
        if known.terms.wanted == *wanted {
            return Ok(known);
        }
        let message = format!("{} exists with other content", wanted.quote_id);
        return Err(Error::refused(&code::CONFLICT, message));
    }
    wanted.check(now_ms)?;
    check_accounts(tx, wanted)?;
    let decision = decide(bundle, &wanted.asked());
    let state = match decision.action {
        Action::Auto => State::Approved,
        Action::Guardian(_) => State::Quoted,
        Action::Deny => State::Denied,
    };
    let policy_bundle_id = bundle.policy_bundle_id().clone();
    let terms = Terms { wanted: wanted.clone(), made_ms: now_ms, policy_bundle_id, decision };
    let document = terms.to_canonical()?;
    let quote_hash = Hash::of(document.as_bytes());
    tx.exec(
        "INSERT INTO ledger_policy_bundle (policy_bundle_id, document, first_used_ms) VALUES ($1, $2, $3)
         ON CONFLICT (policy_bundle_id) DO NOTHING",
        args![terms.policy_bundle_id.as_str(), bundle.canonical(), now_ms],
    )?;
    tx.exec(
        "INSERT INTO ledger_quote (quote_id, document, quote_hash, policy_bundle_id, expires_ms, state, changed_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        args![
            wanted.quote_id.as_str(),
            &document,
            &quote_hash.to_string(),
            terms.policy_bundle_id.as_str(),
            wanted.expires_ms,
            state.as_str(),
            now_ms
        ],
    )?;
    Ok(Quote { terms, quote_hash, state, changed_ms: now_ms, approval: None, transfer_id: None })
}

/// Both accounts must be there and count what is quoted.
fn check_accounts(rx: &mut Rx<'_>, wanted: &NewQuote) -> Result<()> {
    for account_id in [&wanted.debit, &wanted.credit] {
        let sql = "SELECT asset_id FROM ledger_account WHERE account_id = $1";
        let Some((asset_id,)) = rx.first::<(String,)>(sql, args![account_id.as_str()])? else {
            let message = format!("there is no account {account_id}");
            return Err(Error::refused(&ledger_code::UNKNOWN_ACCOUNT, message));
        };
        if asset_id != wanted.amount.asset_id.as_str() {
            let message = format!("{account_id} counts {asset_id}, not {}", wanted.amount.asset_id);
            return Err(Error::refused(&ledger_code::WRONG_ASSET, message));
        }
    }
    Ok(())
}

/// Takes the guardian's signed decision. The same decision again gives the quote as it stands.
pub fn approve(
    tx: &mut Tx<'_>,
    quote_id: &QuoteId,
    approval: &Approval,
    now_ms: UnixMs,
) -> Result<Quote> {
    let quote = get(tx, quote_id)?;
    approval.check(&quote.terms)?;
    if let Some(first) = &quote.approval {
        if first.verdict == approval.verdict {
            return Ok(quote);
        }
        let message = format!("{} has decided: {}", first.key, first.verdict.as_str());
        return Err(Error::refused(&code::DECIDED, message));
    }
    let state = match approval.verdict {
        Verdict::Approve => State::Approved,
        Verdict::Deny => State::Denied,
    };
    let changed = tx.exec(
        "UPDATE ledger_quote SET state = $2, approval = $3, changed_ms = $4
         WHERE quote_id = $1 AND state = 'quoted' AND expires_ms > $4",
        args![quote_id.as_str(), state.as_str(), &approval.to_canonical()?, now_ms],
    )?;
    if changed == 1 { get(tx, quote_id) } else { Err(ran_out(&quote)) }
}

fn ran_out(quote: &Quote) -> Error {
    let NewQuote { quote_id, expires_ms, .. } = &quote.terms.wanted;
    Error::refused(&code::EXPIRED, format!("{quote_id} ran out at {expires_ms}"))
}

/// Reserves an approved quote: what its holder may book, and what its receipt must name. Only one transfer can ever
/// come of a quote; the same again gives the same answer, also after the quote has run out.
pub fn reserve(tx: &mut Tx<'_>, quote_id: &QuoteId, now_ms: UnixMs) -> Result<Reservation> {
    let quote = get(tx, quote_id)?;
    match quote.state_at(now_ms) {
        State::Reserved => return quote.reservation(),
        State::Approved => quote.check_approved()?,
        State::Expired => return Err(ran_out(&quote)),
        State::Quoted => {
            let who = quote.terms.decision.action.guardian_key().map(ToString::to_string);
            let message = format!("{quote_id} waits for {}", who.unwrap_or_default());
            return Err(Error::refused(&code::NOT_APPROVED, message));
        }
        State::Denied => return Err(Error::refused(&code::DENIED, quote.why_denied())),
    }
    tx.cas(
        "UPDATE ledger_quote SET state = 'reserved', transfer_id = $2, changed_ms = $3
         WHERE quote_id = $1 AND state = 'approved' AND expires_ms > $3",
        args![quote_id.as_str(), quote.hold_id().as_str(), now_ms],
    )?;
    get(tx, quote_id)?.reservation()
}

impl Quote {
    /// A word in a row pays nothing: what the policy did not allow by itself needs the guardian's signature.
    fn check_approved(&self) -> Result<()> {
        match (&self.terms.decision.action, &self.approval) {
            (Action::Auto, _) => Ok(()),
            (Action::Guardian(_), Some(approval)) if approval.verdict == Verdict::Approve => {
                approval.check(&self.terms)
            }
            _ => Err(unreadable("a quote is approved that nobody has approved")),
        }
    }

    fn why_denied(&self) -> String {
        match (&self.approval, self.terms.decision.action.guardian_key()) {
            (Some(approval), _) => format!("{} has denied it", approval.key),
            (None, Some(guardian)) => format!("{guardian} did not approve it in time"),
            (None, None) => self.terms.decision.why.clone(),
        }
    }
}

/// Writes down which quotes have run out, at most `limit` of them (and [`PAGE_MAX`]); how many there were.
pub fn expire(tx: &mut Tx<'_>, now_ms: UnixMs, limit: i64) -> Result<u64> {
    let changed = tx.exec(
        "UPDATE ledger_quote SET state = CASE state WHEN 'quoted' THEN 'denied' ELSE 'expired' END, changed_ms = $1
         WHERE quote_id IN (SELECT quote_id FROM ledger_quote
           WHERE state IN ('quoted', 'approved') AND expires_ms <= $1 ORDER BY expires_ms LIMIT $2)",
        args![now_ms, limit.clamp(0, PAGE_MAX)],
    )?;
    Ok(changed)
}

/// The quote with this id.
pub fn get(rx: &mut Rx<'_>, quote_id: &QuoteId) -> Result<Quote> {
    find(rx, quote_id)?
        .ok_or_else(|| Error::refused(&code::UNKNOWN, format!("there is no {quote_id}")))
}

/// The policy bundle that a quote or its receipt names, if a quote was ever decided by it.
pub fn bundle(rx: &mut Rx<'_>, policy_bundle_id: &PolicyBundleId) -> Result<Option<Bundle>> {
    let sql = "SELECT document FROM ledger_policy_bundle WHERE policy_bundle_id = $1";
    let Some((document,)) = rx.first::<(String,)>(sql, args![policy_bundle_id.as_str()])? else {
        return Ok(None);
    };
    let bundle = Bundle::parse(document.as_bytes()).map_err(unreadable)?;
    if bundle.policy_bundle_id() != policy_bundle_id {
        return Err(unreadable(format!("{policy_bundle_id} has other content")));
    }
    Ok(Some(bundle))
}

type Row = (String, String, String, i64, Option<String>, Option<String>);

/// The quote with this id, if there is one.
pub fn find(rx: &mut Rx<'_>, quote_id: &QuoteId) -> Result<Option<Quote>> {
    let row: Option<Row> = rx.first(
        "SELECT document, quote_hash, state, changed_ms, approval, transfer_id
         FROM ledger_quote WHERE quote_id = $1",
        args![quote_id.as_str()],
    )?;
    row.map(read).transpose()
}

fn read((document, quote_hash, state, changed_ms, approval, transfer_id): Row) -> Result<Quote> {
    let quote_hash: Hash = quote_hash.parse().map_err(unreadable)?;
    if Hash::of(document.as_bytes()) != quote_hash {
        return Err(unreadable("the document of a quote does not have its hash"));
    }
    let state = State::ALL.into_iter().find(|known| known.as_str() == state);
    Ok(Quote {
        terms: Terms::parse(document.as_bytes()).map_err(unreadable)?,
        quote_hash,
        state: state.ok_or_else(|| unreadable("a quote has an unknown state"))?,
        changed_ms,
        approval: approval
            .map(|text| Approval::parse(text.as_bytes()))
            .transpose()
            .map_err(unreadable)?,
        transfer_id: transfer_id.map(|id| id.parse()).transpose().map_err(unreadable)?,
    })
}

fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::Store(StoreError::Decode(error.to_string()))
}

/// A refusal of the bytes themselves.
fn refused(error: guild_protocol::Error) -> Error {
    Error::refused(error.code(), error.to_string())
}
