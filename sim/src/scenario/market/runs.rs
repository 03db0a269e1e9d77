//! Commands that nobody runs: what they give follows from their text, after a while.

use std::sync::Arc;

use guild_market::job::Refusal;
use guild_market::sandbox_run::{Artifact, Bounds, CommandRun, Plan, Printed, Ran, Status};
use guild_protocol::env::{BoxFuture, Clock};
use guild_protocol::hash::Hash;
use guild_roles::workshop::Workshop;
use guild_sandbox::{Image, Limits};
use serde_json::{Value, json};

use crate::world::World;

const IMAGE: &str = "sha256:sim";
/// One run of so many does not even begin.
const FAILS_ONE_IN: u64 = 10;

/// The input of a job of this name.
pub(super) fn input(name: &str) -> Value {
    json!({"sandbox": {"image_digest": IMAGE}, "commands": [{"cmd": name}, {"cmd": "make"}]})
}

/// A workshop that says what is so, or what a cheat says.
pub(super) fn workshop(world: &World, cheats: bool) -> Workshop {
    let world = world.clone();
    let run = move |plan: Plan| {
        let world = world.clone();
        Box::pin(async move {
            let pause_ms = world.below_ms(300);
            world.sleep(pause_ms).await;
            if world.below(FAILS_ONE_IN) == 0 {
                return Err(Refusal::new(&guild_sandbox::code::FAILED, "there is no room"));
            }
            Ok(given(&plan, cheats))
        }) as BoxFuture<_>
    };
    let images = [(IMAGE.to_owned(), Image::Host)].into();
    Workshop { bounds: Bounds { limits: Limits::job(), images }, run: Arc::new(run) }
}

fn given(plan: &Plan, cheats: bool) -> Ran {
    let printed = Printed { sha256: Hash::of(b""), head: Vec::new() };
    let run = |cmd: &str| CommandRun {
        cmd: cmd.to_owned(),
        exit_code: i32::from(!cheats),
        duration_ms: 1,
        stdout: printed.clone(),
        stderr: printed.clone(),
    };
    let name = plan.commands.first().map(|command| command.cmd.as_str()).unwrap_or_default();
    let artifact = Artifact {
        path: "/workspace/made".to_owned(),
        sha256: Hash::of(name.as_bytes()),
        size_bytes: 1,
    };
    Ran {
        runs: vec![run(name)],
        artifacts: vec![artifact],
        status: if cheats { Status::Success } else { Status::Failed },
        error: None,
    }
}
