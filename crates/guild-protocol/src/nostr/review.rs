//! What somebody says in public of a provider: reviews (kinds 2020 and 32020), and the same as a label (NIP-32, 1985).
//!
//! One review is sent in three forms. The plain one stays for ever, the set is replaced by the next one of the same
//! provider and work, and the label is found by whoever knows NIP-32 alone. All say the same, and whoever counts them
//! counts one. A review proves nothing by itself: its [`Evidence`] names what can be looked at.
//!
//! Trust is from 0 to 1, in ten-thousandths; a rating is 1 + 4 × trust, of 5, written exactly.
//!
//! ```
//! use guild_protocol::{env::Signer, identity::SecretKey, nostr::review::{Form, Review}};
//! let key = |n: u8| format!("{n:064x}").parse::<SecretKey>().unwrap();
//! let review = Review::new(key(2).public_key(), "oa.embedding.v1", 6_125);
//! assert_eq!(review.rating(), "3.45");
//! for form in Form::ALL {
//!     let event = review.draft(form, 1_700_000_000).unwrap().sign(&key(1)).unwrap();
//!     assert_eq!(Review::parse(&event).unwrap(), review);
//! }
//! ```

use super::{Draft, Event, EventId, Tag, is_relay_url, kind, tag};
use crate::hash::shorten;
use crate::identity::PublicKey;
use crate::{Error, Result};

mod content;
mod stars;

pub use content::{Content, Evidence, Payment, Reveal};
pub use stars::{MOST_BP, stars};

/// The codes of this module.
pub mod code {
    crate::codes! {
        WRONG_KIND = "review.kind_wrong", Invalid,
            "An event is not a review.",
            "A review has the kind 2020 or 32020, or is a label (1985) in the namespace guild.review.";
        MALFORMED = "review.malformed", Invalid,
            "A review does not say whom, what work or how well, or says it in a form that cannot be read.",
            "Correct what is named; docs/formats/review.md lists what a review needs.";
        BAD_VALUE = "review.value_not_allowed", Invalid,
            "A value may not be sent in a review, although it might be read.",
            "Correct the field named; docs/formats/review.md says what is allowed.";
    }
}

/// The namespace of our labels: how well somebody did,
pub const NAMESPACE: &str = "guild.review";
/// and what work that was.
pub const TASK_NAMESPACE: &str = "guild.review.task";

/// The longest name of a kind of work.
const TASK_MAX_BYTES: usize = 100;

const SUBJECT: &str = "subject";
const RATING: &str = "rating";
const DENOM: &str = "denom";
const TASK: &str = "task";

/// How a review is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Kind 2020: it stays.
    Review,
    /// Kind 32020: the next one of the same author, subject and work replaces it.
    Set,
    /// Kind 1985: a label on the subject.
    Label,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 3] = [Form::Review, Form::Set, Form::Label];

    /// The kind of its events.
    pub fn kind(self) -> u16 {
        match self {
            Form::Review => kind::REVIEW,
            Form::Set => kind::REPLACEABLE_REVIEW,
            Form::Label => kind::LABEL,
        }
    }
}

/// What somebody says of a provider, for one kind of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// Of whom.
    pub subject: PublicKey,
    /// Where that one can be heard.
    pub relay: Option<String>,
    /// Which work: the id of a schema, or a word such as `benchmark-task`.
    pub task: String,
    /// How far it is trusted, in ten-thousandths.
    pub trust_bp: u32,
    /// What is said in words and numbers.
    pub content: Content,
    /// What it can be checked by.
    pub evidence: Evidence,
}

/// Whether an event may be a review: its kind says so, and of a label its namespace.
pub fn is_review(event: &Event) -> bool {
    match event.kind {
        kind::REVIEW | kind::REPLACEABLE_REVIEW => true,
        kind::LABEL => tag::values(&event.tags, "L").any(|name| name == NAMESPACE),
        _ => false,
    }
}

impl Review {
    /// A review that says no more than how well.
    pub fn new(subject: PublicKey, task: impl Into<String>, trust_bp: u32) -> Review {
        Review {
            subject,
            relay: None,
            task: task.into(),
            trust_bp,
            content: Content::default(),
            evidence: Evidence::default(),
        }
    }

    /// How many of five stars, exactly.
    pub fn rating(&self) -> String {
        stars(self.trust_bp)
    }

    /// The `d` tag of the set: of one author there is one for each subject and work.
    pub fn d(&self) -> String {
        format!("{}:{}", self.subject.hex(), self.task)
    }

    /// Reads a review. Says nothing about its signature, nor about its evidence. Texts that are longer than what may be
    /// sent are cut.
    pub fn parse(event: &Event) -> Result<Review> {
        if !is_review(event) {
            let message = format!("an event of kind {} is not a review", event.kind);
            return Err(Error::new(&code::WRONG_KIND, message).at("kind"));
        }
        let said = match event.kind {
            kind::LABEL => Said::of_label(&event.tags),
            _ => Said::of_review(&event.tags),
        };
        let (whom, relay) = said.subject.ok_or_else(|| malformed("it names nobody", SUBJECT))?;
        let subject: PublicKey = whom.parse().map_err(|e: Error| e.at(SUBJECT))?;
        let task = said.task.ok_or_else(|| malformed("it names no work", TASK))?;
        if !is_task(task) {
            return Err(malformed("the name of a kind of work is 1 to 100 plain letters", TASK));
        }
        let (rating, of) = said.rating.ok_or_else(|| malformed("it rates nothing", RATING))?;
        let trust_bp = stars::trust_bp(rating, of).ok_or_else(|| {
            let what = format!("{:?} of {:?} is no rating", shorten(rating), shorten(of));
            malformed(&what, RATING)
        })?;
        let (content, evidence) =
            content::parse(&event.content).map_err(|e| e.within("content"))?;
        Ok(Review {
            subject,
            relay: relay.filter(|url| is_relay_url(url)).map(str::to_owned),
            task: task.to_owned(),
            trust_bp,
            content,
            evidence: evidence.unwrap_or_else(|| cited(event)),
        })
    }

    /// The review as an event. The same review at the same second is the same event.
    pub fn draft(&self, form: Form, created_at: u64) -> Result<Draft> {
        self.check()?;
        let mut tags = match form {
            Form::Review => Vec::new(),
            Form::Set => vec![tag::tag(["d", &self.d()])],
            Form::Label => {
                let label = format!("{}/{}", self.rating(), stars::OF);
                vec![
                    tag::tag(["L", NAMESPACE]),
                    tag::tag(["L", TASK_NAMESPACE]),
                    tag::tag(["l", &label, NAMESPACE]),
                    tag::tag(["l", &self.task, TASK_NAMESPACE]),
                    self.whom("p"),
                ]
            }
        };
        if form != Form::Label {
            // Relays can be asked for tags of one letter only.
            tags.extend([self.whom(SUBJECT), self.whom("p")]);
            tags.push(tag::tag([RATING, &self.rating()]));
            tags.push(tag::tag([DENOM, stars::OF]));
            tags.push(tag::tag([TASK, &self.task]));
            // Whatever a label names by `e` would be labelled: there the content alone says it.
            let named =
                [(self.evidence.request_id, "request"), (self.evidence.result_id, "result")];
            for (id, marker) in named {
                tags.extend(id.map(|id| tag::tag(["e", &id.hex(), "", marker])));
            }
        }
        Ok(Draft { kind: form.kind(), created_at, tags, content: self.content_text()? })
    }

    /// What it says in JSON, its evidence included: the content of its events.
    pub fn content_text(&self) -> Result<String> {
        content::to_json(&self.content, &self.evidence)
    }

    /// The same review with what such a text says.
    pub fn with_content(self, text: &str) -> Result<Review> {
        let (content, evidence) = content::parse(text)?;
        Ok(Review { content, evidence: evidence.unwrap_or_default(), ..self })
    }

    fn whom(&self, name: &str) -> Tag {
        let mut whom = tag::tag([name, &self.subject.hex()]);
        whom.extend(self.relay.clone());
        whom
    }

    fn check(&self) -> Result<()> {
        let not_allowed = |what: &str, at: &str| Err(Error::new(&code::BAD_VALUE, what).at(at));
        if !is_task(&self.task) {
            return not_allowed("the name of a kind of work is 1 to 100 plain letters", TASK);
        }
        if self.trust_bp > MOST_BP {
            return not_allowed("trust is at most 10000 ten-thousandths", "trust_bp");
        }
        if self.relay.as_deref().is_some_and(|url| !is_relay_url(url)) {
            return not_allowed("the hint is not the address of a relay", "relay");
        }
        self.content.check()
    }
}

/// What the tags of a review say, as they say it.
#[derive(Default)]
struct Said<'a> {
    subject: Option<(&'a str, Option<&'a str>)>,
    task: Option<&'a str>,
    rating: Option<(&'a str, &'a str)>,
}

impl<'a> Said<'a> {
    fn of_review(tags: &'a [Tag]) -> Said<'a> {
        let scale = tag::value(tags, DENOM).or_else(|| tag::value(tags, "max_rating"));
        Said {
            subject: whom(tags, SUBJECT).or_else(|| whom(tags, "p")),
            task: tag::value(tags, TASK),
            rating: tag::value(tags, RATING).map(|rating| (rating, scale.unwrap_or(stars::OF))),
        }
    }

    fn of_label(tags: &'a [Tag]) -> Said<'a> {
        let label = |namespace: &str| {
            tag::all(tags, "l").find_map(|rest| match rest {
                [value, of, ..] if of == namespace => Some(value.as_str()),
                _ => None,
            })
        };
        Said {
            subject: whom(tags, "p"),
            task: label(TASK_NAMESPACE),
            rating: label(NAMESPACE)
                .map(|label| label.split_once('/').unwrap_or((label, stars::OF))),
        }
    }
}

fn whom<'a>(tags: &'a [Tag], name: &str) -> Option<(&'a str, Option<&'a str>)> {
    tag::all(tags, name).find_map(|rest| {
        let (key, more) = rest.split_first()?;
        Some((key.as_str(), more.first().map(String::as_str)))
    })
}

/// What the tags of a review cite, if its content says nothing about it.
fn cited(event: &Event) -> Evidence {
    let named = |wanted: &str| {
        tag::all(&event.tags, "e").find_map(|rest| match rest {
            [id, _, marker, ..] if marker == wanted => id.parse::<EventId>().ok(),
            _ => None,
        })
    };
    match event.kind {
        kind::LABEL => Evidence::default(),
        _ => Evidence {
            request_id: named("request"),
            result_id: named("result"),
            ..Evidence::default()
        },
    }
}

/// Printable ASCII without spaces, so that it can stand anywhere.
fn is_task(text: &str) -> bool {
    (1..=TASK_MAX_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

fn malformed(what: &str, at: &str) -> Error {
    Error::new(&code::MALFORMED, what).at(at)
}
