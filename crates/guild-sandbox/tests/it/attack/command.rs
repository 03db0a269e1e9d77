//! Commands that turn against each other, their keepers and init, or refuse to be found.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::Read;

use guild_sandbox::{
    Class, Exec, ExecCollected, Executing, Handle, Limits, Profile, Running, Sandbox, Spec,
};

use super::super::support::{limits, sandbox, sandbox_without_cgroups, sleep_ms};
use super::super::traces::assert_nothing_is_left;
use super::CALL;

fn spec(profile: Profile) -> Spec {
    let limits = Limits { pids: 60, cpu_hard_ms: 60_000, memory_hard_bytes: 1 << 30, ..limits() };
    Spec { profile, ..Spec::stay(limits) }
}

fn staying(profile: Profile) -> Running {
    sandbox().start(&spec(profile)).unwrap()
}

fn python(code: &str) -> Exec {
    Exec::new(["python3", "-I", "-S", "-c", &format!("{CALL}\n{code}")])
}

/// Starts a program and waits until it says that it is ready.
fn ready(handle: &Handle, code: &str) -> Executing {
    let mut command = handle.exec(&python(code)).unwrap();
    command.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    command
}

fn run(handle: &Handle, code: &str) -> ExecCollected {
    handle.exec(&python(code)).unwrap().collect().unwrap()
}

fn printed(collected: &ExecCollected) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&collected.stdout), text(&collected.stderr))
}

#[test]
fn a_forbidden_call_ends_the_command_alone() {
    let running = staying(Profile::Python);
    let handle = running.handle();
    let other = handle.exec(&Exec::new(["cat"])).unwrap();
    let collected =
        run(&handle, "print('begin', flush=True)\ncall(165, 0, 0, 0, 0, 0)\nprint('end')");
    assert_eq!(printed(&collected), "begin\n", "it went on");
    let ended = &collected.ended;
    assert_eq!((ended.class, ended.signal), (Class::SecurityViolation, Some(9)));
    let [flag] = ended.flags.as_slice() else { panic!("{:?}", ended.flags) };
    assert_eq!((flag.call.as_str(), flag.fatal), ("mount", true));
    assert!(other.wait().unwrap().succeeded());
    handle.kill().unwrap();
    let outcome = running.wait().unwrap();
    assert_eq!((outcome.class, outcome.flags.len()), (Class::SecurityViolation, 1));
}

#[test]
fn a_network_attempt_of_a_command_is_flagged() {
    let running = staying(Profile::Python);
    let code = "import socket\ntry: socket.socket()\nexcept OSError as error: print(error.errno)";
    let collected = run(&running.handle(), code);
    assert_eq!(printed(&collected), "1\n");
    let ended = &collected.ended;
    assert_eq!((ended.class, ended.exit_code), (Class::SecurityViolation, Some(0)));
    assert_eq!(ended.flags[0].detail, "AF_INET");
    assert!(run(&running.handle(), "pass").ended.succeeded(), "flags are each command's own");
}

/// What a command has left is still judged by its own filter.
#[test]
fn what_a_command_left_is_still_held() {
    let running = staying(Profile::Python);
    let handle = running.handle();
    let code = "import fcntl, time\nlock = open('lock', 'w')\nfcntl.flock(lock, 2)\n\
                if os.fork() == 0:\n    time.sleep(0.2)\n    open('before', 'w')\n    \
                call(165, 0, 0, 0, 0, 0)\n    open('after', 'w')\n";
    assert!(run(&handle, code).ended.succeeded());
    // The lock is free when the last who has it is gone.
    let free = run(&handle, "import fcntl\nfcntl.flock(open('lock', 'w'), 2)");
    assert!(free.ended.succeeded(), "{free:?}");
    assert!(running.workspace().read("before", 1).is_ok(), "it was ended before it tried");
    assert!(running.workspace().read("after", 1).is_err(), "it went on");
    handle.kill().unwrap();
    let outcome = running.wait().unwrap();
    assert_eq!(outcome.flags.iter().map(|flag| flag.call.as_str()).collect::<Vec<_>>(), ["mount"]);
}

/// It stays, hides from `/proc`, has left its session, and its parent is gone; it shows its life by a file that grows.
const DAEMON: &str = r"
import os, time
open('beat', 'w').close()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        call(157, 4, 0, 0, 0, 0)
        while True:
            with open('beat', 'a') as file: file.write('x')
            time.sleep(0.005)
    os._exit(0)
while os.path.getsize('beat') < 3: time.sleep(0.005)
print('ready', flush=True)
";

fn beats(running: &Running) -> usize {
    running.workspace().read("beat", 1 << 20).unwrap().len()
}

#[test]
fn daemons_that_hide_are_found() {
    for profile in [Profile::Python, Profile::Hosted] {
        for sandbox in [sandbox(), &sandbox_without_cgroups()] {
            let running = sandbox.start(&spec(profile)).unwrap();
            let handle = running.handle();
            let command = ready(&handle, &format!("{DAEMON}\ntime.sleep(1000)"));
            command.kill().unwrap();
            assert_eq!(command.wait().unwrap().class, Class::Stopped);
            let before = beats(&running);
            run(&handle, "import time; time.sleep(0.2)");
            assert_eq!(beats(&running), before, "the daemon lives");
            // The control: left by a command that ends by itself, it goes on.
            assert!(run(&handle, DAEMON).ended.succeeded());
            let before = beats(&running);
            let grows = (0..400).any(|_| {
                sleep_ms(25);
                beats(&running) > before
            });
            assert!(grows, "the daemon is dead");
        }
    }
}

#[test]
fn a_fork_bomb_in_a_command() {
    for profile in [Profile::Python, Profile::Hosted] {
        let running = staying(profile);
        let handle = running.handle();
        let bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n";
        let command = handle.exec(&Exec { wall_ms: Some(300), ..python(bomb) }).unwrap();
        assert_eq!(command.wait().unwrap().class, Class::WallLimit);
        // There is room again, and it is quiet.
        let code = "for i in range(10):\n    if os.fork() == 0: os._exit(0)\nfor i in range(10): os.wait()\nprint('end')";
        assert_eq!(printed(&run(&handle, code)), "end\n");
        drop(running);
        assert_nothing_is_left();
    }
}

/// Those who look like init, but for init and one's own.
const KEEPERS: &str = r"
def words(pid):
    try: return open(f'/proc/{pid}/cmdline').read()
    except OSError: return ''
def keepers():
    pids = map(int, filter(str.isdigit, os.listdir('/proc')))
    return [pid for pid in pids if pid not in (1, os.getppid()) and words(pid) == words(1)]
";

/// In a bought sandbox commands may tell each other, so they may kill and stop their keepers too: that is their end.
#[test]
fn killing_keepers() {
    for signal in [9, 19] {
        let running = staying(Profile::Hosted);
        let handle = running.handle();
        let asleep = ready(&handle, &format!("{DAEMON}\ntime.sleep(1000)"));
        let code = format!("{KEEPERS}\nos.kill(keepers()[0], {signal})\nprint('told')");
        let collected = run(&handle, &code);
        assert_eq!(printed(&collected), "told\n");
        if signal == 19 {
            asleep.kill().unwrap();
        }
        let ended = asleep.wait().unwrap();
        assert_eq!((ended.exit_code, ended.signal), (None, Some(9)));
        assert!(run(&handle, "pass").ended.succeeded());
        drop(running);
        assert_nothing_is_left();
    }
}

#[test]
fn killing_everybody_from_a_command() {
    let running = staying(Profile::Hosted);
    let handle = running.handle();
    let asleep = handle.exec(&Exec::new(["sleep", "1000"])).unwrap();
    let code = "for number in range(1, 65):\n    try: os.kill(1, number)\n    except OSError: pass\nos.kill(-1, 9)";
    let command = handle.exec(&python(code)).unwrap();
    let ended = command.wait().unwrap();
    assert!(
        matches!((ended.exit_code, ended.signal), (Some(0), None) | (None, Some(9))),
        "{ended:?}"
    );
    assert_eq!(asleep.wait().unwrap().signal, Some(9));
    // Init is still there.
    assert!(run(&handle, "pass").ended.succeeded());
}

#[test]
fn no_room_for_a_command() {
    let running = staying(Profile::Python);
    let handle = running.handle();
    let code = "while True:\n    try:\n        if os.fork() == 0:\n            import time; time.sleep(1000)\n    except OSError: break\nprint('ready', flush=True)\nimport time; time.sleep(1000)";
    let full = ready(&handle, code);
    let mut commands = Vec::new();
    let error = loop {
        match handle.exec(&Exec::new(["sleep", "1000"])) {
            Ok(command) => commands.push(command),
            Err(error) => break error,
        }
        assert!(commands.len() <= 64, "there is no limit");
    };
    // Where no cgroup counts processes, only the number of commands ends it.
    assert!(["sandbox.failed", "sandbox.busy"].contains(&error.code().name), "{error}");
    drop(commands);
    full.kill().unwrap();
    full.wait().unwrap();
    assert!(run(&handle, "pass").ended.succeeded());
}

#[test]
fn one_command_does_not_see_what_another_was_told() {
    for profile in [Profile::Python, Profile::Hosted] {
        let running = staying(profile);
        let handle = running.handle();
        let env = [("SECRET".to_owned(), "hunter2".to_owned())].into();
        let _secret = handle.exec(&Exec { env, ..Exec::new(["sleep", "1000"]) }).unwrap();
        let code = "import glob\nfor path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/fd/*'):\n    if f'/{os.getpid()}/' in path: continue\n    try: text = open(path, 'rb').read(10000)\n    except OSError: continue\n    if b'hunter2' in text: print(path)\nprint(os.environ.get('SECRET'))";
        assert_eq!(printed(&run(&handle, code)), "None\n");
    }
}

#[test]
fn a_flood_of_forbidden_calls_does_not_deafen_anybody() {
    let running = staying(Profile::Hosted);
    let handle = running.handle();
    let code = "import threading\ndef flood():\n    while True: call(165, 0, 0, 0, 0, 0)\nfor i in range(8): threading.Thread(target=flood).start()\nprint('ready', flush=True)";
    let flood = ready(&handle, code);
    let big = "x".repeat(100_000);
    for _ in 0..20 {
        let exec = Exec::new(["true", big.as_str()]);
        assert!(handle.exec(&exec).unwrap().wait().unwrap().succeeded());
    }
    flood.kill().unwrap();
    let ended = flood.wait().unwrap();
    assert_eq!(ended.class, Class::SecurityViolation);
    handle.kill().unwrap();
    assert_eq!(running.wait().unwrap().class, Class::SecurityViolation);
}

#[test]
fn a_strict_command() {
    let running = staying(Profile::Strict);
    let handle = running.handle();
    let command = handle.exec(&Exec::new(["head", "-c", "3", "/dev/zero"])).unwrap();
    assert_eq!(command.collect().unwrap().stdout, [0; 3]);
    let collected = run(&handle, "print('begin', flush=True)\nos.fork()");
    assert_eq!(
        (collected.ended.class, printed(&collected).as_str()),
        (Class::SecurityViolation, "begin\n")
    );
}

/// A program stops whoever is about to become a command. That hangs one command, and nothing else.
#[test]
fn stopping_whoever_is_about_to_start() {
    let running = staying(Profile::Hosted);
    let handle = running.handle();
    let code = format!(
        "{KEEPERS}\nprint('ready', flush=True)\nwhile True:\n    for pid in keepers():\n        try: os.kill(pid, 19)\n        except OSError: pass\n"
    );
    let _stopper = ready(&handle, &code);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| handle.exec(&Exec::new(["sleep", "1000"])).map(Executing::wait))
            })
            .collect();
        let short = Exec { wall_ms: Some(400), ..Exec::new(["sleep", "1000"]) };
        let ended = handle.exec(&short).unwrap().wait().unwrap();
        assert_eq!(ended.class, Class::WallLimit);
        handle.kill().unwrap();
        for asked in asking {
            match asked.join().unwrap() {
                Ok(ended) => assert_eq!(ended.unwrap().class, Class::Stopped),
                Err(error) => assert_eq!(error.code().name, "sandbox.ended"),
            }
        }
    });
    assert_eq!(running.wait().unwrap().class, Class::Stopped);
    assert_nothing_is_left();
}
