//! Programs that turn against init, hide, or refuse to die.

use guild_sandbox::{Class, Limits, Spec};

use super::super::support::{limits, printed, python, shell};
use super::{attack, hosted, is_refused};

#[test]
fn killing_init() {
    let code = "import signal\nfor number in range(1, 65):\n    if number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV, signal.SIGCHLD):\n        try: os.kill(1, number)\n        except PermissionError: pass";
    is_refused(code);
}

#[test]
fn killing_everybody() {
    let collected = attack(&shell("kill -9 -1; echo alive"));
    // The shell itself is spared by the kernel, or is the first to go.
    assert!([Some(0), None].contains(&collected.outcome.exit_code), "{:?}", collected.outcome);
    assert!(collected.outcome.flags.is_empty());
}

#[test]
fn orphaned_daemons_end_with_the_program() {
    let code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(1000)\n    os._exit(0)\nos.wait()\nprint('end')\n";
    let collected = attack(&python(code));
    assert_eq!(printed(&collected), "end\n");
    assert!(collected.outcome.succeeded());
}

#[test]
fn daemons_that_hold_the_output_open() {
    let collected = attack(&shell("sleep 1000 & exit 5"));
    assert_eq!(collected.outcome.exit_code, Some(5));
}

#[test]
fn orphans_are_reaped_while_the_program_runs() {
    let code = r"
import os, time
def fork():
    for attempt in range(2000):
        try: return os.fork()
        except BlockingIOError: time.sleep(0.01)
    os._exit(9)
for i in range(200):
    pid = fork()
    if pid == 0:
        fork()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
print('end')
";
    let collected = attack(&python(code));
    assert_eq!(printed(&collected), "end\n", "{:?}", collected.outcome);
}

#[test]
fn ignoring_every_signal() {
    let limits = Limits { wall_ms: 400, ..limits() };
    let code = "import signal, time\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: time.sleep(1)\n";
    let outcome = attack(&Spec { limits, ..python(code) }).outcome;
    assert_eq!((outcome.class, outcome.signal), (Class::WallLimit, Some(9)));
}

#[test]
fn stopping_itself() {
    let limits = Limits { wall_ms: 400, ..limits() };
    let outcome = attack(&Spec { limits, ..shell("kill -STOP $$") }).outcome;
    assert_eq!(outcome.class, Class::WallLimit);
}

#[test]
fn other_processes_are_not_seen() {
    let collected = attack(&shell("ls /proc | grep -c '^[0-9]'; ps -e 2>/dev/null | wc -l"));
    let first: u32 = printed(&collected).lines().next().unwrap().parse().unwrap();
    assert!(first <= 4, "{}", printed(&collected));
}

#[test]
fn processes_of_the_host_cannot_be_told() {
    let own = std::process::id();
    let code =
        format!("try: os.kill({own}, 0)\nexcept ProcessLookupError: pass\nelse: print('there')");
    is_refused(&code);
}

#[test]
fn becoming_root() {
    let code = "for change in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.setresuid(0, 0, 0)):\n    try: change()\n    except PermissionError: continue\n    print('changed')";
    is_refused(code);
}

#[test]
fn becoming_root_in_a_bought_sandbox() {
    let code = "import os\nfor change in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):\n    try: change()\n    except OSError: continue\n    print('changed')\n";
    assert_eq!(printed(&attack(&hosted(python(code)))), "");
}

#[test]
fn taking_the_privileges_back() {
    // PR_SET_NO_NEW_PRIVS, PR_SET_SECUREBITS, PR_SET_KEEPCAPS, PR_SET_MM, PR_SET_PTRACER
    is_refused(
        "for option in (38, 28, 8, 35, 0x59616d61):\n    assert call(157, option, 0, 0, 0, 0)[0] == -1, option",
    );
}

#[test]
fn another_personality() {
    is_refused("assert call(135, 0x0040000) == (-1, 1)");
}

#[test]
fn escaping_the_pinned_cores() {
    is_refused("try: os.sched_setaffinity(0, range(64))\nexcept OSError: pass\nelse: print('set')");
}

#[test]
fn nothing_of_the_caller_s_environment() {
    let collected = attack(&shell("env | sort | cut -d= -f1 | tr '\\n' ' '"));
    assert_eq!(printed(&collected), "HOME LANG PATH PWD TZ ");
}

#[test]
fn time_and_locale_are_the_same_everywhere() {
    let code = "import time, locale\nprint(time.tzname[0], time.timezone, locale.getlocale()[1])";
    assert_eq!(printed(&attack(&python(code))), "UTC 0 UTF-8\n");
}

#[test]
fn a_variable_that_names_a_library_reaches_only_the_program() {
    let mut spec = shell("true");
    spec.env.insert("LD_PRELOAD".to_owned(), "/workspace/evil.so".to_owned());
    spec.env.insert("LD_LIBRARY_PATH".to_owned(), "/workspace".to_owned());
    let collected = attack(&spec);
    // The loader complains inside; launcher and init have long been started without it.
    assert_eq!(collected.outcome.exit_code, Some(0));
}

#[test]
fn a_program_that_faults() {
    let outcome = attack(&python("import ctypes\nctypes.string_at(0)")).outcome;
    assert_eq!((outcome.class, outcome.signal), (Class::Signaled, Some(11)));
}

#[test]
fn faking_a_security_signal() {
    let outcome = attack(&python("import os\nos.kill(os.getpid(), 31)")).outcome;
    assert_eq!((outcome.class, outcome.signal), (Class::Signaled, Some(31)));
}
