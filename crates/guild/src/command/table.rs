//! Rows under headings, each column as wide as it needs.

use crate::error::Result;
use crate::output::Output;

/// What is longer is cut: one name must not push all the others off the screen. The id of a receipt fits.
const WIDTH_MAX: usize = 72;

/// A heading, and on which side its column is even.
#[derive(Debug, Clone, Copy)]
pub(super) enum Column {
    Left(&'static str),
    Right(&'static str),
}

impl Column {
    fn heading(self) -> &'static str {
        match self {
            Column::Left(heading) | Column::Right(heading) => heading,
        }
    }

    fn even(self, cell: &str, width: usize) -> String {
        match self {
            Column::Left(_) => format!("{cell:<width$}"),
            Column::Right(_) => format!("{cell:>width$}"),
        }
    }
}

/// Prints a table.
pub(super) fn print<const N: usize>(
    columns: [Column; N],
    rows: &[[String; N]],
    out: &mut Output,
) -> Result<()> {
    lines(columns, rows).iter().try_for_each(|line| out.line(line))
}

fn lines<const N: usize>(columns: [Column; N], rows: &[[String; N]]) -> Vec<String> {
    let headings = columns.map(|column| column.heading().to_owned());
    let all: Vec<[String; N]> = std::iter::once(&headings)
        .chain(rows)
        .map(|row| row.each_ref().map(|cell| cut(cell)))
        .collect();
    let mut widths = [0; N];
    for row in &all {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(columns).zip(widths);
        let cells = cells.map(|((cell, column), width)| column.even(cell, width));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all.iter().map(line).collect()
}

fn cut(cell: &str) -> String {
    match cell.char_indices().nth(WIDTH_MAX) {
        None => cell.to_owned(),
        Some(_) => cell.chars().take(WIDTH_MAX - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_even_and_long_names_are_cut() {
        let rows = [["ann", "7", "x"], [&"é".repeat(80), "-100", ""]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let columns = [Column::Left("owner"), Column::Right("units"), Column::Left("memo")];
        let made = lines(columns, &rows);
        assert_eq!(made[0].trim_end(), format!("owner{}  units  memo", " ".repeat(67)));
        assert_eq!(made[1], format!("ann{}      7  x", " ".repeat(69)));
        assert_eq!(made[2], format!("{}…   -100", "é".repeat(71)));
    }
}
