//! The filter of a profile as OCI runtimes read it: made from the same lists, with the same answers.
//!
//! A runtime that can hand out a listener lets us be asked; with others what would be asked kills. Runtimes put rules
//! for one call side by side, without an order, so the rules of a call that is looked at in detail exclude each other.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Answer, Detail, Test, allowed, asked, default, details, name};
use crate::spec::Profile;

/// What a runtime can do about a call that would be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strength {
    /// Ask, and kill the whole process where it cannot: for what is in no list, and for foreign architectures.
    Ask,
    /// Kill the whole process.
    Process,
    /// Kill the thread, which is all that some runtimes know.
    Thread,
}

/// `linux.seccomp` of a bundle.
pub(crate) fn oci(profile: Profile, strength: Strength) -> Value {
    let mut by_answer: BTreeMap<Answer, Vec<String>> = BTreeMap::new();
    let details = details(profile);
    let plain = |call: &i64| details.iter().all(|detail| detail.call != *call);
    let allowed = allowed(profile).into_iter().map(|call| (call, Answer::Allow));
    let asked = asked(profile).into_iter().map(|call| (call, Answer::Ask));
    for (call, answer) in allowed.chain(asked).filter(|(call, _)| plain(call)) {
        by_answer.entry(answer).or_default().push(name(call));
    }
    // What is in no list cannot be asked about.
    let unlisted = if strength == Strength::Ask { Strength::Process } else { strength };
    let default = action(default(profile), unlisted);
    // A rule that says what is said anyway is an error for some runtimes.
    by_answer.retain(|answer, _| action(*answer, strength) != default);
    let lists = by_answer.into_iter().map(|(answer, names)| rule(&names, answer, None, strength));
    let looked_at = details.iter().flat_map(|detail| rules(detail, default, strength));
    let (action, errno) = default;
    let mut filter = json!({
        "defaultAction": action,
        "architectures": architectures(),
        "syscalls": lists.chain(looked_at).collect::<Vec<_>>(),
    });
    if let Some(errno) = errno {
        filter["defaultErrnoRet"] = json!(errno);
    }
    filter
}

/// Only ours: calls of another are killed.
fn architectures() -> Value {
    match cfg!(target_arch = "aarch64") {
        true => json!(["SCMP_ARCH_AARCH64"]),
        false => json!(["SCMP_ARCH_X86_64"]),
    }
}

/// Its name, and the error if it is one.
type Action = (&'static str, Option<i32>);

fn action(answer: Answer, strength: Strength) -> Action {
    match (answer, strength) {
        (Answer::Allow, _) => ("SCMP_ACT_ALLOW", None),
        (Answer::Fail(errno), _) => ("SCMP_ACT_ERRNO", Some(errno)),
        (Answer::Ask, Strength::Ask) => ("SCMP_ACT_NOTIFY", None),
        (Answer::Ask, Strength::Process) => ("SCMP_ACT_KILL_PROCESS", None),
        (Answer::Ask, Strength::Thread) => ("SCMP_ACT_KILL", None),
    }
}

/// Bits of an argument that must have a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Masked {
    mask: u32,
    value: u32,
}

fn rule(
    names: &[String],
    answer: Answer,
    argument: Option<(u32, Masked)>,
    strength: Strength,
) -> Value {
    let (action, errno) = action(answer, strength);
    let mut rule = json!({ "names": names, "action": action });
    if let Some(errno) = errno {
        rule["errnoRet"] = json!(errno);
    }
    if let Some((index, Masked { mask, value })) = argument {
        // Only the low half is compared: it is all that the kernel looks at.
        let test =
            json!({ "index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ" });
        rule["args"] = json!([test]);
    }
    rule
}

fn rules(detail: &Detail, default: Action, strength: Strength) -> Vec<Value> {
    let names = [name(detail.call)];
    let says_more = |answer: Answer| action(answer, strength) != default;
    if detail.tests.is_empty() {
        let otherwise = says_more(detail.otherwise).then_some(detail.otherwise);
        return otherwise.map(|answer| rule(&names, answer, None, strength)).into_iter().collect();
    }
    let cases = cases(detail).into_iter().filter(|(_, answer)| says_more(*answer));
    let argument = |masked| Some((detail.argument, masked));
    cases.map(|(masked, answer)| rule(&names, answer, argument(masked), strength)).collect()
}

/// The answers of a detail by what its argument is. Each value is in exactly one case, but for bits: two of them may
/// be set, and have the same answer.
fn cases(detail: &Detail) -> Vec<(Masked, Answer)> {
    let mut cases = Vec::new();
    let (mut values, mut bits) = (Vec::new(), 0);
    for (test, answer) in &detail.tests {
        match test {
            Test::Is(value) => {
                values.push(*value);
                cases.push((Masked { mask: u32::MAX, value: *value }, *answer));
            }
            Test::HasAnyOf(some) => {
                bits |= some;
                let each = (0..u32::BITS).map(|at| 1u32 << at).filter(|bit| some & bit != 0);
                cases.extend(each.map(|bit| (Masked { mask: bit, value: bit }, *answer)));
            }
        }
    }
    let rest = match bits {
        0 => all_but(&values, u32::BITS, 0),
        bits => vec![Masked { mask: bits, value: 0 }],
    };
    cases.extend(rest.into_iter().map(|masked| (masked, detail.otherwise)));
    cases
}

/// Everything but these values, by the bits from above that no value begins with.
fn all_but(values: &[u32], below: u32, prefix: u32) -> Vec<Masked> {
    let mask = u32::MAX.checked_shl(below).unwrap_or(0);
    if values.iter().all(|value| value & mask != prefix) {
        return vec![Masked { mask, value: prefix }];
    }
    match below.checked_sub(1) {
        None => Vec::new(),
        Some(next) => [prefix, prefix | 1 << next]
            .into_iter()
            .flat_map(|p| all_but(values, next, p))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{NATIVE, code, number, program, tests::run};
    use super::*;

    const PROFILES: [Profile; 3] = [Profile::Strict, Profile::Python, Profile::Hosted];

    fn says(answer: &str, errno: Option<i64>) -> u32 {
        let answer = match answer {
            "SCMP_ACT_ALLOW" => Answer::Allow,
            "SCMP_ACT_ERRNO" => Answer::Fail(i32::try_from(errno.unwrap()).unwrap()),
            "SCMP_ACT_KILL_PROCESS" | "SCMP_ACT_KILL" | "SCMP_ACT_NOTIFY" => Answer::Ask,
            other => panic!("{other}"),
        };
        code(answer, false)
    }

    /// Every rule of the bundle that holds for a call.
    fn answers(filter: &Value, call: &str, args: [u64; 6]) -> Vec<u32> {
        let rules = filter["syscalls"].as_array().unwrap().iter();
        let holding = rules.filter(|rule| {
            let named = rule["names"].as_array().unwrap().iter().any(|name| name == call);
            let test = |test: &Value| {
                let number = |field: &str| test[field].as_u64().unwrap();
                let at = usize::try_from(number("index")).unwrap();
                args[at] & number("value") == number("valueTwo")
            };
            named && rule["args"].as_array().is_none_or(|tests| tests.iter().all(test))
        });
        let says = |rule: &Value| says(rule["action"].as_str().unwrap(), rule["errnoRet"].as_i64());
        let mut all: Vec<u32> = holding.map(says).collect();
        all.dedup();
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The bundle says what our own filter says when nobody listens.
        #[test]
        fn both_forms_of_a_filter_agree(
            at in any::<prop::sample::Index>(),
            args in any::<[u64; 6]>(),
            known in prop::sample::select(vec![0u64, 1, 2, 10, 15, 16, 40, 0x5412, 0x541c, 0x1000_0000, 0x1_0000_5412]),
        ) {
            for (profile, strength) in PROFILES.into_iter().zip([Strength::Ask, Strength::Process, Strength::Ask]) {
                let filter = oci(profile, strength);
                let mut calls: Vec<i64> = details(profile).iter().map(|detail| detail.call).collect();
                calls.extend(allowed(profile));
                calls.extend(asked(profile));
                calls.push(libc::SYS_personality);
                let call = *at.get(&calls);
                for args in [args, [known; 6]] {
                    let own = run(&program(profile, false), number(call), NATIVE.unwrap(), args);
                    let said = answers(&filter, &name(call), args);
                    prop_assert!(said.len() <= 1, "{} {:?}", name(call), said);
                    let default = says(
                        filter["defaultAction"].as_str().unwrap(),
                        filter["defaultErrnoRet"].as_i64(),
                    );
                    prop_assert_eq!(said.first().copied().unwrap_or(default), own, "{}", name(call));
                }
            }
        }

        #[test]
        fn all_but_some_is_exactly_that(
            values in prop::collection::vec(prop_oneof![0u32..32, any::<u32>()], 0..12),
            other in prop_oneof![0u32..32, any::<u32>()],
        ) {
            let cubes = all_but(&values, u32::BITS, 0);
            for value in values.iter().chain([&other]) {
                let holding = cubes.iter().filter(|cube| value & cube.mask == cube.value).count();
                prop_assert_eq!(holding, usize::from(!values.contains(value)), "{:#x}", value);
            }
        }
    }

    #[test]
    fn a_planted_hole_is_seen() {
        let mut filter = oci(Profile::Python, Strength::Process);
        assert_eq!(answers(&filter, "mount", [0; 6]), [code(Answer::Ask, false)]);
        let rules = filter["syscalls"].as_array_mut().unwrap();
        rules.retain(|rule| !rule["names"].as_array().unwrap().iter().any(|name| name == "mount"));
        assert!(answers(&filter, "mount", [0; 6]).is_empty());
    }
}
