//! Real processes, killed while they add and collect: what was pinned is whole, and what is left is collected.
//!
//! The process that is killed is this test binary, started again with only the test `as_one_who_adds`.

use std::sync::Arc;

use guild_network::content::{Content, Options, Pin, Reach};
use guild_protocol::content::Options as Layout;
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_store::{Hooks, Migrations, Options as StoreOptions, Service};
use testbed::{Dice, Victim, wait_ms};

use super::{Moved, Rolled, pattern};
use crate::support::block_on;

const STORE_URL: &str = "GUILD_TEST_CONTENT_STORE";
const KILLS: u64 = 8;

struct Real;

impl Clock for Real {
    fn now_ms(&self) -> UnixMs {
        testbed::now_ms()
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

fn open(url: &str) -> Service {
    let all = Migrations::store().and(guild_network::migrations());
    Service::open(&StoreOptions::at(url), &all, Hooks::default(), 0).unwrap()
}

/// Not a test of its own: what the killed process runs.
#[test]
fn as_one_who_adds() {
    #[expect(clippy::disallowed_methods, reason = "how the parent tells its child what to do")]
    let Ok(url) = std::env::var(STORE_URL) else { return };
    let service = open(&url);
    let options = Options { grace_ms: 0, ..Options::default() };
    let random = Arc::new(Rolled(Dice::new(3)));
    let content = Content::new(options, service.handle(), Arc::new(Real), random);
    let collector = content.clone();
    std::thread::spawn(move || {
        loop {
            block_on(collector.collect()).unwrap();
        }
    });
    let dice = Dice::new(4);
    let layout = Layout { chunk_bytes: 1_000, max_links: 5, ..Layout::default() };
    for n in 0_u64.. {
        let bytes = pattern(usize::try_from(20_000 + dice.below(50_000)).unwrap());
        // Nobody else has this name, so nobody else lets go of it.
        let owner = Pin::new(&format!("{} {n}", std::process::id()), "").unwrap();
        let root = block_on(async {
            let mut adding = content.begin().await.unwrap();
            let tree = adding.read(layout, bytes.as_slice()).await.unwrap();
            adding.keep(&[tree.cid], &owner).await.unwrap();
            tree.cid
        });
        if n % 2 == 1 {
            block_on(content.unpin(&root, &owner.owner)).unwrap();
        }
    }
}

fn survives(url: &str) {
    let dice = Dice::new(5);
    let service = open(url);
    let pinned = || {
        let count =
            service.handle().read(|rx| rx.first::<(i64,)>("SELECT count(*) FROM content_pin", &[]));
        block_on(count).unwrap().unwrap().0
    };
    for _ in 0..KILLS {
        let before = pinned();
        let mut victim =
            Victim::start("content::killed::as_one_who_adds", &[(STORE_URL, url)]).unwrap();
        // It has begun, however long that took; then it is killed at any moment.
        while pinned() == before {
            assert!(!victim.has_ended());
            wait_ms(10);
        }
        wait_ms(dice.below(300));
        assert!(!victim.has_ended());
    }
    let clock = Moved::new();
    let options = Options { grace_ms: 0, ..Options::default() };
    let random = Arc::new(Rolled(Dice::seeded(1)));
    // Long after: whoever was adding is forgotten.
    let now_ms = testbed::now_ms().max(clock.now_ms());
    clock.on(now_ms - clock.now_ms() + 3_600_000);
    let content = Content::new(options, service.handle(), clock, random);
    let check = |content: &Content| {
        let pins = block_on(content.pins(None)).unwrap();
        for pin in &pins {
            block_on(content.walk(&pin.cid, Reach::Local)).unwrap();
        }
        let (mut after, mut blocks, mut bytes) = (None, 0, 0);
        loop {
            let some = block_on(content.scrub(after.as_deref())).unwrap();
            assert!(some.wrong.is_empty());
            blocks += some.blocks;
            bytes += some.bytes;
            after = some.next;
            if after.is_none() {
                break;
            }
        }
        let summary = block_on(content.summary()).unwrap();
        assert_eq!((summary.blocks, summary.bytes), (blocks, bytes), "they are counted right");
        pins
    };
    let pins = check(&content);
    assert!(!pins.is_empty());
    // A round may have been left in the middle; then the one after it removes the rest.
    block_on(content.collect()).unwrap();
    block_on(content.collect()).unwrap();
    assert_eq!(check(&content), pins);
    for pin in &pins {
        assert!(block_on(content.unpin(&pin.cid, &pin.owner)).unwrap());
    }
    block_on(content.collect()).unwrap();
    let summary = block_on(content.summary()).unwrap();
    assert_eq!((summary.blocks, summary.bytes), (0, 0));
    service.close();
}

#[test]
fn killed_processes_leave_what_is_pinned_whole_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    survives(&StoreOptions::file(&dir.path().join("node.db")).url);
}

#[test]
fn killed_processes_leave_what_is_pinned_whole_on_postgres() {
    let database = testbed::Database::new().unwrap();
    survives(&database.url());
}
