//! What keeps a stranger's code inside its box. Each check reads what the kernel says about itself.

use std::fs::read_to_string;
use std::path::Path;

use super::Check;

pub(super) fn checks() -> Vec<Check> {
    vec![user_namespaces(Path::new("/proc/sys")), cgroups(), landlock(), seccomp()]
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

fn cgroups() -> Check {
    let name = "cgroups";
    if let Ok(controllers) = read_to_string("/sys/fs/cgroup/cgroup.controllers") {
        let lacking: Vec<_> = ["cpu", "memory", "pids"]
            .into_iter()
            .filter(|wanted| !controllers.split_whitespace().any(|c| c == *wanted))
            .collect();
        return if lacking.is_empty() {
            Check::ok(name, "version 2 with cpu, memory and pids")
        } else {
            let found = format!("version 2 without {}", lacking.join(", "));
            Check::weaker(name, found, "Delegate these controllers to the user that runs guild.")
        };
    }
    if Path::new("/sys/fs/cgroup/memory").is_dir() {
        let advice = "Boot with systemd.unified_cgroup_hierarchy=1 for version 2.";
        return Check::weaker(name, "version 1", advice);
    }
    Check::missing(
        name,
        "none are mounted",
        "Mount cgroup2 at /sys/fs/cgroup; until then only per-process limits hold.",
    )
}

fn landlock() -> Check {
    let name = "landlock";
    match read_to_string("/sys/kernel/security/lsm") {
        Ok(modules) if modules.trim().split(',').any(|m| m == "landlock") => {
            Check::ok(name, "active")
        }
        Ok(_) => Check::missing(name, "not active", "Boot with landlock in the lsm= list."),
        Err(_) => {
            let advice = "Mount securityfs at /sys/kernel/security to find out.";
            Check::weaker(name, "unknown: the list of security modules cannot be read", advice)
        }
    }
}

fn seccomp() -> Check {
    let name = "seccomp";
    let advice = "Use a Linux kernel with CONFIG_SECCOMP_FILTER.";
    match read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) if actions.contains("user_notif") => {
            Check::ok(name, "filters, with notification")
        }
        Ok(_) => Check::weaker(name, "filters, without notification", "Use Linux 5.0 or later."),
        Err(_) => Check::missing(name, "no filters", advice),
    }
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
