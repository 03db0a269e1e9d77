//! Who is there: the registry of providers, made of the announcements in the archive.
//!
//! A [`Registry`] is a value in memory. It follows from the rows of the archive and from the [`Mark`]s of this crate,
//! which hold what an archive cannot tell: how many versions of an announcement were seen, who was quarantined and
//! when, who comes and goes. What comes in is bounded for each key and for each relay that brings it, so a flood takes
//! the places of nobody else. A [`Follower`] brings a registry up to the archive, a page at a time; it changes nothing
//! in the database, and [`save`] writes what it says.
//!
//! ```text
//! archive ─▶ look ─▶ Follower::apply ─▶ Registry ─▶ find: who can do this work, how sure is that, and why
//!                         └▶ Saved ─▶ save: marks, discrepancies, counts
//! ```
//!
//! Everything in an announcement is a claim. [`Claims`] says for each whether it is confirmed, stands alone, or is
//! disputed by the announcement itself.

mod canonical;
mod card;
mod claim;
mod ear;
mod entry;
mod find;
mod follow;
mod footing;
mod options;
mod registry;
mod rows;

pub use canonical::canonical;
pub use card::Card;
pub use claim::{Claim, Claims, Discrepancy, Standing, What};
pub use entry::{Entry, Life, Mark, State};
pub use find::{How, Match, Wanted};
pub use follow::{Follower, Place, Saved, Signs, look, open, signs, sweep};
pub use footing::Footing;
pub use options::Options;
pub use registry::{Registry, Summary, Taken, Why};
pub use rows::{
    ANSWER, Counted, Health, Logged, Loud, count_answer, discrepancies, engaged, health, save,
};

use guild_store::{Migration, Sql};

/// The tables of this module.
pub(crate) fn migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0005_discovery.sql"),
        pg: include_str!("../migrations/postgres/0005_discovery.sql"),
    };
    Migration { area: "market", number: 5, name: "discovery", sql }
}
