//! Which blocks go, and which never do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use guild_network::content::{Adding, Collected, Content, OPERATOR, Options, Pin, Reach};
use guild_protocol::content::dag_pb::{Link, PbNode};
use guild_protocol::content::{Cid, Codec, Options as Layout};
use guild_store::args;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use testbed::Dice;

use super::{HOUR_MS, Moved, Rolled, add, code_of, content, pattern, pin, usual};
use crate::support::{Scratch, block_on, both};

/// Some blocks in some leaves and a root.
const SMALL: Layout = Layout {
    chunk_bytes: 10,
    max_links: 4,
    raw_leaves: true,
    version: guild_protocol::content::Version::V1,
};

fn node(links: &[Cid]) -> (Cid, Vec<u8>) {
    let links = links.iter().map(|cid| Link { cid: *cid, name: None, tree_bytes: None });
    let bytes = PbNode { links: links.collect(), data: None }.encode();
    (Cid::of(Codec::DagPb, &bytes), bytes)
}

fn collect(content: &Content) -> Collected {
    block_on(content.collect()).unwrap()
}

#[test]
fn what_is_pinned_fresh_or_being_added_stays_and_the_rest_goes() {
    both(|scratch| {
        let (content, clock) = usual(scratch);
        let kept = add(&content, SMALL, &pattern(300));
        let shared = add(&content, SMALL, &pattern(200));
        block_on(content.pin(&kept.cid, &pin(), Reach::Local)).unwrap();
        clock.on(HOUR_MS - 1);
        assert_eq!(collect(&content).removed, 0, "within the grace period");
        let fresh = add(&content, SMALL, &[9; 95]);
        clock.on(1);
        let before = block_on(content.summary()).unwrap();
        let collected = collect(&content);
        let after = block_on(content.summary()).unwrap();
        // Most leaves of the second file are leaves of the first.
        assert!(collected.removed > 0 && after.blocks + collected.removed == before.blocks);
        assert_eq!(after.bytes + collected.removed_bytes, before.bytes);
        for tree in [&kept, &fresh] {
            block_on(content.walk(&tree.cid, Reach::Local)).unwrap();
        }
        assert_eq!(code_of(block_on(content.walk(&shared.cid, Reach::Local))), "content.missing");
        assert!(block_on(content.unpin(&kept.cid, OPERATOR)).unwrap());
        clock.on(HOUR_MS);
        collect(&content);
        let summary = block_on(content.summary()).unwrap();
        assert_eq!((summary.blocks, summary.bytes), (0, 0));
        assert_eq!(scratch.number("SELECT count(*) FROM content_bytes"), 0);
    });
}

#[test]
fn whoever_adds_slowly_loses_nothing_and_whoever_was_gone_too_long_is_told() {
    both(|scratch| {
        let clock = Moved::new();
        let content = content(scratch, &clock, Options { grace_ms: 0, ..Options::default() });
        block_on(async {
            let mut adding = content.begin().await.unwrap();
            let mut file = adding.file(Layout::default()).unwrap();
            for piece in pattern(3_000_000).chunks(700_000) {
                file.push(piece).await.unwrap();
                clock.on(200_000);
                assert_eq!(content.collect().await.unwrap().removed, 0);
            }
            let tree = file.finish().await.unwrap();
            clock.on(500_000);
            content.collect().await.unwrap();
            adding.keep(&[tree.cid], &pin()).await.unwrap();
            content.collect().await.unwrap();
            content.walk(&tree.cid, Reach::Local).await.unwrap();

            let mut late = content.begin().await.unwrap();
            let lost = late.read(SMALL, &b"too late"[..]).await.unwrap();
            clock.on(600_000);
            assert_eq!(content.collect().await.unwrap().removed, 1);
            assert_eq!(code_of(late.keep(&[lost.cid], &pin()).await), "content.expired");
            assert!(content.pins_of(&lost.cid).await.unwrap().is_empty());
        });
    });
}

#[test]
fn nothing_goes_while_a_pinned_node_is_missing() {
    both(|scratch| {
        let (content, clock) = usual(scratch);
        let kept = add(&content, SMALL, &pattern(300));
        block_on(content.pin(&kept.cid, &pin(), Reach::Local)).unwrap();
        add(&content, SMALL, b"garbage");
        clock.on(2 * HOUR_MS);
        let blocks = block_on(content.summary()).unwrap().blocks;
        // A node in the middle: its leaves hang below nothing that is known.
        let lost = block_on(scratch.store.write(|tx| {
            let row: Option<(String,)> = tx.first(
                "SELECT digest FROM content_block WHERE links = 4 AND bytes > 170 ORDER BY digest LIMIT 1",
                &[],
            )?;
            let digest = row.unwrap().0;
            tx.exec("DELETE FROM content_block WHERE digest = $1", args![&digest])?;
            tx.exec("DELETE FROM content_bytes WHERE digest = $1", args![&digest])?;
            Ok::<_, guild_store::Error>(digest)
        }))
        .unwrap();
        let refused = block_on(content.collect()).unwrap_err();
        let named =
            Cid::v1(Codec::DagPb, guild_protocol::hash::Hash::parse_liberal(&lost).unwrap());
        assert_eq!(refused.code().name, "content.broken");
        assert!(refused.to_string().contains(&named.to_string()), "{refused}");
        assert_eq!(
            scratch.number("SELECT count(*) FROM content_block") + 1,
            i64::try_from(blocks).unwrap()
        );
        // With its bytes wrong it is set aside, and then missing.
        add(&content, SMALL, &pattern(300));
        clock.on(2 * HOUR_MS);
        let wrong: &[u8] = b"no node at all";
        block_on(scratch.store.write(move |tx| {
            tx.exec("UPDATE content_bytes SET data = $1 WHERE digest = $2", args![wrong, &lost])
        }))
        .unwrap();
        assert_eq!(code_of(block_on(content.collect())), "content.corrupt");
        assert_eq!(code_of(block_on(content.collect())), "content.broken");
        add(&content, SMALL, &pattern(300));
        clock.on(2 * HOUR_MS);
        assert!(collect(&content).removed > 0);
        block_on(content.walk(&kept.cid, Reach::Local)).unwrap();
    });
}

#[test]
fn a_block_that_is_leaf_and_node_at_once_keeps_what_is_below_it() {
    both(|scratch| {
        let (content, clock) = usual(scratch);
        let leaf = Cid::of(Codec::Raw, b"leaf");
        let (middle, middle_bytes) = node(&[leaf]);
        let as_raw = Cid::of(Codec::Raw, &middle_bytes);
        // The raw reading of the same bytes comes first, and has no links.
        let (root, root_bytes) = node(&[as_raw, middle]);
        block_on(async {
            content.put(&leaf, b"leaf".to_vec()).await.unwrap();
            content.put(&as_raw, middle_bytes.clone()).await.unwrap();
            content.put(&root, root_bytes).await.unwrap();
            let walked = content.pin(&root, &pin(), Reach::Local).await.unwrap();
            assert_eq!(walked.blocks, 4, "two of them are one row");
        });
        clock.on(2 * HOUR_MS);
        assert_eq!(collect(&content).removed, 0);
        block_on(content.walk(&root, Reach::Local)).unwrap();
    });
}

/// What a case does.
#[derive(Debug, Clone)]
enum Act {
    Put(Vec<usize>),
    Pin(usize),
    Unpin(usize),
    Wait(i64),
    Collect,
    /// A session that puts something and stays open until it is kept or forgotten.
    Begin(Vec<usize>),
    Keep,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let links = || prop::collection::vec(0..1_000_usize, 0..4);
    let act = prop_oneof![
        4 => links().prop_map(Act::Put),
        2 => (0..1_000_usize).prop_map(Act::Pin),
        1 => (0..1_000_usize).prop_map(Act::Unpin),
        2 => (0..HOUR_MS).prop_map(Act::Wait),
        2 => Just(Act::Collect),
        1 => links().prop_map(Act::Begin),
        1 => Just(Act::Keep),
    ];
    prop::collection::vec(act, 1..40)
}

/// What must hold, written down without any of the rounds, marks and numbers.
#[derive(Default)]
struct Model {
    /// Every block that ever was: what it links to, and when it was touched last.
    blocks: Vec<(Cid, Vec<usize>, i64)>,
    pins: BTreeSet<usize>,
    open: Option<(Adding, usize)>,
}

impl Model {
    fn below(&self, root: usize) -> BTreeSet<usize> {
        let (mut seen, mut open) = (BTreeSet::from([root]), vec![root]);
        while let Some(block) = open.pop() {
            for link in &self.blocks[block].1 {
                if seen.insert(*link) {
                    open.push(*link);
                }
            }
        }
        seen
    }
}

fn play(scratch: &Scratch, acts: &[Act]) -> (u64, usize) {
    for table in
        ["content_block", "content_bytes", "content_pin", "content_session", "content_grey"]
    {
        let sql: &'static str = Box::leak(format!("DELETE FROM {table}").into_boxed_str());
        block_on(scratch.store.write(move |tx| tx.exec(sql, &[]))).unwrap();
    }
    let head = "UPDATE content_head SET blocks = 0, bytes = 0, phase = 'idle'";
    block_on(scratch.store.write(move |tx| tx.exec(head, &[]))).unwrap();
    let (content, clock) = usual(scratch);
    let mut model = Model::default();
    let (mut removed, mut kept) = (0, 0);
    for act in acts {
        let now = guild_protocol::env::Clock::now_ms(&*clock);
        match act {
            Act::Put(links) | Act::Begin(links) => {
                let count = model.blocks.len();
                let links: Vec<usize> =
                    links.iter().filter(|_| count > 0).map(|n| n % count.max(1)).collect();
                let mut cids: Vec<Cid> = links.iter().map(|n| model.blocks[*n].0).collect();
                // A leaf that no other block has makes each node another one.
                let own = format!("block {count}");
                let own_cid = Cid::of(Codec::Raw, own.as_bytes());
                cids.push(own_cid);
                let (cid, bytes) = node(&cids);
                let mut adding = match act {
                    Act::Begin(_) if model.open.is_none() => {
                        Some(block_on(content.begin()).unwrap())
                    }
                    _ => None,
                };
                let put = async {
                    match &mut adding {
                        Some(adding) => {
                            adding.block(&own_cid, own.into_bytes()).await?;
                            adding.block(&cid, bytes).await
                        }
                        None => {
                            content.put(&own_cid, own.into_bytes()).await?;
                            content.put(&cid, bytes).await
                        }
                    }
                };
                block_on(put).unwrap();
                model.blocks.push((own_cid, Vec::new(), now));
                model.blocks.push((cid, [links, vec![count]].concat(), now));
                model.open = model.open.take().or(adding.map(|adding| (adding, count + 1)));
            }
            Act::Pin(n) if !model.blocks.is_empty() => {
                let root = n % model.blocks.len();
                let (cid, ..) = model.blocks[root];
                if block_on(content.pin(&cid, &pin(), Reach::Local)).is_ok() {
                    model.pins.insert(root);
                    for block in model.below(root) {
                        model.blocks[block].2 = now;
                    }
                }
            }
            Act::Unpin(n) if !model.blocks.is_empty() => {
                let root = n % model.blocks.len();
                let unpinned = block_on(content.unpin(&model.blocks[root].0, OPERATOR)).unwrap();
                assert_eq!(unpinned, model.pins.remove(&root));
            }
            Act::Wait(ms) => clock.on(*ms),
            Act::Collect => {
                removed += collect(&content).removed;
                // Nothing that nobody needs is left, and nothing that somebody needs is gone.
                let open = model.open.as_ref().map(|(_, root)| [*root, root - 1]);
                let needed: BTreeSet<usize> =
                    model.pins.iter().flat_map(|pin| model.below(*pin)).collect();
                for (n, (cid, _, touched)) in model.blocks.iter().enumerate() {
                    let there = block_on(content.has(cid)).unwrap();
                    let fresh = touched + HOUR_MS > now;
                    let added = open.is_some_and(|own| own.contains(&n));
                    if needed.contains(&n) {
                        assert!(there, "{n} is pinned");
                        kept += 1;
                    } else if !fresh && !added {
                        assert!(!there, "{n} is garbage");
                    } else if fresh {
                        assert!(there, "{n} is fresh");
                    }
                }
            }
            Act::Keep => {
                if let Some((adding, root)) = model.open.take() {
                    let cid = model.blocks[root].0;
                    let whole = block_on(content.walk(&cid, Reach::Local)).is_ok();
                    let done = block_on(adding.keep(&[cid], &pin()));
                    if done.is_ok() {
                        model.pins.insert(root);
                    }
                    if !whole {
                        // It was put beside things that are gone: nobody can rely on such a pin.
                        block_on(content.unpin(&cid, OPERATOR)).unwrap();
                        model.pins.remove(&root);
                    }
                }
            }
            Act::Pin(_) | Act::Unpin(_) => {}
        }
    }
    (removed, kept)
}

fn many(cases: u32, scratch: &Scratch) {
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    // The same cases on every run: how much happens in them is then known.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let total = std::cell::Cell::new((0, 0));
    let mut runner = TestRunner::new_with_rng(config, rng);
    let done = runner.run(&acts(), |acts| {
        let (removed, kept) = play(scratch, &acts);
        let (all_removed, all_kept) = total.get();
        total.set((all_removed + removed, all_kept + kept));
        Ok(())
    });
    done.unwrap();
    let (removed, kept) = total.get();
    assert!(removed > 0 && kept > 0, "{removed} removed, {kept} kept");
}

#[test]
fn collections_agree_with_a_model_on_sqlite() {
    many(60, &Scratch::sqlite());
}

#[test]
fn collections_agree_with_a_model_on_postgres() {
    many(15, &Scratch::postgres());
}

#[test]
fn what_is_pinned_while_others_collect_is_whole() {
    both(|scratch| {
        let clock = Moved::new();
        // Nothing is safe but by a session or a pin.
        let content = content(scratch, &clock, Options { grace_ms: 0, ..Options::default() });
        let stop = Arc::new(AtomicBool::new(false));
        let collector = {
            let (content, stop) = (content.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut removed = 0;
                while !stop.load(Ordering::SeqCst) {
                    removed += block_on(content.collect()).unwrap().removed;
                }
                removed
            })
        };
        let dice = Rolled(Dice::seeded(7));
        let mut roots: BTreeMap<u64, Cid> = BTreeMap::new();
        for n in 0..40_u64 {
            // Mostly the same leaves, again and again: now garbage, now needed.
            let bytes = pattern(usize::try_from(500 + dice.0.below(200)).unwrap());
            let cid = block_on(async {
                let mut adding = content.begin().await.unwrap();
                let tree = adding.read(SMALL, bytes.as_slice()).await.unwrap();
                let owner = Pin::new(&format!("owner {n}"), "").unwrap();
                adding.keep(&[tree.cid], &owner).await.unwrap();
                tree.cid
            });
            roots.insert(n, cid);
            if n % 3 == 2 {
                let (gone, cid) = roots.pop_first().unwrap();
                block_on(content.unpin(&cid, &format!("owner {gone}"))).unwrap();
            }
            block_on(content.walk(&cid, Reach::Local)).unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        collector.join().unwrap();
        for cid in roots.values() {
            block_on(content.walk(cid, Reach::Local)).unwrap();
        }
    });
}
