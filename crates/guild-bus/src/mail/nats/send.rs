//! How letters leave: confirmed by a stream where one keeps them, by a round trip to the server elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use async_nats::{Client, Message, Request, RequestErrorKind, StatusCode, Subscriber};
use futures_util::future::{join, select};
use futures_util::{FutureExt, StreamExt};

use super::{Way, read, stream, to_map};
use crate::error::{Error, Result};
use crate::mail::Receipt;
use crate::mail::letter::Letter;
use crate::subject;

const PATIENCE_MS: i64 = 4_000;
const PATIENCE: Duration = Duration::from_secs(2);
/// Nobody listens here: the answer is the server's own, after all that was sent before.
const NOBODY: &str = "guild-round-trip";

/// What became of a letter, at its place.
type Sent = (usize, Result<Receipt>);

pub(super) async fn send_all(
    way: &Way,
    letters: Vec<Letter>,
    max_bytes: usize,
) -> Vec<Result<Receipt>> {
    let (mut kept, mut passed, mut sent) = (Vec::new(), Vec::new(), Vec::<Sent>::new());
    for (at, letter) in letters.into_iter().enumerate() {
        match letter.check_size(max_bytes) {
            Err(error) => sent.push((at, Err(error))),
            Ok(()) if way.keeps && is_kept(way, &letter) => kept.push((at, letter)),
            Ok(()) => passed.push((at, letter)),
        }
    }
    let (kept, passed) = join(keep_all(way, kept), pass_all(&way.client, passed)).await;
    sent.extend(kept);
    sent.extend(passed);
    sent.sort_by_key(|(at, _)| *at);
    sent.into_iter().map(|(_, receipt)| receipt).collect()
}

fn is_kept(way: &Way, letter: &Letter) -> bool {
    let address = subject::Address::parse(&way.prefix, letter.subject.as_str());
    address.is_ok_and(|address| address.subject.is_kept())
}

/// Where a stream keeps letters it confirms each. All are on their way before the first confirmation is waited for.
async fn keep_all(way: &Way, letters: Vec<(usize, Letter)>) -> Vec<Sent> {
    if letters.is_empty() {
        return Vec::new();
    }
    let places: Vec<usize> = letters.iter().map(|(at, _)| *at).collect();
    let mut kept: BTreeMap<usize, Result<Receipt>> = BTreeMap::new();
    let outcome = match publish_all(&way.client, letters).await {
        Ok(answers) => {
            let confirmed = confirm_all(answers, places.len(), &mut kept);
            select(pin!(confirmed), way.clock.sleep(PATIENCE_MS)).await;
            Error::NoAnswer
        }
        Err(error) => error,
    };
    if kept.values().any(|receipt| *receipt == Err(Error::Unheard)) {
        // Somebody has removed the streams. They are made again, and whoever sent tries again.
        let made = stream::ensure(&way.client, &way.prefix).await;
        tracing::warn!(made = made.is_ok(), "a stream of the mail was gone");
    }
    let said = |at| match kept.get(&at) {
        Some(Err(Error::Unheard)) => Err(Error::Unreachable("the stream was gone".to_owned())),
        Some(receipt) => receipt.clone(),
        None => Err(outcome.clone()),
    };
    places.into_iter().map(|at| (at, said(at))).collect()
}

async fn confirm_all(
    mut answers: Subscriber,
    count: usize,
    kept: &mut BTreeMap<usize, Result<Receipt>>,
) {
    while kept.len() < count
        && let Some(answer) = answers.next().await
    {
        let Some(at) = place(&answer) else { continue };
        let receipt = match answer.status {
            Some(StatusCode::NO_RESPONDERS) => Err(Error::Unheard),
            _ => stream::confirms(&answer.payload)
                .map(|()| Receipt::Kept)
                .map_err(Error::Unreachable),
        };
        // A reader of the letter may have answered too, by mistake: the stream's word counts.
        let known = kept.entry(at).or_insert_with(|| receipt.clone());
        if receipt.is_ok() {
            *known = receipt;
        }
    }
}

/// Where nothing is kept, the server says of each letter that nobody listens, if so, before it answers a question that
/// was asked after them.
async fn pass_all(client: &Client, letters: Vec<(usize, Letter)>) -> Vec<Sent> {
    if letters.is_empty() {
        return Vec::new();
    }
    let places: Vec<usize> = letters.iter().map(|(at, _)| *at).collect();
    match pass(client, letters).await {
        Ok(unheard) => {
            let receipt =
                |at| if unheard.contains(&at) { Receipt::Unheard } else { Receipt::Passed };
            places.into_iter().map(|at| (at, Ok(receipt(at)))).collect()
        }
        Err(error) => places.into_iter().map(|at| (at, Err(error.clone()))).collect(),
    }
}

async fn pass(client: &Client, letters: Vec<(usize, Letter)>) -> Result<BTreeSet<usize>> {
    let mut answers = publish_all(client, letters).await?;
    round_trip(client).await?;
    let mut unheard = BTreeSet::new();
    while let Some(Some(answer)) = answers.next().now_or_never() {
        if answer.status == Some(StatusCode::NO_RESPONDERS) {
            unheard.extend(place(&answer));
        }
    }
    Ok(unheard)
}

/// Publishes letters one after the other; what is answered to each comes under its place.
async fn publish_all(client: &Client, letters: Vec<(usize, Letter)>) -> Result<Subscriber> {
    let inbox = client.new_inbox();
    let answers = client.subscribe(format!("{inbox}.*")).await.map_err(|e| unreachable(&e))?;
    for (at, Letter { subject, headers, payload, .. }) in letters {
        let (subject, reply) = (subject.as_str().to_owned(), format!("{inbox}.{at}"));
        let headers = to_map(&headers);
        let sent = client.publish_with_reply_and_headers(subject, reply, headers, payload.into());
        sent.await.map_err(|error| unreachable(&error))?;
    }
    Ok(answers)
}

fn place(answer: &Message) -> Option<usize> {
    answer.subject.rsplit('.').next()?.parse().ok()
}

/// The server has read all that was sent before.
pub(super) async fn round_trip(client: &Client) -> Result<()> {
    let request = Request::new().payload("".into()).timeout(Some(PATIENCE));
    match client.send_request(NOBODY, request).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == RequestErrorKind::NoResponders => Ok(()),
        Err(error) => Err(unreachable(&error)),
    }
}

pub(super) async fn ask(client: &Client, letter: Letter, timeout_ms: i64) -> Result<Letter> {
    let patience = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    match request(client, letter, patience).await {
        Ok(answer) => read(answer, usize::MAX),
        Err(error) => Err(error),
    }
}

async fn request(client: &Client, letter: Letter, patience: Duration) -> Result<Message> {
    let Letter { subject, headers, payload, .. } = letter;
    let request =
        Request::new().payload(payload.into()).headers(to_map(&headers)).timeout(Some(patience));
    let answer = client.send_request(subject.as_str().to_owned(), request).await;
    answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => Error::Unheard,
        RequestErrorKind::TimedOut => Error::NoAnswer,
        _ => unreachable(&error),
    })
}

fn unreachable(error: &dyn std::fmt::Display) -> Error {
    Error::Unreachable(error.to_string())
}
