use guild_ledger::evidence::Slice;
use guild_ledger::{Gate, Rule, TransferId, export, ledger};
use guild_protocol::hash::{Hash, Hasher};
use guild_protocol::json;

use crate::{Scratch, block_on, both, hold, post, settle};

fn exported(s: &Scratch) -> String {
    let export = s.store.read(|rx| {
        let mut file = Vec::new();
        export::export(rx, &mut file).map(|_| file)
    });
    String::from_utf8(block_on(export).unwrap()).unwrap()
}

fn fill(s: &Scratch) {
    let (ann, bob) = (&s.ids[1], &s.ids[2]);
    let (one, two) = (ann.clone(), s.ids[0].clone());
    let gate = Gate { reserve_units: 1, lets_through: vec!["a \"b\"".to_owned(), "é".to_owned()] };
    let rule = Rule { gate: Some(gate), credit_units: None };
    let credit = Rule { gate: None, credit_units: Some(i64::MAX) };
    block_on(s.store.write(move |tx| ledger::set_rule(tx, &one, &rule, 3))).unwrap();
    block_on(s.store.write(move |tx| ledger::set_rule(tx, &two, &credit, 3))).unwrap();
    let mut odd = post("in", &s.ids[0], ann, i64::MAX);
    odd.memo = "back\\slash \"quote\" ü \u{2028} 😀".to_owned();
    s.book(vec![vec![odd]]);
    s.book(vec![vec![hold("h", ann, bob, 30, 50)], vec![settle("s", "h", Some(7))]]);
}

#[test]
fn every_line_is_canonical_and_the_heads_are_those_of_the_lines() {
    both(2, |s| {
        fill(s);
        let file = exported(s);
        let (mut head, mut since) = (Hash::from_bytes([0; 32]), Vec::new());
        let (mut records, mut last_seq) = (0, 0);
        for line in file.lines() {
            let doc = json::Doc::parse(line.as_bytes()).unwrap();
            json::require_canonical(line.as_bytes(), &doc).unwrap();
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            match value["record"].as_str().unwrap() {
                "account" | "rule" | "transfer" => {
                    records += 1;
                    last_seq = value["seq"].as_i64().unwrap();
                    assert_eq!(last_seq, records);
                    since.extend_from_slice(line.as_bytes());
                    since.push(b'\n');
                }
                "head" => {
                    let mut hasher = Hasher::new();
                    hasher.update(head.as_bytes());
                    hasher.update(&since);
                    head = hasher.finish();
                    since.clear();
                    assert_eq!(value["hash"], head.to_string());
                    assert_eq!(value["last_seq"], last_seq);
                }
                "end" => assert_eq!(value["head"], head.to_string()),
                _ => {}
            }
        }
        assert_eq!((records, last_seq), (8, 8));
        assert_eq!(block_on(s.store.read(ledger::head)).unwrap().hash, head);
    });
}

#[test]
fn every_transfer_has_a_slice_that_leads_to_its_head() {
    both(2, |s| {
        fill(s);
        let file = exported(s);
        let id = |value: &serde_json::Value| value["transfer_id"].as_str().unwrap().to_owned();
        let lines = file.lines().map(|line| serde_json::from_str(line).unwrap());
        let ids: Vec<String> = lines
            .filter(|line: &serde_json::Value| line["record"] == "transfer")
            .map(|l| id(&l))
            .collect();
        assert_eq!(ids.len(), 3);
        for id in ids {
            let transfer_id: TransferId = id.parse().unwrap();
            let read = s.store.read(move |rx| export::slice(rx, &transfer_id));
            let text = block_on(read).unwrap().unwrap();
            let slice = Slice::read(text.as_bytes()).unwrap();
            assert!(slice.transfers.contains_key(&id), "{text}");
            assert!(file.contains(&format!("\"hash\":\"{}\"", slice.head)));
        }
        let nobody = TransferId::named(7, &["nobody"]);
        assert_eq!(block_on(s.store.read(move |rx| export::slice(rx, &nobody))).unwrap(), None);
    });
}

#[test]
fn the_lines_are_those_of_the_contract() {
    both(2, |s| {
        fill(s);
        let file = exported(s);
        let ids: Vec<&str> = s.ids.iter().map(guild_ledger::AccountId::as_str).collect();
        let hold_id = crate::named("h");
        let contract = [
            r#"{"record":"export","schema_version":"guild.ledger_export.v1"}"#.to_owned(),
            format!(
                r#"{{"account_id":"{}","asset_id":"USD_MICRO","at_ms":0,"limit":"never_negative","owner":"user-1","purpose":"main","record":"account","seq":2}}"#,
                ids[1]
            ),
            format!(
                r#"{{"account_id":"{}","at_ms":3,"credit_units":null,"gate":{{"lets_through":["a \"b\"","é"],"reserve_units":"1"}},"record":"rule","seq":4}}"#,
                ids[1]
            ),
            format!(
                r#"{{"account_id":"{}","at_ms":3,"credit_units":"9223372036854775807","gate":null,"record":"rule","seq":5}}"#,
                ids[0]
            ),
            format!(
                r#"{{"at_ms":7,"credit":"{}","debit":"{}","expires_ms":50,"hold":null,"memo":"test","record":"transfer","seq":7,"step":"hold","transfer_id":"{hold_id}","units":"30"}}"#,
                ids[2], ids[1]
            ),
            format!(
                r#"{{"at_ms":7,"credit":"{}","debit":"{}","expires_ms":null,"hold":"{hold_id}","memo":"test","record":"transfer","seq":8,"step":"settle","transfer_id":"{}","units":"7"}}"#,
                ids[2],
                ids[1],
                crate::named("s")
            ),
            format!(
                r#"{{"account_id":"{}","credits_pending":"0","credits_posted":"7","debits_pending":"0","debits_posted":"0","record":"balance"}}"#,
                ids[2]
            ),
        ];
        for line in contract {
            assert!(file.lines().any(|written| written == line), "{line}\n{file}");
        }
        let heads = file.lines().filter(|line| line.contains(r#""record":"head""#)).count();
        assert_eq!(heads, 7, "one per commit");
        let tail: Vec<&str> = file.lines().rev().take(4).collect();
        assert!(tail[0].contains(r#""last_seq":8,"record":"end""#), "{tail:?}");
        let balances: Vec<&str> = tail[1..].iter().rev().map(|line| &line[15..84]).collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        assert_eq!(balances, sorted);
    });
}

#[test]
fn a_full_disk_is_an_error_not_a_short_file() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("no space left"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    both(1, |s| {
        let refused = block_on(s.store.read(|rx| export::export(rx, &mut Full))).unwrap_err();
        assert_eq!(refused.code().name, "ledger.export");
    });
}

/// Books a deposit after every piece that is written.
struct Meddler<'a> {
    bytes: Vec<u8>,
    pieces: usize,
    store: &'a guild_store::Store,
    ids: &'a [guild_ledger::AccountId],
}

impl std::io::Write for Meddler<'_> {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(piece);
        self.pieces += 1;
        let deposit = post(&format!("meddle-{}", self.pieces), &self.ids[0], &self.ids[1], 1);
        let booked = self.store.write(move |tx| ledger::book(tx, &[vec![deposit.clone()]], 9));
        block_on(booked).unwrap().remove(0).unwrap();
        Ok(piece.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_export_is_of_one_moment_whatever_is_booked_meanwhile() {
    both(1, |s| {
        let chains = (1..=2_500).map(|n| vec![post(&n.to_string(), &s.ids[0], &s.ids[1], 1)]);
        s.book(chains.collect());
        let (store, ids) = (s.store.clone(), s.ids.clone());
        let exported = s.store.read(move |rx| {
            // The moment is that of the first look.
            let last_seq = ledger::head(rx)?.last_seq;
            let mut out = Meddler { bytes: Vec::new(), pieces: 0, store: &store, ids: &ids };
            let head = export::export(rx, &mut out)?;
            Ok::<_, guild_ledger::Error>((last_seq, head.last_seq, out.pieces, out.bytes))
        });
        let (before, last_seq, pieces, bytes) = block_on(exported).unwrap();
        assert_eq!((before, last_seq), (2_502, 2_502));
        assert!(pieces >= 4, "it is written in pages");
        let mut checker = guild_ledger::evidence::Checker::new();
        bytes.split_inclusive(|b| *b == b'\n').for_each(|line| checker.line(line));
        let report = checker.finish();
        assert_eq!((report.problems, report.transfers), (vec![], 2_500));
        let now = block_on(s.store.read(ledger::head)).unwrap().last_seq;
        assert_eq!(now, 2_502 + i64::try_from(pieces).unwrap(), "all of it was booked meanwhile");
    });
}
