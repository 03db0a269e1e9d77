//! Those who ask agents for something. They ask again under the same name until they are answered, take back, stop, and
//! write down what they are told.

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::future::{Either, select};
use guild_kernel::boxes::{self, NewBox};
use guild_kernel::card::{self, CardType, NewCard, Role};
use guild_kernel::inbox::{self, Outcome};
use guild_kernel::turn::{self, Accepted, NewTurn, Parent, Stop};
use guild_kernel::{AgentKey, AgentTurnId, Error, Result, code};
use guild_protocol::env::Clock;
use guild_store::Tx;
use serde_json::{Value, json};

use super::{CHANNEL, Node, PROJECT, Shared, key, lock};
use crate::fault::Dice;

/// What clients know. They outlive every crash.
#[derive(Default)]
pub(super) struct Diary {
    /// How many clients have nothing left to do.
    pub(super) finished: u64,
    /// The turns that were accepted, by the names of their wishes.
    pub(super) accepted: BTreeMap<String, AgentTurnId>,
    /// How turns ended, as clients were told.
    pub(super) told: BTreeMap<AgentTurnId, Option<Outcome>>,
}

/// Something that is asked of an agent, with all that it needs.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) name: String,
    key: AgentKey,
    /// What names the box that is written to: wishes may share one.
    output: String,
    parent: Option<Parent>,
    profile_name: Option<String>,
}

/// An id that follows from a name.
fn made<T: std::str::FromStr<Err: std::fmt::Display>>(prefix: &str, name: &str) -> Result<T> {
    let parts: Vec<u64> = prefix.bytes().chain(name.bytes()).map(u64::from).collect();
    let mut dice = Dice::new(&parts);
    let (high, low) = (dice.throw(), dice.throw());
    let parsed = format!("{prefix}_{high:016x}{low:016x}").parse();
    parsed.map_err(|error: T::Err| Error::refused(&code::MALFORMED, error.to_string()))
}

/// How a wish stands in an instruction.
pub(super) fn instruction(name: &str) -> String {
    format!("wish:{name}; please")
}

/// The wish that a text holds.
pub(super) fn wish_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("wish:")?;
    rest.split_once(';').map(|(name, _)| name)
}

impl Wish {
    /// What a turn asks another agent for, to be answered as this call.
    pub(super) fn of_parent(parent: Parent, key: AgentKey) -> Wish {
        let name = parent.answers.as_ref().map_or("none", |call| call.as_str()).to_owned();
        Wish { output: name.clone(), name, key, parent: Some(parent), profile_name: None }
    }

    /// Makes the boxes and asks for the turn, in one transaction. Doing it again changes nothing.
    pub(super) fn ask(&self, tx: &mut Tx<'_>, now_ms: i64) -> Result<Accepted> {
        let new_card = NewCard {
            card_id: made("card", &self.name)?,
            project_id: PROJECT.parse()?,
            card_type: CardType::Instruction,
            role: Role::User,
            author_id: "client".to_owned(),
            content: json!({ "text": instruction(&self.name) }),
            metadata: json!({}),
        };
        let fields = NewCard {
            card_id: made("card", &format!("{} fields", self.name))?,
            card_type: CardType::ResultFields,
            content: json!({ "fields": [{ "name": "answer" }] }),
            ..new_card.clone()
        };
        card::put_all(tx, &[new_card.clone(), fields.clone()], now_ms)?;
        let new_box = |box_id, cards| NewBox {
            box_id,
            project_id: new_card.project_id.clone(),
            owner_agent_id: None,
            cards,
        };
        let context_box_id: guild_kernel::BoxId = made("box", &format!("{} context", self.name))?;
        let output_box_id: guild_kernel::BoxId = made("box", &format!("{} output", self.output))?;
        let new = [
            new_box(context_box_id.clone(), vec![fields.card_id, new_card.card_id.clone()]),
            new_box(output_box_id.clone(), Vec::new()),
        ];
        boxes::create_all(tx, &new, now_ms)?;
        let new_turn = NewTurn {
            key: self.key.clone(),
            channel_id: CHANNEL.parse()?,
            correlation_id: self.name.clone(),
            profile_name: self.profile_name.clone(),
            context_box_id,
            output_box_id,
            parent: self.parent.clone(),
            trace_id: None,
            metadata: Value::Null,
        };
        match turn::enqueue_all(tx, &[new_turn], now_ms)?.pop() {
            Some(answer) => answer,
            None => Err(Error::refused(&code::MALFORMED, "one wish has one answer")),
        }
    }
}

/// One client, from its first wish to its last.
pub(super) async fn live(shared: Shared, number: u64) {
    let wishes = 1 + shared.world.below(4);
    let mut mine = Vec::new();
    for turn in 0..wishes {
        let wish = wish(&shared, number, turn);
        let Some(id) = ask(&shared, &wish).await else { return };
        bother(&shared, &wish, &id).await;
        if shared.world.below(2) == 0 {
            follow(&shared, &id).await;
        }
        mine.push(id);
    }
    for id in mine {
        follow(&shared, &id).await;
    }
    lock(&shared.diary).finished += 1;
}

fn wish(shared: &Shared, number: u64, turn: u64) -> Wish {
    let world = &shared.world;
    let agent = world.below(shared.agents);
    let name = format!("client-{number}-{turn}");
    // What an agent has done for one client before may lie in the same box.
    let output = if world.below(3) == 0 { format!("{number} {agent}") } else { name.clone() };
    let profile_name = (world.below(4) == 0).then(|| "strict".to_owned());
    Wish { name, key: key(agent), output, parent: None, profile_name }
}

/// Asks until it is answered; none if something is wrong.
async fn ask(shared: &Shared, wish: &Wish) -> Option<AgentTurnId> {
    loop {
        pause(shared, 60).await;
        let Some(node) = shared.node() else { continue };
        match ask_once(shared, &node, wish).await {
            Ok(accepted) => return Some(write_down(shared, wish, accepted)),
            Err(Error::Store(_)) => shared.world.count("wish without an answer"),
            Err(error) if error.code() == &code::UNKNOWN_AGENT => {
                // The agents are there a moment after the start.
                shared.world.count("agents that are not there yet");
            }
            Err(error) => {
                shared.world.violate(format!("[wish] {}: {error}", wish.name));
                return None;
            }
        }
    }
}

pub(super) async fn ask_once(shared: &Shared, node: &Node, wish: &Wish) -> Result<Accepted> {
    let (wish, clock) = (wish.clone(), node.clock.clone());
    let write = node.store.write(move |tx| wish.ask(tx, clock.now_ms()));
    asked(shared, node, write).await
}

/// One name, one turn: whoever asks again is told the same.
pub(super) fn write_down(shared: &Shared, wish: &Wish, accepted: Accepted) -> AgentTurnId {
    let Accepted { agent_turn_id, known } = accepted;
    shared.world.note_text(agent_turn_id.as_str());
    if known {
        shared.world.count("asked again");
    }
    let mut diary = lock(&shared.diary);
    let there = diary.accepted.entry(wish.name.clone()).or_insert_with(|| agent_turn_id.clone());
    if *there != agent_turn_id {
        let what = format!("[twice] {} is {there} and {agent_turn_id}", wish.name);
        shared.world.violate(what);
    }
    agent_turn_id
}

/// What else clients do to a turn.
async fn bother(shared: &Shared, wish: &Wish, id: &AgentTurnId) {
    match shared.world.below(10) {
        0 => stop(shared, id).await,
        1 => cancel(shared, id).await,
        // Its answer was lost on the way.
        2 => {
            ask(shared, wish).await;
        }
        3 => conflict(shared, wish).await,
        _ => {}
    }
}

async fn stop(shared: &Shared, id: &AgentTurnId) {
    pause(shared, 600).await;
    let Some(node) = shared.node() else { return };
    let (stop, clock) =
        (Stop { agent_turn_id: id.clone(), reason: "enough".to_owned() }, node.clock.clone());
    let write = node.store.write(move |tx| {
        let stops = std::slice::from_ref(&stop);
        turn::stop_all(tx, stops, clock.now_ms())?.pop().transpose()
    });
    match asked(shared, &node, write).await {
        Ok(Some(stopped)) => shared.world.count(match stopped {
            turn::Stopped::Stopped => "stopped",
            turn::Stopped::Canceled => "stopped before it began",
            turn::Stopped::Over => "stopped too late",
        }),
        Ok(None) | Err(Error::Store(_)) => {}
        Err(error) => shared.world.violate(format!("[stop] {id}: {error}")),
    }
}

async fn cancel(shared: &Shared, id: &AgentTurnId) {
    pause(shared, 100).await;
    let Some(node) = shared.node() else { return };
    let (id, clock) = (id.clone(), node.clock.clone());
    let write = node.store.write(move |tx| turn::cancel(tx, &id, clock.now_ms()));
    match asked(shared, &node, write).await {
        Ok(()) => shared.world.count("taken back"),
        Err(Error::Store(_)) => {}
        Err(error) if error.code() == &code::NOT_QUEUED => shared.world.count("not taken back"),
        Err(error) => shared.world.violate(format!("[cancel] {error}")),
    }
}

/// Something else under the same name is refused.
async fn conflict(shared: &Shared, wish: &Wish) {
    let Some(node) = shared.node() else { return };
    let other = Wish { output: format!("{} other", wish.output), ..wish.clone() };
    match ask_once(shared, &node, &other).await {
        Ok(_) => shared.world.violate(format!("[conflict] {} is two wishes", wish.name)),
        Err(Error::Store(_)) => {}
        Err(error) if error.code() == &code::CONFLICT => shared.world.count("conflict"),
        Err(error) => shared.world.violate(format!("[conflict] {error}")),
    }
}

/// Waits for the end of a turn.
async fn follow(shared: &Shared, id: &AgentTurnId) {
    loop {
        pause(shared, 300).await;
        let Some(node) = shared.node() else { continue };
        let wanted = id.clone();
        let read = node.store.read(move |rx| inbox::turn(rx, &wanted));
        match asked(shared, &node, read).await {
            Ok(Some(row)) if row.closed_ms.is_some() => {
                shared.world.note_text(row.outcome.map_or("none", Outcome::as_str));
                lock(&shared.diary).told.insert(id.clone(), row.outcome);
                return;
            }
            Ok(None) => return shared.world.violate(format!("[gone] {id} was accepted")),
            _ => {}
        }
    }
}

/// The answer of a node, or that it has died: nobody is left then to say so.
pub(super) async fn asked<T>(
    shared: &Shared,
    node: &Node,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let dies = async {
        while !node.life.is_dead() {
            shared.world.sleep(40).await;
        }
    };
    match select(pin!(call), pin!(dies)).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(guild_store::Error::Closed.into()),
    }
}

pub(super) async fn pause(shared: &Shared, max_ms: u64) {
    let pause_ms = shared.world.below_ms(max_ms);
    shared.world.sleep(pause_ms).await;
}
