//! What the events of the archive say about the market, as rows: written in the transaction that stores the events.
//!
//! All rows but the heartbeats follow from the archive alone: [`rebuild`] makes them again.

use guild_store::{Migration, Sql};

mod announced;
mod glance;
mod offers;
mod read;
mod recommendation;
mod said;
mod write;

pub use announced::{
    Announced, AnnouncedPage, Came, Heard, announced_after, announced_before, announced_of,
    came_after, first_heard_ms, heard_after, recommended_by, still_announced,
};
pub use glance::{
    COUNT_MAX, Counts, Progress, announces, answers_within, counts, is_name_shared, names,
    progress, results_by,
};
pub use offers::{Offered, offers, offers_of};
pub use read::{Answer, Page, Provider, Request, Wanted, provider, providers, request, requests};
pub use recommendation::{Recommendations, recommendations};
pub use write::rebuild;

#[cfg(test)]
pub(crate) use announced::STATEMENTS as ANNOUNCED;
#[cfg(test)]
pub(crate) use glance::STATEMENTS as GLANCES;
#[cfg(test)]
pub(crate) use offers::STATEMENTS as OFFERS;
#[cfg(test)]
pub(crate) use read::STATEMENTS;

pub(crate) use said::Said;
pub(crate) use write::{Seen, apply, forget, hide, sweep};

/// What an announcement is as a sign of life.
pub(crate) fn said_migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0006_said.sql"),
        pg: include_str!("../migrations/postgres/0006_said.sql"),
    };
    Migration { area: "network", number: 6, name: "said", sql }
}

/// Offers by numbers instead of texts.
pub(crate) fn offers_migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0007_offers.sql"),
        pg: include_str!("../migrations/postgres/0007_offers.sql"),
    };
    Migration { area: "network", number: 7, name: "offers", sql }
}

/// The tables of this module.
pub(crate) fn migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0002_index.sql"),
        pg: include_str!("../migrations/postgres/0002_index.sql"),
    };
    Migration { area: "network", number: 2, name: "index", sql }
}
