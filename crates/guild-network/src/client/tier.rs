//! How closely a relay is followed, and what moves it up and down. Pure.
//!
//! Two sorts of yield are told apart. *News* are announcers whom the relay was the first to bring: anybody can make
//! keys, so news count little however many they are, and are enough to be polled. *Worth* is what comes of providers
//! that have answered a request of ours: nobody has it for nothing, and without it no stranger's relay gets a socket
//! that stays open.

use guild_protocol::env::UnixMs;
use serde::{Deserialize, Serialize};

/// How closely a relay is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// A socket that stays open.
    Live,
    /// Asked every few minutes.
    Polled,
    /// Asked when it is drawn.
    Sampled,
}

impl Tier {
    /// All of them.
    pub const ALL: [Tier; 3] = [Tier::Live, Tier::Polled, Tier::Sampled];

    /// As people count them: 1 is the closest.
    pub fn number(self) -> i64 {
        match self {
            Tier::Live => 1,
            Tier::Polled => 2,
            Tier::Sampled => 3,
        }
    }

    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::Live => "live",
            Tier::Polled => "polled",
            Tier::Sampled => "sampled",
        }
    }

    fn closer(self) -> Tier {
        if self == Tier::Sampled { Tier::Polled } else { Tier::Live }
    }

    fn farther(self) -> Tier {
        if self == Tier::Live { Tier::Polled } else { Tier::Sampled }
    }
}

/// What a relay did between two looks at it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Window {
    /// Whether it could be reached and answered.
    pub is_reached: bool,
    /// Whether not everything that it has was ever fetched. Then much at once is no flood.
    pub is_first: bool,
    /// Events that it was the first to bring.
    pub events: i64,
    /// Announcers of whom it was the first to bring an announcement.
    pub news: i64,
    /// Signs of life and answers of providers that have answered us, which it was the first to bring.
    pub worth: i64,
    /// Events with a wrong id or signature.
    pub hostile: i64,
    /// Whether it did so much harm that the connection was ended for it.
    pub is_banned: bool,
    /// How long it took to connect.
    pub connect_ms: Option<i64>,
}

/// How a relay stands, as of the last look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// How closely it is followed.
    pub tier: Tier,
    /// Since when.
    pub since_ms: UnixMs,
    /// Why.
    pub why: String,
    /// News of a window, in thousandths, lately.
    pub news_milli: i64,
    /// Worth of a window, in thousandths, lately.
    pub worth_milli: i64,
    /// The share of windows in which it was reached and behaved, in thousandths, lately.
    pub stability_milli: i64,
    /// How long connecting takes, lately.
    pub latency_ms: Option<i64>,
    /// So many windows in a row speak for a closer tier.
    pub rising: i64,
    /// So many windows in a row speak for a farther one.
    pub falling: i64,
    /// It is left alone until then.
    pub banned_until_ms: Option<UnixMs>,
}

impl Standing {
    /// Nothing is known but where it comes from.
    pub fn new(tier: Tier, why: &str, now_ms: UnixMs) -> Standing {
        Standing {
            tier,
            since_ms: now_ms,
            why: why.to_owned(),
            news_milli: 0,
            worth_milli: 0,
            stability_milli: 500,
            latency_ms: None,
            rising: 0,
            falling: 0,
            banned_until_ms: None,
        }
    }

    /// Whether it is left alone now.
    pub fn is_banned(&self, now_ms: UnixMs) -> bool {
        self.banned_until_ms.is_some_and(|until_ms| now_ms < until_ms)
    }

    fn moved(mut self, tier: Tier, why: &str, now_ms: UnixMs) -> Standing {
        (self.rising, self.falling) = (0, 0);
        why.clone_into(&mut self.why);
        if self.tier != tier {
            (self.tier, self.since_ms) = (tier, now_ms);
        }
        self
    }
}

/// What moves relays. Thresholds upwards are higher than downwards, and both must hold for some windows in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// More news or worth in a window do not count.
    pub yield_max: i64,
    /// More news in a window than this are a flood.
    pub flood_news: i64,
    /// More events in a window than this are a flood.
    pub flood_events: i64,
    /// How long a relay that forges is left alone.
    pub ban_ms: i64,
    /// To be polled: so stable, with so much yield, for so many windows.
    pub poll: Bar,
    /// To be kept live: so stable, with so much worth, for so many windows.
    pub live: Bar,
    /// To stay polled.
    pub keep_poll: Bar,
    /// To stay live.
    pub keep_live: Bar,
}

/// What is asked of a relay: one that must be met, or one below which it must not stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    /// Thousandths.
    pub stability_milli: i64,
    /// Thousandths of a window.
    pub yield_milli: i64,
    /// Windows in a row.
    pub windows: i64,
}

impl Default for Rules {
    fn default() -> Rules {
        let bar =
            |stability_milli, yield_milli, windows| Bar { stability_milli, yield_milli, windows };
        Rules {
            yield_max: 8,
            flood_news: 200,
            flood_events: 5_000,
            ban_ms: 3_600_000,
            poll: bar(700, 200, 2),
            live: bar(900, 500, 3),
            keep_poll: bar(400, 20, 12),
            keep_live: bar(600, 100, 6),
        }
    }
}

/// Whether there is room for one more in the closer tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Among those that strangers named and that are kept live.
    pub live: bool,
    /// Among those that are polled.
    pub polled: bool,
}

/// How a relay stands after a window. It never falls below `floor`, where the settings put it, unless it is banned.
///
/// ```
/// use guild_network::client::tier::{Room, Rules, Standing, Tier, Window, decide};
/// let (rules, room) = (Rules::default(), Room { live: true, polled: true });
/// let good = Window { is_reached: true, news: 1, ..Window::default() };
/// let mut standing = Standing::new(Tier::Sampled, "a hint", 0);
/// for now_ms in 1..=3 {
///     standing = decide(&standing, Tier::Sampled, &good, room, &rules, now_ms);
/// }
/// assert_eq!((standing.tier, standing.since_ms), (Tier::Polled, 3));
/// ```
pub fn decide(
    was: &Standing,
    floor: Tier,
    window: &Window,
    room: Room,
    rules: &Rules,
    now_ms: UnixMs,
) -> Standing {
    let flood =
        !window.is_first && (window.news > rules.flood_news || window.events > rules.flood_events);
    let mut is = weighed(was, window, flood, rules);
    if is.banned_until_ms.is_some_and(|until_ms| now_ms >= until_ms) {
        is.banned_until_ms = None;
    }
    if window.hostile > 0 || window.is_banned {
        let why = match window.hostile {
            0 => "banned: it sends what nobody asked for",
            _ => "banned: it sends events with wrong ids or signatures",
        };
        // A relay of the settings has a ban of its own, at its connection; a polled one has only this.
        if floor != Tier::Live {
            is.banned_until_ms = Some(now_ms.saturating_add(rules.ban_ms));
        }
        return is.moved(floor, why, now_ms);
    }
    if flood {
        return is.moved(
            floor,
            "it brings more than anybody can need: that counts for nothing",
            now_ms,
        );
    }
    let (up, down) = (is.speaks_for(rules), is.speaks_against(rules));
    is.rising = if up { is.rising.saturating_add(1) } else { 0 };
    is.falling = if down { is.falling.saturating_add(1) } else { 0 };
    let (rise, fall, has_room) = match is.tier {
        Tier::Sampled => (rules.poll.windows, i64::MAX, room.polled),
        Tier::Polled => (rules.live.windows, rules.keep_poll.windows, room.live),
        Tier::Live => (i64::MAX, rules.keep_live.windows, false),
    };
    if is.rising >= rise && has_room {
        let (tier, why) = (is.tier.closer(), is.reason_up());
        return is.moved(tier, why, now_ms);
    }
    if is.falling >= fall && is.tier < floor {
        let (tier, why) = (is.tier.farther(), is.reason_down(rules));
        return is.moved(tier, why, now_ms);
    }
    is
}

/// A quarter of a mean is of the last window.
fn mean(was: i64, now: i64) -> i64 {
    was.saturating_add(now.saturating_sub(was) / 4)
}

fn weighed(was: &Standing, window: &Window, flood: bool, rules: &Rules) -> Standing {
    let behaved = window.is_reached && window.hostile == 0 && !window.is_banned && !flood;
    let counted = |units: i64| match behaved {
        true => units.clamp(0, rules.yield_max).saturating_mul(1_000),
        false => 0,
    };
    let latency_ms = match (was.latency_ms, window.connect_ms) {
        (Some(was_ms), Some(now_ms)) => Some(mean(was_ms, now_ms)),
        (was_ms, now_ms) => now_ms.or(was_ms),
    };
    Standing {
        news_milli: mean(was.news_milli, counted(window.news)),
        worth_milli: mean(was.worth_milli, counted(window.worth)),
        stability_milli: mean(was.stability_milli, if behaved { 1_000 } else { 0 }),
        latency_ms,
        ..was.clone()
    }
}

impl Standing {
    fn yields(&self) -> i64 {
        self.news_milli.saturating_add(self.worth_milli)
    }

    fn speaks_for(&self, rules: &Rules) -> bool {
        let meets = |bar: Bar, yields: i64| {
            self.stability_milli >= bar.stability_milli && yields >= bar.yield_milli
        };
        match self.tier {
            Tier::Sampled => meets(rules.poll, self.yields()),
            // News alone are free to make.
            Tier::Polled => meets(rules.live, self.worth_milli),
            Tier::Live => false,
        }
    }

    fn speaks_against(&self, rules: &Rules) -> bool {
        let misses = |bar: Bar, yields: i64| {
            self.stability_milli < bar.stability_milli || yields < bar.yield_milli
        };
        match self.tier {
            Tier::Sampled => false,
            Tier::Polled => misses(rules.keep_poll, self.yields()),
            Tier::Live => misses(rules.keep_live, self.worth_milli),
        }
    }

    fn reason_up(&self) -> &'static str {
        match self.tier {
            Tier::Sampled => "it is stable and brings announcements that nobody else brought first",
            _ => "it is stable and brings what providers say that have answered us",
        }
    }

    fn reason_down(&self, rules: &Rules) -> &'static str {
        let bar = if self.tier == Tier::Live { rules.keep_live } else { rules.keep_poll };
        match self.stability_milli < bar.stability_milli {
            true => "it is often out of reach",
            false => "others bring the same earlier",
        }
    }
}

/// Draws up to `count` of `all` places, each at most once.
pub fn draw(all: usize, count: usize, mut next_u64: impl FnMut() -> u64) -> Vec<usize> {
    let mut places: Vec<usize> = (0..all).collect();
    for at in 0..count.min(all) {
        let left = u64::try_from(all.saturating_sub(at)).unwrap_or(1).max(1);
        let drawn = usize::try_from(next_u64() % left).unwrap_or(0);
        places.swap(at, at.saturating_add(drawn));
    }
    places.truncate(count);
    places
}

#[cfg(test)]
mod tests;
