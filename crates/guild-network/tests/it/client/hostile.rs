use guild_network::client::{AuthState, SubState};
use guild_protocol::nostr::message::{ClientMessage, RelayMessage};

use super::relay::{Book, Peer, Relay};
use super::*;

/// A relay that is as it should be, beside one that is not.
struct Beside {
    book: std::sync::Arc<Book>,
    relay: Relay,
}

impl Beside {
    async fn start() -> Beside {
        let book = Book::of(&[]);
        Beside { relay: Relay::honest(&book).await, book }
    }

    /// What is published there comes, and what is published to it arrives.
    async fn is_served(&self, node: &Node) {
        let (theirs, mine) = (card(7_777, 0), ours(7_778));
        self.book.add(&theirs);
        node.until_stored(&[theirs]).await;
        node.publish(&mine, &[&self.relay.url]).await;
        node.until_acked(&mine, &[("acked", "")]).await;
        assert_eq!(node.relay(&self.relay.url).counts.connections, 1);
    }
}

/// Answers every question with these events.
async fn answer(peer: &mut Peer, events: &[Event]) -> Option<String> {
    loop {
        match peer.hear().await? {
            ClientMessage::Req { sub, .. } => {
                for event in events {
                    peer.event(&sub, event).await;
                }
                peer.eose(&sub).await;
                return Some(sub);
            }
            ClientMessage::Event(event) => peer.ok(&event, true, "").await,
            _ => {}
        }
    }
}

/// A relay with this script, which knows an announcement.
async fn relay_with_card<F, Fut>(script: F) -> (Event, Relay)
where
    F: Fn(Peer, Event) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let card = card(1, 60);
    let known = card.clone();
    (card, Relay::script(move |peer| script(peer, known.clone())).await)
}

#[test]
fn changed_content_under_a_known_id_is_refused_and_the_relay_banned_while_others_go_on() {
    run(async {
        let card = card(1, 60);
        let book = Book::of(std::slice::from_ref(&card));
        let honest = Relay::honest(&book).await;
        let genuine = card.clone();
        let relay = Relay::script(move |mut peer| {
            let genuine = genuine.clone();
            async move {
                while answer(&mut peer, std::slice::from_ref(&genuine)).await.is_some() {
                    let forged = Event { content: "other".to_owned(), ..genuine.clone() };
                    peer.event("live-1", &forged).await;
                }
            }
        })
        .await;
        let options = Options { hostile_max: 2, ..quick(&[&relay.url, &honest.url]) };
        let node = Node::start(options);
        node.until_relay(&relay.url, "banned", |relay| relay.state == State::Banned).await;
        let status = node.relay(&relay.url);
        assert_eq!((status.counts.hostile, status.counts.bans), (3, 1));
        assert_eq!(
            status.last_error.as_deref(),
            Some("it sends events with wrong ids or signatures")
        );
        let refused = node.pool.publish(&relay.url, &ours(1)).await.unwrap_err();
        assert!(refused.to_string().contains("not connected"), "{refused}");

        assert_eq!(node.stored(kind::ANNOUNCEMENT).await, [card.to_json()]);
        let later = super::card(2, 0);
        book.add(&later);
        node.until_stored(&[later]).await;
        assert_eq!(node.relay(&honest.url).state, State::Connected);
    });
}

#[test]
fn a_forged_signature_is_not_stored() {
    run(async {
        let (good, other) = (card(1, 60), card(2, 60));
        let forged = Event { sig: other.sig, ..good.clone() };
        let relay = Relay::script(move |mut peer| {
            let events = [forged.clone(), other.clone()];
            async move { while answer(&mut peer, &events).await.is_some() {} }
        })
        .await;
        let node = Node::start(quick(&[&relay.url]));
        node.until_relay(&relay.url, "judged", |relay| relay.counts.hostile > 0).await;
        node.until("stored", async |node: &Node| !node.stored(kind::ANNOUNCEMENT).await.is_empty())
            .await;
        assert!(!node.stored(kind::ANNOUNCEMENT).await.contains(&good.to_json()));
    });
}

#[test]
fn a_storm_of_closed_does_not_keep_the_node_busy() {
    run(async {
        let relay = Relay::script(|mut peer| async move {
            while let Some(message) = peer.hear().await {
                if let ClientMessage::Req { sub, .. } = message {
                    peer.closed(&sub, "error: shutting down idle subscription").await;
                }
            }
        })
        .await;
        let honest = Beside::start().await;
        let node = Node::start(quick(&[&relay.url, &honest.relay.url]));
        node.until_relay(&relay.url, "closed", |relay| relay.counts.closed >= 10).await;
        let status = node.relay(&relay.url);
        assert_eq!((status.state, status.counts.connections), (State::Connected, 1));
        assert!(matches!(status.live, SubState::Closed(_) | SubState::Asked), "{:?}", status.live);
        assert!(status.counts.closed < 25, "it slows down: {}", status.counts.closed);
        honest.is_served(&node).await;
    });
}

#[test]
fn what_a_relay_refuses_of_one_want_is_all_that_is_missing() {
    run(async {
        let (card, us) = (card(1, 60), key(US).public_key().hex());
        let mail = event(9, kind::DEFAULT_RESULT, now_s() - 90, &[&["p", &us]], "");
        let live = super::card(2, 0);
        let (stored, later) = ([card.clone(), mail.clone()], live.clone());
        let relay = Relay::script(move |mut peer| {
            let (stored, later) = (stored.clone(), later.clone());
            async move {
                while let Some(message) = peer.hear().await {
                    let ClientMessage::Req { sub, filters } = message else { continue };
                    // An inbox that somebody has filled.
                    if filters.iter().any(|filter| filter.tags.contains_key(&'p')) {
                        peer.closed(&sub, "blocked: too many events, too few pass").await;
                        continue;
                    }
                    let wanted = |event: &Event| filters.iter().any(|f| f.matches(event));
                    for event in stored.iter().filter(|event| wanted(event)) {
                        peer.event(&sub, event).await;
                    }
                    peer.eose(&sub).await;
                    if sub.starts_with("live") && wanted(&later) {
                        peer.event(&sub, &later).await;
                    }
                }
            }
        })
        .await;
        let node = Node::start(quick(&[&relay.url]));
        // What is new comes too, and the mail by another question that lets it pass.
        node.until_stored(&[card, mail, live]).await;
        node.until_relay(&relay.url, "refused", |relay| relay.counts.closed == 3).await;
        let status = node.relay(&relay.url);
        assert!(matches!(status.live, SubState::Refused(_)), "{:?}", status.live);
        assert!(!status.fetched && status.state == State::Connected);
        assert_eq!(status.counts.connections, 1);
    });
}

#[test]
fn a_key_is_proven_to_a_relay_that_asks_and_only_then() {
    run(async {
        let (card, relay) = relay_with_card(|mut peer, card| async move {
            let challenge = format!("challenge {}", peer.number);
            peer.say(&RelayMessage::Auth(challenge.clone())).await;
            let mut known = false;
            while let Some(message) = peer.hear().await {
                match message {
                    ClientMessage::Auth(proof) => {
                        known = proof.verify().is_ok()
                            && proof.kind == kind::AUTH
                            && proof.tag("challenge") == Some(&challenge);
                        peer.ok(&proof, known, "").await;
                    }
                    ClientMessage::Req { sub, .. } if known => {
                        peer.event(&sub, &card).await;
                        peer.eose(&sub).await;
                    }
                    ClientMessage::Req { sub, .. } => {
                        peer.closed(&sub, "auth-required: who are you?").await;
                    }
                    ClientMessage::Event(event) if known => peer.ok(&event, true, "").await,
                    ClientMessage::Event(event) => {
                        peer.ok(&event, false, "auth-required: who are you?").await;
                    }
                    _ => {}
                }
            }
        })
        .await;
        let node = Node::start(quick(&[&relay.url]));
        node.until_stored(&[card]).await;
        assert_eq!(node.relay(&relay.url).auth, AuthState::Proven);
        // Also for one to whom nothing but an event is sent.
        let guest = Node::start(quick(&[]));
        guest.publish(&ours(1), &[&relay.url]).await;
        guest.until_acked(&ours(1), &[("acked", "")]).await;
    });
}

#[test]
fn a_relay_that_lets_nobody_in_is_told_about() {
    run(async {
        let relay = Relay::script(|mut peer| async move {
            peer.say(&RelayMessage::Auth("c".to_owned())).await;
            while let Some(message) = peer.hear().await {
                match message {
                    ClientMessage::Auth(proof) => {
                        peer.ok(&proof, false, "restricted: members only").await;
                    }
                    ClientMessage::Req { sub, .. } => {
                        peer.closed(&sub, "auth-required: who?").await;
                    }
                    ClientMessage::Event(event) => {
                        peer.ok(&event, false, "restricted: members only").await;
                    }
                    _ => {}
                }
            }
        })
        .await;
        let honest = Beside::start().await;
        let node = Node::start(quick(&[&relay.url, &honest.relay.url]));
        let refused = SubState::Refused("restricted: members only".to_owned());
        node.until_relay(&relay.url, "refused", |relay| relay.live == refused).await;
        honest.is_served(&node).await;
        let why = AuthState::Refused("restricted: members only".to_owned());
        let status = node.relay(&relay.url);
        assert_eq!((status.auth, status.counts.auths), (why, 1));
        assert!(status.counts.ok_refused >= 1 && status.counts.closed >= 2);
        let event = ours(1);
        node.publish(&event, &[&relay.url]).await;
        node.until_acked(&event, &[("refused", "restricted: members only")]).await;
        node.until("dead", async |node: &Node| {
            node.store().read(|rx| outbox::dead_letters(rx, 9)).await.unwrap().len() == 1
        })
        .await;
        assert_eq!(node.relay(&relay.url).state, State::Connected);
    });
}

#[test]
fn frames_that_are_too_long_are_counted_and_what_comes_behind_them_is_read() {
    run(async {
        let (card, relay) = relay_with_card(|mut peer, card| {
            async move {
                if peer.number == 0 {
                    // More than is read at all.
                    peer.text("x".repeat(20_000_000)).await;
                    return;
                }
                // A relay may keep larger events than we do.
                let large = Event { content: "x".repeat(1_000_000), ..card.clone() };
                while answer(&mut peer, &[large.clone(), card.clone()]).await.is_some() {}
            }
        })
        .await;
        let honest = Beside::start().await;
        let node = Node::start(quick(&[&relay.url, &honest.relay.url]));
        node.until_stored(&[card]).await;
        honest.is_served(&node).await;
        let counts = node.relay(&relay.url).counts;
        assert_eq!((counts.connections, counts.malformed), (2, 0));
        assert!(counts.oversized >= 2, "{counts:?}");
        assert_eq!(node.stored(kind::ANNOUNCEMENT).await.len(), 2);
    });
}

#[test]
fn whatever_a_relay_sends_the_next_connection_gets_what_is_there() {
    run(async {
        let (card, relay) = relay_with_card(|mut peer, card| {
            async move {
                match peer.number {
                    // Rubbish in every form that a frame can have, then the end of the connection.
                    0 => {
                        peer.binary(vec![0xff; 1_000]).await;
                        for text in ["", "[]", "{}", "\u{0}", "[\"EVENT\"]", "[\"OK\",1,2,3]"] {
                            peer.text(text).await;
                        }
                        peer.text(format!("[\"EVENT\",\"live-1\",{}", "[".repeat(10_000))).await;
                        peer.bye().await;
                    }
                    // More than a message may have.
                    1 => peer.text("x".repeat(2_000_000)).await,
                    // Half a frame, and no more.
                    2 => {
                        peer.raw(&[0x81, 0x7e, 0x01]).await;
                        std::future::pending::<()>().await;
                    }
                    // No frame at all.
                    3 => peer.raw(b"HTTP/1.1 500 what\r\n\r\n").await,
                    // Silence.
                    4 => std::future::pending().await,
                    // Not asked for.
                    5 => {
                        let other = event(9, 1, now_s(), &[], "advertisement");
                        peer.event("live-1", &other).await;
                        peer.event("nobody", &card).await;
                        peer.bye().await;
                    }
                    _ => while answer(&mut peer, std::slice::from_ref(&card)).await.is_some() {},
                }
            }
        })
        .await;
        let options = Options { ping_ms: 150, silence_ms: 300, ..quick(&[&relay.url]) };
        let node = Node::start(options);
        node.until_stored(&[card]).await;
        let status = node.relay(&relay.url);
        // One more for each time that a loaded machine is silent for too long.
        assert!(status.counts.connections >= 7, "{:?}", status.counts);
        assert!(status.counts.malformed >= 8 && status.counts.unasked == 2, "{:?}", status.counts);
        assert!(node.stored(1).await.is_empty());
    });
}

#[test]
fn a_flood_of_notices_ends_in_a_ban() {
    run(async {
        let relay = Relay::script(|mut peer| async move {
            loop {
                peer.say(&RelayMessage::Notice("buy now \u{1b}[2J".to_owned())).await;
            }
        })
        .await;
        let node = Node::start(quick(&[&relay.url]));
        node.until_relay(&relay.url, "banned", |relay| relay.state == State::Banned).await;
        let counts = node.relay(&relay.url).counts;
        assert!((1_001..1_100).contains(&counts.notices), "{counts:?}");
    });
}

#[test]
fn answers_about_other_events_are_no_answer() {
    run(async {
        let relay = Relay::script(|mut peer| async move {
            while let Some(message) = peer.hear().await {
                if let ClientMessage::Event(event) = message {
                    peer.ok(&card(77, 1), true, "").await;
                    if peer.number > 0 {
                        peer.ok(&event, true, "").await;
                    } else {
                        return;
                    }
                }
            }
        })
        .await;
        // Long enough for any machine: it is the connection that must fail, not the time.
        let options = Options { publish_ms: 60_000, answer_ms: 50_000, ..quick(&[&relay.url]) };
        let node = Node::start(options);
        node.until_relay(&relay.url, "there", |relay| relay.state == State::Connected).await;
        let event = ours(1);
        let refused = node.pool.publish(&relay.url, &event).await.unwrap_err();
        assert_eq!(refused.to_string(), "the relay did not take it: the connection was lost");
        node.until_relay(&relay.url, "again", |relay| {
            relay.counts.connections > 1 && relay.state == State::Connected
        })
        .await;
        assert_eq!(node.pool.publish(&relay.url, &event).await.unwrap().message, "");
        assert!(node.relay(&relay.url).counts.stray >= 1);
    });
}

#[test]
fn a_deaf_relay_is_connected_again_until_it_is_known_not_to_echo() {
    run(async {
        let relay =
            Relay::script(
                |mut peer| async move { while answer(&mut peer, &[]).await.is_some() {} },
            )
            .await;
        let options = Options { echo_ms: 100, echo_patience_ms: 100, ..quick(&[&relay.url]) };
        let node = Node::start(options);
        node.until_relay(&relay.url, "deaf", |relay| relay.counts.connections == 4).await;
        node.until_relay(&relay.url, "left alone", |relay| {
            relay.counts.ok > 8 && relay.state == State::Connected
        })
        .await;
        assert_eq!(node.relay(&relay.url).counts.connections, 4);
    });
}

#[test]
fn a_flood_of_events_is_stored_once_and_in_bounds() {
    run(async {
        let events: Vec<Event> = (0..3_000).map(|n| card(n, n)).collect();
        let flood = events.clone();
        let relay = Relay::script(move |mut peer| {
            let events = flood.clone();
            async move {
                // Everything at once and twice, whatever was asked for.
                let Some(ClientMessage::Req { sub, .. }) = peer.hear().await else { return };
                for event in events.iter().chain(&events) {
                    peer.event(&sub, event).await;
                }
                peer.eose(&sub).await;
                while answer(&mut peer, &[]).await.is_some() {}
            }
        })
        .await;
        let node = Node::start(Options { offers_max: 16, ..quick(&[&relay.url]) });
        node.until_relay(&relay.url, "all", |relay| relay.counts.known >= 3_000).await;
        node.until_stored(&events).await;
        let counts = node.relay(&relay.url).counts;
        assert_eq!((counts.stored, counts.known, counts.connections), (3_000, 3_000, 1));
    });
}

#[test]
fn a_relay_without_a_certificate_is_not_spoken_to() {
    run(async {
        let relay = Relay::script(|mut peer| async move { while peer.hear().await.is_some() {} });
        let relay = relay.await;
        let (url, all) = (relay.url.replace("ws://", "wss://"), [Filter::default()]);
        let refused = guild_network::client::ask(&url, &all, 1, 3_000, &RealClock).await;
        assert_eq!(refused.unwrap_err().code().name, "network.relay_unreachable");
        let node = Node::start(Options { connect_ms: 300, ..quick(&[&url]) });
        node.until_relay(&url, "failed", |relay| relay.failures > 0).await;
        assert_eq!(node.relay(&url).counts.connections, 0);
    });
}
