//! The servers of a test run: one PostgreSQL and one NATS, told to the tests through the environment.

use std::ffi::OsString;
use std::process::Stdio;

use testbed::postgres::Durability;
use testbed::{Nats, Postgres};

use crate::workspace::{self, Workspace};
use crate::{Result, setup};

/// `cargo xtask services -- COMMAND…`
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The command and its arguments, such as: cargo test -p guild-store.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Both servers. They stop when this is dropped, and also when this process ends in any other way.
pub(crate) struct Services {
    postgres: Postgres,
    nats: Nats,
}

impl Services {
    /// Starts both; missing ones are installed first, if that is possible.
    pub(crate) fn start() -> Result<Services> {
        setup::ensure(&[setup::POSTGRES, setup::NATS])?;
        Ok(Services { postgres: Postgres::start(Durability::Relaxed)?, nats: Nats::start()? })
    }

    /// What tells tests where they are.
    pub(crate) fn variables(&self) -> [(&'static str, String); 2] {
        [
            (testbed::postgres::SHARED_URL, self.postgres.url()),
            (testbed::nats::SHARED_URL, self.nats.url()),
        ]
    }
}

/// Runs the command where the caller stands, with the caller's terminal.
pub(crate) fn run(tree: &Workspace, options: &Options) -> Result {
    let (program, arguments) = options.command.split_first().ok_or("name a command")?;
    let here = std::env::current_dir().map_err(|e| e.to_string())?;
    let services = Services::start()?;
    setup::nostr_relay(tree)?;
    setup::judge_tools(tree)?;
    setup::nats_py(tree)?;
    setup::nostr_dvm(tree)?;
    setup::schemathesis(tree)?;
    let mut command = tree.program(program);
    command.args(arguments).current_dir(here).stdin(Stdio::inherit());
    workspace::run(command.envs(services.variables()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(script: &str) -> Options {
        Options { command: ["sh", "-c", script].map(OsString::from).to_vec() }
    }

    #[test]
    fn a_command_finds_both_servers_and_its_failure_is_told() {
        let tree = Workspace::find().unwrap();
        let both = r#"case "$GUILD_TEST_POSTGRES_URL $GUILD_TEST_NATS_URL" in
            postgresql://*127.0.0.1:*/postgres\ nats://127.0.0.1:*) exit 0;; *) exit 1;; esac"#;
        assert_eq!(run(&tree, &options(both)), Ok(()));
        let failure = run(&tree, &options("exit 7")).unwrap_err();
        assert!(failure.contains("exit status: 7"), "{failure}");
    }
}
