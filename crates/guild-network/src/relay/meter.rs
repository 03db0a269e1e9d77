//! How many in a minute: a bucket that fills steadily and holds what a minute allows.

use std::collections::BTreeMap;
use std::net::IpAddr;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;

const MINUTE_MS: i64 = 60_000;

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meter {
    per_minute: i64,
    /// In 60,000ths of one thing, so that every millisecond counts and no fraction is lost.
    level: i64,
    at_ms: UnixMs,
}

impl Meter {
    /// A full one.
    pub(crate) fn new(per_minute: u32, now_ms: UnixMs) -> Meter {
        let per_minute = i64::from(per_minute);
        Meter { per_minute, level: per_minute * MINUTE_MS, at_ms: now_ms }
    }

    fn fill(&mut self, now_ms: UnixMs) {
        // A clock that steps back gives nothing and takes nothing.
        let passed_ms = now_ms.saturating_sub(self.at_ms).clamp(0, MINUTE_MS);
        self.at_ms = now_ms;
        let most = self.per_minute * MINUTE_MS;
        self.level = (self.level + passed_ms * self.per_minute).min(most);
    }

    /// Takes one out, if there is one.
    pub(crate) fn take(&mut self, now_ms: UnixMs) -> bool {
        self.fill(now_ms);
        let there = self.level >= MINUTE_MS;
        if there {
            self.level -= MINUTE_MS;
        }
        there
    }

    /// Whether there is one.
    pub(crate) fn has(&mut self, now_ms: UnixMs) -> bool {
        self.fill(now_ms);
        self.level >= MINUTE_MS
    }

    fn is_full(&mut self, now_ms: UnixMs) -> bool {
        self.fill(now_ms);
        self.level == self.per_minute * MINUTE_MS
    }
}

/// A meter for each author of late.
#[derive(Debug)]
pub(crate) struct Keys {
    per_minute: u32,
    keys_max: usize,
    meters: BTreeMap<PublicKey, Meter>,
}

impl Keys {
    pub(crate) fn new(per_minute: u32, keys_max: usize) -> Keys {
        Keys { per_minute, keys_max, meters: BTreeMap::new() }
    }

    /// Whether this author may have one more stored.
    pub(crate) fn allows(&mut self, key: &PublicKey, now_ms: UnixMs) -> bool {
        self.meters.get_mut(key).is_none_or(|meter| meter.has(now_ms))
    }

    /// Counts one that was stored. Not earlier: what is merely claimed must not use up what its alleged author has.
    pub(crate) fn count(&mut self, key: &PublicKey, now_ms: UnixMs) {
        if !self.meters.contains_key(key) && self.meters.len() >= self.keys_max {
            self.meters.retain(|_, meter| !meter.is_full(now_ms));
            if self.meters.len() >= self.keys_max {
                // So many keys are a crowd or one person; each connection has a limit of its own.
                self.meters.pop_first();
            }
        }
        let per_minute = self.per_minute;
        self.meters.entry(*key).or_insert_with(|| Meter::new(per_minute, now_ms)).take(now_ms);
    }
}

/// The open connections by where they come from.
#[derive(Debug, Default)]
pub struct Places {
    open: BTreeMap<IpAddr, usize>,
    all: usize,
}

impl Places {
    /// Counts one more, unless that is too many: then says of what, in a word.
    pub fn enter(
        &mut self,
        address: IpAddr,
        per_address: usize,
        in_all: usize,
    ) -> Result<(), &'static str> {
        let open = self.open.get(&place(address)).copied().unwrap_or(0);
        if self.all >= in_all {
            return Err("connections");
        }
        if open >= per_address {
            return Err("connections_of_address");
        }
        self.all += 1;
        self.open.insert(place(address), open + 1);
        Ok(())
    }

    /// One that entered is gone.
    pub fn leave(&mut self, address: IpAddr) {
        self.all = self.all.saturating_sub(1);
        if let Some(open) = self.open.get_mut(&place(address)) {
            *open -= 1;
            if *open == 0 {
                self.open.remove(&place(address));
            }
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all
    }
}

/// Whoever has one IPv6 address usually has its whole /64.
fn place(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => std::net::Ipv6Addr::from(u128::from(v6) >> 64 << 64).into(),
        },
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;

    #[test]
    fn a_minute_gives_so_many_and_time_gives_them_back() {
        let mut meter = Meter::new(3, 0);
        let taken = |meter: &mut Meter, now_ms| (0..9).filter(|_| meter.take(now_ms)).count();
        assert_eq!(taken(&mut meter, 0), 3);
        assert_eq!(taken(&mut meter, 19_999), 0);
        assert_eq!(taken(&mut meter, 20_000), 1);
        assert_eq!(taken(&mut meter, 10_000), 0, "the clock stepped back");
        assert_eq!(taken(&mut meter, i64::MAX), 3);
        let mut none = Meter::new(0, 0);
        assert!(!none.take(1_000_000));
    }

    fn key(number: u32) -> PublicKey {
        format!("{:064x}", number + 1).parse::<SecretKey>().unwrap().public_key()
    }

    #[test]
    fn authors_are_counted_apart_and_their_number_is_bounded() {
        let mut keys = Keys::new(1, 2);
        keys.count(&key(1), 0);
        assert!(!keys.allows(&key(1), 0) && keys.allows(&key(2), 0));
        keys.count(&key(2), 0);
        keys.count(&key(3), 0);
        assert_eq!(keys.meters.len(), 2);
        assert!(!keys.allows(&key(3), 0));
        keys.count(&key(4), 60_000);
        assert_eq!(keys.meters.len(), 1, "those that are full again are forgotten first");
    }

    #[test]
    fn connections_are_counted_by_network_and_in_all() {
        let mut places = Places::default();
        let [a, b, c] =
            ["2001:db8::1", "2001:db8::2", "::ffff:10.0.0.1"].map(|s| s.parse().unwrap());
        assert_eq!(places.enter(a, 1, 2), Ok(()));
        assert_eq!(places.enter(b, 1, 2), Err("connections_of_address"));
        assert_eq!(places.enter("10.0.0.1".parse().unwrap(), 1, 2), Ok(()));
        assert_eq!(places.enter(c, 9, 2), Err("connections"));
        places.leave(a);
        assert_eq!(places.enter(b, 1, 2), Ok(()));
        places.leave(b);
        places.leave(c);
        assert_eq!((places.count(), places.open.len()), (0, 0));
    }
}
