//! A program that is nothing but a launcher, for tests and benches; with `hold N [RUNTIME]` it is a caller with N
//! sandboxes, with `freeze N [RUNTIME]` one whose sandboxes are frozen.

use std::io::Write;
use std::process::ExitCode;

use guild_sandbox::{Exec, Limits, Ns, Oci, OciOptions, Options, Result, Sandbox, Spec, launcher};

fn main() -> ExitCode {
    if launcher::is_asked_for() {
        return launcher::main();
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [word, count, runtime @ ..] if ["hold", "freeze"].contains(&word.as_str()) => {
            let (count, freeze) = (count.parse().unwrap_or(1), word == "freeze");
            let held = open(runtime.first()).and_then(|sandbox| hold(&*sandbox, count, freeze));
            if held.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(3) }
        }
        _ => ExitCode::from(2),
    }
}

fn open(runtime: Option<&String>) -> Result<Box<dyn Sandbox>> {
    let program = std::env::current_exe().unwrap_or_default();
    Ok(match runtime {
        None => Box::new(Ns::new(Options { ahead: 2, ..Options::new(program) })?),
        Some(runtime) => Box::new(Oci::new(OciOptions::new(program, runtime))?),
    })
}

/// Starts sandboxes that sleep, half of them with commands, says so, and starts ever more until somebody kills it.
/// Those from before it says so can be frozen.
fn hold(sandbox: &dyn Sandbox, count: usize, freeze: bool) -> Result<()> {
    sandbox.prepare()?;
    let spec = Spec::new(["sh", "-c", "sleep 1000 & sleep 1000"], Limits::judge());
    let stay = Spec::stay(Limits::judge());
    let exec = Exec::new(["sh", "-c", "(setsid sleep 1000 &); sleep 1000"]);
    let (mut running, mut commands) = (Vec::new(), Vec::new());
    while running.len() < 4 * count {
        if running.len() % 2 == 0 {
            running.push(sandbox.start(&spec)?);
        } else {
            let staying = sandbox.start(&stay)?;
            commands.push(staying.handle().exec(&exec)?);
            commands.push(staying.handle().exec(&exec)?);
            running.push(staying);
        }
        if running.len() == count {
            if freeze {
                running.iter().try_for_each(|running| running.handle().freeze())?;
            }
            // Whoever started us may have stopped reading.
            let _ = std::io::stdout().write_all(b"ready\n");
        }
    }
    running.pop().map_or(Ok(()), |last| last.wait().map(drop))
}
