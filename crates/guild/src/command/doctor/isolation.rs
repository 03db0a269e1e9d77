//! What keeps a stranger's code inside its box. Each check reads what the kernel says about itself.

use std::fs::read_to_string;
use std::path::Path;

use guild_sandbox::{Host, Layer, Limits, Sandbox, Spec, Standing};

use super::Check;
use crate::config::{Backend, Config, Environment};
use crate::error::{Error, Result};
use crate::sandbox;

/// What to do about a layer that is not there.
const ADVICE: [(Layer, &str); 9] = [
    (Layer::Namespaces, "Use a Linux kernel with namespaces of every kind."),
    (Layer::Seccomp, "Use a Linux kernel with CONFIG_SECCOMP_FILTER."),
    (
        Layer::SeccompNotify,
        "Use Linux 5.0 or later: until then a forbidden call kills without a name.",
    ),
    (Layer::Landlock, "Boot with landlock in the lsm= list."),
    (Layer::CgroupMemory, CGROUP),
    (Layer::CgroupPids, CGROUP),
    (Layer::CgroupCpu, CGROUP),
    (Layer::CgroupFreeze, CGROUP),
    (
        Layer::Mac,
        "Nothing depends on it; landlock does the same. To use it, load a profile and name it in sandbox.mac_profile.",
    ),
];

const CGROUP: &str =
    "Run guild as root, or let systemd delegate cpu, memory and pids to the user that runs it.";

/// Runtimes that are looked for, and what they are for.
const RUNTIMES: [(&str, &str); 3] = [
    ("runc", "Install it to let an OCI runtime make the sandboxes."),
    ("runsc", "Install gVisor to put a second kernel between a sandbox and this host."),
    ("crun", "Nothing depends on it; it does the same as runc."),
];
/// How long a runtime may take to say its version.
const VERSION_WITHIN_MS: u64 = 2_000;

pub(super) fn checks(config: &Config, environment: &Environment) -> Vec<Check> {
    let opened = sandbox::open(config, environment);
    // Of the sandbox that is used, if there is one.
    let probed = Host::probe();
    let host = opened.as_ref().map_or(&probed, |sandbox| sandbox.host());
    let layer = |(layer, advice): (Layer, &'static str)| {
        let found = host.layers.get(&layer).map(|found| found.found.clone()).unwrap_or_default();
        let here = probed.standing(layer) == Standing::Enforced;
        let advice = if here { "The backend ns has it." } else { advice };
        match host.standing(layer) {
            Standing::Enforced => Check::ok(layer.name(), found),
            Standing::Weaker => Check::weaker(layer.name(), found, advice),
            Standing::Absent => Check::missing(layer.name(), found, advice),
        }
    };
    let mut checks = vec![user_namespaces(Path::new("/proc/sys"))];
    checks.extend(ADVICE.map(layer));
    checks.push(backend(config, &opened));
    checks.push(match &opened {
        Ok(sandbox) => trial(&**sandbox),
        Err(error) => fails("a sandbox", error),
    });
    checks.extend(RUNTIMES.map(|(name, advice)| runtime(name, advice, environment)));
    checks
}

/// Who makes the sandboxes, as the settings say.
fn backend(config: &Config, opened: &Result<std::sync::Arc<dyn Sandbox>>) -> Check {
    let settings = &config.sandbox;
    let found = match settings.backend {
        Backend::Ns => "ns: the launcher in this program".to_owned(),
        Backend::Oci => {
            format!("oci: {} {}", settings.runtime, settings.platform).trim().to_owned()
        }
    };
    match opened {
        Ok(_) => Check::ok("backend", found),
        Err(error) => {
            Check::missing("backend", format!("{found}; it cannot be used"), error.remedy())
        }
    }
}

/// Whether a runtime is there and answers. Only the one that is used is tried.
fn runtime(name: &'static str, advice: &'static str, environment: &Environment) -> Check {
    let Some(path) = sandbox::runtime(name, environment) else {
        return Check::missing(name, "not on PATH", advice);
    };
    match guild_sandbox::Version::of(&path, VERSION_WITHIN_MS) {
        Ok(version) => Check::ok(name, format!("{}, {}", path.display(), version.0)),
        Err(error) => Check::weaker(name, error.to_string(), error.code().remedy),
    }
}

fn fails(name: &'static str, error: &Error) -> Check {
    Check::missing(name, error.to_string(), error.remedy())
}

/// The proof of all the others: something runs.
fn trial(sandbox: &dyn Sandbox) -> Check {
    let name = "a sandbox";
    let spec = Spec::new(["true"], Limits::judge());
    match sandbox.start(&spec).and_then(guild_sandbox::Running::wait) {
        Ok(outcome) if outcome.succeeded() => {
            let weaker =
                |report: &&guild_sandbox::LimitReport| report.standing != Standing::Enforced;
            match outcome.limits.values().filter(weaker).count() {
                0 => Check::ok(name, "runs, with every limit enforced"),
                some => {
                    let advice = "`guild sandbox run -- true` names them.";
                    Check::weaker(name, format!("runs, with {some} limits weaker"), advice)
                }
            }
        }
        Ok(outcome) => {
            Check::missing(name, format!("ran, but ended as {:?}", outcome.class), "See above.")
        }
        Err(error) => fails(name, &Error::from(error)),
    }
}

fn user_namespaces(sys: &Path) -> Check {
    let name = "user namespaces";
    let number = |path: &str| read_to_string(sys.join(path)).ok()?.trim().parse::<i64>().ok();
    let Some(most) = number("user/max_user_namespaces") else {
        let advice = "Use a Linux kernel with CONFIG_USER_NS, or a Podman host.";
        return Check::missing(name, "the kernel has none", advice);
    };
    if most == 0 {
        let advice = "Run `sysctl user.max_user_namespaces=15000` as root.";
        return Check::missing(name, "switched off: user.max_user_namespaces is 0", advice);
    }
    if number("kernel/unprivileged_userns_clone") == Some(0) {
        let advice = "Run `sysctl kernel.unprivileged_userns_clone=1` as root.";
        return Check::missing(
            name,
            "kept for root: kernel.unprivileged_userns_clone is 0",
            advice,
        );
    }
    if number("kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        let advice = "Give guild an AppArmor profile with `userns,`, or run \
                      `sysctl kernel.apparmor_restrict_unprivileged_userns=0` as root.";
        return Check::weaker(name, "restricted by AppArmor", advice);
    }
    Check::ok(name, format!("up to {most}"))
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn every_switch_that_forbids_user_namespaces_is_seen() {
        let sys = tempfile::tempdir().unwrap();
        let set = |path: &str, value: &str| {
            let path = sys.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, value).unwrap();
        };
        assert_eq!(user_namespaces(sys.path()).status, Status::Missing);
        set("user/max_user_namespaces", "0\n");
        assert_eq!(user_namespaces(sys.path()).status, Status::Missing);
        set("user/max_user_namespaces", "15000\n");
        assert_eq!(user_namespaces(sys.path()).status, Status::Ok);
        set("kernel/apparmor_restrict_unprivileged_userns", "1\n");
        assert_eq!(user_namespaces(sys.path()).status, Status::Weaker);
        set("kernel/unprivileged_userns_clone", "0\n");
        assert_eq!(user_namespaces(sys.path()).status, Status::Missing);
    }
}
