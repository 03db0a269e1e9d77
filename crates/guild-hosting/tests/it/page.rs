//! What pages show, on both databases: each minute with its transfer, to its owner and to the operator.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guild_hosting::access::session::{self, NewSession, Via};
use guild_hosting::access::{Token, nonce, rate, siwe};
use guild_hosting::clamp::Policy;
use guild_hosting::desk::{Desk, Options, Viewer};
use guild_hosting::machine::Abilities;
use guild_hosting::machine::image::Images;
use guild_hosting::machine::link::Link;
use guild_hosting::machine::visit::{Door, Limits};
use guild_protocol::env::{BoxFuture, Clock, Random};
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;

use crate::world::{
    MINUTE_MS, Node, PRICE, T0, block_on, both, job_id, new_job, new_sandbox, sandbox_id, user,
};

/// How many minutes have passed.
const MINUTES: i64 = 70;
const NOW: i64 = T0 + MINUTES * MINUTE_MS + 5_000;

#[derive(Default)]
struct Fixed(AtomicU64);

impl Clock for Fixed {
    fn now_ms(&self) -> i64 {
        NOW
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

impl Random for Fixed {
    fn fill(&self, bytes: &mut [u8]) {
        let drawn = Hash::of(&self.0.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        bytes
            .iter_mut()
            .zip(drawn.as_bytes().iter().cycle())
            .for_each(|(byte, drawn)| *byte = *drawn);
    }
}

fn desk(node: &Node) -> Desk {
    let options = Options {
        policy: Policy::default(),
        siwe: siwe::Policy { origins: vec![], chain_ids: BTreeSet::new(), skew_ms: 0 },
        session_ms: MINUTE_MS,
        rate: rate::Options::default(),
        nonces: nonce::Limits::default(),
        machine: "local".to_owned(),
        abilities: Abilities { pause: true, resize: false },
        bypass: false,
    };
    let fixed = Arc::new(Fixed::default());
    let link =
        Link::new(Arc::new(SecretKey::from_bytes([9; 32]).unwrap()), fixed.clone(), fixed.clone());
    let door = Door::new(node.store.clone(), link, Limits::default());
    let (store, bus) = (node.store.clone(), Arc::new(guild_bus::Local::new()));
    Desk::new(options, Arc::new(Images::new()), door, store, bus, fixed.clone(), fixed)
}

/// Somebody who signed in on a page.
fn viewer(node: &Node, n: u8) -> (Viewer, Token) {
    let new = NewSession::for_page(&Fixed::default(), &Fixed(AtomicU64::new(n.into())), MINUTE_MS);
    let token = new.token.clone();
    node.write(move |tx| session::open(tx, &user(n), Via::Siwe, &new, NOW)).unwrap();
    (Viewer::User(token.clone()), token)
}

/// Two sandboxes of user 1, one of which has run for more than an hour.
fn busy(node: &Node) {
    node.fund(1, 1_000_000);
    node.create_job(&new_job(1), T0).unwrap();
    node.run(&new_sandbox(1), T0);
    for tick in 1..=MINUTES * 3 {
        node.tick(T0 + tick * 20_000);
    }
    node.order(&new_sandbox(2), NOW);
}

#[test]
fn each_minute_is_shown_with_the_transfer_that_paid_it() {
    both(|node| {
        busy(node);
        let (desk, (owner, _)) = (desk(node), viewer(node, 1));
        let id = sandbox_id(1).to_string();
        for who in [&owner, &Viewer::Operator] {
            let first = block_on(desk.sandbox_page(who, &id, None)).unwrap();
            assert_eq!((first.minutes.len(), first.next), (60, Some(MINUTES + 1 - 60)));
            let rest = block_on(desk.sandbox_page(who, &id, first.next)).unwrap();
            assert_eq!((rest.minutes.len(), rest.next), (11, None));
            let all: Vec<_> = first.minutes.iter().chain(&rest.minutes).collect();
            for (minute, number) in all.iter().zip((0..=MINUTES).rev()) {
                let (units, at_ms) = minute.booked.expect("the ledger knows it");
                assert_eq!((minute.number, units), (number, PRICE));
                assert_eq!(minute.begins_ms, T0 + number * MINUTE_MS);
                assert!(at_ms <= minute.begins_ms, "{minute:?}");
            }
            let ids: BTreeSet<&str> =
                all.iter().map(|minute| minute.transfer_id.as_str()).collect();
            assert_eq!(ids.len(), all.len());
            let job = block_on(desk.job_page(who, job_id(1).as_str())).unwrap();
            assert_eq!((job.card.live, job.card.burn), (2, 2 * PRICE));
            assert_eq!((job.sandboxes.len(), job.minutes.len()), (2, 60));
            assert_eq!(job.minutes[0], first.minutes[0]);
        }
        // A minute that the ledger does not know is not made up.
        let plant = |tx: &mut guild_store::Tx<'_>| {
            Ok(tx.exec(
                "UPDATE hosting_run SET paid_minutes = paid_minutes + 1 WHERE paid_minutes > 0",
                &[],
            )?)
        };
        node.write(plant).unwrap();
        let planted = block_on(desk.sandbox_page(&owner, &id, None)).unwrap();
        assert_eq!(planted.minutes[0].booked, None);
        assert!(planted.minutes[1].booked.is_some());
    });
}

#[test]
fn everybody_sees_their_own_and_the_operator_everything() {
    both(|node| {
        busy(node);
        let (desk, (owner, _), (other, _)) = (desk(node), viewer(node, 1), viewer(node, 2));
        let mine = block_on(desk.overview(&owner, None)).unwrap();
        assert_eq!((mine.jobs.len(), mine.open.len(), mine.ended.len()), (1, 2, 0));
        let balance = mine.balance.as_ref().unwrap();
        assert_eq!(balance.burn_micro_usd_per_minute, 2 * PRICE);
        assert_eq!(balance.held_micro_usd, PRICE);
        let theirs = block_on(desk.overview(&other, None)).unwrap();
        assert_eq!((theirs.jobs.len(), theirs.open.len()), (0, 0));
        let unknown = block_on(desk.job_page(&other, job_id(1).as_str())).unwrap_err();
        assert_eq!(unknown.code().name, "hosting.unknown_job");
        let unknown =
            block_on(desk.sandbox_page(&other, sandbox_id(1).as_str(), None)).unwrap_err();
        assert_eq!(unknown.code().name, "hosting.unknown_sandbox");
        assert_eq!(block_on(desk.statement_file(&other)).unwrap(), []);

        let all = block_on(desk.overview(&Viewer::Operator, None)).unwrap();
        let house = all.house.as_ref().unwrap();
        assert_eq!((house.live, house.burn, house.lost), (2, 2 * PRICE, 0));
        assert_eq!(house.earned, PRICE * (MINUTES + 1));
        assert_eq!((all.jobs.len(), all.open.len()), (1, 2));
        let before = block_on(desk.overview(&owner, Some(job_id(1).as_str()))).unwrap();
        assert_eq!(before.jobs, []);
        // What happens changes the mark, and looking again does not.
        assert_eq!(block_on(desk.overview(&owner, None)).unwrap().mark(), mine.mark());
        node.fund(1, 5);
        assert_ne!(block_on(desk.overview(&owner, None)).unwrap().mark(), mine.mark());

        // A credit, two holds, a settled minute and the others: in a file all at once.
        let lines = block_on(desk.statement_file(&owner)).unwrap();
        assert_eq!(lines.len(), 5 + 70);
        let page = block_on(desk.statement_page(&owner, None)).unwrap();
        assert_eq!(page.lines, lines[..50]);
        let next = page.next.unwrap().parse().unwrap();
        assert_eq!(block_on(desk.statement_page(&owner, Some(next))).unwrap().lines, lines[50..]);
    });
}

#[test]
fn the_token_of_a_page_ends_with_its_session_and_is_no_other() {
    both(|node| {
        let (desk, (_, token)) = (desk(node), viewer(node, 1));
        assert_eq!(block_on(desk.look(token.clone())).unwrap(), user(1).to_string());
        let text = token.reveal().replacen("ghw_", "ghs_", 1);
        let as_session: Token = text.parse().unwrap();
        let refused = block_on(desk.me(as_session)).unwrap_err();
        assert_eq!(refused.code().name, "access.unauthenticated");
        let caller = block_on(desk.who(token.clone())).unwrap();
        let reached = node.write(move |tx| {
            let keys = guild_hosting::access::key::list(tx, &caller, NOW).unwrap_err();
            let sessions = session::list(tx, &caller, NOW).unwrap_err();
            Ok([keys.code().name, sessions.code().name])
        });
        assert_eq!(reached.unwrap(), ["access.scope_missing", "access.needs_session"]);
        block_on(desk.sign_out(token.clone())).unwrap();
        let refused = block_on(desk.look(token)).unwrap_err();
        assert_eq!(refused.code().name, "access.unauthenticated");
    });
}
