//! What happened to a request, from the rows that know: a pure function.

use guild_market::job::{self, TakenJob};
use guild_market::order::{self, Order};
use guild_market::receipts::{Direction, Kept};
use guild_market::routing::chosen::Why;
use guild_network::index;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::kind;
use guild_protocol::receipt::Status;
use serde_json::Value;

use super::people::People;
use super::view::{Step, StepKind, Tone};
use super::words::{SAID_MAX_CHARS, clipped, msat};

/// An answer, and the words in it that everybody can read.
pub(super) struct Heard {
    pub(super) answer: index::Answer,
    pub(super) words: Option<String>,
}

/// All that is known of a request.
pub(super) struct Story<'a> {
    /// Whether what only buyer and provider know may be told: their words, and what the verdict found.
    pub(super) may_tell: bool,
    pub(super) row: &'a index::Request,
    pub(super) schema_id: Option<&'a str>,
    pub(super) heard: &'a [Heard],
    pub(super) order: Option<&'a Order>,
    /// Why it went to whom it went.
    pub(super) why: Option<&'a Why>,
    pub(super) standings: &'a [order::Answer],
    pub(super) job: Option<&'a TakenJob>,
    pub(super) receipts: &'a [Kept],
    pub(super) people: &'a People,
}

impl Story<'_> {
    /// What happened, oldest first. Things of one moment stand in the order in which one leads to the other.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = vec![self.asked()];
        if let Some(order) = self.order {
            steps.extend(self.of_order(order));
        }
        if let (Some(order), Some(why), true) = (self.order, self.why, self.may_tell) {
            steps.push(self.chosen(order, why));
        }
        steps.extend(self.heard.iter().map(|heard| self.answered(heard)));
        if let Some(job) = self.job {
            steps.extend(self.of_job(job));
        }
        steps.extend(self.receipts.iter().map(|kept| self.signed(kept)));
        steps.sort_by_key(|step| (step.at_ms, step.kind));
        steps
    }

    fn step(
        &self,
        kind: StepKind,
        tone: Tone,
        at_ms: i64,
        by: Option<&PublicKey>,
        text: String,
    ) -> Step {
        let author = by.map(|key| self.people.party(key));
        // Words of strangers are a part of it.
        let text = clipped(&text, SAID_MAX_CHARS);
        Step { kind, tone, at_ms, author, text, event_id: None }
    }

    fn asked(&self) -> Step {
        let what = match self.schema_id {
            Some(schema_id) => format!("Work of {schema_id}"),
            None if self.row.is_private => "Private work".to_owned(),
            None => format!("Work of kind {}", self.row.kind),
        };
        let most =
            self.row.bid.map(|bid| format!(", for at most {}", msat(bid.0))).unwrap_or_default();
        let hidden = if self.row.is_private { " Its input is encrypted." } else { "" };
        let text = format!("{what} is wanted{most}.{hidden}");
        let buyer = Some(&self.row.buyer);
        let step = self.step(StepKind::Request, Tone::Plain, self.row.received_ms, buyer, text);
        Step { event_id: Some(self.row.request_id.hex()), ..step }
    }

    fn answered(&self, heard: &Heard) -> Step {
        let Heard { answer, words } = heard;
        let asked = self.row.providers.is_empty() || self.row.providers.contains(&answer.author);
        let (kind, tone, text) = match answer.kind {
            kind::FEEDBACK => {
                let (tone, text) = feedback(answer, words.as_deref());
                (StepKind::Feedback, tone, text)
            }
            _ => {
                let (tone, text) = self.result(answer);
                (StepKind::Result, tone, text)
            }
        };
        let (tone, text) = match asked {
            true => (tone, text),
            false => (
                Tone::Plain,
                format!("From somebody who was not asked, so it does not count. {text}"),
            ),
        };
        let step = self.step(kind, tone, answer.received_ms, Some(&answer.author), text);
        Step { event_id: Some(answer.event_id.hex()), ..step }
    }

    fn result(&self, answer: &index::Answer) -> (Tone, String) {
        let kept = self.standings.iter().find(|kept| kept.event_id == answer.event_id);
        match kept.map(|kept| kept.standing) {
            Some(order::Standing::Late) => {
                (Tone::Plain, "A result that came too late. It changes nothing.".to_owned())
            }
            Some(order::Standing::Repeated) => {
                (Tone::Plain, "The same result once more. It changes nothing.".to_owned())
            }
            Some(order::Standing::Equivocation) => (
                Tone::Bad,
                "Another result than before, signed by the same key. It changes nothing, and is kept as evidence."
                    .to_owned(),
            ),
            Some(order::Standing::Rejected) => (
                Tone::Bad,
                "A result that is not what was ordered. Others may still do it.".to_owned(),
            ),
            Some(order::Standing::Delivered) | None => (Tone::Plain, format!("The result is here{}.", price(answer))),
        }
    }

    /// Whom it went to, and why. What the matrix says of others is not told with it: `--explain` does.
    fn chosen(&self, order: &Order, why: &Why) -> Step {
        let how = match why.words.lines().nth(1).map(str::trim) {
            Some(how) => format!("Chosen by {}: {how}.", why.how),
            None => format!("Chosen by {}.", why.how),
        };
        let provider = order.provider.as_ref();
        self.step(StepKind::Choice, Tone::Plain, order.posted_ms, provider, how)
    }

    fn of_order(&self, order: &Order) -> Vec<Step> {
        let mut steps = Vec::new();
        let budget = msat(order.budget.0);
        if order.budget.0 > 0 {
            let text = format!("The budget of {budget} is set aside for it.");
            steps.push(self.step(StepKind::Hold, Tone::Plain, order.posted_ms, None, text));
        }
        let changed_ms = order.changed_ms;
        let words = order.words.as_deref().filter(|_| self.may_tell);
        let words = words.map(|words| format!(", saying “{words}”")).unwrap_or_default();
        let back =
            if order.budget.0 > 0 { format!(" The {budget} went back.") } else { String::new() };
        let end = |text: String| self.step(StepKind::End, Tone::Bad, changed_ms, None, text);
        match order.state {
            order::State::Posted | order::State::Delivered => {}
            order::State::Released | order::State::Withheld => {
                let passed = order.state == order::State::Released;
                let (tone, text) = match self.may_tell {
                    true => verdict(order.verdict.as_deref(), passed),
                    false => private_verdict(passed),
                };
                steps.push(self.step(StepKind::Verdict, tone, changed_ms, None, text));
                let text = settled(order);
                steps.push(self.step(StepKind::Payment, tone, changed_ms, None, text));
            }
            order::State::Expired => steps.push(end(format!("Nothing came in time.{back}"))),
            order::State::Cancelled => steps.push(end(format!("Its buyer took it back.{back}"))),
            order::State::Failed => {
                steps.push(end(format!("The provider gave it up{words}.{back}")));
            }
        }
        steps
    }

    fn of_job(&self, job: &TakenJob) -> Option<Step> {
        let words = job.words.as_deref().filter(|_| self.may_tell);
        let words = words.map(|words| format!(": {words}")).unwrap_or_default();
        let (agreed, owed) =
            (msat(job.price.0), job.paid.map(|paid| msat(paid.0)).unwrap_or_default());
        let (kind, tone, text) = match job.state {
            job::State::Accepted | job::State::Delivered => return None,
            job::State::Paid => (
                StepKind::Payment,
                Tone::Good,
                format!("The buyer owes this node {owed} for it, as agreed."),
            ),
            job::State::Underpaid => (
                StepKind::Payment,
                Tone::Bad,
                format!(
                    "The buyer owes this node {owed} for it, less than the {agreed} that were agreed."
                ),
            ),
            job::State::Withheld => (
                StepKind::Payment,
                Tone::Bad,
                "The buyer did not accept the result. Nothing is owed.".to_owned(),
            ),
            job::State::Failed => {
                (StepKind::End, Tone::Bad, format!("This node could not do it{words}."))
            }
            job::State::Refused => {
                (StepKind::End, Tone::Bad, format!("This node does not take it{words}."))
            }
            job::State::Cancelled => (
                StepKind::End,
                Tone::Plain,
                "The buyer took it back before it was done.".to_owned(),
            ),
        };
        Some(self.step(kind, tone, job.changed_ms, None, text))
    }

    fn signed(&self, kept: &Kept) -> Step {
        let text = match kept.direction {
            Direction::Given => "Signed by the buyer, and sent to the provider.",
            Direction::Taken => "Signed by the buyer. It came, and every check of it passed.",
        };
        let tone = if kept.status == Status::Withheld { Tone::Plain } else { Tone::Good };
        self.step(StepKind::Receipt, tone, kept.at_ms, Some(&kept.buyer), text.to_owned())
    }
}

fn price(answer: &index::Answer) -> String {
    answer.price.map(|price| format!(", for {}", msat(price.0))).unwrap_or_default()
}

fn feedback(answer: &index::Answer, words: Option<&str>) -> (Tone, String) {
    let price = price(answer);
    let (tone, says) = match answer.status.as_deref() {
        Some("processing") => (Tone::Plain, format!("The work has begun{price}")),
        Some("partial") => (Tone::Plain, "A part is done".to_owned()),
        Some("success") => (Tone::Plain, "The work is done, it says".to_owned()),
        Some("error") => (Tone::Bad, "It does not do it".to_owned()),
        Some("payment-required") => (Tone::Plain, format!("It wants to be paid first{price}")),
        Some(other) => (Tone::Plain, format!("It says {other}")),
        None => return (Tone::Plain, "Encrypted words, for the buyer alone.".to_owned()),
    };
    match words {
        Some(words) => (tone, format!("{says}: {words}")),
        None => (tone, format!("{says}.")),
    }
}

/// A verdict's document in words. It lists checks by their names: what each means is known here.
fn verdict(document: Option<&str>, passed: bool) -> (Tone, String) {
    let document: Value =
        document.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let checks = document["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let likeness = match document["score"].as_f64() {
        Some(score) if score < 1.0 => format!(" (likeness {score})"),
        _ => String::new(),
    };
    if passed {
        let recomputed = checks.iter().any(|check| check["name"] == "recomputed");
        let why = match (recomputed, likeness.is_empty()) {
            (true, true) => "it is exactly what this node computed itself",
            (true, false) => "it is like what this node computed itself",
            (false, _) => "every check passed",
        };
        return (Tone::Good, format!("Accepted: {why}{likeness}."));
    }
    let failed = checks.iter().find(|check| check["ok"].as_bool() == Some(false));
    let why = match failed.and_then(|check| check["name"].as_str()).unwrap_or_default() {
        "output" => "it is not what its schema says",
        "provenance" => "it says of itself what is not so",
        "method" => "nobody here can check such work",
        "model" => "its model cannot be computed here",
        "shape" => "it has not as many vectors as texts, or of another length",
        "recomputed" => "it is not what this node computed itself",
        _ => "a check failed",
    };
    (Tone::Bad, format!("Not accepted: {why}{likeness}."))
}

/// What everybody may know of a verdict. Which checks there were would tell what the work was.
fn private_verdict(passed: bool) -> (Tone, String) {
    match passed {
        true => (Tone::Good, "Accepted. What was checked is private.".to_owned()),
        false => (Tone::Bad, "Not accepted. The reason is private.".to_owned()),
    }
}

fn settled(order: &Order) -> String {
    let budget = order.budget.0;
    match (order.state, order.paid.map(|paid| paid.0)) {
        (order::State::Released, Some(paid)) if paid == budget && paid > 0 => {
            format!("{} are paid.", msat(paid))
        }
        (order::State::Released, Some(paid)) if paid > 0 => {
            format!(
                "{} are paid. {} of the budget went back.",
                msat(paid),
                msat(budget.saturating_sub(paid))
            )
        }
        (order::State::Released, _) => "It was free: nothing is owed.".to_owned(),
        _ if budget > 0 => {
            format!("Nothing is paid. The {} that were set aside went back.", msat(budget))
        }
        _ => "Nothing is paid.".to_owned(),
    }
}
