//! Verdicts over time, on real databases.

use guild_market::judge::{Class, Measure, Verdict, record};
use guild_protocol::env::Signer;
use guild_protocol::identity::PublicKey;

use super::{HONEST, doubled};
use crate::world::{Node, T0, both, buyer, provider};

fn keep(
    node: &Node,
    provider: PublicKey,
    verdict: &Verdict,
    at_ms: i64,
) -> guild_protocol::hash::Hash {
    let verdict = verdict.clone();
    node.write(move |tx| record::record(tx, &provider, &verdict, at_ms)).unwrap()
}

#[test]
fn a_series_is_kept_by_provider_and_nothing_absent_becomes_zero() {
    let (good, bad) = (doubled(HONEST), doubled("def double(x):\n    return x\n"));
    both(|node| {
        let (one, other) = (provider().public_key(), buyer().public_key());
        let first = keep(node, one, &good, T0);
        let again = keep(node, one, &good, T0);
        assert_eq!(first, again, "the same verdict of the same moment is kept once");
        let mut measured = bad.clone();
        measured.metrics.pylint_milli = Measure::Value(0);
        keep(node, one, &measured, T0 + 1);
        keep(node, other, &good, T0 + 2);
        let points = node.read(move |rx| record::series(rx, Some(&one), 10));
        let told: Vec<_> = points.iter().map(|point| (point.at_ms - T0, point.class)).collect();
        assert_eq!(told, [(1, Class::Failure), (0, Class::Success)]);
        assert_eq!((points[0].pylint_milli, points[1].pylint_milli), (Some(0), None));
        assert_eq!((points[1].passed, points[1].total, points[1].coverage_bp), (5, 5, None));
        assert!(points[1].wall_us > 0 && points[1].memory_peak_bytes > 0);
        assert_eq!(node.read(|rx| record::series(rx, None, 10)).len(), 3);
        assert_eq!(node.read(|rx| record::series(rx, None, 1)).len(), 1);
        let text = node.read(move |rx| record::get(rx, &first)).unwrap();
        let kept: Verdict = guild_protocol::json::decode(text.as_bytes()).unwrap();
        assert_eq!(kept.class, good.class);
        assert_eq!(kept.suite_hash, good.suite_hash);
    });
}

#[test]
fn a_verdict_that_contradicts_itself_is_refused() {
    let (good, bad) = (doubled(HONEST), doubled("def double(x):\n    return x\n"));
    let forged = [
        ("class", Verdict { class: Class::Success, ..bad.clone() }),
        ("passed", Verdict { passed: 5, ..bad.clone() }),
        ("total", Verdict { total: 1, ..good.clone() }),
        ("layers", Verdict { layers: [].into(), ..good.clone() }),
        ("trust", Verdict { trust: good.trust, ..bad }),
        (
            "class",
            Verdict { findings: vec![], flags: vec![], tests: vec![], passed: 0, total: 0, ..good },
        ),
    ];
    both(|node| {
        for (field, verdict) in &forged {
            let (verdict, key) = (verdict.clone(), provider().public_key());
            let refused = node.write(move |tx| record::record(tx, &key, &verdict, T0)).unwrap_err();
            assert_eq!(refused.code().name, "judge.bad_verdict");
            assert!(refused.to_string().starts_with(field), "{refused}");
        }
        assert!(node.read(|rx| record::series(rx, None, 10)).is_empty());
    });
}

#[test]
fn a_judgement_is_never_changed() {
    let good = doubled(HONEST);
    both(|node| {
        keep(node, provider().public_key(), &good, T0);
        let changed = node.write(|tx| {
            Ok(tx.exec("UPDATE market_judgement SET class = 'FAILURE'", guild_store::args![])?)
        });
        assert!(changed.is_err());
    });
}
