//! How fast a sandbox is that does nothing, from the call to the end, beside others and beside none.
//!
//! Everybody runs in turn within one measurement, and the median of each is taken. Runtimes that do not work on this
//! host are named in the result. `start` makes everything at the call; `ahead` has launchers that wait; `bare` is the
//! program without any sandbox; `python` is a judge with a suite of one test, one judgement after another, and
//! `python_cold` a judge with nothing made ahead; `many` are fifty at once.

use std::process::ExitCode;
use std::thread;

use guild_sandbox::{Limits, Ns, Options, Sandbox, Spec};
use testbed::bench::{self, Arguments, Measured, Watch};

mod judging;
mod others;

use others::Other;

/// Runs of each before anything counts.
const WARM_UP: usize = 3;
const AT_ONCE: usize = 50;
/// What a party leaves to be cleaned up, by the kernel or its own processes, must not fall into another's time.
const PAUSE_MS: u64 = 10;

fn main() -> ExitCode {
    bench::main(measure)
}

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let ahead = match arguments.case.as_str() {
        "ahead" => 2,
        // The judge itself makes the next one while its submission is loaded: that is within the time of a judgement.
        "python" => 1,
        _ => 0,
    };
    let options = Options { ahead, ..Options::new(env!("CARGO_BIN_EXE_guild")) };
    let sandbox = Ns::new(options).map_err(said)?;
    let seconds = arguments.seconds;
    match arguments.case.as_str() {
        "start" => {
            let (others, skipped) = Other::all(&arguments.directory);
            let program = Spec::new(["/bin/true"], Limits::judge());
            in_turn(seconds, &skipped, || run(&sandbox, &program), others)
        }
        "ahead" => {
            let (others, skipped) = Other::all(&arguments.directory);
            let program = Spec::new(["/bin/true"], Limits::judge());
            in_turn(seconds, &skipped, || run_ahead(&sandbox, &program), others)
        }
        "bare" => {
            let program = Spec::new(["/bin/true"], Limits::judge());
            in_turn(seconds, "", || run(&sandbox, &program), vec![Other::bare(&["/bin/true"])])
        }
        "python" | "python_cold" => {
            let submission = judging::write_submission(&arguments.directory)?;
            let words = ["/usr/bin/python3", "-s", "-B", "-S", "-c", PYTHON, &submission];
            let judging = judging::Judging::new(&sandbox)?;
            in_turn(seconds, "", || judging.run(), vec![Other::bare(&words)])
        }
        "many" => many(seconds, &sandbox),
        case => Err(format!("there is no case {case:?}")),
    }
}

/// The same without a judge: loads the submission, reads the arguments, calls it and writes what it gives.
const PYTHON: &str = "
import sys
from _json import encode_basestring_ascii, make_encoder, make_scanner
class Context:
    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int, parse_constant = float, int, float
write = make_encoder(None, str, encode_basestring_ascii, None, ':', ',', False, False, False)
sys.path[0] = sys.argv[1]
import solution
print(''.join(write(solution.sort(make_scanner(Context)('[3, 1, 2]', 0)[0]), 0)))
";

fn said(error: impl ToString) -> String {
    error.to_string()
}

/// One call, everything included.
fn run(sandbox: &Ns, spec: &Spec) -> Result<f64, String> {
    let watch = Watch::start();
    let outcome = sandbox.start(spec).and_then(guild_sandbox::Running::wait).map_err(said)?;
    let ms = watch.elapsed().as_secs_f64() * 1_000.0;
    if outcome.succeeded() { Ok(ms) } else { Err(format!("it ended as {:?}", outcome.class)) }
}

/// As [`run`], with launchers that had the time to get ready.
fn run_ahead(sandbox: &Ns, spec: &Spec) -> Result<f64, String> {
    sandbox.prepare().map_err(said)?;
    testbed::wait_ms(20);
    run(sandbox, spec)
}

/// Runs ours and the others in turn, and takes the median of each.
fn in_turn(
    seconds: u64,
    skipped: &str,
    ours: impl Fn() -> Result<f64, String>,
    others: Vec<Other>,
) -> Result<Vec<Measured>, String> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); others.len() + 1];
    let watch = Watch::start();
    let mut turn = 0;
    while watch.before(seconds) || turn < WARM_UP + 5 {
        let warm = turn >= WARM_UP;
        let ms = ours()?;
        testbed::wait_ms(PAUSE_MS);
        times[0].extend(warm.then_some(ms));
        for (other, times) in others.iter().zip(times.iter_mut().skip(1)) {
            if turn % other.every == 0 {
                let ms = other.run()?;
                testbed::wait_ms(PAUSE_MS);
                times.extend(warm.then_some(ms).or((other.every > 1).then_some(ms)));
            }
        }
        turn += 1;
    }
    let mut medians = times.into_iter().map(median);
    let ours = medians.next().unwrap_or(f64::NAN);
    let names = others.iter().map(|other| other.name);
    let named: Vec<(&'static str, f64)> = names.zip(medians).collect();
    let shown = std::iter::once(("guild", ours)).chain(named.iter().copied());
    let shown: Vec<_> = shown.map(|(name, ms)| format!("{name} {ms:.2} ms")).collect();
    let result = format!("{}{skipped}", shown.join(", "));
    let measured = |(name, ms): (&'static str, f64)| Measured {
        name,
        per_s: 1_000.0 / ms,
        result: result.clone(),
    };
    Ok(std::iter::once(("guild", ours)).chain(named).map(measured).collect())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Fifty at once, again and again; beside them fifty of the quickest other.
fn many(seconds: u64, sandbox: &Ns) -> Result<Vec<Measured>, String> {
    let program = Spec::new(["/bin/true"], Limits::judge());
    let bwrap = Other::bwrap();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let watch = Watch::start();
    while watch.before(seconds) || ours.is_empty() {
        ours.push(at_once(|| run(sandbox, &program))?);
        theirs.push(at_once(|| bwrap.run())?);
    }
    let result = format!("{AT_ONCE} sandboxes at once");
    let measured = |name, times| Measured {
        name,
        per_s: AT_ONCE as f64 / median(times),
        result: result.clone(),
    };
    Ok(vec![measured("guild", ours), measured("bwrap", theirs)])
}

fn at_once(run: impl Fn() -> Result<f64, String> + Sync) -> Result<f64, String> {
    let watch = Watch::start();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(&run)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(ended) => ended.map(drop),
            Err(_) => Err("a thread panicked".to_owned()),
        })
    })?;
    Ok(watch.elapsed().as_secs_f64())
}
