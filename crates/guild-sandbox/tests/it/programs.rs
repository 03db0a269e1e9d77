//! Plain programs that each profile must let work. They are the reason why a system call is in its list.

use guild_sandbox::{Limits, Profile, Spec};

use super::support::{limits, printed, python, run, sandbox, shell};

/// The program ends well, prints this, and is flagged for nothing.
fn works(profile: Profile, spec: Spec, expected: &str) {
    let limits = Limits {
        cpu_soft_ms: 30_000,
        cpu_hard_ms: 60_000,
        memory_soft_bytes: 512 << 20,
        memory_hard_bytes: 512 << 20,
        pids: 50,
        ..limits()
    };
    let collected = run(sandbox(), &Spec { profile, limits, ..spec });
    assert_eq!(printed(&collected), expected, "{:?}", collected.outcome);
    assert!(collected.outcome.succeeded(), "{:?}", collected.outcome);
    assert!(collected.outcome.flags.is_empty(), "{:?}", collected.outcome);
}

#[test]
fn one_process_that_computes_and_writes_files() {
    let code = "
import os, time, random, json, hashlib, io, selectors
open('/tmp/a', 'w').write('x' * 100000)
with open('/tmp/a', 'r+b') as f:
    f.seek(10); f.truncate(50); f.read()
os.mkdir('/tmp/d'); os.rename('/tmp/a', '/tmp/d/b'); os.chdir('/tmp/d')
print(os.listdir('.'), os.path.getsize('b'), os.path.realpath('b'), os.access('b', os.R_OK))
os.unlink('b'); time.sleep(0.001); random.random(); os.urandom(4)
os.dup2(os.dup(1), 9); os.write(9, b'dup\\n')
big = bytearray(30_000_000); del big
print(os.getuid(), os.uname().sysname, hashlib.sha256(b'x').hexdigest()[:8])
";
    works(Profile::Strict, python(code), "dup\n['b'] 50 /tmp/d/b True\n1000 Linux 2d711642\n");
}

#[test]
fn small_tools_one_by_one() {
    let tools: [(&[&str], &str); 5] = [
        (&["echo", "x"], "x\n"),
        (
            &["sha256sum", "/dev/null"],
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  /dev/null\n",
        ),
        (&["seq", "3"], "1\n2\n3\n"),
        (&["cat", "/judge/main.py"], "text"),
        (&["sleep", "0.01"], ""),
    ];
    for (argv, expected) in tools {
        let spec = Spec::new(argv.iter().copied(), limits()).file("/judge/main.py", "text");
        works(Profile::Strict, spec, expected);
    }
}

#[test]
fn threads() {
    let code = "
import threading, queue, time, concurrent.futures
answers = queue.Queue()
threads = [threading.Thread(target=lambda: (time.sleep(.01), answers.put(1))) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
with concurrent.futures.ThreadPoolExecutor(3) as pool:
    print(sum(pool.map(lambda x: x * x, range(100))), answers.qsize())
lock = threading.Lock(); lock.acquire(); print(lock.acquire(timeout=.01), threading.Event().wait(.01))
";
    works(Profile::Python, python(code), "328350 4\nFalse False\n");
}

#[test]
fn children() {
    let code = "
import subprocess, os, signal
print(subprocess.run(['sh', '-c', 'echo hi; cat'], input='x', capture_output=True, text=True, timeout=50).stdout)
child = subprocess.Popen(['sleep', '50']); child.terminate(); print(child.wait())
print(subprocess.check_output('ls /usr | head -2 | wc -l', shell=True))
child = subprocess.Popen(['cat'], start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd='/tmp')
print(child.communicate(b'y'))
pid = os.fork()
if pid == 0: os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), os.getppid(), os.getsid(0) > 0, os.getpgid(0) > 0)
pid = os.posix_spawn('/bin/true', ['true'], {}); print(os.waitid(os.P_PID, pid, os.WEXITED).si_status)
os.system('true')
signal.signal(signal.SIGALRM, lambda *_: print('alarm')); signal.setitimer(signal.ITIMER_REAL, .01); signal.pause()
signal.alarm(5); signal.alarm(0); signal.getitimer(0); signal.sigpending(); signal.sigtimedwait([10], 0.001)
";
    works(
        Profile::Python,
        python(code),
        "hi\nx\n-15\nb'2\\n'\n(b'y', None)\n3 1 True True\n0\nalarm\n",
    );
}

#[test]
fn pools_of_processes() {
    let code = "
import multiprocessing
def square(x): return x * x
if __name__ == '__main__':
    with multiprocessing.Pool(2) as pool: print(pool.map(square, range(5)))
    queue = multiprocessing.Queue()
    child = multiprocessing.Process(target=queue.put, args=(7,)); child.start(); print(queue.get()); child.join()
    from multiprocessing import shared_memory
    memory = shared_memory.SharedMemory(create=True, size=100); memory.buf[0] = 1; memory.close(); memory.unlink()
    child = multiprocessing.get_context('spawn').Process(target=square, args=(3,)); child.start(); child.join()
    print(child.exitcode)
";
    works(Profile::Python, python(code), "[0, 1, 4, 9, 16]\n7\n0\n");
}

#[test]
fn event_loops() {
    let code = "
import asyncio
async def main():
    await asyncio.gather(*[asyncio.sleep(.01) for _ in range(10)])
    child = await asyncio.create_subprocess_exec('echo', 'x', stdout=asyncio.subprocess.PIPE)
    print(await child.communicate(), await asyncio.to_thread(sum, [1, 2]))
    asyncio.get_running_loop().add_signal_handler(10, print)
    await asyncio.wait_for(asyncio.sleep(0), 50)
asyncio.run(main())
import socket, select, selectors
a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1), len(select.select([], [a], [], 0)[1]))
socket.send_fds(a, [b'f'], [1]); print(len(socket.recv_fds(b, 10, 1)[1]), socket.socket(fileno=b.detach()).type == socket.SOCK_STREAM)
poll = select.poll(); poll.register(a); poll.poll(0); a.shutdown(1)
";
    works(Profile::Python, python(code), "(b'x\\n', None) 3\nb'x' 1\n1 True\n");
}

#[test]
fn files_archives_and_databases() {
    let code = "
import tempfile, os, shutil, pathlib, mmap, sqlite3, zipfile, tarfile, fcntl
with tempfile.TemporaryDirectory() as top:
    d = pathlib.Path(top) / 'a'; d.mkdir(); (d / 'f').write_text('x' * 100000)
    shutil.copy2(d / 'f', d / 'g'); shutil.copytree(d, pathlib.Path(top) / 'b'); shutil.move(d / 'g', d / 'h')
    os.symlink('f', d / 'l'); os.link(d / 'f', d / 'k'); os.chmod(d / 'f', 0o600); os.utime(d / 'f'); os.truncate(d / 'f', 10)
    os.replace(d / 'h', d / 'j'); print(sorted(os.listdir(d)), os.readlink(d / 'l'))
    with open(d / 'm', 'w+b') as f:
        f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); m[0] = 1; m.flush(); m.close()
        os.fsync(f.fileno()); os.fdatasync(f.fileno()); os.posix_fallocate(f.fileno(), 0, 9000)
        fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX); os.preadv(f.fileno(), [bytearray(1)], 0)
    db = sqlite3.connect(str(d / 'db')); db.execute('pragma journal_mode=wal'); db.execute('create table t(a)')
    db.execute('insert into t values(1)'); db.commit(); print(db.execute('select * from t').fetchall()); db.close()
    with tarfile.open(d / 't.tgz', 'w:gz') as t: t.add(d / 'f', 'f')
    with zipfile.ZipFile(d / 'z', 'w') as z: z.write(d / 'f')
    tarfile.open(d / 't.tgz').extractall(top); print(os.path.getsize(top + '/f'), shutil.disk_usage(top).total > 0)
    os.umask(0o22); os.chdir(top); os.makedirs('x/y'); os.removedirs('x/y')
    fd = os.open(top, os.O_RDONLY); os.fchdir(fd); os.close(fd)
    tempfile.TemporaryFile().close(); tempfile.NamedTemporaryFile().close(); os.close(os.memfd_create('x'))
";
    works(Profile::Python, python(code), "['f', 'j', 'k', 'l'] f\n[(1,)]\n10 True\n");
}

#[test]
fn questions_about_itself() {
    let code = "
import os, time, resource, platform, faulthandler, pwd, tracemalloc
print(time.process_time() >= 0, time.thread_time() >= 0, time.get_clock_info('monotonic').resolution > 0)
print(len(os.sched_getaffinity(0)) > 0, resource.getrusage(0).ru_maxrss > 0, os.times().user >= 0, os.getgroups() != None)
print(pwd.getpwuid(os.getuid()).pw_name, os.getpriority(0, 0) <= 19, platform.system())
os.sched_yield(); resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.kill(os.getpid(), 0); os.getpgrp()
faulthandler.enable(); faulthandler.dump_traceback_later(50); faulthandler.cancel_dump_traceback_later(); tracemalloc.start()
";
    works(Profile::Python, python(code), "True True True\nTrue True True True\nguild True Linux\n");
}

#[test]
fn pipelines_of_a_shell() {
    let script = r#"
set -e; d=$(mktemp -d); cd $d
seq 1 1000 | sort -rn | awk '{s+=$1} END{print s}'
find / -maxdepth 1 -type d -name usr | xargs -n2 echo
echo hi > a; cp -p a b; mv b c; ln -s a l; ln a h; rm h; mkdir -p x/y; touch -d 2020-01-01 a; chmod 600 a
cat a c | tr a-z A-Z | tee z | sed s/H/J/
tar czf t.tgz a c; tar xzf t.tgz; gzip -k c; cmp a l; ls -la > list; stat a > list; du -s . > list; df . > list
sleep 0.01 & wait; (exit 3) || echo $?; trap 'echo trapped' USR1; kill -USR1 $$
dd if=/dev/zero of=q bs=1k count=4 2> list; wc -c < q; realpath l > list; nproc > list; id -u
printf 'a\nb\n' | while read line; do echo "<$line>"; done; cd /; rm -rf $d
"#;
    let expected = "500500\n/usr\nJI\nJI\n3\ntrapped\n4096\n1000\n<a>\n<b>\n";
    works(Profile::Python, shell(script), expected);
    works(Profile::Python, Spec::new(["bash", "-c", script], limits()), expected);
}

/// What is not needed is not there, and whoever tries it is told so, not accused.
#[test]
fn what_no_program_needed_fails() {
    let code = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name in ('inotify_init1', 'timerfd_create', 'mlock', 'splice', 'signalfd'):
    print(getattr(libc, name)(0, 0, 0, 0, 0, 0), ctypes.get_errno())
";
    works(Profile::Python, python(code), &"-1 1\n".repeat(5));
}
