//! Policy bundles: what was read can be read again from its canonical form, and is decided the same way.
#![no_main]

use guild_ledger::policy::{Asked, Bundle, Tier, decide, lint};
use guild_protocol::amount::Amount;
use guild_protocol::receipt::Rail;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(bundle) = Bundle::parse(data) else { return };
    let again = Bundle::parse(bundle.canonical().as_bytes()).expect("what was written can be read");
    assert_eq!(again, bundle);

    let dead: Vec<usize> = lint(&bundle).iter().map(|warning| warning.place).collect();
    for (place, rule) in bundle.rules().iter().enumerate() {
        for asked in payments(&bundle, place) {
            let decision = decide(&bundle, &asked);
            let first = bundle.rules().iter().position(|rule| rule.when.holds(&asked));
            let by = first.map(|first| bundle.rules()[first].id.as_str());
            assert_eq!(decision.approval_rule_id.as_deref(), by);
            let decides = by == Some(rule.id.as_str());
            assert!(!(decides && dead.contains(&place)), "{} decides {asked:?}", rule.id);
        }
    }
});

/// Payments at the bounds of a rule, all of which some rail can move.
fn payments(bundle: &Bundle, place: usize) -> Vec<Asked> {
    let when = &bundle.rules()[place].when;
    let mut payments = Vec::new();
    for (asset_id, range) in when.amount.iter().flatten() {
        for units in [range.at_least.unwrap_or(1), range.at_most.unwrap_or(i64::MAX)] {
            for rail in Rail::ALL.iter().copied().filter(|rail| rail.carries(asset_id)) {
                payments.push(Asked {
                    amount: Amount::new(asset_id.clone(), units),
                    provider_tier: when.provider_tiers.iter().flatten().next().copied().unwrap_or(Tier::Primary),
                    schema_id: when.schema_ids.iter().flatten().next().cloned(),
                    rail,
                });
            }
        }
    }
    payments
}
