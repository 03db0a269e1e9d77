//! Policy bundles: the canonical form is the same bundle, and a rule that is said to decide nothing decides nothing.
#![no_main]

use std::collections::BTreeSet;

use guild_ledger::policy::{Action, Asked, Bundle, Rule, Tier, decide, lint};
use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::receipt::Rail;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let bundle = match Bundle::parse(data) {
        Ok(bundle) => bundle,
        Err(problems) => {
            assert!(!problems.to_string().is_empty(), "a refusal says why");
            return;
        }
    };
    let again = Bundle::parse(bundle.canonical().as_bytes()).expect("the canonical form is good");
    assert_eq!(again, bundle);

    let warned: BTreeSet<String> =
        lint(&bundle).into_iter().map(|warning| warning.rule_id).collect();
    for asked in bundle.rules().iter().flat_map(|rule| around(&bundle, rule)).take(10_000) {
        check(&bundle, &asked, &warned);
    }
});

fn check(bundle: &Bundle, asked: &Asked, warned: &BTreeSet<String>) {
    let decision = decide(bundle, asked);
    assert_eq!(decision, decide(bundle, asked));
    let (units, cap) = (asked.amount.units, bundle.caps().get(&asked.amount.asset_id));
    let Some(id) = &decision.approval_rule_id else {
        let within = units > 0 && cap.is_some_and(|cap| units <= *cap);
        assert!(decision.action == Action::Deny || within, "only a cap allows: {asked:?}");
        return;
    };
    assert!(!warned.contains(id), "{id} decides {asked:?}");
    let first = bundle.rules().iter().find(|rule| rule.when.holds(asked));
    assert_eq!(first.map(|rule| &rule.id), Some(id), "the first that matches decides");
}

/// Payments at the edges of a rule: every asset, bound, tier, schema and rail that it names, and one that it does not.
fn around<'a>(bundle: &'a Bundle, rule: &'a Rule) -> impl Iterator<Item = Asked> + 'a {
    let ranges = rule.when.amount.clone().unwrap_or_default();
    let mut assets: BTreeSet<AssetId> =
        ranges.keys().chain(bundle.caps().keys()).cloned().collect();
    assets.extend([AssetId::usd_micro(), AssetId::btc_ln()]);
    let amounts: Vec<Amount> = assets
        .into_iter()
        .flat_map(|asset_id| {
            let range = ranges.get(&asset_id);
            let bounds = range.into_iter().flat_map(|range| [range.at_least, range.at_most]);
            let bounds = bounds.flatten().chain(bundle.caps().get(&asset_id).copied());
            let near =
                bounds.flat_map(|units| [units.saturating_sub(1), units, units.saturating_add(1)]);
            let units: BTreeSet<i64> = near.chain([0, 1, i64::MAX]).collect();
            units.into_iter().map(move |units| Amount::new(asset_id.clone(), units))
        })
        .collect();
    let schemas: Vec<_> =
        rule.when.schema_ids.iter().flatten().cloned().map(Some).chain([None]).collect();
    amounts.into_iter().flat_map(move |amount| {
        let schemas = schemas.clone();
        Tier::ALL.into_iter().flat_map(move |provider_tier| {
            let (amount, schemas) = (amount.clone(), schemas.clone());
            Rail::ALL.iter().flat_map(move |rail| {
                let amount = amount.clone();
                schemas.clone().into_iter().map(move |schema_id| Asked {
                    amount: amount.clone(),
                    provider_tier,
                    schema_id,
                    rail: *rail,
                })
            })
        })
    })
}
