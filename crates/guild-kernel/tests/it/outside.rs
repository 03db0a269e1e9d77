//! Tools in other processes, those who only listen, and those who should not be believed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use guild_bus::mail::{CONTROL_FIELDS, Letter, MESSAGE_ID, Mail, Mailbox, Receipt};
use guild_bus::subject::{Pattern, Topic};
use guild_kernel::inbox::Outcome;
use guild_kernel::model::Chunk;
use guild_kernel::outside::{
    CALL, CallKey, DeskOptions, EVENT_SEQ, REPORT, Said, Speaker, TOOL_CALL_ID, TURN_EPOCH,
    TURN_ID, Voice,
};
use guild_kernel::turn::step::Usage;
use guild_kernel::turn::{Committed, Then};
use guild_kernel::{AgentTurnId, StepId, ToolCallId};
use guild_protocol::env::{BoxFuture, Clock};
use guild_store::args;
use serde_json::{Value, json};

use crate::post::{Counting, Office};
use crate::world::{Node, T0, TIMEOUT_MS, both, call, success};

const SUCCESS: &[u8] = br#"{"status":"success","result":{"bought":3}}"#;

/// Suspends turn `n` of agent `n` with these calls.
fn suspended(office: &Office<'_>, n: u32, places: &[usize]) -> (AgentTurnId, Vec<ToolCallId>) {
    let node = office.node;
    let turn = node.ask(n, n, office.clock.now_ms());
    let fence = node.take(n, office.clock.now_ms());
    assert_eq!(fence.agent_turn_id, turn);
    (turn, node.suspend(&fence, places, office.clock.now_ms()))
}

fn status(answer: &serde_json::Map<String, Value>) -> (&str, Option<&str>) {
    (answer["status"].as_str().unwrap(), answer.get("code").and_then(Value::as_str))
}

#[test]
fn a_tool_elsewhere_is_called_asks_and_reports_and_the_turn_goes_on() {
    both(|node| {
        let office = Office::new(node);
        let mut shop = office.listen("cmd.tool.shop.>");
        office.drain();
        office.desk(DeskOptions::default());
        let (turn, calls) = suspended(&office, 1, &[0]);
        let command = office.next(&mut shop);
        assert_eq!(command.subject.as_str(), "guild.v1.p.public.cmd.tool.shop.tool0");
        let head = node.head(1);
        let of = |name: &str| command.headers.get(name).unwrap().to_owned();
        assert_eq!(of("Guild-Project-Id"), "p");
        assert_eq!(of("Guild-Channel-Id"), "public");
        assert_eq!(of("Guild-Agent-Id"), "a1");
        assert_eq!(of(TURN_ID), turn.as_str());
        assert_eq!(of(TURN_EPOCH), head.turn_epoch.to_string());
        assert_eq!(of(TOOL_CALL_ID), calls[0].as_str());
        assert_eq!(of("Guild-Recursion-Depth"), "0");
        assert_eq!(of("Guild-Msg-Type"), "tool.call");
        let (span, parent) = (of("traceparent"), of("Guild-Parent-Traceparent"));
        assert_eq!((span.len(), &span[..36]), (55, &parent[..36]), "one trace");
        assert_ne!(span, parent);
        assert!(of("Guild-Deadline").parse::<i64>().unwrap() > T0);
        let said = command.body().unwrap();
        assert_eq!(
            said.keys().collect::<Vec<_>>(),
            ["after_execution", "tool_call_card_id", "tool_name"]
        );

        let told = office.ask(office.answer_to(&command, CALL, b""));
        assert_eq!(told["arguments"], json!({ "place": 0 }));
        assert_eq!((&told["tool_name"], &told["status"]), (&json!("tool0"), &json!("waiting")));
        let answer = office.ask(office.answer_to(&command, REPORT, SUCCESS));
        assert_eq!((status(&answer), &answer["resumed"]), (("applied", None), &json!(true)));

        // Again, word for word; something else; a question that comes too late.
        let again = office.ask(office.answer_to(&command, REPORT, SUCCESS));
        assert_eq!(status(&again), ("known", None));
        let other = office.ask(office.answer_to(&command, REPORT, br#"{"status":"success"}"#));
        assert_eq!(status(&other), ("skipped", Some("kernel.answered")));
        let late = office.ask(office.answer_to(&command, CALL, b""));
        assert_eq!(status(&late), ("refused", Some("kernel.answered")));

        assert_eq!(node.output(1), ["agent.thought", "tool.call", "tool.result"]);
        let fence = node.take(9, office.clock.now_ms());
        node.commit(&fence, success(), office.clock.now_ms()).unwrap();
        assert_eq!(node.ended(&turn).0, Some(Outcome::Success));
        node.assert_well();
    });
}

/// What a tool takes from the environment it is told when it asks, by a process that has it, and nobody writes it down.
#[test]
fn a_secret_is_told_and_stands_in_no_row() {
    const SECRET: &str = "hunter2-hunter2";
    both(|node| {
        let office = Office::new(node);
        let mut shop = office.listen("cmd.tool.shop.>");
        office.drain();
        let without = office.desk(DeskOptions::default());
        node.write(|tx| {
            let mut tool = crate::rig::row("tool0", Some("cmd.tool.shop.tool0"));
            tool.options = json!({ "envs": { "api_key": "SHOP_KEY", "place": "SHOP_PLACE" } });
            guild_kernel::roster::put_tool(tx, &tool, T0)
        })
        .unwrap();
        let (turn, _) = suspended(&office, 1, &[0]);
        let command = office.next(&mut shop);
        let told = office.ask(office.answer_to(&command, CALL, b""));
        assert_eq!(status(&told), ("refused", Some("kernel.missing_environment")));
        assert_eq!(told["retry"], json!(true), "another process may have it");
        without.abort();
        assert!(office.within(without).is_err(), "it hears nothing any more");
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let environment = [of("SHOP_KEY", SECRET), of("SHOP_PLACE", "7"), of("OTHER", "hidden")];
        office.desk_with(DeskOptions::default(), environment.into());
        let asked = || office.mail.ask(office.answer_to(&command, CALL, b""), 1_000);
        office.until(|| office.within(asked()).is_ok());
        let told = office.ask(office.answer_to(&command, CALL, b""));
        assert_eq!(told["arguments"], json!({ "api_key": SECRET, "place": "7" }), "it wins");
        let answer = office.ask(office.answer_to(&command, REPORT, SUCCESS));
        assert_eq!(status(&answer), ("applied", None));
        let fence = node.take(9, office.clock.now_ms());
        node.commit(&fence, success(), office.clock.now_ms()).unwrap();
        let sealed = node.read(move |rx| guild_kernel::replay::export(rx, &turn, "test"));
        assert!(!node.dump().contains(SECRET) && !sealed.text.contains(SECRET));
        // A row that cannot be read gives nothing away.
        node.plant("UPDATE tools SET options = '7' WHERE tool_name = 'tool0'");
        suspended(&office, 2, &[0]);
        let command = office.next(&mut shop);
        let told = office.ask(office.answer_to(&command, CALL, b""));
        assert_eq!(status(&told), ("refused", Some("kernel.malformed_row")));
    });
}

#[test]
fn what_is_not_proven_changes_nothing() {
    both(|node| {
        let office = Office::new(node);
        let mut shop = office.listen("cmd.tool.shop.>");
        office.drain();
        office.desk(DeskOptions::default());
        let (first, _) = suspended(&office, 1, &[0]);
        let command = office.next(&mut shop);
        suspended(&office, 2, &[0]);
        let other = office.next(&mut shop);
        office.until(|| outbox_left(node) == 0);
        let before = node.dump();
        let forged = |name: &str, value: &str| {
            let mut letter = office.answer_to(&command, REPORT, SUCCESS);
            letter.headers.set(name, value).unwrap();
            letter
        };
        let of_other = |name: &str| other.headers.get(name).unwrap();
        let mut stranger = office.answer_to(&command, REPORT, SUCCESS);
        stranger.headers = guild_bus::mail::Headers::new();
        let mut elsewhere = office.answer_to(&command, REPORT, SUCCESS);
        elsewhere.subject = Topic::parse("guild.v1.q.public.cmd.sys.kernel.report").unwrap();
        let with = |payload: &[u8]| office.answer_to(&command, REPORT, payload);
        let unproven = "kernel.unproven";
        let mut attacks = vec![
            (stranger, "kernel.malformed"),
            (elsewhere, unproven),
            (forged("Guild-Call-Secret", ""), unproven),
            (forged("Guild-Call-Secret", &"0".repeat(64)), unproven),
            (forged("Guild-Call-Secret", of_other("Guild-Call-Secret")), unproven),
            (forged("Guild-Project-Id", "q"), unproven),
            (forged("Guild-Channel-Id", "q"), unproven),
            (forged("Guild-Agent-Id", "a2"), unproven),
            (forged("Guild-Agent-Id", "a.b"), "kernel.malformed"),
            (forged(TURN_ID, of_other(TURN_ID)), unproven),
            (forged(TURN_ID, "no turn"), "kernel.malformed"),
            (forged(TURN_EPOCH, "99"), unproven),
            (forged(TURN_EPOCH, "-1"), unproven),
            (forged(TURN_EPOCH, "99999999999999999999"), "kernel.malformed"),
            (forged("Guild-Step-Id", of_other("Guild-Step-Id")), unproven),
            (forged(TOOL_CALL_ID, of_other(TOOL_CALL_ID)), unproven),
            (with(b""), "bus.bad_letter"),
            (with(b"[1]"), "bus.bad_letter"),
            (with(&[0xff, 0x00, 0x1b]), "bus.bad_letter"),
            (with(br#"{"status":"success","status":"failed"}"#), "bus.bad_letter"),
            (with(br#"{"status":"splendid"}"#), "kernel.malformed"),
            (with(br#"{"result":1}"#), "kernel.malformed"),
            (with(br#"{"status":"success","surprise":1}"#), "kernel.malformed"),
            (with(br#"{"status":"success","error":{"code":"x"}}"#), "kernel.malformed"),
            (with(br#"{"status":"failed"}"#), "kernel.malformed"),
            (with(br#"{"status":"success","after_execution":"explode"}"#), "kernel.malformed"),
            (office.answer_to(&command, "cmd.sys.kernel.explode", SUCCESS), "kernel.malformed"),
        ];
        let deep = format!(r#"{{"status":"success","result":{}}}"#, "[".repeat(100_000));
        attacks.push((with(deep.as_bytes()), "bus.bad_letter"));
        for field in CONTROL_FIELDS {
            let payload = json!({ "status": "success", field: "a1" });
            attacks.push((with(payload.to_string().as_bytes()), "bus.control_field"));
        }
        for (letter, code) in attacks {
            let (shown, what) = (format!("{letter:?}"), shortened(&letter));
            let answer = office.ask(letter);
            assert_eq!(status(&answer), ("refused", Some(code)), "{what}");
            assert!(!shown.contains(&answer["message"].to_string()), "an answer tells no secret");
            assert_eq!(node.dump(), before, "{what}");
        }
        // What is too large does not even leave.
        let huge = json!({ "status": "success", "result": "x".repeat(10_000_000) }).to_string();
        let asked = office.within(office.mail.ask(with(huge.as_bytes()), 1_000));
        assert_eq!(asked.unwrap_err().code().name, "bus.too_large");
        assert_eq!(node.dump(), before);

        // The tool itself is believed, and nobody was delayed.
        assert_eq!(status(&office.ask(with(SUCCESS))), ("applied", None));
        assert_eq!(node.told(&first).last().unwrap(), "1/dispatched");
        assert_eq!(
            status(&office.ask(office.answer_to(&other, REPORT, SUCCESS))),
            ("applied", None)
        );
        node.assert_well();
    });
}

fn shortened(letter: &Letter) -> String {
    format!("{letter:?}").chars().take(600).collect()
}

/// How many commands have not left.
fn outbox_left(node: &Node) -> i64 {
    node.read(|rx| {
        let left: Option<(i64,)> =
            rx.first("SELECT count(*) FROM outbox WHERE state = 'queued'", args![])?;
        Ok(left.map_or(0, |(left,)| left))
    })
}

#[test]
fn many_reports_at_once_are_taken_together() {
    let node = Node::sqlite(Default::default());
    let office = Office::new(&node);
    let mut shop = office.listen("cmd.tool.shop.>");
    office.drain();
    let places: Vec<usize> = (0..64).collect();
    suspended(&office, 1, &places);
    let commands: Vec<Letter> = places.iter().map(|_| office.next(&mut shop)).collect();
    let asked: Vec<Letter> = commands
        .iter()
        .chain(&commands)
        .map(|command| office.answer_to(command, REPORT, SUCCESS))
        .chain([Letter::new(
            Topic::parse("guild.v1.p.public.cmd.sys.kernel.report").unwrap(),
            b"rubbish".to_vec(),
        )])
        .collect();
    let desk = office.desk(DeskOptions { batch_max: 50, ..DeskOptions::default() });
    office.until(|| {
        let first = office.answer_to(&commands[0], CALL, b"");
        office.within(office.mail.ask(first, 5_000)).is_ok()
    });
    let asking = asked.into_iter().map(|letter| office.mail.ask(letter, 30_000));
    let answers = office.within(futures_util::future::join_all(asking));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for answer in answers {
        let answer = answer.unwrap().body().unwrap();
        *counts.entry(answer["status"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!((counts["applied"], counts["known"], counts["refused"]), (64, 64, 1));
    desk.abort();
    node.assert_well();
}

/// A call whose row cannot be read is refused; who asks at the same moment about others is told.
#[test]
fn a_call_that_cannot_be_read_is_refused_alone() {
    both(|node| {
        let office = Office::new(node);
        let mut shop = office.listen("cmd.tool.shop.>");
        office.drain();
        let places: Vec<usize> = (0..32).collect();
        suspended(&office, 1, &places);
        let commands: Vec<Letter> = places.iter().map(|_| office.next(&mut shop)).collect();
        let plant = "UPDATE turn_waiting_tools SET step_id = 'none' WHERE tool_name = 'tool7'";
        assert_eq!(node.plant(plant), 1);
        office.desk(DeskOptions::default());
        office.until(|| {
            let first = office.answer_to(&commands[0], CALL, b"");
            office.within(office.mail.ask(first, 5_000)).is_ok()
        });
        // Asked together, so that the desk takes many of them at once.
        let asking = commands
            .iter()
            .map(|command| office.mail.ask(office.answer_to(command, CALL, b""), 30_000));
        let answers = office.within(futures_util::future::join_all(asking));
        for (command, answer) in commands.iter().zip(answers) {
            let (bad, answer) = (command.subject.as_str().ends_with("tool7"), answer.unwrap());
            let told = answer.body().unwrap();
            let wanted = if bad { ("refused", Some("store.decode")) } else { ("waiting", None) };
            assert_eq!(status(&told), wanted, "{}", command.subject.as_str());
        }
    });
}

#[test]
fn a_command_that_nobody_hears_waits_for_its_tool_and_holds_up_nobody_else() {
    both(|node| {
        let office = Office::new(node);
        let mut heard = office.listen("cmd.tool.shop.tool1");
        office.drain();
        office.desk(DeskOptions::default());
        suspended(&office, 1, &[0, 1]);
        assert!(office.next(&mut heard).subject.as_str().ends_with("tool1"));
        office.until(|| outbox_left(node) == 1);
        let mut late = office.listen("cmd.tool.shop.tool0");
        let command = office.next(&mut late);
        let answer = office.ask(office.answer_to(&command, REPORT, SUCCESS));
        assert_eq!(status(&answer), ("applied", None));
        office.until(|| outbox_left(node) == 0);
        drop((heard, late));

        // Nobody is sent a command whose call is not waited for any more, and it is no dead letter.
        suspended(&office, 2, &[2]);
        office.clock.jump(TIMEOUT_MS);
        office.until(|| outbox_left(node) == 0);
        let dead = node.read(|rx| Ok(guild_store::outbox::dead_letters(rx, 10)?));
        assert_eq!(dead, []);
        assert!(office.listen("cmd.tool.shop.>").try_take().is_none());
        assert!(node.sweep(office.clock.now_ms()) > 0);
        node.assert_well();
    });
}

#[test]
fn a_call_that_is_too_large_to_be_told_says_so() {
    let node = Node::sqlite(Default::default());
    let office = Office::new(&node);
    let mut shop = office.listen("cmd.tool.shop.>");
    office.drain();
    let now_ms = office.clock.now_ms();
    node.ask(1, 1, now_ms);
    let fence = node.take(1, now_ms);
    let large = guild_kernel::turn::Call { arguments: json!("x".repeat(900_000)), ..call(0) };
    let committed = node.commit(&fence, Then::Suspend(vec![large]), now_ms).unwrap();
    assert!(matches!(committed, Committed::Suspended { .. }));
    let command = office.next(&mut shop);
    assert!(command.len_bytes() < 2_000, "a command has no arguments in it");
    let desk = office.desk(DeskOptions { answer_max_bytes: 100_000, ..DeskOptions::default() });
    office.until(|| {
        let told = office.within(office.mail.ask(office.answer_to(&command, CALL, b""), 5_000));
        told.is_ok_and(|told| told.body().unwrap()["code"] == "kernel.too_large")
    });
    desk.abort();
    office.runtime.block_on(desk).unwrap_err();
    office.desk(DeskOptions::default());
    office.until(|| {
        let told = office.within(office.mail.ask(office.answer_to(&command, CALL, b""), 5_000));
        told.is_ok_and(|told| {
            told.body().unwrap()["arguments"].as_str().map(str::len) == Some(900_000)
        })
    });
}

#[test]
fn all_processes_of_a_store_share_one_key() {
    both(|node| {
        let office = Office::new(node);
        let load = |random: &Counting| {
            office.runtime.block_on(CallKey::load(&node.store, random, T0)).unwrap()
        };
        assert_eq!(load(&Counting::default()), office.key);
        let other = Counting::default();
        load(&other);
        assert_eq!(load(&other), office.key, "whatever is drawn later");
        node.plant("UPDATE kernel_secrets SET secret = 'short'");
        let broken = office.runtime.block_on(CallKey::load(&node.store, &other, T0));
        assert_eq!(broken.unwrap_err().code().name, "kernel.malformed_row");
    });
}

/// Mail that fails now and then, sometimes after the letter has arrived.
struct Flaky {
    mail: Arc<dyn Mail>,
    count: AtomicUsize,
}

impl Mail for Flaky {
    fn send_all(&self, letters: Vec<Letter>) -> BoxFuture<Vec<Result<Receipt, guild_bus::Error>>> {
        let (mut sent, mut broken) = (Vec::new(), false);
        for letter in letters {
            let count = self.count.fetch_add(1, Ordering::SeqCst);
            broken |= count % 7 == 3;
            // One connection: what comes after a failure is not confirmed either, but some of it arrives.
            let arrives = !broken || count.is_multiple_of(2);
            sent.push((broken, arrives.then(|| self.mail.send_all(vec![letter]))));
        }
        Box::pin(async move {
            let mut receipts = Vec::new();
            for (broken, sending) in sent {
                let sent = match sending {
                    Some(sending) => sending.await.pop(),
                    None => None,
                };
                let lost = || Err(guild_bus::Error::Unreachable("the line broke".to_owned()));
                receipts.push(sent.filter(|_| !broken).unwrap_or_else(lost));
            }
            receipts
        })
    }

    fn cast(&self, letter: Letter) {
        self.mail.cast(letter);
    }

    fn ask(&self, letter: Letter, timeout_ms: i64) -> BoxFuture<Result<Letter, guild_bus::Error>> {
        self.mail.ask(letter, timeout_ms)
    }

    fn subscribe(&self, pattern: Pattern, group: Option<&str>) -> Mailbox {
        self.mail.subscribe(pattern, group)
    }
}

/// All that has come so far: places and names.
fn told(mailbox: &mut Mailbox) -> Vec<(i64, Letter)> {
    let letters = std::iter::from_fn(|| mailbox.try_take());
    letters
        .map(|letter| (letter.headers.get(EVENT_SEQ).unwrap().parse().unwrap(), letter))
        .collect()
}

/// What the table says: places and names.
pub(crate) fn happened(node: &Node) -> Vec<(i64, String)> {
    let events = node.read(|rx| Ok(guild_store::event::after(rx, guild_kernel::TOPIC, 0, 10_000)?));
    events.into_iter().map(|event| (event.seq, format!("event/{}", event.id))).collect()
}

fn live(node: &Node, office: &Office<'_>, turns: std::ops::Range<u32>) {
    for n in turns {
        node.ask(n, n % 8, office.clock.now_ms());
        let fence = node.take(n, office.clock.now_ms());
        node.commit(&fence, Then::Continue, office.clock.now_ms()).unwrap();
        let head = node.head(n % 8);
        assert_eq!(head.turn_epoch, fence.turn_epoch);
        node.stop(&fence.agent_turn_id, office.clock.now_ms()).unwrap();
    }
}

#[test]
fn what_happens_is_told_in_order_and_at_least_once() {
    both(|node| {
        let office = Office::new(node);
        let mut ear = office.listen("evt.>");
        live(node, &office, 1..12);
        let flaky = Arc::new(Flaky { mail: office.mail.clone(), count: AtomicUsize::new(0) });
        let teller = office.teller("one", flaky);
        let last = |node: &Node| happened(node).last().map(|(seq, _)| *seq);
        office.until(|| place(node) == last(node));
        let wanted = happened(node);
        let came = told(&mut ear);
        assert!(came.len() > wanted.len(), "some came twice");
        let mut first_seen = Vec::new();
        for (seq, letter) in &came {
            let name = letter.headers.get(MESSAGE_ID).unwrap().to_owned();
            if !first_seen.contains(&(*seq, name.clone())) {
                first_seen.push((*seq, name));
            }
        }
        first_seen.sort();
        assert_eq!(first_seen, wanted, "each of them, under one name");

        // The next one goes on from the place.
        teller.abort();
        office.runtime.block_on(teller).unwrap_err();
        office.clock.jump(60_000);
        live(node, &office, 12..14);
        office.teller("two", office.mail.clone());
        office.until(|| place(node) == last(node));
        let came = told(&mut ear);
        let behind = &happened(node)[wanted.len()..];
        assert_eq!(
            came.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
            behind.iter().map(|(seq, _)| *seq).collect::<Vec<_>>()
        );
        let subjects: Vec<&str> = came
            .iter()
            .take(4)
            .map(|(_, l)| l.subject.as_str().rsplit('.').next().unwrap())
            .collect();
        assert_eq!(subjects, ["state", "state", "step", "task"]);
        let (_, task) = &came[3];
        let said = task.body().unwrap();
        assert_eq!(said["status"], "canceled");
        assert_eq!(said["error_code"], "kernel.stopped");
        assert!(said.contains_key("deliverable_card_id"));
        assert_eq!(came[2].1.body().unwrap()["phase"], "completed");
        assert!(task.headers.get(TURN_ID).unwrap().starts_with("turn_"));
        let spans: Vec<&str> =
            came.iter().take(4).map(|(_, l)| l.headers.get("traceparent").unwrap()).collect();
        assert!(spans[0].len() == 55 && spans.iter().all(|span| *span == spans[0]), "{spans:?}");
    });
}

/// The place of the teller.
pub(crate) fn place(node: &Node) -> Option<i64> {
    node.read(|rx| {
        let place: Option<(i64,)> = rx.first("SELECT place FROM kernel_places", args![])?;
        Ok(place.map(|(place,)| place))
    })
}

#[test]
fn one_tells_at_a_time_and_an_event_that_cannot_be_told_is_passed_over() {
    let node = Node::sqlite(Default::default());
    let office = Office::new(&node);
    let mut ear = office.listen("evt.>");
    for holder in ["one", "two", "three"] {
        office.teller(holder, office.mail.clone());
    }
    live(&node, &office, 1..4);
    assert!(node.plant("UPDATE event SET body = 'no json' WHERE id LIKE '%/step-1'") >= 3);
    live(&node, &office, 4..20);
    let last = || happened(&node).last().map(|(seq, _)| *seq);
    office.until(|| place(&node) == last());
    let came: Vec<i64> = told(&mut ear).into_iter().map(|(seq, _)| seq).collect();
    let mut sorted = came.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(came, sorted, "in order, and once as nobody failed");
    let whole = happened(&node).len();
    assert!(came.len() < whole + 1 && came.len() >= whole - 3, "{} of {whole}", came.len());
}

#[test]
fn what_is_being_said_is_heard_by_those_who_listen() {
    let node = Node::sqlite(Default::default());
    let office = Office::new(&node);
    let mut ear = office.listen("str.agent.a1.chunk");
    let voice = Voice::new(office.mail.clone(), office.prefix.clone(), office.clock.clone());
    let speaker = Speaker {
        key: crate::world::key(1),
        channel_id: "public".parse().unwrap(),
        agent_turn_id: format!("turn_{:032x}", 1).parse().unwrap(),
        step_id: format!("step_{:032x}", 1).parse::<StepId>().unwrap(),
    };
    let usage =
        Usage { prompt_tokens: 3, completion_tokens: 2, cost_micro_usd: 5, ..Usage::default() };
    let chunks = [
        Said::Start,
        Said::Chunk(&Chunk::Text("Hi".to_owned())),
        Said::Chunk(&Chunk::Reasoning("hm".to_owned())),
        Said::Chunk(&Chunk::Call("buy".to_owned())),
        Said::End(&usage),
    ];
    for (index, said) in (0..).zip(chunks) {
        voice.say(&speaker, index, said);
    }
    let came: Vec<Value> = std::iter::from_fn(|| ear.try_take())
        .map(|letter| Value::Object(letter.body().unwrap()))
        .collect();
    let types: Vec<&Value> = came.iter().map(|said| &said["chunk_type"]).collect();
    assert_eq!(types, ["start", "content", "reasoning", "tool_call", "end"]);
    assert_eq!((&came[1]["content"], &came[1]["index"]), (&json!("Hi"), &json!(1)));
    assert_eq!(came[4]["usage"]["prompt_tokens"], 3);
}
