//! Letters: messages that carry something, between the kernel and processes outside it.
//!
//! A bell only hints; a letter says what there is to do, or what has happened. Who acts in which turn stands in the
//! headers, and never in the payload. [`Mail::send_all`] says what became of each letter, so that whoever sends from a
//! row knows whether the row is done. A letter may come twice: its headers name what it is about.
//!
//! [`Local`] carries letters within one process. [`Nats`] carries them over a server, which keeps commands and events
//! in streams if it can.
//!
//! ```
//! use guild_bus::mail::{Letter, Local, Limits, Mail, Receipt};
//! use guild_bus::subject::{Pattern, Topic};
//! # struct Still;
//! # impl guild_protocol::env::Clock for Still {
//! #     fn now_ms(&self) -> i64 { 0 }
//! #     fn sleep(&self, _: i64) -> guild_protocol::env::BoxFuture<()> { Box::pin(std::future::pending()) }
//! # }
//! # use futures_util::FutureExt;
//! let mail = Local::new(Limits::default(), std::sync::Arc::new(Still));
//! let mut shop = mail.subscribe(Pattern::parse("guild.v1.*.*.cmd.tool.shop.>")?, Some("shop"));
//! let letter = Letter::new(Topic::parse("guild.v1.p1.public.cmd.tool.shop.buy")?, b"{}".to_vec());
//! let sent = mail.send_all(vec![letter]).now_or_never();
//! assert_eq!(sent, Some(vec![Ok(Receipt::Passed)]));
//! assert_eq!(shop.try_take().map(|letter| letter.payload), Some(b"{}".to_vec()));
//! # Ok::<(), guild_bus::Error>(())
//! ```

use guild_protocol::env::BoxFuture;

use crate::error::Result;
use crate::subject::Pattern;

mod letter;
mod local;
mod nats;
mod queue;
mod stream;

pub use letter::{CONTROL_FIELDS, Headers, Letter, MESSAGE_ID};
pub use local::Local;
pub use nats::{Nats, Service, Status};
pub use queue::{Limits, Mailbox};

/// What became of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// The server keeps it on disk for whoever comes.
    Kept,
    /// Somebody listens there, and nobody keeps it.
    Passed,
    /// Nobody listens there, and nobody keeps it: it is gone.
    Unheard,
}

/// Carries letters.
pub trait Mail: Send + Sync {
    /// Hands letters over, in this order; for each what became of it. What failed may have arrived all the same.
    fn send_all(&self, letters: Vec<Letter>) -> BoxFuture<Vec<Result<Receipt>>>;

    /// Hands a letter over that may be lost: a piece of a stream, or an answer. It never waits.
    fn cast(&self, letter: Letter);

    /// Sends a letter and waits for the answer.
    fn ask(&self, letter: Letter, timeout_ms: i64) -> BoxFuture<Result<Letter>>;

    /// Takes the letters that are sent there from now on. Of those in one group each letter reaches one.
    fn subscribe(&self, pattern: Pattern, group: Option<&str>) -> Mailbox;
}
