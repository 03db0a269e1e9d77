//! AppArmor and SELinux, where the host has one of them: a program is executed under a profile that the administrator
//! has loaded. Whether that is so is read from the kernel; the profile itself is applied by the last `exec`.

use std::fs::read_to_string;

use serde::{Deserialize, Serialize};

use crate::host::Found;
use crate::outcome::Standing;

/// Which of them the kernel runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Module {
    /// Profiles have names.
    AppArmor,
    /// Profiles are contexts.
    SeLinux,
}

impl Module {
    fn name(self) -> &'static str {
        match self {
            Module::AppArmor => "AppArmor",
            Module::SeLinux => "SELinux",
        }
    }

    /// Where a process asks for a profile from its next program on; older kernels have only the last.
    pub(crate) fn files(self) -> &'static [&'static str] {
        match self {
            Module::AppArmor => &["/proc/self/attr/apparmor/exec", "/proc/self/attr/exec"],
            Module::SeLinux => &["/proc/self/attr/exec"],
        }
    }

    /// What it writes there.
    pub(crate) fn request(self, profile: &str) -> String {
        match self {
            Module::AppArmor => format!("exec {profile}"),
            Module::SeLinux => profile.to_owned(),
        }
    }
}

/// What the kernel says about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mac {
    pub(crate) module: Option<Module>,
    /// The profiles that AppArmor has loaded; only root can read them.
    profiles: Option<String>,
    /// Whether SELinux refuses, or only tells.
    enforcing: bool,
}

impl Mac {
    /// Asks the kernel.
    pub(crate) fn look() -> Mac {
        let read = |path: &str| read_to_string(path).ok();
        Mac::decide(
            &read("/sys/kernel/security/lsm").unwrap_or_default(),
            read("/sys/module/apparmor/parameters/enabled").as_deref(),
            read("/sys/fs/selinux/enforce").as_deref(),
            read("/sys/kernel/security/apparmor/profiles"),
        )
    }

    /// The list of modules is not shown everywhere; each has a file of its own too.
    fn decide(
        modules: &str,
        apparmor: Option<&str>,
        selinux: Option<&str>,
        profiles: Option<String>,
    ) -> Mac {
        let listed = |name: &str| modules.trim().split(',').any(|module| module == name);
        let module = if listed("apparmor") || apparmor.is_some_and(|text| text.trim() == "Y") {
            Some(Module::AppArmor)
        } else if listed("selinux") || selinux.is_some() {
            Some(Module::SeLinux)
        } else {
            None
        };
        Mac { module, profiles, enforcing: selinux.is_some_and(|text| text.trim() == "1") }
    }

    /// How well a program under this profile is held.
    pub(crate) fn found(&self, profile: Option<&str>) -> Found {
        let found = |standing, found: String| Found { standing, found };
        let Some(module) = self.module else {
            return found(Standing::Absent, "neither AppArmor nor SELinux is active".to_owned());
        };
        let name = module.name();
        let Some(profile) = profile else {
            return found(Standing::Weaker, format!("{name} is active, without a profile of ours"));
        };
        match (module, self.mode(profile)) {
            (Module::SeLinux, _) if self.enforcing => {
                found(Standing::Enforced, format!("{name} context {profile}"))
            }
            (Module::SeLinux, _) => found(Standing::Weaker, format!("{name} only tells")),
            (Module::AppArmor, Mode::Enforce) => {
                found(Standing::Enforced, format!("{name} profile {profile}"))
            }
            (Module::AppArmor, Mode::Other(mode)) => {
                found(Standing::Weaker, format!("{name} profile {profile} is in mode {mode}"))
            }
            (Module::AppArmor, Mode::NotLoaded) => {
                found(Standing::Absent, format!("{name} has no profile {profile}"))
            }
            (Module::AppArmor, Mode::Unknown) => {
                let why = format!("{name} profile {profile}, in a mode that only root can read");
                found(Standing::Weaker, why)
            }
        }
    }

    /// The mode of a loaded profile of AppArmor, written as in `name (enforce)`.
    fn mode(&self, profile: &str) -> Mode {
        let Some(profiles) = &self.profiles else { return Mode::Unknown };
        let mode = |line: &str| {
            line.strip_prefix(profile)?.strip_prefix(" (")?.strip_suffix(')').map(str::to_owned)
        };
        match profiles.lines().find_map(mode).as_deref() {
            Some("enforce") => Mode::Enforce,
            Some(other) => Mode::Other(other.to_owned()),
            None => Mode::NotLoaded,
        }
    }
}

enum Mode {
    Enforce,
    Other(String),
    NotLoaded,
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILES: &str =
        "guild-sandbox (enforce)\n/usr/bin/man (enforce)\nguild-other (complain)\n";

    #[test]
    fn the_module_is_found_wherever_the_kernel_shows_it() {
        let module = |lsm, apparmor, selinux| Mac::decide(lsm, apparmor, selinux, None).module;
        assert_eq!(
            module("capability,landlock,apparmor,bpf\n", None, None),
            Some(Module::AppArmor)
        );
        assert_eq!(module("", Some("Y\n"), None), Some(Module::AppArmor));
        assert_eq!(module("lockdown,capability,selinux", None, None), Some(Module::SeLinux));
        assert_eq!(module("", None, Some("0")), Some(Module::SeLinux));
        assert_eq!(module("capability,landlock", Some("N\n"), None), None);
        assert_eq!(module("", None, None), None);
    }

    #[test]
    fn only_a_profile_that_refuses_is_enforced() {
        let apparmor = |profiles: Option<&str>| {
            Mac::decide("apparmor", None, None, profiles.map(str::to_owned))
        };
        let says = |mac: &Mac, profile| {
            let Found { standing, found } = mac.found(profile);
            format!("{standing:?}: {found}")
        };
        let known = apparmor(Some(PROFILES));
        assert_eq!(says(&known, Some("guild-sandbox")), "Enforced: AppArmor profile guild-sandbox");
        assert_eq!(
            says(&known, Some("guild-other")),
            "Weaker: AppArmor profile guild-other is in mode complain"
        );
        assert_eq!(says(&known, Some("guild")), "Absent: AppArmor has no profile guild");
        assert_eq!(says(&known, None), "Weaker: AppArmor is active, without a profile of ours");
        assert_eq!(apparmor(None).found(Some("guild-sandbox")).standing, Standing::Weaker);
        let context = Some("system_u:system_r:guild_t:s0");
        let selinux =
            |enforce| Mac::decide("selinux", None, Some(enforce), None).found(context).standing;
        assert_eq!((selinux("1\n"), selinux("0")), (Standing::Enforced, Standing::Weaker));
        assert_eq!(Mac::default().found(context).standing, Standing::Absent);
    }

    #[test]
    fn a_request_is_written_as_each_reads_it() {
        assert_eq!(Module::AppArmor.request("guild-sandbox"), "exec guild-sandbox");
        assert_eq!(Module::SeLinux.request("a:b:c:s0"), "a:b:c:s0");
        for module in [Module::AppArmor, Module::SeLinux] {
            assert!(module.files().iter().all(|file| file.ends_with("exec")));
        }
    }
}
