//! The pages, from plain values.

use guild_protocol::amount::{Amount, Msat};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::receipt::{self, Draft, Proof, Rail, Status};
use guild_protocol::timestamp::Timestamp;
use guild_roles::explorer::{
    Counts, Offer, Party, Provider, Receipt, Record, Request, RequestDetail, Side, Standing, Step, StepKind, Summary,
    Tone,
};

use super::*;

const NOW: i64 = 1_768_465_800_000;

fn secret(n: u8) -> SecretKey {
    format!("{n:064x}").parse().unwrap()
}

fn key(n: u8) -> PublicKey {
    secret(n).public_key()
}

fn party(n: u8, name: &str) -> Party {
    Party::new(&key(n), Some(name.to_owned()).filter(|name| !name.is_empty()))
}

fn offer(n: u8, name: &str) -> Offer {
    Offer {
        provider: party(n, name),
        d: "main".to_owned(),
        about: Some("Embeddings on one quiet machine.".to_owned()),
        schema_ids: vec!["oa.embedding.v1".to_owned()],
        kinds: vec!["5050".to_owned()],
        price_msat: Some(5_000),
        private: true,
        relays: vec!["ws://127.0.0.1:4848/relay".to_owned()],
        event_id: "ab".repeat(32),
        announced_ms: NOW - 3_600_000,
        first_seen_ms: NOW - 3_500_000,
        last_seen_ms: Some(NOW - 40_000),
        live: true,
        name_shared: false,
    }
}

fn ask(standing: Standing, side: Side) -> Request {
    Request {
        request_id: "cd".repeat(32),
        side,
        standing,
        buyer: party(9, ""),
        providers: vec![party(1, "Fast box")],
        kind: 5050,
        schema_id: Some("oa.embedding.v1".to_owned()),
        bid_msat: Some(8_000),
        private: false,
        created_ms: NOW - 65_000,
        received_ms: NOW - 64_000,
    }
}

fn step(kind: StepKind, tone: Tone, after_ms: i64, text: &str) -> Step {
    let author = Some(party(1, "Fast box"));
    let event_id = Some("ef".repeat(32));
    Step { kind, tone, at_ms: NOW - 65_000 + after_ms, author, text: text.to_owned(), event_id }
}

fn line(status: Status) -> Receipt {
    Receipt {
        receipt_id: format!("rcpt_{}", "12".repeat(32)),
        request_id: Some("cd".repeat(32)),
        side: Side::Bought,
        buyer: party(9, ""),
        provider: party(1, "Fast box"),
        amount: Amount::from(Msat(5_000)),
        status,
        at_ms: NOW - 60_000,
    }
}

fn signed() -> receipt::Receipt {
    let draft = Draft {
        session_id: "order_1".to_owned(),
        request_id: Some("cd".repeat(32)),
        trajectory_hash: Hash::of(b"trajectory"),
        policy_bundle_id: "policy".to_owned(),
        job_hash: Some(Hash::of(b"job")),
        payment_proof: Some(Proof::LedgerTransfer {
            transfer_id: "xfer_1".to_owned(),
            ledger_head: Hash::of(b"head"),
        }),
        rail: Rail::Ledger,
        amount: Amount::from(Msat(5_000)),
        provider_id: key(1),
        buyer_id: key(9),
        approval_rule_id: None,
        idempotency_key: "pay_1".to_owned(),
        status: Status::Released,
        verdict_hash: Some(Hash::of(b"verdict")),
        timestamp: Timestamp::from_ms(NOW).unwrap(),
    };
    draft.sign(&secret(9)).unwrap()
}

/// The text that a reader sees, a line for each piece.
fn seen(page: &str) -> Vec<String> {
    let main = page.split_once("<main").unwrap().1.split_once("</main>").unwrap().0;
    let mut pieces = Vec::new();
    for piece in main.split('<').skip(1) {
        let text = piece.split_once('>').map_or("", |(_, text)| text).trim();
        if !text.is_empty() {
            pieces.push(text.to_owned());
        }
    }
    pieces
}

fn summary() -> Summary {
    Summary {
        counts: Counts { offers: 3, offers_live: 2, requests: 1_234, receipts: 2, paid_msat: 21_500, earned_msat: 0 },
        offers: vec![offer(1, "Fast box"), Offer { price_msat: None, ..offer(2, "") }],
        requests: vec![
            ask(Standing::Working, Side::Bought),
            Request { private: true, schema_id: None, providers: vec![], ..ask(Standing::Open, Side::Seen) },
        ],
        receipts: vec![line(Status::Released), line(Status::Withheld)],
    }
}

#[test]
fn zz_gallery() {
    let out = "/tmp/gw-gallery";
    std::fs::create_dir_all(out).unwrap();
    let put = |name: &str, page: String| {
        let page = page.replace("/assets/style-", "style-").replace(&asset::style().path()[8..], "style.css");
        let page = page.replace(&asset::style().path(), "style.css").replace("href=\"style-", "href=\"x-");
        std::fs::write(format!("{out}/{name}.html"), page).unwrap();
    };
    std::fs::write(format!("{out}/style.css"), include_str!("style.css")).unwrap();
    put("home", home(&summary(), NOW));
    put("providers", providers(&[offer(1, "Fast box"), offer(2, ""), Offer { live: false, ..offer(3, &"x".repeat(999)) }, offer(4, "Slow")], &Filter::default(), Some("/x"), NOW));
    let provider = Provider { provider: party(1, "Fast box"), last_seen_ms: Some(NOW - 9_000), live: true, offers: vec![Offer { name_shared: true, ..offer(1, "Fast box") }],
        record: Record { released: 4, withheld: 1, paid_msat: 20_000 }, receipts: vec![line(Status::Released)] };
    put("provider", super::provider(&provider, NOW));
    put("requests", requests(&[ask(Standing::Working, Side::Bought), ask(Standing::Paid, Side::Hired), ask(Standing::Withheld, Side::Bought), ask(Standing::Expired, Side::Seen)], None, NOW));
    let detail = RequestDetail { request: ask(Standing::Paid, Side::Bought), price_msat: Some(5_000), reason: None, receipt_id: Some("rcpt_1".into()),
        timeline: vec![step(StepKind::Request, Tone::Plain, 0, "An embedding is wanted, for at most 8 sat."), step(StepKind::Feedback, Tone::Plain, 120, "Processing, for 5 sat."),
        step(StepKind::Result, Tone::Plain, 1_400, "The result is here: 2 vectors."), step(StepKind::Verdict, Tone::Good, 1_450, "Equal to what this node computed itself."), step(StepKind::Payment, Tone::Good, 1_460, "5 sat released to the provider, 3 sat given back."), step(StepKind::Receipt, Tone::Good, 1_470, "Signed by the buyer and sent to the provider.")] };
    put("request", request(&detail, NOW));
    let proven = signed();
    let v = receipt::verify(proven.as_bytes()).unwrap();
    put("receipt", super::receipt(&Shown { receipt: &line(Status::Released), verification: &v, proven: Some(&proven), has_replay: true }, NOW));
    put("problem", problem(axum::http::StatusCode::NOT_FOUND, &crate::code::UNKNOWN, "there is no request here"));
    put("empty", home(&Summary { counts: Counts::default(), offers: vec![], requests: vec![], receipts: vec![] }, NOW));
}
