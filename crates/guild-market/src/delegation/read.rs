//! Delegations as they are stored.

use guild_protocol::amount::Msat;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::schema::{Job, Registry, SchemaId};
use guild_store::{Columns, Decode, Rx, args};

use super::terms::{Consensus, Criticality, DelegationId};
use super::{Reason, Rule};
use crate::error::code;
use crate::order::{self, Order, OrderId};
use crate::row::{Cells, page, unreadable};
use crate::{Error, Result};

/// Where a delegation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Some are at it, or it is being compared.
    Open,
    /// There is an answer.
    Decided,
    /// There is none, and nobody is paid.
    Undecided,
    /// We gave it up before anything came.
    Cancelled,
}

impl State {
    /// All of them.
    pub const ALL: [State; 4] = [State::Open, State::Decided, State::Undecided, State::Cancelled];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Decided => "decided",
            State::Undecided => "undecided",
            State::Cancelled => "cancelled",
        }
    }

    /// The state of this word.
    pub fn parse(word: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// Where a replica stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is not decided yet.
    Waiting,
    /// Its answer is the one that counts: it is paid.
    Agrees,
    /// It delivered something else: it is not paid.
    Differs,
    /// It delivered nothing that could be checked.
    Failed,
    /// Its result came when nobody waited for it any more.
    Late,
    /// It was told to stop: others were enough.
    Cancelled,
}

impl Standing {
    /// All of them.
    pub const ALL: [Standing; 6] = [
        Standing::Waiting,
        Standing::Agrees,
        Standing::Differs,
        Standing::Failed,
        Standing::Late,
        Standing::Cancelled,
    ];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Waiting => "waiting",
            Standing::Agrees => "agrees",
            Standing::Differs => "differs",
            Standing::Failed => "failed",
            Standing::Late => "late",
            Standing::Cancelled => "cancelled",
        }
    }

    /// The standing of this word.
    pub fn parse(word: &str) -> Option<Standing> {
        Standing::ALL.into_iter().find(|standing| standing.as_str() == word)
    }
}

/// By whom it was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecidedBy {
    /// Enough said the same.
    Votes,
    /// A judge chose.
    Judge,
}

impl DecidedBy {
    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            DecidedBy::Votes => "votes",
            DecidedBy::Judge => "judge",
        }
    }

    fn parse(word: &str) -> Option<DecidedBy> {
        [DecidedBy::Votes, DecidedBy::Judge].into_iter().find(|by| by.as_str() == word)
    }
}

/// A delegation as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Delegation {
    /// Names it.
    pub delegation_id: DelegationId,
    /// The caller's name for it.
    pub delegation_key: String,
    /// Under which of our keys.
    pub buyer: PublicKey,
    /// The kind of its requests' events.
    pub kind: u16,
    /// What kind of work.
    pub schema_id: SchemaId,
    /// Which work.
    pub job_hash: Hash,
    /// Its input, in canonical JSON.
    pub payload: String,
    /// Whether input and results travel encrypted.
    pub private: bool,
    /// Whether each result is checked by itself.
    pub objective: bool,
    /// How much it matters.
    pub criticality: Criticality,
    /// By what it is decided.
    pub consensus: Consensus,
    /// How many were to do it.
    pub replicas: u32,
    /// How many must say the same.
    pub needed: u32,
    /// How many more may be asked.
    pub extra_max: u32,
    /// The most that is paid, to all of them together.
    pub budget: Msat,
    /// Until when results must be here.
    pub deadline_ms: UnixMs,
    /// When it was posted.
    pub posted_ms: UnixMs,
    /// Where it stands.
    pub state: State,
    /// Since when.
    pub changed_ms: UnixMs,
    /// When it is looked at again.
    pub due_ms: UnixMs,
    /// Whether nobody else could be found.
    pub exhausted: bool,
    /// The hash of the answer.
    pub winner: Option<Hash>,
    /// By whom it was decided.
    pub decided_by: Option<DecidedBy>,
    /// How it ended, in words.
    pub why: Option<String>,
}

fn small(cells: &mut Cells<'_>) -> guild_store::Result<u32> {
    u32::try_from(cells.next::<i64>()?).map_err(unreadable)
}

fn word<T>(cells: &mut Cells<'_>, parse: impl Fn(&str) -> Option<T>) -> guild_store::Result<T> {
    let word: String = cells.next()?;
    parse(&word).ok_or_else(|| unreadable(format!("a delegation says {word:?}")))
}

impl Decode for Delegation {
    fn decode(row: &dyn Columns) -> guild_store::Result<Delegation> {
        let mut cells = Cells::of(row);
        Ok(Delegation {
            delegation_id: cells.parsed()?,
            delegation_key: cells.next()?,
            buyer: cells.parsed()?,
            kind: u16::try_from(cells.next::<i64>()?).map_err(unreadable)?,
            schema_id: cells.parsed()?,
            job_hash: cells.parsed()?,
            payload: cells.next()?,
            private: cells.next::<i64>()? != 0,
            objective: cells.next::<i64>()? != 0,
            criticality: word(&mut cells, Criticality::parse)?,
            consensus: word(&mut cells, Consensus::parse)?,
            replicas: small(&mut cells)?,
            needed: small(&mut cells)?,
            extra_max: small(&mut cells)?,
            budget: cells.msat()?,
            deadline_ms: cells.next()?,
            posted_ms: cells.next()?,
            state: word(&mut cells, State::parse)?,
            changed_ms: cells.next()?,
            due_ms: cells.next()?,
            exhausted: cells.next::<i64>()? != 0,
            winner: cells.parsed_or_none()?,
            decided_by: match cells.next::<Option<String>>()? {
                None => None,
                Some(word) => Some(
                    DecidedBy::parse(&word).ok_or_else(|| unreadable("who decided is unknown"))?,
                ),
            },
            why: cells.next()?,
        })
    }
}

impl Delegation {
    /// How it is decided.
    pub fn rule(&self) -> Rule {
        Rule { needed: self.needed, objective: self.objective }
    }

    /// The work, to be compared.
    pub fn job(&self, registry: &Registry) -> Result<Job> {
        let job = registry.validate_input_text(&self.schema_id, self.payload.as_bytes());
        let job = job.map_err(guild_protocol::Error::from)?;
        if job.job_hash() != self.job_hash {
            // The schema is another one by now, so nobody knows any more what was agreed.
            let message = format!("{} does not have its hash any more", self.delegation_id);
            return Err(Error::refused(&code::UNVERIFIABLE, message));
        }
        Ok(job)
    }
}

/// One of those who do it.
#[derive(Debug, Clone, PartialEq)]
pub struct Replica {
    /// Of which delegation.
    pub delegation_id: DelegationId,
    /// Which one, from 1.
    pub number: i64,
    /// Its order.
    pub order_id: OrderId,
    /// Who.
    pub provider: PublicKey,
    /// Of which operator.
    pub cluster: String,
    /// Why it was asked.
    pub reason: Reason,
    /// From when on it is slow.
    pub slow_from_ms: UnixMs,
    /// When its result was checked by itself.
    pub judged_ms: Option<UnixMs>,
    /// Whether it passed.
    pub passed: Option<bool>,
    /// The document of that check.
    pub ballot: Option<String>,
    /// The hash of what its result says.
    pub says: Option<Hash>,
    /// The hash of the answer that it is counted for, once that is decided.
    pub vote: Option<Hash>,
    /// Where it stands.
    pub standing: Standing,
}

impl Decode for Replica {
    fn decode(row: &dyn Columns) -> guild_store::Result<Replica> {
        let mut cells = Cells::of(row);
        Ok(Replica {
            delegation_id: cells.parsed()?,
            number: cells.next()?,
            order_id: cells.parsed()?,
            provider: cells.parsed()?,
            cluster: cells.next()?,
            reason: word(&mut cells, Reason::parse)?,
            slow_from_ms: cells.next()?,
            judged_ms: cells.next()?,
            passed: cells.next::<Option<i64>>()?.map(|passed| passed != 0),
            ballot: cells.next()?,
            says: cells.parsed_or_none()?,
            vote: cells.parsed_or_none()?,
            standing: word(&mut cells, Standing::parse)?,
        })
    }
}

macro_rules! delegations {
    ($rest:literal) => {
        concat!(
            "SELECT delegation_id, delegation_key, buyer, kind, schema_id, job_hash, payload, private, objective,
               criticality, consensus, replicas, needed, extra_max, budget_units, deadline_ms, posted_ms, state,
               changed_ms, due_ms, exhausted, winner, decided_by, why FROM market_delegation ",
            $rest
        )
    };
}

macro_rules! replicas {
    ($rest:literal) => {
        concat!(
            "SELECT delegation_id, number, order_id, provider, cluster, reason, slow_from_ms, judged_ms, passed,
               ballot, says, vote, standing FROM market_replica ",
            $rest
        )
    };
}

/// The delegation with this id, if there is one.
pub fn find(rx: &mut Rx<'_>, delegation_id: &DelegationId) -> Result<Option<Delegation>> {
    Ok(rx.first(delegations!("WHERE delegation_id = $1"), args![delegation_id.as_str()])?)
}

/// The delegation with this id.
pub fn get(rx: &mut Rx<'_>, delegation_id: &DelegationId) -> Result<Delegation> {
    find(rx, delegation_id)?.ok_or_else(|| {
        let message = format!("there is no {delegation_id}");
        Error::refused(&code::DELEGATION_UNKNOWN, message)
    })
}

/// Those who do it, in the order in which they were asked.
pub fn replicas(rx: &mut Rx<'_>, delegation_id: &DelegationId) -> Result<Vec<Replica>> {
    let sql = replicas!("WHERE delegation_id = $1 ORDER BY number");
    Ok(rx.all(sql, args![delegation_id.as_str()])?)
}

/// The replica whose order this is, if it is one.
pub fn replica_of(rx: &mut Rx<'_>, order_id: &OrderId) -> Result<Option<Replica>> {
    Ok(rx.first(replicas!("WHERE order_id = $1"), args![order_id.as_str()])?)
}

/// Those who do it, each with its order.
pub fn with_orders(rx: &mut Rx<'_>, delegation_id: &DelegationId) -> Result<Vec<(Replica, Order)>> {
    let replicas = replicas(rx, delegation_id)?;
    replicas
        .into_iter()
        .map(|replica| {
            let order = order::get(rx, &replica.order_id)?;
            Ok((replica, order))
        })
        .collect()
}

/// Open delegations that are to be looked at now, the longest due first.
pub fn due(rx: &mut Rx<'_>, now_ms: UnixMs, limit: i64) -> Result<Vec<DelegationId>> {
    let ids: Vec<(String,)> = rx.all(
        "SELECT delegation_id FROM market_delegation WHERE state = 'open' AND due_ms <= $1
         ORDER BY due_ms, delegation_id LIMIT $2",
        args![now_ms, page(limit)],
    )?;
    ids.into_iter().map(|(id,)| Ok(id.parse()?)).collect()
}

/// A page of delegations, the newest first: those before this one, or the newest of all.
pub fn page_before(
    rx: &mut Rx<'_>,
    before: Option<(UnixMs, &DelegationId)>,
    limit: i64,
) -> Result<Vec<Delegation>> {
    let (at_ms, id) = before.map_or((i64::MAX, ""), |(at_ms, id)| (at_ms, id.as_str()));
    Ok(rx.all(
        delegations!(
            "WHERE posted_ms < $1 OR (posted_ms = $1 AND delegation_id < $2)
             ORDER BY posted_ms DESC, delegation_id DESC LIMIT $3"
        ),
        args![at_ms, id, page(limit)],
    )?)
}
