//! A payment that waits for its guardian: shown, signed, handed in.

use guild_ledger::quote::{self, Approval, Quote, QuoteId, Terms, Verdict};
use guild_protocol::env::Clock;
use serde_json::json;

use crate::client::write_through;
use crate::command::Context;
use crate::config::Loaded;
use crate::error::{InFile, Result};
use crate::input::Input;
use crate::keystore::Keystore;
use crate::node;
use crate::output::Answer;
use crate::real::{SystemClock, runtime};

/// The most bytes of a quote or an approval.
const MAX_BYTES: usize = 16 * 1024;

/// Print the terms of a quote: what a guardian signs
///
/// The document on standard output is what `guild policy sign` takes on the guardian's own host.
#[derive(Debug, clap::Args)]
pub(crate) struct QuoteArgs {
    /// The id of the quote, as `guild hire` named it
    id: QuoteId,
}

/// Sign the terms of a quote with the key of this host, and print the approval
///
/// For a guardian who does not share the keystore of the node: nothing is sent.
#[derive(Debug, clap::Args)]
pub(crate) struct SignArgs {
    /// The terms that `guild policy quote` printed; - reads from standard input
    file: Input,
    /// Refuse the payment
    #[arg(long)]
    deny: bool,
}

/// Approve a payment that waits for its guardian, or refuse it
///
/// Signed with the key of this host, which must be the guardian that the policy names; or signed before, by `guild
/// policy sign`. Then `guild hire` with the same key posts the order.
#[derive(Debug, clap::Args)]
pub(crate) struct ApproveArgs {
    /// The id of the quote, as `guild hire` named it
    id: QuoteId,
    /// Refuse the payment
    #[arg(long)]
    deny: bool,
    /// What the guardian has signed elsewhere; - reads from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "deny")]
    approval: Option<Input>,
}

fn verdict(deny: bool) -> Verdict {
    if deny { Verdict::Deny } else { Verdict::Approve }
}

fn find(loaded: &Loaded, id: &QuoteId) -> Result<Quote> {
    let service = node::open_read_only(loaded)?;
    let id = id.clone();
    let found = runtime()
        .map(|runtime| runtime.block_on(service.handle().read(move |rx| quote::get(rx, &id))));
    service.close();
    Ok(found??)
}

pub(super) fn quote(args: &QuoteArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let quote = find(&cx.config()?, &args.id)?;
    let document = quote.terms.to_canonical()?;
    if cx.out.json() {
        let state = quote.state_at(SystemClock.now_ms());
        let body = json!({
            "quote_id": args.id, "state": state.as_str(), "quote_hash": quote.quote_hash, "document": document,
        });
        cx.out.object(true, body)?;
        return Ok(Answer::Yes);
    }
    cx.out.line(&document)?;
    Ok(Answer::Yes)
}

/// Decides with the key of this host.
fn signed(terms: &Terms, deny: bool, loaded: &Loaded, cx: &Context<'_>) -> Result<Approval> {
    let key = Keystore::read(&Keystore::path(loaded))?.unlock(cx.environment)?;
    let approval = Approval::sign(terms, verdict(deny), SystemClock.now_ms(), &key)?;
    approval.check(terms)?;
    Ok(approval)
}

pub(super) fn sign(args: &SignArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let terms = Terms::parse(&args.file.read(MAX_BYTES)?).in_file(args.file.path())?;
    let approval = signed(&terms, args.deny, &loaded, cx)?;
    let wanted = &terms.wanted;
    cx.out.remark(&format!(
        "{}: {} for {}",
        approval.verdict.as_str(),
        wanted.amount,
        wanted.subject
    ));
    let document = approval.to_canonical()?;
    match cx.out.json() {
        true => cx.out.object(true, json!({ "approval": document }))?,
        false => cx.out.line(&document)?,
    }
    Ok(Answer::Yes)
}

pub(super) fn approve(args: &ApproveArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let quote = find(&loaded, &args.id)?;
    let approval = match &args.approval {
        Some(file) => Approval::parse(&file.read(MAX_BYTES)?).in_file(file.path())?,
        None => signed(&quote.terms, args.deny, &loaded, cx)?,
    };
    approval.check(&quote.terms)?;
    let state = write_through(
        &loaded,
        |client| client.approve(&approval),
        |parts, runtime| {
            let told = parts.ask_treasury(runtime, |money| {
                let approval = approval.clone();
                async move { money.approve(approval).await }
            })?;
            Ok(told.state.as_str().to_owned())
        },
    )?;
    let wanted = &quote.terms.wanted;
    if cx.out.json() {
        cx.out.object(true, json!({ "quote_id": args.id, "state": state }))?;
        return Ok(Answer::Yes);
    }
    cx.out.line(&format!("{} is {state}: {} for {}", args.id, wanted.amount, wanted.subject))?;
    Ok(Answer::Yes)
}
