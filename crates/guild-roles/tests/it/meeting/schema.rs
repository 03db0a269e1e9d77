//! Work that is not code: it is asked for as anybody orders it, and checked as its schema says.

use guild_protocol::nostr::job::{InputType, Param};
use guild_roles::provider::Embedder;

use super::*;

fn embeddings(provider: PublicKey) -> Wish {
    Wish { benchmark: Benchmark::EmbeddingV1, ..wish(provider, false) }
}

fn whoever_embeds_is_hired_for_embeddings(mut town: Town, nodes: (usize, usize)) {
    let meet = Meet::in_town(&mut town, nodes.0);
    let provider = town.provider_with(nodes.1, key(2), Town::offer(), Arc::new(Embedder));
    town.tell(async move {
        let them = provider.public_key();
        until_known(&meet.clock, &meet.store, them).await;
        let story = meet.meet(embeddings(them)).await;
        let meeting = &story.meeting;
        assert_eq!(meeting.outcome, Some(Outcome::Active), "{story:?}");
        assert_eq!((meeting.task.as_str(), meeting.terms.kind), ("oa.embedding.v1", 5050));
        // The check of its schema is all that there is to look at: nothing else has passed.
        let found = meeting.evaluation.as_ref().unwrap();
        assert_eq!(found.parts.keys().collect::<Vec<_>>(), [&Dimension::Correctness]);
        assert_eq!((found.score_bp, found.notes.len()), (10_000, 0));
        assert!(meet.judged.lock().unwrap().is_empty(), "no program was judged");
        // It showed for nothing what it can do, although it has a price.
        assert_eq!(meet.hub.published(&Filter::kinds([5050])).len(), 3);
        let matrix = matrix(&meet.store, &meet).await;
        assert!(matrix.entry(&meeting.task, &them).is_some());
        assert!(matrix.entry(&task(), &them).is_none(), "it says nothing about programs");
    });
}

#[test]
fn whoever_embeds_is_hired_for_that_alone() {
    let mut town = Town::new();
    let nodes = (town.node(), town.node());
    whoever_embeds_is_hired_for_embeddings(town, nodes);
}

#[test]
fn whoever_embeds_is_hired_for_that_alone_on_a_server() {
    let mut town = Town::new();
    let nodes = (town.node_on_postgres(), town.node_on_postgres());
    whoever_embeds_is_hired_for_embeddings(town, nodes);
}

#[test]
fn vectors_that_are_not_those_of_the_texts_are_rejected() {
    let mut town = Town::new();
    let node = town.node();
    let meet = Meet::in_town(&mut town, node);
    town.tell(async move {
        let stranger = Stranger::new(7, &meet);
        stranger.announce(&meet).await;
        let begun = meet.meetings.meet(embeddings(stranger.public_key())).await.unwrap();
        for n in 0..3 {
            let request = stranger.asked(n).await;
            let read = Request::parse(&request, None).unwrap();
            let payload: serde_json::Value = serde_json::from_str(&read.inputs[0].data).unwrap();
            let count = usize::try_from(payload["dimensions"].as_u64().unwrap()).unwrap();
            let mut vector = vec![0; count];
            vector[0] = 1;
            let output = serde_json::json!({
                "embeddings": [vector, vector, vector, vector], "model_id": "guild-hash-v1",
                "dimensions": count,
                "provenance": {"model": "guild-hash-v1", "provider_id": stranger.public_key().npub()},
            });
            stranger.hub.post(stranger.result(&request, &output.to_string())).await;
        }
        let story = meet.meetings.wait(&begun.meeting_id).await.unwrap();
        assert_eq!(story.meeting.outcome, Some(Outcome::Rejected), "{story:?}");
        assert!(story.trials.iter().all(|(trial, _)| trial.class == Some(Class::Failure)));
        let words = story.meeting.words.unwrap();
        assert!(words.contains("like the recomputed vector"), "{words}");
    });
}

#[test]
fn a_benchmark_says_nothing_about_other_work() {
    let mut town = Town::new();
    let node = town.node();
    let meet = Meet::in_town(&mut town, node);
    town.tell(async move {
        let stranger = Stranger::new(7, &meet);
        stranger.announce(&meet).await;
        let them = stranger.public_key();
        for (benchmark, task) in [
            (Benchmark::StdV3, "oa.embedding.v1"),
            (Benchmark::StdV3, "oa.sandbox_run.v1"),
            (Benchmark::EmbeddingV1, "benchmark-task"),
        ] {
            let wrong = Wish { benchmark, task: Some(task.parse().unwrap()), ..wish(them, false) };
            let refused = meet.meetings.meet(wrong).await.unwrap_err();
            assert_eq!(refused.code().name, "meeting.no_benchmark");
        }
        assert!(meet.hub.published(&Filter::kinds([5000, 5050])).is_empty(), "nobody was asked");
    });
}

#[test]
fn what_is_too_large_for_a_request_is_referred_to_and_read_by_its_hash() {
    let mut town = Town::new();
    let nodes = (town.node(), town.node());
    town.share_content_of(nodes.0);
    let judged = Judged::default();
    let options = Options { inline_max_bytes: 100, ..options() };
    let means = (examine(&judged), nobody());
    let meetings = town.meetings(nodes.0, key(1), options, means, Hold::default());
    let (store, clock, hub) = (town.store(nodes.0).clone(), town.clock.clone(), town.hub.clone());
    let meet = Meet { meetings, store, clock, hub, judged, finds: false };
    let provider = town.provider_with(nodes.1, key(2), offer(), Arc::new(Solver::Reference));
    town.tell(async move {
        let them = provider.public_key();
        until_known(&meet.clock, &meet.store, them).await;
        let story = meet.meet(wish(them, false)).await;
        assert_eq!(story.meeting.outcome, Some(Outcome::Active), "{story:?}");
        for request in meet.hub.published(&Filter::kinds([5000])) {
            let read = Request::parse(&request, None).unwrap();
            assert!(read.inputs[0].data.starts_with("http://town.example/ipfs/baf"), "{read:?}");
            assert_eq!(read.inputs[0].input_type, InputType::Url);
            assert!(read.param("input-sha256").unwrap().starts_with("sha256:"));
        }
        // Nobody is called whom a stranger names, and what has another hash is refused.
        let first = meet.hub.published(&Filter::kinds([5000])).remove(0);
        let good = Request::parse(&first, None).unwrap();
        let ask = |change: &dyn Fn(&mut Request)| {
            let mut request = good.clone();
            change(&mut request);
            request.draft(unix_s(meet.clock.now_ms())).unwrap().sign(&key(9)).unwrap()
        };
        let elsewhere = ask(&|request| request.inputs[0].data = "http://127.0.0.1/secret".into());
        let forged = ask(&|request| {
            request.params.retain(|param| param.name != "input-sha256");
            request.params.push(Param::new("input-sha256", format!("sha256:{}", "0".repeat(64))));
        });
        for event in [elsewhere, forged] {
            let refused = provider.counts().of("request_refused");
            meet.hub.post(event).await;
            until(&meet.clock, "it is refused", || async {
                provider.counts().of("request_refused") > refused
            })
            .await;
        }
    });
}
