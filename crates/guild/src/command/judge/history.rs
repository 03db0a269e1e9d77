//! `guild judge history`

use guild_protocol::identity::PublicKey;
use guild_roles::judgements::{Judgements, Point};
use serde_json::json;

use crate::command::Context;
use crate::command::reading;
use crate::command::table::{self, Column};
use crate::error::Result;
use crate::node;
use crate::output::Answer;
use crate::real::{SystemClock, runtime};

/// List kept verdicts, the newest first
///
/// Verdicts are kept by `guild judge --provider NPUB`. What was not measured is empty.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only those of this provider
    #[arg(long, value_name = "NPUB")]
    provider: Option<PublicKey>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

pub(super) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let service = node::open_read_only(&cx.config()?)?;
    let kept = Judgements::new(service.handle(), std::sync::Arc::new(SystemClock));
    let read = runtime()
        .map(|runtime| runtime.block_on(kept.series(args.provider, i64::from(args.limit))));
    service.close();
    let points = read??;
    if cx.out.json() {
        cx.out.object(true, json!({"judgements": points}))?;
        return Ok(Answer::Yes);
    }
    if points.is_empty() {
        cx.out.remark("there are no judgements");
        return Ok(Answer::Yes);
    }
    let columns = [
        Column::Left("when"),
        Column::Left("provider"),
        Column::Left("suite"),
        Column::Left("verdict"),
        Column::Right("passed"),
        Column::Right("wall"),
        Column::Right("CPU"),
        Column::Right("memory"),
        Column::Right("coverage"),
        Column::Right("pylint"),
        Column::Right("bandit"),
        Column::Right("mypy"),
    ];
    table::print(columns, &points.iter().map(row).collect::<Vec<_>>(), cx.out)?;
    Ok(Answer::Yes)
}

fn row(point: &Point) -> [String; 12] {
    let part = |value: Option<i64>, unit: i64| {
        value.map_or_else(String::new, |value| {
            format!("{}.{:02}", value / unit, value % unit * 100 / unit)
        })
    };
    [
        reading::time(point.at_ms),
        reading::short(&point.provider.npub()),
        point.suite.clone(),
        point.class.name().to_owned(),
        format!("{}/{}", point.passed, point.total),
        format!("{} ms", point.wall_us / 1_000),
        format!("{} ms", point.cpu_us / 1_000),
        format!("{} KiB", point.memory_peak_bytes >> 10),
        part(point.coverage_bp, 100),
        part(point.pylint_milli, 1_000),
        part(point.bandit_milli, 1_000),
        part(point.mypy_milli, 1_000),
    ]
}
