//! What only a bus with a server has: outages, strangers, namespaces.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use guild_bus::nats::Options;
use guild_bus::{ANYTHING, Bus};
use testbed::Nats as Server;

use crate::support::{Process, hear, namespace, run, settle};

#[test]
fn after_an_outage_listeners_are_rung_and_bells_come_again() {
    run(async {
        let mut server = Server::start().unwrap();
        let namespace = namespace();
        let one = Process::connected(&server.url(), &namespace).await;
        let other = Process::connected(&server.url(), &namespace).await;
        for round in 1..=3 {
            let mut listener = other.bus.listen("audit");
            let mut quiet = other.bus.listen("never.rung");
            one.bus.ring("audit", round);
            assert_eq!(hear(&mut listener).await, round);
            server.stop();
            for process in [&one, &other] {
                process.until(|bus| !bus.status().connected).await;
            }
            assert_eq!(quiet.try_hear(), None);
            server.resume().unwrap();
            assert_eq!(listener.hear().await, ANYTHING, "bells may have been missed");
            assert_eq!(quiet.hear().await, ANYTHING, "on every topic");
            one.until(|bus| bus.status().connected).await;
            one.bus.ring("audit", round + 100);
            assert_eq!(hear(&mut listener).await, round + 100);
        }
    });
}

#[test]
fn without_a_server_ringing_neither_waits_nor_grows() {
    run(async {
        let mut server = Server::start().unwrap();
        server.stop();
        let namespace = namespace();
        let options = |queue_max_topics| Options {
            url: server.url(),
            namespace: namespace.clone(),
            queue_max_topics,
            ..Options::default()
        };
        let one = Process::start(&options(10));
        let mut here = one.bus.listen("audit");
        for after in (1..=100_000).rev() {
            one.bus.ring("audit", after);
        }
        for topic in 0..1_000 {
            one.bus.ring(&format!("topic.{topic}"), 1);
        }
        assert_eq!(here.try_hear(), Some(1), "within the process bells are heard");
        let status = one.bus.status();
        assert_eq!((status.queued, status.kept_back, status.sent), (10, 991, 0));
        assert!(!status.connected);

        // Whoever is there first hears what has waited.
        server.resume().unwrap();
        let other = Process::connected(&server.url(), &namespace).await;
        let mut there = other.bus.listen("topic.0");
        one.until(|bus| bus.status().queued == 0).await;
        settle(&one.bus, &other.bus).await;
        // Ten that waited, and the one that settles.
        one.until(|bus| bus.status().sent == 11).await;
        there.try_hear();
        one.bus.ring("topic.0", 2);
        assert_eq!(hear(&mut there).await, 2);
    });
}

#[test]
fn what_strangers_publish_is_ignored_and_counted() {
    run(async {
        let (url, namespace) = (Server::shared_url().unwrap(), namespace());
        let process = Process::connected(&url, &namespace).await;
        let mut listener = process.bus.listen("audit");
        let stranger = async_nats::connect(&url).await.unwrap();
        let huge = "9".repeat(100_000);
        let rubbish = ["", "x", "-", "1.5", "+1", " 1", "\u{0}", "99999999999999999999", &huge];
        for payload in rubbish {
            let subject = format!("{namespace}.bell.audit");
            stranger.publish(subject, payload.to_owned().into()).await.unwrap();
        }
        stranger.publish(format!("{namespace}.bell.audit"), vec![0xff, 0xfe].into()).await.unwrap();
        stranger
            .publish(format!("{namespace}.bell.{}", "x".repeat(2_000)), "1".into())
            .await
            .unwrap();
        stranger.publish(format!("{namespace}.bell.audit"), "77".into()).await.unwrap();
        assert_eq!(listener.hear().await, 77);
        let status = process.bus.status();
        assert_eq!((status.ignored, status.heard), (11, 1));
    });
}

#[test]
fn namespaces_do_not_hear_each_other() {
    run(async {
        let (url, namespace) = (Server::shared_url().unwrap(), namespace());
        let mine = Process::connected(&url, &namespace).await;
        let longer = Process::connected(&url, &format!("{namespace}-2")).await;
        let peer = Process::connected(&url, &format!("{namespace}-2")).await;
        let mut listener = mine.bus.listen("audit");
        longer.bus.ring("audit", 1);
        settle(&longer.bus, &peer.bus).await;
        mine.bus.ring("audit", 2);
        assert_eq!(listener.hear().await, 2, "not 1");
        assert_eq!(mine.bus.status().heard, 0);
        assert_eq!(peer.bus.status().heard, 2);
    });
}

#[test]
fn a_bell_does_not_come_back_to_the_one_that_rang_it() {
    run(async {
        let (url, namespace) = (Server::shared_url().unwrap(), namespace());
        let one = Process::connected(&url, &namespace).await;
        let other = Process::connected(&url, &namespace).await;
        for after in 1..=50 {
            one.bus.ring("audit", after);
        }
        settle(&one.bus, &other.bus).await;
        settle(&other.bus, &one.bus).await;
        assert_eq!(one.bus.status().heard, 1, "only the one that settles");
    });
}

#[test]
fn a_shutdown_ends_the_service_with_and_without_a_server() {
    run(async {
        let mut server = Server::start().unwrap();
        let mut process = Process::connected(&server.url(), &namespace()).await;
        process.shutdown.trigger();
        process.ended().await;
        assert!(!process.bus.status().connected);
        server.stop();
        let options = Options { url: server.url(), ..Options::default() };
        let mut process = Process::start(&options);
        process.shutdown.trigger();
        process.ended().await;
        process.bus.ring("audit", 1);
        assert_eq!(process.bus.status().queued, 1);
    });
}

/// Reads what a client says until it subscribes.
fn until_subscribed(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        stream.read_line(&mut line).unwrap();
        if line.starts_with("PING") {
            stream.get_mut().write_all(b"PONG\r\n").unwrap();
        }
        if line.starts_with("SUB ") {
            return line;
        }
    }
}

#[test]
fn dropping_the_service_closes_the_connection() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let namespace = namespace();
        let options = Options { url, namespace: namespace.clone(), ..Options::default() };
        let process = Process::start(&options);
        let (mut stream, subscribed) = tokio::task::spawn_blocking(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let info = r#"{"server_id":"x","version":"2.9.10","proto":1,"max_payload":1048576,"headers":true}"#;
            write!(stream, "INFO {info}\r\n").unwrap();
            let mut stream = BufReader::new(stream);
            let subscribed = until_subscribed(&mut stream);
            (stream, subscribed)
        })
        .await
        .unwrap();
        assert!(subscribed.starts_with(&format!("SUB {namespace}.bell.> ")), "{subscribed}");
        let bus = process.bus.clone();
        process.abort().await;
        assert!(!bus.status().connected);
        let closed = tokio::task::spawn_blocking(move || {
            let patience = std::time::Duration::from_secs(60);
            stream.get_mut().set_read_timeout(Some(patience)).unwrap();
            stream.read_to_end(&mut Vec::new()).is_ok()
        });
        assert!(closed.await.unwrap(), "it reads to the end, which the other side has made");
    });
}
