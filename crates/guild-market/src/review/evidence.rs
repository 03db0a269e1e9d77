//! What of a review can be looked at here.
//!
//! A request that its reviewer signed and a result of the reviewed that answers it cannot be made up by anybody else:
//! each is signed by one of the two. What is cited and is not so was forged, or is somebody else's.

use guild_network::archive;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::job::correlates;
use guild_protocol::nostr::receipt_notice::{D_PREFIX, ReceiptNotice};
use guild_protocol::nostr::review::{Evidence, Payment};
use guild_protocol::nostr::{Event, EventId, Filter, Limits, kind, tag};
use guild_store::Rx;
use serde::Serialize;

use crate::Result;

/// What of a review can be looked at here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Nothing.
    None,
    /// It cites what is not so.
    Forged,
    /// Its reviewer asked the reviewed for work; no result is here.
    Asked,
    /// The reviewed has done what the reviewer asked for.
    Done,
    /// And a receipt of the reviewer for it is here.
    Paid,
}

impl Grade {
    /// All of them.
    pub const ALL: [Grade; 5] =
        [Grade::None, Grade::Forged, Grade::Asked, Grade::Done, Grade::Paid];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Grade::None => "none",
            Grade::Forged => "forged",
            Grade::Asked => "asked",
            Grade::Done => "done",
            Grade::Paid => "paid",
        }
    }

    /// The grade of that name.
    pub fn named(name: &str) -> Option<Grade> {
        Grade::ALL.into_iter().find(|grade| grade.name() == name)
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Grade::None => "nothing that is here",
            Grade::Forged => "what is not so",
            Grade::Asked => "a request",
            Grade::Done => "a request and its result",
            Grade::Paid => "a request, its result and a receipt",
        }
    }

    /// What it weighs, in thousandths: that somebody was asked says little. A receipt adds nothing, because whoever
    /// pays itself pays nothing.
    pub fn weight_milli(self) -> u64 {
        match self {
            Grade::None | Grade::Forged => 0,
            Grade::Asked => 100,
            Grade::Done | Grade::Paid => 1_000,
        }
    }
}

/// Looks at what a review cites, in the archive.
pub fn grade(
    rx: &mut Rx<'_>,
    reviewer: &PublicKey,
    subject: &PublicKey,
    evidence: &Evidence,
    now_s: u64,
) -> Result<Grade> {
    let Some(request) = cited(rx, evidence.request_id)? else { return Ok(Grade::None) };
    if request.pubkey != *reviewer || !kind::is_request(request.kind) {
        return Ok(Grade::Forged);
    }
    let mut asked = tag::values(&request.tags, "p").peekable();
    let hex = subject.hex();
    if asked.peek().is_some() && !asked.any(|key| key == hex) {
        return Ok(Grade::Forged);
    }
    let Some(result) = cited(rx, evidence.result_id)? else { return Ok(Grade::Asked) };
    if correlates(&request, &[*subject], &result).is_err() {
        return Ok(Grade::Forged);
    }
    match &evidence.payment {
        None => Ok(Grade::Done),
        Some(payment) => paid(rx, payment, (&request, subject), now_s),
    }
}

fn cited(rx: &mut Rx<'_>, id: Option<EventId>) -> Result<Option<Event>> {
    match id {
        Some(id) => Ok(archive::event(rx, &id)?),
        None => Ok(None),
    }
}

/// Whether the receipt that is cited is here, and of this work.
fn paid(
    rx: &mut Rx<'_>,
    payment: &Payment,
    (request, subject): (&Event, &PublicKey),
    now_s: u64,
) -> Result<Grade> {
    let d = format!("{D_PREFIX}{}", payment.receipt_id);
    let wanted =
        Filter { authors: Some([request.pubkey].into()), ..Filter::kinds([kind::APP_DATA]) };
    let Some(stored) = archive::query(rx, &[wanted.tag('d', [d])], 1, now_s)?.pop() else {
        return Ok(Grade::Done);
    };
    let Ok(notice) = Event::parse(stored.json.as_bytes(), &Limits::DEFAULT) else {
        return Ok(Grade::Done);
    };
    let names = |name: &str, what: &str| notice.tag(name) == Some(what);
    let tags_agree = names("e", &request.id.hex()) && names("p", &subject.hex());
    // An encrypted one cannot be read by strangers: its tags must do.
    let is_so = match tag::has(&notice.tags, "encrypted") {
        true => tags_agree,
        false => tags_agree && ReceiptNotice::parse(&notice, None).is_ok(),
    };
    Ok(if is_so { Grade::Paid } else { Grade::Forged })
}
