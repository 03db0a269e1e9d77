//! The process that launchers come from.
//!
//! To execute a program as large as a whole node takes longer than to make a sandbox: there are tens of thousands of
//! addresses to be set. So it is executed once, and every launcher is split off from that process, which has one
//! thread, does nothing else, and never sees a spec. It ends with the last of those who may still need it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result, Step};
use crate::launcher::WORD;
use crate::wire::{Channel, FromNursery, ToNursery};

/// Where launchers are made. It is started with the first of them, and again if something has killed it.
#[derive(Debug)]
pub(crate) struct Nursery {
    program: PathBuf,
    processes: Mutex<Processes>,
}

#[derive(Debug, Default)]
struct Processes {
    /// The one that is asked.
    current: Option<Process>,
    /// Those that are asked no more, and stay as long as launchers of theirs.
    former: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    /// `None` once nothing more is asked of it.
    channel: Option<Channel>,
    child: Child,
}

/// A launcher as it is born: our end of its channel, and itself.
pub(crate) struct Born {
    pub(crate) channel: Channel,
    pub(crate) pidfd: OwnedFd,
}

impl Nursery {
    pub(crate) fn new(program: PathBuf) -> Nursery {
        Nursery { program, processes: Mutex::default() }
    }

    /// A new launcher.
    pub(crate) fn launch(&self) -> Result<Born> {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let Processes { current, former } = &mut *processes;
        // That there is no room for a channel here is no fault of theirs.
        let pair = || Channel::pair().step("make a channel");
        if let Some(there) = &*current
            && let Some(born) = there.launch(pair()?)?
        {
            return Ok(born);
        }
        if let Some(mut gone) = current.take() {
            // What may have been born of it has an end of a channel whose other end is gone, and goes too. Nobody
            // waits for the others: they are used.
            gone.channel = None;
            former.push(gone);
        }
        former.retain_mut(|process| !process.is_over());
        let born = current.insert(Process::start(&self.program)?).launch(pair()?)?;
        born.ok_or_else(|| Error::failed("hear the nursery", "it is gone"))
    }
}

impl Process {
    fn start(program: &PathBuf) -> Result<Process> {
        let (here, there) = Channel::pair().step("make a channel")?;
        let child = Command::new(program)
            .arg(WORD)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(there)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn();
        let child = child.step(&format!("start {}", program.display()))?;
        Ok(Process { channel: Some(here), child })
    }

    /// A launcher at the other end of a channel; none if the process is gone, or makes no sense.
    fn launch(&self, (here, there): (Channel, Channel)) -> Result<Option<Born>> {
        let Some(nursery) = &self.channel else { return Ok(None) };
        match nursery.send_all(&ToNursery::Launch, &[], &[there.as_fd()]) {
            Err(error) if is_gone(&error) => return Ok(None),
            sent => sent.step("tell the nursery")?,
        }
        drop(there);
        let Ok(Some(received)) = nursery.receive::<FromNursery>() else { return Ok(None) };
        match (received.message, received.fds.into_iter().next()) {
            (FromNursery::Launched, Some(pidfd)) => Ok(Some(Born { channel: here, pidfd })),
            // The launcher is there, and goes when its channel is dropped.
            (FromNursery::Launched, None) => {
                Err(Error::failed("make a launcher", "no descriptor is free for it"))
            }
            (FromNursery::Failed(why), _) => Err(Error::failed("make a launcher", why)),
        }
    }

    fn is_over(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl Drop for Process {
    /// It ends when its channel is closed and its last launcher is gone.
    fn drop(&mut self) {
        self.channel = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A nursery whose process we are ourselves, at the other end of its channel; beside it runs a child that does not
    /// end by itself.
    fn nursery() -> (Nursery, Channel) {
        let (here, there) = Channel::pair().unwrap();
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let nursery = Nursery::new("/no/such/program".into());
        nursery.processes.lock().unwrap().current = Some(Process { channel: Some(here), child });
        (nursery, there)
    }

    fn kill_all(nursery: &Nursery) {
        let mut processes = nursery.processes.lock().unwrap();
        let Processes { current, former } = &mut *processes;
        current.iter_mut().chain(former).for_each(|process| process.child.kill().unwrap());
    }

    #[test]
    fn a_descriptor_that_is_missing_ends_no_nursery() {
        let (nursery, there) = nursery();
        let answering = std::thread::spawn(move || {
            for _ in 0..2 {
                there.receive::<ToNursery>().unwrap().unwrap();
                there.send(&FromNursery::Launched).unwrap();
            }
            there.receive::<ToNursery>().unwrap().unwrap();
            there.send_all(&FromNursery::Launched, &[], &[there.as_fd()]).unwrap();
        });
        for _ in 0..2 {
            let error = nursery.launch().map(drop).unwrap_err();
            assert_eq!(error.to_string(), "make a launcher: no descriptor is free for it");
        }
        assert!(nursery.launch().is_ok());
        answering.join().unwrap();
        kill_all(&nursery);
    }

    #[test]
    fn nobody_waits_for_a_nursery_that_is_asked_no_more() {
        let (nursery, there) = nursery();
        drop(there);
        let error = nursery.launch().map(drop).unwrap_err();
        assert!(error.to_string().starts_with("start /no/such/program: "), "{error}");
        let is_over = |process: &mut Process| process.is_over();
        let over: Vec<bool> =
            nursery.processes.lock().unwrap().former.iter_mut().map(is_over).collect();
        assert_eq!(over, [false]);
        kill_all(&nursery);
    }
}
