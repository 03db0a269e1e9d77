//! The routing matrix: who is hired for which kind of work, and why.
//!
//! An [`Entry`] is what this node believes of one provider for one task type, from its own verified outcomes. A
//! [`Mutation`] says what happened; [`next`] says what the entry is afterwards, and is pure. Each is a row of a log
//! ([`log`]) before it takes effect: the [`Matrix`] in memory is what replaying the rows gives, and nothing else.
//! [`choose`] picks a provider by one of two policies, and its [`Choice`] says why.
//!
//! Trust is in ten-thousandths, and nothing that is stored is a floating-point number: the policy `thompson` computes
//! with them for a moment, and keeps none.
//!
//! ```text
//! change ─▶ log::append, in a transaction: row ─▶ log::catch_up ─▶ Matrix ─▶ choose ─▶ Choice
//!    ▲                                      └▶ snapshot::write, now and then ─▶ recover
//!    └ work::given, work::ended: what becomes of orders
//! ```

mod choice;
pub mod chosen;
pub mod copy;
mod draws;
mod entry;
mod evidence;
mod explain;
mod hearsay;
mod inspect;
pub mod log;
mod matrix;
mod mutation;
mod options;
mod revalidate;
mod score;
mod shares;
pub mod snapshot;
mod task_type;
mod thompson;
mod tiered;
pub mod work;

pub use choice::{Choice, Chosen, How, Policy, Reason, Wanted, choose, choose_with};
pub use draws::Draws;
pub(crate) use entry::day_of;
pub use entry::{Cause, Day, Entry, Sample, Status};
pub use evidence::Evidence;
pub use explain::{Candidate, Explanation, explain, explain_with};
pub use hearsay::{Hearsay, Hearsays};
pub use inspect::{Asked, Checked, Logged, check, rows};
pub use matrix::{Effect, Matrix};
pub use mutation::{Change, Mutation, next};
pub use options::{Options, Thompson, Tiers, Weights};
pub use revalidate::{Live, over, revalidate};
pub use score::{Parts, Tier};
pub use task_type::TaskType;
