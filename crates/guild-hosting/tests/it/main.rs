//! Hosting, with real stores, processes and sandboxes.

mod machine;
