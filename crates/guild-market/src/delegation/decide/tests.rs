//! Every way in which a decision can come out, and what holds for all of them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn hash(n: u8) -> Hash {
    Hash::of(&[n])
}

fn waiting(slow_from_ms: i64) -> Seat {
    Seat::Waiting { slow_from_ms }
}

fn voted(n: u8) -> Seat {
    Seat::Voted(hash(n))
}

fn facts(needed: u32, objective: bool, seats: &[Seat]) -> Facts {
    Facts {
        rule: Rule { needed, objective },
        seats: (1..).zip(seats.iter().copied()).collect(),
        deadline_ms: 1_000,
        check_until_ms: 2_000,
        can_ask: false,
        has_judge: false,
        now_ms: 100,
    }
}

fn shown(decision: &Decision) -> String {
    let names = |split: &Split| {
        format!("{:?} {:?} {:?} {:?}", split.agrees, split.differs, split.failed, split.cancel)
    };
    match decision {
        Decision::Wait { until_ms } => format!("wait {until_ms}"),
        Decision::More(reason) => format!("more {}", reason.as_str()),
        Decision::Adjudicate { answers } => {
            format!("judge {:?}", answers.values().collect::<Vec<_>>())
        }
        Decision::Decided { winner, split } => {
            let winner = (0..9).find(|n| hash(*n) == *winner).unwrap();
            format!("won {winner} {}", names(split))
        }
        Decision::Undecided { why, split } => format!("undecided {} ({why})", names(split)),
    }
}

#[test]
fn the_first_that_passes_wins() {
    let of = |seats: &[Seat]| shown(&decide(&facts(1, true, seats)));
    assert_eq!(of(&[waiting(500), waiting(400)]), "wait 500");
    assert_eq!(of(&[waiting(500), voted(1)]), "won 1 [2] [] [] [1]");
    assert_eq!(of(&[Seat::Wrong, waiting(500)]), "wait 500");
    // Whoever delivered as well before it was decided takes part.
    assert_eq!(of(&[voted(1), Seat::Unchecked]), "wait 2000");
    assert_eq!(of(&[voted(1), voted(1)]), "won 1 [1, 2] [] [] []");
    let nobody = "undecided [] [1] [2] [] (nobody delivered what passes its check)";
    assert_eq!(of(&[Seat::Wrong, Seat::Gone]), nobody);
}

#[test]
fn a_majority_wins_and_the_others_are_told_to_stop() {
    let of = |seats: &[Seat]| shown(&decide(&facts(2, false, seats)));
    assert_eq!(of(&[voted(1), waiting(500), waiting(500)]), "wait 500");
    assert_eq!(of(&[voted(1), waiting(500), voted(1)]), "won 1 [1, 3] [] [] [2]");
    assert_eq!(of(&[voted(1), voted(2), voted(2)]), "won 2 [2, 3] [1] [] []");
    assert_eq!(of(&[voted(1), voted(2), waiting(500)]), "wait 500");
    let none = "undecided [] [1, 2, 3] [] [] (2 must say the same, and at most 1 do)";
    assert_eq!(of(&[voted(1), voted(2), voted(3)]), none);
    // Who is silent is no reason to believe one alone.
    let alone = "undecided [] [1] [2, 3] [] (2 must say the same, and at most 1 do)";
    assert_eq!(of(&[voted(1), Seat::Gone, Seat::Gone]), alone);
}

#[test]
fn known_faults_are_taken_off_what_is_needed_of_objective_work() {
    let of = |seats: &[Seat]| shown(&decide(&facts(3, true, seats)));
    // Two liars were caught, one is slow, one is dead: the one who is left was checked.
    let five = [voted(1), Seat::Wrong, Seat::Wrong, waiting(500), waiting(500)];
    assert_eq!(of(&five), "won 1 [1] [2, 3] [] [4, 5]");
    let five = [voted(1), voted(1), Seat::Wrong, waiting(500), waiting(500)];
    assert_eq!(of(&five), "won 1 [1, 2] [3] [] [4, 5]");
    let five = [voted(1), voted(1), waiting(500), waiting(500), waiting(500)];
    assert_eq!(of(&five), "wait 500");
    // As many say the one as the other, and both were found right: neither is paid.
    let five = [voted(1), voted(2), Seat::Wrong, Seat::Wrong, Seat::Gone];
    assert!(of(&five).starts_with("undecided [] [1, 2, 3, 4] [5] []"));
}

#[test]
fn one_more_is_asked_when_the_slowest_is_late_or_nothing_can_come_of_it() {
    let ask = |now_ms, seats: &[Seat]| {
        let facts = Facts { can_ask: true, now_ms, ..facts(2, false, seats) };
        shown(&decide(&facts))
    };
    assert_eq!(ask(100, &[voted(1), waiting(500), waiting(300)]), "wait 500");
    assert_eq!(ask(400, &[voted(1), waiting(500), waiting(300)]), "wait 500");
    assert_eq!(ask(500, &[voted(1), waiting(500), waiting(300)]), "more hedge");
    assert_eq!(ask(1_000, &[voted(1), waiting(500), waiting(300)]), "wait 2000");
    assert_eq!(ask(100, &[voted(1), Seat::Gone, Seat::Gone]), "more replacement");
    assert_eq!(ask(100, &[voted(1), voted(2), Seat::Gone]), "more replacement");
    assert_eq!(ask(100, &[voted(1), voted(1), Seat::Gone]), "won 1 [1, 2] [] [3] []");
}

#[test]
fn a_judge_is_asked_only_where_opinions_differ() {
    let judged = |objective, seats: &[Seat]| {
        let facts = Facts { has_judge: true, ..facts(2, objective, seats) };
        shown(&decide(&facts))
    };
    assert_eq!(judged(false, &[voted(1), voted(2), voted(3)]), "judge [1, 1, 1]");
    assert!(judged(false, &[voted(1), Seat::Gone, Seat::Wrong]).starts_with("undecided"));
    assert!(judged(true, &[voted(1), voted(2), Seat::Gone]).starts_with("undecided"));
}

#[test]
fn what_cannot_be_checked_is_waited_for_and_then_does_not_count() {
    let at = |now_ms| {
        let facts = Facts { now_ms, ..facts(2, false, &[voted(1), voted(1), Seat::Unchecked]) };
        shown(&decide(&facts))
    };
    assert_eq!(at(1_999), "wait 2000");
    assert_eq!(at(2_000), "won 1 [1, 2] [] [3] []");
}

fn seat() -> impl Strategy<Value = Seat> {
    prop_oneof![
        (0..2_000_i64).prop_map(waiting),
        Just(Seat::Unchecked),
        (0..3_u8).prop_map(voted),
        Just(Seat::Wrong),
        Just(Seat::Gone),
    ]
}

fn any_facts() -> impl Strategy<Value = Facts> {
    let seats = prop::collection::vec(seat(), 1..9);
    (seats, 1..5_u32, any::<[bool; 3]>(), 0..3_000_i64).prop_map(
        |(seats, needed, [objective, can_ask, has_judge], now_ms)| Facts {
            can_ask,
            has_judge,
            now_ms,
            ..facts(needed, objective, &seats)
        },
    )
}

proptest! {
    /// There is one winner at most, everybody is one thing, and who is paid says what won.
    #[test]
    fn never_two_winners(facts in any_facts()) {
        let decision = decide(&facts);
        prop_assert_eq!(&decision, &decide(&facts));
        let (winner, split) = match &decision {
            Decision::Wait { until_ms } => {
                prop_assert!(*until_ms > facts.now_ms, "it looks again later, not at once");
                return Ok(());
            }
            Decision::More(reason) => {
                prop_assert!(facts.can_ask && *reason != Reason::First);
                return Ok(());
            }
            Decision::Adjudicate { answers } => {
                prop_assert!(facts.has_judge && !facts.rule.objective && answers.len() > 1);
                return Ok(());
            }
            Decision::Decided { winner, split } => (Some(*winner), split),
            Decision::Undecided { split, .. } => (None, split),
        };
        let all = [&split.agrees, &split.differs, &split.failed, &split.cancel];
        let named: Vec<i64> = all.into_iter().flatten().copied().collect();
        prop_assert_eq!(named.len(), facts.seats.len());
        let named: BTreeSet<i64> = named.into_iter().collect();
        prop_assert_eq!(named, facts.seats.keys().copied().collect());
        for (number, seat) in &facts.seats {
            let says = match seat { Seat::Voted(hash) => Some(*hash), _ => None };
            prop_assert_eq!(split.agrees.contains(number), winner.is_some() && says == winner);
        }
        match winner {
            None => prop_assert!(split.agrees.is_empty()),
            Some(winner) => {
                let votes = facts.votes();
                let most = votes[&winner];
                prop_assert!(most >= facts.needed() && most >= 1);
                prop_assert!(votes.iter().all(|(hash, count)| *hash == winner || *count < most));
            }
        }
    }

    /// In whatever order results come, and whatever f of 2f + 1 say together: the honest answer wins, at every moment
    /// at which something is decided, and something is.
    #[test]
    fn f_liars_of_2f_and_1_never_win(
        f in 1..4_usize,
        order in Just((0..9_usize).collect::<Vec<_>>()).prop_shuffle(),
        lies in prop::collection::vec(1..4_u8, 3),
    ) {
        let n = 2 * f + 1;
        let says = |who: usize| voted(if who < f { lies[who] } else { 0 });
        let mut seats = vec![waiting(5_000); n];
        let needed = u32::try_from(f).unwrap() + 1;
        let mut decided = None;
        for who in order.into_iter().filter(|who| *who < n) {
            seats[who] = says(who);
            match decide(&facts(needed, false, &seats)) {
                Decision::Decided { winner, .. } => {
                    prop_assert_eq!(winner, hash(0));
                    decided = Some(winner);
                    break;
                }
                other => prop_assert!(matches!(other, Decision::Wait { .. }), "{:?}", other),
            }
        }
        prop_assert_eq!(decided, Some(hash(0)));
    }
}
