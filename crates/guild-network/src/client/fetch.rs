//! Fetching what a relay has stored, page by page from the newest to the oldest. Pure.
//!
//! Relays cut their answers where they like, and seldom say so. So a page that is short proves nothing: only an empty
//! one does. The next page ends at the second of the oldest event of this one, because a second may have been cut in
//! two.
//!
//! What is newer than the watermark is asked for first, one page of it; whatever that leaves is a gap of its own, which
//! the watermark names. So however early a connection ends, or is at its limit, the next one goes on below.

use crate::marks::{Gap, Mark};

/// Nothing is newer than this much after now.
pub(super) const FUTURE_S: u64 = 15 * 60;

/// How far the fetch of one want has come.
#[derive(Debug)]
pub(super) struct Fetch {
    mark: Option<Mark>,
    /// Since when the relay tells what is new: what is newer comes by itself.
    begun_s: u64,
    floor_s: u64,
    overlap_s: u64,
    /// What has come in since the watermark.
    newer: Option<Gap>,
    /// What earlier looks at that have left, above the lowest page ever fetched.
    between: Option<Gap>,
    /// What lies below the lowest page ever fetched.
    older: Option<Gap>,
    /// Whether a page of one of them is being fetched.
    is_paging: bool,
    page_events: u64,
    page_oldest_s: u64,
    events_max: u64,
    events_left: u64,
    /// What the page was asked with.
    page: Option<Page>,
    page_limit: u64,
    /// Below the oldest event of the last page, which had fewer events than were asked for.
    below_short: Option<Gap>,
    /// Whether the relay has shown that it cut such a page.
    is_cut: bool,
    /// Once the page is over, there is a new gap: the relay tells what is new since then, and did not before.
    reopened_s: Option<u64>,
}

/// What the next page is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) since_s: u64,
    pub(super) until_s: u64,
}

impl Fetch {
    /// What is missing, given what an earlier connection has got. After `events_max` events it is
    /// [spent](Fetch::is_spent).
    pub(super) fn new(
        mark: Option<Mark>,
        now_s: u64,
        lookback_s: Option<u64>,
        overlap_s: u64,
        events_max: u64,
    ) -> Fetch {
        let top_s = now_s.saturating_add(FUTURE_S);
        let floor_s = lookback_s.map_or(0, |lookback_s| now_s.saturating_sub(lookback_s));
        // A watermark of the future was set by a wrong clock: nobody knows what it stands for.
        let mark = mark.filter(|mark| mark.until_s <= top_s);
        let (newer_since_s, between, older) = match &mark {
            None => (floor_s, None, None),
            Some(mark) => {
                let since_s = mark.until_s.saturating_sub(overlap_s).max(floor_s);
                let between = mark.gap.map(|gap| Gap { since_s: gap.since_s.max(floor_s), ..gap });
                let older = Gap { since_s: floor_s, until_s: mark.low_s };
                let older = Some(older).filter(|_| !mark.complete);
                let is_gap = |gap: &Gap| gap.since_s <= gap.until_s;
                (since_s, between.filter(is_gap), older.filter(is_gap))
            }
        };
        Fetch {
            mark,
            begun_s: now_s,
            floor_s,
            overlap_s,
            newer: Some(Gap { since_s: newer_since_s, until_s: top_s }),
            between,
            older,
            is_paging: false,
            page_events: 0,
            page_oldest_s: u64::MAX,
            events_max,
            events_left: events_max,
            page: None,
            page_limit: 0,
            below_short: None,
            is_cut: false,
            reopened_s: None,
        }
    }

    /// The relay had stopped telling what is new, and does so again since now. What came in between is fetched.
    pub(super) fn reopen(&mut self, now_s: u64) {
        self.reopened_s = Some(now_s);
        if !self.is_paging {
            self.open_gap();
        }
    }

    fn open_gap(&mut self) {
        let Some(now_s) = self.reopened_s.take() else { return };
        let top_s = now_s.saturating_add(FUTURE_S);
        let until_s = self.mark.as_ref().map_or(0, |mark| mark.until_s);
        let since_s = match self.newer {
            // What was missing before is missing still.
            Some(gap) => gap.since_s,
            None => until_s.saturating_sub(self.overlap_s).max(self.floor_s).min(top_s),
        };
        self.newer = Some(Gap { since_s, until_s: top_s });
        self.begun_s = now_s;
        self.renew();
    }

    /// The page to ask for; nothing if all is there, or no more is taken for now.
    pub(super) fn page(&self) -> Option<Page> {
        let Gap { since_s, until_s } = self.missing().filter(|_| self.events_left > 0)?;
        Some(Page { since_s, until_s })
    }

    fn missing(&self) -> Option<Gap> {
        self.newer.or(self.between).or(self.older)
    }

    /// Whether all is there.
    pub(super) fn is_done(&self) -> bool {
        self.missing().is_none()
    }

    /// Whether something is missing and as much was taken as may be for now.
    pub(super) fn is_spent(&self) -> bool {
        !self.is_done() && self.events_left == 0
    }

    /// As much may be taken again.
    pub(super) fn renew(&mut self) {
        self.events_left = self.events_max;
    }

    /// Begins a page of at most so many events, perhaps once more.
    pub(super) fn begin(&mut self, limit: u64) {
        (self.is_paging, self.page_events, self.page_oldest_s) = (true, 0, u64::MAX);
        (self.page, self.page_limit) = (self.page(), limit);
    }

    /// Whether the relay cut a page that had room for more, and has shown so since this was asked last.
    pub(super) fn take_cut(&mut self) -> bool {
        std::mem::take(&mut self.is_cut)
    }

    /// An event of the page has come; how many it has now.
    pub(super) fn take(&mut self, created_s: u64) -> u64 {
        self.page_events = self.page_events.saturating_add(1);
        self.page_oldest_s = self.page_oldest_s.min(created_s);
        // It was asked for all of that before, with room for it, and did not give it.
        self.is_cut |=
            self.below_short.is_some_and(|gap| (gap.since_s..gap.until_s).contains(&created_s));
        self.page_events
    }

    /// The page is over. Once its events are stored, this is the watermark, if it has changed.
    pub(super) fn end(&mut self) -> Option<Mark> {
        self.is_paging = false;
        let is_short = self.page_events > 0 && self.page_events < self.page_limit;
        let below =
            self.page.map(|page| Gap { since_s: page.since_s, until_s: self.page_oldest_s });
        self.below_short = below.filter(|_| is_short);
        let mark = self.end_page();
        self.open_gap();
        mark
    }

    fn end_page(&mut self) -> Option<Mark> {
        self.events_left = self.events_left.saturating_sub(self.page_events);
        let (is_empty, oldest_s) = (self.page_events == 0, self.page_oldest_s);
        let rest = |gap: Gap| {
            // A second with more events than a page holds cannot be seen whole: go on below it.
            let until_s = match oldest_s < gap.until_s {
                true => Some(oldest_s),
                false => gap.until_s.checked_sub(1),
            };
            let until_s = until_s.filter(|until_s| !is_empty && *until_s >= gap.since_s);
            until_s.map(|until_s| Gap { until_s, ..gap })
        };
        if let Some(gap) = self.newer.take() {
            match (rest(gap), self.mark.is_none(), self.between) {
                (Some(rest), true, _) => self.older = Some(rest),
                // What an earlier look has left begins below: both are fetched as one.
                (Some(rest), false, Some(left)) => {
                    self.between = Some(Gap { since_s: left.since_s.min(rest.since_s), ..rest });
                }
                (Some(rest), false, None) => self.between = Some(rest),
                (None, ..) => {}
            }
            return self.moved(self.begun_s);
        }
        if let Some(gap) = self.between.take() {
            self.between = rest(gap);
        } else {
            self.older = rest(self.older.take()?);
        }
        self.moved(self.mark.as_ref().map_or(self.begun_s, |mark| mark.until_s))
    }

    /// The watermark at this second, given what is missing below.
    fn moved(&mut self, until_s: u64) -> Option<Mark> {
        let low_s = self.older.map_or(self.floor_s, |older| older.until_s);
        self.set(Mark { until_s, gap: self.between, low_s, complete: self.older.is_none() })
    }

    /// The relay has shown that whatever came before this moment has been sent.
    pub(super) fn confirm(&mut self, at_s: u64) -> Option<Mark> {
        let mark = self.mark.clone().filter(|mark| self.newer.is_none() && at_s > mark.until_s)?;
        self.set(Mark { until_s: at_s, ..mark })
    }

    fn set(&mut self, mark: Mark) -> Option<Mark> {
        self.mark = Some(mark.clone());
        Some(mark)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW_S: u64 = 10_000;

    /// A relay with events at these seconds that answers with at most `limit` of them.
    fn answer(stored: &[u64], page: Page, limit: usize) -> Vec<u64> {
        let within = |at: &&u64| (page.since_s..=page.until_s).contains(*at);
        let mut found: Vec<u64> = stored.iter().filter(within).copied().collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.truncate(limit);
        found
    }

    #[test]
    fn a_relay_that_cuts_pages_with_room_is_noticed_and_an_honest_one_is_not() {
        let stored: Vec<u64> = (0..30).map(|n| 1_000 + n * 10).collect();
        let cut = |really: usize, asked: u64| {
            let mut fetch = Fetch::new(None, NOW_S, None, 60, 1_000);
            let mut cuts = 0;
            for _ in 0..100 {
                let Some(page) = fetch.page() else { break };
                fetch.begin(asked);
                for at in answer(&stored, page, really) {
                    fetch.take(at);
                }
                fetch.end();
                cuts += u32::from(fetch.take_cut());
            }
            cuts
        };
        assert_eq!((cut(500, 500), cut(7, 7), cut(30, 500)), (0, 0, 0));
        assert!(cut(3, 500) > 5);
    }

    /// Fetches for at most `pages` pages; the seconds seen.
    fn run(fetch: &mut Fetch, stored: &[u64], limit: usize, pages: usize) -> Vec<u64> {
        let mut seen = Vec::new();
        for _ in 0..pages {
            let Some(page) = fetch.page() else { break };
            fetch.begin(u64::try_from(limit).unwrap());
            for at in answer(stored, page, limit) {
                fetch.take(at);
                seen.push(at);
            }
            fetch.end();
        }
        seen
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn everything_is_seen_whatever_the_relay_cuts_and_whenever_the_connection_breaks(
            stored in prop::collection::btree_set(0..=NOW_S, 0..60),
            limit in 1_usize..8,
            breaks in prop::collection::vec(1_usize..6, 0..6),
        ) {
            let stored: Vec<u64> = stored.into_iter().collect();
            let (mut mark, mut seen) = (None, std::collections::BTreeSet::new());
            for pages in breaks.into_iter().chain([usize::MAX]) {
                let mut fetch = Fetch::new(mark, NOW_S, None, 10, u64::MAX);
                seen.extend(run(&mut fetch, &stored, limit, pages));
                mark = fetch.mark;
            }
            prop_assert_eq!(seen.into_iter().collect::<Vec<_>>(), stored);
            prop_assert!(mark.unwrap().complete);
        }
    }

    #[test]
    fn later_connections_fetch_only_what_is_new_and_an_overlap() {
        let mark = Mark { until_s: 9_000, gap: None, low_s: 0, complete: true };
        let mut fetch = Fetch::new(Some(mark), NOW_S, None, 100, u64::MAX);
        assert_eq!(fetch.page(), Some(Page { since_s: 8_900, until_s: NOW_S + FUTURE_S }));
        let seen = run(&mut fetch, &[5, 8_899, 8_900, 9_999], 500, 9);
        assert!(seen.contains(&8_900) && !seen.contains(&8_899));
        assert_eq!(fetch.mark, Some(Mark { until_s: NOW_S, gap: None, low_s: 0, complete: true }));
    }

    #[test]
    fn neither_a_future_event_nor_a_wrong_clock_freezes_the_watermark() {
        let mut fetch = Fetch::new(None, NOW_S, None, 10, u64::MAX);
        run(&mut fetch, &[NOW_S + FUTURE_S], 500, 9);
        assert_eq!(fetch.mark.as_ref().unwrap().until_s, NOW_S);
        let far = Mark { until_s: NOW_S * 9, gap: None, low_s: 0, complete: true };
        let fetch = Fetch::new(Some(far), NOW_S, None, 10, u64::MAX);
        assert_eq!(fetch.page().unwrap().since_s, 0, "all of it once more");
    }

    #[test]
    fn a_relay_that_never_ends_is_left_at_the_limit_and_the_next_connection_goes_on_below() {
        let stored: Vec<u64> = (0..100).collect();
        let (mut mark, mut seen) = (None, Vec::new());
        for connections in 1..100 {
            let mut fetch = Fetch::new(mark, NOW_S, None, 10, 7);
            let got = run(&mut fetch, &stored, 3, usize::MAX);
            assert!(got.len() <= 9, "{got:?}");
            seen.extend(got);
            mark = fetch.mark.clone();
            assert_eq!(fetch.is_spent(), !mark.as_ref().unwrap().complete);
            if fetch.is_done() {
                assert!(connections > 10);
                break;
            }
            assert_eq!(fetch.page(), None, "no more for now");
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, stored);
        assert!(mark.unwrap().complete);
    }

    #[test]
    fn what_is_spent_goes_on_where_it_was_when_it_may() {
        let mut fetch = Fetch::new(None, NOW_S, None, 10, 3);
        run(&mut fetch, &[10, 20, 30, 40, 50], 3, usize::MAX);
        assert!(fetch.is_spent());
        fetch.renew();
        assert_eq!(fetch.page(), Some(Page { since_s: 0, until_s: 30 }));
    }

    #[test]
    fn much_that_is_new_is_fetched_across_connections_that_each_end_early() {
        let mark = Mark { until_s: 1_000, gap: None, low_s: 700, complete: false };
        let stored: Vec<u64> = (0..=NOW_S / 10).map(|n| n * 10).collect();
        let (mut mark, mut seen) = (Some(mark), std::collections::BTreeSet::new());
        for connections in 1..1_000 {
            let now_s = NOW_S + connections;
            let mut fetch = Fetch::new(mark, now_s, None, 5, 20);
            seen.extend(run(&mut fetch, &stored, 10, 3));
            mark = fetch.mark.clone();
            assert_eq!(mark.as_ref().unwrap().until_s, now_s, "the newest is there each time");
            if fetch.is_done() {
                break;
            }
        }
        let above = |at: &&u64| **at <= 700 || **at >= 1_000;
        let all: std::collections::BTreeSet<u64> = stored.iter().filter(above).copied().collect();
        assert_eq!(all.difference(&seen).count(), 0, "nothing is left out");
        assert_eq!(mark.map(|mark| (mark.gap, mark.complete)), Some((None, true)));
    }

    #[test]
    fn what_came_while_nothing_new_was_told_is_fetched_before_the_watermark_moves() {
        let mut fetch = Fetch::new(None, NOW_S, None, 100, u64::MAX);
        run(&mut fetch, &[5, 50], 500, 9);
        assert!(fetch.confirm(NOW_S + 1_000).is_some());
        fetch.reopen(NOW_S + 2_000);
        assert_eq!(fetch.confirm(NOW_S + 3_000), None, "nobody knows what came in between");
        let gap = Page { since_s: NOW_S + 900, until_s: NOW_S + 2_000 + FUTURE_S };
        assert_eq!(fetch.page(), Some(gap));
        let stored: Vec<u64> = (0..20).map(|n| NOW_S + 1_500 + n).collect();
        let seen = run(&mut fetch, &stored, 3, usize::MAX);
        assert!(stored.iter().all(|at| seen.contains(at)), "{seen:?}");
        let mark = Mark { until_s: NOW_S + 2_000, gap: None, low_s: 0, complete: true };
        assert_eq!(fetch.mark, Some(mark));
        assert!(fetch.confirm(NOW_S + 3_000).is_some());
    }

    #[test]
    fn a_gap_that_opens_during_a_page_waits_for_its_end() {
        let mark = Mark { until_s: 9_000, gap: None, low_s: 700, complete: false };
        let mut fetch = Fetch::new(Some(mark), NOW_S, None, 100, u64::MAX);
        run(&mut fetch, &[], 500, 1);
        assert_eq!(fetch.page(), Some(Page { since_s: 0, until_s: 700 }));
        fetch.begin(500);
        fetch.take(600);
        fetch.reopen(NOW_S + 50);
        let mark = fetch.end().unwrap();
        assert_eq!((mark.until_s, mark.low_s), (NOW_S, 600), "the page was one of the older ones");
        let gap = Page { since_s: NOW_S - 100, until_s: NOW_S + 50 + FUTURE_S };
        assert_eq!(fetch.page(), Some(gap));
        // Once more before that is fetched: it only grows.
        fetch.reopen(NOW_S + 90);
        assert_eq!(fetch.page(), Some(Page { until_s: NOW_S + 90 + FUTURE_S, ..gap }));
        run(&mut fetch, &[], 500, 1);
        assert_eq!(fetch.page(), Some(Page { since_s: 0, until_s: 600 }), "then the rest");
    }

    #[test]
    fn a_confirmation_moves_a_watermark_only_when_nothing_is_missing_below_it() {
        let mut fetch = Fetch::new(None, NOW_S, Some(100), 10, u64::MAX);
        assert_eq!(fetch.confirm(NOW_S + 5), None);
        run(&mut fetch, &[NOW_S], 1, 9);
        let mark = fetch.confirm(NOW_S + 5).unwrap();
        assert_eq!((mark.until_s, mark.low_s), (NOW_S + 5, NOW_S - 100));
        assert_eq!(fetch.confirm(NOW_S + 4), None);
    }
}
