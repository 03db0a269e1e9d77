//! Sandboxes as their users see them.

mod agent;
mod attack;
mod bad_input;
mod egress;
mod exec;
mod frozen;
mod killed;
mod oci;
mod ordinary;
mod programs;
mod run;
mod support;
mod traces;
mod workspace;
