//! From a job to a plan: a pure decision.

use std::collections::BTreeMap;

use guild_protocol::error::Code;
use guild_protocol::schema::Job;
use guild_sandbox::Limits;
use serde_json::Value;

use super::{Bounds, Command, Plan, SCHEMA_ID, tree};
use crate::error::code;
use crate::job::Refusal;

const MIB: u64 = 1 << 20;
/// The disk of a job that does not say how much.
const DISK_MB: u64 = 100;
/// Where a tree may be: this directory, or one below it.
const WORKSPACE: &str = "/workspace";
/// What every command sees, unless the job sets it. What else would differ from machine to machine, and from day to
/// day, is fixed; compiled Python carries the times of its sources, so it is not written.
const ENV: [(&str, &str); 7] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"),
    ("HOME", "/tmp"),
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
    ("SOURCE_DATE_EPOCH", "315532800"),
    ("PYTHONHASHSEED", "0"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
];

impl Plan {
    /// How a job is run within these bounds, or why it is not.
    pub fn of(job: &Job, bounds: &Bounds) -> Result<Plan, Refusal> {
        if job.schema_id().as_str() != SCHEMA_ID {
            let words = format!("{} is no work for a sandbox", job.schema_id());
            return Err(Refusal::new(&code::SCHEMA_NOT_SERVED, words));
        }
        let image_digest = text(job.payload(), &["sandbox", "image_digest"]);
        let Some(image) = bounds.images.get(image_digest) else {
            let words = match bounds.images.keys().next() {
                Some(known) => format!("{image_digest:?} is not here; {known:?} is"),
                None => "there is no image here".to_owned(),
            };
            return Err(Refusal::new(&code::IMAGE, words));
        };
        let policy = text(job.payload(), &["sandbox", "network_policy"]);
        if policy != "none" {
            let words = format!("{policy:?} is not given: commands reach nobody");
            return Err(Refusal::new(&code::NETWORK_REFUSED, words));
        }
        let limits = limits(job, &bounds.limits)?;
        let mount = mount(text(job.payload(), &["repo", "mount_path"]))?;
        let (files, env) = tree::unpack(job.payload(), &mount, &limits)?;
        let env = environment(env)?;
        let commands = commands(job.payload(), &mount)?;
        Ok(Plan {
            image_digest: image_digest.to_owned(),
            image: image.clone(),
            limits,
            env,
            mount,
            files,
            commands,
        })
    }
}

fn member<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| value.get(name))
}

fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    member(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Thousandths of a core that a job asks for, rounded up.
pub(super) fn cores_milli(job: &Job) -> u32 {
    let cpus = member(job.payload(), &["sandbox", "resources", "cpus"]).and_then(Value::as_f64);
    let milli = (cpus.unwrap_or(1.0) * 1_000.0).ceil().clamp(1.0, 1_024_000.0);
    // The schema and the clamp keep it in range; there is no checked conversion of floats.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped above")]
    let milli = milli as u32;
    milli
}

fn limits(job: &Job, most: &Limits) -> Result<Limits, Refusal> {
    let asked =
        |name: &str| member(job.payload(), &["sandbox", "resources", name]).and_then(Value::as_u64);
    let disk_mb = asked("disk_mb").unwrap_or(DISK_MB.min(most.disk_bytes / MIB));
    let memory_mb = asked("memory_mb").unwrap_or(512);
    let wall_ms = asked("timeout_secs").unwrap_or(60).saturating_mul(1_000);
    let cores_milli = cores_milli(job);
    let wishes = [
        ("memory_mb", memory_mb, most.memory_hard_bytes / MIB),
        ("cpus", u64::from(cores_milli).div_ceil(1_000), u64::from(most.cores_milli) / 1_000),
        ("timeout_secs", wall_ms / 1_000, most.wall_ms / 1_000),
        ("disk_mb", disk_mb, most.disk_bytes / MIB),
    ];
    if let Some((name, asked, most)) = wishes.into_iter().find(|(_, asked, most)| asked > most) {
        let words = format!("sandbox.resources.{name}: {asked} is more than is given, {most}");
        return Err(Refusal::new(&code::LIMITS_EXCEEDED, words));
    }
    // What is written is memory too, and must not be taken from what the programs were promised.
    let memory_bytes = memory_mb.saturating_add(disk_mb).saturating_mul(MIB);
    let cpu_ms = wall_ms.saturating_mul(u64::from(cores_milli).div_ceil(1_000));
    let limits = Limits {
        cores_milli,
        cpu_soft_ms: cpu_ms,
        cpu_hard_ms: cpu_ms,
        memory_soft_bytes: memory_bytes,
        memory_hard_bytes: memory_bytes,
        disk_bytes: disk_mb.saturating_mul(MIB),
        wall_ms,
        ..*most
    };
    match limits.check() {
        Ok(()) => Ok(limits),
        Err(error) => Err(Refusal::new(error.code(), error.to_string())),
    }
}

/// Where the tree is: only below what a sandbox can write.
fn mount(path: &str) -> Result<String, Refusal> {
    let path = path.trim_end_matches('/');
    let below = path
        .strip_prefix(WORKSPACE)
        .is_some_and(|rest| rest.is_empty() || rest.strip_prefix('/').is_some_and(tree::is_plain));
    match below {
        true => Ok(path.to_owned()),
        false => Err(malformed("repo.mount_path", "it must be /workspace, or a path below it")),
    }
}

fn commands(payload: &Value, mount: &str) -> Result<Vec<Command>, Refusal> {
    let all = payload.get("commands").and_then(Value::as_array).into_iter().flatten();
    all.enumerate().map(|(i, command)| one_command(i, command, mount)).collect()
}

fn one_command(i: usize, command: &Value, mount: &str) -> Result<Command, Refusal> {
    let cmd = text(command, &["cmd"]);
    if cmd.trim().is_empty() || cmd.contains('\0') {
        return Err(malformed(&format!("commands[{i}].cmd"), "there is no command"));
    }
    let workdir = text(command, &["workdir"]);
    let below = workdir.strip_prefix("./").unwrap_or(workdir);
    let below = below.strip_suffix('/').unwrap_or(below);
    let cwd = match below {
        "" | "." if !workdir.starts_with('/') => mount.to_owned(),
        below if tree::is_plain(below) => format!("{mount}/{below}"),
        _ => {
            let why = "it must be a plain path from the root of the tree";
            return Err(malformed(&format!("commands[{i}].workdir"), why));
        }
    };
    let continue_on_fail = command.get("continue_on_fail").and_then(Value::as_bool);
    let continue_on_fail = continue_on_fail.unwrap_or(false);
    Ok(Command { cmd: cmd.to_owned(), cwd, continue_on_fail })
}

fn environment(own: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Refusal> {
    let bad = |(name, value): &(&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if let Some((name, _)) = own.iter().find(bad) {
        let name: String = name.chars().take(60).collect();
        return Err(malformed("env", &format!("{name:?} cannot be a variable")));
    }
    let mut env: BTreeMap<String, String> =
        ENV.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    env.extend(own);
    Ok(env)
}

pub(super) fn malformed(field: &str, why: &str) -> Refusal {
    refused(&code::RUN_MALFORMED, field, why)
}

pub(super) fn refused(code: &'static Code, field: &str, why: &str) -> Refusal {
    Refusal::new(code, format!("{field}: {why}"))
}
