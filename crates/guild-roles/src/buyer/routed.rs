//! Who is hired by the routing matrix, and what the matrix learns of it.

use std::collections::BTreeSet;

use guild_market::discovery::Footing;
use guild_market::review;
use guild_market::routing::chosen::Why;
use guild_market::routing::log::Appended;
use guild_market::routing::{self, Chosen, Hearsays, Tier, choose_with, work};
use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_store::Tx;

use super::choose::{Candidate, best, fits};
use super::{Order, Shared, Wish};
use crate::reviews::drafted;
use crate::router::{Matrix, Policy, TaskType};
use crate::{Error, Result};

/// Somebody, and why it is this one.
pub(super) struct Picked {
    pub(super) candidate: Candidate,
    pub(super) why: Option<Why>,
}

impl Shared {
    /// The best of these for a wish: by the matrix, as far as it knows somebody whom it trusts at all; else the
    /// cheapest of whom it does not know; else whom it hardly trusts. Nobody whom it has shut out.
    pub(super) async fn pick(
        &self,
        wish: &Wish,
        candidates: Vec<Candidate>,
    ) -> Result<Option<Picked>> {
        let Ok(task) = wish.schema_id.as_str().parse::<TaskType>() else {
            return Ok(cheapest(candidates, wish, self.now_ms(), "its name is none of the matrix"));
        };
        let matrix = self.router.current().await?;
        let known: BTreeSet<PublicKey> = matrix.providers_of(&task).map(|(key, _)| *key).collect();
        if known.is_empty() {
            let why = format!("nobody was ever admitted for {task}");
            return Ok(cheapest(candidates, wish, self.now_ms(), &why));
        }
        let (familiar, strangers): (Vec<Candidate>, Vec<Candidate>) =
            candidates.into_iter().partition(|one| known.contains(&one.provider));
        let said = self.said(&task, wish).await?;
        let routed = self.routed((&matrix, &said), &task, (&known, familiar), wish);
        let trusted = routed.as_ref().is_some_and(|(_, tier)| *tier != Tier::Below);
        let stranger = match trusted {
            true => None,
            false => {
                let why = format!("nobody who is known for {task} is trusted and there");
                cheapest(strangers, wish, self.now_ms(), &why)
            }
        };
        Ok(stranger.or(routed.map(|(picked, _)| picked)))
    }

    /// What others say of those who do some work, where that is listened to.
    async fn said(&self, task: &TaskType, wish: &Wish) -> Result<Hearsays> {
        if wish.policy.unwrap_or(self.options.policy) != Policy::Thompson {
            return Ok(Hearsays::new());
        }
        let task = task.clone();
        Ok(self.node.store.read(move |rx| review::hearsay(rx, &task)).await?)
    }

    /// Whom the matrix chooses among those who are there, and from which tier.
    fn routed(
        &self,
        (matrix, said): (&Matrix, &Hearsays),
        task: &TaskType,
        (known, mut familiar): (&BTreeSet<PublicKey>, Vec<Candidate>),
        wish: &Wish,
    ) -> Option<(Picked, Tier)> {
        familiar.retain(|one| fits(one, wish.budget, wish.private));
        let there: BTreeSet<PublicKey> = familiar.iter().map(|one| one.provider).collect();
        let except: BTreeSet<PublicKey> = known.difference(&there).copied().collect();
        let now_ms = self.now_ms();
        let wanted = routing::Wanted { task, except: &except, max_cost_msat: None, now_ms };
        let policy = wish.policy.unwrap_or(self.options.policy);
        let choice = choose_with(matrix, policy, &wanted, said, &*self.node.random);
        let Chosen { provider, .. } = choice.chosen.as_ref()?;
        let tier = Tier::of(matrix.options(), matrix.entry(task, provider)?)?;
        let candidate = familiar.into_iter().find(|one| one.provider == *provider)?;
        Some((Picked { candidate, why: Some(Why::of(&choice)) }, tier))
    }

    /// Writes down whom an order was given to, and why.
    pub(super) fn given(
        &self,
        tx: &mut Tx<'_>,
        order: &Order,
        why: Option<&Why>,
        now_ms: UnixMs,
    ) -> Result<()> {
        if let Some(why) = why {
            routing::chosen::keep(tx, &order.order_id, why)?;
        }
        let rows = work::given(tx, self.router.options(), order, now_ms);
        self.learnt(tx, rows, now_ms)
    }

    /// Writes down how an order ended.
    pub(super) fn ended(&self, tx: &mut Tx<'_>, order: &Order, now_ms: UnixMs) -> Result<()> {
        let rows = work::ended(tx, self.router.options(), order, now_ms);
        self.reviewed(tx, order, rows.as_deref().unwrap_or_default(), now_ms)?;
        self.learnt(tx, rows, now_ms)
    }

    /// Scores who foretold an outcome, and drafts what is said of it. What cannot be said holds up no money.
    fn reviewed(
        &self,
        tx: &mut Tx<'_>,
        order: &Order,
        rows: &[Appended],
        now_ms: UnixMs,
    ) -> Result<()> {
        drafted(review::ended(tx, &self.options.reviews, order, rows, now_ms), &self.counts)
    }

    /// Writes down that somebody sent rubbish for an order that is open to all.
    pub(super) fn rejected(
        &self,
        tx: &mut Tx<'_>,
        order: &Order,
        author: &PublicKey,
        now_ms: UnixMs,
    ) -> Result<()> {
        let rows = work::rejected(tx, self.router.options(), (order, author), now_ms);
        self.reviewed(tx, order, rows.as_deref().unwrap_or_default(), now_ms)?;
        self.learnt(tx, rows, now_ms)
    }

    /// Writes down that a provider has signed two different results.
    pub(super) fn signed_twice(
        &self,
        tx: &mut Tx<'_>,
        order: &Order,
        now_ms: UnixMs,
    ) -> Result<()> {
        let rows = work::signed_twice(tx, self.router.options(), order, now_ms);
        self.learnt(tx, rows, now_ms)
    }

    /// Copies what is significant of it. What the matrix itself refuses, because its log is damaged, holds up no money:
    /// it is told, and `guild route verify` says where.
    fn learnt(
        &self,
        tx: &mut Tx<'_>,
        rows: guild_market::Result<Vec<Appended>>,
        now_ms: UnixMs,
    ) -> Result<()> {
        let copied = rows.and_then(|rows| self.router.copy(tx, &rows, now_ms));
        match copied {
            Err(guild_market::Error::Refused { code, message }) if is_of_the_log(code.name) => {
                self.counts.add("routing_not_written");
                tracing::warn!(code = code.name, %message, "an outcome is not in the routing log");
                Ok(())
            }
            Err(guild_market::Error::Protocol(error)) => {
                self.counts.add("routing_not_written");
                tracing::warn!(%error, "an outcome is not in the routing log");
                Ok(())
            }
            Err(error) => Err(Error::from(error)),
            Ok(()) => Ok(()),
        }
    }
}

fn is_of_the_log(code: &str) -> bool {
    code.starts_with("route.")
}

/// The cheapest of those who stand best, as it is chosen where the matrix says nothing.
fn cheapest(
    candidates: Vec<Candidate>,
    wish: &Wish,
    now_ms: UnixMs,
    because: &str,
) -> Option<Picked> {
    let footings: Vec<Footing> = candidates.iter().map(|one| one.footing).collect();
    let candidate = best(candidates, wish.budget, wish.private)?;
    let count = footings.into_iter().filter(|footing| *footing == candidate.footing).count();
    let there = match candidate.footing {
        Footing::Sound => "there",
        Footing::Disputed => "there, and contradict themselves",
        Footing::Unlisted | Footing::Unfit => "there, and not in the registry as such",
    };
    let price = candidate.price.unwrap_or(Msat(0)).0;
    let words = format!(
        "cheapest: {}\n  {because}: the cheapest of {count} who are {there}, for {price} msat",
        candidate.provider
    );
    let why = Why { at_ms: now_ms, how: "cheapest".to_owned(), words, document: None };
    Some(Picked { candidate, why: Some(why) })
}
