//! The streams in which a server keeps commands and events. The server's own words for them are plain JSON over plain
//! requests, which is all that is needed here.

use std::time::Duration;

use async_nats::{Client, Request, RequestErrorKind};
use serde_json::{Value, json};

use crate::subject::Prefix;

const HOUR_MS: u64 = 3_600_000;
const NS_PER_MS: u64 = 1_000_000;
/// So long a letter with the same name is the same letter.
const SAME_MS: u64 = 120_000;
const MAX_BYTES: u64 = 1 << 30;
const PATIENCE: Duration = Duration::from_secs(5);

/// A stream: the end of its name, what it keeps, and for how long.
const STREAMS: [(&str, &str, u64); 2] =
    [("cmd", "*.*.cmd.tool.>", 24 * HOUR_MS), ("evt", "*.*.evt.>", 7 * 24 * HOUR_MS)];

fn name(prefix: &Prefix, end: &str) -> String {
    format!("{}_{end}", prefix.as_str().replace('.', "_"))
}

fn config(prefix: &Prefix, (end, tail, max_age_ms): (&str, &str, u64)) -> Value {
    json!({
        "name": name(prefix, end),
        "subjects": [format!("{}.{tail}", prefix.as_str())],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "num_replicas": 1,
        "max_age": max_age_ms.saturating_mul(NS_PER_MS),
        "max_bytes": MAX_BYTES,
        "duplicate_window": SAME_MS.saturating_mul(NS_PER_MS),
    })
}

/// Makes the streams that are missing. What is there stays as it is: its limits are the operator's.
pub(super) async fn ensure(client: &Client, prefix: &Prefix) -> Result<(), String> {
    for stream in STREAMS {
        let name = name(prefix, stream.0);
        let found = call(client, &format!("$JS.API.STREAM.INFO.{name}"), Value::Null).await?;
        if found.get("error").is_none() {
            continue;
        }
        let config = config(prefix, stream);
        let made = call(client, &format!("$JS.API.STREAM.CREATE.{name}"), config).await?;
        if let Some(error) = made.get("error") {
            return Err(format!("the stream {name} cannot be made: {error}"));
        }
    }
    Ok(())
}

async fn call(client: &Client, subject: &str, body: Value) -> Result<Value, String> {
    let payload = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::new().payload(payload.into()).timeout(Some(PATIENCE));
    match client.send_request(subject.to_owned(), request).await {
        Ok(answer) => serde_json::from_slice(&answer.payload).map_err(|error| error.to_string()),
        Err(error) if error.kind() == RequestErrorKind::NoResponders => {
            Err("the server keeps nothing".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Whether an answer says that the letter is kept.
pub(super) fn confirms(payload: &[u8]) -> Result<(), String> {
    let answer: Value =
        serde_json::from_slice(payload).map_err(|_| "no confirmation".to_owned())?;
    if let Some(error) = answer.get("error") {
        return Err(error.to_string());
    }
    match (answer.get("stream"), answer.get("seq").and_then(Value::as_u64)) {
        (Some(Value::String(_)), Some(_)) => Ok(()),
        _ => Err("no confirmation".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Address, Pattern};

    #[test]
    fn what_is_kept_is_what_subjects_say() {
        let prefix = Prefix::of("guild").unwrap();
        assert_eq!(name(&prefix, "cmd"), "guild_v1_cmd");
        for (tail, kept) in [
            ("cmd.tool.shop.buy", true),
            ("evt.agent.a.task", true),
            ("evt.agent.a.state", true),
            ("cmd.sys.kernel.report", false),
            ("cmd.sys.pmo.internal.fork_join", false),
            ("cmd.agent.w.wakeup", false),
            ("str.agent.a.chunk", false),
        ] {
            let text = format!("guild.v1.p.public.{tail}");
            let in_streams = STREAMS.iter().any(|stream| {
                let config = config(&prefix, *stream);
                Pattern::parse(config["subjects"][0].as_str().unwrap()).unwrap().matches(&text)
            });
            let address = Address::parse(&prefix, &text).unwrap();
            assert_eq!((in_streams, address.subject.is_kept()), (kept, kept), "{tail}");
        }
    }

    #[test]
    fn only_a_confirmation_confirms() {
        assert_eq!(confirms(br#"{"stream":"guild_v1_cmd","seq":7}"#), Ok(()));
        assert_eq!(confirms(br#"{"stream":"x","seq":7,"duplicate":true}"#), Ok(()));
        for no in
            ["", "{}", "[]", r#"{"stream":"x"}"#, r#"{"error":{"code":503},"stream":"x","seq":1}"#]
        {
            assert!(confirms(no.as_bytes()).is_err(), "{no}");
        }
    }
}
