use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_ledger::policy::{Bundle, PolicyBundleId, Tier};
use guild_ledger::quote::{
    self, Approval, MAX_LIFETIME_MS, NewQuote, Quote, QuoteId, Reservation, State, Terms, Verdict,
};
use guild_ledger::{AccountId, Error, audit, ledger, migrations};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;
use guild_protocol::receipt::Rail;
use guild_store::{Hooks, Migrations, Options, Service, Sql, Store, args};
use serde_json::{Value, json};

use crate::{Scratch, block_on, both, post, usd};

fn key(number: u8) -> SecretKey {
    format!("{number:064x}").parse().unwrap()
}

/// Up to 10 by itself, up to 100 with the guardian's approval, nothing above.
fn bundle() -> Bundle {
    let asks = json!({
        "id": "ask", "action": "guardian", "guardian_key": key(7).public_key().npub(),
        "when": {"amount": {"USD_MICRO": {"at_least": 11, "at_most": 100}}},
    });
    let bundle = json!({
        "schema_version": "guild.policy_bundle.v1", "name": "test",
        "caps": {"USD_MICRO": 10}, "rules": [asks],
    });
    Bundle::parse(bundle.to_string().as_bytes()).unwrap()
}

fn id(number: u32) -> QuoteId {
    format!("quote_{number:032x}").parse().unwrap()
}

/// A quote that runs out at 1000 and whose money is then held until 5000.
fn wanted(ids: &[AccountId], number: u32, units: i64) -> NewQuote {
    NewQuote {
        quote_id: id(number),
        debit: ids[1].clone(),
        credit: ids[2].clone(),
        amount: usd(units),
        subject: "embed 3 texts".to_owned(),
        provider_tier: Tier::Secondary,
        schema_id: Some("oa.embedding.v1".parse().unwrap()),
        rail: Rail::Ledger,
        expires_ms: 1_000,
        hold_until_ms: 5_000,
    }
}

fn make(store: &Store, wanted: &NewQuote, now_ms: i64) -> Result<Quote, Error> {
    let wanted = wanted.clone();
    block_on(store.write(move |tx| quote::make(tx, &wanted, &bundle(), now_ms)))
}

fn approve(store: &Store, number: u32, approval: &Approval, now_ms: i64) -> Result<Quote, Error> {
    let approval = approval.clone();
    block_on(store.write(move |tx| quote::approve(tx, &id(number), &approval, now_ms)))
}

fn reserve(store: &Store, number: u32, now_ms: i64) -> Result<Reservation, Error> {
    block_on(store.write(move |tx| quote::reserve(tx, &id(number), now_ms)))
}

fn stored(store: &Store, number: u32) -> Quote {
    block_on(store.read(move |rx| quote::get(rx, &id(number)))).unwrap()
}

fn why<T: std::fmt::Debug>(result: Result<T, Error>) -> &'static str {
    result.unwrap_err().code().name
}

fn signed(quote: &Quote, verdict: Verdict, at_ms: i64) -> Approval {
    Approval::sign(&quote.terms, verdict, at_ms, &key(7)).unwrap()
}

#[test]
fn what_the_policy_allows_is_reserved_once_and_says_what_its_receipt_names() {
    both(2, |Scratch { store, ids, .. }| {
        let quote = make(store, &wanted(ids, 1, 10), 5).unwrap();
        assert_eq!((quote.state, quote.terms.made_ms), (State::Approved, 5));
        assert_eq!(stored(store, 1), quote);
        let first = reserve(store, 1, 999).unwrap();
        assert_eq!(first.policy_bundle_id, *bundle().policy_bundle_id());
        assert_eq!(first.approval_rule_id, None);
        assert_eq!(first.quote.transfer_id.as_ref(), Some(&first.hold.transfer_id));
        // Also long after it has run out: it was reserved in time.
        assert_eq!(reserve(store, 1, 9_999).unwrap(), first);
        assert_eq!(make(store, &wanted(ids, 1, 10), 9_999).unwrap(), first.quote);
        let pay_in = vec![post("in", &ids[0], &ids[1], 100)];
        let chains = vec![pay_in, vec![first.hold]];
        let booked = block_on(store.write(move |tx| ledger::book(tx, &chains, 1_500))).unwrap();
        assert!(booked.iter().all(Result::is_ok), "{booked:?}");
    });
}

#[test]
fn the_policy_of_a_quote_is_kept() {
    both(2, |Scratch { store, ids, .. }| {
        let quote = make(store, &wanted(ids, 1, 50), 5).unwrap();
        let bundle_id = quote.terms.policy_bundle_id;
        let kept = block_on(store.read(move |rx| quote::bundle(rx, &bundle_id))).unwrap();
        assert_eq!(kept, Some(bundle()));
        let other = PolicyBundleId::of(&Hash::of(b"another"));
        assert_eq!(block_on(store.read(move |rx| quote::bundle(rx, &other))).unwrap(), None);
    });
}

#[test]
fn a_denied_payment_stays_denied() {
    both(2, |Scratch { store, ids, .. }| {
        let quote = make(store, &wanted(ids, 1, 101), 5).unwrap();
        assert_eq!(quote.state, State::Denied);
        let refusal = reserve(store, 1, 6).unwrap_err();
        assert_eq!(refusal.code().name, "quote.denied");
        assert_eq!(
            refusal.to_string(),
            "no rule matches, and 101 USD_MICRO is above the cap of 10"
        );
        assert_eq!(
            why(approve(store, 1, &signed(&quote, Verdict::Approve, 6), 6)),
            "quote.no_guardian"
        );
        assert_eq!(stored(store, 1), quote);
    });
}

#[test]
fn a_guardian_approves_in_time_and_anybody_can_check_it() {
    both(2, |Scratch { store, ids, .. }| {
        let quote = make(store, &wanted(ids, 1, 50), 5).unwrap();
        assert_eq!(quote.state, State::Quoted);
        assert_eq!(why(reserve(store, 1, 6)), "quote.not_approved");
        let approval = signed(&quote, Verdict::Approve, 10);
        let approved = approve(store, 1, &approval, 999).unwrap();
        assert_eq!((approved.state, approved.changed_ms), (State::Approved, 999));
        let reserved = reserve(store, 1, 999).unwrap();
        assert_eq!(reserved.approval_rule_id.as_deref(), Some("ask"));
        // The same decision again, even late and newly signed, changes nothing.
        for again in [approval, signed(&quote, Verdict::Approve, 11)] {
            assert_eq!(approve(store, 1, &again, 5_000).unwrap(), reserved.quote);
        }
        assert_eq!(why(approve(store, 1, &signed(&quote, Verdict::Deny, 11), 12)), "quote.decided");
        // A stranger has two documents and no database.
        let terms = Terms::parse(reserved.quote.terms.to_canonical().unwrap().as_bytes()).unwrap();
        let kept = reserved.quote.approval.unwrap().to_canonical().unwrap();
        Approval::parse(kept.as_bytes()).unwrap().check(&terms).unwrap();
        let cheaper = Terms { wanted: wanted(ids, 1, 49), ..terms };
        assert_eq!(
            why(Approval::parse(kept.as_bytes()).unwrap().check(&cheaper)),
            "quote.wrong_quote"
        );
    });
}

#[test]
fn a_guardian_may_deny() {
    both(2, |Scratch { store, ids, .. }| {
        let quote = make(store, &wanted(ids, 1, 50), 5).unwrap();
        let denied = approve(store, 1, &signed(&quote, Verdict::Deny, 6), 6).unwrap();
        assert_eq!(denied.state, State::Denied);
        let refusal = reserve(store, 1, 7).unwrap_err();
        assert_eq!(refusal.code().name, "quote.denied");
        assert!(refusal.to_string().ends_with("has denied it"), "{refusal}");
        assert_eq!(
            why(approve(store, 1, &signed(&quote, Verdict::Approve, 7), 7)),
            "quote.decided"
        );
    });
}

#[test]
fn every_wrong_approval_is_refused_and_changes_nothing() {
    both(2, |Scratch { store, ids, .. }| {
        let quote = make(store, &wanted(ids, 1, 50), 5).unwrap();
        let other = make(store, &wanted(ids, 2, 50), 5).unwrap();
        let good = signed(&quote, Verdict::Approve, 6);
        let wrong_key = Approval::sign(&quote.terms, Verdict::Approve, 6, &key(8)).unwrap();
        let cases = [
            (wrong_key.clone(), 6, "quote.wrong_guardian"),
            (Approval { key: key(7).public_key(), ..wrong_key }, 6, "key.signature_wrong"),
            (Approval { at_ms: 7, ..good.clone() }, 7, "key.signature_wrong"),
            (Approval { verdict: Verdict::Deny, ..good.clone() }, 6, "key.signature_wrong"),
            (Approval { quote_hash: Hash::of(b"x"), ..good.clone() }, 6, "quote.wrong_quote"),
            (Approval { quote_id: id(2), ..good.clone() }, 6, "quote.wrong_quote"),
            (signed(&other, Verdict::Approve, 6), 6, "quote.wrong_quote"),
            (signed(&quote, Verdict::Approve, 1_000), 6, "quote.expired"),
            (good.clone(), 1_000, "quote.expired"),
        ];
        for (approval, now_ms, code) in cases {
            assert_eq!(why(approve(store, 1, &approval, now_ms)), code);
            assert_eq!(stored(store, 1), quote);
        }
        assert_eq!(why(approve(store, 3, &good, 6)), "quote.unknown");
        assert_eq!(why(reserve(store, 3, 6)), "quote.unknown");
        // Not approved in time is denied, whether or not the sweep has been there.
        assert_eq!(quote.state_at(999), State::Quoted);
        assert_eq!(quote.state_at(1_000), State::Denied);
        assert_eq!(why(reserve(store, 1, 1_000)), "quote.denied");
    });
}

#[test]
fn what_has_run_out_is_written_down_by_a_sweep() {
    both(2, |Scratch { store, ids, .. }| {
        make(store, &wanted(ids, 1, 50), 5).unwrap();
        let approved = make(store, &wanted(ids, 2, 10), 5).unwrap();
        make(store, &wanted(ids, 3, 10), 5).unwrap();
        let late = NewQuote { expires_ms: 2_000, ..wanted(ids, 4, 10) };
        make(store, &late, 5).unwrap();
        reserve(store, 3, 6).unwrap();
        assert_eq!(approved.state_at(1_000), State::Expired);
        assert_eq!(why(reserve(store, 2, 1_000)), "quote.expired");
        let sweep =
            |now_ms, limit| block_on(store.write(move |tx| quote::expire(tx, now_ms, limit)));
        assert_eq!(sweep(999, 10).unwrap(), 0);
        assert_eq!(sweep(1_000, -1).unwrap(), 0, "no limit is not a limit below zero");
        assert_eq!((sweep(1_000, 1).unwrap(), sweep(1_000, 10).unwrap()), (1, 1));
        assert_eq!(sweep(1_001, 10).unwrap(), 0);
        let states = [1, 2, 3, 4].map(|number| stored(store, number).state);
        assert_eq!(states, [State::Denied, State::Expired, State::Reserved, State::Approved]);
        assert_eq!(why(reserve(store, 1, 1_001)), "quote.denied");
        assert_eq!(why(reserve(store, 2, 1_001)), "quote.expired");
        let quote = stored(store, 1);
        assert_eq!(
            why(approve(store, 1, &signed(&quote, Verdict::Approve, 6), 6)),
            "quote.expired"
        );
    });
}

#[test]
fn a_bad_quote_is_refused_and_an_id_means_one_thing() {
    both(2, |Scratch { store, ids, .. }| {
        let good = || wanted(ids, 1, 10);
        let nobody: AccountId = format!("acct_{:064x}", 9).parse().unwrap();
        let btc = |units| {
            guild_protocol::amount::Amount::new(guild_protocol::amount::AssetId::btc_ln(), units)
        };
        let cases = [
            (NewQuote { subject: String::new(), ..good() }, "quote.malformed"),
            (NewQuote { subject: "a\nb".to_owned(), ..good() }, "quote.malformed"),
            (NewQuote { subject: "pay \u{202e}01".to_owned(), ..good() }, "quote.malformed"),
            (NewQuote { subject: "a\u{2028}b".to_owned(), ..good() }, "quote.malformed"),
            (NewQuote { subject: "x".repeat(501), ..good() }, "quote.malformed"),
            (NewQuote { expires_ms: 5, ..good() }, "quote.malformed"),
            (NewQuote { expires_ms: 6 + MAX_LIFETIME_MS, ..good() }, "quote.malformed"),
            (NewQuote { hold_until_ms: 1_000, ..good() }, "quote.malformed"),
            (NewQuote { hold_until_ms: i64::MAX, ..good() }, "quote.malformed"),
            (NewQuote { amount: usd(0), ..good() }, "ledger.bad_amount"),
            (NewQuote { amount: usd(-1), ..good() }, "ledger.bad_amount"),
            (NewQuote { amount: usd(i64::MAX), ..good() }, "json.integer_range"),
            (NewQuote { amount: btc(10), ..good() }, "ledger.wrong_asset"),
            (NewQuote { rail: Rail::Lightning, ..good() }, "ledger.wrong_asset"),
            (NewQuote { credit: ids[1].clone(), ..good() }, "ledger.same_account"),
            (NewQuote { credit: nobody, ..good() }, "ledger.unknown_account"),
        ];
        for (bad, code) in cases {
            assert_eq!(why(make(store, &bad, 5)), code, "{bad:?}");
        }
        let first = make(store, &good(), 5).unwrap();
        assert_eq!(make(store, &good(), 400).unwrap(), first);
        for other in [
            wanted(ids, 1, 9),
            NewQuote { subject: "something else".to_owned(), ..good() },
            NewQuote { provider_tier: Tier::Primary, ..good() },
            NewQuote { hold_until_ms: 5_001, ..good() },
        ] {
            assert_eq!(why(make(store, &other, 5)), "quote.conflict");
        }
    });
}

#[test]
fn a_document_with_another_field_or_version_is_refused() {
    both(2, |Scratch { store, ids, .. }| {
        let quote = make(store, &wanted(ids, 1, 50), 5).unwrap();
        let terms: Value = serde_json::from_str(&quote.terms.to_canonical().unwrap()).unwrap();
        let approval = signed(&quote, Verdict::Approve, 6).to_canonical().unwrap();
        let approval: Value = serde_json::from_str(&approval).unwrap();
        let changed = |document: &Value, pointer: &str, value: Value| {
            let mut document = document.clone();
            match document.pointer_mut(pointer) {
                Some(place) => *place = value,
                None => document[&pointer[1..]] = value,
            }
            document.to_string().into_bytes()
        };
        let read_terms = |pointer, value| Terms::parse(&changed(&terms, pointer, value));
        assert_eq!(read_terms("/subject", json!("other")).unwrap().wanted.subject, "other");
        assert_eq!(why(read_terms("/more", json!(1))), "json.shape");
        assert_eq!(
            why(read_terms("/schema_version", json!("guild.quote.v2"))),
            "quote.unknown_version"
        );
        assert_eq!(why(read_terms("/action", json!("auto"))), "quote.malformed");
        assert_eq!(why(read_terms("/provider_tier", json!("best"))), "quote.malformed");
        let read_approval = |pointer, value| Approval::parse(&changed(&approval, pointer, value));
        assert_eq!(why(read_approval("/more", json!(1))), "json.shape");
        assert_eq!(why(read_approval("/decision", json!("maybe"))), "json.shape");
        assert_eq!(why(read_approval("/schema_version", json!("x"))), "quote.unknown_version");
        assert_eq!(why(read_approval("/signature/scheme", json!("x"))), "quote.unknown_version");
        let npub = key(7).public_key().npub();
        assert_eq!(
            why(read_approval("/signature/public_key", json!(npub))),
            "key.public_malformed"
        );
        assert_eq!(why(Approval::parse(&[b' '; 20_000])), "json.size");
    });
}

#[test]
fn the_schema_itself_keeps_quotes_as_they_are() {
    both(2, |Scratch { store, ids, .. }| {
        make(store, &wanted(ids, 1, 10), 5).unwrap();
        make(store, &wanted(ids, 2, 101), 5).unwrap();
        for sql in [
            "UPDATE ledger_quote SET document = '{}'",
            "UPDATE ledger_quote SET expires_ms = 9999",
            "UPDATE ledger_quote SET state = 'approved' WHERE state = 'denied'",
            "UPDATE ledger_quote SET state = 'reserved' WHERE state = 'approved'",
            "UPDATE ledger_quote SET state = 'lost' WHERE state = 'approved'",
            "DELETE FROM ledger_quote",
            "UPDATE ledger_policy_bundle SET document = '{}'",
            "DELETE FROM ledger_policy_bundle",
        ] {
            let refused = block_on(store.write(move |tx| tx.exec(sql, args![])));
            assert!(refused.is_err(), "{sql}");
        }
    });
}

#[test]
fn a_damaged_document_is_seen() {
    const DROP: Sql = Sql {
        lite: "DROP TRIGGER ledger_quote_is_fixed",
        pg: "DROP TRIGGER ledger_quote_is_fixed ON ledger_quote",
    };
    both(2, |Scratch { store, ids, .. }| {
        make(store, &wanted(ids, 1, 10), 5).unwrap();
        let damage = block_on(store.write(|tx| {
            tx.exec(DROP, args![])?;
            tx.exec(
                "UPDATE ledger_quote SET document = replace(document, '\"units\":10', '\"units\":11')",
                args![],
            )
        }));
        assert_eq!(damage.unwrap(), 1);
        let read = block_on(store.read(|rx| quote::get(rx, &id(1)))).unwrap_err();
        assert_eq!(read.kind(), guild_protocol::error::Kind::Corrupt);
        assert_eq!(reserve(store, 1, 6).unwrap_err().kind(), guild_protocol::error::Kind::Corrupt);
    });
}

/// The whole way of one quote, each step in a transaction of its own, as its holder would retry it from the start.
fn whole_way(store: &Store, ids: &[AccountId], number: u32) -> Result<(), Error> {
    let quote = make(store, &wanted(ids, number, 50), 5)?;
    approve(store, number, &signed(&quote, Verdict::Approve, 6), 6)?;
    let chain = vec![post(&format!("in {number}"), &ids[0], &ids[1], 100)];
    block_on(store.write(move |tx| {
        let hold = quote::reserve(tx, &id(number), 7)?.hold;
        let outcomes = ledger::book(tx, &[chain.clone(), vec![hold]], 7)?;
        outcomes.into_iter().try_for_each(|outcome| outcome.map(|_| ()))
    }))
}

/// Dies at every point of the way, at each with a new quote; how many points there were.
fn deaths(options: &Options) -> u32 {
    let all = Migrations::store().and(migrations());
    let open = |hooks| Service::open(options, &all, hooks, 0).unwrap();
    for number in 0.. {
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let countdown = left.clone();
        let service = open(Hooks::default().with_faults(move |_, _| {
            (countdown.fetch_sub(1, Ordering::SeqCst) == 0).then_some(guild_store::Error::Crashed)
        }));
        let ids = crate::open_accounts(&service.handle(), 2);
        left.store(number.into(), Ordering::SeqCst);
        let died = whole_way(&service.handle(), &ids, number).is_err();
        service.close();

        let service = open(Hooks::default());
        let store = service.handle();
        whole_way(&store, &ids, number).unwrap();
        whole_way(&store, &ids, number).unwrap();
        assert_eq!(stored(&store, number).state, State::Reserved);
        let sql = "SELECT count(*) FROM ledger_transfer WHERE step = 'hold'";
        let holds = block_on(store.read(move |rx| rx.all::<(i64,)>(sql, args![]))).unwrap();
        assert_eq!(holds, [(i64::from(number) + 1,)]);
        assert_eq!(block_on(store.read(audit::run)).unwrap().problems, Vec::<String>::new());
        service.close();
        if !died {
            return number;
        }
    }
    0
}

#[test]
fn whoever_dies_anywhere_on_the_way_finishes_it_on_the_next_try() {
    let dir = tempfile::tempdir().unwrap();
    let database = testbed::Database::new().unwrap();
    for options in [Options::file(&dir.path().join("node.db")), Options::at(&database.url())] {
        let deaths = deaths(&options);
        assert!(deaths > 20, "{deaths}");
    }
}

#[test]
fn a_state_without_a_signature_pays_nothing() {
    both(2, |Scratch { store, ids, .. }| {
        let (mine, other) = (wanted(ids, 1, 50), wanted(ids, 2, 50));
        make(store, &mine, 5).unwrap();
        let theirs = signed(&make(store, &other, 5).unwrap(), Verdict::Approve, 6);
        let theirs = theirs.to_canonical().unwrap();
        let forge = |approval: Option<String>| {
            block_on(store.write(move |tx| {
                let sql =
                    "UPDATE ledger_quote SET state = 'approved', approval = $2 WHERE quote_id = $1";
                tx.exec(sql, args![id(1).as_str(), approval.as_ref()])
            }))
        };
        assert_eq!(forge(None), Ok(1));
        assert_eq!(why(reserve(store, 1, 7)), "store.decode");
        assert_eq!(forge(Some(theirs)), Ok(1));
        assert_eq!(why(reserve(store, 1, 7)), "quote.wrong_quote");
    });
}
