//! `guild requests`

use guild_protocol::nostr::EventId;
use guild_roles::explorer::{Request, RequestDetail, msat};

use super::Context;
use super::reading::{self, ListArgs};
use super::table::Column;
use crate::error::Result;
use crate::output::Answer;

mod order;

/// Look at requests for work, seen, bought or done; give one up
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(LsArgs),
    Show(ShowArgs),
    Result(order::ResultArgs),
    Cancel(order::CancelArgs),
}

/// List requests, the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    list: ListArgs,
}

/// Tell the story of a request, from the first word to the receipt
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The id of the request
    id: EventId,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Ls(args) => ls(args, cx),
        Command::Show(args) => show(args, cx),
        Command::Result(args) => order::result(args, cx),
        Command::Cancel(args) => order::cancel(args, cx),
    }
}

fn ls(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let page = args.list.page();
    let listed = reading::read(&cx.config()?, |market| async move { market.requests(page).await })?;
    let columns = [
        Column::Left("request"),
        Column::Left("when"),
        Column::Left("we"),
        Column::Left("state"),
        Column::Left("work"),
        Column::Right("bid"),
        Column::Left("provider"),
    ];
    reading::list("requests", &listed, columns, row, cx)?;
    Ok(Answer::Yes)
}

fn row(request: &Request) -> [String; 7] {
    [
        request.request_id.clone(),
        reading::time(request.created_ms),
        request.side.as_str().to_owned(),
        request.standing.as_str().to_owned(),
        work(request),
        request.bid_msat.map(msat).unwrap_or_default(),
        request.providers.first().map(reading::party).unwrap_or_default(),
    ]
}

fn work(request: &Request) -> String {
    let what = request.schema_id.clone();
    let what = what.unwrap_or_else(|| format!("kind {}", request.kind));
    if request.private { format!("{what}, private") } else { what }
}

fn show(args: &ShowArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let id = args.id;
    let found = reading::read(&cx.config()?, |market| async move { market.request(id).await })?;
    let detail = found.ok_or_else(|| reading::unknown("request", &id, "requests"))?;
    if cx.out.json() {
        cx.out.object(true, &detail)?;
        return Ok(Answer::Yes);
    }
    print(&detail, cx)?;
    Ok(Answer::Yes)
}

fn print(detail: &RequestDetail, cx: &mut Context<'_>) -> Result<()> {
    let request = &detail.request;
    let providers: Vec<_> = request.providers.iter().map(reading::party).collect();
    let mut fields = vec![
        ("request", request.request_id.clone()),
        ("state", request.standing.as_str().to_owned()),
        ("work", work(request)),
        ("buyer", reading::party(&request.buyer)),
        ("provider", providers.join(", ")),
        ("bid", request.bid_msat.map(msat).unwrap_or_default()),
        ("price", detail.price_msat.map(msat).unwrap_or_default()),
        ("reason", detail.reason.clone().unwrap_or_default()),
        ("receipt", detail.receipt_id.clone().unwrap_or_default()),
    ];
    fields.retain(|(_, value)| !value.is_empty());
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    cx.out.fields(&fields)?;
    cx.out.line("")?;
    for step in &detail.timeline {
        let who = step.author.as_ref().map(|who| format!("  {}", reading::party(who)));
        let who = who.unwrap_or_default();
        cx.out.line(&format!("{}{who}  {}", reading::time(step.at_ms), step.text))?;
    }
    Ok(())
}
