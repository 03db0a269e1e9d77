//! Suites of the judge: what was read is whole, and its layout does not matter.
#![no_main]

use std::collections::BTreeSet;

use guild_market::judge::{Check, Layer, Salt, Suite};
use guild_protocol::json::Doc;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(suite) = Suite::parse(data) else { return };
    check(&suite);
    let canonical = Doc::parse(data).expect("a suite is a document").to_canonical();
    let again = Suite::parse(&canonical).expect("the canonical form is a suite");
    assert_eq!(again.hash(), suite.hash());
    assert_eq!(format!("{:?}", again.tests), format!("{:?}", suite.tests));
    let salts = [Salt::new([7; 32]), Salt::new([8; 32])];
    assert_eq!(again.commitment(&salts[0]), suite.commitment(&salts[0]));
    assert_ne!(suite.commitment(&salts[0]), suite.commitment(&salts[1]));
});

fn check(suite: &Suite) {
    assert!((1..=1_000).contains(&suite.tests.len()));
    let ids: BTreeSet<&str> = suite.tests.iter().map(|test| test.id.as_str()).collect();
    assert_eq!(ids.len(), suite.tests.len(), "an id stands for two tests");
    let counted: usize = Layer::ALL.into_iter().map(|layer| suite.of_layer(layer).count()).sum();
    assert_eq!(counted, suite.tests.len());
    assert!(!suite.entry.starts_with('/') && !suite.entry.split('/').any(|part| part == ".."));
    for test in &suite.tests {
        let fits = match &test.check {
            Check::Call(_) => [Layer::Smoke, Layer::Correctness, Layer::Edge].contains(&test.layer),
            Check::Ratio(ratio) => test.layer == Layer::Performance && ratio.repetitions > 0,
            Check::Forbid(_) | Check::Kernel => test.layer == Layer::Security,
            Check::Pytest => true,
        };
        assert!(fits, "{test:?}");
    }
}
