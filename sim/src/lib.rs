//! The whole system, or a part of it, in one thread under a virtual clock. The seed decides everything: which task
//! runs next, what is random, which bell is lost, where a process dies. So a failure is a number, and running that
//! number again shows it again.
//!
//! | module | what it holds |
//! |---|---|
//! | [`world`] | time, randomness, and the trace that proves two runs equal |
//! | [`fault`], [`rates`] | what can go wrong, numbered; how often it does |
//! | [`executor`] | processes and their tasks; crashes, pauses, reboots, failures of the database |
//! | [`clock`] | clocks that are set to another time |
//! | [`database`] | the database that the processes share, and an eye that looks at it from outside |
//! | [`bus`] | bells that are lost, doubled and late |
//! | [`scenario`] | what is run, and what must hold |
//! | [`campaign`] | many seeds, counted |
//! | [`minimise`] | a failing seed with as few faults as possible, as a story |

pub mod bus;
pub mod campaign;
pub mod clock;
pub mod database;
pub mod executor;
pub mod fault;
pub mod minimise;
pub mod rates;
pub mod scenario;
pub mod world;
