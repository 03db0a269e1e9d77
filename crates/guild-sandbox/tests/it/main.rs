//! Sandboxes as their users see them.

mod run;
mod support;
