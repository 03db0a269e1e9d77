//! Plain programs.

use guild_sandbox::{Bind, Class, Layer, Limit, Sandbox, Spec, Standing};

use super::support::{printed, python, run, sandbox, sandbox_without_cgroups, shell};

#[test]
fn a_program_runs_with_every_layer() {
    let collected = run(sandbox(), &shell("echo hello; echo oops >&2; exit 3"));
    let outcome = &collected.outcome;
    assert_eq!((outcome.class, outcome.exit_code), (Class::Exited, Some(3)));
    assert_eq!(
        (collected.stdout.as_slice(), collected.stderr.as_slice()),
        (&b"hello\n"[..], &b"oops\n"[..])
    );
    assert_eq!(outcome.usage.output_bytes, 11);
    for layer in [Layer::UserNamespace, Layer::Namespaces, Layer::Seccomp, Layer::SeccompNotify] {
        assert_eq!(outcome.layers[&layer], Standing::Enforced, "{layer}");
    }
    assert_eq!(outcome.limits.len(), Limit::ALL.len());
    assert!(outcome.flags.is_empty());
}

#[test]
fn usage_is_never_nothing() {
    for sandbox in [sandbox(), &sandbox_without_cgroups()] {
        let usage = run(sandbox, &shell("true")).outcome.usage;
        assert!(usage.wall_us > 0 && usage.cpu_us > 0 && usage.pids_peak >= 1, "{usage:?}");
        assert!(usage.memory_peak_bytes > 100_000, "{usage:?}");
    }
}

#[test]
fn python_runs() {
    let collected = run(
        sandbox(),
        &python(
            "import os, json, threading, subprocess\nprint(os.getuid(), os.getcwd(), sorted(os.environ), sorted(os.listdir('/')))",
        ),
    );
    assert!(collected.outcome.succeeded(), "{:?} {}", collected.outcome, printed(&collected));
    let expected = "1000 /workspace ['HOME', 'LANG', 'PATH', 'TZ'] ['bin', 'dev', 'etc', 'judge', 'lib', 'lib64', 'proc', 'sbin', 'tmp', 'usr', 'workspace']\n";
    assert_eq!(printed(&collected), expected);
}

/// Names begin with letters of any language, also right below the root.
#[test]
fn places_have_names_of_any_language() {
    let bind = Bind { host: "/usr/share".into(), at: "/é".to_owned(), writable: false };
    let spec =
        Spec { binds: vec![bind], ..shell("test -d /é/doc && cat /ключ /日本/ö/ä") };
    let spec = spec.file("/ключ", "one ").file("/日本/ö/ä", "two\n");
    assert_eq!(printed(&run(sandbox(), &spec)), "one two\n");
}

/// A layer is on only if it is there: that the host has no more cores is no cgroup.
#[test]
fn without_cgroups_none_of_their_layers_is_told() {
    let sandbox = sandbox_without_cgroups();
    let mut spec = shell("true");
    spec.limits.cores_milli = sandbox.host().cores_milli;
    let outcome = run(&sandbox, &spec).outcome;
    assert_eq!(outcome.limits[&Limit::Cores].standing, Standing::Enforced, "{outcome:?}");
    for layer in [Layer::CgroupMemory, Layer::CgroupPids, Layer::CgroupCpu, Layer::CgroupFreeze] {
        assert_eq!(outcome.layers[&layer], Standing::Absent, "{layer}");
    }
}

/// Files are part of the disk, once, and nobody keeps a second copy in the sandbox's memory.
#[test]
fn files_count_once() {
    let file_bytes = 12 << 20;
    for sandbox in [sandbox(), &sandbox_without_cgroups()] {
        let mut spec = shell("wc -c < /judge/large").file("/judge/large", vec![7; file_bytes]);
        spec.limits.memory_soft_bytes = 24 << 20;
        spec.limits.memory_hard_bytes = 24 << 20;
        let collected = run(sandbox, &spec);
        assert_eq!(printed(&collected), format!("{file_bytes}\n"), "{:?}", collected.outcome);
        let peak = collected.outcome.usage.memory_peak_bytes;
        assert!(peak < 20 << 20, "{peak}");
    }
}

/// Files that do not fit are the fault of the limit, which is named.
#[test]
fn files_that_do_not_fit_into_memory_are_refused() {
    if sandbox().host().standing(Layer::CgroupMemory) != Standing::Enforced {
        return;
    }
    let mut spec = shell("true").file("/judge/large", vec![7; 16 << 20]);
    spec.limits.memory_soft_bytes = 16 << 20;
    spec.limits.memory_hard_bytes = 16 << 20;
    let error = sandbox().start(&spec).unwrap_err();
    assert_eq!(error.code().name, "sandbox.bad_limit", "{error}");
    assert!(error.to_string().starts_with("limits.memory_hard_bytes: "), "{error}");
}

/// Whatever keeps init from taking the files is what is told, not that it does not listen any more.
#[test]
fn what_is_wrong_beside_large_files_is_named() {
    let bind = Bind { host: "/usr".into(), at: "/usr/new".to_owned(), writable: false };
    let spec = shell("true").file("/judge/large", vec![7; 12 << 20]);
    let error = sandbox().start(&Spec { binds: vec![bind], ..spec.clone() }).unwrap_err();
    assert!(error.to_string().starts_with("binds.at: "), "{error}");
    let error = sandbox().start(&spec.file("/usr/new", vec![7; 1 << 20])).unwrap_err();
    assert!(error.to_string().starts_with("files.at: /usr/new: "), "{error}");
}

/// On a host without AppArmor and SELinux a profile changes nothing, and that is told. Elsewhere one that nobody has
/// loaded lets nothing run.
#[test]
fn a_profile_that_nobody_holds_is_told() {
    let spec = Spec { mac: Some("no-such-profile".to_owned()), ..shell("true") };
    let absent = sandbox().host().standing(Layer::Mac) == Standing::Absent;
    match sandbox().start(&spec) {
        Ok(running) => {
            let outcome = running.wait().unwrap();
            assert!(absent && outcome.layers[&Layer::Mac] == Standing::Absent, "{outcome:?}");
        }
        Err(error) => assert!(!absent && error.code().name == "sandbox.layer_missing", "{error}"),
    }
    let required = Spec { require: [Layer::Mac].into(), ..spec };
    let error = sandbox().start(&required).unwrap_err();
    assert!(error.to_string().starts_with("the layer mac is required, but "), "{error}");
}
