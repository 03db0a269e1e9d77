//! What the commands that read the market share.

use std::sync::Arc;

use guild_bus::Local;
use guild_roles::explorer::{Cursor, Explorer, Listed, Options, Page};
use guild_roles::turn::Turns;
use serde::Serialize;

use super::Context;
use super::table::{self, Column};
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::node;
use crate::real::{SystemClock, runtime};

/// Which part of a list.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    limit: u16,
    /// Go on behind this place, which the page before named
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
}

impl ListArgs {
    pub(super) fn page(&self) -> Page {
        Page { after: self.after.clone(), limit: usize::from(self.limit) }
    }
}

/// Reads the market beside whoever writes it.
pub(super) fn read<T, F>(loaded: &Loaded, ask: impl FnOnce(Explorer) -> F) -> Result<T>
where
    F: Future<Output = guild_roles::Result<T>>,
{
    let service = node::open_read_only(loaded)?;
    let (bus, clock) = (Arc::new(Local::new()), Arc::new(SystemClock));
    let trusted_reviewers = loaded.config.market.trusted_reviewers.0.clone();
    let options = Options { trusted_reviewers, ..Options::default() };
    let explorer = Explorer::new(options, Turns::new(service.handle()), bus, clock);
    let answer = runtime().map(|runtime| runtime.block_on(ask(explorer.for_owner())));
    service.close();
    Ok(answer??)
}

/// Prints a page, and where the next one begins.
pub(super) fn list<T: Serialize, const N: usize>(
    name: &'static str,
    listed: &Listed<T>,
    columns: [Column; N],
    row: impl Fn(&T) -> [String; N],
    cx: &mut Context<'_>,
) -> Result<()> {
    if cx.out.json() {
        let mut body = serde_json::Map::new();
        let items = serde_json::to_value(&listed.items)
            .map_err(|e| Error::new(&code::IO_FAILED, e.to_string()))?;
        body.insert(name.to_owned(), items);
        body.insert("next".to_owned(), serde_json::json!(listed.next));
        return cx.out.object(true, body);
    }
    if listed.items.is_empty() {
        cx.out.remark(&format!("there are no {name}"));
        return Ok(());
    }
    let rows: Vec<_> = listed.items.iter().map(row).collect();
    table::print(columns, &rows, cx.out)?;
    if let Some(next) = &listed.next {
        cx.out.remark(&format!("more with --after {next}"));
    }
    Ok(())
}

/// A time as people read it, to the second.
pub(super) fn time(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms)
        .map_or_else(|_| at_ms.to_string(), |at| format!("{at:.0}"))
}

/// A name, and enough of the key to tell it from others with that name.
pub(super) fn party(party: &guild_roles::explorer::Party) -> String {
    let key = short(&party.npub);
    match &party.name {
        Some(name) => format!("{} ({key})", name.chars().take(24).collect::<String>()),
        None => key,
    }
}

/// Enough of an id to tell it from others.
pub(super) fn short(id: &str) -> String {
    match id.char_indices().nth(16) {
        Some((at, _)) => format!("{}…", id.get(..at).unwrap_or(id)),
        None => id.to_owned(),
    }
}

/// Nothing here has that id.
pub(super) fn unknown(what: &str, id: &impl std::fmt::Display, where_: &str) -> Error {
    let error = Error::new(&code::MARKET_UNKNOWN, format!("this node knows no {what} {id}"));
    error.help(format!("`guild {where_} ls` lists those that it knows."))
}
