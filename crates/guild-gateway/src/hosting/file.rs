//! The statement as a file.

use axum::Json;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use guild_hosting::api::Line;
use serde_json::json;

use super::Visit;
use crate::Result;

pub(super) async fn csv(visit: Visit) -> Result<Response> {
    let lines = visit.desk.statement_file(&visit.viewer).await?;
    let headers = [
        (CONTENT_TYPE, "text/csv; charset=utf-8"),
        (CONTENT_DISPOSITION, "attachment; filename=\"statement.csv\""),
        (CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, table(&lines)).into_response())
}

pub(super) async fn json(visit: Visit) -> Result<Response> {
    let lines = visit.desk.statement_file(&visit.viewer).await?;
    let headers = [
        (CONTENT_DISPOSITION, "attachment; filename=\"statement.json\""),
        (CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, Json(json!({ "lines": lines }))).into_response())
}

const COLUMNS: &str =
    "seq,booked_ms,step,memo,amount_micro_usd,balance_micro_usd,free_micro_usd,transfer_id";

fn table(lines: &[Line]) -> String {
    let mut table = format!("{COLUMNS}\r\n");
    for line in lines {
        let Line { seq, booked_ms, amount_micro_usd, balance_micro_usd, free_micro_usd, .. } = line;
        let (step, memo, id) = (&line.step, quoted(&line.memo), &line.transfer_id);
        table.push_str(&format!(
            "{seq},{booked_ms},{step},{memo},{amount_micro_usd},{balance_micro_usd},{free_micro_usd},{id}\r\n"
        ));
    }
    table
}

/// A text in quotes (RFC 4180). What a spreadsheet would take for a formula begins with a quote of its own.
fn quoted(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let guard = if formula { "'" } else { "" };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_in_their_cell() {
        assert_eq!(
            quoted("hosting.credit wire \"4711\", late"),
            "\"hosting.credit wire \"\"4711\"\", late\""
        );
        assert_eq!(quoted("=1+1"), "\"'=1+1\"");
    }
}
