//! What was tried, and what became of it.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// How many different refusals are kept apart.
const MAX_REFUSALS: usize = 64;

/// Why something did not get through. The names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The request, or its body, is not written as it must be.
    BadRequest,
    /// The request or greeting is too long.
    TooLarge,
    /// The request or greeting did not come in time.
    TooSlow,
    /// There are too many connections.
    TooMany,
    /// No rule names the host and port.
    NotListed,
    /// The address is special, and no rule means it.
    SpecialAddress,
    /// What came through a tunnel to a port of TLS is no greeting.
    NotTls,
    /// The greeting names nobody.
    NoServerName,
    /// The greeting names somebody else.
    OtherServerName,
    /// The name has no address.
    Unresolved,
    /// Nobody answers at any address.
    Unreachable,
}

impl Reason {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Reason::BadRequest => "bad_request",
            Reason::TooLarge => "too_large",
            Reason::TooSlow => "too_slow",
            Reason::TooMany => "too_many",
            Reason::NotListed => "not_listed",
            Reason::SpecialAddress => "special_address",
            Reason::NotTls => "not_tls",
            Reason::NoServerName => "no_server_name",
            Reason::OtherServerName => "other_server_name",
            Reason::Unresolved => "unresolved",
            Reason::Unreachable => "unreachable",
        }
    }

    /// What happens to an attempt for this reason.
    pub fn verdict(self) -> Verdict {
        match self {
            Reason::Unresolved | Reason::Unreachable => Verdict::Failed,
            _ => Verdict::Refused,
        }
    }

    /// The status that the program gets.
    pub(super) fn status(self) -> &'static str {
        match self {
            Reason::BadRequest => "400 Bad Request",
            Reason::TooLarge => "431 Request Header Fields Too Large",
            Reason::TooSlow => "408 Request Timeout",
            Reason::TooMany => "503 Service Unavailable",
            Reason::Unresolved | Reason::Unreachable => "502 Bad Gateway",
            _ => "403 Forbidden",
        }
    }
}

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was let through.
    Allowed,
    /// It was not.
    Refused,
    /// It was allowed, but led nowhere.
    Failed,
}

/// One attempt to reach somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Whom; empty if that was not to be understood.
    pub host: String,
    /// Which port; 0 if that was not to be understood.
    pub port: u16,
    /// What became of it.
    pub verdict: Verdict,
    /// Why it did not get through.
    pub reason: Option<Reason>,
    /// More about that, for people.
    pub detail: String,
    /// What the program sent.
    pub up_bytes: u64,
    /// What it got.
    pub down_bytes: u64,
}

/// Refused attempts that are alike. This is a record of what a program wanted, and no accusation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Whom; empty if that was not to be understood.
    pub host: String,
    /// Which port.
    pub port: u16,
    /// Why.
    pub reason: Reason,
    /// More about the first of them, for people.
    pub detail: String,
    /// How often.
    pub count: u64,
}

/// What a sandbox tried to reach so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Attempts that were let through.
    pub allowed: u64,
    /// Attempts that were not.
    pub refused: u64,
    /// Attempts that were allowed, but led nowhere.
    pub failed: u64,
    /// How often for each reason.
    pub reasons: BTreeMap<Reason, u64>,
    /// What was sent, all attempts together.
    pub up_bytes: u64,
    /// What came, all attempts together.
    pub down_bytes: u64,
    /// What was refused; the first 64 different ones.
    pub refusals: Vec<Refusal>,
    /// The latest attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// Older attempts that are only counted.
    pub forgotten: u64,
}

/// Counts, and keeps the latest.
#[derive(Debug)]
pub(super) struct Log {
    report: Report,
    latest: VecDeque<Attempt>,
    most: usize,
}

/// The number of an attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry(u64);

impl Log {
    pub(super) fn new(most: usize) -> Log {
        Log { report: Report::default(), latest: VecDeque::new(), most }
    }

    pub(super) fn allowed(&mut self, host: String, port: u16) -> Entry {
        self.report.allowed += 1;
        let verdict = Verdict::Allowed;
        let (reason, detail) = (None, String::new());
        self.push(Attempt { host, port, verdict, reason, detail, up_bytes: 0, down_bytes: 0 })
    }

    pub(super) fn stopped(&mut self, host: String, port: u16, reason: Reason, detail: String) {
        *self.report.reasons.entry(reason).or_default() += 1;
        let verdict = reason.verdict();
        if verdict == Verdict::Failed {
            self.report.failed += 1;
        } else {
            self.report.refused += 1;
            self.refuse(&host, port, reason, &detail);
        }
        let reason = Some(reason);
        self.push(Attempt { host, port, verdict, reason, detail, up_bytes: 0, down_bytes: 0 });
    }

    fn refuse(&mut self, host: &str, port: u16, reason: Reason, detail: &str) {
        let refusals = &mut self.report.refusals;
        let alike = |one: &&mut Refusal| (&*one.host, one.port, one.reason) == (host, port, reason);
        if let Some(known) = refusals.iter_mut().find(alike) {
            known.count += 1;
        } else if refusals.len() < MAX_REFUSALS {
            let (host, detail) = (host.to_owned(), detail.to_owned());
            refusals.push(Refusal { host, port, reason, detail, count: 1 });
        }
    }

    fn push(&mut self, attempt: Attempt) -> Entry {
        self.latest.push_back(attempt);
        if self.latest.len() > self.most {
            self.latest.pop_front();
            self.report.forgotten += 1;
        }
        let kept = u64::try_from(self.latest.len()).unwrap_or_default();
        Entry((self.report.forgotten + kept).saturating_sub(1))
    }

    pub(super) fn moved(&mut self, entry: Entry, up: u64, down: u64) {
        self.report.up_bytes += up;
        self.report.down_bytes += down;
        let place = entry.0.checked_sub(self.report.forgotten);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(attempt) = place.and_then(|place| self.latest.get_mut(place)) {
            attempt.up_bytes += up;
            attempt.down_bytes += down;
        }
    }

    pub(super) fn report(&self) -> Report {
        Report { attempts: self.latest.iter().cloned().collect(), ..self.report.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_all_are_counted() {
        let mut log = Log::new(3);
        let first = log.allowed("a.b".to_owned(), 443);
        log.moved(first, 5, 7);
        let refuse = |log: &mut Log, host: &str| {
            log.stopped(host.to_owned(), 80, Reason::NotListed, "why".to_owned());
        };
        (0..4).for_each(|_| refuse(&mut log, "x.y"));
        // It is no longer kept, and still counts.
        log.moved(first, 1, 1);
        let second = log.allowed("c.d".to_owned(), 80);
        log.stopped("e.f".to_owned(), 1, Reason::Unreachable, String::new());
        log.moved(second, 2, 3);
        let report = log.report();
        assert_eq!((report.allowed, report.refused, report.failed, report.forgotten), (2, 4, 1, 4));
        assert_eq!((report.up_bytes, report.down_bytes), (8, 11));
        let hosts: Vec<_> = report.attempts.iter().map(|a| (a.host.as_str(), a.up_bytes)).collect();
        assert_eq!(hosts, [("x.y", 0), ("c.d", 2), ("e.f", 0)]);
        let [refusal] = report.refusals.as_slice() else { panic!("{report:?}") };
        assert_eq!((refusal.count, refusal.host.as_str()), (4, "x.y"));
        assert_eq!(report.reasons[&Reason::NotListed], 4);
        (0..100).for_each(|n| refuse(&mut log, &format!("h{n}.y")));
        assert_eq!(log.report().refusals.len(), MAX_REFUSALS);
        assert_eq!(log.report().refused, 104);
    }

    #[test]
    fn names_are_those_of_the_wire() {
        for reason in [Reason::BadRequest, Reason::OtherServerName, Reason::NotTls, Reason::TooMany]
        {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
    }
}
