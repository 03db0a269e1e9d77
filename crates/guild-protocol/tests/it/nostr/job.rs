use guild_protocol::amount::Msat;
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::nostr::job::{
    Feedback, Input, InputType, JobResult, Param, Price, Request, RequestRef, Status, correlates,
    feedback_correlates,
};
use guild_protocol::nostr::{Draft, Event, tag::tag};
use proptest::prelude::*;

use super::{Fixed, cases, hostile_tags, secret, vector};

fn strings(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

/// An event with these tags, signed by the buyer.
fn event(kind: u16, tags: &[&[&str]], content: &str) -> Event {
    let tags = tags.iter().map(|tag| strings(tag)).collect();
    Draft { kind, created_at: 1, tags, content: content.to_owned() }.sign(&secret("buyer")).unwrap()
}

fn request_refused(tags: &[&[&str]]) -> (&'static str, String) {
    let error = Request::parse(&event(5050, tags, ""), None).unwrap_err();
    (error.code().name, error.place().unwrap_or_default().to_owned())
}

#[test]
fn a_request_of_the_published_form_is_read_and_rebuilt() {
    let theirs = vector("request");
    let request = Request::parse(&theirs, None).unwrap();
    let input = Input::text("{\"texts\":[\"hello\",\"wörld \\u0007 😀\"]}").marked("spec");
    assert_eq!(request.inputs, [input]);
    assert_eq!(request.schema_id.as_deref(), Some("oa.embedding.v1"));
    assert!(request.job_hash.unwrap().to_string().starts_with("sha256:e1c58059"));
    assert_eq!(request.params, [Param::new("time-limit", "300")]);
    assert_eq!(request.param("time-limit"), Some("300"));
    assert_eq!(request.output.as_deref(), Some("application/json"));
    assert_eq!(request.bid, Some(Msat(1000)));
    assert_eq!(request.relays, ["wss://relay.one.example", "wss://relay.two.example"]);
    assert_eq!(request.providers, [secret("provider").public_key()]);
    assert_eq!(request.topics, ["embedding"]);
    assert!(request.other_tags.is_empty() && !request.encrypted);
    // The vector stands in the order that we send: the rebuilt event is the very same.
    let ours = request.draft(theirs.created_at).unwrap().sign(&secret("buyer")).unwrap();
    assert_eq!(ours.id, theirs.id);
}

#[test]
fn the_documents_forms_are_read_and_not_sent() {
    let request = Request::parse(&vector("documents"), None).unwrap();
    let [spec, poem] = request.inputs.as_slice() else { panic!("{:?}", request.inputs) };
    assert_eq!(spec.input_type, InputType::Other("json".into()));
    assert_eq!((spec.relay.as_deref(), spec.marker.as_deref()), (None, Some("benchmark_spec")));
    assert_eq!(poem.input_type, InputType::Other("prompt".into()));
    assert!(poem.input_type.is_inline());
    assert_eq!(request.output.as_deref(), Some("application/json"));
    assert_eq!(request.schema_id.as_deref(), Some("oa.embeddings.v1"));
    assert_eq!(request.param("benchmark-type"), Some("standard"));
    assert_eq!(request.bid, Some(Msat(1000)));
    assert_eq!(request.other_tags, [tag(["client", "somebody"])]);
    let error = request.draft(1).unwrap_err();
    assert_eq!((error.code().name, error.place()), ("nip90.value_not_allowed", Some("inputs[0]")));
}

#[test]
fn what_nip90_does_not_allow_is_not_sent() {
    let good = Request::new(5050);
    let refused = |request: Request| {
        let error = request.draft(1).unwrap_err();
        format!("{} at {}", error.code().name, error.place().unwrap_or_default())
    };
    let refusals = [
        refused(Request { kind: 6050, ..good.clone() }),
        refused(Request { output: Some("json".into()), ..good.clone() }),
        refused(Request { bid: Some(Msat(-1)), ..good.clone() }),
        refused(Request { relays: strings(&["https://x"]), ..good.clone() }),
        refused(Request { params: vec![Param::new("job_type", "x")], ..good.clone() }),
        refused(Request { inputs: vec![Input::text("x").marked("")], ..good.clone() }),
        refused(Request {
            inputs: vec![Input { relay: Some("x".into()), ..Input::text("x") }],
            ..good.clone()
        }),
        refused(Request { other_tags: vec![tag(["p", "x"])], ..good.clone() }),
        refused(Request { other_tags: vec![vec![]], ..good.clone() }),
        refused(Request { schema_id: Some(String::new()), ..good.clone() }),
        refused(Request { encrypted: true, ..good }),
    ];
    insta::assert_snapshot!(refusals.join("\n"), @r"
    nip90.kind_wrong at kind
    nip90.value_not_allowed at output
    nip90.value_not_allowed at bid
    nip90.value_not_allowed at relays
    nip90.value_not_allowed at params[0]
    nip90.value_not_allowed at inputs[0]
    nip90.value_not_allowed at inputs[0]
    nip90.value_not_allowed at other_tags
    nip90.value_not_allowed at other_tags
    nip90.value_not_allowed at schema_id
    nip90.encrypted at encrypted
    ");
}

#[test]
fn malformed_tags_are_refused_with_their_place() {
    let bad = |tags: &[&[&str]]| request_refused(tags);
    let malformed = |place: &str| ("nip90.tag_malformed", place.to_owned());
    assert_eq!(bad(&[&["t", "x"], &["i"]]), malformed("tags[1]"));
    assert_eq!(bad(&[&["param"]]), malformed("tags[0]"));
    assert_eq!(bad(&[&["param", "schema_id"]]), malformed("tags[0]"));
    for amount in ["", "x", "-1", "+1", "1.5", "9223372036854775808"] {
        assert_eq!(bad(&[&["bid", amount]]), malformed("tags[0]"), "{amount}");
    }
    assert_eq!(bad(&[&["bid", "1"], &["bid", "1"], &["bid", "2"]]), malformed("tags[2]"));
    assert_eq!(bad(&[&["p", "somebody"]]).0, "key.public_malformed");
    assert_eq!(bad(&[&["param", "job_hash", "none"]]).0, "hash.malformed");
    let twice: [&[&str]; 2] =
        [&["param", "schema_id", "a.b.v1"], &["param", "schema_id", "c.d.v1"]];
    assert_eq!(bad(&twice), malformed("tags[1]"));
    assert_eq!(
        Request::parse(&event(6050, &[], ""), None).unwrap_err().code().name,
        "nip90.kind_wrong"
    );
}

#[test]
fn the_schema_id_wins_over_its_older_name() {
    let both: [&[&str]; 2] =
        [&["param", "job_type", "old.x.v1"], &["param", "schema_id", "new.x.v1"]];
    let request = Request::parse(&event(5050, &both, ""), None).unwrap();
    assert_eq!(request.schema_id.as_deref(), Some("new.x.v1"));
    assert!(request.params.is_empty());
}

#[test]
fn a_result_is_read_with_what_it_should_not_have() {
    let (request, theirs) = (vector("request"), vector("result"));
    let result = JobResult::parse(&theirs, None).unwrap();
    assert_eq!(result.request.id, request.id);
    assert_eq!(result.request.relay.as_deref(), Some("wss://relay.one.example"));
    assert_eq!(result.customer, Some(request.pubkey));
    assert_eq!(result.price.as_ref().unwrap().msat, Msat(900));
    assert_eq!(result.price.as_ref().unwrap().bolt11.as_deref(), Some("lnbc9n1example"));
    assert_eq!(result.other_tags, [tag(["status", "success"]), tag(["alt", "the result"])]);
    assert_eq!(result.carried_request().unwrap().unwrap(), request);
    assert_eq!(result.draft(1).unwrap_err().place(), Some("other_tags"));

    let ours = JobResult::answering(&request, "{}").unwrap();
    assert_eq!((ours.kind, &ours.inputs), (6050, &result.inputs));
    let lying = JobResult { request: RequestRef::to(&vector("documents")), ..ours };
    assert_eq!(lying.carried_request().unwrap_err().code().name, "nip90.request_wrong");
    let nameless = JobResult::parse(&event(6050, &[], ""), None).unwrap_err();
    assert_eq!((nameless.code().name, nameless.place()), ("nip90.request_missing", Some("e")));
}

#[test]
fn feedback_is_read_whatever_its_status() {
    let theirs = vector("feedback");
    let feedback = Feedback::parse(&theirs, None).unwrap();
    assert_eq!(feedback.status, Status::Processing);
    assert_eq!(feedback.info.as_deref(), Some("half way"));
    assert_eq!(feedback.price, Some(Price::new(Msat(900))));
    assert_eq!(feedback.expires_at, Some(1_763_276_400));
    assert!(feedback.content.starts_with("a sample"));
    let ours = feedback.draft(theirs.created_at).unwrap().sign(&secret("provider")).unwrap();
    assert_eq!(ours.id, theirs.id);

    let pong = Feedback::parse(&vector("pong"), None).unwrap();
    assert_eq!(pong.status, Status::Other("pong".into()));
    assert_eq!(pong.draft(1).unwrap_err().code().name, "nip90.value_not_allowed");
    let id = theirs.id.hex();
    let mute = Feedback::parse(&event(7000, &[&["e", &id]], ""), None).unwrap_err();
    assert_eq!(mute.code().name, "nip90.status_missing");
}

#[test]
fn encrypted_events_of_others_are_opened_by_both_sides() {
    let sealed = vector("sealed");
    for name in ["buyer", "provider"] {
        let key = secret(name);
        let request = Request::parse(&sealed, Some(&key)).unwrap();
        assert!(request.encrypted);
        assert_eq!(request.inputs, [Input::text("hello world")]);
        assert_eq!(request.schema_id.as_deref(), Some("oa.embedding.v1"));
        assert_eq!(request.output.as_deref(), Some("text/plain"));

        let result = JobResult::parse(&vector("sealed_result"), Some(&key)).unwrap();
        assert_eq!((result.content.as_str(), result.encrypted), ("the secret answer", true));
        assert_eq!(result.carried_request().unwrap().unwrap(), sealed);

        // Status, price, content and even the request stand inside the ciphertext.
        let feedback = Feedback::parse(&vector("sealed_feedback"), Some(&key)).unwrap();
        assert_eq!(feedback.status, Status::PaymentRequired);
        assert_eq!(feedback.request.id, sealed.id);
        assert_eq!(feedback.price, Some(Price::new(Msat(5000))));
        assert_eq!(feedback.content, "please pay");
        assert_eq!(feedback.other_tags, [tag(["alt", "NIP90 DVM task"])]);

        let text = Feedback::parse(&vector("sealed_text"), Some(&key)).unwrap();
        assert_eq!((text.status, text.content.as_str()), (Status::Partial, "first half"));
    }
    assert_eq!(Request::parse(&sealed, None).unwrap_err().code().name, "nip90.encrypted");
    let stranger = secret("buyer").role("stranger").unwrap();
    assert_eq!(
        Request::parse(&sealed, Some(&stranger)).unwrap_err().code().name,
        "nip44.not_opened"
    );
}

#[test]
fn private_jobs_do_not_leak_into_the_open() {
    let (buyer, provider) = (secret("buyer"), secret("provider"));
    let mut request = Request::new(5050);
    request.inputs.push(Input::text("the secret question"));
    request.params.push(Param::new("secret-setting", "x"));
    request.bid = Some(Msat(5));
    let several = request.sealed_draft(1, &buyer, &Fixed(1)).unwrap_err();
    assert_eq!(several.code().name, "nip90.recipient_missing");
    request.providers.push(provider.public_key());
    let event = request.sealed_draft(1, &buyer, &Fixed(1)).unwrap().sign(&buyer).unwrap();
    assert!(!event.to_json().contains("secret"));
    assert_eq!(event.tag("bid"), Some("5"));
    request.encrypted = true;
    assert_eq!(Request::parse(&event, Some(&provider)).unwrap(), request);

    let result = JobResult::answering(&event, "the secret answer").unwrap();
    assert!(result.encrypted && result.inputs.is_empty());
    assert_eq!(result.draft(2).unwrap_err().code().name, "nip90.encrypted");
    let answer = result.sealed_draft(2, &provider, &Fixed(2)).unwrap().sign(&provider).unwrap();
    assert!(!answer.to_json().contains("secret"));
    assert_eq!(JobResult::parse(&answer, Some(&buyer)).unwrap(), result);

    let mut feedback = Feedback::about(&event, Status::Partial);
    feedback.info = Some("secret words".into());
    feedback.content = "[[\"status\",\"secret\"]]".into();
    feedback.price = Some(Price { msat: Msat(7), bolt11: Some("lnbc-secret".into()) });
    assert_eq!(feedback.draft(2).unwrap_err().code().name, "nip90.encrypted");
    let news = feedback.sealed_draft(2, &provider, &Fixed(3)).unwrap().sign(&provider).unwrap();
    assert!(!news.to_json().contains("secret"));
    assert_eq!(news.tag("status"), Some("partial"));
    assert_eq!(Feedback::parse(&news, Some(&buyer)).unwrap(), feedback);
}

#[test]
fn only_an_addressed_provider_can_answer() {
    let (request, result) = (vector("request"), vector("result"));
    let provider = secret("provider");
    let addressed = [provider.public_key()];
    let refused =
        |result: &Event| correlates(&request, &addressed, result).unwrap_err().code().name;
    correlates(&request, &addressed, &result).unwrap();
    let answer = |kind, tags| {
        Draft { kind, created_at: 9, tags, content: "x".into() }.sign(&provider).unwrap()
    };
    let e = || vec![tag(["e", &request.id.hex()])];
    assert_eq!(refused(&answer(6051, e())), "nip90.kind_wrong");
    assert_eq!(refused(&answer(7000, e())), "nip90.kind_wrong");
    assert_eq!(refused(&answer(6050, vec![])), "nip90.request_missing");
    assert_eq!(refused(&answer(6050, vec![tag(["e", "x"])])), "nostr.event_id_malformed");
    // Only the first `e` counts: naming many requests at once answers at most one.
    let other = tag(["e", &result.id.hex()]);
    assert_eq!(refused(&answer(6050, [vec![other], e()].concat())), "nip90.request_wrong");
    let stranger = secret("buyer").role("stranger").unwrap();
    let injected = Draft { kind: 6050, created_at: 9, tags: e(), content: "x".into() }
        .sign(&stranger)
        .unwrap();
    assert_eq!(refused(&injected), "nip90.author_wrong");
    let stolen = Event { pubkey: provider.public_key(), ..injected };
    assert_eq!(refused(&stolen), "nostr.event_id_wrong");
    let stolen = Event { id: stolen.compute_id(), ..stolen };
    assert_eq!(refused(&stolen), "key.signature_wrong");
    assert_eq!(
        correlates(&result, &addressed, &result).unwrap_err().code().name,
        "nip90.kind_wrong"
    );
}

#[test]
fn feedback_is_believed_by_the_same_rules() {
    let (request, event) = (vector("request"), vector("feedback"));
    let feedback = Feedback::parse(&event, None).unwrap();
    let addressed = [secret("provider").public_key()];
    let check = |request: &Event, addressed: &[_], event: &Event| {
        feedback_correlates(request, addressed, event, &feedback).map_err(|e| e.code().name)
    };
    assert_eq!(check(&request, &addressed, &event), Ok(()));
    assert_eq!(check(&vector("documents"), &addressed, &event), Err("nip90.request_wrong"));
    assert_eq!(check(&request, &[], &event), Err("nip90.author_wrong"));
    assert_eq!(check(&request, &addressed, &vector("result")), Err("nip90.kind_wrong"));
}

fn word() -> impl Strategy<Value = String> {
    "[a-z\"\\\\ é]{1,8}"
}

fn any_request() -> impl Strategy<Value = Request> {
    let input_type = prop::sample::select(vec![
        InputType::Text,
        InputType::Url,
        InputType::Event,
        InputType::Job,
    ]);
    let relay =
        || prop::sample::select(vec!["wss://a.example".to_owned(), "ws://b:1/x".to_owned()]);
    let input = (any::<String>(), input_type, prop::option::of(relay()), prop::option::of(word()))
        .prop_map(|(data, input_type, relay, marker)| Input { data, input_type, relay, marker });
    let param = (word(), prop::collection::vec(any::<String>(), 0..3))
        .prop_map(|(name, values)| Param { name, values });
    let parts = (
        5000u16..=5999,
        prop::collection::vec(input, 0..4),
        prop::option::of(Just("text/plain".to_owned())),
        prop::option::of(word()),
        prop::option::of(any::<[u8; 32]>().prop_map(Hash::from_bytes)),
        prop::collection::vec(param, 0..4),
        prop::option::of((0..=i64::MAX).prop_map(Msat)),
        prop::collection::vec(relay(), 0..3),
        prop::collection::vec(any::<String>(), 0..3),
    );
    parts.prop_map(|(kind, inputs, output, schema_id, job_hash, params, bid, relays, topics)| {
        let mut request = Request::new(kind);
        request.providers.push(secret("provider").public_key());
        request.other_tags.push(tag(["alt", "x", "y"]));
        Request { inputs, output, schema_id, job_hash, params, bid, relays, topics, ..request }
    })
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn what_is_built_is_read_back(request in any_request(), content in "\\PC{1,40}") {
        let (buyer, provider) = (secret("buyer"), secret("provider"));
        let event = request.draft(1).unwrap().sign(&buyer).unwrap();
        prop_assert_eq!(&Request::parse(&event, None).unwrap(), &request);

        let result = JobResult::answering(&event, content.clone()).unwrap();
        let answer = result.draft(2).unwrap().sign(&provider).unwrap();
        prop_assert_eq!(JobResult::parse(&answer, None).unwrap(), result);
        prop_assert!(correlates(&event, &request.providers, &answer).is_ok());

        let sealed = request.sealed_draft(1, &buyer, &Fixed(9)).unwrap().sign(&buyer).unwrap();
        let expected = Request { encrypted: true, ..request };
        prop_assert_eq!(&Request::parse(&sealed, Some(&provider)).unwrap(), &expected);
        prop_assert_eq!(&Request::parse(&sealed, Some(&buyer)).unwrap(), &expected);

        let news = Feedback { content, info: Some("x".into()), ..Feedback::about(&sealed, Status::Error) };
        let told = news.sealed_draft(2, &provider, &Fixed(9)).unwrap().sign(&provider).unwrap();
        prop_assert_eq!(Feedback::parse(&told, Some(&buyer)).unwrap(), news);
    }

    #[test]
    fn hostile_tags_never_panic(kind in 5000u16..=7000, tags in hostile_tags(), content in any::<String>()) {
        let key = secret("buyer");
        let event = Draft { kind, created_at: 1, tags, content }.sign(&key).unwrap();
        // Whatever is read can be said again, or is refused; it is never read as something else.
        if let Ok(request) = Request::parse(&event, Some(&key))
            && let Ok(again) = request.draft(1)
        {
            prop_assert_eq!(Request::parse(&again.sign(&key).unwrap(), None).unwrap(), request);
        }
        let _ = JobResult::parse(&event, Some(&key)).and_then(|result| result.carried_request());
        if let Ok(feedback) = Feedback::parse(&event, Some(&key))
            && let Ok(again) = feedback.draft(1)
        {
            prop_assert_eq!(Feedback::parse(&again.sign(&key).unwrap(), None).unwrap(), feedback);
        }
        prop_assert!(correlates(&vector("request"), &[key.public_key()], &event).is_err());
    }

    #[test]
    fn hostile_tags_inside_a_ciphertext_never_panic(tags in hostile_tags()) {
        let (buyer, provider) = (secret("buyer"), secret("provider"));
        let plaintext = serde_json::to_string(&tags).unwrap();
        let content =
            guild_protocol::nostr::nip44::encrypt(&buyer, &provider.public_key(), &plaintext, &Fixed(1)).unwrap();
        let p = provider.public_key().hex();
        let with = |kind| event(kind, &[&["encrypted"], &["p", &p]], &content);
        if let Ok(request) = Request::parse(&with(5050), Some(&provider)) {
            prop_assert_eq!(request.providers, [provider.public_key()]);
        }
        let _ = Feedback::parse(&with(7000), Some(&provider));
    }
}

#[test]
fn a_tag_that_is_not_understood_is_sealed_with_the_rest() {
    let (buyer, provider) = (secret("buyer"), secret("provider"));
    let private = vec!["case".to_owned(), "4711".to_owned()];
    let mut request = Request::new(5050);
    request.providers = vec![provider.public_key()];
    request.other_tags = vec![private.clone()];
    let sealed = request.sealed_draft(1, &buyer, &Fixed(7)).unwrap().sign(&buyer).unwrap();
    assert!(!sealed.to_json().contains("4711"));
    let read = Request::parse(&sealed, Some(&provider)).unwrap();
    assert_eq!(read.other_tags, std::slice::from_ref(&private));

    let mut feedback = Feedback::about(&sealed, Status::Processing);
    feedback.other_tags = vec![private.clone()];
    let sealed = feedback.sealed_draft(2, &provider, &Fixed(7)).unwrap().sign(&provider).unwrap();
    assert!(!sealed.to_json().contains("4711"));
    assert_eq!(Feedback::parse(&sealed, Some(&buyer)).unwrap().other_tags, [private]);
}
