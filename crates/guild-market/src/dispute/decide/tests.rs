use super::*;

fn facts(side: Side, reason: Reason) -> Facts {
    Facts {
        side,
        state: State::Open,
        reason,
        stood: None,
        stands: None,
        is_part: false,
        can_check: true,
        lost_in_row: 0,
        lost_max: 3,
        checked: None,
        deadline_ms: 100,
        fallback: Fallback::Stands,
        now_ms: 10,
    }
}

fn closed(by: By, outcome: Option<Outcome>) -> Step {
    Step::Close { state: State::Decided, by, outcome }
}

#[test]
fn what_can_be_checked_is_decided_by_that_and_never_waits() {
    for reason in [Reason::ResultWrong, Reason::VerdictWrong, Reason::NotPaid] {
        let held = facts(Side::Buyer, reason);
        assert_eq!(decide(&held), closed(By::Rule, None), "the verdict is still to come");
        let settled =
            Facts { stood: Some(Outcome::Withhold), stands: Some(Outcome::Withhold), ..held };
        assert_eq!(decide(&settled), Step::Check);
        for found in [Outcome::Release, Outcome::Withhold] {
            let checked = Facts { checked: Some(found), ..settled };
            assert_eq!(decide(&checked), closed(By::Rule, Some(found)));
        }
        // What could not be checked until the deadline stays as it is.
        let late = Facts { now_ms: 100, ..settled };
        let stands = Some(Outcome::Withhold);
        let expired = Step::Close { state: State::Expired, by: By::Deadline, outcome: stands };
        assert_eq!(decide(&late), expired);
        assert_eq!(decide(&facts(Side::Provider, reason)), Step::Wait, "it checks nothing");
    }
}

/// Nobody is blamed because nobody can look: an arbiter, whoever gives in or the deadline decides.
#[test]
fn what_only_a_comparison_judges_is_not_checked_by_doing_it_again() {
    for reason in [Reason::ResultWrong, Reason::VerdictWrong, Reason::NotPaid] {
        let stands = Some(Outcome::Withhold);
        let settled =
            Facts { stood: stands, stands, can_check: false, ..facts(Side::Buyer, reason) };
        assert_eq!(decide(&settled), Step::Wait);
        for (fallback, outcome) in [
            (Fallback::Stands, stands),
            (Fallback::Release, Some(Outcome::Release)),
            (Fallback::Withhold, stands),
        ] {
            let late = Facts { fallback, now_ms: 100, ..settled };
            let expired = Step::Close { state: State::Expired, by: By::Deadline, outcome };
            assert_eq!(decide(&late), expired);
        }
    }
}

#[test]
fn what_cannot_be_checked_waits_for_somebody_or_the_deadline() {
    for reason in [Reason::Late, Reason::Copied, Reason::Terms, Reason::Other] {
        let held = facts(Side::Buyer, reason);
        for state in [State::Open, State::Answered] {
            assert_eq!(decide(&Facts { state, now_ms: 99, ..held }), Step::Wait);
        }
        for (fallback, outcome) in [
            (Fallback::Stands, None),
            (Fallback::Release, Some(Outcome::Release)),
            (Fallback::Withhold, Some(Outcome::Withhold)),
        ] {
            let late = Facts { fallback, now_ms: 100, ..held };
            let expired = Step::Close { state: State::Expired, by: By::Deadline, outcome };
            assert_eq!(decide(&late), expired);
        }
    }
}

#[test]
fn who_has_lost_too_often_and_parts_of_a_whole_hold_nothing() {
    let held = facts(Side::Buyer, Reason::Copied);
    assert_eq!(decide(&Facts { lost_in_row: 2, ..held }), Step::Wait);
    assert_eq!(decide(&Facts { lost_in_row: 3, ..held }), closed(By::Record, None));
    let stands = Some(Outcome::Withhold);
    let settled = Facts { stood: stands, stands, lost_in_row: 4, ..held };
    assert_eq!(decide(&settled), closed(By::Record, stands));
    assert_eq!(decide(&Facts { is_part: true, ..held }), closed(By::Rule, None));
}

#[test]
fn what_is_over_stays_so() {
    for state in [State::Decided, State::Expired] {
        for side in Side::ALL {
            let over =
                Facts { state, now_ms: 1_000, lost_in_row: 9, ..facts(*side, Reason::Other) };
            assert_eq!(decide(&over), Step::Over);
        }
    }
    for state in State::ALL {
        assert_eq!(State::parse(state.as_str()), Some(state));
    }
    for fallback in Fallback::ALL {
        assert_eq!(Fallback::parse(fallback.as_str()), Some(fallback));
    }
}

#[test]
fn a_provider_follows_how_the_buyer_has_settled() {
    let open = facts(Side::Provider, Reason::NotPaid);
    let stands = Some(Outcome::Release);
    assert_eq!(decide(&Facts { stands, ..open }), closed(By::Rule, stands));
    let expired = |outcome| Step::Close { state: State::Expired, by: By::Deadline, outcome };
    assert_eq!(decide(&Facts { now_ms: 100, ..open }), expired(Some(Outcome::Withhold)));
}

#[test]
fn only_who_gives_in_and_an_accepted_arbiter_bind() {
    use Outcome::{Release, Withhold};
    let said = |ours, author, outcome, stands, accepted| {
        binds(ours, (author, By::Concession), outcome, (stands, accepted))
    };
    let (buyer, provider, arbiter) = (Side::Buyer, Side::Provider, Side::Arbiter);
    assert_eq!(said(buyer, provider, Withhold, None, false), Some(By::Concession));
    assert_eq!(said(buyer, provider, Release, None, false), None, "a claim");
    assert_eq!(said(buyer, buyer, Release, None, false), Some(By::Concession));
    assert_eq!(said(buyer, buyer, Withhold, None, false), None, "not by its own word");
    for ours in [buyer, provider] {
        for outcome in [Release, Withhold] {
            assert_eq!(said(ours, arbiter, outcome, None, true), Some(By::Arbiter));
            assert_eq!(said(ours, arbiter, outcome, None, false), None, "nobody we know");
        }
    }
    // The buyer says what it does with money that it holds, and nothing about what it has paid.
    assert_eq!(said(provider, buyer, Withhold, None, false), Some(By::Rule));
    assert_eq!(said(provider, buyer, Withhold, Some(Withhold), false), Some(By::Rule));
    assert_eq!(said(provider, buyer, Withhold, Some(Release), false), None);
}
