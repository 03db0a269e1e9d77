//! `guild reviews`

use guild_protocol::identity::PublicKey;
use guild_roles::explorer::{OtherReview, OwnReview, Weighing};
use guild_roles::reviews::ReviewId;
use guild_roles::router::TaskType;
use serde_json::{Value, json};

use super::Context;
use super::reading::{self, ListArgs};
use super::table::{self, Column};
use crate::client::write_through;
use crate::error::Result;
use crate::node;
use crate::output::Answer;

/// Look at what is said of providers, and what that is worth; publish a review
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(LsArgs),
    Show(ShowArgs),
    Publish(PublishArgs),
    Weigh(WeighArgs),
}

/// List reviews of this node, those that changed last first; or those of others
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// What others say instead
    #[arg(long)]
    others: bool,
    #[command(flatten)]
    list: ListArgs,
}

/// Show a review of this node, with what proves it
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Its id, review_…
    review_id: ReviewId,
}

/// Publish a review that is due
///
/// Through the running node, or directly when none runs: then it leaves with the next one. A node publishes by itself
/// what is due; one that waits for later outcomes, or for a dispute, is refused. Published again it is the same.
#[derive(Debug, clap::Args)]
pub(crate) struct PublishArgs {
    /// Its id, review_…
    review_id: ReviewId,
    /// At once, whatever it waits for
    #[arg(long)]
    now: bool,
}

/// Say what the reviews of others are worth
///
/// Of each its evidence, how far its reviewer is believed, and what counts. The exit code is 1 if nothing does.
#[derive(Debug, clap::Args)]
pub(crate) struct WeighArgs {
    /// The key of a provider, as npub or in hex digits
    provider: PublicKey,
    /// Only for this work [default: all that something is said about]
    #[arg(long, value_name = "TASK")]
    task: Option<TaskType>,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Ls(args) if args.others => ls_others(args, cx),
        Command::Ls(args) => ls(args, cx),
        Command::Show(args) => show(args, cx),
        Command::Publish(args) => publish(args, cx),
        Command::Weigh(args) => weigh(args, cx),
    }
}

fn ls(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let page = args.list.page();
    let listed = reading::read(&cx.config()?, |market| async move { market.reviews(page).await })?;
    let columns = [
        Column::Left("review"),
        Column::Left("provider"),
        Column::Left("work"),
        Column::Right("stars"),
        Column::Left("state"),
        Column::Left("because of"),
        Column::Left("due or published"),
    ];
    reading::list("reviews", &listed, columns, own_row, cx)?;
    Ok(Answer::Yes)
}

fn own_row(review: &OwnReview) -> [String; 7] {
    [
        review.review_id.to_string(),
        reading::party(&review.provider),
        review.task.to_string(),
        review.words.rating.clone(),
        review.state.to_owned(),
        review.reason.to_owned(),
        reading::time(review.published_ms.unwrap_or(review.due_ms)),
    ]
}

fn ls_others(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let page = args.list.page();
    let ask = |market: guild_roles::explorer::Explorer| async move {
        market.reviews_of_others(page).await
    };
    let listed = reading::read(&cx.config()?, ask)?;
    let columns = [
        Column::Left("reviewer"),
        Column::Left("provider"),
        Column::Left("work"),
        Column::Right("stars"),
        Column::Left("evidence"),
        Column::Left("said"),
    ];
    let row = |review: &OtherReview| {
        [
            reading::party(&review.reviewer),
            reading::party(&review.provider),
            review.task.to_string(),
            review.words.rating.clone(),
            review.evidence.to_owned(),
            reading::time(review.said_ms),
        ]
    };
    reading::list("reviews", &listed, columns, row, cx)?;
    Ok(Answer::Yes)
}

fn show(args: &ShowArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let id = args.review_id.clone();
    let found = reading::read(&cx.config()?, |market| async move { market.review(id).await })?;
    let review = found.ok_or_else(|| reading::unknown("review", &args.review_id, "reviews"))?;
    if cx.out.json() {
        cx.out.object(true, &review)?;
        return Ok(Answer::Yes);
    }
    let words = &review.words;
    let some = |text: &Option<String>| text.clone().unwrap_or_default();
    let published = review.published_ms.map(reading::time);
    let events: Vec<String> = review.events.iter().map(ToString::to_string).collect();
    cx.out.fields(&[
        ("review", review.review_id.as_str()),
        ("provider", &review.provider.npub),
        ("work", review.task.as_str()),
        ("stars", &format!("{} of 5", words.rating)),
        ("state", review.state),
        ("because of", review.reason),
        ("outcomes", &review.outcomes.to_string()),
        ("due", &reading::time(review.due_ms)),
        ("published", &published.unwrap_or_else(|| "not yet".to_owned())),
        ("says", &some(&words.summary)),
        ("good", &words.strengths.join("; ")),
        ("not good", &words.weaknesses.join("; ")),
        ("advice", &some(&words.recommendation)),
        ("alert", &some(&words.alert)),
        ("request", &some(&words.request_id)),
        ("result", &some(&words.result_id)),
        ("verdict", &some(&words.verdict_hash)),
        ("receipt", &some(&words.receipt_id)),
        ("events", &events.join(", ")),
    ])?;
    Ok(Answer::Yes)
}

fn publish(args: &PublishArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    // Where nothing was reviewed nothing can be published, and nothing is made.
    node::require_database(&node::store_options(&loaded))?;
    let environment = cx.environment;
    let told = write_through(
        &loaded,
        |client| client.publish_review(&args.review_id, args.now),
        |parts, runtime| {
            let row = runtime.block_on(async {
                let reviews = parts.reviews(&loaded, environment).await?;
                Ok::<_, crate::error::Error>(
                    reviews.publish(args.review_id.clone(), args.now).await?,
                )
            })?;
            let (id, state) = (&row.review_id, row.state.as_str());
            Ok(json!({ "review_id": id, "state": state, "events": row.event_ids }))
        },
    )?;
    if cx.out.json() {
        cx.out.object(true, told)?;
        return Ok(Answer::Yes);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    cx.out.line(&format!("{}  {}", text(&told["review_id"]), text(&told["state"])))?;
    for event in told["events"].as_array().into_iter().flatten() {
        cx.out.line(&format!("  event {}", text(event)))?;
    }
    Ok(Answer::Yes)
}

fn weigh(args: &WeighArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let (key, task) = (args.provider, args.task.clone());
    let ask =
        |market: guild_roles::explorer::Explorer| async move { market.weighed(key, task).await };
    let weighed = reading::read(&cx.config()?, ask)?.unwrap_or_default();
    let counts = weighed.iter().any(|one| one.good_milli > 0 || one.bad_milli > 0);
    if cx.out.json() {
        cx.out.object(counts, json!({ "provider": args.provider, "tasks": weighed }))?;
        return Ok(Answer::of(counts));
    }
    if weighed.iter().all(|one| one.reviews.is_empty()) {
        cx.out.remark("nobody has said anything of it");
    }
    for one in &weighed {
        print(one, cx)?;
    }
    Ok(Answer::of(counts))
}

fn print(weighing: &Weighing, cx: &mut Context<'_>) -> Result<()> {
    let columns = [
        Column::Left("reviewer"),
        Column::Right("stars"),
        Column::Left("evidence"),
        Column::Right("our outcomes"),
        Column::Right("believed"),
        Column::Right("left"),
        Column::Right("weight"),
        Column::Right("counts"),
    ];
    let rows: Vec<_> = weighing.reviews.iter().filter_map(row).collect();
    cx.out.line(weighing.task.as_str())?;
    table::print(columns, &rows, cx.out)?;
    let (good, bad) = (milli(weighing.good_milli), milli(weighing.bad_milli));
    cx.out.line(&format!("prior: {good} good and {bad} bad outcomes, of at most 5"))?;
    if weighing.own_outcomes > 0 {
        let own = weighing.own_outcomes;
        cx.out.line(&format!("own outcomes: {own}; after five of them reviews count no more"))?;
    }
    cx.out.line("")
}

fn row(review: &OtherReview) -> Option<[String; 8]> {
    let line = review.weight.as_ref()?;
    let trusted = if line.is_trusted { " (trusted)" } else { "" };
    Some([
        format!("{}{trusted}", reading::party(&review.reviewer)),
        review.words.rating.clone(),
        line.grade.words().to_owned(),
        line.outcomes.to_string(),
        milli(line.calibration_milli),
        milli(line.age_milli),
        milli(line.weight_milli),
        milli(line.counted_milli),
    ])
}

fn milli(milli: u64) -> String {
    format!("{}.{:03}", milli / 1_000, milli % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousandths_are_shown_whole() {
        assert_eq!([0, 7, 100, 5_000].map(milli), ["0.000", "0.007", "0.100", "5.000"]);
    }
}
