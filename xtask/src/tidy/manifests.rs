//! What the manifests and the lists beside them say.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Tree};
use crate::bench::{BENCHES, Bench, floors_of};
use crate::fuzz;

const ROOT: &str = "Cargo.toml";
const FUZZ: &str = "fuzz/Cargo.toml";
const REASONS: &str = "docs/dependencies.md";
const FLOORS: &str = "bench/floors.toml";
const LIST: &str = "xtask/src/bench.rs";

/// What every crate takes from the workspace.
const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "publish"];

fn parse(text: &str) -> Result<toml::Table, String> {
    text.parse::<toml::Table>().map_err(|e| e.message().to_owned())
}

fn is_inherited(value: Option<&toml::Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
}

/// Every crate has the workspace's lints, version and dependencies, and says what it is.
pub(super) fn inheritance(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.texts(&["/Cargo.toml"]).filter(|(path, _)| *path != FUZZ);
    manifests
        .flat_map(|(path, text)| match parse(text) {
            Ok(manifest) => {
                let missing = missing_inheritance(&manifest);
                missing.into_iter().map(|message| Finding::new(path, 0, message)).collect()
            }
            Err(message) => vec![Finding::new(path, 0, message)],
        })
        .collect()
}

fn missing_inheritance(manifest: &toml::Table) -> Vec<String> {
    let mut messages = Vec::new();
    let package = manifest.get("package");
    let field = |name: &str| package.and_then(|package| package.get(name));
    for name in INHERITED.iter().filter(|name| !is_inherited(field(name))) {
        messages.push(format!("{name}.workspace = true is missing"));
    }
    if field("description").and_then(toml::Value::as_str).is_none_or(str::is_empty) {
        messages.push("a description is missing".to_owned());
    }
    if !is_inherited(Some(&toml::Value::Table(
        manifest.get("lints").and_then(|l| l.as_table()).cloned().unwrap_or_default(),
    ))) {
        messages.push("[lints] workspace = true is missing".to_owned());
    }
    for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let dependencies =
            manifest.get(table).and_then(toml::Value::as_table).into_iter().flatten();
        for (name, _) in dependencies.filter(|(_, value)| !is_inherited(Some(value))) {
            messages.push(format!("{name} must take its version from the workspace"));
        }
    }
    messages
}

/// Every outside dependency has its reason in `docs/dependencies.md`, and every reason its dependency.
pub(super) fn dependency_reasons(tree: &Tree) -> Vec<Finding> {
    let mut used = BTreeMap::new();
    let places = [(ROOT, &["workspace", "dependencies"][..]), (FUZZ, &["dependencies"][..])];
    for (path, keys) in places {
        let manifest = toml::Value::Table(parse(tree.text(path)).unwrap_or_default());
        let table = keys.iter().try_fold(&manifest, |value, key| value.get(key));
        for (name, value) in table.and_then(toml::Value::as_table).into_iter().flatten() {
            if value.get("path").is_none() {
                used.entry(name.clone()).or_insert(path);
            }
        }
    }
    let reasons: BTreeSet<String> = reasons(tree.text(REASONS)).map(str::to_owned).collect();
    let without = used
        .iter()
        .filter(|(name, _)| !reasons.contains(*name))
        .map(|(name, path)| Finding::new(path, 0, format!("{name} has no reason in {REASONS}")));
    let unused = reasons.iter().filter(|name| !used.contains_key(*name));
    let unused = unused.map(|name| Finding::new(REASONS, 0, format!("{name} is not a dependency")));
    without.chain(unused).collect()
}

/// The first column of the table, where it names a crate and the second says why.
fn reasons(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (name, reason) = line.strip_prefix("| `")?.split_once("` | ")?;
        (reason.trim_end_matches(['|', ' ']).len() > 3).then_some(name)
    })
}

/// Every case of a bench has a floor, every floor a case, and every bench is run by `cargo xtask bench`.
pub(super) fn bench_floors(tree: &Tree) -> Vec<Finding> {
    let floors = match floors_of(tree.text(FLOORS)) {
        Ok(floors) => floors,
        Err(message) => return vec![Finding::new(FLOORS, 0, message)],
    };
    let label = |bench: &str, case: &str| format!("{bench}.{case}");
    let cases = |bench: &Bench| bench.cases.iter().map(|case| label(bench.name, case.name));
    let listed_cases: BTreeSet<String> = BENCHES.iter().flat_map(cases).collect();
    let floor_cases: BTreeSet<String> = floors
        .iter()
        .flat_map(|(bench, cases)| cases.keys().map(move |case| label(bench, case)))
        .collect();
    let targets = tree.packages.iter().flat_map(|package| &package.targets);
    let targets: BTreeSet<String> =
        targets.filter(|t| t.kind.iter().any(|k| k == "bench")).map(|t| t.name.clone()).collect();
    let listed: BTreeSet<String> = BENCHES.iter().map(|bench| bench.name.to_owned()).collect();
    let mut findings = Vec::new();
    let mut demand = |from: &BTreeSet<String>, to: &BTreeSet<String>, path: &str, what: &str| {
        findings.extend(
            from.difference(to).map(|name| Finding::new(path, 0, format!("{name} {what}"))),
        );
    };
    demand(&floor_cases, &listed_cases, FLOORS, "is not a case of any bench");
    demand(&listed_cases, &floor_cases, FLOORS, "is a case without a floor");
    demand(&listed, &targets, LIST, "is not a bench of any crate");
    demand(&targets, &listed, LIST, "is a bench that cargo xtask bench does not know");
    findings
}

/// Every fuzz target starts from a few good inputs, and no inputs lie about unused.
pub(super) fn fuzz_seeds(tree: &Tree) -> Vec<Finding> {
    let targets: BTreeSet<String> = match fuzz::targets(tree.text(FUZZ)) {
        Ok(targets) => targets.into_iter().collect(),
        Err(message) => return vec![Finding::new(FUZZ, 0, message)],
    };
    let seeds = tree.files.iter().filter_map(|file| file.path.strip_prefix("fuzz/seeds/"));
    let seeded: BTreeSet<String> =
        seeds.filter_map(|path| Some(path.split_once('/')?.0.to_owned())).collect();
    let bare =
        targets.difference(&seeded).map(|name| format!("{name} has no file in fuzz/seeds/{name}/"));
    let stray =
        seeded.difference(&targets).map(|name| format!("fuzz/seeds/{name}/ belongs to no target"));
    bare.chain(stray).map(|message| Finding::new(FUZZ, 0, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::planted::{package, shown, tree};
    use super::*;
    use crate::workspace::Target;

    const GOOD: &str = "[package]\nname = 'a'\ndescription = 'x'\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\
        [dependencies]\nserde.workspace = true\n[lints]\nworkspace = true\n";

    #[test]
    fn a_manifest_that_goes_its_own_way_is_caught() {
        assert_eq!(inheritance(&tree(&[("a/Cargo.toml", GOOD)])), []);
        let plant = |from: &str, to: &str| {
            shown(&inheritance(&tree(&[("a/Cargo.toml", &GOOD.replace(from, to))])))
        };
        for name in INHERITED {
            let findings = plant(&format!("\n{name}.workspace"), &format!("\n{name}"));
            assert_eq!(findings, [format!("a/Cargo.toml: {name}.workspace = true is missing")]);
        }
        assert_eq!(plant("'x'", "''"), ["a/Cargo.toml: a description is missing"]);
        assert_eq!(
            plant("[lints]", "[lint]"),
            ["a/Cargo.toml: [lints] workspace = true is missing"]
        );
        assert_eq!(
            plant("serde.workspace = true", "serde = '1'"),
            ["a/Cargo.toml: serde must take its version from the workspace"]
        );
        assert_eq!(plant("[package]", "[package").len(), 1);
    }

    #[test]
    fn a_dependency_without_reason_and_a_reason_without_dependency_are_caught() {
        let root = "[workspace.dependencies]\nserde = '1'\ntoml = '1'\nguild = { path = 'x' }\n";
        let list = "| crate | why |\n|---|---|\n| `serde` | reads and writes |\n| `hyper` | serves |\n| `toml` |  |\n";
        let planted =
            tree(&[(ROOT, root), (FUZZ, "[dependencies]\nfuzzer = '1'\n"), (REASONS, list)]);
        assert_eq!(
            shown(&dependency_reasons(&planted)),
            [
                "fuzz/Cargo.toml: fuzzer has no reason in docs/dependencies.md",
                "Cargo.toml: toml has no reason in docs/dependencies.md",
                "docs/dependencies.md: hyper is not a dependency",
            ]
        );
    }

    #[test]
    fn a_case_without_floor_and_a_floor_without_case_are_caught() {
        let floors: String = BENCHES
            .iter()
            .flat_map(|bench| bench.cases.iter().map(|case| (bench.name, case.name)))
            .map(|(bench, case)| format!("[{bench}.{case}]\nmin_ratio = 1.5\n"))
            .collect();
        let target = |name: &str| Target { name: name.into(), kind: vec!["bench".into()] };
        let targets: Vec<Target> = BENCHES.iter().map(|bench| target(bench.name)).collect();
        let planted = |floors: &str, targets: &[Target]| {
            let mut planted = tree(&[(FLOORS, floors)]);
            let mut package = package("guild-protocol", &[]);
            package.targets = targets.to_vec();
            planted.packages.push(package);
            shown(&bench_floors(&planted))
        };
        assert_eq!(planted(&floors, &targets), Vec::<String>::new());
        let renamed = floors.replace("[hash.document]", "[hash.gone]");
        let mut others: Vec<Target> =
            targets.iter().filter(|target| target.name != "cid").cloned().collect();
        others.push(target("new"));
        assert_eq!(
            planted(&renamed, &others),
            [
                "bench/floors.toml: hash.gone is not a case of any bench",
                "bench/floors.toml: hash.document is a case without a floor",
                "xtask/src/bench.rs: cid is not a bench of any crate",
                "xtask/src/bench.rs: new is a bench that cargo xtask bench does not know",
            ]
        );
        assert_eq!(planted("hash = 1\n", &targets).len(), 1);
    }

    #[test]
    fn a_fuzz_target_without_seeds_and_stray_seeds_are_caught() {
        let manifest = "[[bin]]\nname = 'json'\n[[bin]]\nname = 'bare'\n";
        let planted =
            tree(&[(FUZZ, manifest), ("fuzz/seeds/json/a", "{}"), ("fuzz/seeds/old/a", "")]);
        assert_eq!(
            shown(&fuzz_seeds(&planted)),
            [
                "fuzz/Cargo.toml: bare has no file in fuzz/seeds/bare/",
                "fuzz/Cargo.toml: fuzz/seeds/old/ belongs to no target",
            ]
        );
    }
}
