//! Sandboxes of another make, and none at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testbed::bench::Watch;

/// A command that runs `/bin/true`, or another program, somewhere.
pub(crate) struct Other {
    pub(crate) name: &'static str,
    words: Vec<String>,
    /// It takes part in one of so many turns: some are slow.
    pub(crate) every: usize,
}

impl Other {
    fn new(name: &'static str, every: usize, words: &[&str]) -> Other {
        Other { name, words: words.iter().map(|word| (*word).to_owned()).collect(), every }
    }

    /// The program without a sandbox.
    pub(crate) fn bare(words: &[&str]) -> Other {
        Other::new("bare", 1, words)
    }

    /// Every namespace, a read-only `/usr`, a tmpfs; no filter of system calls, no cgroup.
    pub(crate) fn bwrap() -> Other {
        let words = "bwrap --unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin \
                     --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp \
                     --chdir /tmp /bin/true";
        Other::new("bwrap", 1, &words.split_whitespace().collect::<Vec<_>>())
    }

    /// Whatever works on this host, and a word about whatever does not.
    pub(crate) fn all(directory: &Path) -> (Vec<Other>, String) {
        let candidates = [Ok(Other::bwrap()), runc(directory), podman(directory)];
        let mut skipped = String::new();
        let mut working = Vec::new();
        for candidate in candidates {
            match candidate.and_then(|other| other.run().map(|_| other)) {
                Ok(other) => working.push(other),
                Err(why) => skipped += &format!("; skipped {why}"),
            }
        }
        (working, skipped)
    }

    /// Runs it once; how long that took, in milliseconds.
    pub(crate) fn run(&self) -> Result<f64, String> {
        let [program, arguments @ ..] = self.words.as_slice() else { return Ok(0.0) };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let watch = Watch::start();
        let output = command.output().map_err(|e| format!("{}: {e}", self.name))?;
        let ms = watch.elapsed().as_secs_f64() * 1_000.0;
        if output.status.success() {
            return Ok(ms);
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or_default().to_owned();
        Err(format!("{}: {last}", self.name))
    }
}

/// A root of nothing but the host's `/usr`, as an image has it.
fn root(directory: &Path) -> Result<PathBuf, String> {
    let root = directory.join("root");
    let said = |e: std::io::Error| e.to_string();
    for name in ["usr", "proc", "dev", "tmp", "sys"] {
        fs::create_dir_all(root.join(name)).map_err(said)?;
    }
    for name in ["bin", "lib", "lib64"] {
        let link = root.join(name);
        if !link.exists() && fs::symlink_metadata(&link).is_err() {
            std::os::unix::fs::symlink(format!("usr/{name}"), link).map_err(said)?;
        }
    }
    Ok(root)
}

fn runc(directory: &Path) -> Result<Other, String> {
    let said = |e: std::io::Error| format!("runc: {e}");
    root(directory)?;
    let mount = |kind: &str, at: &str, options: &str| {
        format!(
            r#"{{"destination":"{at}","type":"{kind}","source":"{kind}","options":[{options}]}}"#
        )
    };
    let mounts = [
        mount("proc", "/proc", ""),
        mount("tmpfs", "/dev", r#""nosuid","mode=755""#),
        r#"{"destination":"/usr","type":"bind","source":"/usr","options":["rbind","ro"]}"#
            .to_owned(),
        mount("tmpfs", "/tmp", r#""nosuid","nodev""#),
    ];
    let namespaces =
        ["pid", "network", "ipc", "uts", "mount"].map(|n| format!(r#"{{"type":"{n}"}}"#));
    let config = format!(
        r#"{{"ociVersion":"1.0.2","process":{{"user":{{"uid":65534,"gid":65534}},"args":["/bin/true"],
        "env":["PATH=/usr/bin"],"cwd":"/","noNewPrivileges":true}},"root":{{"path":"root","readonly":true}},
        "mounts":[{}],"linux":{{"namespaces":[{}],
        "resources":{{"memory":{{"limit":4294967296}},"pids":{{"limit":100}}}}}}}}"#,
        mounts.join(","),
        namespaces.join(",")
    );
    fs::write(directory.join("config.json"), config).map_err(said)?;
    let bundle = directory.display().to_string();
    let id = format!("guild-bench-{}", std::process::id());
    Ok(Other::new("runc", 3, &["runc", "run", "--bundle", &bundle, &id]))
}

/// A container of a root directory: no image store takes part.
fn podman(directory: &Path) -> Result<Other, String> {
    let root = root(directory)?.display().to_string();
    let words = "podman --runtime runc --cgroup-manager cgroupfs run --rm --network none --ulimit nofile=1024:1024 \
                 --ulimit nproc=1024:1024 --volume /usr:/usr:ro --rootfs";
    let words: Vec<_> = words.split_whitespace().chain([root.as_str(), "/bin/true"]).collect();
    Ok(Other::new("podman", 20, &words))
}
