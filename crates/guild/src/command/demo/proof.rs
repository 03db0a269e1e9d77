//! What a stranger can check: a receipt and its replay, from nothing but their bytes.

use std::collections::{BTreeMap, BTreeSet};

use guild_market::dossier::{self, About, Folder, Gathered};
use guild_market::meeting::{self, MeetingId};
use guild_market::{Error as MarketError, order};
use guild_protocol::nostr::EventId;
use guild_protocol::schema::Registry;
use guild_protocol::{receipt, replay};
use guild_store::Rx;

use super::job::Done;
use crate::client::look;
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::node;

/// A receipt that was fetched from the node as anybody can, and what its bytes prove.
pub(super) struct Proof {
    pub(super) receipt_id: String,
    pub(super) verified: bool,
}

impl Proof {
    pub(super) fn fetch(node_url: &str, done: &Done) -> Result<Proof> {
        let receipt_id = done.order.receipt_id.as_ref().map(ToString::to_string);
        let Some(receipt_id) = receipt_id else {
            let message = format!("job {} ended without a receipt", done.number);
            return Err(Error::new(&code::DEMO_FAILED, message));
        };
        let path = format!("/api/receipts/{receipt_id}");
        let bytes = look(node_url, &path)?;
        let holds = receipt::explain(&bytes).is_ok_and(|checks| checks.holds());
        // A stranger gets no replay of private work. The receipt is proof without it.
        let bound =
            done.order.private || is_sealed_by(&bytes, &look(node_url, &format!("{path}/replay"))?);
        Ok(Proof { receipt_id, verified: holds && bound })
    }
}

/// How much of the market is looked at.
const REQUESTS_MAX: i64 = 100;

/// What was checked of single pieces of work, each from its own files alone.
#[derive(Default)]
pub(super) struct Dossiers {
    pub(super) requests: usize,
    pub(super) verdicts: usize,
    pub(super) receipts: usize,
    pub(super) reviews: usize,
    pub(super) problems: usize,
}

/// Gathers the evidence of all that was hired and of all trials, as `guild evidence export` does, and looks at it as
/// `guild audit --evidence` does.
pub(super) fn dossiers(loaded: &Loaded, runtime: &tokio::runtime::Runtime) -> Result<Dossiers> {
    let service = node::open_read_only(loaded)?;
    let read = service.handle().read(all);
    let gathered = runtime.block_on(read);
    service.close();
    let registry = Registry::builtin();
    // The evidence of one replica is that of all: what stands in several is counted once.
    let (mut works, mut reviews, mut problems) = (BTreeMap::new(), BTreeSet::new(), 0);
    for one in gathered? {
        let options = dossier::Options { registry: &registry, rerun: true };
        let report = dossier::check(&Folder::of(&one.files), options);
        problems += report.problems().count();
        reviews.extend(one.manifest.reviews);
        works.extend(one.manifest.works.into_iter().map(|work| (work.request_id, work)));
    }
    Ok(Dossiers {
        requests: works.len(),
        verdicts: works.values().filter(|work| work.verdict_hash.is_some()).count(),
        receipts: works.values().filter(|work| work.receipt_id.is_some()).count(),
        reviews: reviews.len(),
        problems,
    })
}

fn all(rx: &mut Rx<'_>) -> guild_market::Result<Vec<Gathered>> {
    let orders = order::page_before(rx, None, REQUESTS_MAX)?;
    let mut asked: Vec<EventId> = orders.iter().map(|order| order.request_id).collect();
    let meetings = meeting::page_before(rx, None, REQUESTS_MAX)?;
    let meetings: Vec<MeetingId> = meetings.into_iter().map(|meeting| meeting.meeting_id).collect();
    for meeting_id in &meetings {
        asked.extend(meeting::trials(rx, meeting_id)?.iter().map(|trial| trial.request_id));
    }
    let mut gathered = Vec::new();
    for request_id in asked {
        match dossier::gather(rx, &About::Request(request_id), true) {
            Ok(one) => gathered.push(one),
            // A trial that was broken off has nothing to show.
            Err(MarketError::Refused { code, .. }) if code == &dossier::code::OPEN => {}
            Err(error) => return Err(error),
        }
    }
    Ok(gathered)
}

fn is_sealed_by(receipt: &[u8], story: &[u8]) -> bool {
    replay::verify(story, Some(receipt)).is_ok_and(|report| report.checks.holds())
}
