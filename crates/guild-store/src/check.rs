//! Whether a store is sound: its pages, its schema, and what its tables must say of each other.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use guild_protocol::error::Code;
use rusqlite::Connection;

use crate::db::{Db, Decode};
use crate::refusal::{of_sqlite, open_reader};
use crate::tx::Rx;
use crate::{Error, Migrations, Result, Sqlite, args, code};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What kind of thing.
    pub code: &'static Code,
    /// What exactly.
    pub message: String,
}

impl Problem {
    fn new(code: &'static Code, message: impl Into<String>) -> Problem {
        Problem { code, message: message.into() }
    }
}

/// How many problems of one kind are listed.
const LIST_MAX: i64 = 20;

/// Checks an SQLite file by itself: every page, every reference, and that the schema is the one these migrations make.
/// Works beside whoever writes it, and writes nothing.
///
/// A file that is damaged, or no database at all, is an answer and not an error. A schema of another version is an
/// error: this program cannot judge it.
pub fn file(path: &Path, migrations: &Migrations) -> Result<Vec<Problem>> {
    let connection = open_reader(path)?;
    let problems = match pages(&connection) {
        Ok(problems) => problems,
        Err(error @ (Error::NotADatabase(_) | Error::Damaged(_))) => {
            vec![Problem::new(error.code(), error.to_string())]
        }
        Err(error) => return Err(error),
    };
    if !problems.is_empty() {
        // What the tables of a damaged file say would only repeat it.
        return Ok(problems);
    }
    let mut db = Sqlite::open_read_only(path)?;
    migrations.check(&mut db)?;
    let mut problems = schema(&mut db, migrations)?;
    problems.extend(newest_event(&mut db)?);
    Ok(problems)
}

fn pages(connection: &Connection) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let found = rows(connection, "PRAGMA integrity_check(20)", |row| row.get::<_, String>(0))?;
    for found in found.into_iter().filter(|found| found != "ok") {
        problems.push(Problem::new(&code::DAMAGED, found));
    }
    let orphans = rows(connection, "PRAGMA foreign_key_check", |row| {
        let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
        Ok(format!("a row of {table} refers to nothing in {parent}"))
    })?;
    problems.extend(orphans.into_iter().map(|text| Problem::new(&code::INCONSISTENT, text)));
    Ok(problems)
}

fn rows<T>(
    connection: &Connection,
    sql: &str,
    read: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let refused = |e: rusqlite::Error| of_sqlite(&e);
    let mut statement = connection.prepare(sql).map_err(refused)?;
    let found = statement.query_map([], read).map_err(refused)?;
    let limit = usize::try_from(LIST_MAX).unwrap_or(usize::MAX);
    found.take(limit).collect::<rusqlite::Result<_>>().map_err(refused)
}

/// Tables, indexes and triggers by name, with the text that made them.
type Objects = BTreeMap<String, String>;

fn objects(db: &mut dyn Db) -> Result<Objects> {
    let sql = "SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema
               WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'";
    let mut found = Objects::new();
    db.query(sql, &[], &mut |row| {
        let (name, text) = <(String, String)>::decode(row)?;
        found.insert(name, text);
        Ok(())
    })?;
    Ok(found)
}

/// Compares the schema with one that is made anew.
fn schema(db: &mut Sqlite, migrations: &Migrations) -> Result<Vec<Problem>> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut model = Sqlite::open_memory(&format!("check-{count}"))?;
    migrations.apply(&mut model, 0)?;
    let mut wanted = objects(&mut model)?;
    let mut problems = Vec::new();
    for (name, text) in objects(db)? {
        let wrong = match wanted.remove(&name) {
            Some(ours) if ours == text => continue,
            Some(_) => "is not as the migrations make it",
            None => "is not made by any migration",
        };
        problems.push(Problem::new(&code::INCONSISTENT, format!("the {name} {wrong}")));
    }
    for name in wanted.into_keys() {
        problems.push(Problem::new(&code::INCONSISTENT, format!("the {name} is missing")));
    }
    Ok(problems)
}

/// SQLite remembers the last number it gave: events cut off at the end are missed by nothing else.
fn newest_event(db: &mut Sqlite) -> Result<Option<Problem>> {
    let sql = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0),
                      max(coalesce((SELECT max(seq) FROM event), 0),
                          coalesce((SELECT max(up_to_seq) FROM event_forgotten), 0))";
    let mut found = None;
    db.query(sql, &[], &mut |row| {
        let (given, newest) = <(i64, i64)>::decode(row)?;
        if given != newest {
            let text = format!("the newest event is {newest}, but {given} was given");
            found = Some(Problem::new(&code::INCONSISTENT, text));
        }
        Ok(())
    })?;
    Ok(found)
}

/// Checks what the tables of this crate must say of each other, on either database.
pub fn tables(rx: &mut Rx<'_>) -> Result<Vec<Problem>> {
    let mut found = events(rx)?;
    found.extend(pins(rx)?);
    found.extend(lanes(rx)?);
    found.extend(leases(rx)?);
    Ok(found.into_iter().map(|text| Problem::new(&code::INCONSISTENT, text)).collect())
}

/// Numbers have no gap behind the last event that was forgotten.
fn events(rx: &mut Rx<'_>) -> Result<Vec<String>> {
    let front: Option<(i64,)> =
        rx.first("SELECT coalesce(max(up_to_seq), 0) FROM event_forgotten", args![])?;
    let front = front.map_or(0, |(seq,)| seq);
    let gaps: Vec<(i64, i64)> = rx.all(
        "SELECT before, seq FROM
           (SELECT seq, lag(seq, 1, $1) OVER (ORDER BY seq) AS before FROM event WHERE seq > $1)
           AS pairs
         WHERE seq > before + 1 ORDER BY seq LIMIT $2",
        args![front, LIST_MAX],
    )?;
    let text = |(before, seq): (i64, i64)| {
        format!("events {} to {} are missing", before.saturating_add(1), seq.saturating_sub(1))
    };
    Ok(gaps.into_iter().map(text).collect())
}

/// What a receipt needs is there.
fn pins(rx: &mut Rx<'_>) -> Result<Vec<String>> {
    let lost: Vec<(String, String, String)> = rx.all(
        "SELECT p.topic, p.id, p.pinned_by FROM event_pin p
         LEFT JOIN event e ON e.topic = p.topic AND e.id = p.id
         WHERE e.seq IS NULL ORDER BY p.topic, p.id LIMIT $1",
        args![LIST_MAX],
    )?;
    let text = |(topic, id, pinned_by): (String, String, String)| {
        format!("event {id} of {topic} is gone, and {pinned_by} needs it")
    };
    Ok(lost.into_iter().map(text).collect())
}

/// A lane is due when its first queued message is, and there is a lane for every queued message.
fn lanes(rx: &mut Rx<'_>) -> Result<Vec<String>> {
    let wrong: Vec<(String, String)> = rx.all(
        "SELECT sink, key FROM
           (SELECT sink, key, due_ms, token, until_ms, epoch,
              (SELECT o.due_ms FROM outbox o WHERE o.sink = l.sink AND o.key = l.key
               AND o.state = 'queued' ORDER BY o.seq LIMIT 1) AS first_ms
            FROM outbox_lane l) AS lanes
         WHERE (due_ms IS NULL) <> (first_ms IS NULL) OR due_ms <> first_ms
         ORDER BY sink, key LIMIT $1",
        args![LIST_MAX],
    )?;
    let text = |(sink, key): (String, String)| {
        format!("lane {sink} {key} is due at another time than its first message")
    };
    let mut found: Vec<String> = wrong.into_iter().map(text).collect();
    let forgotten: Vec<(String, String)> = rx.all(
        "SELECT o.sink, o.key FROM outbox o
         LEFT JOIN outbox_lane l ON l.sink = o.sink AND l.key = o.key
         WHERE o.state = 'queued' AND l.sink IS NULL
         GROUP BY o.sink, o.key ORDER BY o.sink, o.key LIMIT $1",
        args![LIST_MAX],
    )?;
    let text =
        |(sink, key): (String, String)| format!("messages of {sink} {key} wait without a lane");
    found.extend(forgotten.into_iter().map(text));
    Ok(found)
}

/// What nobody holds expires at no time.
fn leases(rx: &mut Rx<'_>) -> Result<Vec<String>> {
    let wrong: Vec<(String,)> = rx.all(
        "SELECT 'lease ' || name FROM lease
         WHERE epoch < 1 OR (token IS NULL) <> (holder IS NULL) OR (token IS NULL AND until_ms <> 0)
         UNION ALL
         SELECT 'lane ' || sink || ' ' || key FROM outbox_lane
         WHERE epoch < 0 OR (token IS NULL AND until_ms <> 0)
         ORDER BY 1 LIMIT $1",
        args![LIST_MAX],
    )?;
    Ok(wrong
        .into_iter()
        .map(|(what,)| format!("{what} is held by nobody and by somebody"))
        .collect())
}
