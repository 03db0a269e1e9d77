//! Does what time brings. What cannot be done is tried a few times, alone, and then put aside: one bad row holds up
//! nobody else.

use std::collections::BTreeMap;

use futures_util::future::select;

use super::scribe::is_passing;
use super::{Worker, is_closed};
use crate::turn::sweep::{self, Due, Swept};
use crate::{Error, Result, code};

/// How much is done at once.
const AT_ONCE: i64 = 200;
/// So often something is tried before it is put aside.
const TRIES_MAX: u32 = 3;

impl Worker {
    /// Looks for what is due, now and then and whenever the bell rings.
    pub(super) async fn sweeper(&self) {
        let mut bell = self.parts.bus.listen(sweep::TOPIC);
        let mut failing = BTreeMap::new();
        loop {
            let swept = match self.sweep(&mut failing).await {
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

    /// Does what is due; whether there may be more to do at once.
    async fn sweep(&self, failing: &mut BTreeMap<Due, u32>) -> Result<bool> {
        let now_ms = self.parts.clock.now_ms();
        let due = self.parts.store.read(move |rx| sweep::due(rx, now_ms, AT_ONCE)).await?;
        failing.retain(|known, _| due.contains(known));
        // All at once, without what has failed before.
        let (known, fresh): (Vec<Due>, Vec<Due>) =
            due.into_iter().partition(|due| failing.contains_key(due));
        let (mut alone, mut done) = (known, 0);
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
        let (clock, put) = (self.parts.clock.clone(), due.clone());
        let put = self.parts.store.write(move |tx| -> Result<(), Error> {
            sweep::put_aside(tx, &put, &code::UNWRITABLE, clock.now_ms())
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
