//! The backend that needs nothing but a Linux kernel.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Sandbox;
use crate::error::{Error, Result, Step};
use crate::host::{Host, Layer};
use crate::nursery::Nursery;
use crate::oci::Runtime;
use crate::outcome::Standing;
use crate::pipes::Pipes;
use crate::running::{Launcher, Running};
use crate::spec::{Defaults, Image, Spec};
use crate::wire::{FromLauncher, Order, Preparation, ToLauncher};
use crate::workspace::Workspace;

/// How launchers are made.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program that calls [`crate::launcher::main`] when its first argument is [`crate::launcher::WORD`]: usually
    /// the running one.
    pub program: PathBuf,
    /// How many launchers wait ahead, once [`Ns::prepare`] has been called. Each holds some megabytes and namespaces.
    pub ahead: usize,
    /// What is added to every spec. Launchers are prepared for its image.
    pub defaults: Defaults,
    /// Whether cgroups are used where they are there. Without them most limits are weaker.
    pub cgroups: bool,
}

impl Options {
    /// Nothing ahead, for the host's own `/usr`.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options { program: program.into(), ahead: 0, defaults: Defaults::default(), cgroups: true }
    }
}

/// Namespaces, landlock, seccomp and cgroups of this host's kernel.
#[derive(Debug)]
pub struct Ns {
    options: Options,
    host: Host,
    /// Who makes the sandboxes, if it is not the launcher itself.
    runtime: Option<Runtime>,
    waiting: Mutex<VecDeque<Launcher>>,
    /// Held while launchers are made ahead.
    preparing: Mutex<()>,
    nursery: Arc<Nursery>,
}

/// Without these nothing runs, whatever the spec requires.
const INDISPENSABLE: [Layer; 3] = [Layer::UserNamespace, Layer::Namespaces, Layer::Seccomp];

impl Ns {
    /// Looks at the host and removes what launchers that are gone have left.
    pub fn new(options: Options) -> Result<Ns> {
        let mut host = Host::probe();
        host.places.sweep();
        if !options.cgroups {
            host.without_cgroups();
        }
        host.require(&INDISPENSABLE.into())?;
        Ns::make(options, host, None)
    }

    /// The same, with launchers that call a runtime.
    pub(crate) fn with_runtime(options: Options, host: Host, runtime: Runtime) -> Result<Ns> {
        Ns::make(options, host, Some(runtime))
    }

    fn make(options: Options, mut host: Host, runtime: Option<Runtime>) -> Result<Ns> {
        host.look_at_profile(options.defaults.mac.as_deref());
        host.require(&options.defaults.require)?;
        let nursery = Arc::new(Nursery::new(options.program.clone()));
        let (waiting, preparing) = (Mutex::default(), Mutex::default());
        Ok(Ns { options, host, runtime, waiting, preparing, nursery })
    }

    /// Makes launchers ahead until there are as many as the options say. A start with the same image takes one.
    pub fn prepare(&self) -> Result<()> {
        // Of two who prepare the second finds what the first has made.
        let _alone = self.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        while self.waiting().len() < self.options.ahead {
            let launcher = self.launch(&self.options.defaults.image)?;
            self.waiting().push_back(launcher);
        }
        Ok(())
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Launcher>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A launcher for this image: one that waits, or a new one.
    fn take(&self, image: &Image) -> Result<Launcher> {
        while *image == self.options.defaults.image
            && let Some(launcher) = { self.waiting().pop_front() }
        {
            if launcher.is_alive() {
                return Ok(launcher);
            }
        }
        self.launch(image)
    }

    fn launch(&self, image: &Image) -> Result<Launcher> {
        let launcher = Launcher::new(&self.nursery)?;
        let preparation = Preparation {
            image: image.clone(),
            places: self.host.places.clone(),
            cores_milli: self.host.cores_milli,
            runtime: self.runtime.clone(),
        };
        let message: ToLauncher = ToLauncher::Prepare(preparation);
        launcher.channel.send(&message).step("tell the launcher")?;
        Ok(launcher)
    }
}

impl Sandbox for Ns {
    fn host(&self) -> &Host {
        &self.host
    }

    fn prepare(&self) -> Result<()> {
        Ns::prepare(self)
    }

    fn start(&self, spec: &Spec) -> Result<Running> {
        let spec = &*spec.with(&self.options.defaults);
        spec.check()?;
        self.host.require_for(spec)?;
        if let Image::Directory(path) = &spec.image
            && let Err(error) = std::fs::read_dir(path)
        {
            let path = path.display().to_string();
            return Err(Error::NoImage { path, why: error.to_string() });
        }
        let mut launcher = self.take(&spec.image)?;
        let (pipes, theirs) = Pipes::new()?;
        let sizes = spec.files.iter().map(|file| file.bytes.len()).collect();
        let tail: Vec<&[u8]> = spec.files.iter().map(|file| file.bytes.as_slice()).collect();
        let order = ToLauncher::Run(Order { spec, sizes });
        launcher.channel.send_all(&order, &tail, &theirs.fds()).step("tell the launcher")?;
        drop(theirs);
        let received = launcher.channel.receive::<FromLauncher>().step("hear the launcher")?;
        let received = received.ok_or_else(|| Error::failed("hear the launcher", "it is gone"))?;
        let mut fds = received.fds.into_iter();
        match received.message {
            FromLauncher::Started { keeps_apart } => {
                launcher.keeps_apart = keeps_apart;
                let workspace = fds.next().ok_or_else(|| Error::failed("start", "no workspace"))?;
                let workspace = Workspace::new(workspace)?;
                let proxy = fds.next().map(TcpListener::from);
                let pipes = (!spec.stay).then_some(pipes);
                Ok(Running::new(launcher, pipes, workspace, proxy, spec))
            }
            FromLauncher::Failed(error) => Err(error),
            FromLauncher::Ended(_) => Err(Error::failed("start", "it ended before it began")),
        }
    }
}

impl Host {
    /// The same host, if nobody may use its cgroups.
    fn without_cgroups(&mut self) {
        self.places = crate::cgroup::Places::default();
        for layer in [Layer::CgroupMemory, Layer::CgroupPids, Layer::CgroupCpu, Layer::CgroupFreeze]
        {
            if let Some(found) = self.layers.get_mut(&layer) {
                found.standing = Standing::Absent;
                "switched off".clone_into(&mut found.found);
            }
        }
    }
}
