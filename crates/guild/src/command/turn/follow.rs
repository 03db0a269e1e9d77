//! A turn while it runs, told as it goes.

use guild_kernel::AgentTurnId;
use guild_kernel::story::{Standing, Story};
use guild_protocol::env::{Clock, Shutdown};
use guild_roles::agents::Agents;
use serde_json::json;
use tokio::runtime::Runtime;

use super::{lost, told};
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::node;
use crate::output::{Answer, Output};
use crate::real::{SystemClock, runtime};

/// How often a turn is looked at.
const LOOK_MS: i64 = 200;

/// Tells what happens to a turn, until it is over or whoever watches has seen enough. It goes on at the node.
pub(in crate::command) fn until_over(
    loaded: &Loaded,
    id: &AgentTurnId,
    interrupted: &Shutdown,
    out: &mut Output,
) -> Result<Answer> {
    let runtime = runtime()?;
    let service = node::open_read_only(loaded)?;
    let agents = Agents::new(service.handle(), std::sync::Arc::new(SystemClock));
    let answer = Watching::new(id, agents).follow(&runtime, interrupted, out);
    service.close();
    answer
}

/// What was told of a turn.
struct Watching {
    id: AgentTurnId,
    agents: Agents,
    /// How many of its cards.
    told: usize,
}

impl Watching {
    fn new(id: &AgentTurnId, agents: Agents) -> Watching {
        Watching { id: id.clone(), agents, told: 0 }
    }

    fn follow(
        mut self,
        runtime: &Runtime,
        interrupted: &Shutdown,
        out: &mut Output,
    ) -> Result<Answer> {
        loop {
            let story = runtime.block_on(self.look())?;
            if self.tell(&story, out)? {
                return conclude(&story, out);
            }
            if interrupted.is_triggered() {
                out.progress("");
                let message = format!("{} is not over yet", self.id);
                let help = format!("It goes on at the node: `guild turn watch {}`.", self.id);
                return Err(Error::new(&code::TURN_GOES_ON, message).help(help));
            }
            runtime.block_on(SystemClock.sleep(LOOK_MS));
        }
    }

    /// The turn as it is now.
    async fn look(&self) -> Result<Story> {
        self.agents.turn(self.id.clone()).await?.ok_or_else(|| lost(&self.id))
    }

    /// Tells what is new; whether it is over.
    fn tell(&mut self, story: &Story, out: &mut Output) -> Result<bool> {
        let over = story.summary.standing == Standing::Closed;
        if !out.json() {
            for card in story.cards.iter().skip(self.told) {
                told::tell(card, out)?;
            }
            let waits = story.waits.iter().filter(|wait| wait.closed_ms.is_none()).count();
            let state = match (story.summary.standing, waits) {
                (Standing::Suspended, 1) => "waiting for a tool".to_owned(),
                (Standing::Suspended, waits) => format!("waiting for {waits} tools"),
                (standing, _) => standing.as_str().to_owned(),
            };
            let progress = format!("step {}, {state} …", story.summary.steps);
            out.progress(if over { "" } else { &progress });
        }
        self.told = story.cards.len();
        Ok(over)
    }
}

/// What came out. The answer is yes if the turn ended well.
fn conclude(story: &Story, out: &mut Output) -> Result<Answer> {
    let turn = &story.summary;
    let well = turn.outcome == Some(guild_kernel::inbox::Outcome::Success);
    let deliverable = told::deliverable(story).map(told::content);
    if out.json() {
        let body = json!({ "turn": told::summary(turn), "deliverable": deliverable });
        out.object(well, body)?;
        return Ok(Answer::of(well));
    }
    out.remark(&format!(
        "{}: {} after {} steps, {} tokens, {}",
        turn.agent_turn_id,
        told::state(turn),
        turn.steps,
        turn.usage.prompt_tokens.saturating_add(turn.usage.completion_tokens),
        told::usd(turn.usage.cost_micro_usd),
    ));
    Ok(Answer::of(well))
}
