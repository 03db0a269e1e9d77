//! Does what time brings. What cannot be done is tried a few times, alone, and then put aside: one bad row holds up
//! nobody else.

use std::collections::BTreeMap;

use futures_util::future::select;
use guild_protocol::env::UnixMs;
use guild_store::Tx;

use super::scribe::is_passing;
use super::{Worker, is_closed};
use crate::turn::recall;
use crate::turn::sweep::{self, Due, Place, Swept};
use crate::{Error, Result, code};

/// How much is done at once.
const AT_ONCE: i64 = 200;
/// So often something is tried before it is put aside.
const TRIES_MAX: u32 = 3;
/// So often before it is put aside without what comes next for its agent.
const ALONE_AFTER: u32 = 6;

/// So often everything is looked at that a wrong clock may have put off.
const ALL_MS: i64 = 60_000;

/// What the clock showed at the last look, and when everything was looked at.
struct Seen {
    now_ms: UnixMs,
    all_ms: UnixMs,
}

impl Seen {
    /// Whether everything is to be looked at: when the clock was set back, and now and then. Another process may have
    /// written what lies ahead and be gone, or our own clock may have been set forth and back while we slept.
    fn wants_all(&self, now_ms: UnixMs) -> bool {
        now_ms < self.now_ms || now_ms >= self.all_ms.saturating_add(ALL_MS)
    }
}

impl Worker {
    /// Looks for what is due, now and then and whenever the bell rings.
    pub(super) async fn sweeper(&self) {
        let mut bell = self.parts.bus.listen(sweep::TOPIC);
        let (mut place, mut failing) = (Place::default(), BTreeMap::new());
        let mut seen = None;
        loop {
            let swept = match self.sweep(&mut place, &mut failing, &mut seen).await {
                Ok(true) => continue,
                Ok(false) => self.pick_up().await,
                Err(error) => Err(error),
            };
            match swept {
                Ok(()) => {}
                Err(error) if is_closed(&error) => return,
                Err(error) => self.warn(&error, "what is due cannot be done now"),
            }
            select(bell.hear(), self.parts.clock.sleep(self.options.sweep_ms)).await;
        }
    }

    /// Does what is due; whether there may be more to do at once. Of the queues a part is looked at each time.
    async fn sweep(
        &self,
        place: &mut Place,
        failing: &mut BTreeMap<Due, u32>,
        seen: &mut Option<Seen>,
    ) -> Result<bool> {
        let (now_ms, from) = (self.parts.clock.now_ms(), place.clone());
        let (targets, lease_ms) = (self.options.targets.clone(), self.options.lease_ms);
        let all = seen.as_ref().is_none_or(|seen| seen.wants_all(now_ms));
        let looked = self.parts.store.read(move |rx| -> Result<_> {
            let is_ahead = recall::is_ahead(rx, &targets, now_ms, lease_ms)?
                || (all && recall::is_awaited_too_long(rx, now_ms)?);
            Ok((sweep::due_from(rx, &from, now_ms, AT_ONCE)?, is_ahead))
        });
        let ((due, next), is_ahead) = looked.await?;
        if is_ahead {
            self.bring_back().await?;
        }
        // Not before it is done: whoever could not do it tries again.
        let all_ms = seen.as_ref().filter(|_| !all).map_or(now_ms, |seen| seen.all_ms);
        *seen = Some(Seen { now_ms, all_ms });
        *place = next;
        // A queue that has failed is tried again at every look, though it is not looked for at every one.
        failing.retain(|known, _| due.contains(known) || matches!(known, Due::Queue(_)));
        // All at once, without what has failed before.
        let fresh: Vec<Due> = due.into_iter().filter(|due| !failing.contains_key(due)).collect();
        let (mut alone, mut done): (Vec<Due>, usize) = (failing.keys().cloned().collect(), 0);
        if !fresh.is_empty() {
            match self.settle(fresh.clone()).await {
                Ok(count) => done = count,
                Err(error) if is_passing(&error) || is_closed(&error) => return Err(error),
                Err(_) => alone.extend(fresh),
            }
        }
        self.counts.add("swept", done);
        // What is due and cannot be done is due again at once: whoever does nothing waits before the next look.
        let more = done > 0 && alone.is_empty();
        for due in alone {
            self.sweep_alone(due, failing).await?;
        }
        Ok(more)
    }

    /// Brings back what waits for a moment that was never meant. It is due at the next look.
    async fn bring_back(&self) -> Result<()> {
        let (clock, lease_ms) = (self.parts.clock.clone(), self.options.lease_ms);
        let recall = move |tx: &mut Tx<'_>| recall::recall(tx, clock.now_ms(), lease_ms);
        let recalled = self.parts.store.write(recall).await?;
        self.counts.add("recalled", usize::try_from(recalled).unwrap_or(usize::MAX));
        tracing::warn!(recalled, "turns waited for a time that a wrong clock gave");
        Ok(())
    }

    /// Does these things; how many were still there to be done.
    async fn settle(&self, due: Vec<Due>) -> Result<usize> {
        let (clock, mut done) = (self.parts.clock.clone(), 0_usize);
        for some in due.chunks(crate::turn::SET_MAX) {
            let (some, clock) = (some.to_vec(), clock.clone());
            let settled = move |tx: &mut Tx<'_>| sweep::settle(tx, &some, clock.now_ms());
            let swept = self.parts.store.write(settled).await?;
            let of_these = swept.into_iter().filter(|swept| *swept == Swept::Done).count();
            done = done.saturating_add(of_these);
        }
        Ok(done)
    }

    /// Does one thing by itself. After a few failures it is put aside.
    async fn sweep_alone(&self, due: Due, failing: &mut BTreeMap<Due, u32>) -> Result<()> {
        let error = match self.settle(vec![due.clone()]).await {
            Ok(count) => {
                self.counts.add("swept", count);
                failing.remove(&due);
                return Ok(());
            }
            Err(error) if is_passing(&error) || is_closed(&error) => return Err(error),
            Err(error) => error,
        };
        let tries = failing.entry(due.clone()).or_default();
        *tries = tries.saturating_add(1);
        if *tries < TRIES_MAX {
            return Ok(());
        }
        tracing::warn!(?due, %error, code = error.code().name, "something that is due is put aside");
        // What comes next for its agent begins with it; if that cannot be either, it is looked at by itself.
        let alone = *tries >= ALONE_AFTER;
        let (clock, put) = (self.parts.clock.clone(), due.clone());
        let put = self.parts.store.write(move |tx| -> Result<(), Error> {
            let now_ms = clock.now_ms();
            sweep::put_aside(tx, &put, &code::UNWRITABLE, now_ms)?;
            match put.agent() {
                Some(key) if !alone => sweep::begin_next(tx, key, now_ms),
                _ => Ok(()),
            }
        });
        match put.await {
            Ok(()) => {
                self.counts.add("marked", 1);
                failing.remove(&due);
            }
            Err(error) => self.warn(&error, "something that is due cannot be put aside either"),
        }
        Ok(())
    }
}
