//! What every mail does, whatever carries its letters; and what only one with a server has.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::sync::Arc;

use guild_bus::Error;
use guild_bus::mail::{
    Headers, Letter, Limits, Local, MESSAGE_ID, Mail, Mailbox, Nats, Receipt, Status,
};
use guild_bus::nats::Options;
use guild_bus::subject::{Pattern, Topic};
use guild_protocol::env::{Clock, Shutdown};
use serde_json::json;
use testbed::Nats as Server;
use tokio::task::JoinSet;

use crate::support::{NoRandom, RealClock, namespace, run};

/// One end of a mail over a server.
struct Post {
    mail: Nats,
    _services: JoinSet<()>,
}

impl Post {
    async fn connected(url: &str, namespace: &str, limits: Limits) -> Post {
        let options =
            Options { url: url.to_owned(), namespace: namespace.to_owned(), ..Options::default() };
        let (mail, service) =
            Nats::new(&options, limits, Arc::new(RealClock), Arc::new(NoRandom)).unwrap();
        let mut services = JoinSet::new();
        services.spawn(service.run(Shutdown::new()));
        let post = Post { mail, _services: services };
        post.until(|status| status.connected).await;
        post
    }

    async fn until(&self, is_so: impl Fn(Status) -> bool) {
        while !is_so(self.mail.status()) {
            RealClock.sleep(5).await;
        }
    }
}

/// Two ends of a mail, perhaps in two processes.
struct Ends {
    near: Arc<dyn Mail>,
    far: Arc<dyn Mail>,
    posts: Vec<Post>,
    namespace: String,
    _server: Option<Server>,
}

impl Ends {
    fn subject(&self, tail: &str) -> Topic {
        Topic::parse(&format!("{}.v1.p1.public.{tail}", self.namespace)).unwrap()
    }

    fn letter(&self, tail: &str, payload: &str) -> Letter {
        Letter::new(self.subject(tail), payload.as_bytes().to_vec())
    }

    /// A mailbox at the far end that letters reach from now on.
    async fn open(&self, tail: &str, group: Option<&str>) -> Mailbox {
        let before = self.posts.last().map_or(0, |post| post.mail.status().subscribed);
        let pattern = Pattern::parse(&format!("{}.v1.*.*.{tail}", self.namespace)).unwrap();
        let mailbox = self.far.subscribe(pattern, group);
        if let Some(post) = self.posts.last() {
            post.until(|status| status.subscribed > before).await;
        }
        mailbox
    }

    async fn send(&self, letter: Letter) -> Result<Receipt, Error> {
        self.near.send_all(vec![letter]).await.remove(0)
    }

    /// Whether commands and events wait for whoever comes.
    fn keeps(&self) -> bool {
        self.posts.first().is_some_and(|post| post.mail.status().keeps)
    }
}

async fn local() -> Ends {
    let mail = Arc::new(Local::new(Limits::default(), Arc::new(RealClock)));
    let (posts, namespace) = (Vec::new(), namespace());
    Ends { near: mail.clone(), far: mail, posts, namespace, _server: None }
}

async fn between(server: Option<Server>, url: &str) -> Ends {
    let namespace = namespace();
    let mut posts = Vec::new();
    for _ in 0..2 {
        posts.push(Post::connected(url, &namespace, Limits::default()).await);
    }
    let [near, far] =
        [&posts[0], &posts[1]].map(|post| Arc::new(post.mail.clone()) as Arc<dyn Mail>);
    Ends { near, far, posts, namespace, _server: server }
}

async fn a_letter_arrives_whole_at_every_group_once(ends: Ends) {
    let mut boxes = Vec::new();
    for group in [None, None, Some("shop"), Some("shop"), Some("other")] {
        boxes.push(ends.open("cmd.tool.shop.>", group).await);
    }
    let mut elsewhere = ends.open("cmd.tool.bank.>", None).await;
    let mut headers = Headers::new();
    headers.set("Guild-Turn-Id", "turn_1 ä").unwrap();
    headers.set(MESSAGE_ID, "one").unwrap();
    let letter =
        Letter::json(ends.subject("cmd.tool.shop.buy"), headers, &json!({ "n": 1 })).unwrap();
    let wanted = if ends.keeps() { Receipt::Kept } else { Receipt::Passed };
    assert_eq!(ends.send(letter.clone()).await, Ok(wanted));
    for at in [0, 1, 4] {
        let came = boxes[at].take().await;
        assert_eq!((&came.subject, &came.payload), (&letter.subject, &letter.payload));
        assert_eq!(came.headers.get("guild-turn-id"), Some("turn_1 ä"));
        assert_eq!(came.body().unwrap()["n"], 1);
    }
    let mut shop = boxes.drain(2..4).collect::<Vec<_>>();
    let (first, second) = shop.split_at_mut(1);
    futures_util::future::select(first[0].take(), second[0].take()).await;
    // What is sent later arrives later: nothing more came before it.
    ends.send(ends.letter("cmd.tool.shop.end", "{}")).await.unwrap();
    assert!(boxes[0].take().await.subject.as_str().ends_with(".end"));
    futures_util::future::select(first[0].take(), second[0].take()).await;
    assert!(first[0].try_take().is_none() && second[0].try_take().is_none());
    assert!(elsewhere.try_take().is_none());
}

async fn many_letters_keep_their_order(ends: Ends) {
    let mut mailbox = ends.open("evt.>", None).await;
    let letters = (0..500).map(|n| ends.letter("evt.agent.a.step", &n.to_string())).collect();
    assert!(ends.near.send_all(letters).await.iter().all(Result::is_ok));
    for n in 0..500 {
        assert_eq!(mailbox.take().await.payload, n.to_string().into_bytes());
    }
}

async fn a_letter_that_nobody_hears_is_told_of(ends: Ends) {
    let wanted = if ends.keeps() { Receipt::Kept } else { Receipt::Unheard };
    assert_eq!(ends.send(ends.letter("cmd.tool.shop.buy", "{}")).await, Ok(wanted));
    let mut mailbox = ends.open("cmd.tool.bank.>", None).await;
    let both = ["cmd.tool.shop.buy", "cmd.tool.bank.pay"].map(|tail| ends.letter(tail, "{}"));
    let heard = if ends.keeps() { Receipt::Kept } else { Receipt::Passed };
    assert_eq!(ends.near.send_all(both.to_vec()).await, [Ok(wanted), Ok(heard)]);
    mailbox.take().await;
    // Whatever is asked is never kept: there would be two answers.
    let asked = ends.send(ends.letter("cmd.sys.kernel.report", "{}")).await;
    assert_eq!(asked, Ok(Receipt::Unheard));
    let asked = ends.near.ask(ends.letter("cmd.sys.kernel.report", "{}"), 5_000).await;
    assert_eq!(asked, Err(Error::Unheard));
}

async fn a_question_is_answered_once_or_not_in_time(ends: Ends) {
    let mut desk = ends.open("cmd.sys.kernel.report", Some("kernel")).await;
    let answering = async {
        let asked = desk.take().await;
        let mut answer = Letter::new(asked.reply_to.unwrap(), asked.payload.to_ascii_uppercase());
        answer.headers.set("Guild-Version", "1").unwrap();
        ends.far.cast(answer);
    };
    let asking = ends.near.ask(ends.letter("cmd.sys.kernel.report", "abc"), 60_000);
    let (answer, ()) = futures_util::future::join(asking, answering).await;
    let answer = answer.unwrap();
    assert_eq!((answer.payload, answer.headers.get("guild-version")), (b"ABC".to_vec(), Some("1")));
    let silent = ends.near.ask(ends.letter("cmd.sys.kernel.report", "abc"), 50).await;
    assert_eq!(silent, Err(Error::NoAnswer));
}

async fn what_is_cast_arrives_and_is_never_waited_for(ends: Ends) {
    let mut mailbox = ends.open("str.>", None).await;
    for n in 0..100 {
        ends.near.cast(ends.letter("str.agent.a.chunk", &n.to_string()));
        ends.near.cast(ends.letter("str.nobody.hears.this", ""));
    }
    for n in 0..100 {
        let came = loop {
            let came = mailbox.take().await;
            if came.subject.as_str().ends_with(".chunk") {
                break came;
            }
        };
        assert_eq!(came.payload, n.to_string().into_bytes());
    }
}

async fn a_letter_that_is_too_large_is_refused_and_harms_nobody(ends: Ends) {
    let mut mailbox = ends.open("cmd.tool.>", None).await;
    let large = ends.letter("cmd.tool.shop.buy", &"x".repeat(10_000_000));
    let sent =
        ends.near.send_all(vec![large.clone(), ends.letter("cmd.tool.shop.buy", "small")]).await;
    assert_eq!(sent[0].clone().unwrap_err().code().name, "bus.too_large");
    assert!(sent[1].is_ok());
    assert_eq!(mailbox.take().await.payload, b"small");
    let asked = ends.near.ask(large.clone(), 1_000).await;
    assert_eq!(asked.unwrap_err().code().name, "bus.too_large");
    ends.near.cast(large);
    ends.send(ends.letter("cmd.tool.shop.buy", "after")).await.unwrap();
    assert_eq!(mailbox.take().await.payload, b"after");
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
                fn nats() {
                    run(async { super::$check(between(None, &Server::shared_url().unwrap()).await).await });
                }

                #[test]
                fn nats_with_streams() {
                    run(async {
                        let server = Server::start_with_streams().unwrap();
                        let url = server.url();
                        let ends = between(Some(server), &url).await;
                        assert!(ends.keeps());
                        super::$check(ends).await;
                    });
                }
            }
        )+
    };
}

conformance! {
    a_letter_arrives_whole_at_every_group_once
    many_letters_keep_their_order
    a_letter_that_nobody_hears_is_told_of
    a_question_is_answered_once_or_not_in_time
    what_is_cast_arrives_and_is_never_waited_for
    a_letter_that_is_too_large_is_refused_and_harms_nobody
}

#[test]
fn a_reader_that_is_too_slow_loses_letters_and_they_are_counted() {
    run(async {
        let limits = Limits { queue_max_letters: 10, ..Limits::default() };
        let mail = Local::new(limits.clone(), Arc::new(RealClock));
        let pattern = Pattern::parse("a.>").unwrap();
        let mut slow = mail.subscribe(pattern.clone(), None);
        let letters = vec![Letter::new(Topic::parse("a.b").unwrap(), Vec::new()); 12];
        let sent = mail.send_all(letters.clone()).await;
        assert_eq!(sent.iter().filter(|sent| **sent == Err(Error::Busy)).count(), 2);
        assert_eq!(std::iter::from_fn(|| slow.try_take()).count(), 10);

        let (url, namespace) = (Server::shared_url().unwrap(), namespace());
        let post = Post::connected(&url, &namespace, limits).await;
        let topic = Topic::parse(&format!("{namespace}.v1.x")).unwrap();
        let mut slow = post.mail.subscribe(Pattern::parse(topic.as_str()).unwrap(), None);
        post.until(|status| status.subscribed == 1).await;
        let letters = vec![Letter::new(topic, Vec::new()); 12];
        assert!(post.mail.send_all(letters).await.iter().all(Result::is_ok));
        post.until(|status| status.received == 12).await;
        assert_eq!(post.mail.status().lost, 2);
        assert_eq!(std::iter::from_fn(|| slow.try_take()).count(), 10);
        drop(slow);
        post.until(|status| status.subscribed == 0).await;
    });
}

/// A server that stops takes nothing with it that it has confirmed, and letters come and go again after it.
#[test]
fn after_an_outage_what_was_kept_is_there_and_letters_come_again() {
    run(async {
        let mut server = Server::start_with_streams().unwrap();
        let url = server.url();
        let ends = between(None, &url).await;
        let mut mailbox = ends.open("cmd.tool.>", Some("shop")).await;
        let mut letter = ends.letter("cmd.tool.shop.buy", "1");
        letter.headers.set(MESSAGE_ID, "one").unwrap();
        assert_eq!(ends.send(letter.clone()).await, Ok(Receipt::Kept));
        assert_eq!(mailbox.take().await.payload, b"1");
        server.stop();
        for post in &ends.posts {
            post.until(|status| !status.connected).await;
        }
        let failed = ends.send(ends.letter("cmd.tool.shop.buy", "2")).await;
        assert_eq!(failed.unwrap_err().code().name, "bus.unreachable");
        let asked = ends.near.ask(ends.letter("cmd.sys.x", "2"), 1_000).await;
        assert_eq!(asked.unwrap_err().code().name, "bus.unreachable");
        server.resume().unwrap();
        for post in &ends.posts {
            post.until(|status| status.connected && status.keeps).await;
        }
        ends.posts[1].until(|status| status.subscribed == 1).await;
        assert_eq!(ends.send(ends.letter("cmd.tool.shop.buy", "3")).await, Ok(Receipt::Kept));
        assert_eq!(mailbox.take().await.payload, b"3");

        // The server's own account: the first, and the third; the same letter again is the same letter.
        assert_eq!(ends.send(letter).await, Ok(Receipt::Kept));
        let client = async_nats::connect(&url).await.unwrap();
        let name = format!("$JS.API.STREAM.INFO.{}_v1_cmd", ends.namespace);
        let answer = client.request(name, "".into()).await.unwrap();
        let info: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
        assert_eq!(info["state"]["messages"], 2);
        assert_eq!(info["config"]["storage"], "file");
        assert_eq!(info["config"]["max_age"], 86_400_000_000_000_u64);

        // Streams that somebody removes are made again.
        for end in ["cmd", "evt"] {
            let name = format!("$JS.API.STREAM.DELETE.{}_v1_{end}", ends.namespace);
            client.request(name, "".into()).await.unwrap();
        }
        drop(mailbox);
        ends.posts[1].until(|status| status.subscribed == 0).await;
        let gone = ends.send(ends.letter("evt.agent.a.task", "4")).await;
        assert_eq!(gone.unwrap_err().code().name, "bus.unreachable");
        assert_eq!(ends.send(ends.letter("evt.agent.a.task", "4")).await, Ok(Receipt::Kept));
    });
}

#[test]
fn what_strangers_send_is_no_letter_and_does_not_stop_others() {
    run(async {
        let (url, namespace) = (Server::shared_url().unwrap(), namespace());
        let post = Post::connected(&url, &namespace, Limits::default()).await;
        let mut mailbox =
            post.mail.subscribe(Pattern::parse(&format!("{namespace}.v1.>")).unwrap(), None);
        post.until(|status| status.subscribed == 1).await;
        let stranger = async_nats::connect(&url).await.unwrap();
        let subject = format!("{namespace}.v1.x");
        let mut many = async_nats::HeaderMap::new();
        for n in 0..100 {
            many.insert(format!("h{n}"), "x");
        }
        stranger.publish_with_headers(subject.clone(), many, "many".into()).await.unwrap();
        let long = format!("{subject}.{}", "y".repeat(2_000));
        stranger.publish(long, "long".into()).await.unwrap();
        stranger.publish(subject, vec![0xff, 0x00].into()).await.unwrap();
        assert_eq!(mailbox.take().await.payload, [0xff, 0x00]);
        assert_eq!(post.mail.status().lost, 2);
    });
}
