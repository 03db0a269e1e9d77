#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;
use guild_protocol::receipt::{self, Draft, Proof, Rail, Receipt, Status, code};
use guild_protocol::timestamp::Timestamp;
use guild_protocol::{json, tamper};
use proptest::prelude::*;
use serde_json::{Value, json};

pub(crate) fn buyer() -> SecretKey {
    "11".repeat(32).parse().unwrap()
}

fn provider() -> SecretKey {
    "22".repeat(32).parse().unwrap()
}

pub(crate) fn draft() -> Draft {
    Draft {
        session_id: "session-7".to_owned(),
        request_id: Some("request-12".to_owned()),
        trajectory_hash: Hash::of(b"trajectory"),
        policy_bundle_id: "policy.default".to_owned(),
        job_hash: Some(Hash::of(b"job")),
        payment_proof: Some(Proof::LedgerTransfer {
            transfer_id: "transfer-3".to_owned(),
            ledger_head: Hash::of(b"head"),
        }),
        rail: Rail::Ledger,
        amount: Msat(2_500).into(),
        provider_id: provider().public_key(),
        buyer_id: buyer().public_key(),
        approval_rule_id: None,
        idempotency_key: "pay:request-12".to_owned(),
        status: Status::Released,
        verdict_hash: Some(Hash::of(b"verdict")),
        timestamp: Timestamp::from_ms(1_768_465_800_000).unwrap(),
    }
}

fn good() -> Vec<u8> {
    draft().sign(&buyer()).unwrap().as_bytes().to_vec()
}

/// What the verifier says of the good receipt with one text replaced.
fn said_of(from: &str, to: &str) -> String {
    let text = String::from_utf8(good()).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    match receipt::explain(text.replace(from, to).as_bytes()) {
        Ok(verification) => verification.to_string(),
        Err(error) => format!("cannot be read: {error} [{}]", error.code().name),
    }
}

#[test]
fn a_signed_draft_verifies_and_reads_back() {
    let receipt = draft().sign(&buyer()).unwrap();
    assert_eq!(receipt.stated(), &draft());
    assert_eq!(Receipt::from_bytes(receipt.as_bytes()).unwrap(), receipt);
    assert_eq!(draft().sign(&buyer()).unwrap().as_bytes(), receipt.as_bytes());
    insta::assert_snapshot!(receipt::verify(receipt.as_bytes()).unwrap(), @r#"
    ok      form             every field has its form
    ok      amount           the stated amounts agree
    ok      rail             rail, asset and proof belong together
    ok      status           the status fits verdict and proof
    ok      receipt_id       the id is that of the content
    ok      digest           the digest is that of the content
    ok      signer           the signer is the buyer
    ok      signature        the signature fits digest and key
    "#);
}

#[test]
fn every_rail_has_a_receipt() {
    let hex = "ab".repeat(32);
    let cases = [
        (Rail::Lightning, "BTC_LN", Proof::LightningPreimage(hex.clone())),
        (Rail::Cashu, "BTC_CASHU(https://mint.example)", Proof::CashuProof("cashuAeyJ0".into())),
        (Rail::Cashu, "USD_CASHU(https://mint.example)", Proof::CashuProof("cashuBo2F0".into())),
        (Rail::Onchain, "USDC_EIP155_8453", Proof::OnchainTxid(format!("0x{hex}"))),
        (Rail::Onchain, "BTC_ONCHAIN", Proof::OnchainTxid(hex)),
        (Rail::TaprootAssets, "USDT_TAP(0f)", Proof::TaprootAssetsProof(Hash::of(b"file"))),
    ];
    for (rail, asset, proof) in cases {
        let amount = Amount::new(AssetId::new(asset).unwrap(), 21);
        let draft = Draft { rail, amount, payment_proof: Some(proof), ..draft() };
        let receipt = draft.sign(&buyer()).unwrap();
        assert_eq!(receipt.stated(), &draft);
        let text: Value = serde_json::from_slice(receipt.as_bytes()).unwrap();
        let msats = asset.starts_with("BTC_LN") || asset.starts_with("BTC_CASHU");
        assert_eq!(text.get("amount_msats").is_some(), msats, "{asset}");
    }
}

#[test]
fn contradicting_drafts_are_not_signed() {
    let refused = |draft: Draft| {
        let error = draft.sign(&buyer()).unwrap_err();
        (error.code().name, error.place().unwrap().to_owned())
    };
    let txid = Some(Proof::OnchainTxid("ab".repeat(32)));
    let cases = [
        (Draft { buyer_id: provider().public_key(), ..draft() }, &code::SIGNER, "buyer_id"),
        (Draft { session_id: String::new(), ..draft() }, &code::BAD_VALUE, "session_id"),
        (Draft { request_id: Some("a\nb".into()), ..draft() }, &code::BAD_VALUE, "request_id"),
        (Draft { amount: Msat(-1).into(), ..draft() }, &code::BAD_VALUE, "amount.units"),
        (
            Draft { rail: Rail::Onchain, payment_proof: txid.clone(), ..draft() },
            &code::RAIL,
            "rail",
        ),
        (Draft { payment_proof: txid, ..draft() }, &code::RAIL, "payment_proof.type"),
        (
            Draft {
                rail: Rail::Lightning,
                payment_proof: Some(Proof::LightningPreimage("AB".into())),
                ..draft()
            },
            &code::BAD_VALUE,
            "payment_proof.value",
        ),
        (Draft { payment_proof: None, ..draft() }, &code::STATUS, "payment_proof"),
        (Draft { job_hash: None, ..draft() }, &code::STATUS, "job_hash"),
        (Draft { verdict_hash: None, ..draft() }, &code::STATUS, "verdict_hash"),
        (Draft { status: Status::Prepaid, ..draft() }, &code::STATUS, "verdict_hash"),
    ];
    for (draft, code, field) in cases {
        assert_eq!(refused(draft), (code.name, field.to_owned()));
    }
    let withheld = Draft { status: Status::Withheld, payment_proof: None, ..draft() };
    withheld.sign(&buyer()).unwrap();
    let top_up = Draft { request_id: None, job_hash: None, verdict_hash: None, ..draft() };
    top_up.sign(&buyer()).unwrap();
    let too_much = Draft { amount: Msat(1 << 53).into(), ..draft() };
    assert_eq!(too_much.sign(&buyer()).unwrap_err().code().name, "json.integer_range");
}

#[test]
fn the_changed_field_is_named() {
    insta::assert_snapshot!(said_of(r#""units":2500"#, r#""units":9500"#), @r#"
    ok      form             every field has its form
    FAILED  amount           amount_msats: differs from amount.units [receipt.amount_mismatch]
    ok      rail             rail, asset and proof belong together
    ok      status           the status fits verdict and proof
    FAILED  receipt_id       receipt_id: the content has the id rcpt_c8bfb3cc03b38848ef64fd28f6bc357483dba789cf37eecb805a9030beff1165 [receipt.id_mismatch]
    FAILED  digest           amount.units: was changed after signing [receipt.digest_mismatch]
    ok      signer           the signer is the buyer
    ok      signature        the signature fits digest and key
    "#);
    insta::assert_snapshot!(said_of("session-7", "session-8"), @r#"
    ok      form             every field has its form
    ok      amount           the stated amounts agree
    ok      rail             rail, asset and proof belong together
    ok      status           the status fits verdict and proof
    FAILED  receipt_id       receipt_id: the content has the id rcpt_049ff09c8ae6f0ec3e6c9a1055ee4e0297f67b49a248aaae1abbffd1b3ae57ab [receipt.id_mismatch]
    FAILED  digest           session_id: was changed after signing [receipt.digest_mismatch]
    ok      signer           the signer is the buyer
    ok      signature        the signature fits digest and key
    "#);
    insta::assert_snapshot!(said_of(r#""approval_rule_id":null"#, r#""approval_rule_id":"x""#), @r#"
    ok      form             every field has its form
    ok      amount           the stated amounts agree
    ok      rail             rail, asset and proof belong together
    ok      status           the status fits verdict and proof
    FAILED  receipt_id       receipt_id: the content has the id rcpt_0463a870f69a25dc32d9c77e8db6d8fb95729378916d03a2b23b6c9ab02c4834 [receipt.id_mismatch]
    FAILED  digest           digest: does not belong to the content: it was changed in more than one byte [receipt.digest_mismatch]
    ok      signer           the signer is the buyer
    ok      signature        the signature fits digest and key
    "#);
    insta::assert_snapshot!(said_of("guild.receipt.v1", "guild.receipt.v2"), @r#"cannot be read: schema_version: "guild.receipt.v2" is not guild.receipt.v1 [receipt.unknown_version]"#);
    insta::assert_snapshot!(said_of(r#""rail":"ledger""#, r#""rail":"ledge""#), @r#"
    FAILED  form             rail: "ledge" is not known [receipt.value_malformed]
    ok      amount           the stated amounts agree
    ok      status           the status fits verdict and proof
    FAILED  receipt_id       receipt_id: the content has the id rcpt_870d24ec6478f621177ffb2fe43b5e1e5b829c023d8ec599c14a6d4d29b0965b [receipt.id_mismatch]
    FAILED  digest           digest: does not belong to the content: it was changed in more than one byte [receipt.digest_mismatch]
    ok      signer           the signer is the buyer
    ok      signature        the signature fits digest and key
    "#);
    insta::assert_snapshot!(said_of(r#""status":"#, r#""state":"#), @r#"cannot be read: state: is not a field of this version [json.shape]"#);
    insta::assert_snapshot!(said_of(r#""scheme":"bip340","#, ""), @r#"cannot be read: signature.scheme: is missing [json.shape]"#);
}

#[test]
fn altered_proof_of_origin_is_named() {
    let text = String::from_utf8(good()).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let flip = |field: &str| {
        let stated = value.pointer(field).unwrap().as_str().unwrap();
        let last = if stated.ends_with('0') { "1" } else { "0" };
        let changed = text.replace(stated, &format!("{}{last}", &stated[..stated.len() - 1]));
        receipt::verify(changed.as_bytes())
            .unwrap()
            .problems()
            .map(|p| (p.code.name, p.field.clone().unwrap()))
            .collect::<Vec<_>>()
    };
    let problem = |code: &guild_protocol::error::Code, field: &str| (code.name, field.to_owned());
    assert_eq!(
        flip("/receipt_id"),
        [problem(&code::ID, "receipt_id"), problem(&code::DIGEST, "receipt_id")]
    );
    assert_eq!(
        flip("/digest"),
        [problem(&code::DIGEST, "digest"), problem(&code::SIGNATURE, "digest")]
    );
    assert_eq!(flip("/signature/value"), [problem(&code::SIGNATURE, "signature.value")]);
}

#[test]
fn a_receipt_signed_by_another_is_refused_though_all_hashes_fit() {
    let mut value: Value = serde_json::from_slice(&good()).unwrap();
    let digest: Hash = value["digest"].as_str().unwrap().parse().unwrap();
    let thief = provider();
    value["signature"]["public_key"] = json!(thief.public_key().hex());
    value["signature"]["value"] = json!(thief.sign_digest(digest.as_bytes()).unwrap().hex());
    let verification = receipt::verify(&json::to_canonical(&value).unwrap()).unwrap();
    let problems: Vec<_> = verification.problems().map(|p| p.code.name).collect();
    assert_eq!(problems, [code::SIGNER.name]);
}

/// The good receipt, changed and then signed by the buyer, who can sign anything.
fn signed(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut value: Value = serde_json::from_slice(&good()).unwrap();
    change(&mut value);
    let members = value.as_object_mut().unwrap();
    for computed in ["receipt_id", "digest", "signature"] {
        members.remove(computed);
    }
    let id = json::hash(members).unwrap();
    members.insert("receipt_id".to_owned(), json!(format!("rcpt_{}", id.hex())));
    let digest = json::hash(members).unwrap();
    let signature = buyer().sign_digest(digest.as_bytes()).unwrap();
    members.insert("digest".to_owned(), json!(digest));
    let public_key = buyer().public_key().hex();
    let signature = json!({ "public_key": public_key, "scheme": "bip340", "value": signature });
    members.insert("signature".to_owned(), signature);
    json::to_canonical(&value).unwrap()
}

#[test]
fn members_that_a_receipt_does_not_have_are_refused_though_they_are_signed() {
    assert_eq!(signed(|_| ()), good());
    for key in ["zz", "amount.units", ""] {
        let refused = receipt::verify(&signed(|receipt| receipt[key] = json!(1))).unwrap_err();
        assert_eq!((refused.code().name, refused.place()), ("json.shape", Some(key)));
    }
}

#[test]
fn other_forms_of_a_value_are_refused_though_they_are_signed() {
    let named = |change: &dyn Fn(&mut Value)| {
        let verification = receipt::verify(&signed(change)).unwrap();
        let said = verification.problems().map(|p| (p.code.name, p.field.clone().unwrap()));
        said.collect::<Vec<_>>()
    };
    let malformed = |field: &str| vec![(code::BAD_VALUE.name, field.to_owned())];
    let (hex, npub) = (provider().public_key().hex(), provider().public_key().npub());
    for other in [hex, npub.to_uppercase(), String::new()] {
        assert_eq!(named(&|r| r["provider_id"] = json!(other)), malformed("provider_id"));
    }
    let longest = "n".repeat(200);
    for field in ["session_id", "policy_bundle_id", "request_id", "idempotency_key"] {
        assert_eq!(named(&|r| r[field] = json!(longest)), []);
        assert_eq!(named(&|r| r[field] = json!(format!("{longest}n"))), malformed(field));
        assert_eq!(named(&|r| r[field] = json!("a\u{9b}b")), malformed(field));
    }
    let more = |r: &mut Value| r["payment_proof"]["value"]["more"] = json!(1);
    assert_eq!(named(&more), malformed("payment_proof.value"));
    for moment in ["2026-01-15T08:30:60.000Z", "2026-01-15T08:30:00.000z", "2026-01-15T08:30:00Z"] {
        assert_eq!(named(&|r| r["timestamp"] = json!(moment)), malformed("timestamp"));
    }
    let proof = |rail: &str, asset: &str, kind: &str, value: &str| {
        named(&|r| {
            r["rail"] = json!(rail);
            r["asset_id"] = json!(asset);
            r["amount"]["asset_id"] = json!(asset);
            r["payment_proof"] = json!({ "type": kind, "value": value });
        })
    };
    let (digits, mint) = ("ab".repeat(32), "BTC_CASHU(https://mint.example)");
    assert_eq!(proof("lightning", "BTC_LN", "lightning_preimage", &digits), []);
    for bad in ["ab", "", &digits.to_uppercase(), &format!("0x{digits}")] {
        let said = proof("lightning", "BTC_LN", "lightning_preimage", bad);
        assert_eq!(said, malformed("payment_proof.value"), "{bad}");
    }
    for bad in ["cashuA", "cashuB", "cashuC00", "cashuA a"] {
        let said = proof("cashu", mint, "cashu_proof", bad);
        assert_eq!(said, malformed("payment_proof.value"), "{bad}");
    }
    let no_msats = |r: &mut Value| drop(r.as_object_mut().unwrap().remove("amount_msats"));
    assert_eq!(named(&no_msats), [(code::AMOUNT.name, "amount_msats".to_owned())]);
    let needless_msats = |r: &mut Value| {
        r["asset_id"] = json!("USD_MICRO");
        r["amount"]["asset_id"] = json!("USD_MICRO");
    };
    assert_eq!(named(&needless_msats), [(code::AMOUNT.name, "amount_msats".to_owned())]);
    let no_job = |r: &mut Value| {
        r["job_hash"] = Value::Null;
        r["request_id"] = Value::Null;
    };
    assert_eq!(named(&no_job), [(code::STATUS.name, "verdict_hash".to_owned())]);
    // Of two spellings of the signer's key only one is its form, whoever made the signature.
    let text = String::from_utf8(good()).unwrap();
    let text = text.replace(&buyer().public_key().hex(), &buyer().public_key().npub());
    let verification = receipt::verify(text.as_bytes()).unwrap();
    assert_eq!(
        verification.problems().next().unwrap().field.as_deref(),
        Some("signature.public_key")
    );
}

#[test]
fn other_layouts_of_the_same_receipt_are_refused() {
    let good = good();
    let value: Value = serde_json::from_slice(&good).unwrap();
    let newline = [&good[..], b"\n"].concat();
    for bytes in [serde_json::to_vec_pretty(&value).unwrap(), newline] {
        assert_eq!(receipt::verify(&bytes).unwrap_err().code().name, "json.not_canonical");
    }
    for rubbish in [&b""[..], b"{}", b"[]", b"null", b"\xff", &vec![b'['; 100_000]] {
        assert!(receipt::verify(rubbish).is_err());
    }
}

/// The leaf in which a byte stands, unless it is the border of one.
fn leaf_at(leaves: &[tamper::Leaf], text: &[u8], offset: usize) -> Option<String> {
    let inside = |leaf: &&tamper::Leaf| {
        let quoted = text[leaf.span.start] == b'"';
        let border = offset == leaf.span.start || offset + 1 == leaf.span.end;
        leaf.span.contains(&offset) && !(quoted && border)
    };
    leaves.iter().find(inside).map(|leaf| leaf.path.clone())
}

#[test]
fn every_change_of_every_byte_is_refused_and_the_field_is_named() {
    let good = good();
    let leaves = tamper::leaves(&good);
    let mut changed = good.clone();
    let mut searched = 0;
    for offset in 0..good.len() {
        for replacement in [b'0', b'a', b'Z', b'"', b'\\', b' ', b'\n', 0, 0xff, good[offset] ^ 1] {
            if replacement == good[offset] {
                continue;
            }
            changed[offset] = replacement;
            let named: Vec<String> = match receipt::verify(&changed) {
                // `asset_id, byte 41`: the byte only says where the reader gave up.
                Err(error) => {
                    let place = error.place().unwrap_or_default();
                    vec![place.split(", ").next().unwrap().to_owned()]
                }
                Ok(verification) => {
                    assert!(!verification.holds(), "byte {offset} as {replacement}");
                    verification.problems().filter_map(|p| p.field.clone()).collect()
                }
            };
            let Some(path) = leaf_at(&leaves, &good, offset) else { continue };
            if named.contains(&path) {
                continue;
            }
            // Only the hash shows it: search for it, but not for all of them, as that takes its time.
            let place = format!("byte {offset} of {path} as {replacement}");
            assert!(
                named.ends_with(&["receipt_id".to_owned(), "digest".to_owned()]),
                "{place}: {named:?}"
            );
            searched += 1;
            if searched % 32 == 0 {
                let explained = receipt::explain(&changed).unwrap();
                let found = explained.problems().any(|p| p.field.as_ref() == Some(&path));
                assert!(found, "{place}: {explained}");
            }
        }
        changed[offset] = good[offset];
    }
    assert!(searched > 500, "{searched}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_draft_verifies_and_no_change_of_it_does(
        session in "[ -~é\u{1f600}]{1,40}",
        units in 0i64..9_007_199_254_740_991,
        ms in 0i64..4_102_444_800_000,
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let draft = Draft {
            session_id: session,
            amount: Msat(units).into(),
            timestamp: Timestamp::from_ms(ms).unwrap(),
            ..draft()
        };
        let receipt = draft.sign(&buyer()).unwrap();
        prop_assert_eq!(receipt.stated(), &draft);
        let mut changed = receipt.as_bytes().to_vec();
        let place = place.index(changed.len());
        prop_assume!(changed[place] != byte);
        changed[place] = byte;
        prop_assert!(!receipt::verify(&changed).is_ok_and(|v| v.holds()));
        changed.remove(place);
        prop_assert!(!receipt::verify(&changed).is_ok_and(|v| v.holds()));
    }

    #[test]
    fn rubbish_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(receipt::explain(&bytes).is_err());
    }
}

#[test]
fn the_vector_for_strangers_is_what_is_signed() {
    let receipt = draft().sign(&buyer()).unwrap();
    let mut stated: Value = serde_json::from_slice(receipt.as_bytes()).unwrap();
    for computed in ["receipt_id", "digest", "signature"] {
        stated.as_object_mut().unwrap().remove(computed);
    }
    let vector = json!({
        "secret_key": "11".repeat(32),
        "draft": stated,
        "receipt_id": receipt.receipt_id(),
        "digest": receipt.digest(),
        "signature": receipt.signature().hex(),
        "bytes": std::str::from_utf8(receipt.as_bytes()).unwrap(),
    });
    let kept: Value = serde_json::from_str(include_str!("../../vectors/receipt.json")).unwrap();
    assert_eq!(kept, vector, "{}", serde_json::to_string_pretty(&vector).unwrap());
    let documentation = include_str!("../../../../docs/formats/receipt.md");
    assert!(documentation.contains(vector["bytes"].as_str().unwrap()));
}
