//! Sandboxes as their users see them.

mod attack;
mod bad_input;
mod killed;
mod oci;
mod ordinary;
mod run;
mod support;
