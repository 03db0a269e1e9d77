//! The market as a reader sees it, on both databases.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_bus::Local;
use guild_market::job::Refusal;
use guild_network::archive::{self, Bounds};
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_protocol::nostr::announcement::Announcement;
use guild_protocol::nostr::job::Status;
use guild_protocol::nostr::{Draft, kind, unix_s};
use guild_protocol::receipt;
use guild_roles::explorer::{
    Cursor, Explorer, Options, Page, RequestDetail, Side, Standing, StepKind, Tone, Wanted,
};
use guild_roles::turn::Turns;
use guild_store::{Hooks, Service};

use crate::bazaar::{
    ANYBODY, BUYER, Bazaar, T0, Wish, cheap, claimant, honest, key, migrations, public, work,
};

/// A minute after everything began; nothing is waited for.
struct Later;
impl Clock for Later {
    fn now_ms(&self) -> UnixMs {
        T0 + 60_000
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

/// A clock that somebody sets.
struct Set(AtomicI64);
impl Clock for Set {
    fn now_ms(&self) -> UnixMs {
        self.0.load(Ordering::SeqCst)
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_summary_is_made_once_for_all_who_ask_within_a_second() {
    let dir = tempfile::tempdir().unwrap();
    let file = guild_store::Options::file(&dir.path().join("node.db"));
    let service = Service::open(&file, &migrations(), Hooks::default(), 0).unwrap();
    let clock = Arc::new(Set(AtomicI64::new(T0)));
    let (store, bus) = (service.handle(), Arc::new(Local::new()));
    let explorer = Explorer::new(Options::default(), Turns::new(store.clone()), bus, clock.clone());
    let bazaar = Bazaar { store };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let requests =
            async |explorer: &Explorer| explorer.summary().await.unwrap().counts.requests;
        assert_eq!(requests(&explorer).await, 0);
        bazaar.ask(8, &[], "new", T0).await;
        clock.0.store(T0 + 999, Ordering::SeqCst);
        assert_eq!(requests(&explorer).await, 0, "that of a moment ago");
        assert_eq!(requests(&explorer.for_owner()).await, 1, "but not for the owner");
        clock.0.store(T0 + 1_000, Ordering::SeqCst);
        assert_eq!(requests(&explorer).await, 1);
        // A clock that was set back does not make it last.
        bazaar.ask(8, &[], "newer", T0).await;
        clock.0.store(T0, Ordering::SeqCst);
        assert_eq!(requests(&explorer).await, 2);
    });
    service.close();
}

#[test]
fn long_words_of_strangers_are_cut() {
    both(|bazaar, explorer| async move {
        let long = "long ".repeat(2_000);
        let mut card = Announcement::new("main");
        card.kinds = vec!["5050".to_owned(); 200];
        card.topics = vec![long.clone()];
        card.relays = (0..200).map(|n| format!("wss://{n}.example")).collect();
        card.content.name = Some(long.clone());
        card.content.description = Some(long.clone());
        let event = card.draft(unix_s(T0)).unwrap().sign(&key(2)).unwrap();
        bazaar.put(&event, T0).await;
        let of: Vec<u8> = (2..=99).collect();
        let request = bazaar.ask(9, &of, "x", T0).await;
        bazaar.say(2, &request, Status::Error, &long, T0 + 10).await;
        let offer = explorer.provider(public(2)).await.unwrap().unwrap().offers.remove(0);
        let count = |text: &str| text.chars().count();
        assert_eq!(offer.about.as_deref().map(count), Some(1_001));
        assert_eq!(offer.provider.name.as_deref().map(count), Some(201));
        assert!(offer.kinds.len() <= 32 && offer.relays.len() <= 32);
        let detail = explorer.request(request.id).await.unwrap().unwrap();
        assert_eq!((detail.request.providers.len(), detail.request.more_providers), (32, 66));
        assert_eq!(detail.timeline.iter().map(|step| count(&step.text)).max(), Some(501));
    });
}

/// Runs a story on every kind of database.
fn both<F: Future<Output = ()>>(story: impl Fn(Bazaar, Explorer) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let database = testbed::Database::new().unwrap();
    let places = [
        guild_store::Options::file(&dir.path().join("node.db")),
        guild_store::Options::at(&database.url()),
    ];
    for options in places {
        let service = Service::open(&options, &migrations(), Hooks::default(), 0).unwrap();
        let explorer = Explorer::new(
            Options::default(),
            Turns::new(service.handle()),
            Arc::new(Local::new()),
            Arc::new(Later),
        );
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let told = story(Bazaar { store: service.handle() }, explorer);
        runtime.block_on(testbed::in_time(told));
        service.close();
    }
}

/// The steps of a story in short: what, how, and in which words.
fn told(detail: &RequestDetail) -> Vec<String> {
    let sign = |tone| match tone {
        Tone::Good => "+",
        Tone::Bad => "-",
        Tone::Plain => " ",
    };
    detail
        .timeline
        .iter()
        .map(|step| format!("{} {:?}: {}", sign(step.tone), step.kind, step.text))
        .collect()
}

#[test]
fn a_job_is_followed_from_request_to_receipt() {
    both(|bazaar, explorer| async move {
        bazaar.fund(100_000).await;
        bazaar.announce(2, "Fast box", 5_000, T0).await;
        let wish = Wish { order_key: "a", provider: 2, budget_msat: 8_000, private: false };
        let request = bazaar.order(wish, T0 + 1_000).await;
        let open = explorer.request(request.id).await.unwrap().unwrap();
        assert_eq!((open.request.side, open.request.standing), (Side::Bought, Standing::Open));
        bazaar.say(2, &request, Status::Processing, "", T0 + 1_200).await;
        let working = explorer.request(request.id).await.unwrap().unwrap();
        assert_eq!(working.request.standing, Standing::Working);
        bazaar.answer(2, &request, &honest(&work("a"), 2), T0 + 2_000).await;
        // A stranger's result and a second one of the provider come too late to matter, and are told as what they are.
        let settled = bazaar.settle("a", T0 + 2_500).await;
        bazaar.answer(3, &request, "{}", T0 + 3_000).await;
        bazaar.answer(2, &request, &cheap(2), T0 + 3_100).await;
        let detail = explorer.request(request.id).await.unwrap().unwrap();
        insta::allow_duplicates! {
            insta::assert_debug_snapshot!(told(&detail), @r#"
            [
                "  Request: Work of oa.embedding.v1 is wanted, for at most 5 sat.",
                "  Hold: The budget of 8 sat is set aside for it.",
                "  Feedback: The work has begun, for 5 sat.",
                "  Result: The result is here, for 5 sat.",
                "+ Verdict: Accepted: it is exactly what this node computed itself.",
                "+ Payment: 5 sat are paid. 3 sat of the budget went back.",
                "+ Receipt: Signed by the buyer, and sent to the provider.",
                "  Result: From somebody who was not asked, so it does not count. The result is here, for 5 sat.",
                "- Result: Another result than before, signed by the same key. It changes nothing, and is kept as evidence.",
            ]
            "#);
        }
        assert_eq!(detail.request.standing, Standing::Paid);
        assert_eq!(detail.price_msat, Some(5_000));
        assert_eq!(detail.request.providers[0].name.as_deref(), Some("Fast box"));
        assert!(detail.request.buyer.ours && !detail.request.providers[0].ours);
        let result = detail.timeline.iter().find(|step| step.kind == StepKind::Result).unwrap();
        assert_eq!(result.author.as_ref().unwrap().npub, public(2).npub());
        assert!(result.event_id.is_some());

        let id = settled.receipt.as_ref().unwrap().receipt_id().clone();
        assert_eq!(detail.receipt_id, Some(id.to_string()));
        let kept = explorer.receipt(id.clone()).await.unwrap().unwrap();
        assert!(receipt::verify(&kept.bytes).unwrap().holds());
        assert_eq!((kept.has_replay, kept.receipt.side), (true, Side::Bought));
        let replay = explorer.replay(id).await.unwrap().unwrap();
        assert!(replay.starts_with(b"{\"") && replay.ends_with(b"\n"));
        let provider = explorer.provider(public(2)).await.unwrap().unwrap();
        assert_eq!((provider.record.released, provider.record.paid_msat), (1, 5_000));
        assert_eq!((provider.live, provider.receipts.len()), (true, 1));
        // What is believed of it is for the owner, unless the settings say otherwise.
        bazaar.learn("a", T0 + 2_500).await;
        let provider = explorer.provider(public(2)).await.unwrap().unwrap();
        assert!(provider.routing.is_empty() && provider.trust.is_empty());
        let provider = explorer.for_owner().provider(public(2)).await.unwrap().unwrap();
        assert_eq!(provider.routing[0].entry.trust_bp, 6_000);
    });
}

#[test]
fn bad_ends_say_why() {
    both(|bazaar, explorer| async move {
        bazaar.fund(100_000).await;
        let wish =
            |order_key, private| Wish { order_key, provider: 2, budget_msat: 8_000, private };
        let cheated = bazaar.order(wish("cheat", true), T0).await;
        bazaar.answer(2, &cheated, &cheap(2), T0 + 500).await;
        bazaar.settle("cheat", T0 + 600).await;
        let refused = bazaar.order(wish("refused", false), T0 + 1_000).await;
        let no = bazaar.say(2, &refused, Status::Error, "too busy", T0 + 1_100).await;
        bazaar
            .write(move |tx| Ok(guild_market::order::fail(tx, &no, &key(BUYER), T0 + 1_200)?))
            .await;
        let seen = explorer.request(cheated.id).await.unwrap().unwrap();
        assert_eq!(
            (seen.request.standing, seen.request.schema_id.as_deref()),
            (Standing::Withheld, None)
        );
        assert_eq!(
            told(&seen),
            [
                "  Request: Private work is wanted, for at most 5 sat. Its input is encrypted.",
                "  Hold: The budget of 8 sat is set aside for it.",
                "  Result: The result is here, for 5 sat.",
                "- Verdict: Not accepted. The reason is private.",
                "- Payment: Nothing is paid. The 8 sat that were set aside went back.",
                "  Receipt: Signed by the buyer, and sent to the provider.",
            ]
        );
        let cheated = explorer.for_owner().request(cheated.id).await.unwrap().unwrap();
        assert_eq!(cheated.request.standing, Standing::Withheld);
        assert_eq!(
            cheated.request.schema_id.as_deref(),
            Some("oa.embedding.v1"),
            "our own private order"
        );
        let told_cheated = told(&cheated);
        assert_eq!(
            told_cheated[0],
            "  Request: Work of oa.embedding.v1 is wanted, for at most 5 sat. Its input is encrypted."
        );
        assert!(
            told_cheated[3].starts_with(
                "- Verdict: Not accepted: it is not what this node computed itself (likeness "
            ),
            "{told_cheated:?}"
        );
        assert_eq!(
            told_cheated[4],
            "- Payment: Nothing is paid. The 8 sat that were set aside went back."
        );
        let refused = explorer.request(refused.id).await.unwrap().unwrap();
        assert_eq!(
            (refused.request.standing, refused.reason.as_deref()),
            (Standing::Failed, Some("too busy"))
        );
        assert_eq!(
            told(&refused)[2..],
            [
                "- Feedback: It does not do it: too busy",
                "- End: The provider gave it up, saying “too busy”. The 8 sat went back."
            ]
        );
    });
}

/// Whoever gave an order up asks everybody to forget its request; its own list still says what became of it.
#[test]
fn an_order_that_ended_without_a_result_stays_in_the_list() {
    both(|bazaar, explorer| async move {
        bazaar.fund(100_000).await;
        let wish = |order_key| Wish { order_key, provider: 2, budget_msat: 8_000, private: false };
        let (late, gone) = ("late", "gone");
        let requests = [bazaar.order(wish(late), T0).await, bazaar.order(wish(gone), T0 + 1).await];
        let seen = bazaar.ask(8, &[5], "not ours", T0 + 2).await;
        let ids = requests.each_ref().map(|request| request.id);
        bazaar
            .write(move |tx| {
                for id in &ids {
                    guild_network::archive::pin(tx, id)?;
                }
                let gone = guild_market::order::OrderId::of_key(gone);
                guild_market::order::cancel(tx, &gone, T0 + 10)?;
                let end_ms = T0 + 60_000;
                let waits = guild_market::order::Waits::End(end_ms);
                for id in guild_market::order::waiting(
                    tx,
                    waits,
                    (&claimant(), T0),
                    &BTreeSet::new(),
                    10,
                )? {
                    guild_market::order::expire(tx, &id, end_ms, end_ms)?;
                }
                Ok(())
            })
            .await;
        for (by, request) in [(BUYER, &requests[0]), (BUYER, &requests[1]), (8, &seen)] {
            let deletion = Draft {
                kind: kind::DELETION,
                created_at: request.created_at + 60,
                tags: vec![vec!["e".to_owned(), request.id.hex()]],
                content: String::new(),
            };
            bazaar.put(&deletion.sign(&key(by)).unwrap(), T0 + 60_001).await;
        }
        let lines = explorer.requests(Page::first(10)).await.unwrap().items;
        let lines: Vec<_> = lines.iter().map(|r| (r.request_id.clone(), r.standing)).collect();
        assert_eq!(
            lines,
            [(ids[1].hex(), Standing::Cancelled), (ids[0].hex(), Standing::Expired)],
            "what others took back is forgotten"
        );
        let ends = async |id| {
            let detail = explorer.request(id).await.unwrap().unwrap();
            told(&detail).pop().unwrap()
        };
        assert_eq!(ends(ids[0]).await, "- End: Nothing came in time. The 8 sat went back.");
        assert_eq!(ends(ids[1]).await, "- End: Its buyer took it back. The 8 sat went back.");
    });
}

#[test]
fn work_that_this_node_did_and_requests_that_it_only_saw() {
    both(|bazaar, explorer| async move {
        let hired = bazaar.ask(7, &[2], "for us", T0).await;
        bazaar.take(2, &hired, 5_000, T0 + 100).await;
        bazaar.say(2, &hired, Status::Processing, "", T0 + 100).await;
        bazaar.hand_in(2, &hired, T0 + 200).await;
        let poor = bazaar.ask(8, &[2], "too cheap", T0 + 300).await;
        bazaar.take(2, &poor, 9_000, T0 + 400).await;
        let open = bazaar.ask(8, &[], "anybody", T0 + 500).await;
        let theirs = bazaar.ask(8, &[5], "not ours", T0 + 600).await;
        bazaar.answer(6, &theirs, "{}", T0 + 700).await;
        let page = explorer.requests(Page::first(10)).await.unwrap();
        let lines: Vec<_> =
            page.items.iter().map(|r| (r.request_id.clone(), r.side, r.standing)).collect();
        assert_eq!(
            lines,
            [
                (theirs.id.hex(), Side::Seen, Standing::Open),
                (open.id.hex(), Side::Seen, Standing::Open),
                (poor.id.hex(), Side::Hired, Standing::Refused),
                (hired.id.hex(), Side::Hired, Standing::Delivered),
            ]
        );
        let receipt = bazaar.sign_for(7, 2, &hired, T0 + 750).await;
        let hired = explorer.request(hired.id).await.unwrap().unwrap();
        assert_eq!(
            (hired.request.standing, hired.receipt_id.clone()),
            (Standing::Paid, Some(receipt.receipt_id().to_string()))
        );
        assert_eq!(
            told(&hired)[3..],
            [
                "+ Payment: The buyer owes this node 5 sat for it, as agreed.",
                "+ Receipt: Signed by the buyer. It came, and every check of it passed.",
            ]
        );
        let kept = explorer.receipt(receipt.receipt_id().clone()).await.unwrap().unwrap();
        assert_eq!((kept.bytes.as_slice(), kept.receipt.side), (receipt.as_bytes(), Side::Hired));
        assert!(
            !kept.has_replay
                && explorer.replay(receipt.receipt_id().clone()).await.unwrap().is_none()
        );
        bazaar.answer(5, &theirs, "{}", T0 + 800).await;
        let theirs = explorer.request(theirs.id).await.unwrap().unwrap();
        assert_eq!(theirs.request.standing, Standing::Delivered, "by the one who was asked");
        assert_eq!((theirs.price_msat, theirs.receipt_id), (Some(5_000), None));
        let poor = explorer.request(poor.id).await.unwrap().unwrap();
        assert!(
            told(&poor)[1].starts_with("- End: This node does not take it: "),
            "{:?}",
            told(&poor)
        );
        assert!(explorer.request("ab".repeat(32).parse().unwrap()).await.unwrap().is_none());
        assert!(explorer.provider(public(99)).await.unwrap().is_none());
    });
}

#[test]
fn private_work_that_this_node_did_is_told_to_its_owner() {
    both(|bazaar, explorer| async move {
        let request = bazaar.ask_in_private(7, 2, "for us alone", T0).await;
        bazaar.take(2, &request, 5_000, T0 + 100).await;
        let (id, words) = (request.id, "the disk is full");
        let refusal = Refusal::new(&guild_roles::code::WORK_FAILED, words);
        bazaar.give_up(&id, &refusal, T0 + 200).await;
        let seen = explorer.request(id).await.unwrap().unwrap();
        assert_eq!((seen.request.side, seen.request.schema_id.clone()), (Side::Hired, None));
        assert_eq!(
            (told(&seen).last().unwrap().as_str(), &seen.reason),
            ("- End: This node could not do it.", &None)
        );
        let whole = explorer.for_owner().request(id).await.unwrap().unwrap();
        assert_eq!(whole.request.schema_id.as_deref(), Some("oa.embedding.v1"));
        assert_eq!(whole.reason.as_deref(), Some(words));
    });
}

#[test]
fn an_order_that_is_open_to_all_names_whoever_did_it() {
    both(|bazaar, explorer| async move {
        bazaar.fund(100_000).await;
        bazaar.announce(3, "Quick hand", 5_000, T0).await;
        let wish =
            Wish { order_key: "open", provider: ANYBODY, budget_msat: 8_000, private: false };
        let request = bazaar.order(wish, T0 + 1_000).await;
        let open = explorer.request(request.id).await.unwrap().unwrap().request;
        assert_eq!((open.standing, open.providers.len()), (Standing::Open, 0));
        bazaar.answer(3, &request, &honest(&work("open"), 3), T0 + 2_000).await;
        bazaar.settle("open", T0 + 2_500).await;
        let done = explorer.requests(Page::first(1)).await.unwrap().items.remove(0);
        assert_eq!(
            (done.standing, done.providers[0].name.as_deref()),
            (Standing::Paid, Some("Quick hand"))
        );
    });
}

#[test]
fn lists_are_read_page_by_page_without_gap_or_repeat() {
    both(|bazaar, explorer| async move {
        bazaar.fund(1_000_000).await;
        for n in 10..17 {
            bazaar.announce(n, &format!("Box {}", n / 2), 1_000, T0 + i64::from(n / 3)).await;
            let order_key = format!("order {n}");
            let wish =
                Wish { order_key: &order_key, provider: n, budget_msat: 8_000, private: false };
            let request = bazaar.order(wish, T0 + 1_000).await;
            bazaar.answer(n, &request, &cheap(n), T0 + 2_000).await;
            bazaar.settle(&order_key, T0 + 3_000).await;
        }
        let (mut offers, mut requests, mut receipts) = (Vec::new(), Vec::new(), Vec::new());
        let (mut a, mut b, mut c): (Option<Cursor>, Option<Cursor>, Option<Cursor>) =
            (None, None, None);
        for _ in 0..4 {
            let page = |after: &Option<Cursor>| Page { after: after.clone(), limit: 2 };
            let listed = explorer.providers(page(&a), Wanted::default()).await.unwrap();
            offers.extend(listed.items.into_iter().map(|offer| offer.provider.npub));
            a = listed.next;
            let listed = explorer.requests(page(&b)).await.unwrap();
            requests.extend(listed.items.into_iter().map(|request| request.request_id));
            b = listed.next;
            let listed = explorer.receipts(page(&c)).await.unwrap();
            receipts.extend(listed.items.into_iter().map(|receipt| receipt.receipt_id));
            c = listed.next;
        }
        assert_eq!((a, b, c), (None, None, None));
        for mut list in [offers, requests, receipts] {
            let count = list.len();
            list.sort();
            list.dedup();
            assert_eq!((count, list.len()), (7, 7));
        }
        let rubbish: Cursor = "5-nothing".parse().unwrap();
        let page = Page { after: Some(rubbish), limit: 2 };
        let refused = explorer.receipts(page.clone()).await.unwrap_err();
        assert_eq!(
            (refused.code().name, refused.field()),
            ("explorer.cursor_malformed", Some("after"))
        );
        assert_eq!(explorer.providers(page, Wanted::default()).await.unwrap_err(), refused);
    });
}

#[test]
fn offers_are_narrowed_down_and_the_silent_are_told_from_the_live() {
    both(|bazaar, explorer| async move {
        bazaar.announce(2, "Fast box", 5_000, T0).await;
        bazaar.announce(3, "Fast box", 0, T0 - 900_000).await;
        bazaar.ask(8, &[], "anybody", T0).await;
        let all = explorer.providers(Page::first(9), Wanted::default()).await.unwrap().items;
        let seen: Vec<_> =
            all.iter().map(|offer| (offer.live, offer.price_msat, offer.name_shared)).collect();
        assert_eq!(seen, [(true, Some(5_000), true), (false, Some(0), true)]);
        let live = Wanted {
            schema_id: Some("oa.embedding.v1".to_owned()),
            live: true,
            ..Wanted::default()
        };
        assert_eq!(explorer.providers(Page::first(9), live).await.unwrap().items.len(), 1);
        let other = Wanted { schema_id: Some("oa.sandbox_run.v1".to_owned()), ..Wanted::default() };
        assert_eq!(explorer.providers(Page::first(9), other).await.unwrap().items, []);
        let summary = explorer.summary().await.unwrap();
        let counts = summary.counts;
        assert_eq!(
            (counts.offers, counts.offers_live, counts.requests, counts.receipts),
            (2, 1, 1, 0)
        );
        assert_eq!((summary.offers.len(), summary.requests.len()), (1, 1));
        explorer.ping().await.unwrap();
    });
}

/// What is refused is not kept. Once the archive has forgotten it too, it is unknown, and no error.
#[test]
fn a_request_that_was_refused_and_forgotten_is_unknown() {
    both(|bazaar, explorer| async move {
        let request = bazaar.ask(4, &[2], "refused", T0).await;
        bazaar.take(2, &request, 9_000, T0 + 1).await;
        let shown = explorer.request(request.id).await.unwrap().unwrap();
        assert_eq!(shown.request.standing, Standing::Refused);
        let nothing = Bounds { max_events: 0, max_bytes: 0 };
        bazaar.write(move |tx| Ok(archive::sweep(tx, unix_s(T0), &nothing)?)).await;
        assert_eq!(explorer.request(request.id).await.unwrap(), None);
    });
}
