//! Why there is no answer, in three words: busy, refused, garbled.

use guild_protocol::env::UnixMs;
use hyper::header::RETRY_AFTER;
use hyper::{HeaderMap, StatusCode};
use serde_json::Value;

use super::Failure;

const MESSAGE_MAX_CHARS: usize = 400;
/// Nobody waits longer: whoever wants that is as good as gone.
const RETRY_AFTER_MAX_MS: i64 = 24 * 3_600_000;

/// Too many, or too much to pay: asking again does not help.
const SPENT: [&str; 3] = ["insufficient_quota", "billing_hard_limit_reached", "quota_exceeded"];
/// What is wrong with the question, the key or the model, in the words of several providers.
const WRONG: [&str; 12] = [
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "billing_error",
    "invalid_argument",
    "failed_precondition",
    "permission_denied",
    "unauthenticated",
    "not_found",
    "badrequesterror",
];

/// By the status of an answer, and what it says.
pub(super) fn of_status(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now_ms: UnixMs,
) -> Failure {
    let said: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    // Gemini puts it into a list when it was to be a stream.
    let said = said.get(0).unwrap_or(&said);
    let error = said.get("error").unwrap_or(said);
    let message = match message(error, body) {
        said if said.is_empty() => status.to_string(),
        said => format!("{status}: {said}"),
    };
    let is_spent = words(error).iter().any(|word| SPENT.contains(&word.as_str()));
    let is_busy = match status.as_u16() {
        408 | 425 | 429 => true,
        501 | 505 => false,
        number => number >= 500,
    };
    if !is_busy || is_spent {
        return Failure::Refused(message);
    }
    let retry_after_ms = retry_after(headers, now_ms).or_else(|| retry_delay(error));
    let retry_after_ms = retry_after_ms.map(|ms| ms.min(RETRY_AFTER_MAX_MS));
    // Turned away at the door.
    Failure::Busy { message, retry_after_ms, cost_unknown: false }
}

/// By an error that comes in the middle of an answer. What is not known to be the question's fault may pass.
pub(super) fn of_event(error: &Value) -> Failure {
    let words = words(error);
    let known = |word: &String| WRONG.contains(&word.as_str()) || SPENT.contains(&word.as_str());
    let number = error.get("code").and_then(Value::as_u64);
    let is_wrong = number.is_some_and(|n| (400..500).contains(&n) && ![408, 425, 429].contains(&n));
    let message = message(error, &[]);
    if is_wrong || words.iter().any(known) {
        return Failure::Refused(message);
    }
    Failure::Busy { message, retry_after_ms: retry_delay(error), cost_unknown: true }
}

/// The words by which a provider names what is wrong.
fn words(error: &Value) -> Vec<String> {
    let word = |name| error.get(name).and_then(Value::as_str).map(str::to_ascii_lowercase);
    ["type", "code", "status"].into_iter().filter_map(word).collect()
}

/// What a provider says, as one line.
fn message(error: &Value, body: &[u8]) -> String {
    let said = [error.get("message"), error.get("detail"), Some(error)];
    let said = said.into_iter().flatten().find_map(Value::as_str);
    let text = match said {
        Some(said) => said.to_owned(),
        None if !error.is_null() => error.to_string(),
        None => String::from_utf8_lossy(body).into_owned(),
    };
    let text = if text.trim_start().starts_with('<') { "a web page" } else { &text };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Not longer than anybody reads. Only after the key was taken out: half a key would not be found.
pub(super) fn shortened(message: &str) -> String {
    match message.char_indices().nth(MESSAGE_MAX_CHARS) {
        Some((end, _)) => format!("{}…", message.get(..end).unwrap_or_default()),
        None => message.to_owned(),
    }
}

/// When to ask again: seconds, or a date. OpenAI says it in milliseconds, too.
fn retry_after(headers: &HeaderMap, now_ms: UnixMs) -> Option<i64> {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(ms) = header("retry-after-ms").and_then(milli) {
        return Some(ms.div_euclid(1_000));
    }
    let said = header(RETRY_AFTER.as_str())?;
    if let Some(ms) = milli(said) {
        return Some(ms);
    }
    let then = jiff::fmt::rfc2822::parse(said).ok()?.timestamp().as_millisecond();
    Some(then.saturating_sub(now_ms).max(0))
}

/// What Gemini says: `{"retryDelay": "34.07s"}` among the details.
fn retry_delay(error: &Value) -> Option<i64> {
    let details = error.get("details").and_then(Value::as_array)?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    milli(delay.strip_suffix('s')?)
}

/// Thousandths of a decimal number that is not negative, rounded up.
fn milli(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !are_digits(whole) || !are_digits(part) {
        return None;
    }
    let whole = whole.parse::<i64>().unwrap_or(i64::MAX);
    let thousandths: String = part.chars().chain("000".chars()).take(3).collect();
    let is_more = part.bytes().skip(3).any(|byte| byte != b'0');
    let part = thousandths.parse::<i64>().ok()?.saturating_add(i64::from(is_more));
    Some(whole.saturating_mul(1_000).saturating_add(part))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use serde_json::json;

    use super::*;

    fn busy(failure: Failure) -> Option<Option<i64>> {
        match failure {
            Failure::Busy { retry_after_ms, .. } => Some(retry_after_ms),
            _ => None,
        }
    }

    #[test]
    fn a_status_is_busy_or_refused() {
        let of = |status: u16, body: &Value| {
            let status = StatusCode::from_u16(status).unwrap();
            busy(of_status(status, &HeaderMap::new(), body.to_string().as_bytes(), 0))
        };
        for status in [408, 425, 429, 500, 502, 503, 504, 529] {
            assert_eq!(of(status, &Value::Null), Some(None), "{status}");
        }
        for status in [301, 400, 401, 403, 404, 405, 413, 422, 501] {
            assert_eq!(of(status, &Value::Null), None, "{status}");
        }
        assert_eq!(of(429, &json!({ "error": { "code": "insufficient_quota" } })), None);
        let gemini = json!([{ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED", "details": [
            { "@type": "type.googleapis.com/google.rpc.QuotaFailure" },
            { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.0741s" },
        ] } }]);
        assert_eq!(of(429, &gemini), Some(Some(34_075)));
    }

    #[test]
    fn when_to_ask_again_is_said_in_many_ways() {
        let of = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            // Tue, 29 Oct 2024 16:56:00 GMT
            busy(of_status(StatusCode::TOO_MANY_REQUESTS, &headers, b"", 1_730_220_960_000))
                .unwrap()
        };
        assert_eq!(of("retry-after", "7"), Some(7_000));
        assert_eq!(of("retry-after", "0"), Some(0));
        assert_eq!(of("retry-after", "1.5"), Some(1_500));
        assert_eq!(of("retry-after-ms", "250"), Some(250));
        assert_eq!(of("retry-after", "Tue, 29 Oct 2024 16:56:32 GMT"), Some(32_000));
        assert_eq!(of("retry-after", "Tue, 29 Oct 2024 16:55:32 GMT"), Some(0));
        assert_eq!(of("retry-after", "99999999999999999999"), Some(RETRY_AFTER_MAX_MS));
        for nothing in ["soon", "-1", "", "1e3", "."] {
            assert_eq!(of("retry-after", nothing), None, "{nothing}");
        }
    }

    #[test]
    fn an_error_in_the_middle_is_busy_unless_the_question_is_wrong() {
        for error in [
            json!({ "type": "overloaded_error", "message": "Overloaded" }),
            json!({ "type": "api_error" }),
            json!({ "code": 503, "status": "UNAVAILABLE" }),
            json!({ "code": 429 }),
            json!("model runner has unexpectedly stopped"),
            json!(null),
        ] {
            assert_eq!(busy(of_event(&error)), Some(None), "{error}");
        }
        for error in [
            json!({ "type": "invalid_request_error" }),
            json!({ "code": "insufficient_quota" }),
            json!({ "code": 400, "status": "INVALID_ARGUMENT" }),
        ] {
            assert_eq!(busy(of_event(&error)), None, "{error}");
        }
    }

    #[test]
    fn a_message_is_one_short_line() {
        let said = |body: &str| match of_status(
            StatusCode::BAD_REQUEST,
            &HeaderMap::new(),
            body.as_bytes(),
            0,
        ) {
            Failure::Refused(message) => message,
            other => panic!("{other:?}"),
        };
        assert_eq!(said(r#"{"error":{"message":"a\n b"}}"#), "400 Bad Request: a b");
        assert_eq!(said(r#"{"error":"a"}"#), "400 Bad Request: a");
        assert_eq!(said(r#"{"detail":"a"}"#), "400 Bad Request: a");
        assert_eq!(said(r#"{"object":"error","message":"a"}"#), "400 Bad Request: a");
        assert_eq!(said(r#"{"x":1}"#), r#"400 Bad Request: {"x":1}"#);
        assert_eq!(said("no"), "400 Bad Request: no");
        assert_eq!(said(" "), "400 Bad Request");
        assert_eq!(said("<html><body>"), "400 Bad Request: a web page");
        assert_eq!(shortened(&"é".repeat(401)).chars().count(), 401);
        assert_eq!(shortened("é"), "é");
    }
}
