//! Who is asked: a new agent of a profile, one that is there, or a copy of one.

use guild_store::Rx;
use serde::Deserialize;

use super::call::{Call, check_name};
use super::policy::{Policy, tags_of};
use crate::roster::{self, Agent, AgentStatus, Profile};
use crate::turn::head;
use crate::{AgentKey, BoxId, Error, Result, code};

/// How an agent is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Strategy {
    /// A new one of the profile named.
    New,
    /// The one named, with its memory.
    Reuse,
    /// A new one like the one named, which knows what that one has written.
    Clone,
}

/// Who is asked.
pub(super) struct Target {
    pub(super) agent: Agent,
    /// Whether it has to be made.
    pub(super) is_new: bool,
    /// What it has written to before, and goes on writing to.
    pub(super) memory: Option<BoxId>,
    /// What the one that it is a copy of has written to.
    pub(super) copies: Option<BoxId>,
}

/// Finds who is asked, and refuses whom the turn may not ask. `index` tells tasks of one call apart.
pub(super) fn find(
    rx: &mut Rx<'_>,
    call: &Call,
    policy: &Policy,
    (strategy, name): (Strategy, &str),
    index: usize,
) -> Result<Target> {
    check_name("target_ref", name)?;
    match strategy {
        Strategy::New => {
            let profile = allowed(rx, call, policy, name)?;
            let agent = new_agent(call, &profile, index)?;
            Ok(Target { agent, is_new: true, memory: None, copies: None })
        }
        Strategy::Reuse => {
            let agent = active_agent(rx, &call.agent_key(name)?)?;
            allowed(rx, call, policy, &agent.profile_name)?;
            let memory = memory_of(rx, &agent.key)?;
            Ok(Target { agent, is_new: false, memory, copies: None })
        }
        Strategy::Clone => {
            let like = active_agent(rx, &call.agent_key(name)?)?;
            allowed(rx, call, policy, &like.profile_name)?;
            let copies = memory_of(rx, &like.key)?;
            let agent = copy_of(call, &like, index)?;
            Ok(Target { agent, is_new: true, memory: None, copies })
        }
    }
}

/// The profile with this name, if the turn may ask agents that think with it.
pub(super) fn allowed(
    rx: &mut Rx<'_>,
    call: &Call,
    policy: &Policy,
    name: &str,
) -> Result<Profile> {
    let project_id = &call.key.project_id;
    let Some(profile) = roster::profile(rx, project_id, name)? else {
        let message = format!("{project_id} has no profile {name:?}");
        return Err(Error::refused(&code::UNKNOWN_PROFILE, message));
    };
    if policy.allows(&profile.name, &tags_of(&profile.body)) {
        return Ok(profile);
    }
    let message = format!("{} may not ask agents of profile {name:?}", call.key);
    Err(Error::refused(&code::DELEGATION_DENIED, message))
}

/// An agent that takes work.
pub(super) fn active_agent(rx: &mut Rx<'_>, key: &AgentKey) -> Result<Agent> {
    let agent = roster::agent(rx, key)?;
    agent
        .filter(|agent| agent.status == AgentStatus::Active)
        .ok_or_else(|| Error::refused(&code::UNKNOWN_AGENT, format!("no agent {key} takes work")))
}

/// What an agent writes to now, or wrote to last.
fn memory_of(rx: &mut Rx<'_>, key: &AgentKey) -> Result<Option<BoxId>> {
    let Some(head) = head::find(rx, key)? else { return Ok(None) };
    let now = head.active.map(|active| active.output_box_id);
    Ok(now.or(head.last_output_box_id))
}

/// An agent of a profile, owned by the one that asks.
pub(super) fn new_agent(call: &Call, profile: &Profile, index: usize) -> Result<Agent> {
    Ok(Agent {
        key: call.agent_key(&call.new_agent_name(index))?,
        profile_name: profile.name.clone(),
        worker_target: profile.worker_target.clone(),
        tags: tags_of(&profile.body),
        display_name: profile.name.clone(),
        owner_agent_id: Some(call.key.agent_id.clone()),
        status: AgentStatus::Active,
    })
}

/// An agent like another one, owned by the one that asks.
pub(super) fn copy_of(call: &Call, like: &Agent, index: usize) -> Result<Agent> {
    Ok(Agent {
        key: call.agent_key(&call.new_agent_name(index))?,
        owner_agent_id: Some(call.key.agent_id.clone()),
        ..like.clone()
    })
}
