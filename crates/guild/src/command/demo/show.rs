//! The result of the demo, for people and for programs.

use guild_roles::explorer::{Offer, msat};
use serde::Serialize;

use super::CHEAT;
use super::job::{Done, Whom};
use super::met::{self, Met, MetBody};
use super::proof::{Dossiers, Proof};
use crate::command::Context;
use crate::command::table::{self, Column};
use crate::error::Result;

/// Everything there is to tell.
pub(super) struct Told {
    pub(super) offers: Vec<Offer>,
    /// What was found of them; nothing where nobody can be tested.
    pub(super) met: Vec<Met>,
    /// How many were to be tested.
    pub(super) applicants: usize,
    pub(super) done: Vec<Done>,
    /// One for each job.
    pub(super) proofs: Vec<Proof>,
    pub(super) evidence_holds: bool,
    /// What single pieces of work show by themselves.
    pub(super) dossiers: Dossiers,
    pub(super) nodes: usize,
    pub(super) explorer: String,
    pub(super) took_ms: i64,
}

impl Told {
    /// Whether all is as it should be: good work paid, bad work not, and everything proven.
    pub(super) fn ok(&self) -> bool {
        let fair = |done: &Done| done.passed() == (done.name != CHEAT);
        self.evidence_holds
            && self.dossiers.problems == 0
            && (self.met.is_empty() || self.dossiers.reviews > 0)
            && self.met.len() == self.applicants
            && self.met.iter().all(Met::is_seen_through)
            && self.done.iter().all(fair)
            && self.proofs.iter().all(|proof| proof.verified)
    }
}

#[derive(Serialize)]
struct Body<'a> {
    providers: Vec<ProviderBody<'a>>,
    meetings: Vec<MetBody>,
    jobs: Vec<JobBody<'a>>,
    receipts: Vec<ReceiptBody<'a>>,
    evidence: EvidenceBody,
    took_ms: i64,
    explorer: &'a str,
}

#[derive(Serialize)]
struct ProviderBody<'a> {
    name: Option<&'a str>,
    npub: &'a str,
    price_msat: Option<i64>,
}

#[derive(Serialize)]
struct JobBody<'a> {
    request_id: String,
    schema_id: &'a str,
    provider: &'a str,
    private: bool,
    state: &'a str,
    verdict: String,
    paid_msat: i64,
    receipt_id: &'a str,
}

#[derive(Serialize)]
struct ReceiptBody<'a> {
    id: &'a str,
    verified: bool,
}

#[derive(Serialize)]
struct EvidenceBody {
    nodes: usize,
    holds: bool,
    requests: usize,
    verdicts: usize,
    receipts: usize,
    reviews: usize,
    problems: usize,
}

pub(super) fn show(told: &Told, cx: &mut Context<'_>) -> Result<()> {
    if cx.out.json() {
        return cx.out.object(told.ok(), body(told));
    }
    cx.out.line("")?;
    if !told.met.is_empty() {
        table::print(met::COLUMNS, &met::rows(&told.met), cx.out)?;
        cx.out.line("")?;
    }
    let columns = [
        Column::Right("job"),
        Column::Left("provider"),
        Column::Right("price"),
        Column::Left("work"),
        Column::Left("request"),
        Column::Left("verdict"),
        Column::Right("paid"),
        Column::Left("receipt"),
        Column::Left("its bytes"),
    ];
    let rows: Vec<_> =
        told.done.iter().zip(&told.proofs).map(|(done, proof)| row(told, done, proof)).collect();
    table::print(columns, &rows, cx.out)?;
    cx.out.line("")?;
    let holds = if told.evidence_holds { "hold together" } else { "do NOT hold together" };
    let evidence = format!(
        "the books of {} nodes {holds}: nothing lost, nothing paid twice (guild audit --evidence)",
        told.nodes
    );
    let Dossiers { requests, verdicts, receipts, reviews, problems } = told.dossiers;
    let alone = format!(
        "{requests} requests, each from its own files alone: {verdicts} verdicts, {receipts} receipts, \
         {reviews} events of reviews, {problems} problems (guild evidence export)"
    );
    let seconds = told.took_ms.max(0) / 100;
    let took = format!("{}.{} s", seconds / 10, seconds % 10);
    cx.out.fields(&[
        ("evidence", evidence.as_str()),
        ("work", alone.as_str()),
        ("explorer", told.explorer.as_str()),
        ("took", took.as_str()),
    ])
}

fn row(told: &Told, done: &Done, proof: &Proof) -> [String; 9] {
    let npub = done.order.provider.map(|provider| provider.npub());
    let offer = told.offers.iter().find(|offer| Some(&offer.provider.npub) == npub.as_ref());
    let price = offer.and_then(|offer| offer.price_msat).map(msat).unwrap_or_default();
    let how = if done.job.private { "private" } else { "open" };
    let request = match done.job.whom {
        // Whoever is tested is tested behind it.
        Whom::Cheapest if told.met.is_empty() => format!("{how}, cheapest"),
        Whom::Cheapest => format!("{how}, before tests"),
        Whom::Named(_) => format!("{how}, by name"),
        Whom::Two => format!("{how}, side by side"),
    };
    [
        done.number.to_string(),
        done.name.to_owned(),
        price,
        done.work().to_owned(),
        request,
        done.verdict(),
        msat(done.paid_msat()),
        short(&proof.receipt_id),
        if proof.verified { "verified" } else { "NOT verified" }.to_owned(),
    ]
}

/// Enough of an id to find it.
fn short(id: &str) -> String {
    match id.char_indices().nth(16) {
        Some((at, _)) => format!("{}…", id.get(..at).unwrap_or(id)),
        None => id.to_owned(),
    }
}

fn body(told: &Told) -> Body<'_> {
    Body {
        providers: told
            .offers
            .iter()
            .map(|offer| ProviderBody {
                name: offer.provider.name.as_deref(),
                npub: &offer.provider.npub,
                price_msat: offer.price_msat,
            })
            .collect(),
        meetings: told.met.iter().map(Met::body).collect(),
        jobs: told.done.iter().zip(&told.proofs).map(|(done, proof)| job(done, proof)).collect(),
        receipts: told
            .proofs
            .iter()
            .map(|proof| ReceiptBody { id: &proof.receipt_id, verified: proof.verified })
            .collect(),
        evidence: EvidenceBody {
            nodes: told.nodes,
            holds: told.evidence_holds,
            requests: told.dossiers.requests,
            verdicts: told.dossiers.verdicts,
            receipts: told.dossiers.receipts,
            reviews: told.dossiers.reviews,
            problems: told.dossiers.problems,
        },
        took_ms: told.took_ms,
        explorer: &told.explorer,
    }
}

fn job<'a>(done: &'a Done, proof: &'a Proof) -> JobBody<'a> {
    JobBody {
        request_id: done.order.request_id.hex(),
        schema_id: done.order.schema_id.as_str(),
        provider: done.name,
        private: done.job.private,
        state: done.order.state.as_str(),
        verdict: done.verdict(),
        paid_msat: done.paid_msat(),
        receipt_id: &proof.receipt_id,
    }
}
