//! The small common ground of the databases: values, rows, one SQL text or a pair.

use crate::{Error, Result};

/// A value bound to a statement or read from a row. Ids and JSON are text; times and money are integers; content that
/// has a hash for a name is bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Val<'a> {
    /// Absent.
    Null,
    /// A 64-bit integer.
    Int(i64),
    /// A text.
    Text(&'a str),
    /// Bytes that mean nothing to the database.
    Bytes(&'a [u8]),
}

impl From<i64> for Val<'_> {
    fn from(value: i64) -> Self {
        Val::Int(value)
    }
}

impl<'a> From<&'a str> for Val<'a> {
    fn from(value: &'a str) -> Self {
        Val::Text(value)
    }
}

impl<'a> From<&'a String> for Val<'a> {
    fn from(value: &'a String) -> Self {
        Val::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Val<'a> {
    fn from(value: &'a [u8]) -> Self {
        Val::Bytes(value)
    }
}

impl<'a, T: Into<Val<'a>>> From<Option<T>> for Val<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Val::Null, Into::into)
    }
}

/// The arguments of a statement: `args![id, now_ms]` binds `$1` and `$2`.
#[macro_export]
macro_rules! args {
    ($($value:expr),* $(,)?) => { &[$($crate::Val::from($value)),*] as &[$crate::Val<'_>] };
}

/// One column of many rows: the argument of a statement that is run for a whole set. All columns of a statement have
/// the same length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Column<'a> {
    /// Integers.
    Ints(&'a [i64]),
    /// Integers, some absent.
    OptInts(&'a [Option<i64>]),
    /// Texts.
    Texts(&'a [&'a str]),
    /// Texts, some absent.
    OptTexts(&'a [Option<&'a str>]),
}

impl<'a> Column<'a> {
    /// How many rows.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks a column for that")]
    pub fn len(&self) -> usize {
        match self {
            Column::Ints(column) => column.len(),
            Column::OptInts(column) => column.len(),
            Column::Texts(column) => column.len(),
            Column::OptTexts(column) => column.len(),
        }
    }

    /// The value in row `i`; absent beyond the end.
    pub fn val(&self, i: usize) -> Val<'a> {
        match *self {
            Column::Ints(column) => column.get(i).copied().into(),
            Column::OptInts(column) => column.get(i).copied().flatten().into(),
            Column::Texts(column) => column.get(i).copied().into(),
            Column::OptTexts(column) => column.get(i).copied().flatten().into(),
        }
    }
}

/// How many rows these columns have; an error if they do not agree.
pub(crate) fn row_count(columns: &[Column<'_>]) -> Result<usize> {
    let count = columns.first().map_or(0, Column::len);
    if columns.iter().all(|column| column.len() == count) {
        return Ok(count);
    }
    Err(Error::Database("the columns of a set have different lengths".to_owned()))
}

/// A type that one column can be read as.
pub trait FromVal: Sized {
    /// The value, or `None` if the column has another type.
    fn from_val(val: Val<'_>) -> Option<Self>;
}

impl FromVal for i64 {
    fn from_val(val: Val<'_>) -> Option<i64> {
        if let Val::Int(int) = val { Some(int) } else { None }
    }
}

impl FromVal for String {
    fn from_val(val: Val<'_>) -> Option<String> {
        if let Val::Text(text) = val { Some(text.to_owned()) } else { None }
    }
}

impl FromVal for Vec<u8> {
    fn from_val(val: Val<'_>) -> Option<Vec<u8>> {
        if let Val::Bytes(bytes) = val { Some(bytes.to_vec()) } else { None }
    }
}

impl<T: FromVal> FromVal for Option<T> {
    fn from_val(val: Val<'_>) -> Option<Option<T>> {
        if val == Val::Null { Some(None) } else { T::from_val(val).map(Some) }
    }
}

/// A row while it is being read.
pub trait Columns {
    /// The value of column `i`, counted from zero.
    fn val(&self, i: usize) -> Result<Val<'_>>;
}

/// A type that a whole row can be read as. Tuples are.
pub trait Decode: Sized {
    /// Reads the row.
    fn decode(row: &dyn Columns) -> Result<Self>;
}

macro_rules! decode_tuple {
    ($($column:ident $i:literal),+) => {
        impl<$($column: FromVal),+> Decode for ($($column,)+) {
            fn decode(row: &dyn Columns) -> Result<Self> {
                Ok(($(
                    $column::from_val(row.val($i)?)
                        .ok_or_else(|| Error::Decode(format!("column {} has another type", $i)))?,
                )+))
            }
        }
    };
}
decode_tuple!(A 0);
decode_tuple!(A 0, B 1);
decode_tuple!(A 0, B 1, C 2);
decode_tuple!(A 0, B 1, C 2, D 3);
decode_tuple!(A 0, B 1, C 2, D 3, E 4);
decode_tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
decode_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
decode_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
decode_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
decode_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);

/// One SQL text for both databases, or a pair where they differ. Parameters are `$1`, `$2`, …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sql {
    /// For SQLite.
    pub lite: &'static str,
    /// For PostgreSQL.
    pub pg: &'static str,
}

impl From<&'static str> for Sql {
    fn from(both: &'static str) -> Sql {
        Sql { lite: both, pg: both }
    }
}

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// In this process: every statement is cheap.
    Sqlite,
    /// Somewhere else: every statement is a journey.
    Postgres,
}

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// One snapshot, nothing changes.
    Read,
    /// Reads and writes, alone.
    Write,
}

/// A connection. The seam between the pump and a database engine.
pub trait Db: Send {
    /// The text meant for this engine.
    fn pick(&self, sql: Sql) -> &'static str;

    /// Begins a transaction. Whoever may write is alone in the database until its end.
    fn begin(&mut self, access: Access) -> Result<()>;

    /// Ends the transaction for good; [`Error::CommitUnknown`] if the database did not say whether it has.
    fn commit(&mut self) -> Result<()>;

    /// Ends the transaction and all it did. Cannot fail: what a lost connection leaves open is rolled back too.
    fn rollback(&mut self);

    /// Whether a transaction is open.
    fn in_transaction(&self) -> bool;

    /// Marks a place to return to.
    fn savepoint(&mut self) -> Result<()>;

    /// Keeps what was done since the mark.
    fn release_savepoint(&mut self) -> Result<()>;

    /// Undoes what was done since the mark.
    fn rollback_to_savepoint(&mut self) -> Result<()>;

    /// Whether the same transaction may succeed now, after `tries` tries that failed like this. Waits, if that helps.
    fn try_again(&mut self, error: &Error, tries: u32) -> bool;

    /// Runs a statement; the number of rows it changed.
    fn exec(&mut self, sql: &str, args: &[Val<'_>]) -> Result<u64>;

    /// Runs a statement to its end, handing over each row.
    fn query(
        &mut self,
        sql: &str,
        args: &[Val<'_>],
        each: &mut dyn FnMut(&dyn Columns) -> Result<()>,
    ) -> Result<()>;

    /// Runs a statement for a set of rows; the number of rows it changed. See [`crate::Tx::exec_set`].
    fn exec_set(&mut self, sql: &str, columns: &[Column<'_>]) -> Result<u64>;

    /// Runs a query for a set of rows, handing over each row found. See [`crate::Rx::all_set`].
    fn query_set(
        &mut self,
        sql: &str,
        columns: &[Column<'_>],
        each: &mut dyn FnMut(&dyn Columns) -> Result<()>,
    ) -> Result<()>;

    /// Runs several statements without arguments: migrations.
    fn batch(&mut self, sql: &str) -> Result<()>;
}
