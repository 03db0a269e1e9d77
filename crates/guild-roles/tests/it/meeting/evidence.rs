//! A trial, shown to strangers: the tests by which it was judged were fixed before.

use guild_market::dossier::{self, About, Folder, Found, Gathered, MANIFEST, Manifest, gather};
use guild_market::review;
use guild_protocol::hash::Hash;
use guild_protocol::json::to_canonical;
use guild_protocol::schema::Registry;
use guild_roles::provider::{Embedder, Worker};

use super::*;

type Files = BTreeMap<String, Vec<u8>>;

/// What strangers find wrong with it.
fn codes(files: &Files, manifest: &Manifest) -> BTreeSet<String> {
    let hash = |(path, bytes): (&String, &Vec<u8>)| (path.clone(), Hash::of(bytes));
    let named = files.iter().filter(|(path, _)| *path != MANIFEST).map(hash).collect();
    let manifest = Manifest { files: named, ..manifest.clone() };
    let mut folder = Folder::of(files);
    folder.put(MANIFEST, Found::Whole(to_canonical(&manifest).unwrap()));
    let registry = Registry::builtin();
    let report = dossier::check(&folder, dossier::Options { registry: &registry, rerun: true });
    report.problems().map(|(check, one)| format!("{} {}", check.name, one.code.name)).collect()
}

/// A provider is met, reviewed, and what came of its last trial is shown.
fn met(benchmark: Benchmark, encrypted: bool, look: fn(&Gathered)) {
    let mut town = Town::new();
    let nodes = (town.node(), town.node());
    let meet = Meet::in_town(&mut town, nodes.0);
    let reviews = town.reviews(nodes.0, key(1), review::Options::default());
    let (options, worker): (_, Arc<dyn Worker>) = match benchmark {
        Benchmark::StdV3 => (offer(), Arc::new(Solver::Reference)),
        Benchmark::EmbeddingV1 => (Town::offer(), Arc::new(Embedder)),
    };
    let provider = town.provider_with(nodes.1, key(2), options, worker);
    town.tell(async move {
        let them = provider.public_key();
        until_known(&meet.clock, &meet.store, them).await;
        let story = meet.meet(Wish { benchmark, ..wish(them, encrypted) }).await;
        assert_eq!(story.meeting.outcome, Some(Outcome::Active), "{story:?}");
        let drafts = meet.store.read(|rx| review::page_before(rx, None, true, 9)).await.unwrap();
        let [draft] = drafts.as_slice() else { panic!("{drafts:?}") };
        reviews.publish(draft.review_id.clone(), true).await.unwrap();
        let (last, _) = story.trials.last().unwrap();
        let about = About::Request(last.request_id);
        if encrypted {
            let hidden = about.clone();
            let refused = meet.store.read(move |rx| gather(rx, &hidden, false)).await.unwrap_err();
            assert_eq!(refused.code().name, "dossier.private");
        }
        let gathered = meet.store.read(move |rx| gather(rx, &about, true)).await.unwrap();
        assert_eq!(codes(&gathered.files, &gathered.manifest), BTreeSet::new());
        assert!(!gathered.manifest.reviews.is_empty());
        look(&gathered);
    });
}

#[test]
fn the_tests_are_those_that_were_committed_to() {
    met(Benchmark::StdV3, false, |gathered| {
        let wrong = |change: &dyn Fn(&mut Files, &mut Manifest)| {
            let (mut files, mut manifest) = (gathered.files.clone(), gathered.manifest.clone());
            change(&mut files, &mut manifest);
            codes(&files, &manifest)
        };
        let other = Benchmark::StdV3.task(&[9; 32], &Benchmark::StdV3.modules()).unwrap();
        let commitment = "commitment dossier.commitment".to_owned();
        let salt = wrong(&|_, manifest| {
            manifest.works[0].revealed.as_mut().unwrap().salt = Some(other.salt().hex());
        });
        assert!(salt.contains(&commitment), "{salt:?}");
        let seed = wrong(&|_, manifest| {
            manifest.works[0].revealed.as_mut().unwrap().seed = "09".repeat(32);
        });
        assert!(seed.contains(&commitment), "{seed:?}");
        let suite = wrong(&|files, manifest| {
            let revealed = manifest.works[0].revealed.as_mut().unwrap();
            files.remove(&dossier::suite_at(&revealed.suite_hash.unwrap()));
            let hash = other.suite().hash();
            files.insert(dossier::suite_at(&hash), other.suite().canonical().to_vec());
            revealed.suite_hash = Some(hash);
        });
        assert!(suite.contains(&commitment), "{suite:?}");
        assert!(suite.contains("verdict dossier.verdict"), "{suite:?}");
        // All of it of another trial, in itself in order: the request says what it was.
        let all = wrong(&|files, manifest| {
            let revealed = manifest.works[0].revealed.as_mut().unwrap();
            files.remove(&dossier::suite_at(&revealed.suite_hash.unwrap()));
            let hash = other.suite().hash();
            files.insert(dossier::suite_at(&hash), other.suite().canonical().to_vec());
            revealed.suite_hash = Some(hash);
            revealed.salt = Some(other.salt().hex());
            revealed.seed = "09".repeat(32);
        });
        assert!(all.contains(&commitment), "{all:?}");
        let verdict = wrong(&|files, manifest| {
            let old = manifest.works[0].verdict_hash.unwrap();
            let text = files.remove(&dossier::verdict_at(&old)).unwrap();
            let text = String::from_utf8(text).unwrap().replace("SUCCESS", "FAILURE");
            let hash = Hash::of(text.as_bytes());
            files.insert(dossier::verdict_at(&hash), text.into_bytes());
            manifest.works[0].verdict_hash = Some(hash);
        });
        assert!(verdict.contains("verdict dossier.verdict"), "{verdict:?}");
        assert!(verdict.contains("review dossier.review"), "{verdict:?}");
        let hidden = wrong(&|_, manifest| manifest.works[0].revealed = None);
        assert!(!hidden.is_empty());
    });
}

#[test]
fn a_trial_in_private_shows_what_was_asked() {
    met(Benchmark::StdV3, true, |gathered| {
        assert!(gathered.manifest.private);
        let plain = |path: &&String| path.starts_with("inputs/") || path.starts_with("outputs/");
        assert_eq!(gathered.files.keys().filter(plain).count(), 2);
    });
}

#[test]
fn work_without_tests_follows_from_its_seed() {
    met(Benchmark::EmbeddingV1, false, |gathered| {
        let mut manifest = gathered.manifest.clone();
        manifest.works[0].revealed.as_mut().unwrap().seed = "09".repeat(32);
        let found = codes(&gathered.files, &manifest);
        assert!(found.contains("commitment dossier.commitment"), "{found:?}");
    });
}
