//! From the rows of the node that bought to the files of a dossier.
//!
//! Nothing is made up here: every file holds bytes that were signed, hashed or booked when it happened.

use std::collections::BTreeMap;
use std::str::FromStr;

use guild_ledger::export;
use guild_network::{archive, index};
use guild_protocol::hash::{Hash, to_hex};
use guild_protocol::identity::PublicKey;
use guild_protocol::json;
use guild_protocol::nostr::job::Request;
use guild_protocol::nostr::{Event, EventId, Filter, Limits, kind, tag};
use guild_store::{Rx, args};

use super::{
    Council, FILE_MAX_BYTES, FILES_MAX, MANIFEST, Manifest, Revealed, SCHEMA_VERSION,
    TOTAL_MAX_BYTES, Work, code, event_at, input_at, output_at, receipt_at, replay_at, slice_at,
    suite_at, verdict_at,
};
use crate::delegation::{self, DelegationId};
use crate::judge::record;
use crate::meeting::{self, Trial};
use crate::order::{self, Order, OrderId};
use crate::{Error, Result, job, receipts, review};

/// So much of what was said meanwhile is shown; anybody may say any number of things.
const HEARD_MAX: usize = 40;

/// Of what a dossier is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// The work of a request, by the id of its event.
    Request(EventId),
    /// The work of an order.
    Order(OrderId),
    /// Work that several did.
    Delegation(DelegationId),
}

impl FromStr for About {
    type Err = guild_protocol::Error;

    /// ```
    /// use guild_market::dossier::About;
    /// assert!(matches!("11".repeat(32).parse(), Ok(About::Request(_))));
    /// assert!("order_7".parse::<About>().is_err());
    /// ```
    fn from_str(text: &str) -> guild_protocol::Result<About> {
        if text.starts_with("order_") {
            return Ok(About::Order(text.parse()?));
        }
        if text.starts_with("delegation_") {
            return Ok(About::Delegation(text.parse()?));
        }
        Ok(About::Request(text.parse()?))
    }
}

/// The files of a dossier, the manifest among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathered {
    /// What they are.
    pub manifest: Manifest,
    /// Their bytes.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Reads the evidence of some work, of one moment. Of private work only if it may be revealed.
pub fn gather(rx: &mut Rx<'_>, about: &About, reveal_private: bool) -> Result<Gathered> {
    let mut pile = Pile { files: BTreeMap::new(), reveal_private };
    let found = match about {
        About::Delegation(id) => delegation(rx, id, &mut pile)?,
        About::Order(id) => match order::find(rx, id)? {
            Some(order) => Some(of_order(rx, order, &mut pile)?),
            None => None,
        },
        About::Request(id) => match order::of_request(rx, id)? {
            Some(order) => Some(of_order(rx, order, &mut pile)?),
            None => of_trial(rx, id, &mut pile)?,
        },
    };
    let unknown = || Error::refused(&code::UNKNOWN, "no order, delegation or trial has that id");
    pile.finish(found.ok_or_else(unknown)?)
}

/// Files as they come together.
struct Pile {
    files: BTreeMap<String, Vec<u8>>,
    reveal_private: bool,
}

impl Pile {
    fn put(&mut self, path: String, bytes: impl Into<Vec<u8>>) {
        self.files.insert(path, bytes.into());
    }

    /// Refuses to tell more than relays tell, unless that is wanted.
    fn may_tell(&self, is_private: bool) -> Result<()> {
        match is_private && !self.reveal_private {
            false => Ok(()),
            true => Err(Error::refused(&code::PRIVATE, "it was asked for and answered in private")),
        }
    }

    fn event(&mut self, event: &Event) -> EventId {
        self.put(event_at(&event.id), event.to_json());
        event.id
    }

    /// The manifest is written last: it names all others.
    fn finish(mut self, manifest: Manifest) -> Result<Gathered> {
        let files =
            self.files.iter().map(|(path, bytes)| (path.clone(), Hash::of(bytes))).collect();
        let manifest = Manifest { files, ..manifest };
        self.put(MANIFEST.to_owned(), json::to_canonical(&manifest)?);
        let total = self.files.values().fold(0_usize, |sum, bytes| sum.saturating_add(bytes.len()));
        let longest = self.files.values().map(Vec::len).max().unwrap_or(0);
        if self.files.len() > FILES_MAX || total > TOTAL_MAX_BYTES || longest > FILE_MAX_BYTES {
            let count = self.files.len();
            let message = format!("{count} files with {total} bytes, {longest} in one of them");
            return Err(Error::refused(&code::EXPORT, message));
        }
        Ok(Gathered { manifest, files: self.files })
    }
}

fn manifest(about: String, buyer: PublicKey, private: bool) -> Manifest {
    Manifest {
        schema_version: SCHEMA_VERSION.to_owned(),
        about,
        buyer,
        private,
        delegation: None,
        works: Vec::new(),
        reviews: Vec::new(),
        files: BTreeMap::new(),
    }
}

/// An order alone; of one that is a part of a delegation, all of it: alone it says nothing of who else agreed.
fn of_order(rx: &mut Rx<'_>, order: Order, pile: &mut Pile) -> Result<Manifest> {
    if let Some(replica) = delegation::replica_of(rx, &order.order_id)?
        && let Some(manifest) = delegation(rx, &replica.delegation_id, pile)?
    {
        return Ok(manifest);
    }
    pile.may_tell(order.private)?;
    let mut manifest = manifest(order.request_id.hex(), order.buyer, order.private);
    manifest.works.push(work(rx, &order, pile)?);
    reviews(rx, &order.provider, &order.request_id, (&mut manifest, pile))?;
    Ok(manifest)
}

fn delegation(rx: &mut Rx<'_>, id: &DelegationId, pile: &mut Pile) -> Result<Option<Manifest>> {
    let Some(row) = delegation::find(rx, id)? else { return Ok(None) };
    pile.may_tell(row.private)?;
    let mut manifest = manifest(id.to_string(), row.buyer, row.private);
    let (delegation_id, budget_msat) = (id.to_string(), row.budget.0);
    manifest.delegation = Some(Council { delegation_id, budget_msat });
    for (_, order) in delegation::with_orders(rx, id)? {
        manifest.works.push(work(rx, &order, pile)?);
        reviews(rx, &order.provider, &order.request_id, (&mut manifest, pile))?;
    }
    Ok(Some(manifest))
}

/// Everything about one order.
fn work(rx: &mut Rx<'_>, order: &Order, pile: &mut Pile) -> Result<Work> {
    if !order.state.is_closed() {
        let message = format!("{} is {}", order.order_id, order.state.as_str());
        return Err(Error::refused(&code::OPEN, message));
    }
    let request = order.request()?;
    pile.event(&request);
    let mut heard = said_meanwhile(rx, &request, pile)?;
    for answer in order::answers(rx, &order.request_id)? {
        let event = kept(rx, &answer.event_id, answer.json.as_deref())?;
        if let Some(event) = event {
            let id = pile.event(&event);
            if order.result_id != Some(id) && heard.len() < HEARD_MAX {
                heard.push(id);
            }
        }
    }
    if order.private || refers(&request) {
        pile.put(input_at(&order.request_id), order.payload.as_bytes());
    }
    if let (true, Some(output)) = (order.private, &order.output_text) {
        pile.put(output_at(&order.request_id), output.as_bytes());
    }
    let verdict_hash = order.verdict.as_ref().map(|document| Hash::of(document.as_bytes()));
    if let (Some(hash), Some(document)) = (&verdict_hash, &order.verdict) {
        pile.put(verdict_at(hash), document.as_bytes());
    }
    if let Some(replay) = &order.replay {
        pile.put(replay_at(&order.request_id), replay.as_bytes());
    }
    money(rx, order, pile)?;
    heard.sort_unstable();
    heard.dedup();
    Ok(Work {
        request_id: order.request_id,
        schema_id: order.schema_id.to_string(),
        provider: order.provider,
        state: order.state.as_str().to_owned(),
        result_id: order.result_id,
        heard,
        verdict_hash,
        receipt_id: order.receipt_id.clone(),
        revealed: None,
    })
}

/// The receipt, and the commit of the ledger in which was paid.
fn money(rx: &mut Rx<'_>, order: &Order, pile: &mut Pile) -> Result<()> {
    let Some(receipt_id) = &order.receipt_id else { return Ok(()) };
    if let Some(receipt) = receipts::get(rx, receipt_id)? {
        pile.put(receipt_at(receipt_id), receipt.text);
    }
    if let Some(slice) = export::slice(rx, &order.payment_id())? {
        pile.put(slice_at(&order.request_id), slice);
    }
    Ok(())
}

/// Whether a request does not carry its input, but says where it is.
fn refers(request: &Event) -> bool {
    Request::parse(request, None).is_ok_and(|said| job::referred(&said).is_some())
}

/// An event as it was kept, or as the archive has it.
fn kept(rx: &mut Rx<'_>, id: &EventId, text: Option<&str>) -> Result<Option<Event>> {
    let event = text.and_then(|text| Event::parse(text.as_bytes(), &Limits::DEFAULT).ok());
    match event {
        Some(event) => Ok(Some(event)),
        None => Ok(archive::event(rx, id)?),
    }
}

/// Feedback of those who were asked, and the wish to delete the request.
fn said_meanwhile(rx: &mut Rx<'_>, request: &Event, pile: &mut Pile) -> Result<Vec<EventId>> {
    let addressed: Vec<PublicKey> =
        tag::values(&request.tags, "p").filter_map(|key| key.parse().ok()).collect();
    let mut ids = Vec::new();
    for answer in index::answers_within(rx, &request.id, &addressed, HEARD_MAX)? {
        let is_asked = addressed.is_empty() || addressed.contains(&answer.author);
        if answer.kind == kind::FEEDBACK && is_asked {
            ids.push(answer.event_id);
        }
    }
    let mut events = Vec::new();
    for id in ids {
        events.extend(archive::event(rx, &id)?);
    }
    let authors = Some([request.pubkey].into());
    let wish = Filter { authors, ..Filter::kinds([kind::DELETION]) }.tag('e', [request.id.hex()]);
    // Everything that is there, whenever it expires.
    for stored in archive::query(rx, &[wish], 1, 0)? {
        events.extend(Event::parse(stored.json.as_bytes(), &Limits::DEFAULT).ok());
    }
    let named = |event: &&Event| tag::values(&event.tags, "e").any(|id| id == request.id.hex());
    Ok(events.iter().filter(named).map(|event| pile.event(event)).collect())
}

/// What was said in public of this work.
fn reviews(
    rx: &mut Rx<'_>,
    provider: &Option<PublicKey>,
    request_id: &EventId,
    (manifest, pile): (&mut Manifest, &mut Pile),
) -> Result<()> {
    let Some(provider) = provider else { return Ok(()) };
    for row in review::of_request(rx, provider, request_id)? {
        for id in &row.event_ids {
            // A set that was replaced is not kept.
            if let Some(event) = archive::event(rx, id)? {
                let id = pile.event(&event);
                manifest.reviews.push(id);
            }
        }
    }
    Ok(())
}

/// A request of a meeting, with the tests by which it was judged.
fn of_trial(rx: &mut Rx<'_>, id: &EventId, pile: &mut Pile) -> Result<Option<Manifest>> {
    let Some(trial) = meeting::trial_of(rx, id)? else { return Ok(None) };
    let meeting = meeting::get(rx, &trial.meeting_id)?;
    let terms = &meeting.terms;
    pile.may_tell(terms.encrypted)?;
    if trial.class.is_none() {
        // Until it is judged nobody may know by what.
        return Err(Error::refused(
            &code::OPEN,
            "the trial is not judged, and its tests are secret",
        ));
    }
    let request = trial.request()?;
    pile.event(&request);
    let mut heard = said_meanwhile(rx, &request, pile)?;
    for word in meeting::words(rx, id)? {
        if let Some(event) = kept(rx, &word.event_id, Some(&word.json))? {
            let event_id = pile.event(&event);
            if trial.result_id != Some(event_id) && heard.len() < HEARD_MAX {
                heard.push(event_id);
            }
        }
    }
    heard.sort_unstable();
    heard.dedup();
    let row: Option<(Option<String>, Option<i64>)> = rx.first(
        "SELECT judgement_id, judged_ms FROM market_trial WHERE request_id = $1",
        args![&id.hex()],
    )?;
    let (judgement_id, judged_ms) = row.unwrap_or_default();
    let verdict_hash = judgement(rx, judgement_id.as_deref(), pile)?;
    let revealed = Some(revealed(&trial, &meeting, judged_ms, pile));
    let mut manifest = manifest(id.hex(), request.pubkey, terms.encrypted);
    manifest.works.push(Work {
        request_id: *id,
        schema_id: terms.benchmark.schema_id().to_owned(),
        provider: Some(terms.provider),
        state: "judged".to_owned(),
        result_id: trial.result_id,
        heard,
        verdict_hash,
        receipt_id: None,
        revealed,
    });
    reviews(rx, &Some(terms.provider), id, (&mut manifest, pile))?;
    Ok(Some(manifest))
}

/// The verdict of the judge, as it was kept.
fn judgement(rx: &mut Rx<'_>, id: Option<&str>, pile: &mut Pile) -> Result<Option<Hash>> {
    let Some(id) = id.and_then(|id| Hash::parse_liberal(id).ok()) else { return Ok(None) };
    let Some(text) = record::get(rx, &id)? else { return Ok(None) };
    let hash = Hash::of(text.as_bytes());
    pile.put(verdict_at(&hash), text);
    Ok(Some(hash))
}

/// By what it was judged: the tests as they are, and from what they follow.
fn revealed(
    trial: &Trial,
    meeting: &meeting::Meeting,
    judged_ms: Option<i64>,
    pile: &mut Pile,
) -> Revealed {
    let terms = &meeting.terms;
    let task = terms.task(&trial.seed).ok();
    if let Some(task) = &task {
        pile.put(suite_at(&task.suite().hash()), task.suite().canonical());
    }
    if terms.encrypted {
        let asked = task.as_ref().and_then(|task| task.spec_text().ok());
        pile.files.extend(asked.map(|text| (input_at(&trial.request_id), text.into_bytes())));
        let said = trial.content.as_ref().map(|text| text.clone().into_bytes());
        pile.files.extend(said.map(|bytes| (output_at(&trial.request_id), bytes)));
    }
    Revealed {
        benchmark: terms.benchmark.name().to_owned(),
        modules: terms.modules.iter().map(|module| module.name().to_owned()).collect(),
        seed: to_hex(&trial.seed),
        salt: task.as_ref().map(|task| task.salt().hex()),
        suite_hash: task.as_ref().map(|task| task.suite().hash()),
        judged_ms,
    }
}
