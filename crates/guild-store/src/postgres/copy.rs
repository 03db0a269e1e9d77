//! Many rows at once, by COPY: the server takes them as they come, fills whole pages with them, and need not make
//! tables of arrays first.

use crate::db::{Column, Val};

/// Fewer rows are not worth the further round trip.
pub(super) const ROWS_MIN: usize = 64;
/// About so many bytes are sent at a time: the server works on them while the next are written.
const PIECE_BYTES: usize = 256 * 1024;

/// A COPY in the binary form begins with its name, and has no flags and nothing further in its head.
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Where a row would say how many columns it has.
const END: i16 = -1;
/// The length of what is absent.
const ABSENT: i32 = -1;

/// The COPY that does what a statement does, if that puts these columns into a table as they are:
/// `INSERT INTO t (a, b) SELECT * FROM unnest($1::bigint[], $2::text[])`.
pub(super) fn copy_of(sql: &str, columns: &[Column<'_>]) -> Option<String> {
    let (into, arrays) = sql.strip_prefix("INSERT INTO ")?.split_once("SELECT * FROM unnest(")?;
    let into = into.trim_end();
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || c.is_ascii_whitespace() || "_,()".contains(c);
    if !into.ends_with(')') || !into.chars().all(is_plain) {
        return None;
    }
    let arrays: Vec<&str> = arrays.strip_suffix(')')?.split(',').map(str::trim).collect();
    let is_whole = |(i, array): (usize, &&str)| {
        let kind = match columns.get(i) {
            Some(Column::Ints(_) | Column::OptInts(_)) => "bigint",
            Some(Column::Texts(_) | Column::OptTexts(_)) => "text",
            None => return false,
        };
        **array == format!("${}::{kind}[]", i + 1)
    };
    let is_all = arrays.len() == columns.len() && arrays.iter().enumerate().all(is_whole);
    is_all.then(|| format!("COPY {into} FROM STDIN (FORMAT binary)"))
}

/// What is sent for so many rows, piece by piece.
pub(super) fn pieces<'a>(columns: &'a [Column<'a>], rows: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut row = 0;
    let mut piece = HEAD.to_vec();
    std::iter::from_fn(move || {
        while row < rows && piece.len() < PIECE_BYTES {
            write_row(columns, row, &mut piece);
            row += 1;
        }
        if row == rows {
            piece.extend_from_slice(&END.to_be_bytes());
            // Behind the end there is nothing more.
            row += 1;
        }
        Some(std::mem::take(&mut piece)).filter(|piece| !piece.is_empty())
    })
}

fn write_row(columns: &[Column<'_>], row: usize, out: &mut Vec<u8>) {
    // There are a few columns, and no text is as long as that.
    let count = i16::try_from(columns.len()).unwrap_or(i16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    for column in columns {
        let int;
        let bytes = match column.val(row) {
            Val::Null => None,
            Val::Int(value) => {
                int = value.to_be_bytes();
                Some(int.as_slice())
            }
            Val::Text(text) => Some(text.as_bytes()),
            Val::Bytes(bytes) => Some(bytes),
        };
        let length = bytes.map_or(ABSENT, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(bytes.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_puts_columns_into_a_table_as_they_are_is_a_copy() {
        let columns = [Column::Ints(&[1]), Column::OptTexts(&[None])];
        assert_eq!(
            copy_of(
                "INSERT INTO t (a, b)\n SELECT * FROM unnest($1::bigint[], $2::text[])",
                &columns
            )
            .as_deref(),
            Some("COPY t (a, b) FROM STDIN (FORMAT binary)")
        );
        for other in [
            "INSERT INTO t (a, b) SELECT * FROM unnest($1::bigint[], $2::text[]) ON CONFLICT DO NOTHING",
            "INSERT INTO t (a, b) SELECT * FROM unnest($2::bigint[], $1::text[])",
            "INSERT INTO t (a, b) SELECT * FROM unnest($1::text[], $2::text[])",
            "INSERT INTO t (a, b) SELECT * FROM unnest($1::bigint[])",
            "INSERT INTO t (a, b) SELECT a, b FROM unnest($1::bigint[], $2::text[]) AS n (a, b)",
            "INSERT INTO t SELECT * FROM unnest($1::bigint[], $2::text[])",
            "INSERT INTO t AS old (a, b) VALUES ($1, $2)",
            "WITH n AS (SELECT 1) INSERT INTO t (a, b) SELECT * FROM unnest($1::bigint[], $2::text[])",
        ] {
            assert_eq!(copy_of(other, &columns), None, "{other}");
        }
    }

    #[test]
    fn pieces_are_one_text_with_one_end() {
        let texts = vec!["x".repeat(1_000); 700];
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let ints: Vec<Option<i64>> = (0..700).map(|n| (n % 2 == 0).then_some(n)).collect();
        let columns = [Column::Texts(&texts), Column::OptInts(&ints)];
        let pieces: Vec<Vec<u8>> = pieces(&columns, 700).collect();
        assert!(pieces.len() > 2 && pieces.iter().all(|piece| piece.len() < PIECE_BYTES + 2_000));
        let whole = pieces.concat();
        assert!(whole.starts_with(HEAD) && whole.ends_with(&END.to_be_bytes()));
        let rows = 700 * (2 + 4 + 1_000 + 4) + 350 * 8;
        assert_eq!(whole.len(), HEAD.len() + rows + 2);
    }
}
