//! `guild sandbox`

use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;

use guild_sandbox::egress::{self, Allow, Egress, Refusal, Report};
use guild_sandbox::{
    Bind, Class, Collected, Image, Layer, Limits, Outcome, Profile, Running, Spec, Standing,
};
use serde::Serialize;
use serde_json::Value;

use super::Context;
use crate::config::{Backend, not_a_layer};
use crate::error::{Error, Result, code};
use crate::output::Answer;

mod files;
mod hosted;
mod ports;

/// Run programs that nobody trusts, here or in sandboxes bought by the minute
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    Create(hosted::CreateArgs),
    Ls(hosted::LsArgs),
    /// Show a sandbox
    Show(hosted::IdArgs),
    Exec(hosted::ExecArgs),
    Cp(files::CpArgs),
    Ports(ports::PortsArgs),
    Forward(ports::ForwardArgs),
    Extend(hosted::ExtendArgs),
    Resize(hosted::ResizeArgs),
    /// End a sandbox; its files are kept
    Stop(hosted::IdArgs),
    /// End a sandbox, and remove it with its files
    Destroy(hosted::IdArgs),
    /// Pause a sandbox; it stays paid for
    Pause(hosted::IdArgs),
    /// Let a paused sandbox go on
    Resume(hosted::IdArgs),
    /// List the images that jobs may name, by their digests
    ///
    /// The digest of this host's own /usr is made of what its package manager says is installed: hosts with the same
    /// packages have the same. Others are named in the setting sandbox_run.images.
    Images,
}

/// Run a program in a sandbox, and say how it went
///
/// The program sees the host's /usr (or an image) read-only, /tmp and /workspace of its own, and no network. What it
/// prints goes to standard output and errors; how it ended, what it used and what it tried is told at the end.
///
/// With --allow-host there is one way out, an HTTP proxy that the usual variables (http_proxy, https_proxy, …) name. It
/// lets through what a rule names, and tells at the end what else was wanted: `example.org` is that name with the ports
/// 80 and 443, `*.example.org` every name below it, `192.0.2.0/24` and `[2001:db8::/32]` are addresses, and each takes
/// ports, as in `example.org:443,8000-8080` or `example.org:*`. Loopback and private addresses are reached only by
/// rules that are written as such addresses.
///
/// The exit code is 0 if the program exited with 0 and tried nothing forbidden, 1 if not, 2 if it could not be started
/// as asked, and 3 if the sandbox itself failed.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// What runs it, if not what the settings say
    #[arg(long, value_name = "NAME")]
    backend: Option<Backend>,
    /// Show the directories below DIR instead of the host's /usr
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// Which limits to begin with
    #[arg(long, value_name = "NAME", default_value = "judge", value_parser = ["judge", "job"])]
    limits: String,
    /// Set one limit, as in `--limit wall_ms=2000`; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    limit: Vec<Pair>,
    /// Which system calls: strict, python or hosted; python by default, and hosted with --allow-host
    #[arg(long, value_name = "NAME", value_parser = profile)]
    profile: Option<Profile>,
    /// Let the program reach this host; may be repeated
    #[arg(long, value_name = "RULE")]
    allow_host: Vec<String>,
    /// Show a path of the host at another place; :rw makes it writable
    #[arg(long, value_name = "HOST:AT[:rw]", value_parser = bind)]
    bind: Vec<Bind>,
    /// Set a variable of the program; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    env: Vec<Pair>,
    /// Where the program starts
    #[arg(long, value_name = "DIR", default_value = "/workspace")]
    cwd: String,
    /// Refuse to run without this layer, such as landlock; `guild doctor` lists them; may be repeated
    #[arg(long, value_name = "LAYER", value_parser = layer)]
    require: Vec<Layer>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

/// A name and a value.
#[derive(Debug, Clone)]
struct Pair(String, String);

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Pair, String> {
        let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
        Ok(Pair(name.to_owned(), value.to_owned()))
    }
}

fn images(cx: &mut Context<'_>) -> Result<Answer> {
    let config = cx.config_in_peace()?.config;
    let images = crate::image::images(&config);
    let shown = |image: &Image| match image {
        Image::Host => "/usr of this host".to_owned(),
        Image::Directory(path) => path.display().to_string(),
    };
    if cx.out.json() {
        let list: Vec<Value> = images
            .iter()
            .map(|(digest, image)| serde_json::json!({"digest": digest, "image": shown(image)}))
            .collect();
        cx.out.object(true, serde_json::json!({ "images": list }))?;
        return Ok(Answer::Yes);
    }
    for (digest, image) in &images {
        cx.out.line(&format!("{digest}  {}", shown(image)))?;
    }
    Ok(Answer::Yes)
}

fn profile(text: &str) -> Result<Profile, String> {
    match text {
        "strict" => Ok(Profile::Strict),
        "python" => Ok(Profile::Python),
        "hosted" => Ok(Profile::Hosted),
        _ => Err("there are strict, python and hosted".to_owned()),
    }
}

fn layer(text: &str) -> Result<Layer, String> {
    Layer::named(text).ok_or_else(|| not_a_layer(text))
}

fn bind(text: &str) -> Result<Bind, String> {
    let (paths, writable) = match text.strip_suffix(":rw") {
        Some(paths) => (paths, true),
        None => (text, false),
    };
    let (host, at) = paths.split_once(':').ok_or("write HOST:AT or HOST:AT:rw")?;
    Ok(Bind { host: host.into(), at: at.to_owned(), writable })
}

/// How it went, for a program.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    stdout: String,
    stderr: String,
    /// Whom it wanted to reach, if it could reach anybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    egress: Option<Report>,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    let args = match command {
        Command::Run(args) => args,
        Command::Images => return images(cx),
        Command::Create(args) => return hosted::create(args, cx),
        Command::Ls(args) => return hosted::ls(args, cx),
        Command::Show(args) => return hosted::show(args, cx),
        Command::Exec(args) => return hosted::exec(args, cx),
        Command::Cp(args) => return files::cp(args, cx),
        Command::Ports(args) => return ports::ports(args, cx),
        Command::Forward(args) => return ports::forward(args, cx),
        Command::Extend(args) => return hosted::extend(args, cx),
        Command::Resize(args) => return hosted::resize(args, cx),
        Command::Stop(args) => return hosted::act(args, "stop", cx),
        Command::Destroy(args) => return hosted::act(args, "destroy", cx),
        Command::Pause(args) => return hosted::act(args, "pause", cx),
        Command::Resume(args) => return hosted::act(args, "resume", cx),
    };
    let (spec, allow) = (spec(args)?, Allow::parse(&args.allow_host)?);
    let mut config = cx.config_in_peace()?.config;
    config.sandbox.backend = args.backend.unwrap_or(config.sandbox.backend);
    let sandbox = crate::sandbox::open(&config, cx.environment)?;
    let mut running = sandbox.start(&spec)?;
    let proxy = running.proxy.take();
    let egress = proxy.map(|proxy| Egress::serve(proxy, allow, egress::Options::default()));
    let egress = egress.transpose()?;
    feed(&mut running);
    if cx.out.json() {
        let Collected { outcome, stdout, stderr } = running.collect()?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let ok = outcome.succeeded();
        let (stdout, stderr) = (text(stdout), text(stderr));
        let egress = egress.map(Egress::finish);
        cx.out.object(ok, Body { outcome: &outcome, stdout, stderr, egress })?;
        return Ok(Answer::of(ok));
    }
    let outcome = show(running)?;
    let reached = egress.map(|egress| reached(&egress.finish())).unwrap_or_default();
    for line in summary(&outcome).iter().chain(&reached) {
        cx.out.remark(line);
    }
    Ok(Answer::of(outcome.succeeded()))
}

fn spec(args: &RunArgs) -> Result<Spec> {
    let limits = if args.limits == "job" { Limits::job() } else { Limits::judge() };
    let mut spec = Spec::new(args.command.iter().cloned(), changed(limits, &args.limit)?);
    if let Some(image) = &args.image {
        let image = std::path::absolute(image).map_err(|e| Error::io(image, &e))?;
        spec.image = Image::Directory(image);
    }
    spec.env.extend(args.env.iter().map(|Pair(key, value)| (key.clone(), value.clone())));
    if !args.allow_host.is_empty() {
        spec = egress::through_proxy(spec);
    }
    if let Some(profile) = args.profile {
        spec.profile = profile;
    }
    spec.binds.clone_from(&args.bind);
    spec.cwd.clone_from(&args.cwd);
    spec.require = args.require.iter().copied().collect();
    spec.check()?;
    Ok(spec)
}

/// The limits, with some of them set by their names.
fn changed(limits: Limits, changes: &[Pair]) -> Result<Limits> {
    let usage = |message: String| Error::new(&code::USAGE, message);
    let mut fields = serde_json::to_value(limits).map_err(|e| usage(e.to_string()))?;
    for Pair(name, value) in changes {
        let names: Vec<&String> = fields.as_object().map_or(Vec::new(), |f| f.keys().collect());
        if !names.contains(&name) {
            let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
            return Err(usage(format!("--limit {name}: there are {}", names.join(", "))));
        }
        let number: u64 =
            value.parse().map_err(|_| usage(format!("--limit {name}: {value:?} is no number")))?;
        fields[name.as_str()] = Value::from(number);
    }
    serde_json::from_value(fields).map_err(|e| usage(format!("--limit: {e}")))
}

/// Gives the program our own input. The thread ends with the process.
fn feed(running: &mut Running) {
    if let Some(mut stdin) = running.stdin.take() {
        thread::spawn(move || {
            // A program that does not read its input is no mistake.
            let _ = io::copy(&mut io::stdin().lock(), &mut stdin);
        });
    }
}

/// Lets what the program prints through, and waits for its end.
fn show(mut running: Running) -> Result<Outcome> {
    let (out, err) = (running.stdout.take(), running.stderr.take());
    thread::scope(|scope| {
        scope.spawn(move || carry(err, io::stderr(), io::stderr().is_terminal()));
        scope.spawn(move || carry(out, io::stdout(), io::stdout().is_terminal()));
    });
    Ok(running.wait()?)
}

/// What goes to a terminal cannot steer it.
fn carry(from: Option<impl Read>, mut to: impl Write, terminal: bool) {
    let Some(mut from) = from else { return };
    let mut piece = [0; 16 << 10];
    while let Ok(length) = from.read(&mut piece)
        && length > 0
    {
        let piece = piece.get_mut(..length).unwrap_or_default();
        if terminal {
            let steers = |byte: &&mut u8| {
                (byte.is_ascii_control() && !b"\n\t".contains(byte)) || **byte == 0x9b
            };
            piece.iter_mut().filter(steers).for_each(|byte| *byte = b'?');
        }
        // A reader that has gone does not stop the program: its end is still of interest.
        let _ = to.write_all(piece).and_then(|()| to.flush());
    }
}

fn summary(outcome: &Outcome) -> Vec<String> {
    let why = match (outcome.class, outcome.exit_code, outcome.signal) {
        (Class::Exited, Some(code), _) => format!("exited with {code}"),
        (Class::Signaled, _, Some(signal)) => format!("ended by signal {signal}"),
        (Class::WallLimit, ..) => "ended: it took too long".to_owned(),
        (Class::CpuLimit, ..) => "ended: it computed too long".to_owned(),
        (Class::MemoryLimit, ..) => "ended: it needed too much memory".to_owned(),
        (Class::OutputLimit, ..) => "ended: it printed too much".to_owned(),
        (Class::Stopped, ..) => "stopped".to_owned(),
        (Class::SecurityViolation, ..) => "tried what is forbidden".to_owned(),
        (class, code, signal) => format!("{class:?} {code:?} {signal:?}"),
    };
    let usage = &outcome.usage;
    let mut lines = vec![format!(
        "{why}; {} ms, CPU {} ms, memory {} KiB, {} processes, {} bytes printed",
        usage.wall_us / 1_000,
        usage.cpu_us / 1_000,
        usage.memory_peak_bytes >> 10,
        usage.pids_peak,
        usage.output_bytes
    )];
    for flag in &outcome.flags {
        let then = if flag.fatal { "ended for it" } else { "refused" };
        let line = format!("tried {} {} {} times: {then}", flag.call, flag.detail, flag.count);
        lines.push(line.replace("  ", " "));
    }
    for (limit, report) in &outcome.limits {
        if report.reached {
            lines.push(format!("reached the limit of {}", limit.name()));
        }
        if report.standing != Standing::Enforced {
            lines.push(format!("the limit of {} is weaker here: {}", limit.name(), report.by));
        }
    }
    lines
}

/// Whom it reached, and whom it wanted to.
fn reached(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if report.allowed > 0 {
        lines.push(format!(
            "reached the network {} times: {} bytes sent, {} received",
            report.allowed, report.up_bytes, report.down_bytes
        ));
    }
    lines.extend(report.refusals.iter().map(|refusal| {
        let Refusal { host, port, reason, detail, count } = refusal;
        let whom = if host.is_empty() { "somebody".to_owned() } else { format!("{host}:{port}") };
        format!("wanted {whom} {count} times: {} ({detail})", reason.name())
    }));
    lines
}
