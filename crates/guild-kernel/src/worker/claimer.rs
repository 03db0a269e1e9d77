//! Takes turns, and everything that is needed to go on with them.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use guild_bus::Listener;
use guild_bus::subject::{Subject, WorkerTarget};
use guild_store::lease::{self, Lease};

use super::heart::Shown;
use super::task::Arrival;
use super::{Worker, hydrate, is_closed, lock};
use crate::turn::{self, Claim};
use crate::{Error, LeaseToken, Result};

impl Worker {
    /// Takes turns whenever there is room for them.
    pub(super) async fn claimer(&self) {
        let topic = |target: &WorkerTarget| Subject::Wakeup(target.clone()).topic().ok();
        let topics = self.options.targets.iter().filter_map(topic);
        let mut bells: Vec<Listener> =
            topics.map(|topic| self.parts.bus.listen(topic.as_str())).collect();
        let mut due = true;
        loop {
            let room = self.room();
            if due && room > 0 {
                match self.claim(room).await {
                    Ok(count) => due = count >= room,
                    Err(error) if is_closed(&error) => return,
                    // Somebody else serves a target now. The others are served on.
                    Err(Error::Store(guild_store::Error::Fenced)) => {
                        lock(&self.held).forget_targets();
                    }
                    Err(error) => {
                        self.warn(&error, "turns cannot be taken now");
                        due = false;
                    }
                }
                if due {
                    continue;
                }
            }
            due |= self.wait_for_work(&mut bells, due).await;
        }
    }

    /// How many turns may be taken now: no more than half of all at once, so that the one half is written while the
    /// other one is taken.
    fn room(&self) -> usize {
        let tasks = self.options.tasks;
        let held = lock(&self.held);
        // Runs take no place from turns, which may be what they wait for; but too many of them are enough.
        if held.runs() >= tasks.saturating_mul(4) {
            return 0;
        }
        let free = tasks.saturating_sub(held.turns());
        free.min(tasks.div_ceil(2)).min(self.options.batch_max)
    }

    /// Until a bell rings or it is time to look anyway; or, if something is known to be due, until there is room.
    async fn wait_for_work(&self, bells: &mut [Listener], due: bool) -> bool {
        let mut sleep = self.parts.clock.sleep(self.options.sweep_ms);
        let mut rings: Vec<_> = bells.iter_mut().map(Listener::hear).collect();
        poll_fn(|cx| {
            let mut heard = sleep.as_mut().poll(cx).is_ready();
            for ring in &mut rings {
                heard |= Pin::new(ring).poll(cx).is_ready();
            }
            let freed = self.freed.poll_take(cx, usize::MAX).is_ready();
            if heard || (freed && due) { Poll::Ready(heard) } else { Poll::Pending }
        })
        .await
    }

    /// Takes up to so many turns; how many it were.
    async fn claim(&self, room: usize) -> Result<usize> {
        let (clock, random) = (&self.parts.clock, &self.parts.random);
        let tokens = (0..room).map(|_| LeaseToken::make(&**clock, &**random)).collect();
        let (targets, leases) = self.targets();
        if targets.is_empty() {
            return Ok(0);
        }
        let claim = Claim {
            targets,
            holder: self.options.holder.clone(),
            ttl_ms: self.options.lease_ms,
            tokens,
        };
        let clock = clock.clone();
        let taken = self.parts.store.write(move |tx| {
            // A target that was lost meanwhile is served by somebody else.
            for lease in &leases {
                lease::check(tx, lease, clock.now_ms())?;
            }
            let claimed = turn::claim(tx, &claim, clock.now_ms())?;
            hydrate::read(tx, claimed)
        });
        let rows = taken.await?;
        let loaded = self.understand_rows(rows);
        let count = loaded.len();
        self.counts.add("claimed", count);
        for one in loaded {
            let claimed = &one.claimed;
            let hold = self.hold(Shown::Turn(claimed.fence.clone()), claimed.until_ms);
            self.arrivals.push((hold, Arrival::Turn(Box::new(one))));
        }
        Ok(count)
    }

    /// The targets that may be served now, and the leases of those that nobody else may serve.
    pub(super) fn targets(&self) -> (Vec<WorkerTarget>, Vec<Lease>) {
        let held = lock(&self.held);
        let (mut targets, mut leases) = (Vec::new(), Vec::new());
        for target in &self.options.targets {
            match (target.is_exclusive(), held.target(target)) {
                (true, None) => continue,
                (true, Some(lease)) => leases.push(lease),
                (false, _) => {}
            }
            targets.push(target.clone());
        }
        (targets, leases)
    }
}
