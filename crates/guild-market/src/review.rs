//! Reviews: what we say of providers in public, and what others say is worth.
//!
//! ```text
//! outcome ─▶ note: draft, due after a day ─▶ publish: kinds 2020, 32020 and 1985, signed and queued as one
//!    │
//!    └─▶ score: how well did reviewers foretell it? ─┐
//! event of others ─▶ take: the newest of each ───────┴─▶ weigh ─▶ prior, at most five outcomes ─▶ policy `thompson`
//! ```
//!
//! A draft is written in the transaction that writes its outcome, and what is due is a row: so nothing is lost, and
//! what is published follows from rows alone. When it is due is [`when`], which is pure.
//!
//! Anybody can say anything under any number of keys. So a review that names nothing that this node can look at weighs
//! nothing, and one that does weighs as much as its reviewer has foretold our own outcomes; see [`weigh`]. What all of
//! them say stands in for outcomes that we do not have yet, and never beside those that we have.

use std::collections::BTreeSet;

use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_protocol::typed_id;
use guild_store::Rx;

use crate::Result;

mod compose;
mod evidence;
mod note;
mod prior;
mod publish;
mod read;
mod seen;
mod weigh;
mod when;

pub use compose::{Belief, compose};
pub use evidence::{Grade, grade};
pub use note::{Noted, ended, met, note};
pub use prior::{Weighed, hearsay, record_of, refresh, score, upkeep, weighed};
pub use publish::{Published, due, publish};
pub use read::{Row, State, find, get, of_provider, of_request, page_before};
pub use seen::{Seen, Taken, seen_of, seen_page, take, withdraw};
pub use weigh::{Line, MOST_MILLI, Prior, Record, Said, calibration_milli, weigh};
pub use when::{DAY_MS, Due, Facts, Last, Reason, when};

typed_id! {
    /// Names a review of ours: the so-manieth of one provider for one kind of work.
    ReviewId = "review", content;
}

impl ReviewId {
    /// The review of this number.
    pub fn of_number(provider: &PublicKey, task: &str, number: i64) -> ReviewId {
        let name = format!("guild.review.v1\n{}\n{task}\n{number}", provider.hex());
        ReviewId::of(&Hash::of(name.as_bytes()))
    }
}

/// How reviews are made and taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long a review waits for later outcomes before it is published.
    pub delay_ms: i64,
    /// Our own keys: they are not reviewed, and what they say is no news to us.
    pub ours: BTreeSet<PublicKey>,
    /// Keys whose reviews weigh something although nothing is known of them.
    pub trusted: BTreeSet<PublicKey>,
}

impl Default for Options {
    fn default() -> Options {
        Options { delay_ms: DAY_MS, ours: BTreeSet::new(), trusted: BTreeSet::new() }
    }
}

/// Whether a dispute about the result of this request is open. Whoever has disputes says so.
pub type Disputed<'a> = &'a dyn Fn(&mut Rx<'_>, &EventId) -> Result<bool>;

/// Nothing is disputed.
pub fn undisputed(_: &mut Rx<'_>, _: &EventId) -> Result<bool> {
    Ok(false)
}

/// Who stands behind a key: reviewers of one operator count once.
pub type Operator<'a> = &'a dyn Fn(&PublicKey) -> PublicKey;

/// Everybody stands behind one key.
pub fn alone(key: &PublicKey) -> PublicKey {
    *key
}
