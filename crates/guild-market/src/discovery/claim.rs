//! What an announcement claims to be able to do: every convention of `k`, and what its content says beside it.

use std::collections::BTreeSet;
use std::fmt;

use guild_protocol::nostr::announcement::Announcement;
use guild_protocol::nostr::kind;
use serde::Serialize;

use super::canonical::is_unseen;

/// The longest name of a kind of work.
const NAME_MAX_BYTES: usize = 100;
/// More claims of one announcement are not read.
const CLAIMS_MAX: usize = 64;
/// More discrepancies of one announcement are not noted.
pub(super) const DISCREPANCIES_MAX: usize = 16;
/// So much of what was written is shown.
const SHOWN_MAX_CHARS: usize = 80;
/// A pattern with fewer letters of its own would match nearly everything.
const PATTERN_MIN_LETTERS: usize = 3;
/// A pattern with more stars is meant to make somebody compare for long.
const PATTERN_MAX_STARS: usize = 2;

/// One thing that somebody says it can do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// Requests of this kind.
    Kind(u16),
    /// Work by its name: `benchmark-task`, or the id of a schema.
    Name(Box<str>),
    /// Work by a pattern of names: `compute-*`.
    Pattern(Box<str>),
}

impl Claim {
    /// Reads one word; nothing if it is a kind of events that are no requests, as in announcements of other programs.
    fn parse(word: &str) -> Result<Option<Claim>, What> {
        if word.is_empty() || word.len() > NAME_MAX_BYTES || word.chars().any(is_unseen) {
            return Err(What::Unreadable);
        }
        if word.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = word.parse().ok().filter(|number| kind::is_request(*number));
            return Ok(number.map(Claim::Kind));
        }
        let stars = word.bytes().filter(|byte| *byte == b'*').count();
        if stars == 0 {
            return Ok(Some(Claim::Name(word.into())));
        }
        let letters = word.chars().filter(|c| c.is_alphanumeric()).count();
        if letters < PATTERN_MIN_LETTERS || stars > PATTERN_MAX_STARS {
            return Err(What::TooBroad);
        }
        Ok(Some(Claim::Pattern(word.into())))
    }

    /// Whether it covers this name: it is the name, or a pattern that fits.
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Claim::Kind(number) => name.parse() == Ok(*number),
            Claim::Name(own) => **own == *name,
            Claim::Pattern(pattern) => fits(pattern, name),
        }
    }

    /// Bytes beside the claim itself.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Claim::Kind(_) => 0,
            Claim::Name(text) | Claim::Pattern(text) => text.len(),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::Kind(number) => write!(f, "{number}"),
            Claim::Name(text) | Claim::Pattern(text) => f.write_str(text),
        }
    }
}

/// Whether a name fits a pattern, in which a star stands for any letters.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match left.split_once(part) {
            Some((_, behind)) => left = behind,
            None => return false,
        }
    }
    left.ends_with(last)
}

/// How far a claim can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Tags and content say it.
    Confirmed,
    /// One of them says it, and the other says nothing.
    Alone,
    /// One of them says it, and the other says other things.
    Disputed,
}

/// What is wrong with an announcement that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A tag `k` names it, `supported_kinds` does not.
    OnlyTag,
    /// `supported_kinds` names it, no tag `k` does.
    OnlyContent,
    /// It is no number, name or pattern.
    Unreadable,
    /// It is a pattern that fits nearly everything.
    TooBroad,
    /// There are more than are read.
    TooMany,
}

impl What {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            What::OnlyTag => "only_tag",
            What::OnlyContent => "only_content",
            What::Unreadable => "unreadable",
            What::TooBroad => "too_broad",
            What::TooMany => "too_many",
        }
    }
}

/// Something in an announcement that contradicts itself or cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Discrepancy {
    /// What.
    pub what: What,
    /// The word, shortened, and without characters that would do something.
    pub value: String,
}

impl Discrepancy {
    fn of(what: What, written: &str) -> Discrepancy {
        let shown = written.chars().flat_map(char::escape_debug).take(SHOWN_MAX_CHARS);
        // Letters that turn the direction of others are no control characters.
        let value = shown.map(|c| if is_unseen(c) { '?' } else { c }).collect();
        Discrepancy { what, value }
    }
}

/// Words of one place, each once, in order. They are few: a list is searched faster than a tree is made.
#[derive(Default)]
struct Place {
    claims: Vec<Claim>,
}

impl Place {
    fn read<'a>(words: impl Iterator<Item = &'a str>, wrong: &mut BTreeSet<Discrepancy>) -> Place {
        let mut place = Place::default();
        for word in words {
            match Claim::parse(word) {
                Ok(Some(_)) if place.claims.len() >= CLAIMS_MAX => {
                    wrong.insert(Discrepancy::of(What::TooMany, ""));
                    break;
                }
                Ok(Some(claim)) => {
                    if let Err(at) = place.claims.binary_search(&claim) {
                        place.claims.insert(at, claim);
                    }
                }
                Ok(None) => {}
                Err(what) if wrong.len() < DISCREPANCIES_MAX => {
                    wrong.insert(Discrepancy::of(what, word));
                }
                Err(_) => {}
            }
        }
        place
    }

    fn has(&self, claim: &Claim) -> bool {
        self.claims.binary_search(claim).is_ok()
    }

    /// Whether it says this, in so many words or by a pattern; or the pattern fits something that it says.
    fn says(&self, claim: &Claim) -> bool {
        self.has(claim)
            || self.claims.iter().any(|own| match (own, claim) {
                (Claim::Pattern(_), Claim::Name(name)) => own.covers(name),
                (Claim::Name(name), Claim::Pattern(_)) => claim.covers(name),
                _ => false,
            })
    }
}

/// Splits compound values such as `5000,5100`.
fn words(values: &[String]) -> impl Iterator<Item = &str> {
    // One that is far too long is one word, which is refused as a whole.
    let split = |value: &String| value.len() <= CLAIMS_MAX.saturating_mul(NAME_MAX_BYTES);
    values.iter().flat_map(move |value| {
        let separator = if split(value) { ',' } else { '\0' };
        value.split(separator).map(str::trim).filter(|word| !word.is_empty())
    })
}

/// All that an announcement claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    list: Box<[(Claim, Standing)]>,
    discrepancies: Box<[Discrepancy]>,
}

impl Claims {
    /// Reads tags and content. Whatever either of them says is claimed; what both say is confirmed; and where both say
    /// something and not the same, that is a discrepancy.
    pub fn of(card: &Announcement) -> Claims {
        let mut wrong = BTreeSet::new();
        let content = &card.content;
        let named = content.supported_kinds.as_ref().map(|kinds| kinds.0.as_slice());
        let kinds = Place::read(words(&card.kinds), &mut wrong);
        let supported = Place::read(words(named.unwrap_or_default()), &mut wrong);
        // Topics are words for anything: those that cannot be read are no fault.
        let mut ignored = BTreeSet::new();
        let topics = Place::read(words(&card.topics), &mut ignored);
        let names = content.capabilities.as_ref().and_then(|all| all.names.as_deref());
        let jobs = words(content.supported_jobs()).chain(words(names.unwrap_or_default()));
        let jobs = Place::read(jobs, &mut ignored);
        let places = [&kinds, &supported, &topics, &jobs];
        let mut all: Vec<&Claim> = places.iter().flat_map(|place| &place.claims).collect();
        all.sort_unstable();
        all.dedup();
        let mut list = Vec::with_capacity(all.len());
        for claim in all {
            let in_tags = kinds.says(claim) || topics.says(claim);
            let in_content = supported.says(claim) || jobs.says(claim);
            let disputed = match (kinds.has(claim), supported.has(claim)) {
                _ if in_tags && in_content => None,
                (true, _) if !supported.claims.is_empty() => Some(What::OnlyTag),
                (_, true) if !kinds.claims.is_empty() => Some(What::OnlyContent),
                _ => None,
            };
            let standing = match disputed {
                Some(what) => {
                    wrong.insert(Discrepancy::of(what, &claim.to_string()));
                    Standing::Disputed
                }
                None if in_tags && in_content => Standing::Confirmed,
                None => Standing::Alone,
            };
            list.push((claim.clone(), standing));
        }
        list.truncate(CLAIMS_MAX);
        let discrepancies = wrong.into_iter().take(DISCREPANCIES_MAX).collect();
        Claims { list: list.into(), discrepancies }
    }

    /// Each claim, and how far it can be believed.
    pub fn iter(&self) -> impl Iterator<Item = (&Claim, Standing)> {
        self.list.iter().map(|(claim, standing)| (claim, *standing))
    }

    /// What contradicts itself, or cannot be meant.
    pub fn discrepancies(&self) -> &[Discrepancy] {
        &self.discrepancies
    }

    /// Whether some work is offered at all: many programs announce what else they can open.
    pub fn is_work(&self) -> bool {
        !self.list.is_empty()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let list: usize = self.list.iter().map(|(claim, _)| claim.heap_bytes()).sum();
        let wrong: usize = self.discrepancies.iter().map(|one| one.value.capacity()).sum();
        size_of_val(&*self.list)
            .saturating_add(size_of_val(&*self.discrepancies))
            .saturating_add(list)
            .saturating_add(wrong)
    }
}

#[cfg(test)]
mod tests {
    use guild_protocol::nostr::announcement::KindNames;

    use super::*;

    fn claims(kinds: &[&str], supported: Option<&[&str]>) -> Claims {
        let mut card = Announcement::new("d");
        card.kinds = kinds.iter().map(|word| (*word).to_owned()).collect();
        card.content.supported_kinds =
            supported.map(|all| KindNames(all.iter().map(|word| (*word).to_owned()).collect()));
        Claims::of(&card)
    }

    fn shown(claims: &Claims) -> Vec<String> {
        claims.iter().map(|(claim, standing)| format!("{claim} {standing:?}")).collect()
    }

    fn wrong(claims: &Claims) -> Vec<(What, &str)> {
        claims.discrepancies().iter().map(|one| (one.what, one.value.as_str())).collect()
    }

    #[test]
    fn every_convention_is_read() {
        let read =
            claims(&["5000", "benchmark-task", " 5100, 5200 ", "compute-*", "1", "30023"], None);
        assert_eq!(
            shown(&read),
            ["5000 Alone", "5100 Alone", "5200 Alone", "benchmark-task Alone", "compute-* Alone"]
        );
        assert!(wrong(&read).is_empty() && read.is_work());
        // Programs that open notes are no providers.
        assert!(!claims(&["1", "30023", "99999999999"], None).is_work());
    }

    #[test]
    fn both_places_confirm_and_contradict_each_other() {
        let read =
            claims(&["5000", "5100", "compute-*"], Some(&["5000", "5200", "compute-primes"]));
        assert_eq!(
            shown(&read),
            [
                "5000 Confirmed",
                "5100 Disputed",
                "5200 Disputed",
                "compute-primes Confirmed",
                "compute-* Confirmed"
            ]
        );
        assert_eq!(wrong(&read), [(What::OnlyTag, "5100"), (What::OnlyContent, "5200")]);
        // Where only one of them says something, there is nothing to compare.
        assert!(wrong(&claims(&[], Some(&["5000"]))).is_empty());
        assert!(wrong(&claims(&["5000"], Some(&[]))).is_empty());
    }

    #[test]
    fn what_cannot_be_meant_is_noted_and_bounded() {
        let bidi = "bench\u{202e}mark";
        let read = claims(&["*", "a*b*c*d", bidi, &"x".repeat(200), "ok"], None);
        assert_eq!(shown(&read), ["ok Alone"]);
        let found = wrong(&read);
        assert_eq!(found.iter().filter(|(what, _)| *what == What::TooBroad).count(), 2);
        assert_eq!(found.iter().filter(|(what, _)| *what == What::Unreadable).count(), 2);
        assert!(found.iter().all(|(_, value)| value.is_ascii() && value.len() <= 80), "{found:?}");
        let many: Vec<String> = (0..5_000).map(|n| format!("name{n},bad\u{200b}{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let read = claims(&many, Some(&many));
        assert_eq!(read.iter().count(), CLAIMS_MAX);
        assert!(read.discrepancies().len() <= DISCREPANCIES_MAX);
    }

    #[test]
    fn patterns_fit_as_they_are_written() {
        for (pattern, name, fit) in [
            ("compute-*", "compute-primes", true),
            ("compute-*", "compute-", true),
            ("compute-*", "xcompute-primes", false),
            ("*-task", "benchmark-task", true),
            ("ben*task", "benchmark-task", true),
            ("ben*task", "bentas", false),
            ("oa.*.v*", "oa.embedding.v1", true),
            ("oa.*.v*", "oa.embedding", false),
            ("abc*abc", "abc", false),
        ] {
            assert_eq!(Claim::Pattern(pattern.into()).covers(name), fit, "{pattern} {name}");
        }
        assert!(Claim::Kind(5000).covers("5000") && !Claim::Kind(5000).covers("5001"));
    }
}
