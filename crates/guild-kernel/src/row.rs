//! Rows and statements about sets of them. A table's columns are said once; its statements are made from them.

use std::str::FromStr;

use guild_protocol::json;
use guild_store::{Column, Columns, Decode, Error, FromVal, Rx, Sql, Tx, Val};
use serde::Serialize;

use crate::{Result, code};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Texts.
    Text,
    /// Integers.
    Int,
}

pub(crate) use Holds::{Int, Text};

/// A column: its name and what it holds.
pub(crate) type Field = (&'static str, Holds);

/// A statement that is run for a whole set of rows: row by row on SQLite, at once on PostgreSQL.
pub(crate) struct Statement {
    holds: Vec<Holds>,
    lite: String,
    pg: String,
}

fn names(fields: &[Field]) -> String {
    fields.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// `$1::text[], $2::bigint[], …`
fn arrays(fields: &[Field]) -> String {
    let array = |(at, (_, holds)): (usize, &Field)| match holds {
        Text => format!("${at}::text[]"),
        Int => format!("${at}::bigint[]"),
    };
    (1..).zip(fields).map(array).collect::<Vec<_>>().join(", ")
}

fn each(fields: &[Field], from: usize, with: &str, text: impl Fn(&str, usize) -> String) -> String {
    let texts = (from..).zip(fields).map(|(at, (name, _))| text(name, at));
    texts.collect::<Vec<_>>().join(with)
}

impl Statement {
    /// Inserts rows that have these columns.
    pub(crate) fn insert(table: &str, fields: &[Field]) -> Statement {
        let columns = names(fields);
        let places = each(fields, 1, ", ", |_, at| format!("${at}"));
        Statement {
            holds: fields.iter().map(|(_, holds)| *holds).collect(),
            lite: format!("INSERT INTO {table} ({columns}) VALUES ({places})"),
            pg: format!("INSERT INTO {table} ({columns}) SELECT * FROM unnest({})", arrays(fields)),
        }
    }

    /// Sets columns of the rows that have these keys and meet the condition. The values are the keys, then the columns.
    pub(crate) fn update(table: &str, keys: &[Field], set: &[Field], also: &str) -> Statement {
        let fields = [keys, set].concat();
        let lite_set =
            each(set, keys.len().saturating_add(1), ", ", |n, at| format!("{n} = ${at}"));
        let lite_keys = each(keys, 1, " AND ", |name, at| format!("{name} = ${at}"));
        let pg_set = each(set, 1, ", ", |name, _| format!("{name} = v.{name}"));
        let pg_keys = each(keys, 1, " AND ", |name, _| format!("t.{name} = v.{name}"));
        let (arrays, columns) = (arrays(&fields), names(&fields));
        Statement {
            holds: fields.iter().map(|(_, holds)| *holds).collect(),
            lite: format!("UPDATE {table} AS t SET {lite_set} WHERE {lite_keys}{also}"),
            pg: format!(
                "UPDATE {table} AS t SET {pg_set} FROM unnest({arrays}) AS v ({columns}) \
                 WHERE {pg_keys}{also}"
            ),
        }
    }

    /// Reads these columns of the rows that have these keys and meet the condition.
    pub(crate) fn select(table: &str, fields: &[Field], keys: &[Field], also: &str) -> Statement {
        let columns = each(fields, 1, ", ", |name, _| format!("t.{name}"));
        let lite_keys = each(keys, 1, " AND ", |name, at| format!("t.{name} = ${at}"));
        let pg_keys = each(keys, 1, " AND ", |name, _| format!("t.{name} = v.{name}"));
        let (arrays, asked) = (arrays(keys), names(keys));
        Statement {
            holds: keys.iter().map(|(_, holds)| *holds).collect(),
            lite: format!("SELECT {columns} FROM {table} AS t WHERE {lite_keys}{also}"),
            pg: format!(
                "SELECT {columns} FROM unnest({arrays}) AS v ({asked}) \
                 JOIN {table} AS t ON {pg_keys}{also}"
            ),
        }
    }

    /// A pair of texts that is no plain select, for keys of these kinds.
    pub(crate) fn pair(keys: &[Holds], lite: String, pg: String) -> Statement {
        Statement { holds: keys.to_vec(), lite, pg }
    }

    /// The texts.
    pub(crate) fn sql(&'static self) -> Sql {
        Sql { lite: &self.lite, pg: &self.pg }
    }

    /// Writes rows; how many were changed. No rows are no statement.
    pub(crate) fn write(&'static self, tx: &mut Tx<'_>, rows: &[Vec<Val<'_>>]) -> Result<u64> {
        if rows.is_empty() {
            return Ok(0);
        }
        let sides = Sides::of(&self.holds, rows);
        Ok(tx.exec_set(self.sql(), &sides.columns())?)
    }

    /// Reads what is there of these keys. No keys are no statement.
    pub(crate) fn read<T: Decode>(
        &'static self,
        rx: &mut Rx<'_>,
        keys: &[Vec<Val<'_>>],
    ) -> Result<Vec<T>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let sides = Sides::of(&self.holds, keys);
        Ok(rx.all_set(self.sql(), &sides.columns())?)
    }

    /// How many values each row has.
    #[cfg(test)]
    pub(crate) fn width(&self) -> &[Holds] {
        &self.holds
    }
}

/// Rows, column by column.
struct Sides<'a>(Vec<Side<'a>>);

enum Side<'a> {
    Texts(Vec<Option<&'a str>>),
    Ints(Vec<Option<i64>>),
}

impl<'a> Sides<'a> {
    fn of(holds: &[Holds], rows: &[Vec<Val<'a>>]) -> Sides<'a> {
        let side = |(i, holds): (usize, &Holds)| {
            let cells = rows.iter().map(|row| row.get(i).copied().unwrap_or(Val::Null));
            match holds {
                Text => Side::Texts(
                    cells
                        .map(|cell| if let Val::Text(t) = cell { Some(t) } else { None })
                        .collect(),
                ),
                Int => Side::Ints(
                    cells.map(|cell| if let Val::Int(n) = cell { Some(n) } else { None }).collect(),
                ),
            }
        };
        Sides(holds.iter().enumerate().map(side).collect())
    }

    fn columns(&self) -> Vec<Column<'_>> {
        let mut columns = Vec::with_capacity(self.0.len());
        for side in &self.0 {
            columns.push(match side {
                Side::Texts(texts) => Column::OptTexts(texts),
                Side::Ints(ints) => Column::OptInts(ints),
            });
        }
        columns
    }
}

/// The columns of a row that is read, from the first to the last.
pub(crate) struct Cells<'a> {
    row: &'a dyn Columns,
    next: usize,
}

impl<'a> Cells<'a> {
    pub(crate) fn of(row: &'a dyn Columns) -> Cells<'a> {
        Cells { row, next: 0 }
    }

    /// Leaves columns out.
    pub(crate) fn skip(&mut self, columns: usize) {
        self.next = self.next.saturating_add(columns);
    }

    /// The next column.
    pub(crate) fn next<T: FromVal>(&mut self) -> guild_store::Result<T> {
        let at = self.next;
        self.next = at.saturating_add(1);
        let cell = T::from_val(self.row.val(at)?);
        cell.ok_or_else(|| Error::Decode(format!("column {at} has another type")))
    }

    /// The next column, a text that stands for something.
    pub(crate) fn parsed<T: FromStr<Err: std::fmt::Display>>(&mut self) -> guild_store::Result<T> {
        let text: String = self.next()?;
        text.parse().map_err(unreadable)
    }

    /// The next column, absent or a text that stands for something.
    pub(crate) fn maybe<T: FromStr<Err: std::fmt::Display>>(
        &mut self,
    ) -> guild_store::Result<Option<T>> {
        let text: Option<String> = self.next()?;
        text.map(|text| text.parse().map_err(unreadable)).transpose()
    }
}

/// Our own row says something that we never write.
pub(crate) fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::Decode(error.to_string())
}

/// Words of ours that stand in rows.
macro_rules! words {
    ($(#[$doc:meta])* $vis:vis $name:ident { $($(#[$each:meta])* $word:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        $vis enum $name { $($(#[$each])* $word,)+ }

        impl $name {
            /// The word.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$word => $text,)+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::Error;
            fn from_str(text: &str) -> crate::Result<$name> {
                match text {
                    $($text => Ok($name::$word),)+
                    _ => {
                        let start: String = text.chars().take(80).collect();
                        let message = format!("{start:?} is none of: {}", [$($text),+].join(", "));
                        Err(crate::Error::refused(&crate::code::MALFORMED, message))
                    }
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

/// How deep what is written down may be nested. A replay puts a few levels around it, and is read with 128.
pub(crate) const DEPTH_MAX: usize = 100;
/// How deep what a model, a tool or a turn hands over may be nested: cards, deliverables and the results of batches put
/// levels around it.
pub(crate) const SAID_DEPTH_MAX: usize = 64;

/// Canonical JSON of at most so many bytes, which everybody can read again.
pub(crate) fn to_json<T: Serialize + ?Sized>(
    what: &str,
    value: &T,
    max_bytes: usize,
) -> Result<String> {
    written(what, value, DEPTH_MAX, max_bytes)
}

/// The same, of what a model, a tool or a turn hands over.
pub(crate) fn said_json<T: Serialize + ?Sized>(
    what: &str,
    value: &T,
    max_bytes: usize,
) -> Result<String> {
    written(what, value, SAID_DEPTH_MAX, max_bytes)
}

fn written<T: Serialize + ?Sized>(
    what: &str,
    value: &T,
    max_depth: usize,
    max_bytes: usize,
) -> Result<String> {
    let doc = json::to_doc(value)?;
    doc.check_reads_back(max_depth)?;
    let bytes = doc.to_canonical();
    if bytes.len() > max_bytes {
        let message = format!("{what} has {} bytes, at most {max_bytes}", bytes.len());
        return Err(crate::Error::refused(&code::TOO_LARGE, message));
    }
    Ok(String::from_utf8(bytes).unwrap_or_default())
}

/// A text of people or programs: not empty, not too long, and nothing in it that a database or a terminal cannot show.
pub(crate) fn check_text(what: &str, text: &str, max_bytes: usize) -> Result<()> {
    let fault = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > max_bytes {
        format!("has {} bytes, at most {max_bytes}", text.len())
    } else if text.chars().any(char::is_control) {
        "has a control character in it".to_owned()
    } else {
        return Ok(());
    };
    Err(crate::Error::refused(&code::MALFORMED, format!("{what} {fault}")))
}

/// A page is never larger than this.
const PAGE_MAX: i64 = 1_000;

/// The number of rows to ask for. Less than nothing would be everything on SQLite, and refused by PostgreSQL.
pub(crate) fn page(limit: i64) -> i64 {
    limit.clamp(0, PAGE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [Field; 1] = [("id", Text)];
    const REST: [Field; 2] = [("name", Text), ("size", Int)];

    #[test]
    fn statements_are_made_from_columns() {
        let insert = Statement::insert("t1", &REST);
        assert_eq!(insert.lite, "INSERT INTO t1 (name, size) VALUES ($1, $2)");
        assert_eq!(
            insert.pg,
            "INSERT INTO t1 (name, size) SELECT * FROM unnest($1::text[], $2::bigint[])"
        );
        let update = Statement::update("t1", &KEY, &REST, " AND t.size > 0");
        assert_eq!(
            update.lite,
            "UPDATE t1 AS t SET name = $2, size = $3 WHERE id = $1 AND t.size > 0"
        );
        assert_eq!(
            update.pg,
            "UPDATE t1 AS t SET name = v.name, size = v.size \
             FROM unnest($1::text[], $2::text[], $3::bigint[]) AS v (id, name, size) \
             WHERE t.id = v.id AND t.size > 0"
        );
        let select = Statement::select("t1", &REST, &KEY, "");
        assert_eq!(select.lite, "SELECT t.name, t.size FROM t1 AS t WHERE t.id = $1");
        assert_eq!(
            select.pg,
            "SELECT t.name, t.size FROM unnest($1::text[]) AS v (id) JOIN t1 AS t ON t.id = v.id"
        );
    }

    #[test]
    fn texts_that_rows_cannot_hold_are_refused() {
        assert_eq!(check_text("x", "fine", 4), Ok(()));
        for bad in ["", "longer", "a\0", "a\n"] {
            assert_eq!(check_text("x", bad, 4).unwrap_err().code(), &code::MALFORMED, "{bad:?}");
        }
        assert_eq!(to_json("x", &[1, 2], 4).unwrap_err().code(), &code::TOO_LARGE);
        assert_eq!(to_json("x", &[1, 2], 5), Ok("[1,2]".to_owned()));
        assert_eq!(to_json("x", &1e16, 50).unwrap_err().code().name, "json.integer_range");
        let deep =
            |levels| (0..levels).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
        assert!(to_json("x", &deep(DEPTH_MAX), 500).is_ok());
        assert!(said_json("x", &deep(SAID_DEPTH_MAX), 500).is_ok());
        for (code, depth) in [
            (said_json("x", &deep(SAID_DEPTH_MAX + 1), 500), SAID_DEPTH_MAX),
            (to_json("x", &deep(DEPTH_MAX + 1), 500), DEPTH_MAX),
        ] {
            assert_eq!(code.unwrap_err().code().name, "json.depth", "{depth}");
        }
    }
}
