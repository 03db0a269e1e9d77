//! The lists of system calls. A call is in at most one of the first four.

/// A call as the C headers spell it, and its number.
pub(super) type Call = (&'static str, i64);

/// Names with their numbers; those after the semicolon exist on x86 only.
macro_rules! calls {
    ($($name:ident)*; $($old:ident)*) => {
        &[
            $((stringify!($name), libc::$name),)*
            $(#[cfg(target_arch = "x86_64")] (stringify!($old), libc::$old),)*
        ]
    };
}

/// What one process needs that computes, reads, and writes into its own directories.
#[rustfmt::skip]
pub(super) const ALLOWED_STRICT: &[Call] = calls! {
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_openat SYS_close
    SYS_fstat SYS_newfstatat SYS_statx SYS_lseek SYS_mmap SYS_mprotect SYS_munmap SYS_mremap
    SYS_madvise SYS_brk SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sigaltstack
    SYS_ioctl SYS_faccessat SYS_faccessat2 SYS_fcntl SYS_dup SYS_dup3 SYS_getcwd SYS_chdir
    SYS_mkdirat SYS_unlinkat SYS_renameat SYS_readlinkat SYS_ftruncate SYS_getdents64 SYS_futex
    SYS_set_robust_list SYS_set_tid_address SYS_rseq SYS_prlimit64 SYS_getpid SYS_gettid
    SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_uname SYS_sysinfo SYS_prctl
    SYS_clock_gettime SYS_clock_nanosleep SYS_getrandom SYS_execve SYS_exit SYS_exit_group
    SYS_epoll_create1 SYS_restart_syscall;
    SYS_access SYS_arch_prctl SYS_dup2 SYS_mkdir SYS_open SYS_poll SYS_readlink SYS_rename
    SYS_stat SYS_unlink
};

/// What threads, children, pipes and temporary files need beside that.
#[rustfmt::skip]
pub(super) const ALLOWED_PYTHON: &[Call] = calls! {
    SYS_close_range SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fsync SYS_fdatasync SYS_fallocate
    SYS_truncate SYS_utimensat SYS_linkat SYS_symlinkat SYS_renameat2 SYS_statfs SYS_fstatfs
    SYS_fadvise64 SYS_copy_file_range SYS_sendfile SYS_splice SYS_tee SYS_flock SYS_umask
    SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_inotify_init1
    SYS_inotify_add_watch SYS_inotify_rm_watch SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2
    SYS_pipe2 SYS_eventfd2 SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
    SYS_signalfd4 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_ppoll SYS_pselect6
    SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_shutdown SYS_getsockopt SYS_setsockopt
    SYS_getsockname SYS_getpeername SYS_wait4 SYS_waitid SYS_kill SYS_tgkill SYS_tkill
    SYS_getppid SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid SYS_getgroups SYS_getrusage
    SYS_times SYS_getpriority SYS_getresuid SYS_getresgid SYS_capget SYS_getcpu SYS_sched_yield
    SYS_sched_getaffinity SYS_sched_getparam SYS_sched_getscheduler SYS_sched_get_priority_max
    SYS_sched_get_priority_min SYS_clock_getres SYS_gettimeofday SYS_nanosleep SYS_getitimer
    SYS_setitimer SYS_rt_sigtimedwait SYS_rt_sigsuspend SYS_rt_sigpending SYS_membarrier
    SYS_get_robust_list SYS_mincore SYS_msync SYS_mlock SYS_munlock SYS_memfd_create
    SYS_pidfd_open SYS_pidfd_send_signal SYS_execveat;
    SYS_alarm SYS_chmod SYS_creat SYS_fork SYS_vfork SYS_getpgrp SYS_getrlimit SYS_link
    SYS_lstat SYS_pause SYS_pipe SYS_rmdir SYS_select SYS_symlink SYS_time SYS_utime SYS_utimes
    SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_setrlimit
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
    SYS_setresuid SYS_setresgid SYS_setgroups SYS_fchownat SYS_capset;
    SYS_mknod SYS_chown
};
