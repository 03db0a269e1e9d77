//! What a provider does unasked: announces itself, gives signs of life, looks for receipts, forgets old refusals.

use std::sync::Arc;

use futures_util::future::{Either, select};
use guild_market::job;
use guild_network::archive::{self, Verified};
use guild_network::index;
use guild_network::publish::{self, Destinations};
use guild_protocol::env::{Shutdown, UnixMs};
use guild_protocol::nostr::heartbeat::{Heartbeat, MAX_INTERVAL_S};
use guild_protocol::nostr::{tag, unix_s};
use guild_store::Tx;

use super::card::{card, same_offer};
use super::receipt::LastLooked;
use super::{HOUR_MS, Shared};
use crate::{Error, Result};

/// How long a refusal is remembered. The event it answers is stale long before.
const REFUSALS_KEPT_MS: i64 = 7 * 24 * HOUR_MS;
/// How many refusals are remembered. A row is small: it holds no request.
const REFUSALS_KEPT_MAX: i64 = 50_000;
/// How many are forgotten in one transaction.
const FORGOTTEN_MAX: u32 = 500;
/// Relays have this long to take a sign of life.
const BEAT_TIMEOUT_MS: i64 = 5_000;
/// A sign of life is good for so many intervals.
const BEATS_KEPT: u64 = 3;

/// Looks after itself until the shutdown.
pub(super) async fn look_after(shared: Arc<Shared>, shutdown: Shutdown) {
    let (mut failing, mut rounds) = (false, Rounds::default());
    while !shutdown.is_triggered() {
        match shared.round(&mut rounds).await {
            Ok(()) => failing = false,
            Err(error) if error.is_closed() => return,
            // Once, not every time for as long as it lasts.
            Err(error) if !std::mem::replace(&mut failing, true) => {
                tracing::warn!(%error, "the provider cannot announce itself; trying again");
            }
            Err(_) => {}
        }
        let sleep = shared.node.clock.sleep(shared.options.upkeep_ms);
        if let Either::Left(_) = select(shutdown.triggered(), sleep).await {
            return;
        }
    }
}

/// What one round leaves to the next.
#[derive(Default)]
struct Rounds {
    /// When the last sign of life was given.
    beat_ms: Option<UnixMs>,
    looked: LastLooked,
}

impl Shared {
    async fn round(self: &Arc<Shared>, rounds: &mut Rounds) -> Result<()> {
        self.announce().await?;
        let now_ms = self.now_ms();
        // Either way: a clock that was set back must not make us look dead.
        let due = |at_ms: UnixMs| now_ms.saturating_sub(at_ms).abs() >= self.options.heartbeat_ms;
        if !rounds.beat_ms.is_none_or(due) {
            return Ok(());
        }
        self.beat(now_ms).await?;
        // Whatever becomes of the rest: a sign of life more often than announced says nothing more.
        rounds.beat_ms = Some(now_ms);
        let looked = self.look_for_receipts(rounds.looked).await;
        self.forget_refusals(now_ms).await?;
        rounds.looked = looked?;
        Ok(())
    }

    /// Forgets all that are old or too many, a few at a time so that others can write in between.
    async fn forget_refusals(&self, now_ms: UnixMs) -> Result<()> {
        let before_ms = now_ms.saturating_sub(REFUSALS_KEPT_MS);
        let forget = move |tx: &mut Tx<'_>| {
            job::forget_refused(tx, before_ms, REFUSALS_KEPT_MAX, FORGOTTEN_MAX.into())
        };
        while self.node.store.write(forget).await? >= u64::from(FORGOTTEN_MAX) {}
        Ok(())
    }

    /// Announces what is offered, if it is not announced so already.
    async fn announce(self: &Arc<Shared>) -> Result<()> {
        let this = self.clone();
        let wanted = self.node.store.read(move |rx| this.wanted(rx)).await?;
        if !wanted {
            return Ok(());
        }
        let this = self.clone();
        self.node.store.write(move |tx| this.announce_in(tx)).await?;
        self.counts.add("announced");
        Ok(())
    }

    fn wanted(&self, rx: &mut guild_store::Rx<'_>) -> Result<bool> {
        let now_ms = self.now_ms();
        let Some(there) = self.announced(rx)? else { return Ok(true) };
        let card = card(&self.options, self.models(), &job::stability(rx, &self.us())?);
        let age_ms = now_ms.saturating_sub(there.last_ms);
        Ok(!same_offer(&card, &there.card)
            || age_ms >= self.options.announce_ms
            || (age_ms >= self.options.restate_ms
                && card.content.stability != there.card.content.stability))
    }

    fn announced(&self, rx: &mut guild_store::Rx<'_>) -> Result<Option<index::Provider>> {
        let ours = index::provider(rx, &self.us())?;
        Ok(ours.into_iter().find(|provider| provider.card.d == self.options.d))
    }

    fn announce_in(&self, tx: &mut Tx<'_>) -> Result<()> {
        let now_ms = self.now_ms();
        let before = self.announced(tx)?;
        let card = card(&self.options, self.models(), &job::stability(tx, &self.us())?);
        // A version of the same second might lose against the one before.
        let after = before.map_or(0, |before| before.created_at.saturating_add(1));
        let event = card.draft(unix_s(now_ms).max(after))?.sign(&self.key)?;
        let to = Destinations::own(&self.options.relays);
        // What is announced anew replaces it, and what is evicted is announced anew: it need not be kept for ever.
        Ok(publish::enqueue_unpinned(tx, &Verified::check(event)?, &to, now_ms)?)
    }

    fn models(&self) -> Vec<String> {
        self.worker.models()
    }

    /// A sign of life: kept here for whoever asks us, and sent to whoever listens now. It is not queued, because one
    /// that comes late says nothing.
    async fn beat(&self, now_ms: UnixMs) -> Result<()> {
        let interval_s = unix_s(self.options.heartbeat_ms).clamp(1, MAX_INTERVAL_S);
        let at = unix_s(now_ms);
        let until = at.saturating_add(interval_s.saturating_mul(BEATS_KEPT));
        let us = self.us();
        let standing = self.node.store.read(move |rx| job::accepted(rx, &us, 1_000)).await?;
        let beat = Heartbeat {
            d: self.options.d.clone(),
            interval_s,
            open_jobs: u64::try_from(standing.len()).ok(),
            other_tags: vec![tag::tag(["expiration", &until.to_string()])],
        };
        let event = Verified::check(beat.draft(at)?.sign(&self.key)?)?;
        let kept = event.clone();
        let put =
            move |tx: &mut Tx<'_>| archive::put(tx, std::slice::from_ref(&kept), "own", now_ms);
        self.node.store.write(put).await.map_err(Error::from)?;
        let sent = (self.broadcast)(event.event().clone());
        select(sent, self.node.clock.sleep(BEAT_TIMEOUT_MS)).await;
        self.counts.add("heartbeat");
        Ok(())
    }
}
