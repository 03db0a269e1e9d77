//! What the commands of hosting share: amounts, times, and how they are shown.

use std::str::FromStr;

use guild_hosting::api::dollars;
pub(super) use guild_hosting::api::span;
use guild_protocol::env::Clock;
use guild_protocol::error::Kind;
use serde_json::{Value, json};

use super::Context;
use super::table::{self, Column};
use crate::error::{Error, Result, code};
use crate::host::Host;
use crate::output::{Answer, Output};
use crate::real::SystemClock;

/// An amount of money: `2.50usd`, `40c` or `1110` micro-USD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount(i64);

impl Amount {
    pub(super) fn micro_usd(self) -> i64 {
        self.0
    }
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Amount, String> {
        let wrong = || "an amount is 2.50usd, 40c, or a number of micro-USD".to_owned();
        let units = match (text.strip_suffix("usd"), text.strip_suffix('c')) {
            (Some(usd), _) => decimal(usd, 6),
            (None, Some(cents)) => decimal(cents, 4),
            (None, None) => decimal(text, 0),
        };
        units.filter(|units| *units > 0).map(Amount).ok_or_else(wrong)
    }
}

/// A decimal number with at most so many places, as a whole number of the last place.
fn decimal(text: &str, places: usize) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || part.len() > places || !digits(whole) || !digits(part) {
        return None;
    }
    if text.ends_with('.') {
        return None;
    }
    format!("{whole}{part}{}", "0".repeat(places - part.len())).parse().ok()
}

/// A span of time: `90s`, `30m`, `2h`, `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span(i64);

impl Span {
    pub(super) fn seconds(self) -> i64 {
        self.0
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
        let read = units.into_iter().find_map(|(unit, seconds)| {
            let count: i64 = text.strip_suffix(unit)?.parse().ok()?;
            count.checked_mul(seconds).filter(|seconds| *seconds > 0)
        });
        read.map(Span)
            .ok_or_else(|| "a time is a number with s, m, h or d, as 90s or 2h".to_owned())
    }
}

/// An id as it goes into a path: nothing in it may change the path.
pub(super) fn word(id: &str) -> Result<&str> {
    if !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Ok(id);
    }
    Err(Error::new(&code::USAGE, format!("{id:?} is not an id")))
}

/// What is not said is not sent.
pub(super) fn without_nulls(body: Value) -> Value {
    match body {
        Value::Object(fields) => {
            Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).collect())
        }
        other => other,
    }
}

/// The body of an extension of what was just read.
pub(super) fn extension(
    present: &Value,
    budget: Option<Amount>,
    ttl: Option<Span>,
    idle: Option<Span>,
) -> Value {
    let ends = |ttl: Span| SystemClock.now_ms().saturating_add(ttl.seconds().saturating_mul(1_000));
    without_nulls(json!({
        "version": present["version"],
        "max_spend_micro_usd": budget.map(Amount::micro_usd),
        "expires_ms": ttl.map(ends),
        "idle_timeout_s": idle.map(Span::seconds),
    }))
}

pub(super) fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or("-").to_owned()
}

/// Micro-USD as dollars.
pub(super) fn usd(value: &Value, field: &str) -> String {
    dollars(value[field].as_i64().unwrap_or(0))
}

/// How long it goes on if nothing changes, whatever ends it first: its time or its money.
pub(super) fn lasts(value: &Value) -> String {
    span(value["lasts_ms"].as_i64().unwrap_or(0))
}

/// What a minute costs now.
pub(super) fn burn(value: &Value) -> String {
    format!("{} a minute", usd(value, "burn_micro_usd_per_minute"))
}

/// Says how a sandbox stands beside an answer that is something else. What was done is done, also if whoever did it may
/// not look.
pub(super) fn remark_pace(host: &Host, sandbox_id: &str, out: &mut Output) -> Option<Value> {
    let sandbox = host.get(&format!("/v1/sandboxes/{}", word(sandbox_id).ok()?)).ok()?;
    if !out.json() {
        let id = text(&sandbox, "sandbox_id");
        out.remark(&format!("{id}: {}, {} left", burn(&sandbox), lasts(&sandbox)));
    }
    Some(sandbox)
}

/// Says what a minute of a shape costs, before it is bought. What no price is asked for is refused where it is bought.
pub(super) fn remark_price(host: &Host, shape: (i64, i64), out: &mut Output) -> Result<()> {
    let path = format!("/v1/prices?cpu_milli={}&ram_mib={}", shape.0, shape.1);
    match host.get(&path) {
        Ok(price) => {
            let price = usd(&price, "price_micro_usd_per_minute");
            out.remark(&format!("a minute costs {price}"));
            Ok(())
        }
        Err(error) if error.kind() == Kind::Invalid => Ok(()),
        Err(error) => Err(error),
    }
}

/// The largest page that a node gives, and how many a list has at most.
const PAGE: u32 = 200;
pub(super) const LIST_MAX: i64 = 10_000;

/// The newest items of a list, as many as are wanted, page by page. `next` says where it goes on, if it may.
pub(super) fn newest(host: &Host, path: &str, field: &str, limit: u32) -> Result<Value> {
    let (mut all, mut next) = (Vec::new(), Value::Null);
    loop {
        let missing = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(all.len());
        let page = u32::try_from(missing).unwrap_or(PAGE).min(PAGE);
        if page == 0 {
            break;
        }
        let before = next.as_str().map(|next| word(next).map(|next| format!("&before={next}")));
        let before = before.transpose()?.unwrap_or_default();
        let mut got = host.get(&format!("{path}?limit={page}{before}"))?;
        all.extend(got[field].as_array_mut().into_iter().flat_map(std::mem::take));
        next = got["next"].take();
        if !next.is_string() {
            break;
        }
    }
    Ok(json!({ field: all, "next": next }))
}

/// Prints a list: as it came, or as a table.
pub(super) fn list<const N: usize>(
    page: &Value,
    field: &str,
    columns: [Column; N],
    row: impl Fn(&Value) -> [String; N],
    cx: &mut Context<'_>,
) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(true, page)?;
        return Ok(Answer::Yes);
    }
    let rows: Vec<_> = page[field].as_array().into_iter().flatten().map(row).collect();
    table::print(columns, &rows, cx.out)?;
    Ok(Answer::Yes)
}

/// Says that a list may go on.
pub(super) fn remark_more(page: &Value, out: &mut Output) {
    if page["next"].is_string() && !out.json() {
        out.remark("there may be older ones; --limit asks for more");
    }
}

/// Says what was granted, if it is less than what was asked for.
pub(super) fn remark_grants(value: &Value, out: &mut Output) {
    for (field, name) in [("max_spend_micro_usd", "money"), ("expires_ms", "time")] {
        let grant = &value["granted"][field];
        let bound = grant["bound_by"].as_str().unwrap_or("requested");
        if bound != "requested" {
            out.remark(&format!("less {name} was granted than asked for: {bound} decides"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_times_are_read_exactly() {
        let amount = |text: &str| text.parse::<Amount>().map(Amount::micro_usd).ok();
        assert_eq!(amount("2.50usd"), Some(2_500_000));
        assert_eq!(amount("0.000001usd"), Some(1));
        assert_eq!(amount("40c"), Some(400_000));
        assert_eq!(amount("0.1815c"), Some(1_815));
        assert_eq!(amount("1110"), Some(1_110));
        for bad in
            ["", "0", "-1", "+1", "1.5", "1e3", ".5usd", "5.usd", "0.0000001usd", "9e9usd", "٣"]
        {
            assert_eq!(amount(bad), None, "{bad}");
        }
        assert_eq!(amount("9223372036854775808"), None);
        let span = |text: &str| text.parse::<Span>().map(Span::seconds).ok();
        assert_eq!(
            [span("90s"), span("30m"), span("2h"), span("1d")].map(Option::unwrap),
            [90, 1_800, 7_200, 86_400]
        );
        for bad in ["", "0s", "-1s", "1", "1w", "9223372036854775807d"] {
            assert_eq!(span(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_id_cannot_change_a_path() {
        assert!(word("../x").is_err() && word("job_1").is_ok());
    }
}
