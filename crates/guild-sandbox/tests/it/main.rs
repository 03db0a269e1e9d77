//! Sandboxes as their users see them.

mod attack;
mod bad_input;
mod exec;
mod killed;
mod oci;
mod ordinary;
mod run;
mod support;
mod workspace;
