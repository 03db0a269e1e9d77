//! The lists of system calls. A call is in at most one of the first four.

/// A call as the C headers spell it, and its number.
pub(super) type Call = (&'static str, i64);

/// Names with their numbers; those after the first semicolon are listed on x86 only, and those after a second one
/// everywhere else, because on x86 the C library has an older call for the same.
macro_rules! calls {
    ($($name:ident)*; $($old:ident)* $(; $($new:ident)*)?) => {
        &[
            $((stringify!($name), libc::$name),)*
            $(#[cfg(target_arch = "x86_64")] (stringify!($old), libc::$old),)*
            $($(#[cfg(not(target_arch = "x86_64"))] (stringify!($new), libc::$new),)*)?
        ]
    };
}

/// What one process needs that computes, reads, and writes into its own directories.
///
/// There are 52, and ten older forms on x86. An interpreter that starts and runs a test makes 42 of them. The
/// others have a reason each: other C libraries print by `writev`, read by `readv`, and open and look by `open`,
/// `stat` and `fstat`; other languages look by `statx`; the usual tools advise by `fadvise64`; memory grows by
/// `mremap` and shrinks by `madvise`; handlers of signals mask and return; a program that was frozen in its sleep
/// goes on by `restart_syscall`; `clock_gettime` is a call where the kernel lends no clock; files are written in
/// their middle by `pwrite64`; and of `prctl` only what is harmless is allowed.
#[rustfmt::skip]
pub(super) const ALLOWED_STRICT: &[Call] = calls! {
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_openat SYS_close
    SYS_fstat SYS_newfstatat SYS_statx SYS_lseek SYS_ioctl SYS_fcntl SYS_dup SYS_ftruncate
    SYS_getdents64 SYS_getcwd SYS_chdir SYS_fadvise64
    SYS_mmap SYS_mprotect SYS_munmap SYS_mremap SYS_madvise SYS_brk
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sigaltstack SYS_restart_syscall
    SYS_futex SYS_set_robust_list SYS_set_tid_address SYS_rseq SYS_prlimit64 SYS_prctl
    SYS_getrandom SYS_execve SYS_exit SYS_exit_group
    SYS_getpid SYS_gettid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_uname SYS_sysinfo
    SYS_clock_gettime SYS_clock_nanosleep SYS_epoll_create1;
    SYS_access SYS_arch_prctl SYS_dup2 SYS_mkdir SYS_open SYS_poll SYS_readlink SYS_rename
    SYS_stat SYS_unlink;
    SYS_dup3 SYS_faccessat SYS_mkdirat SYS_ppoll SYS_readlinkat SYS_renameat SYS_unlinkat
};

/// What threads, children, pipes and temporary files need beside that: seen in threads, child processes, pools,
/// event loops, temporary files, archives, databases in files and pipelines of a shell, which a test runs.
///
/// There are 67, and 21 forms on x86 where the list has the same thing in another form. Beyond what was seen:
/// `epoll_pwait`, `eventfd2`, `nanosleep` and `waitid` are what runtimes of other languages use for the same, and
/// `fork`, `pipe`, `select`, `lstat` and `tkill` other C libraries; `sendmsg` and its like pass descriptors between
/// children; `getsockopt` tells what a socket is that was inherited; `gettimeofday`, `clock_getres` and `getcpu`
/// are calls where the kernel lends no clock. A call that is missing fails, and programs have another way.
#[rustfmt::skip]
pub(super) const ALLOWED_PYTHON: &[Call] = calls! {
    SYS_close_range SYS_copy_file_range SYS_faccessat2 SYS_fallocate SYS_fchdir SYS_fchmod
    SYS_fchmodat SYS_fdatasync SYS_flock SYS_fstatfs SYS_fsync SYS_fgetxattr SYS_getxattr
    SYS_lgetxattr SYS_linkat SYS_listxattr SYS_memfd_create SYS_msync SYS_preadv2 SYS_pwritev2
    SYS_renameat2 SYS_sendfile SYS_statfs SYS_symlinkat SYS_truncate SYS_umask SYS_utimensat
    SYS_pipe2 SYS_eventfd2 SYS_epoll_ctl SYS_epoll_pwait SYS_pselect6
    SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_shutdown SYS_getsockopt SYS_setsockopt
    SYS_getsockname SYS_getpeername
    SYS_wait4 SYS_waitid SYS_kill SYS_tgkill SYS_tkill SYS_pidfd_open SYS_getppid SYS_getpgid
    SYS_setpgid SYS_getsid SYS_setsid SYS_getitimer SYS_setitimer SYS_rt_sigtimedwait
    SYS_rt_sigsuspend SYS_rt_sigpending
    SYS_getgroups SYS_getrusage SYS_times SYS_getpriority SYS_getcpu SYS_sched_yield
    SYS_sched_getaffinity SYS_clock_getres SYS_gettimeofday SYS_nanosleep;
    SYS_alarm SYS_chmod SYS_creat SYS_epoll_wait SYS_fork SYS_getpgrp SYS_link SYS_lstat
    SYS_pause SYS_pipe SYS_rmdir SYS_select SYS_symlink SYS_vfork
    SYS_dup3 SYS_faccessat SYS_mkdirat SYS_ppoll SYS_readlinkat SYS_renameat SYS_unlinkat
};

/// Calls that nobody in a sandbox has any business with: doors of the kernel, and the host's own settings.
#[rustfmt::skip]
pub(super) const DANGEROUS: &[Call] = calls! {
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_pidfd_getfd
    SYS_kcmp SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_setns SYS_unshare SYS_open_tree
    SYS_move_mount SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr SYS_bpf
    SYS_perf_event_open SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register
    SYS_userfaultfd SYS_keyctl SYS_add_key SYS_request_key SYS_kexec_load SYS_kexec_file_load
    SYS_init_module SYS_finit_module SYS_delete_module SYS_open_by_handle_at SYS_fanotify_init
    SYS_swapon SYS_swapoff SYS_reboot SYS_acct SYS_quotactl SYS_syslog SYS_settimeofday
    SYS_clock_settime SYS_clock_adjtime SYS_adjtimex SYS_sethostname SYS_setdomainname
    SYS_vhangup SYS_seccomp SYS_memfd_secret;
    SYS_iopl SYS_ioperm SYS_modify_ldt
};

/// Calls that reach for a network.
#[rustfmt::skip]
pub(super) const SOCKETS: &[Call] = calls! {
    SYS_socket SYS_connect SYS_bind SYS_listen SYS_accept SYS_accept4;
};

/// Calls that are in no list, but have a name when they are seen.
#[rustfmt::skip]
pub(super) const OTHER: &[Call] = calls! {
    SYS_clone SYS_clone3 SYS_socketpair SYS_personality SYS_mknodat SYS_setuid SYS_setgid
    SYS_setresuid SYS_setresgid SYS_setgroups SYS_fchownat SYS_capset SYS_capget SYS_execveat
    SYS_inotify_init1 SYS_membarrier SYS_mincore SYS_mlock SYS_munlock SYS_pidfd_send_signal
    SYS_setxattr SYS_lsetxattr SYS_fsetxattr
    SYS_signalfd4 SYS_splice SYS_tee SYS_timer_create SYS_timerfd_create;
    SYS_mknod SYS_chown
};
