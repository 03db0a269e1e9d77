//! What is to be done about a dispute: pure.

use guild_protocol::env::UnixMs;
use guild_protocol::nostr::dispute::{By, Outcome, Reason, Side};

/// Where a dispute stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// One side has filed it.
    Open,
    /// The other has answered.
    Answered,
    /// It is decided.
    Decided,
    /// Nobody decided in time, so the default holds.
    Expired,
}

impl State {
    /// All of them.
    pub const ALL: [State; 4] = [State::Open, State::Answered, State::Decided, State::Expired];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Answered => "answered",
            State::Decided => "decided",
            State::Expired => "expired",
        }
    }

    /// The state of this word.
    pub fn parse(word: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether nothing can be said in it any more that counts.
    pub fn is_over(self) -> bool {
        matches!(self, State::Decided | State::Expired)
    }
}

/// What holds where nobody decides until the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fallback {
    /// What the verdict about the result says: as if nobody had disputed it.
    #[default]
    Stands,
    /// The provider is paid.
    Release,
    /// The buyer keeps the money.
    Withhold,
}

impl Fallback {
    /// All of them.
    pub const ALL: [Fallback; 3] = [Fallback::Stands, Fallback::Release, Fallback::Withhold];

    /// The word in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Fallback::Stands => "stands",
            Fallback::Release => "release",
            Fallback::Withhold => "withhold",
        }
    }

    /// What this word means.
    pub fn parse(word: &str) -> Option<Fallback> {
        Fallback::ALL.into_iter().find(|one| one.as_str() == word)
    }

    fn outcome(self, stands: Option<Outcome>) -> Option<Outcome> {
        match self {
            Fallback::Stands => stands,
            Fallback::Release => Some(Outcome::Release),
            Fallback::Withhold => Some(Outcome::Withhold),
        }
    }
}

/// What is decided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Whose view it is: only the buyer holds money, and only it can check the work again.
    pub side: Side,
    /// Where it stands.
    pub state: State,
    /// Why it was filed.
    pub reason: Reason,
    /// How the money stood when it was filed; nothing if it was still held.
    pub stood: Option<Outcome>,
    /// How the money stands now.
    pub stands: Option<Outcome>,
    /// Whether several do the work, and are compared: then that is the rule.
    pub is_part: bool,
    /// Whether doing the work again tells who is right. Of work that only a comparison judges nothing does.
    pub can_check: bool,
    /// How many disputes whoever filed it has lost in a row.
    pub lost_in_row: u64,
    /// So many are too many.
    pub lost_max: u64,
    /// What checking the work again has shown, if that was done.
    pub checked: Option<Outcome>,
    /// Until when somebody may decide.
    pub deadline_ms: UnixMs,
    /// What holds then.
    pub fallback: Fallback,
    /// The time.
    pub now_ms: UnixMs,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing: it is over.
    Over,
    /// Nothing until somebody says something, or the deadline.
    Wait,
    /// The work is to be checked again.
    Check,
    /// It ends.
    Close {
        /// As what.
        state: State,
        /// By what.
        by: By,
        /// What the money does; nothing if the verdict that is still to come says so.
        outcome: Option<Outcome>,
    },
}

/// What is to be done about a dispute, in this order:
///
/// | if | then |
/// |---|---|
/// | whoever filed it has lost too many in a row | it stays as it is, at once |
/// | the work is one part of several | the comparison stands, at once |
/// | checking tells who is right, and nothing is paid or withheld yet | the verdict does, at once |
/// | the same, of what is settled, if the work can be done again | that is done, and decides |
/// | we are the provider, and the buyer has settled since | that is the end of it |
/// | the deadline has passed | the fallback |
pub fn decide(facts: &Facts) -> Step {
    let Facts { side, stood, stands, checked, .. } = *facts;
    let close = |by, outcome| Step::Close { state: State::Decided, by, outcome };
    if facts.state.is_over() {
        return Step::Over;
    }
    if side != Side::Arbiter && facts.lost_in_row >= facts.lost_max {
        return close(By::Record, stands);
    }
    if side == Side::Buyer && facts.is_part {
        return close(By::Rule, stands);
    }
    let is_late = facts.now_ms >= facts.deadline_ms;
    if side == Side::Buyer && facts.reason.is_checkable() {
        match (stands, checked) {
            (None, _) => return close(By::Rule, None),
            (Some(_), Some(found)) => return close(By::Rule, Some(found)),
            (Some(_), None) if !is_late && facts.can_check => return Step::Check,
            (Some(_), None) => {}
        }
    }
    if side == Side::Provider && stood.is_none() && stands.is_some() {
        return close(By::Rule, stands);
    }
    if !is_late {
        return Step::Wait;
    }
    let outcome = match side {
        Side::Buyer => facts.fallback.outcome(stands),
        // Nothing came, and nobody can make the buyer pay.
        Side::Provider => Some(stands.unwrap_or(Outcome::Withhold)),
        Side::Arbiter => None,
    };
    Step::Close { state: State::Expired, by: By::Deadline, outcome }
}

/// Whether what somebody decides binds us, and as what: an arbiter that we have accepted; whoever gives in against its
/// own interest; and the buyer about money that it holds and we do not. Anything else is a claim.
///
/// `stands` is how the money stands now.
pub fn binds(
    ours: Side,
    (author, by): (Side, By),
    outcome: Outcome,
    (stands, arbiter_accepted): (Option<Outcome>, bool),
) -> Option<By> {
    if author == Side::Arbiter {
        return (arbiter_accepted || ours == Side::Arbiter).then_some(By::Arbiter);
    }
    if ours == Side::Arbiter {
        // The two have settled it between themselves only if it was given in.
        return (author.wish() != Some(outcome)).then_some(By::Concession);
    }
    if author.wish() != Some(outcome) {
        // The buyer pays for whatever reason it gives. A provider that takes nothing for its work gives in.
        return Some(match by {
            By::Rule | By::Deadline | By::Record if author == Side::Buyer => by,
            _ => By::Concession,
        });
    }
    let keeps_its_own = author == Side::Buyer && ours == Side::Provider;
    (keeps_its_own && stands != Some(Outcome::Release)).then_some(match by {
        By::Concession | By::Arbiter => By::Rule,
        by => by,
    })
}

#[cfg(test)]
mod tests;
