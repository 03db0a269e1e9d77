//! What every bus does, whatever carries its bells. `ringing` and `listening` are two ends of one bus, perhaps in two
//! processes.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use guild_bus::{Bus, Listener, Local};
use testbed::Nats as Server;

use crate::support::{Process, hear, namespace, run, settle};

struct Ends {
    ringing: Arc<dyn Bus>,
    listening: Arc<dyn Bus>,
    /// Alive as long as the bus is used.
    _processes: Vec<Process>,
}

impl Ends {
    async fn settle(&self) {
        settle(&*self.ringing, &*self.listening).await;
    }
}

async fn local() -> Ends {
    let bus = Arc::new(Local::new());
    Ends { ringing: bus.clone(), listening: bus, _processes: Vec::new() }
}

async fn one_process() -> Ends {
    let process = Process::connected(&Server::shared_url().unwrap(), &namespace()).await;
    let bus = Arc::new(process.bus.clone());
    Ends { ringing: bus.clone(), listening: bus, _processes: vec![process] }
}

async fn two_processes() -> Ends {
    let (url, namespace) = (Server::shared_url().unwrap(), namespace());
    let [one, other] =
        [Process::connected(&url, &namespace).await, Process::connected(&url, &namespace).await];
    Ends {
        ringing: Arc::new(one.bus.clone()),
        listening: Arc::new(other.bus.clone()),
        _processes: vec![one, other],
    }
}

async fn a_bell_reaches_every_listener_of_its_topic_and_no_other(ends: Ends) {
    let mut same = [ends.listening.listen("audit"), ends.listening.listen("audit")];
    let others = ["audit.x", "audi", "audit2", "outbox", "x.audit", "*", ">", "audit.*", ""];
    let mut others = others.map(|topic| ends.listening.listen(topic));
    ends.ringing.ring("audit", 7);
    for listener in &mut same {
        assert_eq!(hear(listener).await, 7);
    }
    ends.settle().await;
    assert!(same.iter_mut().all(|listener| listener.try_hear().is_none()), "once each");
    assert!(others.iter_mut().all(|listener| listener.try_hear().is_none()));
}

async fn the_earliest_number_is_kept(ends: Ends) {
    let mut listener = ends.listening.listen("audit");
    for after in [9, 3, 5] {
        ends.ringing.ring("audit", after);
    }
    ends.settle().await;
    assert_eq!(listener.try_hear(), Some(3));
    assert_eq!(listener.try_hear(), None);
    for after in [i64::MAX, i64::MIN] {
        ends.ringing.ring("audit", after);
        ends.settle().await;
        assert_eq!(listener.try_hear(), Some(after));
    }
}

async fn a_gone_listener_and_an_unheard_topic_disturb_nobody(ends: Ends) {
    let mut kept = ends.listening.listen("audit");
    for _ in 0..100 {
        drop(ends.listening.listen("audit"));
    }
    ends.ringing.ring("nobody.hears", 1);
    ends.ringing.ring("audit", 2);
    assert_eq!(hear(&mut kept).await, 2);
    drop(kept);
    ends.ringing.ring("audit", 3);
    ends.settle().await;
    let mut late = ends.listening.listen("audit");
    ends.settle().await;
    assert_eq!(late.try_hear(), None, "what rang before is not heard");
}

async fn many_topics_do_not_mix(ends: Ends) {
    let topics: Vec<String> = (0..500).map(|n| format!("agent.{n}.step")).collect();
    let mut listeners: Vec<_> = topics.iter().map(|topic| ends.listening.listen(topic)).collect();
    for (after, topic) in (1..).zip(&topics) {
        ends.ringing.ring(topic, after);
    }
    for (after, listener) in (1..).zip(&mut listeners) {
        assert_eq!(hear(listener).await, after);
    }
}

async fn threads_ring_and_a_waiting_listener_is_woken(ends: Ends) {
    let mut listener = ends.listening.listen("audit");
    let rung = std::sync::atomic::AtomicI64::new(0);
    for round in 1..=20 {
        let waiting = listener.hear();
        let threads = std::thread::scope(|scope| {
            let ring = |after| {
                ends.ringing.ring("audit", after);
                rung.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            };
            let threads = [1, 2, 3].map(|more| scope.spawn(move || ring(round * 10 + more)));
            threads.map(|thread| thread.join().is_ok())
        });
        assert_eq!(threads, [true; 3]);
        let heard = waiting.await;
        assert!((1..=3).contains(&(heard - round * 10)), "{heard} in round {round}");
        ends.settle().await;
        listener.try_hear();
    }
    assert_eq!(rung.into_inner(), 60);
}

async fn both_ends_ring_and_hear(ends: Ends) {
    let mut here = ends.ringing.listen("audit");
    let mut there = ends.listening.listen("audit");
    ends.ringing.ring("audit", 5);
    assert_eq!(here.try_hear(), Some(5), "within its process a bell is heard at once");
    assert_eq!(hear(&mut there).await, 5);
    ends.listening.ring("audit", 6);
    assert_eq!(hear(&mut here).await, 6);
}

async fn a_text_that_is_no_topic_is_heard_in_its_process_and_harms_nobody(ends: Ends) {
    let long = "x".repeat(5_000);
    for topic in ["", ".", "a..b", "a b", "a\r\nPUB x 1", "*", ">", long.as_str()] {
        let mut listener = ends.ringing.listen(topic);
        ends.ringing.ring(topic, 4);
        assert_eq!(listener.try_hear(), Some(4), "{topic:.9}");
    }
    ends.settle().await;
}

macro_rules! conformance {
    ($($check:ident)+) => {
        $(
            mod $check {
                use super::*;

                #[test]
                fn local() {
                    run(async { super::$check(super::local().await).await });
                }

                #[test]
                fn nats_in_one_process() {
                    run(async { super::$check(one_process().await).await });
                }

                #[test]
                fn nats_between_processes() {
                    run(async { super::$check(two_processes().await).await });
                }
            }
        )+
    };
}

conformance! {
    a_bell_reaches_every_listener_of_its_topic_and_no_other
    the_earliest_number_is_kept
    a_gone_listener_and_an_unheard_topic_disturb_nobody
    many_topics_do_not_mix
    threads_ring_and_a_waiting_listener_is_woken
    both_ends_ring_and_hear
    a_text_that_is_no_topic_is_heard_in_its_process_and_harms_nobody
}

/// Rings the bus in some wrong way, given all that has been rung; the present bell is the last.
type Fault = fn(&Local, &[(String, i64)]);

/// A bus with a planted fault.
struct Faulty {
    bus: Local,
    rung: Mutex<Vec<(String, i64)>>,
    fault: Fault,
}

impl Bus for Faulty {
    fn ring(&self, topic: &str, after: i64) {
        let mut rung = self.rung.lock().unwrap();
        rung.push((topic.to_owned(), after));
        (self.fault)(&self.bus, &rung);
    }

    fn listen(&self, topic: &str) -> Listener {
        self.bus.listen(topic)
    }
}

fn passes<F: Future<Output = ()>>(check: fn(Ends) -> F, fault: Fault) -> bool {
    let bus = Arc::new(Faulty { bus: Local::new(), rung: Mutex::default(), fault });
    let ends = Ends { ringing: bus.clone(), listening: bus, _processes: Vec::new() };
    catch_unwind(AssertUnwindSafe(|| run(check(ends)))).is_ok()
}

fn last(rung: &[(String, i64)]) -> (&str, i64) {
    rung.last().map(|(topic, after)| (topic.as_str(), *after)).unwrap()
}

#[test]
fn planted_faults_are_caught() {
    use a_bell_reaches_every_listener_of_its_topic_and_no_other as reaches;
    let none: Fault = |bus, rung| {
        let (topic, after) = last(rung);
        bus.ring(topic, after);
    };
    assert!(passes(reaches, none) && passes(the_earliest_number_is_kept, none));
    let other_topic_too: Fault = |bus, rung| {
        let (topic, after) = last(rung);
        bus.ring(topic, after);
        bus.ring("outbox", after);
    };
    assert!(!passes(reaches, other_topic_too));
    let everything_again: Fault = |bus, rung| {
        rung.iter().for_each(|(topic, after)| bus.ring(topic, *after));
    };
    assert!(!passes(reaches, everything_again));
    let later_numbers_only: Fault = |bus, rung| {
        let (topic, after) = last(rung);
        if rung.iter().filter(|(rung, _)| rung == topic).all(|(_, earlier)| *earlier <= after) {
            bus.ring(topic, after);
        }
    };
    assert!(!passes(the_earliest_number_is_kept, later_numbers_only));
}
