//! The relays that are known: where each comes from, how closely it is followed and why, as rows. So a restart goes on
//! where the node stood.
//!
//! Strangers name relays for free, so everything that they can fill has a bound: so many relays for one who names them,
//! so many at one host, so many in all. What is full makes room only by forgetting what was never of any use.

use std::net::IpAddr;

use guild_protocol::env::UnixMs;
use guild_protocol::identity::PublicKey;
use guild_store::{Error as StoreError, Migration, Rx, Sql, Tx, args};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::client::tier::{Room, Rules, Standing, Tier, Window, decide};
use crate::client::{Address, is_private};

/// The tables of this module, of [`delivery`](crate::delivery) and of the scout.
pub(crate) fn migration() -> Migration {
    let sql = Sql {
        lite: include_str!("../migrations/sqlite/0005_roster.sql"),
        pg: include_str!("../migrations/postgres/0005_roster.sql"),
    };
    Migration { area: "network", number: 5, name: "roster", sql }
}

/// Where a relay is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The settings: always connected.
    Configured,
    /// The settings: polled.
    ConfiguredPolled,
    /// Somebody's list of relays (NIP-65).
    List,
    /// An announcement names it.
    Hint,
}

impl Source {
    /// As it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Configured => "configured",
            Source::ConfiguredPolled => "configured_polled",
            Source::List => "list",
            Source::Hint => "hint",
        }
    }

    /// Below this it does not fall.
    pub fn floor(self) -> Tier {
        match self {
            Source::Configured => Tier::Live,
            Source::ConfiguredPolled => Tier::Polled,
            Source::List | Source::Hint => Tier::Sampled,
        }
    }

    /// Whether a stranger named it.
    pub fn is_strange(self) -> bool {
        matches!(self, Source::List | Source::Hint)
    }

    fn why(self) -> &'static str {
        match self {
            Source::Configured => "network.relays names it",
            Source::ConfiguredPolled => "network.polled_relays names it",
            Source::List => "a provider's list of relays names it",
            Source::Hint => "an announcement names it",
        }
    }

    fn read(text: &str) -> Result<Source> {
        let all = [Source::Configured, Source::ConfiguredPolled, Source::List, Source::Hint];
        all.into_iter()
            .find(|source| source.as_str() == text)
            .ok_or_else(|| StoreError::Decode(format!("{text:?} is no source of relays")).into())
    }
}

/// What has been counted of a relay since it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Looks at it: polls, or stretches of time of one that is live.
    pub windows: i64,
    /// Those in which it could not be reached, or did not answer.
    pub failures: i64,
    /// Such in a row, up to now.
    pub failures_in_row: i64,
    /// Events that it was the first to bring.
    pub events: i64,
    /// Announcers that it was the first to bring.
    pub news: i64,
    /// What it brought first of providers that have answered us.
    pub worth: i64,
    /// Events with a wrong id or signature.
    pub hostile: i64,
    /// Events that nobody asked for.
    pub unasked: i64,
    /// Frames that are no message, or longer than any.
    pub malformed: i64,
    /// Pages in which it gave fewer events than it says that it gives, although there were more.
    pub limits: i64,
    /// Windows with more than anybody can need.
    pub floods: i64,
    /// Bans.
    pub bans: i64,
    /// Polls that were cut, because there was no end.
    pub cuts: i64,
    /// Whether all that it had was fetched once.
    pub is_fetched: bool,
    /// When it was last looked at.
    pub last_ms: Option<UnixMs>,
    /// When it last was as it should be.
    pub last_good_ms: Option<UnixMs>,
    /// What was wrong the last time.
    pub last_error: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Body {
    standing: Standing,
    tally: Tally,
}

/// A relay that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Known {
    /// Its address.
    pub relay: String,
    /// Where it is known from.
    pub source: Source,
    /// Who named it first, if that was a stranger.
    pub named_by: Option<String>,
    /// Since when it is known.
    pub known_ms: UnixMs,
    /// When it is asked next; none if it is live, or until it is drawn.
    pub due_ms: Option<UnixMs>,
    /// How it stands.
    pub standing: Standing,
    /// What was counted.
    pub tally: Tally,
}

/// How much strangers can make a node know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Relays in all that strangers named.
    pub known_max: i64,
    /// Relays that one stranger can make known.
    pub named_max: i64,
    /// Relays at one host.
    pub host_max: i64,
    /// Of those that strangers named, so many are kept live.
    pub live_max: i64,
    /// And so many are polled.
    pub polled_max: i64,
    /// Whether they may be on this host or in a private network.
    pub private: bool,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            known_max: 500,
            named_max: 3,
            host_max: 4,
            live_max: 8,
            polled_max: 32,
            private: false,
        }
    }
}

/// What became of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learnt {
    /// It is known now.
    New,
    /// It was known.
    Known,
    /// It is no address of a relay, or one in a private network.
    Invalid,
    /// Whoever names it has named enough, or its host has enough.
    TooMany,
    /// There is no room.
    Full,
}

impl Learnt {
    /// As it is counted.
    pub fn as_str(self) -> &'static str {
        match self {
            Learnt::New => "new",
            Learnt::Known => "known",
            Learnt::Invalid => "invalid",
            Learnt::TooMany => "too_many",
            Learnt::Full => "full",
        }
    }
}

/// Not asked until it is drawn.
const UNDRAWN: i64 = i64::MAX;
/// A stranger's relay that was never of use for so many looks makes room for another.
const USELESS_WINDOWS: i64 = 3;
/// So many are looked through to find one that makes room.
const USELESS_LOOK: i64 = 2_000;

const INSERT: &str = "INSERT INTO relay_known
   (relay, source, named_by, host, tier, due_ms, known_ms, pending_events, pending_news, pending_worth, standing)
 VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, 0, $8)
 ON CONFLICT (relay) DO NOTHING";

fn written(standing: &Standing, tally: &Tally) -> Result<String> {
    let body = Body { standing: standing.clone(), tally: tally.clone() };
    serde_json::to_string(&body).map_err(|e| StoreError::Decode(e.to_string()).into())
}

fn number(tx: &mut Rx<'_>, sql: &'static str, args: &[guild_store::Val<'_>]) -> Result<i64> {
    let row: Option<(i64,)> = tx.first(sql, args)?;
    Ok(row.map_or(0, |(number,)| number))
}

/// Takes over what the settings say: these are connected, those are polled. What they no longer name is as if a
/// stranger had named it.
pub fn configure(
    tx: &mut Tx<'_>,
    live: &[String],
    polled: &[String],
    now_ms: UnixMs,
) -> Result<()> {
    let live: Vec<Address> = live.iter().map(|url| Address::parse(url)).collect::<Result<_>>()?;
    let polled: Vec<Address> =
        polled.iter().map(|url| Address::parse(url)).collect::<Result<_>>()?;
    let polled = polled.into_iter().filter(|one| !live.contains(one)).collect::<Vec<_>>();
    let wanted = live.iter().map(|one| (one, Source::Configured));
    let wanted: Vec<(&Address, Source)> =
        wanted.chain(polled.iter().map(|one| (one, Source::ConfiguredPolled))).collect();
    for known in list(tx, None)? {
        let is_wanted = wanted.iter().any(|(one, _)| one.to_string() == known.relay);
        if !known.source.is_strange() && !is_wanted {
            let why = "the settings name it no more";
            let standing = Standing::new(Tier::Sampled, why, now_ms);
            place(tx, &known.relay, Source::Hint, (&standing, &known.tally), UNDRAWN)?;
        }
    }
    for (address, source) in wanted {
        let (relay, tier) = (address.to_string(), source.floor());
        let due_ms = if tier == Tier::Live { UNDRAWN } else { now_ms };
        let standing = Standing::new(tier, source.why(), now_ms);
        let no_namer: Option<&str> = None;
        let new = tx.exec(
            INSERT,
            args![
                &relay,
                source.as_str(),
                no_namer,
                &address.host,
                tier.number(),
                due_ms,
                now_ms,
                &written(&standing, &Tally::default())?
            ],
        )?;
        if new == 0
            && let Some(known) = get(tx, &relay)?
            && known.source != source
        {
            place(tx, &relay, source, (&standing, &known.tally), due_ms)?;
        }
    }
    Ok(())
}

fn place(
    tx: &mut Tx<'_>,
    relay: &str,
    source: Source,
    (standing, tally): (&Standing, &Tally),
    due_ms: UnixMs,
) -> Result<()> {
    tx.exec(
        "UPDATE relay_known SET source = $2, tier = $3, due_ms = $4, standing = $5 WHERE relay = $1",
        args![
            relay,
            source.as_str(),
            standing.tier.number(),
            due_ms,
            &written(standing, tally)?
        ],
    )?;
    Ok(())
}

/// Somebody names a relay. It is asked when it is drawn.
pub fn learn(
    tx: &mut Tx<'_>,
    url: &str,
    source: Source,
    named_by: &PublicKey,
    bounds: &Bounds,
    now_ms: UnixMs,
) -> Result<Learnt> {
    let Ok(address) = Address::parse(url.trim()) else { return Ok(Learnt::Invalid) };
    let near = address.host == "localhost" || address.host.ends_with(".localhost");
    let near = near || address.host.parse::<IpAddr>().is_ok_and(is_private);
    if near && !bounds.private {
        return Ok(Learnt::Invalid);
    }
    let (relay, namer) = (address.to_string(), named_by.hex());
    if number(tx, "SELECT count(*) FROM relay_known WHERE relay = $1", args![&relay])? > 0 {
        return Ok(Learnt::Known);
    }
    let named = "SELECT count(*) FROM relay_known WHERE named_by = $1";
    let at_host = "SELECT count(*) FROM relay_known WHERE host = $1";
    // In a private network, if that is allowed at all, one host has many.
    let crowded = !near && number(tx, at_host, args![&address.host])? >= bounds.host_max;
    if crowded || number(tx, named, args![&namer])? >= bounds.named_max {
        return Ok(Learnt::TooMany);
    }
    let strange = "SELECT count(*) FROM relay_known WHERE named_by IS NOT NULL";
    if number(tx, strange, &[])? >= bounds.known_max && !make_room(tx)? {
        return Ok(Learnt::Full);
    }
    let standing = Standing::new(Tier::Sampled, source.why(), now_ms);
    tx.exec(
        INSERT,
        args![
            &relay,
            source.as_str(),
            &namer,
            &address.host,
            Tier::Sampled.number(),
            UNDRAWN,
            now_ms,
            &written(&standing, &Tally::default())?
        ],
    )?;
    Ok(Learnt::New)
}

/// Forgets the one that has been of no use for the longest; false if there is none.
fn make_room(tx: &mut Tx<'_>) -> Result<bool> {
    let sampled = rows(
        tx,
        "SELECT relay, source, named_by, known_ms, due_ms, standing FROM relay_known
         WHERE tier = 3 AND named_by IS NOT NULL ORDER BY known_ms, relay LIMIT $1",
        args![USELESS_LOOK],
    )?;
    let useless = |known: &&Known| {
        let Tally { windows, failures_in_row, news, worth, .. } = known.tally;
        let tried = windows >= USELESS_WINDOWS;
        tried && (failures_in_row >= USELESS_WINDOWS || (news == 0 && worth == 0))
    };
    let Some(gone) = sampled.iter().find(useless) else { return Ok(false) };
    tx.exec("DELETE FROM relay_known WHERE relay = $1", args![&gone.relay])?;
    tx.exec("DELETE FROM relay_mark WHERE relay = $1", args![&gone.relay])?;
    Ok(true)
}

type Row = (String, String, Option<String>, i64, i64, String);

fn rows(rx: &mut Rx<'_>, sql: &'static str, args: &[guild_store::Val<'_>]) -> Result<Vec<Known>> {
    let rows: Vec<Row> = rx.all(sql, args)?;
    rows.into_iter().map(read).collect()
}

fn read((relay, source, named_by, known_ms, due_ms, body): Row) -> Result<Known> {
    let body: Body = serde_json::from_str(&body)
        .map_err(|e| StoreError::Decode(format!("how {relay:?} stands cannot be read: {e}")))?;
    let due_ms = Some(due_ms).filter(|due_ms| *due_ms != UNDRAWN);
    let (source, Body { standing, tally }) = (Source::read(&source)?, body);
    Ok(Known { relay, source, named_by, known_ms, due_ms, standing, tally })
}

/// A relay, if it is known.
pub fn get(rx: &mut Rx<'_>, relay: &str) -> Result<Option<Known>> {
    let sql = "SELECT relay, source, named_by, known_ms, due_ms, standing FROM relay_known WHERE relay = $1";
    Ok(rows(rx, sql, args![relay])?.into_iter().next())
}

/// At most so many are listed.
const LIST_MAX: i64 = 2_000;

/// All relays that are known, or those of a tier: the closest first.
pub fn list(rx: &mut Rx<'_>, tier: Option<Tier>) -> Result<Vec<Known>> {
    let (least, most) = tier.map_or((1, 3), |tier| (tier.number(), tier.number()));
    rows(
        rx,
        "SELECT relay, source, named_by, known_ms, due_ms, standing FROM relay_known
         WHERE tier BETWEEN $1 AND $2 ORDER BY tier, relay LIMIT $3",
        args![least, most, LIST_MAX],
    )
}

/// How many relays that strangers named are in a tier.
fn strange_in(rx: &mut Rx<'_>, tier: Tier) -> Result<i64> {
    let sql = "SELECT count(*) FROM relay_known WHERE tier = $1 AND source IN ('list', 'hint')";
    number(rx, sql, args![tier.number()])
}

/// Those that are due and not live, each taken by whoever asks first: its next time is set ahead.
pub(crate) fn take_due(
    tx: &mut Tx<'_>,
    count: usize,
    (now_ms, again_ms): (UnixMs, UnixMs),
) -> Result<Vec<Known>> {
    let most = i64::try_from(count).unwrap_or(i64::MAX);
    let due = rows(
        tx,
        "SELECT relay, source, named_by, known_ms, due_ms, standing FROM relay_known
         WHERE tier IN (2, 3) AND due_ms <= $1 ORDER BY tier, due_ms LIMIT $2",
        args![now_ms, most],
    )?;
    for known in &due {
        set_due(tx, &known.relay, again_ms)?;
    }
    Ok(due)
}

/// Says when a relay is asked next.
pub(crate) fn set_due(tx: &mut Tx<'_>, relay: &str, due_ms: UnixMs) -> Result<()> {
    tx.exec("UPDATE relay_known SET due_ms = $2 WHERE relay = $1", args![relay, due_ms])?;
    Ok(())
}

/// Relays that nobody has looked at often enough to judge them, or all that are sampled: what can be drawn.
pub(crate) fn drawable(rx: &mut Rx<'_>, only_new: bool, now_ms: UnixMs) -> Result<Vec<String>> {
    let sampled = list(rx, Some(Tier::Sampled))?;
    let wanted = |known: &Known| {
        let is_new = known.tally.windows < USELESS_WINDOWS;
        is_new == only_new && known.due_ms.is_none() && !known.standing.is_banned(now_ms)
    };
    Ok(sampled.into_iter().filter(wanted).map(|known| known.relay).collect())
}

/// What a look at a relay has shown, beside what it brought.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Look {
    /// Whether it could be reached and answered.
    pub is_reached: bool,
    /// Whether all that it has was fetched.
    pub is_fetched: bool,
    /// Whether there was no end to it.
    pub is_cut: bool,
    /// Whether it did so much harm that the connection was ended for it.
    pub is_banned: bool,
    /// Events with a wrong id or signature.
    pub hostile: i64,
    /// Events that nobody asked for.
    pub unasked: i64,
    /// Frames that are no message, or longer than any.
    pub malformed: i64,
    /// Pages in which it gave fewer events than it says that it gives.
    pub limits: i64,
    /// How long it took to connect.
    pub connect_ms: Option<i64>,
    /// What was wrong.
    pub error: Option<String>,
}

/// A relay that is never fetched whole is new for so many looks.
const FIRST_WINDOWS: i64 = 12;

/// Weighs what a relay did since the last time, and decides how closely it is followed. None if it is not known.
pub fn settle(
    tx: &mut Tx<'_>,
    relay: &str,
    look: &Look,
    (bounds, rules): (&Bounds, &Rules),
    (now_ms, polled_again_ms): (UnixMs, UnixMs),
) -> Result<Option<Known>> {
    let Some(mut known) = get(tx, relay)? else { return Ok(None) };
    let brought: Option<(i64, i64, i64)> = tx.first(
        "SELECT pending_events, pending_news, pending_worth FROM relay_known WHERE relay = $1",
        args![relay],
    )?;
    let (events, news, worth) = brought.unwrap_or_default();
    let is_first = !known.tally.is_fetched && known.tally.windows < FIRST_WINDOWS;
    let Look { is_reached, hostile, is_banned, connect_ms, .. } = *look;
    let window =
        Window { is_reached, is_first, events, news, worth, hostile, is_banned, connect_ms };
    let room = Room {
        live: strange_in(tx, Tier::Live)? < bounds.live_max,
        polled: strange_in(tx, Tier::Polled)? < bounds.polled_max,
    };
    let was = known.standing.tier;
    known.standing = decide(&known.standing, known.source.floor(), &window, room, rules, now_ms);
    let flood = !is_first && (news > rules.flood_news || events > rules.flood_events);
    known.tally = counted(known.tally, look, &window, flood, now_ms);
    if was != known.standing.tier {
        let Standing { tier, why, .. } = &known.standing;
        tracing::info!(
            relay,
            from = was.as_str(),
            to = tier.as_str(),
            why,
            "a relay changes its tier"
        );
        metrics::counter!("relay_tier_changes_total", "to" => tier.as_str()).increment(1);
    }
    let banned_ms = known.standing.banned_until_ms;
    let due_ms = match (known.standing.tier, banned_ms) {
        (Tier::Polled, None) => polled_again_ms,
        (Tier::Polled, Some(until_ms)) => until_ms,
        (Tier::Live | Tier::Sampled, _) => UNDRAWN,
    };
    known.due_ms = Some(due_ms).filter(|due_ms| *due_ms != UNDRAWN);
    place(tx, relay, known.source, (&known.standing, &known.tally), due_ms)?;
    tx.exec(
        "UPDATE relay_known SET pending_events = pending_events - $2, pending_news = pending_news - $3,
           pending_worth = pending_worth - $4 WHERE relay = $1",
        args![relay, events, news, worth],
    )?;
    Ok(Some(known))
}

fn counted(was: Tally, look: &Look, window: &Window, flood: bool, now_ms: UnixMs) -> Tally {
    let is_good = window.is_reached && window.hostile == 0 && !window.is_banned && !flood;
    let error = if flood { Some("a flood".to_owned()) } else { look.error.clone() };
    Tally {
        windows: was.windows.saturating_add(1),
        failures: was.failures.saturating_add(i64::from(!window.is_reached)),
        failures_in_row: if window.is_reached { 0 } else { was.failures_in_row.saturating_add(1) },
        events: was.events.saturating_add(window.events),
        news: was.news.saturating_add(window.news),
        worth: was.worth.saturating_add(window.worth),
        hostile: was.hostile.saturating_add(window.hostile),
        unasked: was.unasked.saturating_add(look.unasked),
        malformed: was.malformed.saturating_add(look.malformed),
        limits: was.limits.saturating_add(look.limits),
        floods: was.floods.saturating_add(i64::from(flood)),
        bans: was.bans.saturating_add(i64::from(window.is_banned || window.hostile > 0)),
        cuts: was.cuts.saturating_add(i64::from(look.is_cut)),
        is_fetched: was.is_fetched || look.is_fetched,
        last_ms: Some(now_ms),
        last_good_ms: if is_good { Some(now_ms) } else { was.last_good_ms },
        last_error: if is_good && !look.is_cut { None } else { error.or(was.last_error) },
    }
}

/// Adds what relays brought, until it is weighed.
pub(crate) fn bring(
    tx: &mut Tx<'_>,
    relay: &str,
    (events, news, worth): (i64, i64, i64),
) -> Result<()> {
    tx.exec(
        "UPDATE relay_known SET pending_events = pending_events + $2, pending_news = pending_news + $3,
           pending_worth = pending_worth + $4 WHERE relay = $1",
        args![relay, events, news, worth],
    )?;
    Ok(())
}
