use guild_market::code;
use guild_market::job::{Decision, Offer, Refusal, Shop, Standing, consider};
use guild_protocol::amount::Msat;
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::nostr::Event;
use guild_protocol::nostr::job::{Input, InputType, Param, Request};
use guild_protocol::schema::{Job, Registry};

use crate::world::{anything, buyer, claimant, key, offer, provider};

const NOW_S: u64 = 1_768_465_800;

fn asked() -> Request {
    let mut request = Request::new(5050);
    request.inputs.push(Input::text(r#"{"texts":["a"]}"#).marked("spec"));
    request.schema_id = Some("oa.embedding.v1".into());
    request.bid = Some(Msat(100));
    request.providers.push(provider().public_key());
    request.params.push(Param::new("time-limit", "60"));
    request
}

fn standing() -> Standing {
    Standing {
        credit: Msat(1_000),
        owed: Msat(0),
        open: Msat(0),
        open_jobs: 0,
        samples: 0,
        samples_of_all: 0,
    }
}

fn decided(request: &Request, offer: &Offer, standing: &Standing, event: &Event) -> String {
    decided_by(&anything, request, offer, standing, event)
}

fn decided_by(
    can_do: &dyn Fn(&Job) -> Result<(), Refusal>,
    request: &Request,
    offer: &Offer,
    standing: &Standing,
    event: &Event,
) -> String {
    let (registry, claimant) = (&Registry::builtin(), &claimant());
    let shop = Shop { offer, registry, can_do, claimant };
    match consider(&shop, event, request, standing, NOW_S) {
        Decision::Accept { price, due_s, .. } => format!("accept {} {due_s:?}", price.0),
        Decision::Refuse(refusal) => refusal.code.name.to_owned(),
        Decision::Ignore(why) => format!("ignore: {why}"),
    }
}

fn event() -> Event {
    asked().draft(NOW_S).unwrap().sign(&buyer()).unwrap()
}

type Change = fn(&mut Request, &mut Offer, &mut Standing);

#[test]
fn every_request_is_decided_as_the_table_says() {
    let cases: &[(&str, Change)] = &[
        ("accept 100 Some(1768465860)", |_, _, _| {}),
        ("accept 0 Some(1768465860)", |r, _, _| {
            (r.bid, r.params) = (None, vec![Param::new("benchmark-type", "standard")]);
            r.params.push(Param::new("time-limit", "60"));
        }),
        ("market.bid_too_low", |r, _, s| {
            (r.bid, r.params, s.samples) = (None, vec![Param::new("benchmark-type", "x")], 2);
        }),
        ("market.bid_too_low", |r, _, s| {
            (r.bid, r.params, s.samples_of_all) =
                (None, vec![Param::new("benchmark-type", "x")], 3);
        }),
        ("accept 100 None", |r, _, s| {
            (r.params, s.samples) = (vec![Param::new("benchmark-type", "x")], 9);
        }),
        ("accept 100 None", |r, _, _| r.params.clear()),
        ("accept 100 Some(1768465860)", |r, _, _| r.providers.push(key(9).public_key())),
        ("accept 100 Some(1768465860)", |r, _, _| r.providers.clear()),
        ("accept 100 Some(1768465860)", |_, _, s| (s.owed, s.open) = (Msat(400), Msat(500))),
        ("accept 0 Some(1768465860)", |r, o, s| {
            // Free work needs neither bid nor credit.
            o.prices.values_mut().for_each(|price| *price = Msat(0));
            (r.bid, s.owed) = (None, Msat(2_000));
        }),
        ("ignore: it is addressed to others", |r, _, _| r.providers = vec![key(9).public_key()]),
        ("ignore: it is our own", |_, o, _| o.provider = buyer().public_key()),
        ("ignore: its time is over", |r, _, _| r.params = vec![Param::new("time-limit", "0")]),
        ("ignore: it is open, and of a schema that we do not serve", |r, _, _| {
            r.providers.clear();
            r.schema_id = Some("oa.sandbox_run.v1".into());
        }),
        ("market.schema_not_served", |r, _, _| r.schema_id = Some("oa.sandbox_run.v1".into())),
        ("market.schema_not_served", |r, _, _| r.schema_id = Some("what?".into())),
        ("market.schema_not_served", |r, _, _| r.schema_id = None),
        ("market.input_missing", |r, _, _| r.inputs.clear()),
        ("market.input_missing", |r, _, _| r.inputs[0].input_type = InputType::Url),
        ("json.syntax", |r, _, _| r.inputs[0].data = "please embed this".into()),
        ("schema.field_missing", |r, _, _| r.inputs[0].data = "{}".into()),
        ("market.input_too_large", |_, o, _| o.max_input_bytes = 14),
        ("market.job_hash_wrong", |r, _, _| r.job_hash = Some(Hash::of(b"another"))),
        ("market.bid_too_low", |r, _, _| r.bid = Some(Msat(99))),
        ("market.bid_too_low", |r, _, _| r.bid = None),
        ("market.over_credit", |_, _, s| s.owed = Msat(901)),
        ("market.over_credit", |_, _, s| s.open = Msat(901)),
        ("market.over_credit", |_, _, s| (s.owed, s.open) = (Msat(i64::MAX), Msat(i64::MAX))),
        ("market.over_credit", |_, _, s| s.credit = Msat(99)),
        ("market.busy", |_, _, s| s.open_jobs = 8),
    ];
    for (wanted, change) in cases {
        let (mut request, mut offer, mut standing) = (asked(), offer(100), standing());
        change(&mut request, &mut offer, &mut standing);
        assert_eq!(decided(&request, &offer, &standing, &event()), *wanted, "{request:?}");
    }
}

#[test]
fn an_expired_event_and_a_marked_input() {
    let mut expired = event();
    expired.tags.push(vec!["expiration".into(), NOW_S.to_string()]);
    assert_eq!(decided(&asked(), &offer(100), &standing(), &expired), "ignore: its time is over");
    let mut two = asked();
    two.inputs.insert(0, Input::text("not this one"));
    assert_eq!(decided(&two, &offer(100), &standing(), &event()), "accept 100 Some(1768465860)");
}

/// The worker is asked about valid work only, and before the buyer is looked at.
#[test]
fn work_that_cannot_be_done_is_not_promised() {
    let too_large = |job: &Job| {
        assert_eq!(job.payload()["texts"][0], "a");
        Err(Refusal::new(&code::OUTPUT_TOO_LARGE, "x".repeat(1_000)))
    };
    let poor = Standing { credit: Msat(0), ..standing() };
    let decided = |request: &Request, standing: &Standing| {
        decided_by(&too_large, request, &offer(100), standing, &event())
    };
    assert_eq!(decided(&asked(), &standing()), "market.output_too_large");
    assert_eq!(decided(&asked(), &poor), "market.output_too_large");
    let mut invalid = asked();
    invalid.inputs[0].data = "{}".into();
    assert_eq!(decided(&invalid, &standing()), "schema.field_missing");
    // Whoever made us say it, a refusal is short.
    let words = Refusal::new(&code::OUTPUT_TOO_LARGE, "é".repeat(1_000)).words;
    assert_eq!(words.chars().count(), 300);
}
