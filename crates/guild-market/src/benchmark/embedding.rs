//! `embedding-v1`: texts that nobody has seen, whose vectors are computed again.

use guild_memory::embed::MODEL_ID;
use guild_protocol::schema::{Job, Registry};
use serde_json::json;

use super::{SEED_BYTES, derived};
use crate::Result;
use crate::routing::Draws;

/// The schema whose own check decides.
pub(super) const SCHEMA_ID: &str = "oa.embedding.v1";

const TEXTS: usize = 4;
const WORDS: usize = 12;
const SYLLABLES: u64 = 3;
/// Vectors are as long as this, or longer by up to as much again.
const DIMENSIONS: u64 = 64;

/// The work of this seed: texts without a meaning, so that nobody has their vectors ready.
pub(super) fn job(seed: &[u8; SEED_BYTES]) -> Result<Job> {
    let [a, b, c, d, e, f, g, h, ..] = derived(seed, "texts");
    let mut draws = Draws::new(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
    let dimensions = DIMENSIONS.saturating_add(draws.below(DIMENSIONS));
    let texts: Vec<String> = (0..TEXTS)
        .map(|_| (0..WORDS).map(|_| word(&mut draws)).collect::<Vec<_>>().join(" "))
        .collect();
    let payload = json!({"texts": texts, "dimensions": dimensions, "model_hint": MODEL_ID});
    let job = Registry::builtin().validate_input(&SCHEMA_ID.parse()?, &payload);
    Ok(job.map_err(guild_protocol::Error::from)?)
}

fn word(draws: &mut Draws) -> String {
    let mut letter = |of: &str| {
        let at = draws.below(u64::try_from(of.len()).unwrap_or(0));
        of.chars().nth(usize::try_from(at).unwrap_or(0)).unwrap_or('a')
    };
    (0..SYLLABLES).flat_map(|_| [letter("bdfgklmnprstvz"), letter("aeiou")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::can_verify;

    #[test]
    fn work_follows_from_its_seed_and_can_be_done_again() {
        let (one, same, other) = (job(&[1; 32]), job(&[1; 32]), job(&[2; 32]));
        let (one, same, other) = (one.unwrap(), same.unwrap(), other.unwrap());
        assert_eq!(one.job_hash(), same.job_hash());
        assert_ne!(one.job_hash(), other.job_hash());
        assert!(can_verify(&one, None).is_ok());
        assert_eq!(one.payload()["texts"].as_array().map(Vec::len), Some(TEXTS));
    }
}
