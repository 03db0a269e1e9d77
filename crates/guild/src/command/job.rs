//! `guild job`

use serde_json::{Value, json};

use super::Context;
use super::hosted::{self, Amount, Span};
use super::table::Column;
use crate::error::Result;
use crate::host::Host;
use crate::output::Answer;

/// Make and follow jobs: spending windows in which sandboxes are bought
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(CreateArgs),
    Extend(ExtendArgs),
    Stop(IdArgs),
    Ls(LsArgs),
    Show(IdArgs),
}

/// Make a job
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// What you call it
    #[arg(long, default_value = "job")]
    name: String,
    /// What all its sandboxes may spend, as 2.50usd, 40c or 1110 (micro-USD)
    #[arg(long, value_name = "AMOUNT")]
    budget: Amount,
    /// For how long, as 90s, 30m, 2h or 1d
    #[arg(long, value_name = "TIME", default_value = "1h")]
    ttl: Span,
    /// End it after so long without use
    #[arg(long, value_name = "TIME")]
    idle: Option<Span>,
}

/// Give a job more money or time
#[derive(Debug, clap::Args)]
pub(crate) struct ExtendArgs {
    /// The job
    job_id: String,
    /// What may be spent in all
    #[arg(long, value_name = "AMOUNT")]
    budget: Option<Amount>,
    /// How long it shall last from now on
    #[arg(long, value_name = "TIME")]
    ttl: Option<Span>,
    /// End it after so long without use
    #[arg(long, value_name = "TIME")]
    idle: Option<Span>,
}

/// List your jobs, the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=hosted::LIST_MAX))]
    limit: u32,
}

/// A job by its id
#[derive(Debug, clap::Args)]
pub(crate) struct IdArgs {
    /// The job
    job_id: String,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    let host = Host::of(&cx.config()?)?;
    match command {
        Command::Create(args) => {
            let body = json!({
                "name": args.name,
                "max_spend_micro_usd": args.budget.micro_usd(),
                "ttl_s": args.ttl.seconds(),
                "idle_timeout_s": args.idle.map(Span::seconds),
            });
            one(&host.post("/v1/jobs", &hosted::without_nulls(body))?, cx)
        }
        Command::Extend(args) => extend(args, &host, cx),
        Command::Stop(args) => {
            let path = format!("/v1/jobs/{}/stop", hosted::word(&args.job_id)?);
            one(&host.post(&path, &json!({}))?, cx)
        }
        Command::Show(args) => {
            let path = format!("/v1/jobs/{}", hosted::word(&args.job_id)?);
            one(&host.get(&path)?, cx)
        }
        Command::Ls(args) => ls(args, &host, cx),
    }
}

fn extend(args: &ExtendArgs, host: &Host, cx: &mut Context<'_>) -> Result<Answer> {
    let path = format!("/v1/jobs/{}", hosted::word(&args.job_id)?);
    let present = host.get(&path)?;
    let body = hosted::extension(&present, args.budget, args.ttl, args.idle);
    one(&host.post(&format!("{path}/extend"), &body)?, cx)
}

fn ls(args: &LsArgs, host: &Host, cx: &mut Context<'_>) -> Result<Answer> {
    let page = hosted::newest(host, "/v1/jobs", "jobs", args.limit)?;
    let columns = [
        Column::Left("job"),
        Column::Left("name"),
        Column::Left("status"),
        Column::Right("spent"),
        Column::Right("of"),
        Column::Right("a minute"),
        Column::Right("time left"),
    ];
    let row = |job: &Value| {
        [
            hosted::text(job, "job_id"),
            hosted::text(job, "name"),
            hosted::text(job, "status"),
            hosted::usd(job, "spent_micro_usd"),
            hosted::usd(job, "max_spend_micro_usd"),
            hosted::usd(job, "burn_micro_usd_per_minute"),
            hosted::lasts(job),
        ]
    };
    let answer = hosted::list(&page, "jobs", columns, row, cx)?;
    hosted::remark_more(&page, cx.out);
    Ok(answer)
}

fn one(job: &Value, cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(true, job)?;
        return Ok(Answer::Yes);
    }
    let spent = format!(
        "{} of {}",
        hosted::usd(job, "spent_micro_usd"),
        hosted::usd(job, "max_spend_micro_usd")
    );
    cx.out.fields(&[
        ("job", &hosted::text(job, "job_id")),
        ("name", &hosted::text(job, "name")),
        ("status", &hosted::text(job, "status")),
        ("spent", &spent),
        ("burns", &hosted::burn(job)),
        ("time left", &hosted::lasts(job)),
    ])?;
    hosted::remark_grants(job, cx.out);
    Ok(Answer::Yes)
}
