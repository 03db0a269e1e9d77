//! The few calls of the kernel for which there is no safe wrapper. Each does one thing; who calls them and when is
//! decided elsewhere, in safe code.
#![expect(unsafe_code, reason = "these calls have no safe wrapper in rustix or landlock")]

use std::ffi::{CStr, CString};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{null, null_mut};

use libc::{c_int, c_long, c_uint, c_ulong};

/// Too wide for the type that libc gives it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Who goes on after a clone.
pub(crate) enum Cloned {
    /// The caller, with the new process.
    Parent { pid: u32, pidfd: OwnedFd },
    /// The new process.
    Child,
}

/// Splits this process in two, as `fork` does, into new namespaces and a cgroup.
///
/// Only processes with a single thread may call it: of others, the child would have locks that nobody opens.
pub(crate) fn clone(flags: c_int, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    let mut pidfd: c_int = -1;
    let flags = flags | libc::CLONE_PIDFD;
    // SAFETY: the structure is plain numbers, for which zero is "nothing".
    let mut arguments: libc::clone_args = unsafe { zeroed() };
    arguments.flags = u64::from(flags.cast_unsigned());
    arguments.pidfd = (&raw mut pidfd).expose_provenance() as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    }
    let size = size_of::<libc::clone_args>();
    // SAFETY: without CLONE_VM the child has its own copy of everything, on the same stack address; the kernel writes
    // the one number that `pidfd` points to, before it returns.
    let mut pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) };
    if pid == -1 && cgroup.is_none() && is(libc::ENOSYS) {
        // Some containers hide the newer call.
        let flags = c_ulong::from(flags.cast_unsigned()) | libc::SIGCHLD as c_ulong;
        // SAFETY: as above; the third argument is where the descriptor goes.
        pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
    }
    match check(pid)? {
        0 => Ok(Cloned::Child),
        pid => Ok(Cloned::Parent { pid: u32::try_from(pid).unwrap_or(0), pidfd: adopt(pidfd) }),
    }
}

/// Takes over a descriptor that nobody else has.
pub(crate) fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: all callers have just got the number from the kernel, and hand it on to nobody.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Closes all descriptors from 3 on. At the start of a process only, before anything has been opened.
pub(crate) fn close_inherited() -> io::Result<()> {
    // SAFETY: nothing in this process owns a descriptor yet.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, c_uint::MAX, 0) }).map(drop)
}

/// Closes all descriptors from 3 on but one. For a new process that never returns to whom they belonged.
pub(crate) fn close_all_but(kept: BorrowedFd<'_>) -> io::Result<()> {
    let kept = kept.as_raw_fd().cast_unsigned();
    for (first, last) in [(3, kept.saturating_sub(1)), (kept.saturating_add(1), c_uint::MAX)] {
        if first <= last {
            // SAFETY: those who own the descriptors are in another process, or will never be used or dropped here.
            check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
        }
    }
    Ok(())
}

/// Lets all descriptors from 3 on be closed by the next `exec`.
pub(crate) fn close_on_exec() -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: only a flag of each descriptor changes.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, c_uint::MAX, flags) }).map(drop)
}

/// Adds properties to a mount, or to a whole tree of mounts.
pub(crate) fn restrict_mount(tree: BorrowedFd<'_>, set: u64, recursive: bool) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        userns_fd: u64,
    }
    let attributes = Attributes { set, clear: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is empty and ends, the structure is as long as is said, and the kernel only reads both.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    check(done).map(drop)
}

/// One instruction of a filter.
pub(crate) type Instruction = libc::sock_filter;

/// Installs a filter of system calls for this thread and its children. With `listener`, calls that ask are answered
/// through the descriptor that comes back; it closes on exec.
pub(crate) fn filter(program: &[Instruction], listener: bool) -> io::Result<Option<RawFd>> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    let flags = if listener { libc::SECCOMP_FILTER_FLAG_NEW_LISTENER } else { 0 };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel copies the program, whose length is right, and does not write to it.
    let fd = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    let fd = check(fd)?;
    Ok(listener.then(|| c_int::try_from(fd).unwrap_or(-1)))
}

/// A system call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) id: u64,
    /// The thread that waits, as this process sees it.
    pub(crate) pid: u32,
    pub(crate) nr: i32,
    pub(crate) arch: u32,
    pub(crate) args: [u64; 6],
}

/// Takes the next call that waits; an error if its thread is gone.
pub(crate) fn next_asked(listener: BorrowedFd<'_>) -> io::Result<Asked> {
    /// Newer kernels may write more than we know.
    #[repr(C)]
    union Room {
        asked: libc::seccomp_notif,
        bytes: [u64; 64],
    }
    let mut room = Room { bytes: [0; 64] };
    let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
    // SAFETY: the room is zeroed, as the kernel demands, and larger than what it writes.
    check(c_long::from(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut room) }))?;
    // SAFETY: it is plain numbers, which the kernel has just written.
    let asked = unsafe { room.asked };
    let libc::seccomp_data { nr, arch, args, .. } = asked.data;
    Ok(Asked { id: asked.id, pid: asked.pid, nr, arch, args })
}

/// Lets a call that waits fail with this error.
pub(crate) fn refuse(listener: BorrowedFd<'_>, id: u64, errno: c_int) -> io::Result<()> {
    let answer = libc::seccomp_notif_resp { id, val: 0, error: -errno, flags: 0 };
    let request = libc::SECCOMP_IOCTL_NOTIF_SEND;
    // SAFETY: the kernel only reads the answer.
    let sent = unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw const answer) };
    check(c_long::from(sent)).map(drop)
}

/// A descriptor that can be read when a child has ended; the signal itself comes no more.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by `sigemptyset` before it is used.
    let fd = unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    check(c_long::from(fd))?;
    Ok(adopt(fd))
}

/// Gives every signal back its usual meaning, and lets all of them in.
pub(crate) fn reset_signals() {
    // SAFETY: no handler of ours stays; the set is initialised before it is used. Signals that cannot be set (9, 19,
    // and those that libc keeps) are refused, which is fine.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut set: libc::sigset_t = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, null_mut());
    }
}

/// Sends a signal to everybody in this process's namespace but itself: for init only.
pub(crate) fn signal_all(signal: c_int) {
    // SAFETY: no memory is involved. Nobody being there is no harm.
    let _ = unsafe { libc::kill(-1, signal) };
}

/// Sends any signal, also those without a name, to one process.
pub(crate) fn signal(pid: u32, signal: c_int) {
    if let Ok(pid) = c_int::try_from(pid)
        && pid > 1
    {
        // SAFETY: no memory is involved. Its being gone is no harm.
        let _ = unsafe { libc::kill(pid, signal) };
    }
}

/// Whether there is a process of this number, be it dead and not yet waited for.
pub(crate) fn is_there(pid: u32) -> bool {
    // SAFETY: no memory is involved, and no signal is sent.
    let there = |pid: c_int| unsafe { libc::kill(pid, 0) } == 0 || !is(libc::ESRCH);
    c_int::try_from(pid).is_ok_and(there)
}

/// Sends any signal to the process that this descriptor stands for, and to no other.
pub(crate) fn signal_by(pidfd: BorrowedFd<'_>, signal: c_int) {
    let call = libc::SYS_pidfd_send_signal;
    // SAFETY: without further information, no memory is involved. Its being gone is no harm.
    let _ = unsafe { libc::syscall(call, pidfd.as_raw_fd(), signal, null::<u8>(), 0) };
}

/// Makes whoever loses its parent below this process a child of it.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: only a flag of this process changes.
    let done = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    check(c_long::from(done)).map(drop)
}

/// What a process used, with all descendants that were waited for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reaped {
    /// CPU time of all of them.
    pub(crate) cpu_us: u64,
    /// Memory of the largest of them.
    pub(crate) memory_bytes: u64,
}

/// Waits for the end of a process.
pub(crate) fn reap(pid: u32) -> io::Result<Reaped> {
    let pid = c_int::try_from(pid).map_err(io::Error::other)?;
    loop {
        let mut status = 0;
        // SAFETY: the structure is plain numbers; the kernel writes both values before it returns.
        let (reaped, usage) = unsafe {
            let mut usage: libc::rusage = zeroed();
            (libc::wait4(pid, &raw mut status, 0, &raw mut usage), usage)
        };
        if reaped == -1 && is(libc::EINTR) {
            continue;
        }
        check(c_long::from(reaped))?;
        let us = |time: libc::timeval| {
            let us = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_usec);
            u64::try_from(us).unwrap_or(0)
        };
        return Ok(Reaped {
            cpu_us: us(usage.ru_utime).saturating_add(us(usage.ru_stime)),
            memory_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1_024),
        });
    }
}

/// Becomes another program; comes back only if that fails.
pub(crate) fn execute(program: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |words: &[CString]| {
        let pointers = words.iter().map(|word| word.as_ptr());
        pointers.chain([null()]).collect::<Vec<_>>()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both lists end with a null pointer, and their words live until the call is over.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends this process at once, without running what the process it was cloned from would do at its end.
pub(crate) fn end(code: c_int) -> ! {
    // SAFETY: it only ends the process.
    unsafe { libc::_exit(code) }
}

/// Makes the cgroup that this process is in the top of those it sees.
pub(crate) fn leave_cgroups() -> io::Result<()> {
    // SAFETY: descriptors, which could be confused, are not among what is unshared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWCGROUP) }?;
    Ok(())
}

/// Makes this thread somebody else for the file system, and gives who it was: user and group. Root loses what it may do
/// to others' files for as long as it is nobody special. Other threads stay who they are.
pub(crate) fn act_as((user, group): (u32, u32)) -> io::Result<(u32, u32)> {
    /// Asks for what is impossible, which changes nothing and says who one is.
    const WHO: u32 = u32::MAX;
    // SAFETY: no memory is involved; both calls change this thread only.
    let (before, after) = unsafe {
        let before_group = libc::setfsgid(group);
        let before_user = libc::setfsuid(user);
        ((before_user, before_group), (libc::setfsuid(WHO), libc::setfsgid(WHO)))
    };
    if after != (user.cast_signed(), group.cast_signed()) {
        // SAFETY: as above.
        unsafe {
            libc::setfsuid(before.0.cast_unsigned());
            libc::setfsgid(before.1.cast_unsigned());
        }
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok((before.0.cast_unsigned(), before.1.cast_unsigned()))
}

/// Switches on the loopback of this network namespace.
pub(crate) fn loopback_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the structure is plain numbers and a name that ends with zero; the kernel only reads it.
    let done = unsafe {
        let mut request: libc::ifreq = zeroed();
        request.ifr_name[0] = b'l'.cast_signed();
        request.ifr_name[1] = b'o'.cast_signed();
        request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    };
    check(c_long::from(done)).map(drop)
}

/// The version of landlock that the kernel has.
pub(crate) fn landlock_version() -> io::Result<i64> {
    const VERSION: c_uint = 1;
    let call = libc::SYS_landlock_create_ruleset;
    // SAFETY: asked for the version, the kernel looks at no memory.
    check(unsafe { libc::syscall(call, null::<u8>(), 0usize, VERSION) })
}

fn check(answer: c_long) -> io::Result<c_long> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn is(errno: c_int) -> bool {
    io::Error::last_os_error().raw_os_error() == Some(errno)
}
