//! Several processes, and processes that end: a meeting is held once, and goes on.

use super::*;

fn a_meeting_is_held_once(mut town: Town, node: usize, other: usize) {
    let judged = Judged::default();
    let both: Vec<Meetings> = (0..2)
        .map(|_| {
            let means = (examine(&judged), nobody());
            town.meetings(node, key(1), options(), means, Hold::default())
        })
        .collect();
    let provider = town.provider_with(other, key(2), offer(), Arc::new(Solver::Reference));
    let (store, clock, hub) = (town.store(node).clone(), town.clock.clone(), town.hub.clone());
    let meetings = both[0].clone();
    let meet = Meet { meetings, store, clock, hub, judged, finds: false };
    town.tell(async move {
        let them = provider.public_key();
        until_known(&meet.clock, &meet.store, them).await;
        // Both are asked at once, under two names: one meeting comes of it.
        let (one, two) = (both[0].meet(wish(them, false)), both[1].meet(wish(them, false)));
        let (one, two) = futures_util::future::join(one, two).await;
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!(one.meeting_id, two.meeting_id);
        let story = meet.meetings.wait(&one.meeting_id).await.unwrap();
        assert_eq!(story.meeting.outcome, Some(Outcome::Active), "{story:?}");
        let judged: Vec<usize> = meet.judged.lock().unwrap().values().copied().collect();
        assert_eq!(judged, [1, 1, 1], "each result was judged by one of them");
        assert_eq!(meet.hub.published(&Filter::kinds([5000])).len(), 3);
        let entry = believed(&meet.store, &meet, them).await.unwrap();
        assert_eq!(entry.version, 1, "the matrix was told once");
        // It is counted behind the row that shows the end.
        let ended = || both.iter().map(|one| one.counts().of("meeting_ended")).sum::<u64>();
        until(&meet.clock, "the end is counted", || async { ended() > 0 }).await;
        assert_eq!(ended(), 1);
    });
}

#[test]
fn two_processes_hold_one_meeting() {
    let mut town = Town::new();
    let nodes = (town.node(), town.node());
    a_meeting_is_held_once(town, nodes.0, nodes.1);
}

#[test]
fn two_processes_hold_one_meeting_on_a_server() {
    let mut town = Town::new();
    let nodes = (town.node_on_postgres(), town.node());
    a_meeting_is_held_once(town, nodes.0, nodes.1);
}

#[test]
fn another_process_goes_on_where_one_stopped() {
    let mut town = Town::new();
    let node = town.node();
    let judged = Judged::default();
    let hold = Hold::default();
    let hasty = || Options { claim_ms: 300, ..options() };
    let first = town.meetings(node, key(1), hasty(), (examine(&judged), nobody()), hold.clone());
    let late = Hold::default();
    late.stop();
    let second = town.meetings(node, key(1), hasty(), (examine(&judged), nobody()), late.clone());
    let (store, clock, hub) = (town.store(node).clone(), town.clock.clone(), town.hub.clone());
    let meet = Meet { meetings: first.clone(), store, clock, hub, judged, finds: false };
    town.tell(async move {
        let stranger = Stranger::new(7, &meet);
        stranger.announce(&meet).await;
        let begun = first.meet(wish(stranger.public_key(), false)).await.unwrap();
        let request = stranger.asked(0).await;
        until(&meet.clock, "a relay has it", || async {
            let story = first.story(begun.meeting_id.clone()).await.unwrap();
            story.trials[0].0.course.stage == Stage::Waiting
        })
        .await;
        // The process stops; the answer comes while nobody looks; another process begins.
        hold.stop();
        stranger.answer(&request).await;
        late.go_on();
        for n in 1..3 {
            let request = stranger.asked(n).await;
            stranger.answer(&request).await;
        }
        let story = second.wait(&begun.meeting_id).await.unwrap();
        assert_eq!(story.meeting.outcome, Some(Outcome::Active), "{story:?}");
        let ended = || second.counts().of("meeting_ended");
        until(&meet.clock, "the end is counted", || async { ended() > 0 }).await;
        assert_eq!(ended(), 1);
        // The first one wakes up behind all of it, and changes nothing.
        hold.go_on();
        let again = first.story(begun.meeting_id.clone()).await.unwrap();
        assert_eq!(again.meeting.outcome, story.meeting.outcome);
        assert_eq!(again.trials.len(), 3);
    });
}

#[test]
fn a_result_that_did_not_come_by_itself_is_asked_for() {
    let mut town = Town::new();
    let node = town.node();
    let kept: Arc<Mutex<Vec<Event>>> = Arc::default();
    let shelf = kept.clone();
    let query: Query = Arc::new(move |filter, relays| {
        assert_eq!(relays, [RELAY]);
        let mut found = shelf.lock().unwrap().clone();
        found.retain(|event| filter.matches(event));
        Box::pin(std::future::ready(found))
    });
    let meet = Meet::with(&mut town, node, query, true);
    town.tell(async move {
        let stranger = Stranger::new(7, &meet);
        stranger.announce(&meet).await;
        let begun = meet.meetings.meet(wish(stranger.public_key(), false)).await.unwrap();
        for n in 0..3 {
            meet.fly_until(&begun.meeting_id, |story| story.trials.len() > n).await;
            let request = stranger.asked(n).await;
            let content = stranger.solution(&request);
            // It is at the relay, and is not passed on.
            kept.lock().unwrap().push(stranger.result(&request, &content));
        }
        let story = meet.fly_to_the_end(&begun.meeting_id).await;
        assert_eq!(story.meeting.outcome, Some(Outcome::Active), "{story:?}");
        assert_eq!(meet.meetings.counts().of("result_queried"), 3);
    });
}
