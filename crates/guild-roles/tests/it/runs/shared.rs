//! Several processes of one node on one database: each job is done by one of them, and judged by one of them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use guild_market::claim;
use guild_protocol::nostr::{Filter, kind};

use super::*;
use crate::town::Hold;

const CLAIM_MS: i64 = 300;
/// Where nobody may lose a claim: a machine that has much else to do must still renew it in time.
const LONG_CLAIM_MS: i64 = 1_500;
const JOBS: usize = 6;

/// How often each plan was begun, by the line of its first command, and where.
type Begun = Arc<Mutex<BTreeMap<String, Vec<usize>>>>;

/// A workshop that notes what it begins, works for a while, and then until it may end.
fn noting(begun: &Begun, place: usize, clock: &Arc<Hand>, may_end: &Arc<AtomicBool>) -> Workshop {
    noting_for(CLAIM_MS + 50, begun, place, clock, may_end)
}

fn noting_for(
    work_ms: i64,
    begun: &Begun,
    place: usize,
    clock: &Arc<Hand>,
    may_end: &Arc<AtomicBool>,
) -> Workshop {
    let (begun, clock, may_end) = (begun.clone(), clock.clone(), may_end.clone());
    let run = move |plan: Plan| {
        let name = plan.commands[0].cmd.clone();
        begun.lock().unwrap().entry(name).or_default().push(place);
        let (clock, may_end) = (clock.clone(), may_end.clone());
        Box::pin(async move {
            // Longer than a claim lasts: it is renewed.
            clock.sleep(work_ms).await;
            while !may_end.load(Ordering::SeqCst) {
                clock.sleep(10).await;
            }
            Ok(truth(&plan))
        }) as BoxFuture<_>
    };
    Workshop { bounds: bounds(), run: Arc::new(run) }
}

fn places(begun: &Begun) -> Vec<usize> {
    begun.lock().unwrap().values().flatten().copied().collect()
}

fn each_is_done_and_judged_once(mut town: Town, [a, b]: [usize; 2]) {
    let clock = town.clock.clone();
    let (done, judged) = (Begun::default(), Begun::default());
    let now = Arc::new(AtomicBool::new(true));
    let offer = provider::Options { claim_ms: LONG_CLAIM_MS, credit: Msat(100_000), ..offer() };
    let terms = || {
        let options = buyer::Options { claim_ms: LONG_CLAIM_MS, ..buyer::Options::default() };
        (options, Bundle::builtin().unwrap())
    };
    let noting = |begun, place| noting_for(LONG_CLAIM_MS + 50, begun, place, &clock, &now);
    let worker = |place| -> Arc<dyn Worker> { Arc::new(CommandRunner(noting(&done, place))) };
    let buyers =
        [0, 1].map(|place| town.buyer_who_runs(a, key(1), terms(), Some(noting(&judged, place))));
    let providers = [0, 1].map(|place| town.provider_with(b, key(2), offer.clone(), worker(place)));
    let (store, hub) = (town.store(a).clone(), town.hub.clone());
    town.tell(async move {
        let [buyer, _] = &buyers;
        let [provider, _] = providers;
        let pair = Pair { clock, buyer: buyer.clone(), provider, store };
        let mut orders = Vec::new();
        for n in 0..JOBS {
            orders.push(pair.hire(&[&format!("make {n}")]).await);
        }
        for order in orders {
            let order = pair.buyer.wait(&order.order_id).await.unwrap();
            assert_eq!((order.state, order.paid), (State::Released, Some(PRICE)));
        }
        for begun in [&done, &judged] {
            let times: Vec<usize> = begun.lock().unwrap().values().map(Vec::len).collect();
            assert_eq!(times, [1; JOBS], "each was begun once");
        }
        // Both had a part in it.
        assert!([0, 1].iter().all(|place| places(&done).contains(place)), "{done:?}");
        assert_eq!(hub.published(&Filter::kinds([kind::DEFAULT_RESULT].to_vec())).len(), JOBS);
        let units = PRICE.0 * i64::try_from(JOBS).unwrap();
        assert_eq!(payable(&pair.store, key(2).public_key()).await, units);
    });
}

#[test]
fn two_processes_do_and_judge_each_job_once() {
    both(each_is_done_and_judged_once);
}

fn a_stopped_process_is_taken_over(mut town: Town, [a, b]: [usize; 2]) {
    let clock = town.clock.clone();
    let done = Begun::default();
    let ends = [0, 1].map(|_| Arc::new(AtomicBool::new(false)));
    let holds = [Hold::default(), Hold::default()];
    let offer = provider::Options { claim_ms: CLAIM_MS, ..offer() };
    let terms = (buyer::Options::default(), Bundle::builtin().unwrap());
    let checks = honest(&Tally::default());
    let buyer = town.buyer_who_runs(a, key(1), terms, Some(checks));
    // The second waits until the first has begun.
    holds[1].stop();
    let providers = [0, 1].map(|place| {
        let worker: Arc<dyn Worker> =
            Arc::new(CommandRunner(noting(&done, place, &clock, &ends[place])));
        town.provider_held(b, key(2), (offer.clone(), worker), holds[place].clone())
    });
    let (store, hub) = (town.store(a).clone(), town.hub.clone());
    town.tell(async move {
        let [first, second] = &providers;
        let pair = Pair { clock: clock.clone(), buyer, provider: first.clone(), store };
        let order = pair.hire(&["make"]).await;
        until(&clock, "the first begins", || async { places(&done) == [0] }).await;
        holds[0].stop();
        holds[1].go_on();
        until(&clock, "the second takes over", || async { places(&done) == [0, 1] }).await;
        // The first comes back with its result, while the second is at work.
        ends[0].store(true, Ordering::SeqCst);
        holds[0].go_on();
        until(&clock, "the first lets go", || async { first.counts().of("job_lost") == 1 }).await;
        let job = second.job(order.request_id).await.unwrap().unwrap();
        assert_eq!((job.state, job.result_json), (JobState::Accepted, None), "nothing came of it");
        let results = || hub.published(&Filter::kinds([kind::DEFAULT_RESULT].to_vec())).len();
        assert_eq!(results(), 0);
        ends[1].store(true, Ordering::SeqCst);
        let order = pair.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!((order.state, order.paid), (State::Released, Some(PRICE)));
        assert_eq!((results(), places(&done)), (1, vec![0, 1]));
        assert_eq!(first.counts().of("job_delivered"), 0);
        assert_eq!(second.counts().of("job_delivered"), 1);
    });
}

#[test]
fn what_a_stopped_process_brings_late_changes_nothing() {
    both(a_stopped_process_is_taken_over);
}

/// A process that ends in order leaves nothing that others would have to wait for.
#[test]
fn a_process_that_ends_gives_its_jobs_back() {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let done = Begun::default();
    let clock = town.clock.clone();
    let never = Arc::new(AtomicBool::new(false));
    let sold = noting(&done, 0, &clock, &never);
    let pair = Pair::in_town(&mut town, nodes, sold, Some(honest(&Tally::default())));
    let store = town.store(nodes[1]).clone();
    let kept = store.clone();
    let held =
        || "SELECT count(*) FROM market_job WHERE state = 'accepted' AND claim_token IS NOT NULL";
    let count = move |store: Store| async move {
        let rows: Option<(i64,)> = store.read(move |rx| rx.first(held(), &[])).await.unwrap();
        rows.unwrap().0
    };
    town.tell_and(
        async move {
            pair.hire(&["make"]).await;
            until(&clock, "it begins", || async { places(&done) == [0] }).await;
            assert_eq!(count(store).await, 1);
            assert_eq!(claim::TTL_MS, provider::Options::default().claim_ms);
        },
        async move { assert_eq!(count(kept).await, 0) },
    );
}
