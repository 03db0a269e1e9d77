use guild_ledger::{Gate, Rule, export, ledger};
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
