//! How many requests: a bucket for each token and for each place, that fills steadily. Pure, and of bounded size.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use guild_protocol::env::UnixMs;

use super::{Place, code};
use crate::Error;

const MINUTE_MS: i64 = 60_000;

/// How fast a bucket fills, and how much it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many requests in a minute, for as long as one likes.
    pub per_minute: u32,
    /// So many at once, after a pause.
    pub burst: u32,
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bucket {
    /// In 60,000ths of one request, so that every millisecond counts and no fraction is lost.
    level: i64,
    at_ms: UnixMs,
}

impl Rate {
    fn most(self) -> i64 {
        i64::from(self.burst).saturating_mul(MINUTE_MS)
    }

    fn fill(self, bucket: &mut Bucket, now_ms: UnixMs) {
        // A clock that steps back gives nothing and takes nothing.
        let passed_ms = now_ms.saturating_sub(bucket.at_ms).max(0);
        bucket.at_ms = now_ms;
        let more = passed_ms.saturating_mul(i64::from(self.per_minute));
        bucket.level = bucket.level.saturating_add(more).min(self.most());
    }

    /// Takes one out; if there is none, in how many milliseconds there is one.
    fn take(self, bucket: &mut Bucket, now_ms: UnixMs) -> Result<(), i64> {
        self.fill(bucket, now_ms);
        let left = bucket.level.saturating_sub(MINUTE_MS);
        if left >= 0 {
            bucket.level = left;
            return Ok(());
        }
        let missing = left.saturating_neg();
        let per_ms = i64::from(self.per_minute);
        let wait_ms = missing.saturating_add(per_ms).saturating_sub(1).checked_div(per_ms);
        // A bucket that holds nothing never has one.
        Err(wait_ms.filter(|_| self.burst > 0).unwrap_or(i64::MAX))
    }
}

/// A bucket for each of those who came of late. A new one is full.
#[derive(Debug)]
struct Buckets<K> {
    rate: Rate,
    count_max: usize,
    buckets: BTreeMap<K, Bucket>,
}

impl<K: Ord> Buckets<K> {
    fn new(rate: Rate, count_max: usize) -> Buckets<K> {
        Buckets { rate, count_max: count_max.max(1), buckets: BTreeMap::new() }
    }

    fn take<Q: Ord + ToOwned<Owned = K> + ?Sized>(
        &mut self,
        key: &Q,
        now_ms: UnixMs,
    ) -> Result<(), i64>
    where
        K: Borrow<Q>,
    {
        if let Some(bucket) = self.buckets.get_mut(key) {
            return self.rate.take(bucket, now_ms);
        }
        if self.buckets.len() >= self.count_max {
            self.make_room(now_ms);
        }
        let mut bucket = Bucket { level: self.rate.most(), at_ms: now_ms };
        let taken = self.rate.take(&mut bucket, now_ms);
        self.buckets.insert(key.to_owned(), bucket);
        taken
    }

    /// Forgets those that are full again, which changes nothing; if that is not half of them, the fuller half, which
    /// gives least away. So room is made seldom.
    fn make_room(&mut self, now_ms: UnixMs) {
        let rate = self.rate;
        self.buckets.values_mut().for_each(|bucket| rate.fill(bucket, now_ms));
        let mut levels: Vec<i64> = self.buckets.values().map(|bucket| bucket.level).collect();
        levels.sort_unstable();
        let keep = self.count_max / 2;
        let limit = levels.get(keep).copied().unwrap_or(i64::MAX).min(rate.most());
        self.buckets.retain(|_, bucket| bucket.level < limit);
    }
}

/// How a gate works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// For each token.
    pub per_token: Rate,
    /// For each place.
    pub per_place: Rate,
    /// For each place, of those that ask for a nonce or sign in: each leaves rows behind, and anybody can do it.
    pub sign_ins: Rate,
    /// How many of each are remembered.
    pub count_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            per_token: Rate { per_minute: 600, burst: 120 },
            per_place: Rate { per_minute: 1_200, burst: 240 },
            sign_ins: Rate { per_minute: 30, burst: 30 },
            count_max: 16_384,
        }
    }
}

/// Which limit is reached, and when it is worth trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// What was counted.
    pub of: Counted,
    /// In so many milliseconds the next request passes.
    pub retry_after_ms: i64,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Requests with one token.
    Token,
    /// Requests from one place.
    Place,
    /// Requests for a nonce or to sign in, from one place.
    SignIns,
}

impl From<Limited> for Error {
    fn from(limited: Limited) -> Error {
        let of = match limited.of {
            Counted::Token => "with this token",
            Counted::Place => "from this address",
            Counted::SignIns => "to sign in from this address",
        };
        let retry_after_ms = limited.retry_after_ms;
        let message = format!("too many requests {of}; try again in {retry_after_ms} ms");
        Error::Limited { code: &code::RATE_LIMITED, message, retry_after_ms }
    }
}

/// Lets requests pass, or not.
///
/// ```
/// # use guild_hosting::access::rate::{Counted, Gate, Options, Rate};
/// let rate = Rate { per_minute: 60, burst: 1 };
/// let mut gate = Gate::new(&Options { per_place: rate, ..Options::default() });
/// let address = "192.0.2.1".parse().unwrap();
/// gate.come(address, 0).unwrap();
/// let limited = gate.come(address, 400).unwrap_err();
/// assert_eq!((limited.of, limited.retry_after_ms), (Counted::Place, 600));
/// gate.come(address, 1_000).unwrap();
/// ```
#[derive(Debug)]
pub struct Gate {
    tokens: Buckets<String>,
    places: Buckets<Place>,
    sign_ins: Buckets<Place>,
}

impl Gate {
    /// A gate that has seen nobody.
    pub fn new(options: &Options) -> Gate {
        Gate {
            tokens: Buckets::new(options.per_token, options.count_max),
            places: Buckets::new(options.per_place, options.count_max),
            sign_ins: Buckets::new(options.sign_ins, options.count_max),
        }
    }

    /// Counts a request from this address: before anything else is done for it.
    pub fn come(&mut self, address: IpAddr, now_ms: UnixMs) -> Result<(), Limited> {
        let taken = self.places.take(&Place::of(address), now_ms);
        taken.map_err(|retry_after_ms| Limited { of: Counted::Place, retry_after_ms })
    }

    /// Counts a request for a nonce or to sign in, beside [`Gate::come`].
    pub fn knock(&mut self, address: IpAddr, now_ms: UnixMs) -> Result<(), Limited> {
        let taken = self.sign_ins.take(&Place::of(address), now_ms);
        taken.map_err(|retry_after_ms| Limited { of: Counted::SignIns, retry_after_ms })
    }

    /// Counts a request of a caller, by [`Caller::rate_key`](super::Caller::rate_key): once it is known that the token
    /// is good, so that nobody can use up what is another one's.
    pub fn pass(&mut self, rate_key: &str, now_ms: UnixMs) -> Result<(), Limited> {
        let taken = self.tokens.take(rate_key, now_ms);
        taken.map_err(|retry_after_ms| Limited { of: Counted::Token, retry_after_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Rate = Rate { per_minute: 3, burst: 2 };

    fn taken(bucket: &mut Bucket, now_ms: i64) -> usize {
        (0..9).filter(|_| SLOW.take(bucket, now_ms).is_ok()).count()
    }

    #[test]
    fn a_minute_gives_so_many_and_time_gives_them_back() {
        let mut bucket = Bucket { level: SLOW.most(), at_ms: 0 };
        assert_eq!(taken(&mut bucket, 0), 2);
        assert_eq!(SLOW.take(&mut bucket, 0), Err(20_000));
        assert_eq!(SLOW.take(&mut bucket, 19_999), Err(1));
        assert_eq!(taken(&mut bucket, 20_000), 1);
        assert_eq!(taken(&mut bucket, 10_000), 0, "the clock stepped back");
        assert_eq!(taken(&mut bucket, i64::MAX), 2, "a long pause gives a burst, not more");
        for none in [Rate { per_minute: 0, burst: 0 }, Rate { per_minute: 9, burst: 0 }] {
            let mut bucket = Bucket { level: none.most(), at_ms: 0 };
            assert_eq!(none.take(&mut bucket, i64::MAX), Err(i64::MAX));
        }
    }

    #[test]
    fn a_flood_of_names_is_bounded_and_gives_the_greedy_nothing_back() {
        let mut buckets: Buckets<String> = Buckets::new(SLOW, 100);
        assert_eq!((0..9).filter(|_| buckets.take("greedy", 0).is_ok()).count(), 2);
        for n in 0..10_000 {
            assert!(buckets.take(format!("guest {n}").as_str(), 1).is_ok());
            assert!(buckets.buckets.len() <= 100);
        }
        assert!(buckets.take("greedy", 2).is_err(), "the emptiest buckets are forgotten last");
    }

    #[test]
    fn tokens_and_places_are_counted_apart() {
        let options = Options { per_token: SLOW, per_place: SLOW, sign_ins: SLOW, count_max: 9 };
        let mut gate = Gate::new(&options);
        let [here, neighbour, there] =
            ["2001:db8::1", "2001:db8::2", "10.0.0.1"].map(|text| text.parse().unwrap());
        assert!(gate.come(here, 0).is_ok() && gate.come(neighbour, 0).is_ok());
        let limited = gate.come(here, 0).unwrap_err();
        assert_eq!(limited, Limited { of: Counted::Place, retry_after_ms: 20_000 });
        assert_eq!(Error::from(limited).code(), &code::RATE_LIMITED);
        assert!(gate.come(there, 0).is_ok());
        assert!(gate.knock(here, 0).is_ok() && gate.knock(neighbour, 0).is_ok());
        assert_eq!(gate.knock(here, 0).unwrap_err().of, Counted::SignIns);
        assert!(gate.pass("session_a", 0).is_ok() && gate.pass("session_a", 0).is_ok());
        assert_eq!(gate.pass("session_a", 0).unwrap_err().of, Counted::Token);
        assert!(gate.pass("session_b", 0).is_ok());
    }
}
