//! `guild disputes`

use clap::builder::PossibleValuesParser;
use guild_protocol::hash::Hash;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_roles::disputes::{
    Answer as Said, DisputeId, Disputes, Filing, Outcome, Reason, Reference, summary,
};
use guild_roles::explorer::{DisputeDetail, DisputeView, SaidView};
use serde_json::{Value, json};

use super::Context;
use super::reading::{self, ListArgs};
use super::table::Column;
use crate::client::{Client, write_through};
use crate::error::{Error, Result, code};
use crate::node;
use crate::output::Answer;

/// Disagree with the other side about a result: say why, answer, decide
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(LsArgs),
    Show(ShowArgs),
    File(FileArgs),
    Answer(AnswerArgs),
    Resolve(ResolveArgs),
}

/// List disputes, those that changed last first
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    list: ListArgs,
}

/// Show a dispute: what both sides say, and what the money did
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Its id, dispute_…
    dispute_id: DisputeId,
}

/// What is said, and what it can be checked by.
#[derive(Debug, clap::Args)]
struct Words {
    /// In words, for the other side and an arbiter to read
    #[arg(long, value_name = "TEXT")]
    statement: Option<String>,
    /// An event, a hash (sha256:…) or a receipt (rcpt_…) that proves it; several times for several
    #[arg(long, value_name = "ID", value_parser = reference)]
    evidence: Vec<Reference>,
    /// The key of whoever may decide; it must be one of the setting market.arbiters
    #[arg(long, value_name = "KEY")]
    arbiter: Option<PublicKey>,
}

/// File a dispute about the result of a request
///
/// As the buyer of it (result_wrong, late, copied, terms, other) or as its provider (verdict_wrong, not_paid, late,
/// terms, other). What the node knows of it is named as evidence. While it is open its money stays held. Work that can
/// be checked again is checked at once, and that decides. Filed again it is the same.
#[derive(Debug, clap::Args)]
pub(crate) struct FileArgs {
    /// The id of the request
    request_id: EventId,
    /// Why
    #[arg(long, value_parser = PossibleValuesParser::new(Reason::ALL.iter().map(|one| one.as_str())))]
    reason: String,
    #[command(flatten)]
    words: Words,
}

/// Answer a dispute, or add to what was said
#[derive(Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    /// Its id, dispute_…
    dispute_id: DisputeId,
    #[command(flatten)]
    words: Words,
}

/// Decide a dispute: give in, or say as its arbiter who is right
///
/// The buyer gives in by release, the provider by withhold. An arbiter says either; it is named by the key with which
/// its node hires.
#[derive(Debug, clap::Args)]
pub(crate) struct ResolveArgs {
    /// Its id, dispute_…
    dispute_id: DisputeId,
    /// What the money does: release pays the provider, withhold leaves it to the buyer
    #[arg(long, value_parser = PossibleValuesParser::new(Outcome::ALL.iter().map(|one| one.as_str())))]
    outcome: String,
    /// In words
    #[arg(long, value_name = "TEXT")]
    statement: Option<String>,
}

/// What a text names, by its form.
fn reference(text: &str) -> Result<Reference, String> {
    if let Ok(id) = text.parse::<EventId>() {
        return Ok(Reference::Event(id));
    }
    if let Ok(id) = text.parse::<ReceiptId>() {
        return Ok(Reference::Receipt(id));
    }
    text.parse::<Hash>()
        .map(Reference::Hash)
        .map_err(|_| "must be the id of an event, sha256:… or rcpt_…".to_owned())
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Ls(args) => ls(args, cx),
        Command::Show(args) => show(args, cx),
        Command::File(args) => file(args, cx),
        Command::Answer(args) => answer(args, cx),
        Command::Resolve(args) => resolve(args, cx),
    }
}

fn ls(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let page = args.list.page();
    let listed = reading::read(&cx.config()?, |market| async move { market.disputes(page).await })?;
    let columns = [
        Column::Left("dispute"),
        Column::Left("we are"),
        Column::Left("filed by"),
        Column::Left("because of"),
        Column::Left("state"),
        Column::Left("outcome"),
        Column::Right("held msat"),
        Column::Right("moved msat"),
        Column::Left("deadline"),
    ];
    reading::list("disputes", &listed, columns, row, cx)?;
    Ok(Answer::Yes)
}

fn row(dispute: &DisputeView) -> [String; 9] {
    [
        dispute.dispute_id.to_string(),
        dispute.side.to_owned(),
        dispute.filed_by.to_owned(),
        dispute.reason.unwrap_or_default().to_owned(),
        dispute.state.to_owned(),
        dispute.outcome.unwrap_or("-").to_owned(),
        dispute.held_msat.to_string(),
        dispute.moved_msat.to_string(),
        reading::time(dispute.deadline_ms),
    ]
}

fn show(args: &ShowArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let id = args.dispute_id.clone();
    let sides = reading::read(&cx.config()?, |market| async move { market.dispute(id).await })?;
    if sides.is_empty() {
        return Err(reading::unknown("dispute", &args.dispute_id, "disputes"));
    }
    if cx.out.json() {
        cx.out.object(true, json!({ "dispute_id": args.dispute_id, "sides": sides }))?;
        return Ok(Answer::Yes);
    }
    for side in &sides {
        print(side, cx)?;
    }
    Ok(Answer::Yes)
}

fn print(detail: &DisputeDetail, cx: &mut Context<'_>) -> Result<()> {
    let dispute = &detail.dispute;
    let decided = match (dispute.outcome, dispute.by) {
        (Some(outcome), Some(by)) => format!("{outcome}, by {by}"),
        (None, Some(by)) => format!("by {by}; the verdict says what the money does"),
        _ => "not yet".to_owned(),
    };
    let moved = match dispute.pending {
        true => {
            let why = dispute.waits_words.map(|why| format!(": {why}")).unwrap_or_default();
            match dispute.given_up {
                true => format!("given up{why}; say the outcome again to have it tried"),
                false => format!("has not followed yet{why}"),
            }
        }
        false => format!("{} msat", dispute.moved_msat),
    };
    cx.out.fields(&[
        ("dispute", dispute.dispute_id.as_str()),
        ("request", &dispute.request_id.hex()),
        ("we are the", dispute.side),
        ("buyer", &dispute.buyer.npub),
        ("provider", &dispute.provider.npub),
        ("arbiter", dispute.arbiter.as_ref().map_or("", |party| party.npub.as_str())),
        ("filed by the", dispute.filed_by),
        ("because of", dispute.reason.unwrap_or_default()),
        ("state", dispute.state),
        ("began", &reading::time(dispute.opened_ms)),
        ("deadline", &reading::time(dispute.deadline_ms)),
        ("decided", &decided),
        ("held", &format!("{} msat beside what its order holds", dispute.held_msat)),
        ("moved", &moved),
        ("receipt", dispute.receipt_id.as_deref().unwrap_or_default()),
    ])?;
    for said in &detail.said {
        cx.out.line("")?;
        cx.out.line(&line(said))?;
        if let Some(statement) = &said.statement {
            cx.out.line(&format!("  {statement}"))?;
        }
        for reference in &said.evidence {
            cx.out.line(&format!("  {reference}"))?;
        }
    }
    Ok(())
}

fn line(said: &SaidView) -> String {
    let (when, who) = (reading::time(said.at_ms), reading::party(&said.author));
    format!("{when}  {}  {who}  event {}", said.step, said.event_id)
}

fn file(args: &FileArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let reason = Reason::parse(&args.reason).ok_or_else(|| unknown(&args.reason))?;
    let Words { statement, evidence, arbiter } = &args.words;
    let filing = Filing {
        request_id: args.request_id,
        reason,
        statement: statement.clone(),
        evidence: evidence.clone(),
        arbiter: *arbiter,
    };
    let asked = json!({
        "request_id": args.request_id, "reason": args.reason, "statement": statement,
        "evidence": evidence, "arbiter": arbiter,
    });
    let told = through(
        cx,
        |client| client.file_dispute(&asked),
        |role| {
            let filing = filing.clone();
            async move { role.file(filing).await }
        },
    )?;
    tell(&told, cx)
}

fn answer(args: &AnswerArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let Words { statement, evidence, arbiter } = &args.words;
    let asked = json!({ "statement": statement, "evidence": evidence, "arbiter": arbiter });
    let said = Said { statement: statement.clone(), evidence: evidence.clone(), arbiter: *arbiter };
    let id = &args.dispute_id;
    let told = through(
        cx,
        |client| client.dispute(id.as_str(), "answer", &asked),
        |role| {
            let (id, said) = (id.clone(), said.clone());
            async move { role.answer(id, said).await }
        },
    )?;
    tell(&told, cx)
}

fn resolve(args: &ResolveArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let outcome = Outcome::parse(&args.outcome).ok_or_else(|| unknown(&args.outcome))?;
    let asked = json!({ "outcome": args.outcome, "statement": args.statement });
    let id = &args.dispute_id;
    let told = through(
        cx,
        |client| client.dispute(id.as_str(), "resolve", &asked),
        |role| {
            let (id, statement) = (id.clone(), args.statement.clone());
            async move { role.resolve(id, outcome, statement).await }
        },
    )?;
    tell(&told, cx)
}

fn unknown(word: &str) -> Error {
    Error::new(&code::USAGE, format!("{word:?} is no word of a dispute"))
}

/// Through the running node, or directly when none runs: then it leaves with the next one.
fn through<F>(
    cx: &Context<'_>,
    by_node: impl Fn(&Client) -> Result<Value>,
    here: impl Fn(Disputes) -> F,
) -> Result<Value>
where
    F: Future<Output = guild_roles::Result<guild_roles::disputes::Dispute>>,
{
    let loaded = cx.config()?;
    // Where nothing was ordered or done nothing can be disputed, and nothing is made.
    node::require_database(&node::store_options(&loaded))?;
    let environment = cx.environment;
    write_through(&loaded, by_node, |parts, runtime| {
        runtime.block_on(async {
            let role = parts.disputes(&loaded, environment).await?;
            Ok(summary(&here(role).await?))
        })
    })
}

fn tell(told: &Value, cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(true, told)?;
        return Ok(Answer::Yes);
    }
    let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    cx.out.line(&format!("{}  {}", text("dispute_id"), text("state")))?;
    if let Some(outcome) = told["outcome"].as_str() {
        cx.out.line(&format!("  {outcome}, by {}", text("by")))?;
    }
    let number = |name: &str| told[name].as_i64().unwrap_or_default();
    if number("held_msat") > 0 && told["outcome"].is_null() {
        cx.out.line(&format!("  {} msat are held for it", number("held_msat")))?;
    }
    if number("moved_msat") > 0 {
        cx.out.line(&format!("  {} msat moved", number("moved_msat")))?;
    }
    Ok(Answer::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_told_apart_by_its_form() {
        let named = |text: &str| reference(text);
        assert!(matches!(named(&"ab".repeat(32)), Ok(Reference::Event(_))));
        let hash = format!("sha256:{}", "ab".repeat(32));
        assert!(matches!(named(&hash), Ok(Reference::Hash(_))));
        let receipt = format!("rcpt_{}", "ab".repeat(32));
        assert!(matches!(named(&receipt), Ok(Reference::Receipt(_))));
        assert!(named("https://example.com").is_err());
    }
}
