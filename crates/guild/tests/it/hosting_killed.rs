//! A node that sells sandboxes and the agents of those, each a real process, any of them killed at any moment. Somebody
//! else looks at what really runs on this host, and compares that with what was paid.

#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use guild_hosting::audit::Report;
use guild_hosting::sandbox::MINUTE_MS;
use guild_store::{Hooks, Migrations, Options, Service};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testbed::{Dice, now_ms};

use crate::node::Node;
use crate::support::Home;

/// How long; `cargo xtask soak hosting` asks for more.
const SECONDS: &str = "GUILD_TEST_HOSTING_SECONDS";
const DEFAULT_SECONDS: u64 = 30;
/// The seed of an earlier run, to draw the same jobs and kills.
const SEED: &str = "GUILD_TEST_HOSTING_SEED";
const USERS: usize = 3;
/// How many sandboxes live at once.
const LIVE_MAX: usize = 5;
/// How many writes are sent again at most.
const UNANSWERED_MAX: usize = 50;
const HOSTING: [&str; 4] = ["--set", "hosting.enabled=true", "--set", "gateway.listen=127.0.0.1:0"];

fn variable(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "how a test run tells its tests what to do")]
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[expect(clippy::disallowed_methods, reason = "a test may wait for other processes")]
fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

/// Lines of processes that are alive, by their numbers.
fn processes() -> Vec<(i32, String)> {
    let line = |entry: fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let lives = stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'));
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        lives.then(|| (pid, String::from_utf8_lossy(&line).replace('\0', " ")))
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(line).collect()
}

/// Sees what runs in sandboxes, by a word in the line of each: when it was seen first and last.
#[derive(Clone)]
struct Watcher {
    word: String,
    seen: Arc<Mutex<BTreeMap<String, (i64, i64)>>>,
    over: Arc<AtomicBool>,
}

impl Watcher {
    fn begin(word: &str) -> (Watcher, thread::JoinHandle<()>) {
        let watcher = Watcher { word: word.to_owned(), seen: Arc::default(), over: Arc::default() };
        let looks = watcher.clone();
        let thread = thread::spawn(move || {
            while !looks.over.load(Ordering::SeqCst) {
                looks.look();
                pause(50);
            }
        });
        (watcher, thread)
    }

    fn look(&self) {
        // Whoever is seen was alive between these two moments: each is used where it makes no false alarm.
        let before_ms = now_ms();
        let found = processes();
        let after_ms = now_ms();
        let mut seen = self.seen.lock().unwrap();
        for (_, line) in found {
            // The sandbox's own `sleep`, not whoever asks for it.
            let id =
                line.strip_prefix("sleep ").and_then(|rest| rest.trim().strip_prefix(&self.word));
            if let Some(id) = id {
                seen.entry(id.to_owned()).or_insert((after_ms, before_ms)).1 = before_ms;
            }
        }
    }
}

/// A write that nobody answered. Whoever sent it sends the same again.
struct Unanswered {
    user: usize,
    path: String,
    body: Value,
    key: u64,
}

/// A node, those who buy there, and what they have bought.
struct Market {
    operator: Home,
    node: Option<Node>,
    tokens: Vec<(String, String)>,
    dice: Dice,
    word: String,
    /// Each sandbox with its owner, and the number that its workload is known by.
    bought: Vec<(String, usize, u64)>,
    jobs: Vec<(String, usize)>,
    kills: BTreeMap<&'static str, u64>,
    asked: u64,
    unanswered: Vec<Unanswered>,
    /// What was done beside buying and working.
    deeds: BTreeMap<&'static str, u64>,
    /// How many of these were answered in the end.
    answered_late: u64,
}

impl Market {
    fn open(dice: Dice, word: String) -> Market {
        let operator = Home::new();
        let node = Node::up(&operator, &HOSTING);
        let url = format!("http://{}", node.address());
        let join = |_| {
            let home = Home::new();
            assert_eq!(home.run(&["key", "new"]).code, 0);
            let (code, session) = home.json(&["login", "--host", &url]);
            assert_eq!(code, 0, "{session}");
            let found =
                home.contents().into_iter().find(|(path, _)| path.ends_with("hosting.json"));
            let kept: Value = serde_json::from_slice(&found.unwrap().1.1).unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&kept["token"]), text(&session["user_id"]))
        };
        let tokens = (0..USERS).map(join).collect();
        Market {
            operator,
            node: Some(node),
            tokens,
            dice,
            word,
            bought: Vec::new(),
            jobs: Vec::new(),
            kills: BTreeMap::new(),
            asked: 0,
            unanswered: Vec::new(),
            deeds: BTreeMap::new(),
            answered_late: 0,
        }
    }

    fn below(&self, n: u64) -> u64 {
        self.dice.below(n)
    }

    fn one_of(&self, count: usize) -> usize {
        usize::try_from(self.below(u64::try_from(count).unwrap())).unwrap()
    }

    /// Asks; nothing if the node is gone, or goes meanwhile. A write is kept then, and sent again.
    fn ask(&mut self, user: usize, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
        self.asked += 1;
        let key = self.asked;
        let answer = self.send((user, key), method, path, body);
        if answer.is_none() && method == "POST" {
            let (path, body) = (path.to_owned(), body.clone());
            self.unanswered.push(Unanswered { user, path, body, key });
        }
        answer
    }

    fn send(
        &self,
        (user, key): (usize, u64),
        method: &str,
        path: &str,
        body: &Value,
    ) -> Option<(u16, Value)> {
        let node = self.node.as_ref()?;
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
             idempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{body}",
            node.address(),
            self.tokens[user].0,
            body.len()
        );
        let mut stream = TcpStream::connect(node.address()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.get(9..12)?.parse().ok()?, serde_json::from_str(body).unwrap_or(Value::Null)))
    }

    /// Sends again what nobody answered, under the same keys.
    fn ask_again(&mut self) {
        for one in std::mem::take(&mut self.unanswered) {
            match self.send((one.user, one.key), "POST", &one.path, &one.body) {
                // Still at work, too much at once, or not there.
                None | Some((409 | 429 | 503, _)) => self.unanswered.push(one),
                Some((status, answer)) => {
                    self.answered_late += 1;
                    self.learn(one.user, &one.path, status, &answer);
                }
            }
        }
        // What is refused for good is not asked for ever: an ended sandbox is 409 too.
        let old = self.unanswered.len().saturating_sub(UNANSWERED_MAX);
        self.unanswered.drain(..old);
    }

    /// Notes what was bought.
    fn learn(&mut self, user: usize, path: &str, status: u16, answer: &Value) {
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
        if status != 201 {
            return;
        }
        if path == "/v1/jobs" {
            self.jobs.push((text("job_id"), user));
        } else if path.ends_with("/sandboxes") {
            let number = 1_000_000 + u64::try_from(self.bought.len()).unwrap();
            self.bought.push((text("sandbox_id"), user, number));
        }
    }

    fn credit(&mut self) {
        let user_id = self.tokens[self.one_of(USERS)].1.clone();
        let (amount, reference) = (500 + self.below(3_000), format!("wire {}", self.asked));
        self.asked += 1;
        self.operator.run(&[
            "billing",
            "credit",
            &user_id,
            &amount.to_string(),
            "--reference",
            &reference,
        ]);
    }

    /// A job for a few minutes, with a sandbox that has a short time or a small cap.
    fn buy(&mut self) {
        let user = self.one_of(USERS);
        let budget = 500 + self.below(3_500);
        // No other has this name: two would be one that was made twice.
        let name = format!("job {}", self.asked + 1);
        let job =
            json!({ "name": name, "max_spend_micro_usd": budget, "ttl_s": 30 + self.below(300) });
        let Some((201, job)) = self.ask(user, "POST", "/v1/jobs", &job) else { return };
        self.learn(user, "/v1/jobs", 201, &job);
        let job_id = job["job_id"].as_str().unwrap().to_owned();
        let ttl_s = [3, 8, 20, 90, 200][self.one_of(5)] + self.below(4);
        let sandbox = json!({ "image": "sandbox-base:v1.0.0", "cpu_milli": 500, "ram_mib": 128, "disk_mib": 16, "ttl_s": ttl_s });
        let path = format!("/v1/jobs/{job_id}/sandboxes");
        if let Some((status, sandbox)) = self.ask(user, "POST", &path, &sandbox) {
            self.learn(user, &path, status, &sandbox);
        }
    }

    /// Another shape for one of the newest; what the host cannot, it refuses.
    fn resize(&mut self) {
        let Some((id, user, _)) = self.bought.last().cloned() else { return };
        let path = format!("/v1/sandboxes/{id}");
        let shown = self.send((user, 0), "GET", &path, &json!({}));
        let Some((200, shown)) = shown else { return };
        let ram_mib = [64, 128, 192][self.one_of(3)];
        let wanted = json!({ "version": shown["version"], "ram_mib": ram_mib });
        if let Some((200, _)) = self.ask(user, "POST", &format!("{path}/resize"), &wanted) {
            *self.deeds.entry("resized").or_default() += 1;
        }
    }

    /// Takes a little out; the operator says of the oldest that it was sent, or could not be.
    fn withdraw(&mut self) {
        let user = self.one_of(USERS);
        let to = format!("bank {}", self.asked + 1);
        let wanted = json!({ "amount_micro_usd": 1 + self.below(40), "destination": to });
        if let Some((201, _)) = self.ask(user, "POST", "/v1/billing/withdrawals", &wanted) {
            *self.deeds.entry("withdrawn").or_default() += 1;
        }
        let (code, open) = self.operator.json(&["billing", "open"]);
        let Some(id) = open["withdrawals"][0]["withdrawal_id"].as_str().filter(|_| code == 0)
        else {
            return;
        };
        let reference = format!("out {id}");
        let end = match self.below(3) {
            0 => ["billing", "fail", id, "--why", "no such account"],
            _ => ["billing", "confirm", id, "--reference", &reference],
        };
        self.operator.run(&end);
    }

    /// Something that runs until it is ended, and that can be seen from outside. Asked for again and again: once it
    /// runs nobody minds, as the watcher sees all of them.
    fn work(&mut self) {
        if self.bought.is_empty() {
            return;
        }
        let recent = self.bought.len().saturating_sub(LIVE_MAX);
        let at = recent + self.one_of(self.bought.len() - recent);
        let (id, user, number) = self.bought[at].clone();
        let exec = json!({ "argv": ["sleep", format!("{}{number}", self.word)] });
        self.ask(user, "POST", &format!("/v1/sandboxes/{id}/exec"), &exec);
    }

    fn stop_one(&mut self) {
        if let Some((id, user, _)) = self.bought.last().cloned() {
            self.ask(user, "POST", &format!("/v1/sandboxes/{id}/stop"), &json!({}));
        }
    }

    fn agents(&self) -> Vec<i32> {
        let root = self.operator.path().to_str().unwrap().to_owned();
        let ours = |line: &str| line.contains("sandbox-agent") && line.contains(&root);
        processes().into_iter().filter(|(_, line)| ours(line)).map(|(pid, _)| pid).collect()
    }

    fn kill_agent(&mut self) {
        let agents = self.agents();
        if !agents.is_empty() {
            let pid = agents[self.one_of(agents.len())];
            // It may have ended just now.
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            *self.kills.entry("agent").or_default() += 1;
        }
    }

    fn kill_node(&mut self) {
        if let Some(node) = self.node.take() {
            node.kill();
            *self.kills.entry("node").or_default() += 1;
        }
        pause(self.below(4_000));
        self.node = Some(Node::up(&self.operator, &HOSTING));
        self.ask_again();
    }

    /// The states of all sandboxes.
    fn states(&mut self) -> Vec<String> {
        let mut states = Vec::new();
        for user in 0..USERS {
            let page = self.ask(user, "GET", "/v1/sandboxes?limit=200", &json!({}));
            let Some((200, page)) = page else { return vec!["unknown".to_owned()] };
            for sandbox in page["sandboxes"].as_array().unwrap() {
                states.push(sandbox["status"].as_str().unwrap().to_owned());
            }
        }
        states
    }

    /// Waits until all sandboxes are in one of these states.
    fn until(&mut self, wanted: &[&str]) {
        for _ in 0..600 {
            let states = self.states();
            if states.iter().all(|state| wanted.contains(&state.as_str())) {
                return;
            }
            pause(200);
        }
        panic!("they never come to {wanted:?}: {:?}", self.states());
    }

    /// Asks until it is done: so many requests at once are more than a user may send.
    fn insist(&mut self, user: usize, path: &str) {
        for _ in 0..300 {
            if let Some((200, _)) = self.ask(user, "POST", path, &json!({})) {
                return;
            }
            pause(200);
        }
        panic!("{path} is never done");
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            self.ask_again();
            if self.unanswered.is_empty() {
                break;
            }
            pause(200);
        }
        for (job_id, user) in self.jobs.clone() {
            self.insist(user, &format!("/v1/jobs/{job_id}/stop"));
        }
        self.until(&["stopped", "failed", "destroyed"]);
        for (id, user, _) in self.bought.clone() {
            self.insist(user, &format!("/v1/sandboxes/{id}/destroy"));
        }
        self.until(&["destroyed"]);
        for _ in 0..300 {
            if self.agents().is_empty() {
                return;
            }
            pause(100);
        }
        panic!("agents are left: {:?}", self.agents());
    }
}

/// What must not be left on the host: groups of sandboxes whose launcher is gone.
fn groups() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut look = vec![(Path::new("/sys/fs/cgroup").to_owned(), 0)];
    while let Some((directory, depth)) = look.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("guild-sandbox-") {
                found.insert(name);
            } else if depth < 4 && entry.path().is_dir() {
                look.push((entry.path(), depth + 1));
            }
        }
    }
    let owner_is_gone = |name: &String| {
        let pid = name.trim_start_matches("guild-sandbox-").split('-').next().unwrap_or_default();
        !Path::new("/proc").join(pid).exists()
    };
    found.into_iter().filter(owner_is_gone).collect()
}

#[test]
fn nothing_runs_that_is_not_paid_whoever_is_killed() {
    let seconds = variable(SECONDS).unwrap_or(DEFAULT_SECONDS);
    let seed = variable(SEED).unwrap_or_else(|| now_ms().unsigned_abs() % 1_000_000_007);
    println!("{SEED}={seed}");
    // A number that no other run has in its lines at the same time.
    let word = format!("{}00", 1_000 + u64::from(std::process::id()));
    let groups_before = groups();
    let (watcher, looking) = Watcher::begin(&word);
    let mut market = Market::open(Dice::seeded(seed), word);
    for _ in 0..2 * USERS {
        market.credit();
    }
    let until_ms = now_ms() + i64::try_from(seconds).unwrap() * 1_000;
    while now_ms() < until_ms {
        match market.below(100) {
            0..15 if market.agents().len() < LIVE_MAX => market.buy(),
            15..55 => market.work(),
            55..60 => market.credit(),
            60..63 => market.stop_one(),
            76..80 => market.resize(),
            80..84 => market.withdraw(),
            63..70 => market.kill_agent(),
            70..76 => market.kill_node(),
            _ => pause(market.below(300)),
        }
    }
    market.settle();
    pause(200);
    watcher.over.store(true, Ordering::SeqCst);
    looking.join().unwrap();
    assert_eq!(market.node.take().unwrap().stop(), 0);
    let seen = watcher.seen.lock().unwrap().clone();
    println!(
        "{} sandboxes, {} seen at work, {} requests, {} answered late, {:?}, kills {:?}",
        market.bought.len(),
        seen.len(),
        market.asked,
        market.answered_late,
        market.deeds,
        market.kills
    );
    let report = compare(&market, &seen);
    let (minutes, over_ms) = (report.minutes, report.overrun_ms);
    println!("{minutes} minutes paid, {over_ms} ms over, {} lost", report.lost_units);
    let left: Vec<String> = groups().difference(&groups_before).cloned().collect();
    assert_eq!(left, Vec::<String>::new(), "groups are left");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(market.operator.path().to_str().unwrap()), "mounts are left");
}

/// Rows and books, read by nobody's leave, beside what was seen.
fn compare(market: &Market, seen: &BTreeMap<String, (i64, i64)>) -> Report {
    let file = market.operator.path().join(".local/share/guildhall/node.db");
    let all = Migrations::store()
        .and(guild_ledger::migrations())
        .and(guild_network::migrations())
        .and(guild_market::migrations())
        .and(guild_roles::migrations())
        .and(guild_hosting::migrations())
        .and(guild_kernel::migrations());
    let service = Service::open(&Options::file(&file), &all, Hooks::default(), 0).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = service.handle();
    let report = runtime.block_on(store.read(guild_hosting::audit::run)).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    let ledger = runtime.block_on(store.read(guild_ledger::audit::run)).unwrap();
    assert_eq!(ledger.problems, Vec::<String>::new());
    for twice in [
        "SELECT name FROM hosting_job GROUP BY name HAVING count(*) > 1",
        "SELECT destination FROM hosting_withdrawal GROUP BY destination HAVING count(*) > 1",
    ] {
        let twice = store.read(move |rx| rx.all::<(String,)>(twice, guild_store::args![]));
        let twice: guild_store::Result<Vec<(String,)>> = runtime.block_on(twice);
        assert_eq!(twice.unwrap(), [], "a write that was sent again had its effect twice");
    }
    let mut at_work = 0;
    for (id, _, number) in &market.bought {
        let id = id.parse().unwrap();
        let row = runtime.block_on(store.read(move |rx| guild_hosting::sandbox::find(rx, &id)));
        let row = row.unwrap().unwrap();
        let paid_ms = row.paid_minutes * MINUTE_MS;
        assert!(row.ran_ms <= paid_ms && row.spent <= row.cap && row.lost_units == 0, "{row:?}");
        let Some((first_ms, last_ms)) = seen.get(&number.to_string()) else { continue };
        at_work += 1;
        let started_ms = row.started_ms.unwrap();
        let ends_ms = (started_ms + paid_ms).min(row.expires_ms);
        let wrong = wrong((*first_ms, *last_ms), started_ms, ends_ms);
        assert_eq!(wrong, None, "{row:?}");
    }
    assert!(at_work > 0, "nothing was ever seen at work");
    service.close();
    report
}

/// What is wrong with what was seen of a sandbox that began and ended then.
fn wrong((first_ms, last_ms): (i64, i64), started_ms: i64, ends_ms: i64) -> Option<String> {
    if first_ms < started_ms {
        return Some(format!("it ran at {first_ms}, before it began at {started_ms}"));
    }
    (last_ms > ends_ms).then(|| format!("it ran at {last_ms}, and was paid until {ends_ms}"))
}

#[test]
fn what_runs_too_early_or_too_long_is_seen() {
    assert_eq!(wrong((1_000, 60_000), 1_000, 60_000), None);
    assert!(wrong((999, 60_000), 1_000, 60_000).unwrap().contains("before"));
    assert!(wrong((1_000, 60_001), 1_000, 60_000).unwrap().contains("paid until"));
    // And it is really seen: a process of that word, and none of another.
    let word = format!("{}77", 9_000_000 + u64::from(std::process::id()));
    let (watcher, looking) = Watcher::begin(&word);
    let line = format!("{word}5");
    let mut child = std::process::Command::new("sleep").arg(&line).spawn().unwrap();
    for _ in 0..600 {
        if !watcher.seen.lock().unwrap().is_empty() {
            break;
        }
        pause(20);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    watcher.over.store(true, Ordering::SeqCst);
    looking.join().unwrap();
    let seen: Vec<String> = watcher.seen.lock().unwrap().keys().cloned().collect();
    assert_eq!(seen, ["5"]);
}
