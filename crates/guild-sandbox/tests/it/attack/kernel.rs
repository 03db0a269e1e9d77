//! Doors of the kernel that are shut: the first knock ends the run.

use guild_sandbox::{Class, Profile, Spec};

use super::super::support::{printed, python};
use super::{attack, calling, hosted, is_killed_for, is_refused};

#[test]
fn ptrace() {
    is_killed_for("ptrace", "call(101, 16, os.getppid(), 0, 0)");
}

#[test]
fn process_vm_readv() {
    is_killed_for("process_vm_readv", "call(310, 1, 0, 0, 0, 0, 0)");
}

#[test]
fn process_vm_writev() {
    is_killed_for("process_vm_writev", "call(311, 1, 0, 0, 0, 0, 0)");
}

#[test]
fn pidfd_getfd() {
    is_killed_for("pidfd_getfd", "call(438, os.pidfd_open(1), 0, 0)");
}

#[test]
fn kcmp() {
    is_killed_for("kcmp", "call(312, 1, 2, 0, 0, 0)");
}

#[test]
fn mount() {
    is_killed_for("mount", "call(165, b'none', b'/tmp', b'tmpfs', 0, 0)");
}

#[test]
fn umount() {
    is_killed_for("umount2", "call(166, b'/proc', 2)");
}

#[test]
fn pivot_root() {
    is_killed_for("pivot_root", "call(155, b'/tmp', b'/tmp')");
}

#[test]
fn chroot() {
    is_killed_for("chroot", "call(161, b'/tmp')");
}

#[test]
fn fsopen() {
    is_killed_for("fsopen", "call(430, b'tmpfs', 0)");
}

#[test]
fn open_tree() {
    is_killed_for("open_tree", "call(428, -100, b'/usr', 1)");
}

#[test]
fn mount_setattr() {
    is_killed_for("mount_setattr", "call(442, -100, b'/', 0, 0, 0)");
}

#[test]
fn setns() {
    is_killed_for("setns", "call(308, os.open('/proc/self/ns/user', os.O_RDONLY), 0)");
}

#[test]
fn unshare_user() {
    let flag = is_killed_for("unshare", "call(272, 0x10000000)");
    assert_eq!(flag.detail, "flags 0x10000000");
}

#[test]
fn clone_with_a_new_user_namespace() {
    let flag = is_killed_for("clone", "call(56, 0x10000000 | 17, 0, 0, 0, 0)");
    assert_eq!(flag.detail, "flags 0x10000011");
}

#[test]
fn clone3_does_not_exist() {
    is_refused("assert call(435, 0, 0) == (-1, 38)");
}

#[test]
fn bpf() {
    is_killed_for("bpf", "call(321, 0, 0, 0)");
}

#[test]
fn perf_event_open() {
    is_killed_for("perf_event_open", "call(298, 0, 0, -1, -1, 0)");
}

#[test]
fn io_uring() {
    is_killed_for("io_uring_setup", "call(425, 8, 0)");
}

#[test]
fn userfaultfd() {
    is_killed_for("userfaultfd", "call(323, 1)");
}

#[test]
fn keyctl() {
    is_killed_for("keyctl", "call(250, 0, -3, 0)");
}

#[test]
fn add_key() {
    is_killed_for("add_key", "call(248, b'user', b'x', b'y', 1, -3)");
}

#[test]
fn kexec() {
    is_killed_for("kexec_load", "call(246, 0, 0, 0, 0)");
}

#[test]
fn kernel_module() {
    is_killed_for("finit_module", "call(313, 0, b'', 0)");
}

#[test]
fn open_by_handle() {
    is_killed_for("open_by_handle_at", "call(304, -100, 0, 0)");
}

#[test]
fn swap() {
    is_killed_for("swapon", "call(167, b'/tmp/x', 0)");
}

#[test]
fn reboot() {
    is_killed_for("reboot", "call(169, 0xfee1dead, 672274793, 0x1234567, 0)");
}

#[test]
fn kernel_log() {
    is_killed_for("syslog", "call(103, 3, 0, 0)");
}

#[test]
fn clock_is_set() {
    is_killed_for("clock_settime", "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)");
}

#[test]
fn time_of_day_is_set() {
    is_killed_for("settimeofday", "call(164, ctypes.create_string_buffer(16), 0)");
}

#[test]
fn hostname_is_set() {
    is_killed_for("sethostname", "call(170, b'mine', 4)");
}

#[test]
fn own_seccomp_filter() {
    is_killed_for("seccomp", "call(317, 1, 8, 0)");
}

#[test]
fn port_io() {
    is_killed_for("iopl", "call(172, 3)");
}

#[test]
fn typing_into_a_terminal() {
    let code = "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')";
    assert_eq!(is_killed_for("ioctl", code).detail, "request 0x5412");
}

#[test]
fn typing_with_the_high_half_set() {
    is_killed_for("ioctl", "call(16, 0, 0x100005412, b'x')");
}

#[test]
fn x32_calls() {
    let flag = is_killed_for("call 39", "call(0x40000000 + 39)");
    assert_eq!(flag.detail, "x32");
}

#[test]
fn calls_of_another_architecture() {
    // mov eax, 20 (getpid of i386); int 0x80; ret
    let code = r"
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3')
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
";
    let flag = is_killed_for("call 20", code);
    assert_eq!(flag.detail, "foreign architecture 0x40000003");
}

#[test]
fn a_child_is_caught_too() {
    let code = "if os.fork() == 0:\n    call(165, b'a', b'/tmp', b'tmpfs', 0, 0)\nos.wait()";
    is_killed_for("mount", code);
}

#[test]
fn a_handler_of_its_own_does_not_help() {
    let code = "import signal\nsignal.signal(signal.SIGSYS, signal.SIG_IGN)\ncall(321, 0, 0, 0)";
    is_killed_for("bpf", code);
}

#[test]
fn unknown_calls_do_not_exist() {
    is_refused("assert call(471 + 500) == (-1, 38)");
}

#[test]
fn strict_ends_what_is_not_listed() {
    let code = "import os\nprint('begin', flush=True)\nos.getppid()\nprint('end')";
    let collected = attack(&Spec { profile: Profile::Strict, ..python(code) });
    assert_eq!(collected.outcome.class, Class::SecurityViolation);
    assert_eq!(
        (collected.outcome.flags[0].call.as_str(), printed(&collected).as_str()),
        ("getppid", "begin\n")
    );
}

#[test]
fn strict_lets_a_plain_program_work() {
    let code = "open('/tmp/x', 'w').write('7')\nprint(open('/tmp/x').read())";
    let collected = attack(&Spec { profile: Profile::Strict, ..python(code) });
    assert!(collected.outcome.succeeded(), "{:?}", collected.outcome);
    assert_eq!(collected.stdout, b"7\n");
}

#[test]
fn hosted_refuses_flags_and_goes_on() {
    let code = "assert call(165, b'a', b'/tmp', b'tmpfs', 0, 0) == (-1, 1)\n\
                assert call(272, 0x10000000) == (-1, 1)";
    let collected = attack(&hosted(calling(code)));
    assert_eq!(collected.stdout, b"begin\nend\n");
    let calls: Vec<_> = collected.outcome.flags.iter().map(|flag| flag.call.as_str()).collect();
    assert_eq!(calls, ["mount", "unshare"]);
    assert_eq!(collected.outcome.exit_code, Some(0));
}
