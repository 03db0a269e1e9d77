//! Does what time brings. What cannot be done is tried a few times, alone, and then put aside: one bad row holds up
//! nobody else.

use std::collections::BTreeMap;

use futures_util::future::select;

use super::scribe::is_passing;
use super::{Worker, is_closed};
use crate::turn::sweep::{self, Due, Place, Swept};
use crate::{Error, Result, code};

/// How much is done at once.
const AT_ONCE: i64 = 200;
/// So often something is tried before it is put aside.
const TRIES_MAX: u32 = 3;
/// So often before it is put aside without what comes next for its agent.
const ALONE_AFTER: u32 = 6;

impl Worker {
    /// Looks for what is due, now and then and whenever the bell rings.
    pub(super) async fn sweeper(&self) {
        let mut bell = self.parts.bus.listen(sweep::TOPIC);
        let (mut place, mut failing) = (Place::default(), BTreeMap::new());
        loop {
            let swept = match self.sweep(&mut place, &mut failing).await {
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
    async fn sweep(&self, place: &mut Place, failing: &mut BTreeMap<Due, u32>) -> Result<bool> {
        let (now_ms, from) = (self.parts.clock.now_ms(), place.clone());
        let due = self.parts.store.read(move |rx| sweep::due_from(rx, &from, now_ms, AT_ONCE));
        let (due, next) = due.await?;
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

    /// Does these things; how many were still there to be done.
    async fn settle(&self, due: Vec<Due>) -> Result<usize> {
        let (clock, mut done) = (self.parts.clock.clone(), 0_usize);
        for some in due.chunks(crate::turn::SET_MAX) {
            let (some, clock) = (some.to_vec(), clock.clone());
            let settled =
                move |tx: &mut guild_store::Tx<'_>| sweep::settle(tx, &some, clock.now_ms());
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
