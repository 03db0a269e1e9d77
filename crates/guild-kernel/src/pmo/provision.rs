//! Agents that are made by agents. What an agent is cannot be changed; it can be retired by its owner.

use guild_protocol::env::UnixMs;
use guild_store::Tx;
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{Call, check_name};
use super::target;
use crate::roster::{self, Agent, AgentStatus};
use crate::{AgentId, Error, Result, code};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    /// It is there afterwards, be it new or not.
    Ensure,
    /// It is new.
    Create,
    /// It is new, and like another one.
    Derive,
    /// It takes no more work.
    Retire,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    action: Action,
    #[serde(default)]
    agent_id: Option<AgentId>,
    #[serde(default)]
    profile_name: Option<String>,
    #[serde(default)]
    derived_from: Option<AgentId>,
    #[serde(default)]
    display_name: Option<String>,
    #[serde(default)]
    owner_agent_id: Option<AgentId>,
    #[serde(default)]
    worker_target: Option<String>,
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    metadata: Value,
}

fn malformed(message: impl Into<String>) -> Error {
    Error::refused(&code::MALFORMED, message)
}

pub(super) fn provision_agent(tx: &mut Tx<'_>, call: &Call, now_ms: UnixMs) -> Result<Value> {
    let wish: Wish = call.arguments(tx)?;
    if wish.action == Action::Retire {
        return retire(tx, call, &wish);
    }
    if let Some(agent_id) = &wish.agent_id {
        let there = roster::agent(tx, &call.agent_key(agent_id.as_str())?)?;
        match there {
            Some(there) if wish.action == Action::Ensure => return ensure(&wish, &there),
            Some(there) => {
                let message = format!("{} is there already", there.key);
                return Err(Error::refused(&code::AGENT_FIXED, message));
            }
            None => {}
        }
    } else if wish.action != Action::Derive {
        return Err(malformed("agent_id is missing"));
    }
    let agent = new_agent(tx, call, &wish)?;
    let metadata = json!({
        "tool_call_id": call.tool_call_id,
        "derived_from": wish.derived_from,
        "given": wish.metadata,
    });
    roster::put_agent(tx, &agent, &metadata, now_ms)?;
    Ok(told("created", &agent))
}

/// The agent that is asked for: of a profile that the turn may ask agents of, or like another one of those.
fn new_agent(tx: &mut Tx<'_>, call: &Call, wish: &Wish) -> Result<Agent> {
    let policy = call.policy(tx)?;
    let mut agent = match (wish.action, &wish.derived_from, &wish.profile_name) {
        (Action::Derive, Some(from), None) => {
            let like = target::active_agent(tx, &call.agent_key(from.as_str())?)?;
            target::allowed(tx, call, &policy, &like.profile_name)?;
            target::copy_of(call, &like, 0)?
        }
        (Action::Create | Action::Ensure, None, Some(name)) => {
            check_name("profile_name", name)?;
            let profile = target::allowed(tx, call, &policy, name)?;
            target::new_agent(call, &profile, 0)?
        }
        (Action::Derive, ..) => {
            return Err(malformed("derive takes derived_from and no profile_name"));
        }
        _ => return Err(malformed("create and ensure take profile_name and no derived_from")),
    };
    if let Some(agent_id) = &wish.agent_id {
        agent.key.agent_id = agent_id.clone();
    }
    if let Some(owner) = &wish.owner_agent_id {
        check_owner(tx, call, owner)?;
        agent.owner_agent_id = Some(owner.clone());
    }
    if wish.worker_target.as_ref().is_some_and(|target| *target != agent.worker_target) {
        let message = format!("agents of this profile are worked for by {}", agent.worker_target);
        return Err(malformed(message));
    }
    if let Some(name) = &wish.display_name {
        agent.display_name = name.clone();
    }
    if let Some(tags) = &wish.tags {
        agent.tags = tags.clone();
    }
    Ok(agent)
}

/// An agent is owned by the one that makes it, or by one that this one owns.
fn check_owner(tx: &mut Tx<'_>, call: &Call, owner: &AgentId) -> Result<()> {
    if *owner == call.key.agent_id {
        return Ok(());
    }
    let agent = target::active_agent(tx, &call.agent_key(owner.as_str())?)?;
    if agent.owner_agent_id.as_ref() == Some(&call.key.agent_id) {
        return Ok(());
    }
    let message = format!("{} does not own {}", call.key, agent.key);
    Err(Error::refused(&code::DELEGATION_DENIED, message))
}

/// The agent is there: it must be what is asked for.
fn ensure(wish: &Wish, there: &Agent) -> Result<Value> {
    if there.status != AgentStatus::Active {
        let message = format!("{} is retired", there.key);
        return Err(Error::refused(&code::UNKNOWN_AGENT, message));
    }
    let same = [
        ("profile_name", wish.profile_name.as_ref().is_none_or(|p| *p == there.profile_name)),
        ("worker_target", wish.worker_target.as_ref().is_none_or(|t| *t == there.worker_target)),
        ("tags", wish.tags.as_ref().is_none_or(|tags| *tags == there.tags)),
        ("display_name", wish.display_name.as_ref().is_none_or(|n| *n == there.display_name)),
        (
            "owner_agent_id",
            wish.owner_agent_id.is_none() || wish.owner_agent_id == there.owner_agent_id,
        ),
    ];
    if let Some((field, _)) = same.iter().find(|(_, same)| !same) {
        let message = format!("{} is there with another {field}", there.key);
        return Err(Error::refused(&code::AGENT_FIXED, message));
    }
    Ok(told("existing", there))
}

/// The agent takes no more work. What it has begun goes on.
fn retire(tx: &mut Tx<'_>, call: &Call, wish: &Wish) -> Result<Value> {
    let Some(agent_id) = &wish.agent_id else { return Err(malformed("agent_id is missing")) };
    let key = call.agent_key(agent_id.as_str())?;
    let Some(agent) = roster::agent(tx, &key)? else {
        return Err(Error::refused(&code::UNKNOWN_AGENT, format!("there is no agent {key}")));
    };
    if agent.owner_agent_id.as_ref() != Some(&call.key.agent_id) {
        let message = format!("{} does not own {key}", call.key);
        return Err(Error::refused(&code::DELEGATION_DENIED, message));
    }
    roster::retire(tx, &key)?;
    Ok(told("retired", &agent))
}

fn told(status: &str, agent: &Agent) -> Value {
    json!({
        "status": status,
        "agent_id": agent.key.agent_id,
        "profile_name": agent.profile_name,
        "worker_target": agent.worker_target,
        "display_name": agent.display_name,
        "owner_agent_id": agent.owner_agent_id,
        "tags": agent.tags,
    })
}
