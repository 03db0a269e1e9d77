//! Running hostile code: the one place where strangers' programs run.
//!
//! A [`Spec`] says what to run, what it sees and what it may use. A [`Sandbox`] starts it and gives a [`Running`],
//! whose end is an [`Outcome`]: why it ended, what it used, what it tried, and how well each limit and layer held.
//!
//! [`Ns`] is the backend that needs nothing but a Linux kernel, 5.12 or later. Five processes take part:
//!
//! ```text
//! caller ──▶ nursery ──▶ launcher ──▶ init ──▶ workload ──▶ …
//!            one for      one for      pid 1, every namespace its own,
//!            all          each         a root of tmpfs and read-only binds
//! ```
//!
//! - The *nursery* is the caller's program executed again with the word [`launcher::WORD`], because a process with
//!   many threads must not fork. It does nothing but split off launchers.
//! - The *launcher* holds the clock, the limits and the cgroups, carries the output, and cleans up. When its caller
//!   dies, however it dies, the launcher reads the end of its channel, kills everything and leaves.
//! - *Init* is the first process of the new namespaces. It builds the root, starts the workload, reaps orphans and
//!   answers what the workload's filter asks. If the launcher dies, the kernel kills init; if init dies, the kernel
//!   kills everything in its namespace.
//! - The *workload* has no privileges, no descriptors but its three, a landlock domain and a filter of system calls.
//!
//! A sandbox may also stay without a program ([`Spec::stay`]), or have commands beside it: [`Handle::exec`] starts one,
//! [`Handle::connect`] reaches a port inside. Between init and each command is a *keeper*, a process of ours below
//! which everything stays that the command starts. [`Running::workspace`] gives its files, seen from outside.
//!
//! [`Oci`] lets an OCI runtime make the sandbox instead. The launcher is the same; in place of init stands a process
//! that calls the runtime, in namespaces whose end is the end of everything that the runtime has made.
//!
//! No sandbox is used twice. [`Ns::prepare`] makes launchers ahead that wait, with their namespaces, for one spec each.

pub mod agent;
mod cgroup;
pub mod egress;
mod error;
mod exec;
mod host;
pub mod launcher;
mod limits;
mod mac;
mod ns;
mod nursery;
mod oci;
mod outcome;
mod pipes;
mod running;
mod seccomp;
mod spec;
mod sys;
mod wire;
mod workspace;

pub use error::{Error, Result, code};
pub use exec::{Ended, Exec, ExecCollected, ExecHandle, Executing};
pub use host::{Found, Host, Layer};
pub use limits::{Limit, Limits};
pub use ns::{Ns, Options};
pub use oci::{Oci, OciOptions, Version};
pub use outcome::{Class, Flag, LimitReport, Outcome, Standing, Usage};
pub use running::{Collected, Handle, Running};
pub use spec::{Bind, Defaults, File, Image, Network, Profile, Spec, WRITABLE};
pub use workspace::{Artifact, Entry, EntryKind, UnpackLimits, Unpacked, Workspace, Written};

/// Something that runs specs.
pub trait Sandbox: Send + Sync {
    /// What the host of this sandbox has.
    fn host(&self) -> &Host;

    /// Makes ahead what can be made ahead; to be called when there is time.
    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    /// Starts a program. An error means that nothing of it ran.
    fn start(&self, spec: &Spec) -> Result<Running>;
}
