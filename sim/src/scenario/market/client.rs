//! Those who have work done. They ask again with the same key until they are answered, and write down what they are
//! told.

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::future::{Either, select};
use guild_market::order::{OrderId, State};
use guild_protocol::amount::Msat;
use guild_protocol::env::{Clock, Signer};
use guild_roles::Error;
use guild_roles::buyer::{Choice, Wish};
use serde_json::json;

use super::{Door, Shared, key, lock, runs};

/// What clients know. They outlive every crash.
#[derive(Default)]
pub(super) struct Diary {
    /// How many clients have nothing left to do.
    pub(super) finished: u64,
    /// How each order ended, as a client was told.
    pub(super) told: BTreeMap<OrderId, State>,
}

/// One client, from its first wish to its last.
pub(super) async fn live(shared: Shared, number: u64) {
    let orders = 1 + shared.world.below(2);
    for turn in 0..orders {
        let wish = wish(&shared, number, turn);
        let Some(order_id) = hire(&shared, wish).await else { return };
        if shared.world.below(6) == 0 {
            cancel(&shared, &order_id).await;
        }
        follow(&shared, &order_id).await;
    }
    lock(&shared.diary).finished += 1;
}

fn wish(shared: &Shared, number: u64, turn: u64) -> Wish {
    let world = &shared.world;
    let name = format!("client {number}, wish {turn}");
    let chosen = 1 + usize::try_from(world.below(shared.providers)).unwrap_or(0);
    let provider = match world.below(4) {
        // Commands are not open to all.
        0 if !shared.has_runs => Choice::Any,
        1 => Choice::Chosen(key(chosen).public_key()),
        _ => Choice::Best,
    };
    Wish {
        schema_id: shared.schema_id.clone(),
        input: match shared.has_runs {
            true => runs::input(&name),
            false => json!({"texts": [name], "dimensions": 4}),
        },
        budget: Msat([1_000, 1_000, 1_000, 650][usize::try_from(world.below(4)).unwrap_or(0)]),
        time_limit_ms: [15_000, 15_000, 2_500][usize::try_from(world.below(3)).unwrap_or(0)],
        private: world.below(3) == 0 && provider != Choice::Any,
        provider,
        policy: None,
        kind: None,
        idempotency_key: Some(name),
    }
}

/// Asks until it is answered; none if something is wrong.
async fn hire(shared: &Shared, wish: Wish) -> Option<OrderId> {
    let (may_be_unknown, mut tries) = (wish.provider == Choice::Best, 0);
    loop {
        pause(shared, 80).await;
        let Some(door) = shared.door() else { continue };
        let answer = asked(shared, &door, door.buyer.hire(wish.clone())).await;
        match answer {
            Ok(order) => {
                shared.world.note_text(order.order_id.as_str());
                return Some(order.order_id);
            }
            Err(Error::Store(_)) => shared.world.count("hire without an answer"),
            Err(error) => {
                let code = error.code();
                shared.world.count(code.name);
                tries += 1;
                // The wallet is filled, and providers are heard of, a moment after the start.
                let passing = code == &guild_market::code::WALLET
                    // The clock was set forward in the middle of it.
                    || (code == &guild_market::code::ORDER_MALFORMED && !shared.is_strict())
                    || (code == &guild_roles::code::NO_PROVIDER && may_be_unknown);
                if code == &guild_market::code::PRICE || (passing && tries > 200) {
                    lock(&shared.diary).finished += 1;
                    return None;
                }
                if !passing {
                    shared.world.violate(format!("[hire] {error}"));
                    return None;
                }
            }
        }
    }
}

async fn cancel(shared: &Shared, order_id: &OrderId) {
    pause(shared, 200).await;
    let Some(door) = shared.door() else { return };
    match asked(shared, &door, door.buyer.cancel(order_id.clone())).await {
        Ok(_) => shared.world.count("cancelled"),
        Err(Error::Store(_)) => {}
        Err(error) if error.code() == &guild_market::code::ORDER_CLOSED => {
            shared.world.count("cancelled too late");
        }
        Err(error) => shared.world.violate(format!("[cancel] {error}")),
    }
}

async fn follow(shared: &Shared, order_id: &OrderId) {
    loop {
        pause(shared, 300).await;
        let Some(door) = shared.door() else { continue };
        let answer = asked(shared, &door, door.buyer.order(order_id.clone())).await;
        let Ok(order) = answer else { continue };
        if order.state.is_closed()
            || !shared.is_strict() && shared.world.now_ms() > super::PATIENCE_MS
        {
            shared.world.note_text(order.state.as_str());
            lock(&shared.diary).told.insert(order_id.clone(), order.state);
            return;
        }
    }
}

/// The answer of a node, or that it has died: nobody is left then to say so.
async fn asked<T>(
    shared: &Shared,
    door: &Door,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let dies = async {
        while !door.life.is_dead() {
            shared.world.sleep(20).await;
        }
    };
    match select(pin!(call), pin!(dies)).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(guild_store::Error::Closed.into()),
    }
}

async fn pause(shared: &Shared, max_ms: u64) {
    let pause_ms = shared.world.below_ms(max_ms);
    shared.world.sleep(pause_ms).await;
}
