//! The program itself: what its process gives up before it becomes the program.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::WRITABLE;
use crate::error::{Error, Result, Step};
use crate::host::Layer;
use crate::seccomp;
use crate::spec::{Profile, Spec};
use crate::sys::{self, Cloned, Instruction};
use crate::wire::Weak;

/// The newest rules that we know; an older kernel keeps those that it has.
const RULES: ABI = ABI::V6;
/// Longer than this is not set: the wall clock ends it first.
const MAX_CPU_S: u64 = 1 << 31;

/// A program that is ready to be started: nothing is left to do that takes memory.
pub(super) struct Workload {
    /// Where it may be, in the order of the spec's `PATH`.
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    limits: Vec<(Resource, Rlimit)>,
    cores: Option<usize>,
    asking: Vec<Instruction>,
    killing: Vec<Instruction>,
    rules: RulesetCreated,
    cwd: String,
    /// Files that may take the request for a profile, and the request.
    profile: Option<(&'static [&'static str], String)>,
    /// Layers that the kernel may lack, and without which it must not start.
    must_ask: bool,
    must_landlock: bool,
}

/// A program that has been started.
pub(super) struct Started {
    pub(super) pid: u32,
    pub(super) pidfd: OwnedFd,
    /// Where the calls are heard that its filter asks about.
    pub(super) listener: Option<OwnedFd>,
    pub(super) landlock: bool,
}

impl Workload {
    /// Inside the new root.
    pub(super) fn new(spec: &Spec, weak: Weak) -> Result<Workload> {
        let word = |text: &str| {
            CString::new(text).map_err(|_| Error::spec("argv", "there is a zero byte in a word"))
        };
        let words = |list: &[String]| list.iter().map(|text| word(text)).collect::<Result<_>>();
        let env = spec.env.iter().map(|(key, value)| word(&format!("{key}={value}")));
        Ok(Workload {
            candidates: candidates(spec).iter().map(|path| word(path)).collect::<Result<_>>()?,
            argv: words(&spec.argv)?,
            env: env.collect::<Result<_>>()?,
            limits: limits(spec, weak),
            cores: weak.cores,
            asking: seccomp::program(spec.profile, true),
            killing: seccomp::program(spec.profile, false),
            rules: rules(spec).map_err(|error| Error::failed("make the landlock rules", error))?,
            cwd: spec.cwd.clone(),
            profile: weak.mac.zip(spec.mac.as_ref()).map(|(m, name)| (m.files(), m.request(name))),
            must_ask: spec.require.contains(&Layer::SeccompNotify),
            must_landlock: spec.require.contains(&Layer::Landlock),
        })
    }

    /// Starts it. Init's own standard descriptors are already those of the program.
    ///
    /// Until the program is executed, its process shares the table of descriptors with init, so that init has the
    /// listener without anybody handing it over; and init stands still, so that neither disturbs the other.
    pub(super) fn start(self, program: &str) -> Result<Started> {
        let (reader, writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("make a pipe")?;
        let landlock = sys::landlock_version().is_ok();
        match sys::clone(libc::CLONE_FILES | libc::CLONE_VFORK, None).step("make a process")? {
            Cloned::Child => self.become_program(&writer),
            Cloned::Parent { pid, pidfd } => {
                // The new process has closed this descriptor in the table that both had; its number may already
                // be the listener's.
                std::mem::forget(self.rules);
                drop(writer);
                let mut started = Started { pid, pidfd, listener: None, landlock };
                let mut report = [0; REPORT_BYTES];
                while read_report(&reader, &mut report) {
                    let [kind, step, _, _, a, b, c, d] = report;
                    let value = i32::from_le_bytes([a, b, c, d]);
                    match kind {
                        LISTENS => started.listener = Some(sys::adopt(value)),
                        _ => return Err(failure(program, step, value)),
                    }
                }
                Ok(started)
            }
        }
    }

    fn become_program(self, writer: &OwnedFd) -> ! {
        let tell = |kind: u8, step: u8, value: i32| {
            let [a, b, c, d] = value.to_le_bytes();
            // Init reads it, and stands still until this process is gone or another program.
            let _ = rustix::io::write(writer, &[kind, step, 0, 0, a, b, c, d]);
        };
        let Workload { candidates, argv, env, asking, killing, .. } = &self;
        let (candidates, argv, env) = (candidates.clone(), argv.clone(), env.clone());
        let (asking, killing, must_ask) = (asking.clone(), killing.clone(), self.must_ask);
        if let Err((step, errno)) = self.give_up() {
            tell(FAILS, step, errno);
            sys::end(127);
        }
        // From here on only calls that every profile allows.
        match sys::filter(&asking, true) {
            Ok(listener) => tell(LISTENS, 0, listener.unwrap_or(-1)),
            // An old kernel, or a listener above us: then the kernel kills without asking.
            Err(error) => {
                let killing = if must_ask { Err(error) } else { sys::filter(&killing, false) };
                if let Err(error) = killing {
                    tell(FAILS, FILTER, error.raw_os_error().unwrap_or(0));
                    sys::end(127);
                }
            }
        }
        let mut last = libc::ENOENT;
        for candidate in &candidates {
            let error = sys::execute(candidate, &argv, &env).raw_os_error().unwrap_or(0);
            if error != libc::ENOENT && error != libc::ENOTDIR {
                last = error;
            }
        }
        tell(FAILS, EXECUTE, last);
        sys::end(127)
    }

    fn give_up(self) -> Result<(), (u8, i32)> {
        let at = |step: u8| move |errno: rustix::io::Errno| (step, errno.raw_os_error());
        let io_at = |step: u8| move |error: io::Error| (step, error.raw_os_error().unwrap_or(0));
        sys::reset_signals();
        rustix::process::setsid().map_err(at(SESSION))?;
        rustix::process::chdir(self.cwd.as_str()).map_err(at(DIRECTORY))?;
        if let Some(cores) = self.cores {
            pin(cores).map_err(at(LIMITS))?;
        }
        for (resource, limit) in self.limits {
            setrlimit(resource, limit).map_err(at(LIMITS))?;
        }
        if let Some((files, request)) = self.profile {
            ask_for_profile(files, &request).map_err(at(PROFILE))?;
        }
        rustix::thread::set_no_new_privs(true).map_err(at(PRIVILEGES))?;
        let status = self.rules.restrict_self().map_err(|_| (LANDLOCK, 0))?;
        let needed = self.must_landlock || sys::landlock_version().is_ok();
        if status.ruleset == RulesetStatus::NotEnforced && needed {
            return Err((LANDLOCK, 0));
        }
        sys::close_on_exec().map_err(io_at(DESCRIPTORS))
    }
}

const REPORT_BYTES: usize = 8;
const LISTENS: u8 = 1;
const FAILS: u8 = 2;

const SESSION: u8 = 0;
const DIRECTORY: u8 = 1;
const LIMITS: u8 = 2;
const PRIVILEGES: u8 = 3;
const LANDLOCK: u8 = 4;
const DESCRIPTORS: u8 = 5;
const FILTER: u8 = 6;
const EXECUTE: u8 = 7;
const PROFILE: u8 = 8;

fn failure(program: &str, step: u8, errno: i32) -> Error {
    let why = io::Error::from_raw_os_error(errno).to_string();
    match step {
        EXECUTE => Error::NotStarted { program: program.to_owned(), why },
        DIRECTORY => Error::spec("cwd", why),
        PROFILE => {
            let why = format!("the profile was refused: {why}");
            Error::LayerMissing { layer: Layer::Mac, why }
        }
        SESSION => Error::failed("make a session", why),
        LIMITS => Error::failed("set the limits", why),
        PRIVILEGES => Error::failed("give up privileges", why),
        LANDLOCK => Error::failed("enter the landlock domain", why),
        DESCRIPTORS => Error::failed("close descriptors", why),
        _ => Error::failed("install the filter", why),
    }
}

fn read_report(reader: &OwnedFd, report: &mut [u8; REPORT_BYTES]) -> bool {
    // The writer is gone or stands still: whole reports are there, or none.
    let read = rustix::io::retry_on_intr(|| rustix::io::read(reader, &mut report[..]));
    read == Ok(REPORT_BYTES)
}

/// Where the program may be.
pub(super) fn candidates(spec: &Spec) -> Vec<String> {
    let Some(program) = spec.argv.first() else { return Vec::new() };
    if program.contains('/') {
        return vec![program.clone()];
    }
    let path = spec.env.get("PATH").map_or("/usr/bin:/bin", String::as_str);
    path.split(':').filter(|at| !at.is_empty()).map(|at| format!("{at}/{program}")).collect()
}

pub(super) fn limits(spec: &Spec, weak: Weak) -> Vec<(Resource, Rlimit)> {
    let both = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
    let limits = &spec.limits;
    let mut list = vec![
        (Resource::Core, both(0)),
        (Resource::Nofile, both(u64::from(limits.open_files).min(hard(Resource::Nofile)))),
        (Resource::Memlock, both((64 << 10).min(hard(Resource::Memlock)))),
        (Resource::Msgqueue, both(0)),
    ];
    // A process cannot outlive the tree's budget, even if nobody looks.
    let cpu_s = limits.cpu_hard_ms.div_ceil(1_000) + 1;
    if cpu_s < MAX_CPU_S {
        list.push((Resource::Cpu, both(cpu_s)));
    }
    if spec.profile != Profile::Hosted {
        list.push((Resource::Fsize, both(limits.disk_bytes)));
    }
    if weak.pids {
        // Init is one of them.
        list.push((Resource::Nproc, both((u64::from(limits.pids) + 1).min(hard(Resource::Nproc)))));
    }
    if weak.memory {
        list.push((Resource::Data, both(limits.memory_hard_bytes)));
    }
    list
}

/// The next program of this process will run under the profile, or not at all.
fn ask_for_profile(files: &[&str], request: &str) -> rustix::io::Result<()> {
    let mut last = rustix::io::Errno::NOENT;
    for file in files {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(*file, flags, Mode::empty()) {
            Ok(fd) => return rustix::io::write(&fd, request.as_bytes()).map(drop),
            Err(errno) => last = errno,
        }
    }
    Err(last)
}

fn hard(resource: Resource) -> u64 {
    rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX)
}

/// Keeps to the first so many of the cores that it may use.
fn pin(cores: usize) -> rustix::io::Result<()> {
    let all = rustix::thread::sched_getaffinity(None)?;
    let mut some = rustix::thread::CpuSet::new();
    for core in (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).take(cores) {
        some.set(core);
    }
    rustix::thread::sched_setaffinity(None, &some)
}

/// Everything can be read and executed; only what is the program's own can be written.
fn rules(spec: &Spec) -> Result<RulesetCreated, landlock::RulesetError> {
    let all = AccessFs::from_all(RULES);
    let mut rules = Ruleset::default().handle_access(all)?;
    if spec.profile != Profile::Hosted {
        rules = rules.handle_access(AccessNet::from_all(RULES))?;
    }
    // The commands of a bought sandbox may tell each other: they are in the same namespaces, and these hold them.
    if spec.profile != Profile::Hosted {
        rules = rules.scope(Scope::from_all(RULES))?;
    }
    let mut created = rules.create()?;
    let own = all & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let device = AccessFs::ReadFile | AccessFs::WriteFile;
    let bound = spec.binds.iter().filter(|bind| bind.writable).map(|bind| bind.at.as_str());
    let paths = [("/", AccessFs::from_read(RULES))]
        .into_iter()
        .chain(["/dev/null", "/dev/zero", "/dev/full"].map(|path| (path, device)))
        .chain(WRITABLE.into_iter().chain(bound).map(|path| (path, own)));
    for (path, access) in paths {
        // What is not there needs no rule: all that is not allowed is forbidden.
        if let Ok(path) = PathFd::new(path) {
            created = created.add_rule(PathBeneath::new(path, access))?;
        }
    }
    Ok(created)
}
