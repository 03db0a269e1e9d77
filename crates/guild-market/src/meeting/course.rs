//! How a trial goes: a pure state machine over signs and time.

use guild_protocol::env::UnixMs;
use serde::{Deserialize, Serialize};

/// How long is waited for what. The defaults are the documented numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    /// How long each delivery may take, to other relays each time.
    pub deliveries_ms: [i64; 3],
    /// How long a provider may be silent before its request is sent again.
    pub silent_ms: i64,
    /// The pauses before the same request is sent again, each a fifth longer or shorter.
    pub pauses_ms: [i64; 3],
    /// How long the work may take.
    pub work_ms: i64,
    /// How much longer each sign that it goes on makes that,
    pub more_ms: i64,
    /// at most so often: a sign costs nothing.
    pub more_max: u32,
    /// How long a result may take that was said to be done.
    pub result_ms: i64,
    /// How long relays are asked for a result that did not come by itself.
    pub recover_ms: i64,
    /// How often it is looked whether a relay has taken the request.
    pub look_ms: i64,
    /// For how long nobody asks again who said nothing.
    pub unresponsive_ms: i64,
}

impl Default for Times {
    fn default() -> Times {
        Times {
            deliveries_ms: [10_000, 15_000, 20_000],
            silent_ms: 30_000,
            pauses_ms: [5_000, 10_000, 20_000],
            work_ms: 300_000,
            more_ms: 60_000,
            more_max: 5,
            result_ms: 60_000,
            recover_ms: 10_000,
            look_ms: 250,
            unresponsive_ms: 24 * 3_600_000,
        }
    }
}

/// Where a trial stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// No relay has taken the request yet.
    Delivering,
    /// Nothing was heard; it is sent again after a pause.
    Pausing,
    /// A relay has it, and the provider may be at work.
    Waiting,
    /// The provider says that it is done.
    Finishing,
    /// The time is over; relays are asked once more.
    Recovering,
    /// A result is there.
    Judging,
    /// It is over.
    Over,
}

impl Stage {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Delivering => "delivering",
            Stage::Pausing => "pausing",
            Stage::Waiting => "waiting",
            Stage::Finishing => "finishing",
            Stage::Recovering => "recovering",
            Stage::Judging => "judging",
            Stage::Over => "over",
        }
    }
}

/// How a trial ended without a result that could be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// No relay took the request: nothing follows for the provider.
    Undelivered,
    /// It never said anything.
    Unresponsive,
    /// It said something, and no result came.
    Timeout,
    /// It said that it failed.
    Failed,
    /// It wants money that it does not get.
    Unpaid,
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// Somebody looks: has a relay taken the request?
    Look {
        /// Whether one has.
        taken: bool,
    },
    /// The provider works on it.
    Processing,
    /// The provider is done, and a result follows.
    Done,
    /// The provider says anything else: that a part is done, or what no specification knows. It is alive, and no time
    /// changes.
    Word,
    /// The provider failed.
    Failed,
    /// The provider wants money first, and does not get it.
    Unpaid,
    /// The provider wanted money first, and got it.
    Paid,
    /// A result of the provider is there.
    Result,
}

/// What is to be done because of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// The request goes to these relays: the n-th choice of all.
    Send(usize),
    /// The same request is offered again to whoever was offered it.
    Resend,
    /// Relays are asked for what they have.
    Query,
    /// The result is judged.
    Judge,
    /// It has ended.
    End(End),
}

/// How a trial has gone so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Course {
    /// Where it stands.
    pub stage: Stage,
    /// Which choice of relays is tried.
    pub delivery: usize,
    /// How often it was sent again.
    pub retries: usize,
    /// When this delivery, this pause or this silence is over.
    pub step_ms: UnixMs,
    /// When the work, or what follows it, must be done; none before a relay has the request.
    pub deadline_ms: Option<UnixMs>,
    /// When a relay took the request, or its provider showed that it has it.
    pub taken_ms: Option<UnixMs>,
    /// When a relay of ours took it, if it went there first: no earlier can its provider have had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relayed_ms: Option<UnixMs>,
    /// When the provider was first heard.
    pub heard_ms: Option<UnixMs>,
    /// How often the time was made longer.
    pub extended: u32,
    /// When somebody must look next.
    pub due_ms: UnixMs,
    /// How it ended, if it ended without a result.
    pub end: Option<End>,
    /// What is owed, or was paid, for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_msat: Option<i64>,
}

impl Course {
    /// A trial begins: its request goes to the first choice of relays.
    pub fn begin(times: &Times, now_ms: UnixMs) -> (Course, Act) {
        let [first_ms, ..] = times.deliveries_ms;
        let step_ms = now_ms.saturating_add(first_ms);
        let course = Course {
            stage: Stage::Delivering,
            delivery: 0,
            retries: 0,
            step_ms,
            deadline_ms: None,
            taken_ms: None,
            relayed_ms: None,
            heard_ms: None,
            extended: 0,
            due_ms: step_ms.min(now_ms.saturating_add(times.look_ms)),
            end: None,
            due_msat: None,
        };
        (course, Act::Send(0))
    }

    /// A relay of ours has the request. That counts only if it was asked before any other, and before its provider said
    /// anything: else somebody may have had it earlier, and been at work.
    pub fn relayed(&mut self, now_ms: UnixMs) {
        if self.delivery == 0 && self.retries == 0 && self.heard_ms.is_none() {
            self.relayed_ms.get_or_insert(now_ms);
        }
    }

    /// From when on the provider's time is measured: when a relay of ours had the request, else when it was first sent.
    /// What the provider says, and relays that it names, can only make that longer.
    pub fn measured_from_ms(&self, begun_ms: UnixMs) -> UnixMs {
        self.relayed_ms.unwrap_or(begun_ms)
    }

    /// Whether nothing that happens changes it any more.
    pub fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Judging | Stage::Over)
    }

    /// What it is after this sign, and what is to be done. `chance` is any number: it makes pauses a little longer or
    /// shorter.
    ///
    /// ```
    /// use guild_market::meeting::{Act, Course, Sign, Stage, Times};
    /// let times = Times::default();
    /// let (course, first) = Course::begin(&times, 0);
    /// assert_eq!(first, Act::Send(0));
    /// let (course, acts) = course.after(&times, Sign::Look { taken: true }, 400, 0);
    /// assert_eq!((course.stage, course.deadline_ms, acts), (Stage::Waiting, Some(300_400), vec![]));
    /// let (course, acts) = course.after(&times, Sign::Result, 2_000, 0);
    /// assert_eq!((course.stage, acts), (Stage::Judging, vec![Act::Judge]));
    /// ```
    #[must_use]
    pub fn after(
        &self,
        times: &Times,
        sign: Sign,
        now_ms: UnixMs,
        chance: u64,
    ) -> (Course, Vec<Act>) {
        let mut next = self.clone();
        if self.is_settled() {
            return (next, Vec::new());
        }
        let acts = match sign {
            Sign::Look { taken } => {
                if taken {
                    next.taken(times, now_ms);
                }
                next.look(times, now_ms, chance)
            }
            Sign::Result => {
                next.heard(times, now_ms);
                next.stage = Stage::Judging;
                next.due_ms = now_ms;
                return (next, vec![Act::Judge]);
            }
            Sign::Failed => vec![next.end(End::Failed)],
            Sign::Unpaid => vec![next.end(End::Unpaid)],
            Sign::Processing | Sign::Done | Sign::Word | Sign::Paid => {
                next.heard(times, now_ms);
                next.goes_on(times, sign, now_ms);
                Vec::new()
            }
        };
        next.schedule(times, now_ms);
        (next, acts)
    }

    /// A relay has it: from now on the provider's time runs.
    fn taken(&mut self, times: &Times, now_ms: UnixMs) {
        if self.taken_ms.is_none() {
            self.taken_ms = Some(now_ms);
            self.deadline_ms = Some(now_ms.saturating_add(times.work_ms));
            self.stage = Stage::Waiting;
            self.step_ms = now_ms.saturating_add(times.silent_ms);
        }
    }

    /// Whoever answers has it, whatever relays say.
    fn heard(&mut self, times: &Times, now_ms: UnixMs) {
        self.taken(times, now_ms);
        self.heard_ms.get_or_insert(now_ms);
        if self.stage == Stage::Pausing {
            self.stage = Stage::Waiting;
        }
    }

    fn goes_on(&mut self, times: &Times, sign: Sign, now_ms: UnixMs) {
        match sign {
            Sign::Processing if self.extended < times.more_max => {
                self.extended = self.extended.saturating_add(1);
                self.deadline_ms = self.deadline_ms.map(|at| at.saturating_add(times.more_ms));
                // It was given up too early.
                if self.stage == Stage::Recovering {
                    self.stage = Stage::Waiting;
                }
            }
            Sign::Done if self.stage != Stage::Finishing && self.stage != Stage::Recovering => {
                self.stage = Stage::Finishing;
                self.deadline_ms = Some(now_ms.saturating_add(times.result_ms));
            }
            Sign::Paid if self.stage == Stage::Waiting => {
                self.deadline_ms = Some(now_ms.saturating_add(times.work_ms));
            }
            _ => {}
        }
    }

    fn look(&mut self, times: &Times, now_ms: UnixMs, chance: u64) -> Vec<Act> {
        let late = self.deadline_ms.is_some_and(|deadline_ms| now_ms >= deadline_ms);
        match self.stage {
            Stage::Waiting | Stage::Finishing | Stage::Pausing if late => {
                self.stage = Stage::Recovering;
                self.step_ms = now_ms.saturating_add(times.recover_ms);
                vec![Act::Query]
            }
            _ if now_ms < self.step_ms => Vec::new(),
            Stage::Delivering => self.deliver_otherwise(times, now_ms, chance),
            Stage::Waiting if self.heard_ms.is_none() => self.pause(times, now_ms, chance),
            Stage::Pausing => self.send_again(times, now_ms),
            Stage::Recovering => {
                let end = if self.heard_ms.is_some() { End::Timeout } else { End::Unresponsive };
                vec![self.end(end)]
            }
            Stage::Waiting | Stage::Finishing | Stage::Judging | Stage::Over => Vec::new(),
        }
    }

    fn deliver_otherwise(&mut self, times: &Times, now_ms: UnixMs, chance: u64) -> Vec<Act> {
        let further = self.delivery.saturating_add(1);
        match times.deliveries_ms.get(further) {
            Some(ms) => {
                self.delivery = further;
                self.step_ms = now_ms.saturating_add(*ms);
                vec![Act::Send(further)]
            }
            None if self.retries < times.pauses_ms.len() => self.pause(times, now_ms, chance),
            None => vec![self.end(End::Undelivered)],
        }
    }

    /// Waits before the next try. After the last one there is only the deadline.
    fn pause(&mut self, times: &Times, now_ms: UnixMs, chance: u64) -> Vec<Act> {
        if let Some(ms) = times.pauses_ms.get(self.retries) {
            // From four fifths to six fifths.
            let percent = i64::try_from(chance.checked_rem(41).unwrap_or(0)).unwrap_or(0);
            let ms = ms.saturating_mul(percent.saturating_add(80)).checked_div(100).unwrap_or(*ms);
            self.stage = Stage::Pausing;
            self.step_ms = now_ms.saturating_add(ms);
        } else {
            self.step_ms = self.deadline_ms.unwrap_or(now_ms);
        }
        Vec::new()
    }

    fn send_again(&mut self, times: &Times, now_ms: UnixMs) -> Vec<Act> {
        self.retries = self.retries.saturating_add(1);
        let last = times.deliveries_ms.len().saturating_sub(1);
        let (stage, wait_ms) = match self.taken_ms {
            Some(_) => (Stage::Waiting, times.silent_ms),
            None => (Stage::Delivering, times.deliveries_ms.last().copied().unwrap_or(0)),
        };
        (self.stage, self.delivery) = (stage, last);
        self.step_ms = now_ms.saturating_add(wait_ms);
        // Whoever has it already may never have passed it on: all relays hear of it now.
        vec![Act::Send(last), Act::Resend]
    }

    fn end(&mut self, end: End) -> Act {
        self.stage = Stage::Over;
        self.end = Some(end);
        Act::End(end)
    }

    /// When somebody must look next.
    fn schedule(&mut self, times: &Times, now_ms: UnixMs) {
        self.due_ms = match self.stage {
            Stage::Judging | Stage::Over => now_ms,
            Stage::Recovering => self.step_ms,
            stage => {
                let step_ms = match stage {
                    Stage::Waiting if self.heard_ms.is_some() => UnixMs::MAX,
                    Stage::Finishing => UnixMs::MAX,
                    _ => self.step_ms,
                };
                let look_ms = match self.taken_ms {
                    None => now_ms.saturating_add(times.look_ms),
                    Some(_) => UnixMs::MAX,
                };
                step_ms.min(look_ms).min(self.deadline_ms.unwrap_or(UnixMs::MAX))
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Looks whenever it is due until it is over; what was done, and when.
    fn story(taken_after_ms: i64, signs: &[(i64, Sign)], chance: u64) -> (Course, Vec<(i64, Act)>) {
        let times = Times::default();
        let (mut course, first) = Course::begin(&times, 0);
        let mut done = vec![(0, first)];
        let mut coming = signs.to_vec();
        coming.sort_by_key(|(at_ms, _)| *at_ms);
        let mut coming = coming.into_iter().peekable();
        for _ in 0..10_000 {
            if course.is_settled() {
                break;
            }
            let (now_ms, sign) = match coming.next_if(|(at_ms, _)| *at_ms <= course.due_ms) {
                Some(sign) => sign,
                None => {
                    let now_ms = course.due_ms;
                    (now_ms, Sign::Look { taken: now_ms >= taken_after_ms })
                }
            };
            let (next, acts) = course.after(&times, sign, now_ms, chance);
            let moves = !matches!(sign, Sign::Look { .. }) || next.due_ms > now_ms;
            assert!(next.is_settled() || moves, "{next:?}");
            done.extend(acts.into_iter().map(|act| (now_ms, act)));
            course = next;
        }
        (course, done)
    }

    #[test]
    fn a_request_that_no_relay_takes_is_sent_thrice_and_again_thrice() {
        let (course, done) = story(i64::MAX, &[], 20);
        assert_eq!(course.end, Some(End::Undelivered));
        let again = |at_ms: i64| [(at_ms, Act::Send(2)), (at_ms, Act::Resend)];
        let mut expected = vec![(0, Act::Send(0)), (10_000, Act::Send(1)), (25_000, Act::Send(2))];
        // 45 s, a pause of 5 s; 20 s, a pause of 10 s; 20 s, a pause of 20 s; 20 s.
        expected.extend([again(50_000), again(80_000), again(120_000)].concat());
        expected.push((140_000, Act::End(End::Undelivered)));
        assert_eq!(done, expected);
    }

    #[test]
    fn who_says_nothing_is_asked_again_and_then_unresponsive() {
        let (course, done) = story(0, &[], 20);
        let again = |at_ms: i64| [(at_ms, Act::Send(2)), (at_ms, Act::Resend)];
        let mut expected = vec![(0, Act::Send(0))];
        // Taken at the first look, 250 ms; 30 s of silence before each pause.
        expected.extend([again(35_250), again(75_250), again(125_250)].concat());
        expected.push((300_250, Act::Query));
        expected.push((310_250, Act::End(End::Unresponsive)));
        assert_eq!((done, course.retries), (expected, 3));
    }

    #[test]
    fn signs_make_the_time_longer_so_often() {
        let (_, done) = story(0, &[(1_000, Sign::Processing)], 0);
        assert_eq!(done[1..], [(360_250, Act::Query), (370_250, Act::End(End::Timeout))]);
        let many: Vec<_> = (1..500).map(|s| (s * 1_000, Sign::Processing)).collect();
        let (course, done) = story(0, &many, 0);
        assert_eq!(course.extended, 5);
        assert_eq!(done.last(), Some(&(610_250, Act::End(End::Timeout))));
        // What nobody specified proves that somebody is there, and nothing else.
        let (course, done) = story(0, &[(1_000, Sign::Word), (2_000, Sign::Word)], 0);
        assert_eq!((course.extended, course.heard_ms), (0, Some(1_000)));
        assert_eq!(done.last(), Some(&(310_250, Act::End(End::Timeout))));
    }

    #[test]
    fn nothing_that_a_provider_says_or_names_makes_its_time_shorter() {
        let times = Times::default();
        let (begun, _) = Course::begin(&times, 1_000);
        // A relay of ours has it, which was asked first: no earlier can anybody have begun.
        let mut ours = begun.clone();
        ours.relayed(1_400);
        ours.relayed(9_000);
        assert_eq!(ours.measured_from_ms(1_000), 1_400);
        // Feedback, and a result at once: since when it worked nobody knows.
        let (mut said, _) = begun.after(&times, Sign::Processing, 9_000, 0);
        assert_eq!((said.taken_ms, said.measured_from_ms(1_000)), (Some(9_000), 1_000));
        // An OK that comes only then changes nothing, nor one of a relay that was asked behind one of its own.
        said.relayed(9_100);
        assert_eq!(said.measured_from_ms(1_000), 1_000);
        let (mut second, acts) = begun.after(&times, Sign::Look { taken: false }, 11_000, 0);
        assert_eq!(acts, [Act::Send(1)]);
        second.relayed(11_200);
        assert_eq!(second.measured_from_ms(1_000), 1_000);
    }

    #[test]
    fn what_is_done_must_come_and_is_asked_for() {
        let (_, done) = story(0, &[(5_000, Sign::Done), (6_000, Sign::Done)], 0);
        assert_eq!(done[1..], [(65_000, Act::Query), (75_000, Act::End(End::Timeout))]);
        let (course, done) = story(0, &[(5_000, Sign::Done), (70_000, Sign::Result)], 0);
        assert_eq!(course.stage, Stage::Judging);
        assert_eq!(done[1..], [(65_000, Act::Query), (70_000, Act::Judge)]);
    }

    #[test]
    fn an_answer_counts_although_no_relay_said_anything() {
        let (course, done) =
            story(i64::MAX, &[(3_000, Sign::Processing), (9_000, Sign::Result)], 0);
        assert_eq!((course.taken_ms, course.heard_ms), (Some(3_000), Some(3_000)));
        assert_eq!(done.last(), Some(&(9_000, Act::Judge)));
        for (sign, end) in [(Sign::Failed, End::Failed), (Sign::Unpaid, End::Unpaid)] {
            let (course, done) = story(0, &[(3_000, sign)], 0);
            assert_eq!((course.end, done.last()), (Some(end), Some(&(3_000, Act::End(end)))));
        }
    }

    #[test]
    fn pauses_differ_by_a_fifth() {
        for (chance, at_ms) in [(0, 34_250), (40, 36_250), (41, 34_250), (20, 35_250)] {
            let (_, done) = story(0, &[], chance);
            assert_eq!(done[1], (at_ms, Act::Send(2)), "{chance}");
        }
    }

    fn sign() -> impl Strategy<Value = Sign> {
        prop_oneof![
            Just(Sign::Processing),
            Just(Sign::Done),
            Just(Sign::Word),
            Just(Sign::Paid),
            Just(Sign::Look { taken: false }),
            Just(Sign::Look { taken: true }),
        ]
    }

    proptest! {
        #[test]
        fn whatever_is_said_it_ends_in_time_and_is_read_again(
            signs in prop::collection::vec((0_i64..2_000_000, sign()), 0..200),
            taken_after_ms in 0_i64..200_000,
            chance: u64,
        ) {
            let paid = signs.iter().filter(|(_, sign)| *sign == Sign::Paid).count();
            let (course, done) = story(taken_after_ms, &signs, chance);
            prop_assert!(course.is_settled());
            prop_assert_eq!(done.iter().filter(|(_, act)| matches!(act, Act::End(_))).count(), 1);
            prop_assert!(done.iter().filter(|(_, act)| *act == Act::Resend).count() <= 3);
            let last_ms = done.last().map_or(0, |(at_ms, _)| *at_ms);
            // Delivery, work with all its extensions, what follows it; nobody pays without end.
            let most_ms = 150_000 + 300_000 + 5 * 60_000 + 60_000 + 11 * 10_000;
            prop_assert!(paid > 0 || last_ms <= most_ms, "{last_ms}");
            // As it is kept: in the canonical form, which has no room for every number.
            let text = guild_protocol::json::to_canonical(&course).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Course>(&text).unwrap(), course);
        }
    }
}
