//! A blocking client: every wait for the server has an end.
//!
//! A server that accepts a connection and then says nothing, because it is frozen or because nobody is behind its port,
//! looks to TCP like one that thinks. So whoever waits for long asks by a second connection whether the server answers
//! anybody. If it does, the statement only takes its time. What cannot be seen so is one session that hangs in a server
//! that answers all others: the server calls it active, as it calls one that computes.

use std::future::poll_fn;
use std::io::Cursor;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::SinkExt;
use tokio::runtime::Runtime;
use tokio::time::Sleep;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::types::{BorrowToSql, ToSql};
use tokio_postgres::{AsyncMessage, Config, NoTls, Row, SimpleQueryMessage, Socket, Statement};

use super::failure::{not_let_in, refused, unanswered};
use super::server::{connect_timeout, shown, silence_timeout};
use crate::{Error, Result};

type Connection = tokio_postgres::Connection<Socket, NoTlsStream>;
type Said<T> = std::result::Result<T, tokio_postgres::Error>;

/// The whole welcome may take so much longer than the connection alone: whoever cannot be reached is then told from
/// whoever is silent.
const WELCOME_EXTRA: Duration = Duration::from_millis(100);
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection to one server, and the runtime that moves its bytes: neither made, used nor dropped inside another.
pub(super) struct Client {
    inner: tokio_postgres::Client,
    line: Line,
}

struct Line {
    runtime: Runtime,
    connection: Connection,
    silence: Silence,
}

impl Client {
    /// Connects, and says and asks first what `greet` does: all of it within the time that the server has to connect.
    pub(super) fn connect<T>(
        server: &Config,
        greet: impl AsyncFnOnce(&tokio_postgres::Client) -> Said<T>,
    ) -> Result<(Client, T)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Error::Unreachable(format!("no runtime: {e}")))?;
        let welcome = async {
            let (client, mut connection) =
                server.connect(NoTls).await.map_err(|e| not_let_in(&e))?;
            let answer = beside(&mut connection, greet(&client)).await.map_err(|e| refused(&e))?;
            Ok((client, connection, answer))
        };
        let limit = connect_timeout(server);
        let welcomed = runtime.block_on(within(limit + WELCOME_EXTRA, welcome));
        let (inner, connection, answer) = welcomed.unwrap_or_else(|| {
            let (server, limit_s) = (shown(server), limit.as_secs());
            let message =
                format!("{server} accepted the connection but did not answer within {limit_s} s");
            Err(Error::Unreachable(message))
        })?;
        let silence = runtime.block_on(async { Silence::new(server) });
        Ok((Client { inner, line: Line { runtime, connection, silence } }, answer))
    }

    /// Runs several statements without arguments.
    pub(super) fn batch(&mut self, sql: &str) -> Result<()> {
        self.line.wait(self.inner.batch_execute(sql), refused)
    }

    /// Unreachable, if there was no answer or none that can be understood.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.line.wait(self.inner.batch_execute("COMMIT"), unanswered)
    }

    /// Runs several statements without arguments; all they said.
    pub(super) fn messages(&mut self, sql: &str) -> Result<Vec<SimpleQueryMessage>> {
        self.line.wait(self.inner.simple_query(sql), refused)
    }

    /// The one row that a query has.
    pub(super) fn one_row(&mut self, sql: &str, arguments: &[&(dyn ToSql + Sync)]) -> Result<Row> {
        self.line.wait(self.inner.query_one(sql, arguments), refused)
    }

    pub(super) fn prepare(&mut self, sql: &str) -> Result<Statement> {
        self.line.wait(self.inner.prepare(sql), refused)
    }

    /// Runs a statement to its end, handing over each row as it arrives; the number of rows it changed.
    pub(super) fn run<P, I>(
        &mut self,
        statement: &Statement,
        arguments: I,
        mut each: impl FnMut(&Row),
    ) -> Result<u64>
    where
        P: BorrowToSql,
        I: IntoIterator<Item = P>,
        I::IntoIter: ExactSizeIterator,
    {
        let rows = self.line.wait(self.inner.query_raw(statement, arguments), refused)?;
        let mut rows = pin!(rows);
        // Outside the runtime: what is done with a row may wait for something else.
        while let Some(row) = self.line.wait(next(rows.as_mut()), refused)? {
            each(&row);
        }
        Ok(rows.rows_affected().unwrap_or(0))
    }

    /// Runs a COPY of these pieces; how many rows it wrote.
    pub(super) fn copy(
        &mut self,
        statement: &Statement,
        pieces: impl Iterator<Item = Vec<u8>>,
    ) -> Result<u64> {
        let sink = self.line.wait(self.inner.copy_in(statement), refused)?;
        let mut sink = pin!(sink);
        for piece in pieces {
            self.line.wait(sink.send(Cursor::new(piece)), refused)?;
        }
        // What the server said to an earlier piece it says here.
        self.line.wait(sink.finish(), refused)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Takes leave, so that the server does not count the session as abandoned.
    pub(super) fn close(self) {
        let Client { inner, line: Line { runtime, connection, .. } } = self;
        // The connection says goodbye when nobody can ask anything more.
        drop(inner);
        // Nobody is left to tell if that fails.
        let _ = runtime.block_on(within(FAREWELL_TIMEOUT, connection));
    }
}

impl Line {
    /// The answer, and what an error means.
    fn wait<T>(
        &mut self,
        answer: impl Future<Output = Said<T>>,
        meaning: fn(&tokio_postgres::Error) -> Error,
    ) -> Result<T> {
        let mut answer = pin!(answer);
        let Line { runtime, connection, silence } = self;
        let mut awaited = false;
        let waited = runtime.block_on(poll_fn(|cx| {
            if let Err(error) = carry(connection, cx) {
                return Poll::Ready(Err(meaning(&error)));
            }
            if let Poll::Ready(said) = answer.as_mut().poll(cx) {
                return Poll::Ready(said.map_err(|error| meaning(&error)));
            }
            // What is here already, such as the next row of many, costs no look at a clock.
            if !awaited {
                awaited = true;
                silence.begin();
            }
            silence.poll_unbroken(cx).map(Err)
        }));
        silence.probe = None;
        waited
    }
}

/// How long nothing has been heard.
struct Silence {
    server: Config,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    probe: Option<Probe>,
}

type Probe = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

impl Silence {
    /// Within the runtime whose timer it is.
    #[expect(clippy::disallowed_methods, reason = "a thread that waits for a real server")]
    fn new(server: &Config) -> Silence {
        let mut server = server.clone();
        // A server that refuses us for what it is has answered.
        server.target_session_attrs(TargetSessionAttrs::Any);
        let limit = silence_timeout(&server);
        let timer = Box::pin(tokio::time::sleep(limit));
        Silence { server, limit, timer, probe: None }
    }

    #[expect(clippy::disallowed_types, reason = "a thread that waits for a real server")]
    fn begin(&mut self) {
        self.probe = None;
        self.timer.as_mut().reset(tokio::time::Instant::now() + self.limit);
    }

    /// Ready when the silence has lasted and the server answers nobody else either.
    fn poll_unbroken(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        loop {
            if let Some(probe) = &mut self.probe {
                match ready!(probe.as_mut().poll(cx)) {
                    Ok(()) => self.begin(),
                    Err(error) => return Poll::Ready(error),
                }
            }
            ready!(self.timer.as_mut().poll(cx));
            self.probe = Some(Box::pin(ask(self.server.clone())));
        }
    }
}

/// Asks a server by a connection of its own whether it answers. A refusal is an answer.
async fn ask(server: Config) -> Result<()> {
    let asked = async {
        let (client, mut connection) = server.connect(NoTls).await?;
        beside(&mut connection, client.batch_execute("SELECT 1")).await
    };
    let why = match within(connect_timeout(&server) + WELCOME_EXTRA, asked).await {
        Some(Ok(())) => return Ok(()),
        Some(Err(error)) if error.as_db_error().is_some() => return Ok(()),
        Some(Err(error)) => error.to_string(),
        None => "no answer".to_owned(),
    };
    let (server, silent_s) = (shown(&server), silence_timeout(&server).as_secs());
    let message =
        format!("{server} has been silent for {silent_s} s, also on another connection: {why}");
    Err(Error::Unreachable(message))
}

/// Waits for an answer while the connection carries it.
async fn beside<T>(connection: &mut Connection, answer: impl Future<Output = Said<T>>) -> Said<T> {
    let mut answer = pin!(answer);
    poll_fn(|cx| {
        carry(connection, cx)?;
        answer.as_mut().poll(cx)
    })
    .await
}

/// Sends and receives what there is.
fn carry(connection: &mut Connection, cx: &mut Context<'_>) -> Said<()> {
    loop {
        match connection.poll_message(cx) {
            Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                tracing::info!(severity = notice.severity(), "{}", notice.message());
            }
            Poll::Ready(Some(message)) => drop(message?),
            Poll::Ready(None) | Poll::Pending => return Ok(()),
        }
    }
}

async fn next(rows: Pin<&mut tokio_postgres::RowStream>) -> Said<Option<Row>> {
    futures_util::TryStreamExt::try_next(&mut { rows }).await
}

#[expect(clippy::disallowed_methods, reason = "a thread that waits for a real server")]
async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}
