//! Who can do some work, how sure that is, and why.

use std::fmt;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use serde::Serialize;

use super::canonical::{canonical, is_near};
use super::claim::{Claim, Claims, Standing};
use super::entry::{Entry, State};
use super::registry::Registry;

/// It says so itself, in ten-thousandths of certainty.
const EXACT_BP: u32 = 10_000;
/// It names a pattern that fits.
const PATTERN_BP: u32 = 9_000;
/// It says something that means the same.
const FUZZY_BP: u32 = 8_000;
/// It says something that suggests it.
const INFERRED_BP: u32 = 6_000;
/// A claim that the announcement itself disputes is worth less by this.
const DISPUTED_BP: u32 = 1_000;
/// A name with fewer letters is near to too many others.
const NEAR_MIN_CHARS: usize = 6;
/// A name with as many letters may differ in two of them, a shorter one in one.
const NEAR_TWO_CHARS: usize = 12;

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The kind of work: the id of a schema, a number of a kind, or a word such as `benchmark-task`.
    pub task: &'a str,
    /// Whether only who is live will do.
    pub live_only: bool,
    /// At least so sure, in ten-thousandths.
    pub least_bp: u32,
    /// At most so many.
    pub limit: usize,
}

/// Why somebody is taken for able to do some work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "how", content = "by", rename_all = "snake_case")]
pub enum How {
    /// It says so.
    Exact,
    /// A pattern of its fits.
    Pattern(String),
    /// It names something that looks the same.
    Looks(String),
    /// It names what is configured as another word for it.
    Synonym(String),
    /// It names something that differs in a letter or two.
    Near(String),
    /// It takes the kind of requests that such work is asked by, and says how fast it is.
    KindAndPerformance(u16),
    /// It takes that kind of requests, and its description has the words.
    KindAndWords(u16),
}

impl How {
    /// How sure that is, in ten-thousandths.
    fn score_bp(&self) -> u32 {
        match self {
            How::Exact => EXACT_BP,
            How::Pattern(_) => PATTERN_BP,
            How::Looks(_) | How::Synonym(_) | How::Near(_) => FUZZY_BP,
            How::KindAndPerformance(_) | How::KindAndWords(_) => INFERRED_BP,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Exact => f.write_str("it names this work"),
            How::Pattern(pattern) => write!(f, "its pattern {pattern} fits"),
            How::Looks(name) => write!(f, "it names {name}, which looks the same"),
            How::Synonym(name) => write!(f, "it names {name}, another word for it"),
            How::Near(name) => write!(f, "it names {name}, which is nearly the same"),
            How::KindAndPerformance(kind) => {
                write!(f, "it takes requests of kind {kind} and says how fast it is")
            }
            How::KindAndWords(kind) => {
                write!(f, "it takes requests of kind {kind} and describes such work")
            }
        }
    }
}

/// Somebody who may be able to do some work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Match {
    /// Who.
    pub provider: PublicKey,
    /// Which of its offers.
    pub d: String,
    /// How sure that is, in ten-thousandths.
    pub score_bp: u32,
    /// Why.
    #[serde(flatten)]
    pub how: How,
    /// How far the claim behind it can be believed.
    pub standing: Standing,
    /// Whether it is live.
    pub is_live: bool,
    /// How many trusted keys recommend it.
    pub recommended: usize,
    /// When it was seen last.
    pub seen_ms: UnixMs,
    /// Where it wants to be asked.
    pub relays: Vec<String>,
}

impl Registry {
    /// Who can do some work: the surest first, among them who is live, then whom trusted keys recommend, then who has
    /// been there for longest. Nobody who is quarantined, archived or flapping is among them.
    pub fn find(&self, wanted: &Wanted<'_>, now_ms: UnixMs) -> Vec<Match> {
        let can = |entry: &&Entry| {
            entry.state == State::Listed
                && (entry.life.is_live || !wanted.live_only)
                && !entry.is_flapping(self.options(), now_ms)
        };
        let mut found: Vec<(UnixMs, Match)> = Vec::new();
        for entry in self.iter().filter(can) {
            let Some((how, standing)) = self.matches(entry, wanted.task) else { continue };
            let less = if standing == Standing::Disputed { DISPUTED_BP } else { 0 };
            let score_bp = how.score_bp().saturating_sub(less);
            if score_bp < wanted.least_bp {
                continue;
            }
            let card = &entry.card;
            let one = Match {
                provider: card.provider,
                d: card.d.to_string(),
                score_bp,
                how,
                standing,
                is_live: entry.life.is_live,
                recommended: self.recommended(&card.provider),
                seen_ms: entry.seen_ms,
                relays: card.relays.iter().map(|url| url.to_string()).collect(),
            };
            found.push((card.first_ms, one));
        }
        found.sort_by(|(first, a), (second, b)| {
            let rank = |one: &Match| (one.score_bp, one.is_live, one.recommended);
            let name = |one: &Match| (one.provider, one.d.clone());
            rank(b).cmp(&rank(a)).then(first.cmp(second)).then_with(|| name(a).cmp(&name(b)))
        });
        found.into_iter().take(wanted.limit).map(|(_, one)| one).collect()
    }

    /// Why an offer covers some work, and how far that can be believed; nothing if it does not.
    pub fn matches(&self, entry: &Entry, task: &str) -> Option<(How, Standing)> {
        let claims = &entry.card.claims;
        let exact = best(claims, |claim| match claim {
            Claim::Kind(_) | Claim::Name(_) => claim.covers(task).then_some(How::Exact),
            Claim::Pattern(_) => None,
        });
        exact
            .or_else(|| pattern(claims, task))
            .or_else(|| self.fuzzy(claims, task))
            .or_else(|| self.inferred(entry, task))
    }

    fn fuzzy(&self, claims: &Claims, task: &str) -> Option<(How, Standing)> {
        let form = canonical(task);
        let looks = best(claims, |claim| match claim {
            Claim::Name(name) if canonical(name) == form => Some(How::Looks(name.to_string())),
            _ => None,
        });
        let words = self.options().synonyms.get(task);
        let synonym = || {
            let forms: Vec<String> = words?.iter().map(|word| canonical(word)).collect();
            best(claims, |claim| match claim {
                Claim::Name(name) if forms.contains(&canonical(name)) => {
                    Some(How::Synonym(name.to_string()))
                }
                _ => None,
            })
        };
        let most = match form.chars().count() {
            0..NEAR_MIN_CHARS => return looks.or_else(synonym),
            NEAR_MIN_CHARS..NEAR_TWO_CHARS => 1,
            _ => 2,
        };
        let near = || {
            best(claims, |claim| match claim {
                // Names that differ in a digit are versions of each other, and not the same work.
                Claim::Name(name) if is_slip(&canonical(name), &form, most) => {
                    Some(How::Near(name.to_string()))
                }
                _ => None,
            })
        };
        looks.or_else(synonym).or_else(near)
    }

    fn inferred(&self, entry: &Entry, task: &str) -> Option<(How, Standing)> {
        let kinds = self.options().kinds.get(task)?;
        let (kind, standing) =
            entry.card.claims.iter().find_map(|(claim, standing)| match claim {
                Claim::Kind(kind) if kinds.contains(kind) => Some((*kind, standing)),
                _ => None,
            })?;
        if entry.card.has_performance {
            return Some((How::KindAndPerformance(kind), standing));
        }
        let about = entry.card.about.as_deref()?;
        let none = Default::default();
        let words = self.options().synonyms.get(task).unwrap_or(&none);
        let described = std::iter::once(task).chain(words.iter().map(String::as_str));
        let mut described = described.map(canonical).filter(|word| !word.is_empty());
        let is_said = described.any(|word| has_words(about, &word));
        is_said.then_some((How::KindAndWords(kind), standing))
    }
}

/// The claim that can be believed most, of those for which there is a reason.
fn best(claims: &Claims, why: impl Fn(&Claim) -> Option<How>) -> Option<(How, Standing)> {
    let all = claims.iter().filter_map(|(claim, standing)| Some((why(claim)?, standing)));
    all.min_by_key(|(_, standing)| *standing)
}

fn pattern(claims: &Claims, task: &str) -> Option<(How, Standing)> {
    best(claims, |claim| match claim {
        Claim::Pattern(pattern) if claim.covers(task) => Some(How::Pattern(pattern.to_string())),
        _ => None,
    })
}

/// Whether a name is another one with a slip of the pen.
fn is_slip(name: &str, form: &str, most: usize) -> bool {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    is_near(name, form, most) && digits(name) == digits(form)
}

/// Whether words stand in a text as whole words; both with dashes in between.
fn has_words(text: &str, words: &str) -> bool {
    format!("-{text}-").contains(&format!("-{words}-"))
}
