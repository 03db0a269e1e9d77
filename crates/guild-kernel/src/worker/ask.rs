//! Asks the model: once, or again if it is busy.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use guild_protocol::error::Code;

use super::{ChunkSink, Piece, Saying, Worker};
use crate::code;
use crate::model::{Chunks, Failure, Prompt, Reply};
use crate::turn::step::Usage;
use crate::turn::{Claimed, Fence};

/// The wait before the second attempt; it doubles with each further one.
const BACKOFF_MIN_MS: i64 = 2_000;
const BACKOFF_MAX_MS: i64 = 10_000;
/// Who wants to be asked again later than this is not asked again.
const RETRY_AFTER_MAX_MS: i64 = 300_000;

/// The longest name of a model.
const MODEL_NAME_MAX_CHARS: usize = 60;

impl Worker {
    /// What the model answers, or why it does not.
    pub(super) async fn ask(
        &self,
        claimed: &Claimed,
        fence: &Fence,
        mut prompt: Prompt,
    ) -> Result<Reply, (&'static Code, String)> {
        let speaker = self.parts.chunks.clone().map(|sink| Speaker::new(sink, claimed, fence));
        let mut attempt = 1;
        loop {
            let last = attempt >= self.options.model_attempts;
            // The last time it is given away: a context may be large.
            let asked = if last { std::mem::take(&mut prompt) } else { prompt.clone() };
            let (message, retry_after_ms) = match self.answer(asked, speaker.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(Failed::Late) => {
                    return Err((&code::MODEL_TIMEOUT, "no answer in time".to_owned()));
                }
                Err(Failed::Model(Failure::Refused(message))) => {
                    return Err((&code::MODEL_REFUSED, message));
                }
                Err(Failed::Model(Failure::Garbled(message))) => {
                    return Err((&code::MODEL_GARBLED, message));
                }
                Err(Failed::Model(Failure::Busy { message, retry_after_ms })) => {
                    (message, retry_after_ms.unwrap_or(0))
                }
            };
            if last || retry_after_ms > RETRY_AFTER_MAX_MS {
                return Err((&code::MODEL_BUSY, message));
            }
            self.counts.add("model_retry", 1);
            let wait_ms = backoff_ms(attempt, self.parts.random.next_u64()).max(retry_after_ms);
            self.parts.clock.sleep(wait_ms).await;
            attempt = attempt.saturating_add(1);
        }
    }

    /// One answer, in time.
    async fn answer(&self, prompt: Prompt, speaker: Option<Speaker>) -> Result<Reply, Failed> {
        let mut said = speaker.clone();
        let chunks: Chunks = Box::new(move |chunk| {
            if let Some(speaker) = &mut said {
                speaker.say(Saying::Chunk(chunk));
            }
        });
        let mut speaker = speaker;
        if let Some(speaker) = &mut speaker {
            speaker.say(Saying::Start);
        }
        // A model that panics fails this turn, not the worker.
        let model = self.parts.model.clone();
        let answer = AssertUnwindSafe(async move { model.answer(prompt, chunks).await });
        let answer = Box::pin(answer.catch_unwind());
        let late = self.parts.clock.sleep(self.options.model_timeout_ms);
        let reply = match select(answer, late).await {
            Either::Right(_) => Err(Failed::Late),
            Either::Left((Ok(Ok(reply)), _)) => Ok(readable(reply)),
            Either::Left((Ok(Err(failure)), _)) => Err(Failed::Model(failure)),
            Either::Left((Err(_), _)) => {
                Err(Failed::Model(Failure::Garbled("the model stopped by a bug".to_owned())))
            }
        };
        if let Some(speaker) = &mut speaker {
            let usage = reply.as_ref().map(|reply| reply.usage.clone()).unwrap_or_default();
            speaker.say(Saying::End(usage));
        }
        reply
    }
}

/// Why there is no answer.
enum Failed {
    Model(Failure),
    Late,
}

/// Tells others what a model says while it says it.
#[derive(Clone)]
struct Speaker {
    sink: ChunkSink,
    piece: Piece,
    next: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl Speaker {
    fn new(sink: ChunkSink, claimed: &Claimed, fence: &Fence) -> Speaker {
        let piece = Piece {
            key: fence.key.clone(),
            channel_id: claimed.channel_id.clone(),
            agent_turn_id: fence.agent_turn_id.clone(),
            step_id: fence.step_id.clone(),
            index: 0,
            saying: Saying::Start,
        };
        Speaker { sink, piece, next: std::sync::Arc::default() }
    }

    fn say(&mut self, saying: Saying) {
        let index = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        (self.sink)(Piece { index, saying, ..self.piece.clone() });
    }
}

/// What a model says about itself, as rows can hold it.
fn readable(mut reply: Reply) -> Reply {
    let Usage { prompt_tokens, completion_tokens, cost_micro_usd, cost_unknown, model } =
        reply.usage;
    let name = |model: String| {
        let name: String =
            model.chars().filter(|c| !c.is_control()).take(MODEL_NAME_MAX_CHARS).collect();
        (!name.is_empty()).then_some(name)
    };
    reply.usage = Usage {
        prompt_tokens: prompt_tokens.max(0),
        completion_tokens: completion_tokens.max(0),
        cost_micro_usd: if cost_unknown { 0 } else { cost_micro_usd.max(0) },
        cost_unknown,
        model: model.and_then(name),
    };
    reply
}

/// Doubles from the shortest to the longest wait, with a spread of a fifth below it.
fn backoff_ms(attempt: u32, draw: u64) -> i64 {
    let doublings = attempt.saturating_sub(1).min(20);
    let plain = BACKOFF_MIN_MS.saturating_mul(1_i64 << doublings).min(BACKOFF_MAX_MS);
    let spread = i64::try_from(draw % 1_000).unwrap_or(0);
    let more = plain.saturating_mul(spread) / 5_000;
    plain.saturating_add(more).min(BACKOFF_MAX_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let waits: Vec<i64> = (1..6).map(|attempt| backoff_ms(attempt, 0)).collect();
        assert_eq!(waits, [2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(backoff_ms(1, 999), 2_399);
        assert_eq!(backoff_ms(u32::MAX, u64::MAX), 10_000);
    }

    #[test]
    fn what_a_model_says_about_itself_fits_into_rows() {
        let usage = Usage {
            prompt_tokens: -1,
            completion_tokens: 3,
            cost_micro_usd: i64::MIN,
            cost_unknown: false,
            model: Some("\u{7}".to_owned()),
        };
        let reply = readable(Reply { usage, ..Reply::default() });
        let sound = Usage { completion_tokens: 3, ..Usage::default() };
        assert_eq!(reply.usage, sound);
    }
}
