//! `guild billing`

use serde_json::{Value, json};

use super::Context;
use super::hosted::{self, Amount, word};
use super::table::Column;
use crate::error::{Error, Result, code};
use crate::host::Host;
use crate::node::NodeFile;
use crate::output::Answer;

mod clock;

/// Look at your account at a node that sells sandboxes, and take money out
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show what you have, what a minute costs now, and how long it lasts
    Balance,
    Statement(StatementArgs),
    Withdraw(WithdrawArgs),
    /// List your withdrawals
    Withdrawals,
    Credit(CreditArgs),
    /// List the withdrawals that have to be sent (of the node that runs on the data directory)
    Open,
    Confirm(ConfirmArgs),
    Fail(FailArgs),
    Clock(clock::Args),
}

/// List the transfers that touched your account, the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct StatementArgs {
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    /// Those before this number
    #[arg(long, value_name = "SEQ")]
    before: Option<u64>,
}

/// Ask for money out
///
/// It is held until the operator of the node has sent it. A reserve for what runs must stay.
#[derive(Debug, clap::Args)]
pub(crate) struct WithdrawArgs {
    /// How much, as 2.50usd, 40c or 1110 (micro-USD)
    amount: Amount,
    /// Where to
    #[arg(long, value_name = "ADDRESS")]
    to: String,
}

/// Say that money has arrived for a user (at the node that runs on the data directory)
#[derive(Debug, clap::Args)]
pub(crate) struct CreditArgs {
    /// Whose account: eip155:0x… or nostr:…
    user_id: String,
    /// How much
    amount: Amount,
    /// What the outside calls the payment: it is booked once
    #[arg(long, value_name = "TEXT")]
    reference: String,
}

/// Say that a withdrawal has arrived (at the node that runs on the data directory)
#[derive(Debug, clap::Args)]
pub(crate) struct ConfirmArgs {
    /// The withdrawal
    withdrawal_id: String,
    /// What the outside calls the payment
    #[arg(long, value_name = "TEXT")]
    reference: String,
}

/// Say that a withdrawal could not be sent: the money is back (at the node that runs on the data directory)
#[derive(Debug, clap::Args)]
pub(crate) struct FailArgs {
    /// The withdrawal
    withdrawal_id: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    why: String,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Balance => balance(cx),
        Command::Statement(args) => statement(args, cx),
        Command::Withdraw(args) => {
            let body = json!({
                "amount_micro_usd": args.amount.micro_usd(),
                "destination": args.to,
            });
            let made = Host::of(&cx.config()?)?.post("/v1/billing/withdrawals", &body)?;
            withdrawal(&made, cx)
        }
        Command::Withdrawals => {
            let page = Host::of(&cx.config()?)?.get("/v1/billing/withdrawals")?;
            withdrawals(&page, cx)
        }
        Command::Open => withdrawals(&operator(cx)?.get("/v1/operator/withdrawals")?, cx),
        Command::Credit(args) => credit(args, cx),
        Command::Clock(args) => clock::run(args, cx),
        Command::Confirm(args) => {
            let path = format!("/v1/operator/withdrawals/{}/confirm", word(&args.withdrawal_id)?);
            let body = json!({ "reference": args.reference });
            withdrawal(&operator(cx)?.post(&path, &body)?, cx)
        }
        Command::Fail(args) => {
            let path = format!("/v1/operator/withdrawals/{}/fail", word(&args.withdrawal_id)?);
            let body = json!({ "words": args.why });
            withdrawal(&operator(cx)?.post(&path, &body)?, cx)
        }
    }
}

/// The node that runs on the data directory, as its operator.
fn operator(cx: &Context<'_>) -> Result<Host> {
    let loaded = cx.config()?;
    match NodeFile::of_running(&loaded.config.data_dir)? {
        Some(node) => Host::operator(&node.url, &node.token),
        None => Err(Error::new(&code::NODE_UNREACHABLE, "no node runs on this data directory")),
    }
}

fn balance(cx: &mut Context<'_>) -> Result<Answer> {
    let balance = Host::of(&cx.config()?)?.get("/v1/billing/balance")?;
    if cx.out.json() {
        cx.out.object(true, balance)?;
        return Ok(Answer::Yes);
    }
    let lasts = match balance["minutes_left"].as_i64() {
        Some(minutes) => hosted::span(minutes.saturating_mul(60_000)),
        None => "nothing runs".to_owned(),
    };
    cx.out.fields(&[
        ("account", &hosted::text(&balance, "user_id")),
        ("free", &hosted::usd(&balance, "free_micro_usd")),
        ("held", &hosted::usd(&balance, "held_micro_usd")),
        ("burn", &format!("{} a minute", hosted::usd(&balance, "burn_micro_usd_per_minute"))),
        ("lasts", &lasts),
        ("withdrawable", &hosted::usd(&balance, "withdrawable_micro_usd")),
    ])?;
    Ok(Answer::Yes)
}

fn statement(args: &StatementArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let before = args.before.map(|seq| format!("&before={seq}")).unwrap_or_default();
    let path = format!("/v1/billing/statement?limit={}{before}", args.limit);
    let page = Host::of(&cx.config()?)?.get(&path)?;
    let columns = [
        Column::Right("no"),
        Column::Left("what"),
        Column::Left("for"),
        Column::Right("amount"),
        Column::Right("free after"),
    ];
    let row = |line: &Value| {
        [
            line["seq"].to_string(),
            hosted::text(line, "step"),
            hosted::text(line, "memo"),
            hosted::usd(line, "amount_micro_usd"),
            hosted::usd(line, "free_micro_usd"),
        ]
    };
    let answer = hosted::list(&page, "lines", columns, row, cx)?;
    if let (false, Some(next)) = (cx.out.json(), page["next"].as_str()) {
        cx.out.remark(&format!("there is more: --before {next}"));
    }
    Ok(answer)
}

fn credit(args: &CreditArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let body = json!({
        "user_id": args.user_id,
        "amount_micro_usd": args.amount.micro_usd(),
        "reference": args.reference,
    });
    let told = operator(cx)?.post("/v1/operator/credits", &body)?;
    if cx.out.json() {
        cx.out.object(true, told)?;
        return Ok(Answer::Yes);
    }
    let new = if told["new"] == true { "booked now" } else { "was booked before" };
    cx.out.fields(&[
        ("account", &hosted::text(&told, "user_id")),
        ("amount", &hosted::usd(&told, "amount_micro_usd")),
        ("credit", new),
        ("free", &hosted::usd(&told["balance"], "free_micro_usd")),
    ])?;
    Ok(Answer::Yes)
}

fn withdrawal(made: &Value, cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(true, made)?;
        return Ok(Answer::Yes);
    }
    cx.out.fields(&[
        ("withdrawal", &hosted::text(made, "withdrawal_id")),
        ("amount", &hosted::usd(made, "amount_micro_usd")),
        ("to", &hosted::text(made, "destination")),
        ("status", &hosted::text(made, "status")),
    ])?;
    Ok(Answer::Yes)
}

fn withdrawals(page: &Value, cx: &mut Context<'_>) -> Result<Answer> {
    let columns = [
        Column::Left("withdrawal"),
        Column::Left("user"),
        Column::Right("amount"),
        Column::Left("to"),
        Column::Left("status"),
    ];
    let row = |made: &Value| {
        [
            hosted::text(made, "withdrawal_id"),
            hosted::text(made, "user_id"),
            hosted::usd(made, "amount_micro_usd"),
            hosted::text(made, "destination"),
            hosted::text(made, "status"),
        ]
    };
    hosted::list(page, "withdrawals", columns, row, cx)
}
