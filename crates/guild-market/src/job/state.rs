//! The pure state machine of a job.

use crate::error::code;
use crate::{Error, Result};

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// We have promised to do it.
    Accepted,
    /// The result is out.
    Delivered,
    /// The buyer owes us at least the price.
    Paid,
    /// The buyer owes us less than the price.
    Underpaid,
    /// The buyer has not accepted the result.
    Withheld,
    /// We could not do it.
    Failed,
    /// The buyer took it back before it was done.
    Cancelled,
    /// We never took it.
    Refused,
}

/// What can happen to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// The result is handed in.
    Deliver,
    /// It cannot be done.
    Fail,
    /// The buyer takes it back.
    Cancel,
    /// A receipt for the price comes.
    Pay,
    /// A receipt for less comes.
    PayLess,
    /// A receipt comes that says that nothing is paid.
    Withhold,
}

impl State {
    /// All of them.
    pub const ALL: [State; 8] = [
        State::Accepted,
        State::Delivered,
        State::Paid,
        State::Underpaid,
        State::Withheld,
        State::Failed,
        State::Cancelled,
        State::Refused,
    ];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Accepted => "accepted",
            State::Delivered => "delivered",
            State::Paid => "paid",
            State::Underpaid => "underpaid",
            State::Withheld => "withheld",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
            State::Refused => "refused",
        }
    }

    /// The state of this word.
    pub fn parse(word: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Where it stands after this has happened, if it can.
    pub fn after(self, act: Act) -> Result<State> {
        match (self, act) {
            (State::Accepted, Act::Deliver) => Ok(State::Delivered),
            (State::Accepted, Act::Fail) => Ok(State::Failed),
            (State::Accepted, Act::Cancel) => Ok(State::Cancelled),
            (State::Delivered, Act::Pay) => Ok(State::Paid),
            (State::Delivered, Act::PayLess) => Ok(State::Underpaid),
            (State::Delivered, Act::Withhold) => Ok(State::Withheld),
            (state, _) => {
                let message = format!("the job is {}", state.as_str());
                Err(Error::refused(&code::JOB_CLOSED, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_act_leads_where_the_table_says() {
        let acts = [Act::Deliver, Act::Fail, Act::Cancel, Act::Pay, Act::PayLess, Act::Withhold];
        let row = |state: State| {
            let to = acts.map(|act| state.after(act).map_or("-", State::as_str));
            to.join(" ")
        };
        let table: Vec<String> = State::ALL.map(row).into();
        assert_eq!(table[0], "delivered failed cancelled - - -");
        assert_eq!(table[1], "- - - paid underpaid withheld");
        for closed in &table[2..] {
            assert_eq!(closed, "- - - - - -");
        }
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(state));
        }
    }
}
