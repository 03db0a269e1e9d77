//! `guild content verify`

use guild_network::content::{Aside, Content, Reach};
use serde_json::json;
use tokio::runtime::Runtime;

use super::super::Context;
use crate::error::Result;
use crate::output::{Answer, Output};

/// Read everything that is kept again, and check it
///
/// Every block against its hash, and that everything below every pin is there. The exit code is 1 if something is
/// wrong. Changes nothing: a block with wrong bytes is set aside when somebody asks for it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

#[derive(Debug, Default)]
struct Found {
    blocks: u64,
    bytes: u64,
    wrong: Vec<String>,
    pins: usize,
    broken: Vec<(String, String)>,
    aside: Vec<Aside>,
}

pub(crate) fn run(_: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let out = &mut *cx.out;
    let found = super::read(&loaded, |content, runtime| look(content, runtime, out))?;
    cx.out.progress("");
    let good = found.wrong.is_empty() && found.broken.is_empty();
    if cx.out.json() {
        let broken = found.broken.iter().map(|(cid, why)| json!({ "cid": cid, "why": why }));
        let body = json!({
            "blocks": found.blocks,
            "bytes": found.bytes,
            "wrong": found.wrong,
            "pins": found.pins,
            "broken_pins": broken.collect::<Vec<_>>(),
            "aside": found.aside,
        });
        cx.out.object(good, body)?;
        return Ok(Answer::of(good));
    }
    for digest in &found.wrong {
        cx.out.line(&format!("wrong   sha256:{digest} has other bytes"))?;
    }
    for (cid, why) in &found.broken {
        cx.out.line(&format!("broken  {cid}: {why}"))?;
    }
    for aside in &found.aside {
        cx.out.remark(&format!("sha256:{} was set aside {} times", aside.digest, aside.times));
    }
    let state = if good { "all is as it should be" } else { "something is wrong" };
    let (blocks, pins) = (found.blocks, found.pins);
    cx.out.line(&format!("{blocks} blocks, {} bytes, {pins} pins: {state}", found.bytes))?;
    Ok(Answer::of(good))
}

fn look(content: &Content, runtime: &Runtime, out: &mut Output) -> Result<Found> {
    let mut found = Found::default();
    let mut after: Option<String> = None;
    loop {
        let some = runtime.block_on(content.scrub(after.as_deref()))?;
        found.blocks = found.blocks.saturating_add(some.blocks);
        found.bytes = found.bytes.saturating_add(some.bytes);
        found.wrong.extend(some.wrong.iter().map(|digest| digest.hex()));
        after = some.next;
        if after.is_none() {
            break;
        }
        out.progress(&format!("{} blocks, {} MiB", found.blocks, found.bytes >> 20));
    }
    let pins = super::all_pins(content, runtime)?;
    found.pins = pins.len();
    for (i, pin) in pins.iter().enumerate() {
        out.progress(&format!("{i} of {} pins", pins.len()));
        if let Err(error) = runtime.block_on(content.walk(&pin.cid, Reach::Local)) {
            found.broken.push((pin.cid.to_string(), error.to_string()));
        }
    }
    found.aside = runtime.block_on(content.aside())?;
    Ok(found)
}
