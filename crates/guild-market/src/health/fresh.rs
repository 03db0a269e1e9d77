//! Work that looks like what was bought, and that nobody has ever seen: for tests whose answer can be computed here.
//!
//! What was bought and paid lies on relays with its answer, so whoever remembers it would know a test by it. Here the
//! form is that of one piece of earlier work, and its texts are put together of the words of many.

use std::collections::BTreeSet;

use guild_protocol::schema::{Job, Registry, SchemaId};
use serde_json::{Value, json};

use crate::routing::Draws;

/// The member of the input that is made anew.
const TEXTS: &str = "texts";
/// So often a text is drawn, one word longer each time, until it is none that was seen.
const DRAWS_MAX: usize = 8;
/// Of so many words at most texts are made.
const WORDS_MAX: usize = 4_096;

/// New work of the form of one of these, whichever is drawn; its place among them, and the work. None if there is
/// nothing to make it of.
///
/// ```
/// use guild_market::health::fresh::vary;
/// use guild_protocol::schema::Registry;
/// let (registry, id) = (Registry::builtin(), "oa.embedding.v1".parse().unwrap());
/// let seen = ["the cat sat", "a dog ran away"].map(|text| {
///     let input = serde_json::json!({"texts": [text], "dimensions": 8});
///     registry.validate_input(&id, &input).unwrap()
/// });
/// let (place, job) = vary(&registry, &id, &seen, 7).unwrap();
/// assert!(seen.iter().all(|one| one.job_hash() != job.job_hash()));
/// assert_eq!(job.payload()["dimensions"], seen[place].payload()["dimensions"]);
/// ```
pub fn vary(
    registry: &Registry,
    schema_id: &SchemaId,
    seen: &[Job],
    chance: u64,
) -> Option<(usize, Job)> {
    let mut draws = Draws::new(chance);
    let known: BTreeSet<&str> = seen.iter().flat_map(texts_of).collect();
    let words: Vec<&str> =
        known.iter().flat_map(|text| text.split_whitespace()).take(WORDS_MAX).collect();
    let place = usize::try_from(draws.below(u64::try_from(seen.len()).ok()?)).ok()?;
    let form = seen.get(place)?;
    let mut texts = Vec::new();
    for text in texts_of(form) {
        texts.push(fresh(text, &words, &known, &mut draws)?);
    }
    let mut payload: Value = form.payload().clone();
    *payload.get_mut(TEXTS)? = json!(texts);
    let job = registry.validate_input(schema_id, &payload).ok()?;
    Some((place, job))
}

fn texts_of(job: &Job) -> impl Iterator<Item = &str> {
    let texts = job.payload().get(TEXTS).and_then(Value::as_array);
    texts.into_iter().flatten().filter_map(Value::as_str)
}

/// A text about as long as this one that nobody has seen.
fn fresh(like: &str, words: &[&str], known: &BTreeSet<&str>, draws: &mut Draws) -> Option<String> {
    let length = like.split_whitespace().count().max(1);
    let count = u64::try_from(words.len()).ok().filter(|count| *count > 0)?;
    for more in 0..DRAWS_MAX {
        let mut text: Vec<&str> = Vec::new();
        for _ in 0..length.saturating_add(more) {
            text.extend(words.get(usize::try_from(draws.below(count)).ok()?));
        }
        let text = text.join(" ");
        if !known.contains(text.as_str()) {
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(texts: &[&str], dimensions: u64) -> Job {
        let input = json!({"texts": texts, "dimensions": dimensions});
        Registry::builtin().validate_input(&id(), &input).unwrap()
    }

    fn id() -> SchemaId {
        "oa.embedding.v1".parse().unwrap()
    }

    #[test]
    fn no_text_was_ever_seen_and_the_form_is_that_of_earlier_work() {
        let seen = [work(&["one", "two"], 8), work(&["three four five six"], 16), work(&[""], 4)];
        let known: BTreeSet<&str> = seen.iter().flat_map(texts_of).collect();
        let (mut forms, mut jobs) = (BTreeSet::new(), BTreeSet::new());
        for chance in 0..200 {
            let (place, job) = vary(&Registry::builtin(), &id(), &seen, chance).unwrap();
            assert!(texts_of(&job).all(|text| !known.contains(text)), "{:?}", job.payload());
            assert_eq!(texts_of(&job).count(), texts_of(&seen[place]).count());
            let [of_it, of_form] = [&job, &seen[place]].map(|job| {
                let mut members = job.payload().clone();
                members.as_object_mut().unwrap().remove(TEXTS);
                members
            });
            assert_eq!(of_it, of_form, "all else is as it was");
            forms.insert(place);
            jobs.insert(job.job_hash());
        }
        assert_eq!(forms.len(), 3);
        assert!(jobs.len() > 100, "{}", jobs.len());
    }

    #[test]
    fn of_nothing_nothing_is_made() {
        for seen in [&[][..], &[work(&[""], 8)], &[work(&["   "], 8)]] {
            assert!(vary(&Registry::builtin(), &id(), seen, 7).is_none());
        }
    }
}
