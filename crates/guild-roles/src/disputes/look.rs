//! What is due: disputes that a check, the deadline or the other's book decides, and money that has not followed yet.

use std::sync::Arc;

use guild_market::dispute::{self, Dispute, DisputeId, Outcome, Side, Wait};
use guild_market::order::{self, Order};
use guild_market::verify::{Subject, verify_rerun};
use guild_market::{job, sandbox_run};
use guild_network::archive;
use guild_protocol::amount::Msat;
use guild_protocol::env::Signer;
use guild_protocol::nostr::receipt_notice::ReceiptNotice;
use guild_protocol::nostr::{Event, Filter, Limits, kind, unix_s};

use super::Shared;
use crate::buyer::run_again;
use crate::{Error, Result, alone};

/// So many are looked at in one go.
const DUE_MAX: i64 = 50;
/// What cannot be done now is tried again after so long.
const AGAIN_MS: i64 = 60_000;
/// How many events about one job are looked at.
const NOTICES_MAX: usize = 20;

impl Shared {
    /// Does what is due. Only a store that cannot be used is an error: each that fails by itself is put off.
    pub(super) async fn look(self: &Arc<Shared>) -> Result<()> {
        let now_ms = self.now_ms();
        let due = self.node.store.read(move |rx| dispute::due(rx, now_ms, DUE_MAX)).await?;
        for (dispute_id, side) in due {
            match self.look_at(&dispute_id, side).await {
                Ok(()) => {}
                Err(error) if error.concerns_all() => return Err(error),
                Err(error) => {
                    self.counts.add("dispute_not_decided");
                    tracing::debug!(%error, code = error.code().name, %dispute_id, "it is not decided now");
                    self.failed(dispute_id, side).await?;
                }
            }
        }
        Ok(())
    }

    async fn put_off(&self, dispute_id: DisputeId, side: Side) -> Result<()> {
        let until_ms = self.now_ms().saturating_add(AGAIN_MS);
        let put =
            self.node.store.write(move |tx| dispute::put_off(tx, (&dispute_id, side), until_ms));
        Ok(put.await?)
    }

    async fn failed(&self, dispute_id: DisputeId, side: Side) -> Result<()> {
        let (id, now_ms) = (dispute_id.clone(), self.now_ms());
        let failed =
            alone::write(&self.node.store, move |tx| Ok(dispute::failed(tx, (&id, side), now_ms)?));
        match failed.await? {
            Ok(dispute) => self.warn_if_given_up(&dispute),
            // What cannot even be read holds up no other.
            Err(_) => self.put_off(dispute_id, side).await?,
        }
        Ok(())
    }

    fn warn_if_given_up(&self, dispute: &Dispute) {
        if dispute.given_up {
            self.counts.add("dispute_given_up");
            let why = dispute.waits_for.map_or("", Wait::words);
            tracing::warn!(dispute_id = %dispute.dispute_id, why, "the money of a dispute is not waited for any more");
        }
    }

    async fn look_at(self: &Arc<Shared>, dispute_id: &DisputeId, side: Side) -> Result<()> {
        let id = dispute_id.clone();
        let found =
            alone::read(&self.node.store, move |rx| Ok(dispute::get(rx, &id, side)?)).await??;
        if found.state.is_over() {
            return self.follow(&found).await;
        }
        if !self.advance(dispute_id, side, None).await? {
            return Ok(());
        }
        // Nobody else does it meanwhile, unless it takes too long; then it is only done twice.
        self.put_off(dispute_id.clone(), side).await?;
        let checked = self.check(&found).await?;
        self.counts.add("dispute_checked");
        self.advance(dispute_id, side, Some(checked)).await?;
        Ok(())
    }

    /// Whether the work is to be checked again first.
    async fn advance(
        self: &Arc<Shared>,
        dispute_id: &DisputeId,
        side: Side,
        checked: Option<Outcome>,
    ) -> Result<bool> {
        let (this, id) = (self.clone(), dispute_id.clone());
        let called = alone::write(&self.node.store, move |tx| {
            let now_ms = this.now_ms();
            let desk = this.desk(side);
            let done = dispute::advance(tx, (&id, side), checked, desk, now_ms)?;
            this.publish(tx, &done, now_ms)?;
            Ok(done)
        });
        let done = called.await??;
        if done.dispute.state.is_over() {
            let (by, outcome) = (done.dispute.by, done.dispute.outcome);
            self.counts.add("dispute_closed");
            tracing::info!(%dispute_id, ?by, ?outcome, "a dispute is decided");
        }
        Ok(done.is_to_check)
    }

    /// Does the work again, as its verdict did.
    async fn check(&self, dispute: &Dispute) -> Result<Outcome> {
        let request_id = dispute.request_id;
        let read = alone::read(&self.node.store, move |rx| Ok(order::of_request(rx, &request_id)?));
        let Some(order) = read.await?? else {
            let why = "there is no order to check";
            return Err(Error::refused(&guild_market::code::DISPUTE_SUBJECT, why));
        };
        Ok(if self.passes(&order).await? { Outcome::Release } else { Outcome::Withhold })
    }

    async fn passes(&self, order: &Order) -> Result<bool> {
        let registry = &self.node.registry;
        let job = order.job(registry)?;
        let output_text = order.output_text.as_deref().unwrap_or_default();
        let reruns = match job.schema_id().as_str() == sandbox_run::SCHEMA_ID {
            true => run_again(registry, self.node.workshop.as_ref(), &job, output_text).await?,
            false => Vec::new(),
        };
        let provider = order.deliverer()?;
        let subject = Subject { job: &job, provider: &provider, output_text };
        Ok(verify_rerun(registry, &self.options.verify, &subject, &reruns)?.passed)
    }

    /// Money that has not followed yet: ours is tried again; what the buyer owes is looked for, since its receipt may
    /// have come before its decision.
    async fn follow(self: &Arc<Shared>, dispute: &Dispute) -> Result<()> {
        if dispute.side == Side::Provider {
            for event in self.notices_of(dispute).await? {
                let Ok(notice) = ReceiptNotice::parse(&event, Some(&self.provider)) else {
                    continue;
                };
                let (this, id) = (self.clone(), event.id);
                let called = alone::write(&self.node.store, move |tx| {
                    let us = this.provider.public_key();
                    let now_ms = this.now_ms();
                    job::take_receipt(tx, &notice.receipt, &us, Msat(i64::MAX), now_ms)?;
                    archive::pin(tx, &id)?;
                    Ok(())
                });
                if let Err(error) = called.await? {
                    self.shrug(&id, &error);
                }
            }
        }
        let (this, id, side) = (self.clone(), dispute.dispute_id.clone(), dispute.side);
        let called = alone::write(&self.node.store, move |tx| {
            let now_ms = this.now_ms();
            let done = dispute::retry(tx, (&id, side), this.desk(side), now_ms)?;
            this.publish(tx, &done, now_ms)?;
            Ok(done.dispute)
        });
        self.warn_if_given_up(&called.await??);
        Ok(())
    }

    async fn notices_of(&self, dispute: &Dispute) -> Result<Vec<Event>> {
        let now_s = unix_s(self.now_ms());
        let filter =
            Filter { authors: Some([dispute.buyer].into()), ..Filter::kinds([kind::APP_DATA]) }
                .tag('e', [dispute.request_id.hex()]);
        let read = alone::read(&self.node.store, move |rx| {
            let found = archive::query(rx, std::slice::from_ref(&filter), NOTICES_MAX, now_s)?;
            let parsed =
                found.iter().map(|one| Event::parse(one.json.as_bytes(), &Limits::DEFAULT));
            Ok(parsed.collect::<Result<_, _>>()?)
        });
        read.await?
    }
}
