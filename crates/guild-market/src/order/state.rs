//! The pure state machine of an order.

use crate::error::code;
use crate::{Error, Result};

/// Where an order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The request is out and the budget held.
    Posted,
    /// A result is there and waits for its verdict.
    Delivered,
    /// The result was accepted and paid, if it had a price.
    Released,
    /// The result was not accepted; the budget went back.
    Withheld,
    /// Nothing came in time; the budget went back.
    Expired,
    /// We gave it up; the budget went back.
    Cancelled,
    /// The provider says that it failed, or does not do it; the budget went back.
    Failed,
}

/// What can happen to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A result comes in time.
    Deliver,
    /// The verdict accepts it.
    Release,
    /// The verdict does not.
    Withhold,
    /// The deadline passes.
    Expire,
    /// We give it up.
    Cancel,
    /// The provider gives it up.
    Fail,
}

impl State {
    /// All of them.
    pub const ALL: [State; 7] = [
        State::Posted,
        State::Delivered,
        State::Released,
        State::Withheld,
        State::Expired,
        State::Cancelled,
        State::Failed,
    ];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Posted => "posted",
            State::Delivered => "delivered",
            State::Released => "released",
            State::Withheld => "withheld",
            State::Expired => "expired",
            State::Cancelled => "cancelled",
            State::Failed => "failed",
        }
    }

    /// The state of this word.
    pub fn parse(word: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether nothing can happen to it any more.
    pub fn is_closed(self) -> bool {
        !matches!(self, State::Posted | State::Delivered)
    }

    /// Where it stands after this has happened, if it can.
    pub fn after(self, act: Act) -> Result<State> {
        match (self, act) {
            (State::Posted, Act::Deliver) => Ok(State::Delivered),
            (State::Posted, Act::Expire) => Ok(State::Expired),
            (State::Posted, Act::Cancel) => Ok(State::Cancelled),
            (State::Posted, Act::Fail) => Ok(State::Failed),
            (State::Delivered, Act::Release) => Ok(State::Released),
            (State::Delivered, Act::Withhold) => Ok(State::Withheld),
            (state, _) => {
                let message = format!("the order is {}", state.as_str());
                Err(Error::refused(&code::ORDER_CLOSED, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_act_leads_where_the_table_says() {
        use Act::{Cancel, Deliver, Expire, Fail, Release, Withhold};
        let acts = [Deliver, Release, Withhold, Expire, Cancel, Fail];
        let row = |state: State| {
            let to = acts.map(|act| state.after(act).map_or("-", State::as_str));
            to.join(" ")
        };
        let table: Vec<String> = State::ALL.map(row).into();
        assert_eq!(table[0], "delivered - - expired cancelled failed");
        assert_eq!(table[1], "- released withheld - - -");
        for closed in &table[2..] {
            assert_eq!(closed, "- - - - - -");
        }
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(state));
            let stuck = acts.into_iter().all(|act| state.after(act).is_err());
            assert_eq!(stuck, state.is_closed(), "{state:?}");
        }
    }
}
