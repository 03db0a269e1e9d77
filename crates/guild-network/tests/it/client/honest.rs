use std::collections::BTreeSet;

use guild_network::client::{EchoState, SubState};

use super::relay::{Book, Relay};
use super::*;

#[test]
fn everything_is_fetched_by_pages_then_followed_and_not_fetched_again() {
    run(async {
        let mut cards: Vec<Event> = (0..40).map(|n| card(n, 10 + n * 3_600)).collect();
        let book = Book::of(&cards);
        let relay = Relay::honest(&book).await;
        let node = Node::start(quick(&[&relay.url]));
        node.until_relay(&relay.url, "fetched", |relay| relay.fetched).await;
        node.until_stored(&cards).await;
        let asked: BTreeSet<u64> =
            book.asked.lock().unwrap().iter().filter_map(|filter| filter.limit).collect();
        assert_eq!(asked, BTreeSet::from([7]), "the relay's own limit");

        cards.push(card(100, 0));
        book.add(&cards[40]);
        node.until_stored(&cards).await;
        node.until_relay(&relay.url, "echo", |relay| relay.echo == EchoState::Heard).await;
        // A row may be seen a moment before it is counted.
        node.until_relay(&relay.url, "counts", |relay| relay.counts.stored >= 41).await;
        let status = node.relay(&relay.url);
        assert_eq!((status.state, status.live), (State::Connected, SubState::Live));
        assert_eq!(status.information.name.as_deref(), Some("honest"));
        assert_eq!((status.counts.stored, status.counts.hostile), (41, 0));

        // Whoever comes back asks only for what is new, and an overlap.
        let scratch = node.stop().await;
        book.asked.lock().unwrap().clear();
        let missed = card(101, 0);
        book.add(&missed);
        let node = Node::on(scratch, quick(&[&relay.url]));
        node.until_stored(&[missed]).await;
        node.until_relay(&relay.url, "fetched", |relay| relay.fetched).await;
        let oldest =
            book.asked.lock().unwrap().iter().map(|filter| filter.since.unwrap_or(0)).min();
        assert!(oldest.unwrap() > now_s() - 86_400 - 60, "{oldest:?}");
        assert_eq!(node.stored(kind::ANNOUNCEMENT).await.len(), 42);
    });
}

#[test]
fn an_event_reaches_every_relay_once_whatever_was_away_when() {
    run(async {
        let (book, late_book) = (Book::of(&[]), Book::of(&[]));
        let relay = Relay::honest(&book).await;
        let late = Relay::honest(&late_book).await;
        let (late_url, late_port) = (late.url.clone(), late.port());
        drop(late);
        let node = Node::start(quick(&[&relay.url, &late_url]));
        let event = ours(1);
        node.publish(&event, &[&relay.url, &late_url, "rubbish"]).await;
        node.until("one", async |_: &Node| book.has(&event)).await;
        node.until_relay(&late_url, "tried", |relay| relay.failures > 2).await;
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", late_port)).await.unwrap();
        let _late = Relay::honest_on(listener, &late_book);
        node.until_acked(&event, &[("acked", ""), ("acked", "")]).await;
        // Queued again it goes nowhere: every relay has said that it has it.
        node.publish(&event, &[&relay.url, &late_url]).await;
        let other = ours(2);
        node.publish(&other, &[&relay.url, &late_url]).await;
        node.until_acked(&other, &[("acked", ""), ("acked", "")]).await;
        for book in [&book, &late_book] {
            assert_eq!(book.published.lock().unwrap()[&event.id.hex()], 1);
        }
        assert_eq!(node.stored(kind::DEFAULT_REQUEST).await.len(), 2);
    });
}

#[test]
fn what_was_given_up_while_a_relay_was_away_is_tried_again_when_it_is_back() {
    run(async {
        let book = Book::of(&[]);
        let relay = Relay::honest(&book).await;
        let (url, port) = (relay.url.clone(), relay.port());
        drop(relay);
        let node = Node::start(quick(&[&url]));
        let event = ours(1);
        node.publish(&event, &[&url]).await;
        node.until("dead", async |node: &Node| {
            !node.store().read(|rx| outbox::dead_letters(rx, 9)).await.unwrap().is_empty()
        })
        .await;
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let _relay = Relay::honest_on(listener, &book);
        node.until_acked(&event, &[("acked", "")]).await;
        assert!(book.has(&event));
    });
}

#[test]
fn a_relay_that_only_a_stranger_names_is_connected_for_one_event_and_left() {
    run(async {
        let book = Book::of(&[]);
        let relay = Relay::honest(&book).await;
        let options = quick(&[]);
        let node = Node::start(Options { guest_idle_ms: 300, ..options.clone() });
        let event = ours(1);
        let to = Destinations::own(&[]).and_of(&key(7).public_key(), [relay.url.as_str()], 1);
        node.publish_to(&event, to).await;
        node.until_acked(&event, &[("acked", "")]).await;
        assert!(book.asked.lock().unwrap().is_empty(), "nothing is asked of a stranger's relay");
        assert!(!node.pool.status().iter().any(|status| status.configured));
        node.until("left", async |node: &Node| node.pool.status().is_empty()).await;

        // Without leave it may not be on this host: a stranger names it.
        let node = Node::start(Options { private_guests: false, ..options });
        let refused = node.pool.publish(&relay.url, &ours(2)).await.unwrap_err();
        assert!(refused.to_string().contains("the relay did not take it"), "{refused}");
        assert_eq!(book.published.lock().unwrap().len(), 1);
    });
}

#[test]
fn whatever_strangers_name_our_own_relays_and_other_strangers_are_served() {
    run(async {
        // Takes connections, and never says a word.
        let hole = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = hole.local_addr().unwrap().port();
        let (book, guest_book) = (Book::of(&[]), Book::of(&[]));
        let (relay, guest) = (Relay::honest(&book).await, Relay::honest(&guest_book).await);
        let options = quick(&[&relay.url]);
        let node = Node::start(Options { publish_ms: 5_000, connect_ms: 5_000, ..options });
        node.until_relay(&relay.url, "live", |relay| relay.live == SubState::Live).await;
        let own = Destinations::own(std::slice::from_ref(&relay.url));
        let mut sent: Vec<Event> = (0..200).map(ours).collect();
        for (n, event) in (0..).zip(&sent) {
            let holes = [0, 1].map(|i| format!("ws://127.0.0.1:{port}/{n}/{i}"));
            let holes = holes.iter().map(String::as_str);
            let to = own.clone().and_of(&key(100 + n % 3).public_key(), holes, 2);
            node.publish_to(event, to).await;
        }
        // Each of three strangers has a lane, and one is left for others.
        let honest = ours(1_000);
        let to = own.and_of(&key(7).public_key(), [guest.url.as_str()], 2);
        node.publish_to(&honest, to).await;
        node.until_acked(&honest, &[("acked", ""), ("acked", "")]).await;
        sent.push(honest.clone());
        assert!(sent.iter().all(|event| book.has(event)), "our own relay has all of them");
        assert!(guest_book.has(&honest));
        let waiting = node.store().read(|rx| {
            let lane = key(100).public_key().hex();
            outbox::waiting(rx, publish::GUEST_SINK, &lane, 1_000)
        });
        assert!(waiting.await.unwrap() <= 32, "no stranger fills the outbox");
    });
}

#[test]
fn what_came_between_a_closed_and_the_next_question_is_not_lost() {
    run(async {
        let book = Book::of(&[]);
        let relay = Relay::honest(&book).await;
        let node = Node::start(quick(&[&relay.url]));
        node.until_relay(&relay.url, "live", |relay| relay.live == SubState::Live).await;
        node.until_relay(&relay.url, "fetched", |relay| relay.fetched).await;
        // More than the relay gives to one question.
        let missed: Vec<Event> = (0..40).map(|n| card(n, 10 + n * 60)).collect();
        book.close_live("error: shutting down idle subscription");
        node.until_relay(&relay.url, "closed", |relay| relay.counts.closed == 1).await;
        for card in &missed {
            book.add(card);
        }
        node.until_stored(&missed).await;
        assert_eq!(node.relay(&relay.url).counts.connections, 1);
    });
}

#[test]
fn whoever_leaves_says_goodbye() {
    run(async {
        let (told, mut goodbyes) = tokio::sync::mpsc::unbounded_channel();
        let relay = Relay::script(move |mut peer| {
            let told = told.clone();
            async move { told.send(peer.until_goodbye().await).unwrap() }
        })
        .await;
        let all = [Filter::default()];
        guild_network::client::ask(&relay.url, &all, 1, 5_000, &RealClock).await.unwrap();
        assert_eq!(goodbyes.recv().await, Some(true), "a question");
        guild_network::client::tell(&relay.url, &ours(1), 5_000, &RealClock).await.unwrap();
        assert_eq!(goodbyes.recv().await, Some(true), "an event");
        let node = Node::start(Options { guest_idle_ms: 100, ..quick(&[]) });
        node.pool.publish(&relay.url, &ours(2)).await.unwrap();
        assert_eq!(goodbyes.recv().await, Some(true), "a guest");
        let node = Node::start(quick(&[&relay.url]));
        node.until_relay(&relay.url, "live", |relay| relay.live == SubState::Live).await;
        node.shutdown.trigger();
        assert_eq!(goodbyes.recv().await, Some(true), "a node that ends");
    });
}

#[test]
fn a_pool_refuses_addresses_that_are_none() {
    run(async {
        let node = Node::start(quick(&[]));
        let refused = node.pool.publish("http://a.example", &ours(1)).await.unwrap_err();
        insta::assert_snapshot!(refused, @r#"the relay refuses: invalid: "http://a.example" is no relay: it begins with neither ws:// nor wss://"#);
        assert!(node.pool.relays().is_empty());
        assert_eq!(node.intake.counts().stored, 0);
    });
}
