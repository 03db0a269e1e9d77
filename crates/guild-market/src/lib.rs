//! What buyers and providers owe each other: orders and jobs, verdicts, settlement.
//!
//! | module | what it settles |
//! |---|---|
//! | [`claim`] | which of several processes works on what |
//! | [`discovery`] | who is there: the registry of providers, and who of them can do some work |
//! | [`verify`] | whether a result is what was ordered: the verdict, as a document with a hash |
//! | [`bid`] | what is offered for some work, and why so much |
//! | [`budget`] | how much may be spent on a kind of work: envelopes by day and month |
//! | [`order`] | what we bought: from the budget that is held to the result |
//! | [`delegation`] | one piece of work that several do: votes, the decision, who is paid and why |
//! | [`dispute`] | who is right about a result, and what the money does meanwhile and then |
//! | [`settle`] | a verdict becomes money: released or withheld, a sealed replay, a signed receipt |
//! | [`job`] | what we were hired for: which requests we take, what became of them |
//! | [`judge`] | whether a delivered program does what a suite of tests asks for |
//! | [`benchmark`] | what providers are tested by |
//! | [`meeting`] | getting to know a provider: asked, tried, decided about |
//! | [`health`] | how partners come and go: signals, stages, cooldowns; hidden jobs whose answer is known |
//! | [`operator`] | which keys belong together, as far as that shows |
//! | [`evaluation`] | what a benchmark shows of a provider: score, standing, first trust |
//! | [`review`] | what we say of providers in public, and what others say is worth |
//! | [`routing`] | who is hired for which work, and why: the matrix, its log and its recovery |
//! | [`dossier`] | what somebody who has nothing but files can check of one piece of work |
//! | [`overview`] | what readers need to know of many at once |
//! | [`sandbox_run`] | commands on a tree of files: what is run, how, and what came of it |
//! | [`receipts`] | receipts given and taken, and under which keys we deal |
//!
//! Every change of state is one function that is called inside a transaction, together with whatever must be published
//! because of it: a crash finds either all of it or nothing. Work is found by reading rows; the bell [`TOPIC`] only
//! hints at it. The money is in millisatoshi.
// Whoever computes with money must get an error, never a panic or a wrapped number.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing, clippy::panic)]

pub mod benchmark;
pub mod bid;
pub mod budget;
pub mod claim;
pub mod delegation;
pub mod discovery;
pub mod dispute;
pub mod dossier;
mod error;
pub mod evaluation;
mod event;
pub mod health;
pub mod job;
pub mod judge;
pub mod meeting;
pub mod operator;
pub mod order;
pub mod overview;
pub mod receipts;
pub mod reference;
pub mod review;
pub mod routing;
mod row;
pub mod sandbox_run;
pub mod settle;
pub mod verify;

pub use error::{Error, Result, code};
pub use event::TOPIC;

use guild_store::{Migration, Sql};

/// The tables of this crate.
pub fn migrations() -> Vec<Migration> {
    let market = Sql {
        lite: include_str!("../migrations/sqlite/0001_market.sql"),
        pg: include_str!("../migrations/postgres/0001_market.sql"),
    };
    let totals = Sql {
        lite: include_str!("../migrations/sqlite/0002_totals.sql"),
        pg: include_str!("../migrations/postgres/0002_totals.sql"),
    };
    let claims = Sql {
        lite: include_str!("../migrations/sqlite/0003_claims.sql"),
        pg: include_str!("../migrations/postgres/0003_claims.sql"),
    };
    let routing = Sql {
        lite: include_str!("../migrations/sqlite/0004_routing.sql"),
        pg: include_str!("../migrations/postgres/0004_routing.sql"),
    };
    let meetings = Sql {
        lite: include_str!("../migrations/sqlite/0006_meetings.sql"),
        pg: include_str!("../migrations/postgres/0006_meetings.sql"),
    };
    let choices = Sql {
        lite: include_str!("../migrations/sqlite/0007_choices.sql"),
        pg: include_str!("../migrations/postgres/0007_choices.sql"),
    };
    let delegation = Sql {
        lite: include_str!("../migrations/sqlite/0008_delegation.sql"),
        pg: include_str!("../migrations/postgres/0008_delegation.sql"),
    };
    let reviews = Sql {
        lite: include_str!("../migrations/sqlite/0011_reviews.sql"),
        pg: include_str!("../migrations/postgres/0011_reviews.sql"),
    };
    vec![
        Migration { area: "market", number: 1, name: "market", sql: market },
        Migration { area: "market", number: 2, name: "totals", sql: totals },
        Migration { area: "market", number: 3, name: "claims", sql: claims },
        Migration { area: "market", number: 4, name: "routing", sql: routing },
        discovery::migration(),
        Migration { area: "market", number: 6, name: "meetings", sql: meetings },
        Migration { area: "market", number: 7, name: "choices", sql: choices },
        Migration { area: "market", number: 8, name: "delegation", sql: delegation },
        budget::migration(),
        Migration { area: "market", number: 11, name: "reviews", sql: reviews },
        health::migration(),
        dispute::migration(),
        budget::migration_of_disputes(),
        operator::migration(),
        dispute::migration_of_waits(),
        reference::migration(),
    ]
}
