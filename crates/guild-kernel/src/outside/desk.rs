//! Where tools ask what they were called with, and report what came out.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{join, select};
use guild_bus::mail::{Letter, Mail};
use guild_bus::subject::{Pattern, Prefix};
use guild_protocol::env::{Clock, Shutdown};
use guild_store::{Rx, Store};
use serde_json::{Map, Value, json};

use super::header::{Caller, of_kernel};
use super::report::{self, Wish};
use super::secret::CallKey;
use crate::card;
use crate::turn::wait::{self, Wait, WaitStatus};
use crate::turn::{Report, Reported, SET_MAX, report_all};
use crate::worker::{OptionsOf, options_of};
use crate::{CardId, Error, Result, ToolCallId, code};

/// Those that take the letters of tools share them.
const GROUP: &str = "kernel";

/// How letters are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeskOptions {
    /// How many are taken at once.
    pub batch_max: usize,
    /// How large they are together, at most, unless it is one.
    pub batch_max_bytes: usize,
    /// The largest answer.
    pub answer_max_bytes: usize,
}

impl Default for DeskOptions {
    fn default() -> DeskOptions {
        DeskOptions {
            batch_max: 256,
            batch_max_bytes: 8 * 1024 * 1024,
            // The headers need some room too.
            answer_max_bytes: 1024 * 1024 - 16 * 1024,
        }
    }
}

/// Takes the letters of tools. Any number of processes may have one.
pub struct Desk {
    options: DeskOptions,
    store: Store,
    mail: Arc<dyn Mail>,
    prefix: Prefix,
    key: CallKey,
    clock: Arc<dyn Clock>,
    environment: BTreeMap<String, String>,
}

impl Desk {
    /// A desk for the tools of this store.
    pub fn new(
        options: DeskOptions,
        store: Store,
        mail: Arc<dyn Mail>,
        prefix: Prefix,
        key: CallKey,
        clock: Arc<dyn Clock>,
    ) -> Desk {
        Desk { options, store, mail, prefix, key, clock, environment: BTreeMap::new() }
    }

    /// What `envs` in the options of a tool may name. It is told to the tool that asks, and written down nowhere.
    pub fn with_environment(self, environment: BTreeMap<String, String>) -> Desk {
        Desk { environment, ..self }
    }

    /// Takes letters until the shutdown. One that was taken and not answered then is sent again by its tool.
    pub async fn run(self, shutdown: Shutdown) -> Result<()> {
        let pattern = Pattern::everywhere(&self.prefix, "cmd.sys.kernel.*")?;
        let mut mailbox = self.mail.subscribe(pattern, Some(GROUP));
        let serve = async {
            loop {
                let first = mailbox.take().await;
                let mut bytes = first.len_bytes();
                let mut letters = vec![first];
                while letters.len() < self.options.batch_max.clamp(1, SET_MAX)
                    && bytes < self.options.batch_max_bytes
                    && let Some(letter) = mailbox.try_take()
                {
                    bytes = bytes.saturating_add(letter.len_bytes());
                    letters.push(letter);
                }
                self.take_all(letters).await;
            }
        };
        select(pin!(serve), shutdown.triggered()).await;
        Ok(())
    }

    async fn take_all(&self, letters: Vec<Letter>) {
        let (mut reports, mut calls) = (Vec::new(), Vec::new());
        for letter in letters {
            match report::read(&letter, &self.prefix, &self.key) {
                Ok(Wish::Report(report)) => reports.push((letter, *report)),
                Ok(Wish::Call(caller)) => calls.push((letter, caller)),
                Err(error) => {
                    tracing::debug!(%error, code = error.code().name, "a letter of a tool was refused");
                    self.answer(&letter, report::refusal(&error));
                }
            }
        }
        join(self.take_reports(reports), self.tell_calls(calls)).await;
    }

    async fn take_reports(&self, asked: Vec<(Letter, Report)>) {
        let (letters, reports): (Vec<Letter>, Vec<Report>) = asked.into_iter().unzip();
        if reports.is_empty() {
            return;
        }
        let taken = match self.report_all(reports.clone()).await {
            Ok(taken) => taken,
            // Whatever one of them has done to all of them: each on its own.
            Err(_) if reports.len() > 1 => {
                let mut taken = Vec::with_capacity(reports.len());
                for report in reports {
                    taken.push(self.report_one(report).await);
                }
                taken
            }
            Err(error) => vec![Err(error)],
        };
        for (letter, taken) in letters.iter().zip(&taken) {
            self.answer(letter, report::answer(taken));
        }
    }

    async fn report_all(&self, reports: Vec<Report>) -> Result<Vec<Result<Reported>>> {
        let clock = self.clock.clone();
        self.store.write(move |tx| report_all(tx, &reports, clock.now_ms())).await
    }

    async fn report_one(&self, report: Report) -> Result<Reported> {
        let taken = self.report_all(vec![report]).await?;
        let none = || Error::refused(&code::UNKNOWN_CALL, "nothing was reported".to_owned());
        taken.into_iter().next().unwrap_or_else(|| Err(none()))
    }

    async fn tell_calls(&self, asked: Vec<(Letter, Caller)>) {
        if asked.is_empty() {
            return;
        }
        let ids = asked.iter().map(|(_, caller)| caller.tool_call_id.clone()).collect();
        let found = self.find(ids).await;
        for (letter, caller) in &asked {
            let answer = match &found {
                Ok(found) => self.told(found, caller),
                // What cannot be read of one call is no answer to the others: each on its own.
                Err(_) if asked.len() > 1 => {
                    let found = self.find(vec![caller.tool_call_id.clone()]).await;
                    found.and_then(|found| self.told(&found, caller))
                }
                Err(error) => Err(error.clone()),
            };
            self.answer(letter, answer.unwrap_or_else(|error| report::refusal(&error)));
        }
    }

    async fn find(&self, ids: Vec<ToolCallId>) -> Result<Calls> {
        self.store.read(move |rx| find_calls(rx, &ids)).await
    }

    /// What a tool is told of a call that somebody waits for.
    fn told(&self, found: &Calls, caller: &Caller) -> Result<Value> {
        let call = found.waits.get(&caller.tool_call_id);
        let Some((wait, Some(content))) = call.filter(|(wait, _)| wait.key == caller.key()) else {
            let message = format!("no turn waits for {}", caller.tool_call_id);
            return Err(Error::refused(&code::UNKNOWN_CALL, message));
        };
        if wait.status != WaitStatus::Waiting {
            let message = format!("{} is {}", caller.tool_call_id, wait.status);
            return Err(Error::refused(&code::ANSWERED, message));
        }
        let bad = |what: &str, why: &dyn std::fmt::Display| {
            Error::refused(&code::MALFORMED_ROW, format!("{what}: {why}"))
        };
        let mut content: Value =
            serde_json::from_str(content).map_err(|error| bad("the card of a call", &error))?;
        let mut arguments = content.get_mut("arguments").map(Value::take).unwrap_or_default();
        let name = (wait.key.project_id.to_string(), wait.tool_name.clone());
        let options = found.options.get(&name).map(|options| options.as_ref()).transpose();
        if let Some(options) = options.map_err(|why| bad(&wait.tool_name, why))? {
            let mut secrets = Map::new();
            let added = options.add_environment(&mut secrets, &self.environment);
            // Another process may have it: the tool asks again.
            added.map_err(|name| {
                Error::refused(&code::NO_ENVIRONMENT, format!("this node has no {name}"))
            })?;
            if let Some(arguments) = arguments.as_object_mut() {
                arguments.extend(secrets);
            }
        }
        Ok(json!({
            "status": "waiting",
            "tool_name": wait.tool_name,
            "arguments": arguments,
            "after_execution": wait.after_execution.as_str(),
            "deadline_ms": wait.deadline_ms,
        }))
    }

    /// Answers, if somebody waits for that.
    fn answer(&self, letter: &Letter, payload: Value) {
        let Some(reply_to) = letter.reply_to.clone() else { return };
        let answer = |payload: &Value| -> Result<Letter> {
            let headers = of_kernel("kernel.answer", self.clock.now_ms())?;
            Ok(Letter::json(reply_to.clone(), headers, payload)?)
        };
        let fits = |letter: &Letter| letter.len_bytes() <= self.options.answer_max_bytes;
        let made = answer(&payload).and_then(|letter| match fits(&letter) {
            true => Ok(letter),
            false => Err(Error::refused(
                &code::TOO_LARGE,
                format!("the answer has {} bytes", letter.len_bytes()),
            )),
        });
        let made = made.or_else(|error| answer(&report::refusal(&error)));
        match made {
            Ok(letter) => self.mail.cast(letter),
            Err(error) => tracing::warn!(%error, "a tool could not be answered"),
        }
    }
}

/// What is known of calls.
struct Calls {
    /// Each with what its card says.
    waits: BTreeMap<ToolCallId, (Wait, Option<String>)>,
    options: OptionsOf,
}

/// These calls, what their cards say, and what the rows of their tools do.
fn find_calls(rx: &mut Rx<'_>, ids: &[ToolCallId]) -> Result<Calls> {
    // Two tools may ask about one call at the same moment.
    let ids: BTreeSet<&ToolCallId> = ids.iter().collect();
    let waits = wait::find_all(rx, &ids.into_iter().collect::<Vec<_>>())?;
    let cards: Vec<CardId> = waits.iter().map(Wait::call_card_id).collect();
    let mut contents: BTreeMap<CardId, String> = BTreeMap::new();
    for card in card::find_all(rx, &cards.iter().collect::<Vec<_>>())? {
        contents.insert(card.card_id, card.content);
    }
    let call = |(wait, card_id): (Wait, CardId)| {
        (wait.tool_call_id.clone(), (wait, contents.remove(&card_id)))
    };
    let name = |wait: &Wait| (wait.key.project_id.to_string(), wait.tool_name.clone());
    let names: BTreeSet<(String, String)> = waits.iter().map(name).collect();
    let names = names.iter().map(|(project, tool)| (project.as_str(), tool.as_str()));
    let options = options_of(rx, &names.collect())?;
    Ok(Calls { waits: waits.into_iter().zip(cards).map(call).collect(), options })
}
