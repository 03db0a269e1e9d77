//! What is run, what is refused before it runs, and who lies about it.

use std::collections::BTreeMap;

use guild_market::job::Refusal;
use guild_market::sandbox_run::{
    Artifact, Bounds, CommandRun, Plan, Printed, Ran, Status, output, pack,
};
use guild_market::verify::{
    Options, Rerun, Subject, Verdict, can_verify, differs, verify, verify_rerun,
};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::schema::{Job, Registry};
use guild_sandbox::{Image, Limits};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{key, provider};

const IMAGE: &str = "sha256:image";

fn bounds() -> Bounds {
    let limits = Limits { wall_ms: 300_000, cores_milli: 4_000, ..Limits::job() };
    Bounds { limits, images: [(IMAGE.to_owned(), Image::Host)].into() }
}

fn job(input: &Value) -> Job {
    let id = "oa.sandbox_run.v1".parse().unwrap();
    Registry::builtin().validate_input(&id, input).unwrap()
}

/// A job on this tree.
fn on_tree(tree: &str) -> Value {
    json!({
        "sandbox": {"image_digest": IMAGE}, "commands": [{"cmd": "make"}],
        "repo": {"source": "env:TREE"}, "env": {"TREE": tree},
    })
}

fn plan(input: &Value) -> Result<Plan, Refusal> {
    Plan::of(&job(input), &bounds())
}

/// The code and the words of a refusal.
fn refused(input: &Value) -> String {
    plan(input).unwrap_err().to_feedback()
}

#[test]
fn a_job_becomes_a_plan() {
    let plan = plan(&json!({
        "sandbox": {"image_digest": IMAGE, "resources": {"memory_mb": 64, "cpus": 0.5, "timeout_secs": 10, "disk_mb": 16}},
        "repo": {"source": "env:TREE,MORE", "mount_path": "/workspace/app/"},
        "commands": [{"cmd": "make"}, {"cmd": "make test", "workdir": "./sub/dir", "continue_on_fail": true}],
        "env": {
            "TREE": r#"{"b.sh": {"text": "true", "executable": true}, "a/x": "hello"}"#,
            "MORE": r#"{"bin": {"hex": "00ff"}}"#, "MODE": "fast", "TZ": "CET",
        },
    }))
    .unwrap();
    let files: Vec<_> =
        plan.files.iter().map(|f| (f.at.as_str(), f.executable, f.bytes.as_slice())).collect();
    assert_eq!(
        files,
        [
            ("/workspace/app/a/x", false, b"hello".as_slice()),
            ("/workspace/app/b.sh", true, b"true"),
            ("/workspace/app/bin", false, &[0, 255]),
        ]
    );
    let cwds: Vec<_> = plan.commands.iter().map(|c| (c.cwd.as_str(), c.continue_on_fail)).collect();
    assert_eq!(cwds, [("/workspace/app", false), ("/workspace/app/sub/dir", true)]);
    let limits = plan.limits;
    assert_eq!((limits.cores_milli, limits.wall_ms), (500, 10_000));
    assert_eq!((limits.disk_bytes, limits.memory_hard_bytes), (16 << 20, 80 << 20));
    let names: Vec<&str> = plan.env.keys().map(String::as_str).collect();
    let wanted = ["HOME", "LANG", "MODE", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED"];
    assert_eq!(names, [&wanted[..], &["SOURCE_DATE_EPOCH", "TZ"]].concat(), "no TREE, no MORE");
    assert_eq!(plan.env["TZ"], "CET", "the job's own variables win");
}

#[test]
fn what_the_node_does_not_give_is_refused_before_it_runs() {
    let with = |resources: Value| {
        refused(&json!({
            "sandbox": {"image_digest": IMAGE, "resources": resources}, "commands": [{"cmd": "true"}],
        }))
    };
    for (resources, says) in [
        (
            json!({"memory_mb": 5_000}),
            "sandbox.resources.memory_mb: 5000 is more than is given, 4096",
        ),
        (json!({"cpus": 4.001}), "sandbox.resources.cpus: 5 is more than is given, 4"),
        (
            json!({"timeout_secs": 301}),
            "sandbox.resources.timeout_secs: 301 is more than is given, 300",
        ),
        (json!({"disk_mb": 4_294_967_295_u64}), "sandbox.resources.disk_mb: 4294967295 is more"),
    ] {
        let told = with(resources);
        assert!(told.starts_with(says) && told.ends_with("[market.limits_exceeded]"), "{told}");
    }
    let sandbox =
        |sandbox: Value| refused(&json!({"sandbox": sandbox, "commands": [{"cmd": "x"}]}));
    assert_eq!(
        sandbox(json!({"image_digest": "sha256:other"})),
        "\"sha256:other\" is not here; \"sha256:image\" is [market.image_unknown]"
    );
    assert_eq!(
        sandbox(json!({"image_digest": "sha256:\0\u{9b}"})),
        "\"sha256:\\0\\u{9b}\" is not here; \"sha256:image\" is [market.image_unknown]"
    );
    let env = refused(&json!({
        "sandbox": {"image_digest": IMAGE}, "commands": [{"cmd": "x"}],
        "repo": {"source": "env:A\0"}, "env": {"A\0": "no tree"},
    }));
    assert!(env.starts_with("env.A\\0: it is no tree"), "{env}");
    for policy in ["full", "localhost"] {
        let told = sandbox(json!({"image_digest": IMAGE, "network_policy": policy}));
        assert!(told.ends_with("[market.network_refused]"), "{told}");
    }
    for source in
        ["https://example.org/x.git", "/etc", "file:///etc", "git@example.org:x", "ipfs://x"]
    {
        let told = refused(&json!({
            "sandbox": {"image_digest": IMAGE}, "commands": [{"cmd": "x"}], "repo": {"source": source},
        }));
        assert!(told.ends_with("[market.source_refused]"), "{told}");
    }
}

#[test]
fn hostile_trees_are_refused() {
    for path in ["../x", "/etc/passwd", "a/../../x", "a//b", "./a", "", "a/", "a\\u0000b", ".."] {
        let told = refused(&on_tree(&format!("{{\"{path}\": \"x\"}}")));
        assert!(told.contains("is not a plain path below the tree"), "{path}: {told}");
        assert!(told.ends_with("[market.run_malformed]"), "{told}");
    }
    for (tree, says) in [
        ("", "it is no tree"),
        ("[]", "there must be an object"),
        (r#"{"a": "x", "a": "y"}"#, "it is no tree"),
        (r#"{"a": 1}"#, "a file is a text"),
        (r#"{"a": {"symlink": "/etc"}}"#, "a file is a text"),
        (r#"{"a": {"text": "x", "target": "/etc"}}"#, "a file is a text"),
        (r#"{"a": {"text": "x", "hex": "00"}}"#, "a file is a text"),
        (r#"{"a": {"hex": "0"}}"#, "a file is a text"),
        (r#"{"a": {"text": "x", "executable": "yes"}}"#, "a file is a text"),
        (r#"{"a": "x", "a/b": "y"}"#, "is below a file"),
    ] {
        let told = refused(&on_tree(tree));
        assert!(told.contains(says) && told.ends_with("[market.run_malformed]"), "{tree}: {told}");
    }
}

#[test]
fn a_tree_of_ten_thousand_files_is_refused() {
    let part = |n: usize| {
        let files: BTreeMap<String, &str> = (0..2_500).map(|i| (format!("{n}{i}"), "")).collect();
        json!(files).to_string()
    };
    let told = refused(&json!({
        "sandbox": {"image_digest": IMAGE}, "commands": [{"cmd": "x"}],
        "repo": {"source": "env:A,B,C,D"},
        "env": {"A": part(1), "B": part(2), "C": part(3), "D": part(4)},
    }));
    assert!(told.contains("10000 files are more than fit"), "{told}");
}

#[test]
fn a_tree_larger_than_its_disk_is_refused() {
    let mut input = on_tree(&json!({"a": "x".repeat(30_000)}).to_string());
    input["env"]["MORE"] = json!(json!({"b": "x".repeat(30_000)}).to_string());
    input["repo"]["source"] = json!("env:TREE,MORE");
    let small = Bounds { limits: Limits { disk_bytes: 1 << 20, ..bounds().limits }, ..bounds() };
    assert!(Plan::of(&job(&input), &small).is_ok());
    let words =
        "repo.source: it names a variable that is not in env, or twice [market.run_malformed]";
    for source in ["env:", "env:OTHER", "env:TREE,TREE", "env:TREE,,MORE"] {
        input["repo"]["source"] = json!(source);
        assert_eq!(refused(&input), words);
    }
}

#[test]
fn hostile_commands_are_refused() {
    let told = |command: Value| {
        refused(
            &json!({"sandbox": {"image_digest": IMAGE}, "commands": [{"cmd": "true"}, command]}),
        )
    };
    for cmd in [" ", "\n\t", "a\0b"] {
        assert!(told(json!({"cmd": cmd})).starts_with("commands[1].cmd: there is no command"));
    }
    for workdir in ["/", "/tmp", "..", "a/../..", "a//b", "a\0"] {
        let told = told(json!({"cmd": "x", "workdir": workdir}));
        assert!(told.starts_with("commands[1].workdir: it must be a plain path"), "{told}");
    }
    for mount in ["/", "/tmp", "/workspace/../etc", "/workspacex", "workspace", "/workspace//a"] {
        let told = refused(&json!({
            "sandbox": {"image_digest": IMAGE}, "commands": [{"cmd": "x"}], "repo": {"mount_path": mount},
        }));
        assert!(told.starts_with("repo.mount_path: it must be /workspace"), "{told}");
    }
    for name in ["", "A=B", "A\0"] {
        let told = refused(&json!({
            "sandbox": {"image_digest": IMAGE}, "commands": [{"cmd": "x"}], "env": {name: "x"},
        }));
        assert!(told.contains("cannot be a variable"), "{told}");
    }
    // A flood of commands is refused by the schema.
    let id = "oa.sandbox_run.v1".parse().unwrap();
    let flood: Vec<Value> = (0..257).map(|_| json!({"cmd": "x"})).collect();
    for commands in [json!(flood), json!([])] {
        let input = json!({"sandbox": {"image_digest": IMAGE}, "commands": commands});
        assert!(Registry::builtin().validate_input(&id, &input).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_survives_its_journey(
        tree in prop::collection::btree_map(
            "[a-z]{1,8}(/[A-Z.]{3,8}){0,2}",
            (any::<bool>(), prop::collection::vec(any::<u8>(), 0..3_000)),
            0..40,
        ),
    ) {
        let below = |path: &String| path.match_indices('/').any(|(at, _)| tree.contains_key(&path[..at]));
        prop_assume!(!tree.keys().any(below));
        let files = tree.iter().map(|(path, (executable, bytes))| (path.clone(), *executable, bytes.clone()));
        let (source, env) = pack(files).unwrap();
        let input = json!({
            "sandbox": {"image_digest": IMAGE}, "commands": [{"cmd": "x"}],
            "repo": {"source": source}, "env": env,
        });
        let there: BTreeMap<String, (bool, Vec<u8>)> = plan(&input).unwrap().files.into_iter()
            .map(|f| (f.at["/workspace/".len()..].to_owned(), (f.executable, f.bytes))).collect();
        prop_assert_eq!(there, tree);
    }
}

#[test]
fn a_file_that_fits_into_no_variable_cannot_be_packed() {
    assert!(pack([("a".to_owned(), false, vec![b'x'; 40_000])]).is_none());
    assert!(pack([]).is_some());
}

fn work() -> Job {
    job(
        &json!({"sandbox": {"image_digest": IMAGE}, "commands": [{"cmd": "make"}, {"cmd": "test"}]}),
    )
}

fn printed(text: &str) -> Printed {
    Printed { sha256: Hash::of(text.as_bytes()), head: text.as_bytes().to_vec() }
}

fn ran() -> Ran {
    let run = |cmd: &str, exit_code| CommandRun {
        cmd: cmd.to_owned(),
        exit_code,
        duration_ms: 5,
        stdout: printed("out"),
        stderr: printed(""),
    };
    let artifact = |path: &str, bytes: &str| Artifact {
        path: path.to_owned(),
        sha256: Hash::of(bytes.as_bytes()),
        size_bytes: u64::try_from(bytes.len()).unwrap(),
    };
    Ran {
        runs: vec![run("make", 0), run("test", 1)],
        artifacts: vec![artifact("/workspace/a", "A"), artifact("/workspace/b", "BB")],
        status: Status::Failed,
        error: None,
    }
}

fn claim() -> Value {
    let job = work();
    let plan = Plan::of(&job, &bounds()).unwrap();
    output(&job, &plan, &ran(), &provider().public_key())
}

fn judged(claim: &Value, reruns: &[Rerun]) -> Verdict {
    let (job, provider, text) = (work(), provider().public_key(), claim.to_string());
    let subject = Subject { job: &job, provider: &provider, output_text: &text };
    verify_rerun(&Registry::builtin(), &Options::default(), &subject, reruns).unwrap()
}

/// The codes and places of all problems.
fn found(verdict: &Verdict) -> Vec<(&'static str, String)> {
    let place = |at: Option<&String>| at.cloned().unwrap_or_default();
    verdict.checks.problems().map(|p| (p.code.name, place(p.field.as_ref()))).collect()
}

/// A lie is caught at this place, and not by one run alone.
fn caught(at: &str, lie: impl Fn(&mut Value)) {
    let mut claim = claim();
    lie(&mut claim);
    let verdict = judged(&claim, &[Ok(ran()), Ok(ran())]);
    assert!(!verdict.passed);
    let places: Vec<String> = found(&verdict).into_iter().map(|(_, at)| at).collect();
    assert!(places.contains(&at.to_owned()), "{at}: {places:?}");
    assert!(found(&verdict).iter().all(|(code, _)| *code == "market.output_differs"));
    let once = judged(&claim, &[Ok(ran())]);
    assert_eq!((once.passed, found(&once)[0].0), (false, "market.unverifiable"));
}

#[test]
fn an_honest_result_passes() {
    let verdict = judged(&claim(), &[Ok(ran())]);
    assert!(verdict.passed, "{}", verdict.checks);
    // What honest providers may differ in does not matter.
    let mut claim = claim();
    claim["runs"][0]["duration_ms"] = json!(77);
    claim["runs"][0]["stdout_sha256"] = json!(Hash::of(b"other"));
    claim["env_info"]["hostname"] = json!("elsewhere");
    claim["artifacts"].as_array_mut().unwrap().reverse();
    assert!(judged(&claim, &[Ok(ran())]).passed);
}

/// A host that is too slow, or too busy, proves nothing.
#[test]
fn runs_that_are_not_done_in_time_blame_nobody() {
    let late = || Ran { artifacts: Vec::new(), status: Status::Timeout, ..ran() };
    let error = Some("the commands computed too long".to_owned());
    let tired = || Ran { status: Status::Error, error: error.clone(), ..late() };
    let unverifiable = vec![("market.unverifiable", String::new())];
    for reruns in [[Ok(late()), Ok(late())], [Ok(tired()), Ok(tired())], [Ok(late()), Ok(ran())]] {
        let mut claim = claim();
        claim["status"] = json!("success");
        let verdict = judged(&claim, &reruns);
        assert!(!verdict.passed && found(&verdict) == unverifiable, "{}", verdict.checks);
    }
    // One that was in time counts, whatever the other did; and a limit of memory is the same everywhere.
    assert!(judged(&claim(), &[Ok(late()), Ok(ran())]).passed);
    let full = Some("the commands needed too much memory".to_owned());
    let large = || Ran { status: Status::Error, error: full.clone(), ..late() };
    let verdict = judged(&claim(), &[Ok(large()), Ok(large())]);
    assert!(found(&verdict).iter().all(|(code, _)| *code == "market.output_differs"));
}

#[test]
fn a_lie_about_an_exit_code_is_caught() {
    caught("runs[1].exit_code", |claim| claim["runs"][1]["exit_code"] = json!(0));
}

#[test]
fn a_lie_about_the_status_is_caught() {
    caught("status", |claim| claim["status"] = json!("success"));
}

#[test]
fn a_lie_about_the_bytes_of_an_artifact_is_caught() {
    caught("artifacts[1].sha256", |c| c["artifacts"][1]["sha256"] = json!(Hash::of(b"forged")));
}

#[test]
fn a_lie_about_the_size_of_an_artifact_is_caught() {
    caught("artifacts[0].size_bytes", |claim| claim["artifacts"][0]["size_bytes"] = json!(9));
}

#[test]
fn a_lie_about_the_path_of_an_artifact_is_caught() {
    caught("artifacts[0].path", |claim| claim["artifacts"][0]["path"] = json!("/workspace/c"));
}

#[test]
fn an_artifact_that_was_never_made_is_caught() {
    caught("artifacts[2].path", |claim| {
        let made = json!({"path": "/workspace/c", "sha256": Hash::of(b"c"), "size_bytes": 1});
        claim["artifacts"].as_array_mut().unwrap().push(made);
    });
}

#[test]
fn an_artifact_that_is_kept_back_is_caught() {
    caught("artifacts", |claim| {
        claim["artifacts"].as_array_mut().unwrap().pop();
    });
}

#[test]
fn an_artifact_that_is_named_twice_is_caught() {
    caught("artifacts[2].path", |claim| {
        let first = claim["artifacts"][0].clone();
        claim["artifacts"].as_array_mut().unwrap().push(first);
    });
}

#[test]
fn a_lie_about_the_command_is_caught() {
    caught("runs[0].cmd", |claim| claim["runs"][0]["cmd"] = json!("true"));
}

#[test]
fn a_command_that_was_left_out_is_caught() {
    caught("runs", |claim| {
        claim["runs"].as_array_mut().unwrap().pop();
    });
}

#[test]
fn a_lie_about_the_image_is_caught() {
    caught("env_info.image_digest", |c| c["env_info"]["image_digest"] = json!("sha256:better"));
}

#[test]
fn a_lie_about_who_did_it_or_what_was_answered_is_caught() {
    for (detail, lie) in [
        ("provider_id", json!(key(3).public_key().npub())),
        ("input_sha256", json!(Hash::of(b"x"))),
        ("output_sha256", json!(Hash::of(b"x"))),
    ] {
        let mut claim = claim();
        claim["provenance"][detail] = lie;
        let verdict = judged(&claim, &[Ok(ran())]);
        assert_eq!(found(&verdict), [("market.provenance_wrong", format!("provenance.{detail}"))]);
    }
}

/// A run that another cannot repeat says nothing about whoever else ran it.
#[test]
fn a_flaky_program_blames_nobody() {
    let mut other = ran();
    other.runs[1].exit_code = 0;
    let mut third = ran();
    third.artifacts.pop();
    let verdict = judged(&claim(), &[Ok(other.clone()), Ok(third)]);
    assert_eq!((verdict.passed, found(&verdict)[0].0), (false, "market.unverifiable"));
    // One that gives, once, what the provider says is enough.
    assert!(judged(&claim(), &[Ok(other), Ok(ran())]).passed);
}

#[test]
fn what_was_not_run_again_is_not_passed_and_nobody_is_blamed() {
    let refusal =
        plan(&json!({"sandbox": {"image_digest": "sha256:gone"}, "commands": [{"cmd": "x"}]}));
    for reruns in [vec![], vec![Err(refusal.unwrap_err())]] {
        let verdict = judged(&claim(), &reruns);
        assert_eq!((verdict.passed, found(&verdict)[0].0), (false, "market.unverifiable"));
    }
    let (job, provider, text) = (work(), provider().public_key(), claim().to_string());
    let subject = Subject { job: &job, provider: &provider, output_text: &text };
    assert!(!verify(&Registry::builtin(), &Options::default(), &subject).unwrap().passed);
}

/// What could never be accepted is known before anybody works for it.
#[test]
fn work_that_cannot_be_run_again_is_not_ordered() {
    let told = |job: &Job, bounds: Option<&Bounds>| {
        can_verify(job, bounds).map_err(|e| (e.code().name, e.to_string()))
    };
    assert_eq!(told(&work(), Some(&bounds())), Ok(()));
    let (code, words) = told(&work(), None).unwrap_err();
    assert_eq!(
        (code, words.as_str()),
        ("market.unverifiable", "no sandbox can be started here to run it again")
    );
    let none = Bounds { images: BTreeMap::new(), ..bounds() };
    assert_eq!(told(&work(), Some(&none)).unwrap_err().1, "there is no image here");
}

/// The same runs give the same verdict, byte for byte, whatever else was printed or how long it took.
#[test]
fn a_verdict_does_not_depend_on_the_day() {
    let mut slow = ran();
    slow.runs[0].duration_ms = 99_999;
    slow.runs[0].stdout = printed("another day");
    let mut lie = claim();
    lie["status"] = json!("success");
    for claim in [claim(), lie] {
        let a = judged(&claim, &[Ok(ran()), Ok(ran())]);
        let b = judged(&claim, &[Ok(slow.clone()), Ok(slow.clone())]);
        assert_eq!((a.verdict_hash, a.document), (b.verdict_hash, b.document));
    }
    let read = Registry::builtin()
        .validate_output_text(work().schema_id(), claim().to_string().as_bytes());
    assert!(!differs(&work(), &read.unwrap(), &slow));
}

/// However much was printed, a result has the form and the size that it must have.
#[test]
fn previews_leave_room() {
    let commands: Vec<Value> = (0..256).map(|i| json!({"cmd": format!("echo {i}")})).collect();
    let job = job(&json!({"sandbox": {"image_digest": IMAGE}, "commands": commands}));
    let plan = Plan::of(&job, &bounds()).unwrap();
    let mut ran = ran();
    let loud = CommandRun {
        stdout: Printed { sha256: Hash::of(b""), head: vec![1; 60_000] },
        stderr: Printed { sha256: Hash::of(b""), head: vec![0xf0; 60_000] },
        ..ran.runs[0].clone()
    };
    ran.runs = (0..256).map(|i| CommandRun { cmd: format!("echo {i}"), ..loud.clone() }).collect();
    ran.artifacts = Vec::new();
    let output = output(&job, &plan, &ran, &provider().public_key());
    Registry::builtin().validate_output(job.schema_id(), &output).unwrap();
    let bytes = guild_protocol::json::to_canonical(&output).unwrap().len();
    assert!(bytes <= guild_market::sandbox_run::frame_bytes(&job), "{bytes}");
}
