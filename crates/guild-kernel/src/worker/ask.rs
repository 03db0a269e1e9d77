//! Asks the model: once, or again if it is busy.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    ) -> Result<Reply, Unanswered> {
        let speaker = self.parts.chunks.clone().map(|sink| Speaker::new(sink, claimed, fence));
        let (mut attempt, mut cost_unknown) = (1, false);
        loop {
            let last = attempt >= self.options.model_attempts;
            // The last time it is given away: a context may be large.
            let asked = if last { std::mem::take(&mut prompt) } else { prompt.clone() };
            let failed = match self.answer(asked, speaker.clone()).await {
                Ok(reply) => return Ok(with_lost(reply, cost_unknown)),
                Err(failed) => failed,
            };
            // An attempt that may have been paid makes all of them unknown, whatever comes after it.
            cost_unknown |= failed.cost_unknown();
            let unanswered = |code, message| Unanswered { code, message, cost_unknown };
            let (message, retry_after_ms) = match failed {
                Failed::Late => {
                    return Err(unanswered(&code::MODEL_TIMEOUT, "no answer in time".to_owned()));
                }
                Failed::Model(Failure::Refused(message), _) => {
                    return Err(unanswered(&code::MODEL_REFUSED, message));
                }
                Failed::Model(Failure::Garbled(message), _) => {
                    return Err(unanswered(&code::MODEL_GARBLED, message));
                }
                Failed::Model(Failure::Busy { message, retry_after_ms, .. }, _) => {
                    (message, retry_after_ms.unwrap_or(0))
                }
            };
            if last || retry_after_ms > RETRY_AFTER_MAX_MS {
                return Err(unanswered(&code::MODEL_BUSY, message));
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
        let began = Arc::new(AtomicBool::new(false));
        let begins = began.clone();
        let chunks: Chunks = Box::new(move |chunk| {
            begins.store(true, Ordering::Relaxed);
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
            Either::Left((answer, _)) => {
                let bug = || Failure::Garbled("the model stopped by a bug".to_owned());
                let failure = answer.unwrap_or_else(|_| Err(bug())).err().unwrap_or_else(bug);
                Err(Failed::Model(failure, began.load(Ordering::Relaxed)))
            }
        };
        if let Some(speaker) = &mut speaker {
            let usage = match &reply {
                Ok(reply) => reply.usage.clone(),
                Err(failed) => Usage { cost_unknown: failed.cost_unknown(), ..Usage::default() },
            };
            speaker.say(Saying::End(usage));
        }
        reply
    }
}

/// Why there is no answer after all attempts.
pub(super) struct Unanswered {
    pub(super) code: &'static Code,
    pub(super) message: String,
    /// Whether one of them may have been paid.
    pub(super) cost_unknown: bool,
}

/// Why there is no answer.
enum Failed {
    /// The model says so; and whether an answer had begun.
    Model(Failure, bool),
    Late,
}

impl Failed {
    /// Whether it may have been paid: only who is turned away before an answer begins has surely paid nothing.
    fn cost_unknown(&self) -> bool {
        match self {
            Failed::Late | Failed::Model(Failure::Garbled(_), _) | Failed::Model(_, true) => true,
            Failed::Model(Failure::Busy { cost_unknown, .. }, false) => *cost_unknown,
            Failed::Model(Failure::Refused(_), false) => false,
        }
    }
}

/// An answer after attempts that may have been paid: what is known of its cost is not all of it.
fn with_lost(mut reply: Reply, cost_unknown: bool) -> Reply {
    if cost_unknown {
        (reply.usage.cost_micro_usd, reply.usage.cost_unknown) = (0, true);
    }
    reply
}

/// Tells others what a model says while it says it.
#[derive(Clone)]
struct Speaker {
    sink: ChunkSink,
    piece: Piece,
    next: Arc<AtomicU64>,
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
        Speaker { sink, piece, next: Arc::default() }
    }

    fn say(&mut self, saying: Saying) {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
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
