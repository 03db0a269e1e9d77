use guild_market::routing::Policy;

#[path = "../../../benches/routing/regret.rs"]
mod worlds;

use worlds::{Others, mean_regret, mean_regret_of_others, options};

/// The seeds are fixed, so this is not left to chance. `cargo xtask bench routing` tells the numbers.
#[test]
fn the_policies_lose_no_more_than_is_aimed_at() {
    let mut told = String::new();
    for drifting in [false, true] {
        let ours = [Policy::Tiered, Policy::Thompson]
            .map(|policy| mean_regret(&options(), policy, drifting));
        let plain = [Others::PlainTiers, Others::PlainThompson]
            .map(|others| mean_regret_of_others(others, drifting));
        told += &format!("drifting {drifting}: tiered, thompson {ours:.1?}, plain {plain:.1?}\n");
        let [tiered, thompson] = ours;
        let (tiers_max, thompson_max) = if drifting { (203.0, 70.0) } else { (186.0, 40.0) };
        // Its steps of trust are documented, and so is what they lose.
        assert!(tiered < tiers_max, "{told}");
        assert!(thompson < thompson_max && thompson < plain[1], "{told}");
    }
    println!("{told}");
}
