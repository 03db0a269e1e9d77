//! A turn while it runs, told as it goes.

use guild_kernel::AgentTurnId;
use guild_kernel::card::{Card, CardType};
use guild_kernel::story::{Standing, Story};
use guild_protocol::env::{Clock, Shutdown};
use guild_roles::agents::Agents;
use guild_roles::live::Heard;
use serde_json::json;
use tokio::runtime::Runtime;

use super::ears::Ears;
use super::speech::{Show, Speech};
use super::{lost, told};
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::node;
use crate::output::{Answer, Output};
use crate::real::{SystemClock, runtime};

/// How often what is being said is shown, and after how many of these looks the turn itself is read.
const HEAR_MS: i64 = 40;
const HEARS_PER_LOOK: usize = 5;

/// How a turn is watched.
#[derive(Default)]
pub(in crate::command) struct View {
    /// Who hears what its model says.
    pub(in crate::command) ears: Option<Ears>,
    /// Whether a program wants to hear what happens before it gets the answer.
    pub(in crate::command) events: bool,
}

/// Tells what happens to a turn, until it is over or whoever watches has seen enough. It goes on at the node.
pub(in crate::command) fn until_over(
    loaded: &Loaded,
    id: &AgentTurnId,
    view: View,
    interrupted: &Shutdown,
    out: &mut Output,
) -> Result<Answer> {
    let runtime = runtime()?;
    let service = node::open_read_only(loaded)?;
    let agents = Agents::new(service.handle(), std::sync::Arc::new(SystemClock));
    let answer = Watching::new(id, agents, view).follow(&runtime, interrupted, out);
    service.close();
    answer
}

/// What was told of a turn.
struct Watching {
    id: AgentTurnId,
    agents: Agents,
    view: View,
    /// How many of its cards.
    told: usize,
    /// What is being said, and whether its line is still open.
    speech: Speech,
    is_speaking: bool,
    /// The step of the newest thought that was told.
    told_step: Option<String>,
}

impl Watching {
    fn new(id: &AgentTurnId, agents: Agents, view: View) -> Watching {
        Watching {
            id: id.clone(),
            agents,
            view,
            told: 0,
            speech: Speech::default(),
            is_speaking: false,
            told_step: None,
        }
    }

    fn follow(
        mut self,
        runtime: &Runtime,
        interrupted: &Shutdown,
        out: &mut Output,
    ) -> Result<Answer> {
        loop {
            self.hear(out)?;
            let story = runtime.block_on(self.look())?;
            if self.tell(&story, out)? {
                return conclude(&story, out);
            }
            for _ in 0..HEARS_PER_LOOK {
                if interrupted.is_triggered() {
                    self.hang_up(out)?;
                    out.progress("");
                    let message = format!("{} is not over yet", self.id);
                    let help = format!("It goes on at the node: `guild turn watch {}`.", self.id);
                    return Err(Error::new(&code::TURN_GOES_ON, message).help(help));
                }
                runtime.block_on(SystemClock.sleep(HEAR_MS));
                self.hear(out)?;
            }
        }
    }

    /// The turn as it is now.
    async fn look(&self) -> Result<Story> {
        self.agents.turn(self.id.clone()).await?.ok_or_else(|| lost(&self.id))
    }

    /// Shows what the model has said meanwhile.
    fn hear(&mut self, out: &mut Output) -> Result<()> {
        let mut heard_any = false;
        while let Some(heard) = self.view.ears.as_ref().and_then(Ears::hear) {
            let is_told = self.told_step.as_deref() == Some(heard.step_id.as_str());
            if heard.agent_turn_id == self.id.as_str() && !is_told {
                self.show(&heard, out)?;
                heard_any = true;
            }
        }
        if heard_any { out.flush() } else { Ok(()) }
    }

    fn show(&mut self, heard: &Heard, out: &mut Output) -> Result<()> {
        if out.json() {
            return match self.view.events {
                true => out.document(&json!({ "event": "chunk", "chunk": heard })),
                false => Ok(()),
            };
        }
        match self.speech.hear(heard) {
            Show::Nothing => Ok(()),
            Show::First(text) => {
                self.hang_up(out)?;
                self.is_speaking = true;
                let begin = told::begin(SystemClock.now_ms(), CardType::Thought);
                out.flow(&format!("{begin}{text}"), told::COLUMN)
            }
            Show::More(text) => out.flow(&text, told::COLUMN),
        }
    }

    /// Ends the line on which the model speaks.
    fn hang_up(&mut self, out: &mut Output) -> Result<()> {
        if std::mem::take(&mut self.is_speaking) { out.line("") } else { Ok(()) }
    }

    /// Tells what is new; whether it is over.
    fn tell(&mut self, story: &Story, out: &mut Output) -> Result<bool> {
        let over = story.summary.standing == Standing::Closed;
        for card in story.cards.iter().skip(self.told) {
            self.tell_card(card, out)?;
        }
        self.told = story.cards.len();
        if !out.json() && !self.is_speaking {
            let waits = story.waits.iter().filter(|wait| wait.closed_ms.is_none()).count();
            let state = match (story.summary.standing, waits) {
                (Standing::Suspended, 1) => "waiting for a tool".to_owned(),
                (Standing::Suspended, waits) => format!("waiting for {waits} tools"),
                (standing, _) => standing.as_str().to_owned(),
            };
            let progress = format!("step {}, {state} …", story.summary.steps);
            out.progress(if over { "" } else { &progress });
        }
        Ok(over)
    }

    fn tell_card(&mut self, card: &Card, out: &mut Output) -> Result<()> {
        if out.json() {
            return match self.view.events {
                true => {
                    out.document(&json!({ "event": "card", "card": told::card(card) }))?;
                    out.flush()
                }
                false => Ok(()),
            };
        }
        if card.card_type == CardType::Thought
            && let Some(step_id) = card.step_id.as_ref().map(ToString::to_string)
        {
            let begun = self.is_speaking && self.speech.has_begun(&step_id);
            let rest = self.speech.rest_of(&told::words(card)).filter(|_| begun);
            self.told_step = Some(step_id);
            if let Some(rest) = rest {
                out.flow(&rest, told::COLUMN)?;
                return self.hang_up(out);
            }
        }
        self.hang_up(out)?;
        told::tell(card, out)
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
        "{}: {} after {}, {} tokens, {}",
        turn.agent_turn_id,
        told::state(turn),
        told::steps(turn.steps),
        turn.usage.prompt_tokens.saturating_add(turn.usage.completion_tokens),
        told::usd(turn.usage.cost_micro_usd),
    ));
    Ok(Answer::of(well))
}
