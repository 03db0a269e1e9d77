use guild_protocol::amount::{Amount, Msat};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::nostr::receipt_notice::{ReceiptNotice, is_notice};
use guild_protocol::nostr::{Draft as EventDraft, Event};
use guild_protocol::receipt::{Draft, Proof, Rail, Receipt, Status};
use guild_protocol::timestamp::Timestamp;

use super::{Fixed, secret};

fn receipt() -> Receipt {
    let draft = Draft {
        session_id: "session-7".to_owned(),
        request_id: Some(
            "83587e473a1109857312b0b5bac5ee184bf7500fa5814a421120ce430e268097".to_owned(),
        ),
        trajectory_hash: Hash::of(b"trajectory"),
        policy_bundle_id: "policy.default".to_owned(),
        job_hash: Some(Hash::of(b"job")),
        payment_proof: Some(Proof::LedgerTransfer {
            transfer_id: "xfer_019bc0c69b4474b2827777d4dd1fc61c".to_owned(),
            ledger_head: Hash::of(b"head"),
        }),
        rail: Rail::Ledger,
        amount: Amount::from(Msat(900)),
        provider_id: secret("provider").public_key(),
        buyer_id: secret("buyer").public_key(),
        approval_rule_id: None,
        idempotency_key: "pay".to_owned(),
        status: Status::Released,
        verdict_hash: Some(Hash::of(b"verdict")),
        timestamp: Timestamp::from_ms(1_763_190_060_000).unwrap(),
    };
    draft.sign(&secret("buyer")).unwrap()
}

fn open() -> Event {
    let notice = ReceiptNotice::of(&receipt()).unwrap();
    notice.draft(1_763_190_060).unwrap().sign(&secret("buyer")).unwrap()
}

fn sealed() -> Event {
    let (notice, buyer) = (ReceiptNotice::of(&receipt()).unwrap(), secret("buyer"));
    notice.sealed_draft(1_763_190_060, &buyer, &Fixed(4)).unwrap().sign(&buyer).unwrap()
}

#[test]
fn a_receipt_travels_open_or_sealed_and_arrives_the_same() {
    let notice = ReceiptNotice::parse(&open(), None).unwrap();
    assert_eq!(notice.receipt, receipt());
    assert_eq!(open().content.as_bytes(), receipt().as_bytes());
    assert_eq!(open().tag("d"), Some(format!("guild:receipt:{}", receipt().receipt_id()).as_str()));
    let sealed = sealed();
    assert!(is_notice(&sealed) && !sealed.content.contains("rcpt_"));
    for of in ["buyer", "provider"] {
        assert_eq!(ReceiptNotice::parse(&sealed, Some(&secret(of))).unwrap(), notice);
    }
    let code = |key| ReceiptNotice::parse(&sealed, key).unwrap_err().code().name;
    assert_eq!(code(None), "nip90.encrypted");
    let stranger = "77".repeat(32).parse().unwrap();
    assert_eq!(code(Some(&stranger)), "nip44.not_opened");
}

/// The event after a change, signed by somebody.
fn changed(by: &str, change: impl Fn(&mut EventDraft)) -> Event {
    let Event { kind, created_at, tags, content, .. } = open();
    let mut draft = EventDraft { kind, created_at, tags, content };
    change(&mut draft);
    draft.sign(&secret(by)).unwrap()
}

#[test]
fn tags_that_do_not_belong_to_the_receipt_are_refused() {
    let why = |event: &Event| ReceiptNotice::parse(event, None).unwrap_err();
    let mismatch = "receipt_notice.mismatch";
    let cases = [
        (changed("provider", |_| ()), mismatch, "pubkey"),
        (changed("buyer", |e| e.tags[0][1].push('0')), mismatch, "d"),
        (changed("buyer", |e| e.tags[1][1] = "0".repeat(64)), mismatch, "e"),
        (changed("buyer", |e| e.tags[2][1] = secret("buyer").public_key().hex()), mismatch, "p"),
        (changed("buyer", |e| drop(e.tags.remove(2))), mismatch, "p"),
        (changed("buyer", |e| e.kind = 30_079), "receipt_notice.kind_wrong", "kind"),
        (changed("buyer", |e| e.tags[0][1] = "other".into()), "receipt_notice.kind_wrong", "kind"),
    ];
    for (event, code, place) in cases {
        let refused = why(&event);
        assert_eq!((refused.code().name, refused.place()), (code, Some(place)));
    }
    let forged =
        changed("buyer", |e| e.content = e.content.replace("\"units\":900", "\"units\":901"));
    assert_eq!(why(&forged).code().name, "receipt.amount_mismatch");
    assert_eq!(why(&changed("buyer", |e| e.content.clear())).code().name, "json.syntax");
}

/// Only what was ordered on Nostr is told there.
#[test]
fn a_receipt_about_something_else_is_no_notice() {
    let mut draft = receipt().stated().clone();
    draft.request_id = Some("request-12".to_owned());
    let other = draft.sign(&secret("buyer")).unwrap();
    assert_eq!(ReceiptNotice::of(&other).unwrap_err().place(), Some("request_id"));
}
