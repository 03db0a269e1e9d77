//! The four calls of a cycle, over whatever runs their statements.

use guild_store::{Sql, Val, args};

/// The agents whose turns these are.
const AGENTS: u64 = 1_024;
/// Everything enqueued is due by now.
const NOW_MS: i64 = 1_000_000_000_000;
const LEASE_MS: i64 = 60_000;

/// A statement of the cycle. Its parameters appear in the order of their numbers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Enqueue,
    Claim,
    TakeHead,
    MoveHead,
    InsertStep,
    CloseTurn,
    AppendEvent,
    Send,
    LetGo,
}

impl Op {
    pub(super) const ALL: [Op; 9] = [
        Op::Enqueue,
        Op::Claim,
        Op::TakeHead,
        Op::MoveHead,
        Op::InsertStep,
        Op::CloseTurn,
        Op::AppendEvent,
        Op::Send,
        Op::LetGo,
    ];

    pub(super) fn sql(self) -> Sql {
        match self {
            Op::Enqueue => "INSERT INTO inbox (id, agent, due_ms) VALUES ($1, $2, $3)",
            Op::Claim => {
                "UPDATE inbox SET due_ms = $1, token = $2 WHERE id =
                   (SELECT id FROM inbox WHERE due_ms <= $3 ORDER BY due_ms, id LIMIT 1)
                 RETURNING id, agent"
            }
            Op::TakeHead => {
                "INSERT INTO head (agent, epoch, token, seq) VALUES ($1, 1, $2, 0) ON CONFLICT (agent)
                 DO UPDATE SET epoch = head.epoch + 1, token = excluded.token RETURNING epoch, seq"
            }
            Op::MoveHead => {
                "UPDATE head SET seq = seq + 1
                 WHERE agent = $1 AND token = $2 AND epoch = $3 AND seq = $4"
            }
            Op::InsertStep => "INSERT INTO step (agent, seq, turn, body) VALUES ($1, $2, $3, $4)",
            Op::CloseTurn => {
                "UPDATE inbox SET due_ms = NULL, token = NULL WHERE id = $1 AND token = $2"
            }
            Op::AppendEvent => "INSERT INTO turn_event (turn, kind) VALUES ($1, 'done')",
            Op::Send => "INSERT INTO turn_outbox (turn, body) VALUES ($1, $2)",
            Op::LetGo => {
                "UPDATE head SET token = NULL WHERE agent = $1 AND token = $2 AND epoch = $3"
            }
        }
        .into()
    }
}

/// What runs the statements: a transaction of ours, or a bare connection.
pub(super) trait Statements {
    type Error;
    fn exec(&mut self, op: Op, args: &[Val<'_>]) -> Result<(), Self::Error>;
    /// It must change exactly one row.
    fn cas(&mut self, op: Op, args: &[Val<'_>]) -> Result<(), Self::Error>;
    fn texts(&mut self, op: Op, args: &[Val<'_>]) -> Result<(String, String), Self::Error>;
    fn ints(&mut self, op: Op, args: &[Val<'_>]) -> Result<(i64, i64), Self::Error>;
}

/// A turn in somebody's hands.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    turn: String,
    agent: String,
    token: String,
    epoch: i64,
    seq: i64,
}

pub(super) fn enqueue<S: Statements>(s: &mut S, number: u64) -> Result<(), S::Error> {
    let (turn, agent) = (format!("turn_{number:016}"), format!("agent_{:08}", number % AGENTS));
    s.exec(Op::Enqueue, args![&turn, &agent, i64::try_from(number).unwrap_or(NOW_MS)])
}

pub(super) fn claim<S: Statements>(s: &mut S, number: u64) -> Result<Claim, S::Error> {
    let token = format!("lease_{number:016}");
    let (turn, agent) = s.texts(Op::Claim, args![NOW_MS + LEASE_MS, &token, NOW_MS])?;
    let (epoch, seq) = s.ints(Op::TakeHead, args![&agent, &token])?;
    Ok(Claim { turn, agent, token, epoch, seq })
}

pub(super) fn step<S: Statements>(s: &mut S, claim: &Claim, body: &str) -> Result<(), S::Error> {
    let Claim { turn, agent, token, epoch, seq } = claim;
    s.cas(Op::MoveHead, args![agent, token, *epoch, *seq])?;
    s.exec(Op::InsertStep, args![agent, *seq + 1, turn, body])
}

pub(super) fn finish<S: Statements>(s: &mut S, claim: &Claim, body: &str) -> Result<(), S::Error> {
    let Claim { turn, agent, token, epoch, .. } = claim;
    s.cas(Op::CloseTurn, args![turn, token])?;
    s.exec(Op::AppendEvent, args![turn])?;
    s.exec(Op::Send, args![turn, body])?;
    s.cas(Op::LetGo, args![agent, token, *epoch])
}

pub(super) fn body() -> String {
    "x".repeat(200)
}
