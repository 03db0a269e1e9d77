//! Evidence of single pieces of work: written by a node, checked by somebody who has nothing but the directory.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::Home;

/// A demo that goes on, below a directory of its own.
struct Demo {
    home: Home,
    child: Child,
    told: Value,
}

impl Demo {
    fn start() -> Demo {
        let home = Home::new();
        let place = home.path().to_str().unwrap().to_owned();
        let home = home.with("TMPDIR", &place);
        let mut command = home.command(&["demo", "--keep", "--json"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Demo { home, child, told: serde_json::from_str(&line).unwrap() }
    }

    /// The data of the buyer.
    fn hall(&self) -> PathBuf {
        let entries = fs::read_dir(self.home.path()).unwrap().map(|entry| entry.unwrap().path());
        let is_ground = |path: &PathBuf| path.to_string_lossy().contains("guild-demo-");
        entries.into_iter().find(is_ground).unwrap().join("hall")
    }

    /// What the buyer says of the providers.
    fn reviews(&self) -> Vec<Value> {
        let url = format!("{}/api/reviews?limit=100", self.told["explorer"].as_str().unwrap());
        let listed: Value = ureq::get(url).call().unwrap().body_mut().read_json().unwrap();
        listed["reviews"].as_array().unwrap().clone()
    }

    fn export(&self, args: &[&str]) -> (i32, Value) {
        let hall = self.hall();
        let data = ["evidence", "export", "--data-dir", hall.to_str().unwrap()];
        self.home.json(&[&data, args].concat())
    }

    fn end(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

/// What somebody says who has a directory and nothing else.
fn audit(directory: &Path, more: &[&str]) -> (i32, Value) {
    let stranger = Home::new();
    let args = ["audit", "--evidence", directory.to_str().unwrap()];
    stranger.json(&[&args, more].concat())
}

fn codes(answer: &Value) -> Vec<&str> {
    let checks = answer["checks"].as_array().unwrap().iter();
    checks.filter_map(|check| check["code"].as_str()).collect()
}

#[test]
fn every_request_of_the_demo_checks_out_offline() {
    let demo = Demo::start();
    let evidence = &demo.told["evidence"];
    assert_eq!((&evidence["holds"], &evidence["problems"]), (&true.into(), &0.into()));
    let jobs = demo.told["jobs"].as_array().unwrap();
    assert!(evidence["requests"].as_u64().unwrap() >= jobs.len() as u64 + 9, "{evidence}");
    assert!(evidence["verdicts"].as_u64() >= evidence["receipts"].as_u64(), "{evidence}");
    let events = |review: &Value| review["events"].as_array().unwrap().len();
    let told: usize = demo.reviews().iter().map(events).sum();
    assert!(told > 0);
    assert_eq!(evidence["reviews"], told, "all that was said of the work is in its evidence");
    let mut written = Vec::new();
    for job in jobs {
        let id = job["request_id"].as_str().unwrap();
        let private = job["private"] == true;
        let to = demo.home.path().join(format!("out/{id}"));
        let to_text = to.to_str().unwrap();
        if private {
            let (code, answer) = demo.export(&[id, "--to", to_text]);
            assert_eq!((code, &answer["error"]["code"]), (2, &"dossier.private".into()));
            assert!(!to.exists());
        }
        let (code, answer) = demo.export(&[id, "--to", to_text, "--reveal-private"]);
        assert_eq!((code, &answer["private"]), (0, &private.into()), "{answer}");
        let (code, answer) = audit(&to, &["--rerun"]);
        assert_eq!((code, &answer["holds"]), (0, &true.into()), "{answer}");
        let about = answer["about"].as_str().unwrap();
        let several = job["verdict"].as_str().unwrap().contains("both");
        // The evidence of one replica is that of all.
        assert!(if several { about.starts_with("delegation_") } else { about == id }, "{answer}");
        assert_eq!(codes(&answer), Vec::<&str>::new());
        written.push(to);
    }
    whoever_changes_it_is_seen(&demo, &written[1]);
    both_in_one_directory(&demo, jobs[1]["request_id"].as_str().unwrap());
    as_one_file(&demo, jobs);
    // There is no such work, and nothing is written over what is there.
    let nobody = "77".repeat(32);
    let (code, answer) = demo.export(&[&nobody, "--to", "elsewhere"]);
    assert_eq!((code, &answer["error"]["code"]), (2, &"dossier.unknown".into()));
    let (code, answer) = demo.export(&[jobs[1]["request_id"].as_str().unwrap(), "--to", "out"]);
    assert_eq!((code, &answer["error"]["code"]), (2, &"io.exists".into()));
    demo.end();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap().path();
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            fs::copy(&entry, &target).unwrap();
        }
    }
}

/// The first file below a directory.
fn first(directory: &Path) -> PathBuf {
    let mut all: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all.remove(0)
}

fn whoever_changes_it_is_seen(demo: &Demo, good: &Path) {
    let changed = |name: &str, change: &dyn Fn(&Path)| {
        let to = demo.home.path().join("changed").join(name);
        copy(good, &to);
        change(&to);
        let (code, answer) = audit(&to, &[]);
        assert_eq!((code, &answer["holds"]), (1, &false.into()), "{name}: {answer}");
        answer
    };
    let byte = changed("byte", &|to| {
        let path = first(&to.join("receipts"));
        let mut bytes = fs::read(&path).unwrap();
        bytes[100] ^= 1;
        fs::write(&path, bytes).unwrap();
    });
    assert!(codes(&byte).contains(&"dossier.changed") && codes(&byte).contains(&"dossier.receipt"));
    let gone = changed("gone", &|to| fs::remove_file(first(&to.join("verdicts"))).unwrap());
    assert!(codes(&gone).contains(&"dossier.missing"), "{gone}");
    let link = changed("link", &|to| {
        let path = first(&to.join("replays"));
        let elsewhere = to.join("../elsewhere.jsonl");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
    });
    assert!(codes(&link).contains(&"dossier.file_not_plain"), "{link}");
    let behind = changed("behind", &|to| {
        fs::rename(to.join("events"), to.join("../events")).unwrap();
        symlink(to.join("../events"), to.join("events")).unwrap();
    });
    assert!(codes(&behind).contains(&"dossier.file_not_plain"), "{behind}");
    let long = changed("long", &|to| {
        let file = fs::File::options().write(true).open(first(&to.join("slices"))).unwrap();
        file.set_len(17 * 1_024 * 1_024).unwrap();
    });
    assert!(codes(&long).contains(&"dossier.file_too_large"), "{long}");
    let rubbish = changed("rubbish", &|to| fs::write(to.join("evidence.json"), "{\"a\":").unwrap());
    assert_eq!(codes(&rubbish), ["dossier.manifest"]);
    // What is beside it is named, and disturbs nothing.
    let more = demo.home.path().join("changed/more");
    copy(good, &more);
    fs::write(more.join("notes.txt"), "hello").unwrap();
    fs::write(more.join("events/notes.txt"), "hello").unwrap();
    let (code, answer) = audit(&more, &[]);
    assert_eq!(code, 0, "{answer}");
    assert_eq!(answer["not_checked"], serde_json::json!(["events/notes.txt", "notes.txt"]));
    // Without the file that names the others it is no evidence at all.
    fs::remove_file(more.join("evidence.json")).unwrap();
    assert_eq!(audit(&more, &[]).1["error"]["code"], "audit.no_ledger");
}

fn both_in_one_directory(demo: &Demo, id: &str) {
    let to = demo.home.path().join("both");
    let (code, answer) = demo.export(&[id, "--to", to.to_str().unwrap(), "--with-ledger"]);
    assert_eq!(code, 0, "{answer}");
    let (code, answer) = audit(&to, &[]);
    assert_eq!(code, 0, "{answer}");
    let (node, work) = (&answer["directories"][0], &answer["dossiers"][0]);
    assert_eq!((&node["holds"], &work["holds"]), (&true.into(), &true.into()));
    for part in [node, work] {
        assert_eq!(part["not_checked"], serde_json::json!([]));
    }
    let run = Home::new().run(&["audit", "--evidence", to.to_str().unwrap()]);
    assert!(run.stdout.contains("ledger.jsonl") && run.stdout.contains("ok           payment"));
    // A ledger that lies does not make the work wrong, and the answer is no all the same.
    let path = to.join("ledger.jsonl");
    let text = fs::read_to_string(&path).unwrap().replacen("order.paid", "order.gift", 1);
    fs::write(&path, text).unwrap();
    let (code, answer) = audit(&to, &[]);
    assert_eq!((code, &answer["dossiers"][0]["holds"]), (1, &true.into()));
}

/// The explorer gives the same files as one: to anybody, but for private work.
fn as_one_file(demo: &Demo, jobs: &[Value]) {
    let url = demo.told["explorer"].as_str().unwrap();
    let of = |job: &Value| {
        let id = job["request_id"].as_str().unwrap().to_owned();
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let path = format!("{url}/api/requests/{id}/evidence");
        (id, agent.get(path).call().unwrap())
    };
    let (id, mut answer) = of(&jobs[1]);
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/x-tar");
    let packed = demo.home.path().join("packed.tar");
    fs::write(&packed, answer.body_mut().read_to_vec().unwrap()).unwrap();
    let unpacked =
        Command::new("tar").arg("-xf").arg(&packed).arg("-C").arg(demo.home.path()).status();
    assert!(unpacked.unwrap().success());
    let (code, answer) = audit(&demo.home.path().join(format!("evidence-{id}")), &[]);
    assert_eq!((code, &answer["about"]), (0, &id.into()), "{answer}");
    let private = jobs.iter().find(|job| job["private"] == true).unwrap();
    assert_eq!(of(private).1.status(), 403);
    let page = ureq::get(format!("{url}/requests/{}", jobs[1]["request_id"].as_str().unwrap()));
    let page = page.call().unwrap().body_mut().read_to_string().unwrap();
    assert!(page.contains("/evidence\"") && page.contains("guild evidence export"), "{page}");
}
