//! The whole system, or a part of it, in one thread under a virtual clock. The seed decides everything: which task
//! runs next, what is random, which bell is lost, where a process dies. So a failure is a number, and running that
//! number again shows it again.
//!
//! | module | what it holds |
//! |---|---|
//! | [`world`] | time, randomness, and the trace that proves two runs equal |
//! | [`executor`] | processes and their tasks; crashes, pauses, reboots |
//! | [`bus`] | bells that are lost, doubled and late |
//! | [`scenario`] | what is run, and what must hold |
//! | [`campaign`] | many seeds, counted |

pub mod bus;
pub mod campaign;
pub mod executor;
pub mod scenario;
pub mod world;
