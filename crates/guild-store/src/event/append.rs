//! Storing events: in their order, each once.

use std::collections::{BTreeMap, BTreeSet};

use super::{Appended, NewEvent};
use crate::db::{Column, Engine};
use crate::tx::Tx;
use crate::{Error, Result};

/// Stores an event once. The same id with the same content is the same event; with other content it is refused.
pub fn append(tx: &mut Tx<'_>, event: &NewEvent<'_>) -> Result<Appended> {
    match append_all(tx, std::slice::from_ref(event))?.as_slice() {
        [appended] => Ok(*appended),
        _ => Err(numberless()),
    }
}

/// Stores events in their order, each once as [`append`] does, and all or none: for each its number, in the order
/// given. On PostgreSQL that is one journey for any number of events.
///
/// ```
/// # use guild_store::event::{Appended, NewEvent, append_all};
/// # use guild_store::{Result, Tx};
/// fn open_two(tx: &mut Tx<'_>) -> Result<Vec<Appended>> {
///     let opened = |id| NewEvent { topic: "door", id, kind: "door.opened", at_ms: 7, body: "{}" };
///     append_all(tx, &[opened("front"), opened("back")])
/// }
/// ```
pub fn append_all(tx: &mut Tx<'_>, events: &[NewEvent<'_>]) -> Result<Vec<Appended>> {
    let asked = Asked::of(events)?;
    let mut found = match tx.engine() {
        Engine::Sqlite => store_row_by_row(tx, &asked.distinct)?,
        Engine::Postgres => tx.all_set(AT_ONCE, &Rows::of(&asked.distinct).columns())?,
    };
    found.sort_unstable();
    if let Some((place, ..)) = found.iter().find(|(_, _, state)| *state == OTHER) {
        return Err(asked.conflict(*place));
    }
    asked.answers(&found)
}

fn numberless() -> Error {
    Error::Decode("an event was stored without a number".to_owned())
}

/// What is asked for.
struct Asked<'e, 'a> {
    /// Without those that are named again.
    distinct: Vec<&'e NewEvent<'a>>,
    /// For each of all events its place among these, and whether it was named before.
    places: Vec<(usize, bool)>,
}

impl<'e, 'a> Asked<'e, 'a> {
    fn of(events: &'e [NewEvent<'a>]) -> Result<Asked<'e, 'a>> {
        let mut named: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut this = Asked { distinct: Vec::with_capacity(events.len()), places: Vec::new() };
        for event in events {
            let next = this.distinct.len();
            let place = *named.entry((event.topic, event.id)).or_insert(next);
            match this.distinct.get(place) {
                None => this.distinct.push(event),
                Some(first) if first.kind == event.kind && first.body == event.body => {}
                Some(_) => return Err(Error::EventConflict(event.id.to_owned())),
            }
            this.places.push((place, place != next));
        }
        Ok(this)
    }

    fn conflict(&self, place: i64) -> Error {
        let event = usize::try_from(place).ok().and_then(|place| self.distinct.get(place));
        event.map_or_else(numberless, |event| Error::EventConflict(event.id.to_owned()))
    }

    /// One for each event, from one for each distinct event.
    fn answers(&self, found: &[Found]) -> Result<Vec<Appended>> {
        if found.len() != self.distinct.len() {
            return Err(numberless());
        }
        let answer = |(place, again): &(usize, bool)| match found.get(*place) {
            Some((_, seq, NEW)) if !again => Ok(Appended::New(*seq)),
            Some((_, seq, _)) => Ok(Appended::Known(*seq)),
            None => Err(numberless()),
        };
        self.places.iter().map(answer).collect()
    }
}

/// An event of those asked for: its place among them, the number it has, and how that came about.
type Found = (i64, i64, i64);

/// Stored now.
const NEW: i64 = 0;
/// Stored before, with the same content.
const SAME: i64 = 1;
/// Something else was stored before under its id.
const OTHER: i64 = 2;

/// All are looked for first: an insert that finds a conflict uses up a number, and a gap would look like a deletion.
/// One that is there with other content keeps all others from being stored.
const AT_ONCE: &str = "WITH
    asked AS MATERIALIZED (SELECT a.*, e.seq AS known_seq, e.kind = a.kind AND e.body = a.body AS same
      FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[]) WITH ORDINALITY
        AS a (topic, id, kind, at_ms, body, place)
      LEFT JOIN event AS e ON e.topic = a.topic AND e.id = a.id),
    new AS MATERIALIZED (SELECT *, row_number() OVER (ORDER BY place) AS nth FROM asked
      WHERE known_seq IS NULL AND NOT EXISTS (SELECT FROM asked WHERE NOT same)),
    given AS (UPDATE counter SET last = last + (SELECT count(*) FROM new)
      WHERE name = 'event' AND EXISTS (SELECT FROM new)
      RETURNING last - (SELECT count(*) FROM new) AS before),
    stored AS (INSERT INTO event (seq, topic, id, kind, at_ms, body)
      SELECT before + nth, topic, id, kind, at_ms, body FROM given, new)
  SELECT place - 1, before + nth, 0 FROM given, new
  UNION ALL
  SELECT place - 1, known_seq, CASE WHEN same THEN 1 ELSE 2 END FROM asked WHERE known_seq IS NOT NULL";

/// The same as two statements, a row at a time.
fn store_row_by_row(tx: &mut Tx<'_>, events: &[&NewEvent<'_>]) -> Result<Vec<Found>> {
    let rows = Rows::of(events);
    let places: Vec<i64> = (0..).take(events.len()).collect();
    let mut found: Vec<Found> = tx.all_set(
        "SELECT $5, seq, CASE WHEN kind = $3 AND body = $4 THEN 1 ELSE 2 END FROM event
         WHERE topic = $1 AND id = $2",
        &[
            Column::Texts(&rows.topic),
            Column::Texts(&rows.id),
            Column::Texts(&rows.kind),
            Column::Texts(&rows.body),
            Column::Ints(&places),
        ],
    )?;
    let refused = found.iter().any(|(_, _, state)| *state != SAME);
    if refused || found.len() == events.len() {
        return Ok(found);
    }
    let known: BTreeSet<i64> = found.iter().map(|(place, ..)| *place).collect();
    let (places, new): (Vec<i64>, Vec<&NewEvent<'_>>) =
        places.into_iter().zip(events).filter(|(place, _)| !known.contains(place)).unzip();
    let stored: Vec<(i64,)> = tx.all_set(
        "INSERT INTO event (topic, id, kind, at_ms, body) VALUES ($1, $2, $3, $4, $5) RETURNING seq",
        &Rows::of(&new).columns(),
    )?;
    found.extend(places.into_iter().zip(stored).map(|(place, (seq,))| (place, seq, NEW)));
    Ok(found)
}

/// Events, column by column.
struct Rows<'a> {
    topic: Vec<&'a str>,
    id: Vec<&'a str>,
    kind: Vec<&'a str>,
    at_ms: Vec<i64>,
    body: Vec<&'a str>,
}

impl<'a> Rows<'a> {
    fn of(events: &[&NewEvent<'a>]) -> Rows<'a> {
        Rows {
            topic: events.iter().map(|event| event.topic).collect(),
            id: events.iter().map(|event| event.id).collect(),
            kind: events.iter().map(|event| event.kind).collect(),
            at_ms: events.iter().map(|event| event.at_ms).collect(),
            body: events.iter().map(|event| event.body).collect(),
        }
    }

    fn columns(&self) -> [Column<'_>; 5] {
        [
            Column::Texts(&self.topic),
            Column::Texts(&self.id),
            Column::Texts(&self.kind),
            Column::Ints(&self.at_ms),
            Column::Texts(&self.body),
        ]
    }
}
