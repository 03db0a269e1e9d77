//! The filter of system calls: one program for the kernel's packet filter machine, made from a profile's lists.
//!
//! It has four answers: allow, fail with an error, ask, and (where nobody can be asked) kill. Whoever is asked is init:
//! it names the call to the launcher and then refuses it or ends the run ([`judge`]).

use crate::spec::Profile;
use crate::sys::{Asked, Instruction};

mod calls;
mod oci;

pub(crate) use oci::{Strength, oci};

use calls::{ALLOWED_PYTHON, ALLOWED_STRICT, Call, DANGEROUS, SOCKETS};

/// The architecture of this program, as filters see it; `None` if there are no lists for it.
pub(crate) const NATIVE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else {
    None
};

/// From here on numbers mean calls of the x32 kind, which share the architecture of the usual ones.
const X32: u32 = 0x4000_0000;
/// Above every call that existed when the lists were made: unknown ones do not exist inside.
const UNKNOWN: u32 = 472;
/// Namespaces of every kind.
const NEW_NAMESPACES: u32 = 0x7e02_0000;
const AF_UNIX: u32 = 1;
/// Unix, IPv4, IPv6 and netlink, whose sockets are held by the network namespace.
const AF_HELD: [u32; 4] = [AF_UNIX, 2, 10, 16];
/// Typing into a terminal for somebody else.
const IOCTL_TYPING: [u32; 2] = [0x5412, 0x541c];
/// Names, death signals, dumpability, timer slack, no new privileges, and naming memory.
const PRCTL_HARMLESS: [u32; 10] = [1, 2, 3, 4, 15, 16, 23, 30, 39, 0x5356_4d41];

/// What the filter answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Allow,
    Fail(i32),
    Ask,
}

/// Looks at one call in more detail: the answer of the first test that holds, else the last.
struct Detail {
    call: i64,
    argument: u32,
    tests: Vec<(Test, Answer)>,
    otherwise: Answer,
}

#[derive(Debug, Clone, Copy)]
enum Test {
    Is(u32),
    HasAnyOf(u32),
}

/// What a profile says about calls that are not listed anywhere.
fn default(profile: Profile) -> Answer {
    match profile {
        Profile::Strict => Answer::Ask,
        Profile::Python => Answer::Fail(libc::EPERM),
        Profile::Hosted => Answer::Allow,
    }
}

fn allowed(profile: Profile) -> Vec<i64> {
    let lists: &[&[Call]] = match profile {
        Profile::Strict => &[ALLOWED_STRICT],
        Profile::Python => &[ALLOWED_STRICT, ALLOWED_PYTHON],
        Profile::Hosted => &[],
    };
    lists.iter().copied().flatten().map(|(_, nr)| *nr).collect()
}

fn asked(profile: Profile) -> Vec<i64> {
    let lists: &[&[Call]] = match profile {
        Profile::Strict | Profile::Python => &[DANGEROUS, SOCKETS],
        Profile::Hosted => &[DANGEROUS],
    };
    lists.iter().copied().flatten().map(|(_, nr)| *nr).collect()
}

fn details(profile: Profile) -> Vec<Detail> {
    let any = |values: &[u32], answer| values.iter().map(|v| (Test::Is(*v), answer)).collect();
    let detail = |call, argument, tests, otherwise| Detail { call, argument, tests, otherwise };
    // Libraries fall back to the older call, whose flags can be seen.
    let clone3 = detail(libc::SYS_clone3, 0, Vec::new(), Answer::Fail(libc::ENOSYS));
    let ioctl = detail(libc::SYS_ioctl, 1, any(&IOCTL_TYPING, Answer::Ask), Answer::Allow);
    let mut details = vec![clone3, ioctl];
    if profile != Profile::Strict {
        let namespaces = vec![(Test::HasAnyOf(NEW_NAMESPACES), Answer::Ask)];
        details.push(detail(libc::SYS_clone, 0, namespaces, Answer::Allow));
    }
    if profile == Profile::Hosted {
        let held = any(&AF_HELD, Answer::Allow);
        details.push(detail(libc::SYS_socket, 0, held, Answer::Ask));
        return details;
    }
    let harmless = any(&PRCTL_HARMLESS, Answer::Allow);
    details.push(detail(libc::SYS_prctl, 0, harmless, Answer::Fail(libc::EPERM)));
    // The C library looks for a name service at a path whenever it is asked for a user: that is no network.
    let local = any(&[AF_UNIX], Answer::Fail(libc::EACCES));
    details.push(detail(libc::SYS_socket, 0, local, Answer::Ask));
    if profile == Profile::Python {
        let local = any(&[AF_UNIX], Answer::Allow);
        details.push(detail(libc::SYS_socketpair, 0, local, Answer::Ask));
    }
    details
}

/// The filter of a profile. If nobody can be asked, what would be asked kills.
pub(crate) fn program(profile: Profile, somebody_listens: bool) -> Vec<Instruction> {
    let code = |answer| code(answer, somebody_listens);
    let foreign = code(Answer::Ask);
    let mut program = vec![
        load(4),
        jump(IS, NATIVE.unwrap_or(0), 1, 0),
        give(foreign),
        load(0),
        jump(AT_LEAST, X32, 0, 1),
        give(foreign),
        jump(AT_LEAST, UNKNOWN, 0, 1),
        give(code(Answer::Fail(libc::ENOSYS))),
    ];
    for detail in details(profile) {
        // Each test is a jump and an answer; before them the argument is loaded, after them comes the last answer.
        let length = 2 + 2 * u8::try_from(detail.tests.len()).unwrap_or(u8::MAX / 2);
        program.push(jump(IS, number(detail.call), 0, length));
        program.push(load(16 + 8 * detail.argument));
        for (test, answer) in detail.tests {
            program.push(match test {
                Test::Is(value) => jump(IS, value, 0, 1),
                Test::HasAnyOf(bits) => jump(HAS_ANY_OF, bits, 0, 1),
            });
            program.push(give(code(answer)));
        }
        program.push(give(code(detail.otherwise)));
    }
    for (first, last, answer) in ranges(profile) {
        program.push(jump(AT_LEAST, first, 0, 2));
        program.push(jump(MORE_THAN, last, 1, 0));
        program.push(give(code(answer)));
    }
    program.push(give(code(default(profile))));
    program
}

/// The lists of a profile as ranges of numbers with one answer: the kernel compiles the filter at every start.
fn ranges(profile: Profile) -> Vec<(u32, u32, Answer)> {
    let allowed = allowed(profile).into_iter().map(|call| (number(call), Answer::Allow));
    let asked = asked(profile).into_iter().map(|call| (number(call), Answer::Ask));
    let mut calls: Vec<(u32, Answer)> = allowed.chain(asked).collect();
    calls.sort_by_key(|(call, _)| *call);
    let mut ranges: Vec<(u32, u32, Answer)> = Vec::new();
    for (call, answer) in calls {
        match ranges.last_mut() {
            Some((_, last, same)) if *same == answer && *last + 1 == call => *last = call,
            _ => ranges.push((call, call, answer)),
        }
    }
    ranges
}

const KILL_PROCESS: u32 = 0x8000_0000;
const USER_NOTIFICATION: u32 = 0x7fc0_0000;
const ERROR: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;

fn code(answer: Answer, somebody_listens: bool) -> u32 {
    match answer {
        Answer::Allow => ALLOW,
        Answer::Fail(errno) => ERROR | errno.cast_unsigned(),
        Answer::Ask if somebody_listens => USER_NOTIFICATION,
        Answer::Ask => KILL_PROCESS,
    }
}

fn number(call: i64) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

const IS: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const MORE_THAN: u16 = 0x25;
const HAS_ANY_OF: u16 = 0x45;
const LOAD: u16 = 0x20;
const GIVE: u16 = 0x06;

fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD, jt: 0, jf: 0, k: offset }
}

fn jump(test: u16, value: u32, then: u8, otherwise: u8) -> Instruction {
    Instruction { code: test, jt: then, jf: otherwise, k: value }
}

fn give(answer: u32) -> Instruction {
    Instruction { code: GIVE, jt: 0, jf: 0, k: answer }
}

/// What a call that was asked about is called, what is known about it, and whether the run ends for it.
pub(crate) fn judge(profile: Profile, asked: &Asked) -> (String, String, bool) {
    let number = asked.nr.cast_unsigned();
    if Some(asked.arch) != NATIVE {
        return (format!("call {number}"), format!("foreign architecture {:#x}", asked.arch), true);
    }
    if number >= X32 {
        return (format!("call {}", number - X32), "x32".to_owned(), true);
    }
    let call = i64::from(asked.nr);
    let low = |argument: usize| asked.args.get(argument).map_or(0, |value| *value & 0xffff_ffff);
    let detail = match call {
        libc::SYS_socket | libc::SYS_socketpair => family(low(0)),
        libc::SYS_clone | libc::SYS_unshare => format!("flags {:#x}", low(0)),
        libc::SYS_ioctl => format!("request {:#x}", low(1)),
        _ => String::new(),
    };
    let network = SOCKETS.iter().any(|(_, nr)| *nr == call);
    let fatal = match profile {
        Profile::Strict => true,
        Profile::Python => !network,
        Profile::Hosted => false,
    };
    (name(call), detail, fatal)
}

fn name(call: i64) -> String {
    let lists = [ALLOWED_STRICT, ALLOWED_PYTHON, DANGEROUS, SOCKETS, calls::OTHER];
    let found = lists.into_iter().flatten().find(|(_, nr)| *nr == call);
    found.map_or_else(
        || format!("call {call}"),
        |(name, _)| name.trim_start_matches("SYS_").to_owned(),
    )
}

fn family(number: u64) -> String {
    let known = [
        (1, "AF_UNIX"),
        (2, "AF_INET"),
        (10, "AF_INET6"),
        (16, "AF_NETLINK"),
        (17, "AF_PACKET"),
        (38, "AF_ALG"),
        (40, "AF_VSOCK"),
    ];
    let found = known.into_iter().find(|(value, _)| *value == number);
    found.map_or_else(|| format!("family {number}"), |(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROFILES: [Profile; 3] = [Profile::Strict, Profile::Python, Profile::Hosted];

    /// The kernel's machine, so far as the filter uses it.
    pub(super) fn run(program: &[Instruction], nr: u32, arch: u32, args: [u64; 6]) -> u32 {
        let word = |offset: u32| match offset {
            0 => nr,
            4 => arch,
            offset => {
                let value = args[usize::try_from((offset - 16) / 8).unwrap()];
                u32::try_from(value & 0xffff_ffff).unwrap()
            }
        };
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1;
            let holds = match code {
                LOAD => {
                    accumulator = word(k);
                    continue;
                }
                GIVE => return k,
                IS => accumulator == k,
                AT_LEAST => accumulator >= k,
                MORE_THAN => accumulator > k,
                HAS_ANY_OF => accumulator & k != 0,
                other => panic!("unknown instruction {other:#x}"),
            };
            at += usize::from(if holds { jt } else { jf });
        }
    }

    fn answer(profile: Profile, call: i64, args: [u64; 6]) -> u32 {
        run(&program(profile, true), number(call), NATIVE.unwrap(), args)
    }

    const NOTHING: [u64; 6] = [0; 6];
    const EPERM: u32 = ERROR | 1;

    #[test]
    fn the_lists_are_disjoint_and_as_long_as_they_say() {
        let listed: Vec<i64> = [ALLOWED_STRICT, ALLOWED_PYTHON, DANGEROUS, SOCKETS]
            .concat()
            .iter()
            .map(|c| c.1)
            .collect();
        let unique: std::collections::BTreeSet<_> = listed.iter().collect();
        assert_eq!(unique.len(), listed.len());
        assert!(listed.iter().all(|nr| *nr < i64::from(UNKNOWN)));
        assert!((45..=75).contains(&ALLOWED_STRICT.len()), "{}", ALLOWED_STRICT.len());
        let python = ALLOWED_STRICT.len() + ALLOWED_PYTHON.len();
        assert!((100..=200).contains(&python), "{python}");
    }

    #[test]
    fn every_listed_call_has_its_answer() {
        for (name, call) in DANGEROUS {
            for profile in PROFILES {
                assert_eq!(answer(profile, *call, NOTHING), USER_NOTIFICATION, "{name}");
            }
        }
        let plain = |call: i64| ![libc::SYS_ioctl, libc::SYS_prctl].contains(&call);
        for (name, call) in ALLOWED_STRICT.iter().filter(|(_, call)| plain(*call)) {
            for profile in PROFILES {
                assert_eq!(answer(profile, *call, NOTHING), ALLOW, "{name}");
            }
        }
        for (name, call) in ALLOWED_PYTHON {
            assert_eq!(answer(Profile::Strict, *call, NOTHING), USER_NOTIFICATION, "{name}");
            assert_eq!(answer(Profile::Python, *call, NOTHING), ALLOW, "{name}");
        }
    }

    #[test]
    fn arguments_are_looked_at() {
        let first = |value: u64| [value, 0, 0, 0, 0, 0];
        let second = |value: u64| [0, value, 0, 0, 0, 0];
        let new_user = first(0x1000_0000 | 17);
        for profile in [Profile::Python, Profile::Hosted] {
            assert_eq!(answer(profile, libc::SYS_clone, new_user), USER_NOTIFICATION);
            assert_eq!(answer(profile, libc::SYS_clone, first(17)), ALLOW);
        }
        for profile in PROFILES {
            assert_eq!(answer(profile, libc::SYS_clone3, NOTHING), ERROR | 38);
            assert_eq!(answer(profile, libc::SYS_ioctl, second(0x5412)), USER_NOTIFICATION);
            // The kernel looks at the low half only, and so must the filter.
            let high = second(0x1_0000_5412);
            assert_eq!(answer(profile, libc::SYS_ioctl, high), USER_NOTIFICATION);
            assert_eq!(answer(profile, libc::SYS_ioctl, second(0x5401)), ALLOW);
            // Virtual machine sockets are in no namespace.
            assert_eq!(answer(profile, libc::SYS_socket, first(40)), USER_NOTIFICATION);
        }
        for profile in [Profile::Strict, Profile::Python] {
            assert_eq!(answer(profile, libc::SYS_socket, first(2)), USER_NOTIFICATION);
            assert_eq!(answer(profile, libc::SYS_socket, first(1)), ERROR | 13);
            assert_eq!(answer(profile, libc::SYS_prctl, first(22)), EPERM);
            assert_eq!(answer(profile, libc::SYS_prctl, first(15)), ALLOW);
        }
        assert_eq!(answer(Profile::Hosted, libc::SYS_socket, first(2)), ALLOW);
        assert_eq!(answer(Profile::Python, libc::SYS_socketpair, first(1)), ALLOW);
        assert_eq!(answer(Profile::Python, libc::SYS_swapon + 1_000, NOTHING), ERROR | 38);
    }

    #[test]
    fn without_a_listener_what_is_asked_kills() {
        let program = program(Profile::Python, false);
        let run = |nr, arch| run(&program, nr, arch, NOTHING);
        assert_eq!(run(number(libc::SYS_mount), NATIVE.unwrap()), KILL_PROCESS);
        assert_eq!(run(0, 0x4000_0003), KILL_PROCESS);
    }

    #[test]
    fn calls_are_named_and_judged() {
        let asked = |nr: i64, arg| Asked {
            id: 1,
            pid: 2,
            nr: i32::try_from(nr).unwrap(),
            arch: NATIVE.unwrap(),
            args: [arg, 0, 0, 0, 0, 0],
        };
        let says = |profile, asked: &Asked| {
            let (call, detail, fatal) = judge(profile, asked);
            format!("{call} {detail} {fatal}")
        };
        let socket = asked(libc::SYS_socket, 2);
        assert_eq!(says(Profile::Python, &socket), "socket AF_INET false");
        assert_eq!(says(Profile::Strict, &socket), "socket AF_INET true");
        assert_eq!(says(Profile::Python, &asked(libc::SYS_mount, 0)), "mount  true");
        assert_eq!(says(Profile::Hosted, &asked(libc::SYS_mount, 0)), "mount  false");
        assert_eq!(
            says(Profile::Python, &asked(libc::SYS_clone, 1 << 28)),
            "clone flags 0x10000000 true"
        );
        let foreign = Asked { arch: 0x4000_0003, ..asked(11, 0) };
        assert_eq!(says(Profile::Hosted, &foreign), "call 11 foreign architecture 0x40000003 true");
        let x32 = asked(i64::from(X32) + 39, 0);
        assert_eq!(says(Profile::Hosted, &x32), "call 39 x32 true");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_foreign_and_nothing_unlisted_is_allowed(
            nr in 0u32..600,
            high in any::<bool>(),
            arch in any::<u32>(),
            args in any::<[u64; 6]>(),
        ) {
            let native = NATIVE.unwrap();
            for profile in PROFILES {
                let program = program(profile, true);
                if arch != native {
                    prop_assert_eq!(run(&program, nr, arch, args), USER_NOTIFICATION);
                }
                let shifted = if high { nr | X32 } else { nr };
                let answer = run(&program, shifted, native, args);
                if high {
                    prop_assert_eq!(answer, USER_NOTIFICATION);
                }
                let details = details(profile);
                let listed = allowed(profile).contains(&i64::from(nr))
                    || details.iter().any(|detail| number(detail.call) == nr);
                if profile != Profile::Hosted && !listed {
                    prop_assert_ne!(answer, ALLOW);
                }
                if asked(profile).contains(&i64::from(nr)) && !details.iter().any(|d| number(d.call) == nr) {
                    prop_assert_eq!(answer, USER_NOTIFICATION);
                }
            }
        }
    }
}
