//! A dispute about the result of a request, as the two tell each other: a label (NIP-32, kind 1985) in the namespace
//! `guild.dispute`.
//!
//! | step | by whom | what it says |
//! |---|---|---|
//! | `filed` | the buyer or the provider | why, what it can be checked by, and who may decide |
//! | `answered` | the other one | its side, and who may decide |
//! | `decided` | the arbiter, or one of the two | who is right; it cites the filing |
//!
//! Of one request there is one dispute, so its id follows from the request. A message proves nothing but who said it:
//! whether it is worth anything is for whoever reads it. Everything that is not as it must be is refused.
//!
//! ```
//! use guild_protocol::{env::Signer, identity::SecretKey};
//! use guild_protocol::nostr::{EventId, dispute::{Message, Parties, Reason, Said}};
//! let key = |n: u8| format!("{n:064x}").parse::<SecretKey>().unwrap();
//! let parties = Parties { buyer: key(1).public_key(), provider: key(2).public_key(), arbiter: None };
//! let message = Message::new(EventId::from_bytes([7; 32]), parties, Said::Filed(Reason::VerdictWrong));
//! let event = message.draft(&key(2).public_key(), 1_700_000_000).unwrap().sign(&key(2)).unwrap();
//! assert_eq!(Message::parse(&event, None).unwrap(), message);
//! ```

use super::job::code::{ENCRYPTED as ENCRYPTED_CODE, NO_RECIPIENT};
use super::{Draft, Event, EventId, Tag, kind, nip44, tag};
use crate::env::{Random, Signer};
use crate::hash::Hash;
use crate::identity::{PublicKey, SecretKey};
use crate::{Error, Result, typed_id};

mod content;
mod words;

pub use content::{EVIDENCE_MAX, Reference, STATEMENT_MAX_CHARS};
pub use words::{By, Outcome, Reason, Side};

/// The codes of this module.
pub mod code {
    crate::codes! {
        WRONG_KIND = "dispute.kind_wrong", Invalid,
            "An event is not about a dispute.",
            "A message of a dispute is a label (1985) in the namespace guild.dispute.";
        MALFORMED = "dispute.message_malformed", Invalid,
            "A message of a dispute is not written as it must be, or contradicts itself or its tags.",
            "Correct what is named; docs/formats/dispute.md lists what a message needs.";
        AUTHOR = "dispute.author_wrong", Invalid,
            "A message of a dispute is signed by somebody who cannot say what it says.",
            "Only the buyer and the provider file and answer; the arbiter that is named may decide.";
    }
}

/// The namespace of these labels.
pub const NAMESPACE: &str = "guild.dispute";

const ENCRYPTED: &str = "encrypted";

typed_id! {
    /// Names the dispute about the result of a request.
    DisputeId = "dispute", content;
}

impl DisputeId {
    /// The dispute about this request: there is one.
    pub fn of_request(request_id: &EventId) -> DisputeId {
        DisputeId::of(&Hash::of(format!("guild.dispute.v1\n{request_id}").as_bytes()))
    }
}

/// Between whom a dispute is, and who may decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parties {
    /// Who asked for the work.
    pub buyer: PublicKey,
    /// Who did it.
    pub provider: PublicKey,
    /// Who may decide, as the author of the message names it.
    pub arbiter: Option<PublicKey>,
}

impl Parties {
    /// What a key is in this dispute, if it is anything.
    pub fn side_of(&self, key: &PublicKey) -> Option<Side> {
        match key {
            key if *key == self.buyer => Some(Side::Buyer),
            key if *key == self.provider => Some(Side::Provider),
            key if Some(*key) == self.arbiter => Some(Side::Arbiter),
            _ => None,
        }
    }

    /// Everybody but one.
    fn others(&self, author: &PublicKey) -> Vec<PublicKey> {
        let all = [self.buyer, self.provider].into_iter().chain(self.arbiter);
        all.filter(|key| key != author).collect()
    }
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// It is disputed, for this reason.
    Filed(Reason),
    /// The other side's answer.
    Answered,
    /// Who is right.
    Decided {
        /// What the money does.
        outcome: Outcome,
        /// By what.
        by: By,
        /// The event that filed it.
        filing: EventId,
    },
}

impl Said {
    /// The word in the label.
    pub fn step(&self) -> &'static str {
        match self {
            Said::Filed(_) => "filed",
            Said::Answered => "answered",
            Said::Decided { .. } => "decided",
        }
    }
}

/// A message of a dispute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The request whose result is disputed.
    pub request_id: EventId,
    /// Between whom.
    pub parties: Parties,
    /// The result, if there is one.
    pub result_id: Option<EventId>,
    /// What is said.
    pub said: Said,
    /// In words.
    pub statement: Option<String>,
    /// What it can be checked by.
    pub evidence: Vec<Reference>,
}

/// Whether an event may be a message of a dispute: its kind and its namespace say so.
pub fn is_dispute(event: &Event) -> bool {
    event.kind == kind::LABEL && tag::values(&event.tags, "L").any(|name| name == NAMESPACE)
}

impl Message {
    /// A message without words or evidence.
    pub fn new(request_id: EventId, parties: Parties, said: Said) -> Message {
        Message {
            request_id,
            parties,
            result_id: None,
            said,
            statement: None,
            evidence: Vec::new(),
        }
    }

    /// The dispute that it belongs to.
    pub fn dispute_id(&self) -> DisputeId {
        DisputeId::of_request(&self.request_id)
    }

    /// Reads a message. An encrypted one needs the key of one of the two. Says nothing about the event's signature.
    pub fn parse(event: &Event, key: Option<&SecretKey>) -> Result<Message> {
        if !is_dispute(event) {
            let message = format!("an event of kind {} is about no dispute", event.kind);
            return Err(Error::new(&code::WRONG_KIND, message).at("kind"));
        }
        let text = open(event, key)?;
        let message = content::parse(&text).map_err(|e| e.within("content"))?;
        message.check(&event.pubkey)?;
        if event.tags != message.tags(&event.pubkey, tag::has(&event.tags, ENCRYPTED)) {
            let what = "its tags are not those of what it says";
            return Err(Error::new(&code::MALFORMED, what).at("tags"));
        }
        Ok(message)
    }

    /// The message as an event of this author. The same message at the same second is the same event.
    pub fn draft(&self, author: &PublicKey, created_at: u64) -> Result<Draft> {
        self.check(author)?;
        let tags = self.tags(author, false);
        Ok(Draft { kind: kind::LABEL, created_at, tags, content: content::to_json(self)? })
    }

    /// The same, encrypted to the other of the two. That they dispute about a request stays readable; why does not.
    /// An arbiter could not read it either, so none may be named.
    pub fn sealed_draft(
        &self,
        own: &SecretKey,
        created_at: u64,
        random: &dyn Random,
    ) -> Result<Draft> {
        let author = own.public_key();
        self.check(&author)?;
        let others = self.parties.others(&author);
        let [other] = others.as_slice() else {
            let what = "what is encrypted is between two, without an arbiter";
            return Err(Error::new(&code::MALFORMED, what).at("arbiter"));
        };
        let content = nip44::encrypt(own, other, &content::to_json(self)?, random)?;
        Ok(Draft { kind: kind::LABEL, created_at, tags: self.tags(&author, true), content })
    }

    /// What it says in JSON: the content of its event.
    pub fn content_text(&self) -> Result<String> {
        content::to_json(self)
    }

    fn tags(&self, author: &PublicKey, encrypted: bool) -> Vec<Tag> {
        let mut tags = vec![
            tag::tag(["L", NAMESPACE]),
            tag::tag(["l", self.said.step(), NAMESPACE]),
            tag::tag(["e", &self.request_id.hex()]),
        ];
        tags.extend(self.parties.others(author).iter().map(|key| tag::tag(["p", &key.hex()])));
        if encrypted {
            tags.push(tag::tag([ENCRYPTED]));
        }
        tags
    }

    /// Whether this author can say this.
    fn check(&self, author: &PublicKey) -> Result<()> {
        let Parties { buyer, provider, arbiter } = &self.parties;
        if buyer == provider || *arbiter == Some(*buyer) || *arbiter == Some(*provider) {
            let what = "buyer, provider and arbiter are different keys";
            return Err(Error::new(&code::MALFORMED, what).at("arbiter"));
        }
        let may = match (self.parties.side_of(author), &self.said) {
            (Some(Side::Arbiter), Said::Decided { by, .. }) => *by == By::Arbiter,
            (Some(Side::Buyer | Side::Provider), Said::Decided { by, .. }) => *by != By::Arbiter,
            (Some(side), Said::Filed(reason)) => reason.is_of(side),
            (Some(side), Said::Answered) => side != Side::Arbiter,
            (None, _) => false,
        };
        if !may {
            let what = format!("{} cannot say {}", author.npub(), self.said.step());
            return Err(Error::new(&code::AUTHOR, what).at("pubkey"));
        }
        content::check(self)
    }
}

fn open(event: &Event, key: Option<&SecretKey>) -> Result<String> {
    if !tag::has(&event.tags, ENCRYPTED) {
        return Ok(event.content.clone());
    }
    let Some(key) = key else {
        let message = "the message is encrypted and no key was given";
        return Err(Error::new(&ENCRYPTED_CODE, message).at("content"));
    };
    let other: PublicKey = match event.tag("p") {
        _ if key.public_key() != event.pubkey => event.pubkey,
        Some(other) => other.parse().map_err(|e: Error| e.at("p"))?,
        None => {
            let message = "an encrypted message is addressed to the other one";
            return Err(Error::new(&NO_RECIPIENT, message).at("p"));
        }
    };
    nip44::decrypt(key, &other, &event.content).map_err(|e| e.at("content"))
}
