//! Verdicts over time: what each provider's submissions were worth, and what they used.

use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::json;
use guild_store::{Columns, Decode, Rx, Tx, args};
use serde::{Deserialize, Serialize};

use super::metrics::Measure;
use super::verdict::{Class, Mode, Verdict};
use crate::Result;
use crate::row::{Cells, page, unreadable};

/// One point of a series. A metric that was absent stays absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Names it by its content.
    pub judgement_id: Hash,
    /// Who delivered.
    pub provider: PublicKey,
    /// When it was judged.
    pub at_ms: UnixMs,
    /// By which suite.
    pub suite: String,
    /// By which suite exactly.
    pub suite_hash: Hash,
    /// What was judged.
    pub submission_hash: Hash,
    /// What it was worth.
    pub class: Class,
    /// How far that can be relied on.
    pub mode: Mode,
    /// Tests that passed.
    pub passed: i64,
    /// Tests that there were.
    pub total: i64,
    /// From the start to the end of its sandboxes.
    pub wall_us: i64,
    /// CPU time.
    pub cpu_us: i64,
    /// The most memory at one time.
    pub memory_peak_bytes: i64,
    /// As in [`super::Metrics`].
    pub coverage_bp: Option<i64>,
    /// As in [`super::Metrics`].
    pub pylint_milli: Option<i64>,
    /// As in [`super::Metrics`].
    pub bandit_milli: Option<i64>,
    /// As in [`super::Metrics`].
    pub mypy_milli: Option<i64>,
}

impl Decode for Point {
    fn decode(row: &dyn Columns) -> guild_store::Result<Point> {
        let mut cells = Cells::of(row);
        Ok(Point {
            judgement_id: cells.parsed()?,
            provider: cells.parsed()?,
            at_ms: cells.next()?,
            suite: cells.next()?,
            suite_hash: cells.parsed()?,
            submission_hash: cells.parsed()?,
            class: Class::named(&cells.next::<String>()?)
                .ok_or_else(|| unreadable("a judgement has an unknown class"))?,
            mode: match cells.next::<String>()?.as_str() {
                "trusted" => Mode::Trusted,
                "tamper_evident" => Mode::TamperEvident,
                other => return Err(unreadable(format!("a judgement is {other}"))),
            },
            passed: cells.next()?,
            total: cells.next()?,
            wall_us: cells.next()?,
            cpu_us: cells.next()?,
            memory_peak_bytes: cells.next()?,
            coverage_bp: cells.next()?,
            pylint_milli: cells.next()?,
            bandit_milli: cells.next()?,
            mypy_milli: cells.next()?,
        })
    }
}

/// Keeps a verdict about what a provider delivered. The same one, of the same moment, is kept once; one that
/// contradicts itself is refused.
pub fn record(
    tx: &mut Tx<'_>,
    provider: &PublicKey,
    verdict: &Verdict,
    at_ms: UnixMs,
) -> Result<Hash> {
    verdict.check()?;
    let text = String::from_utf8_lossy(&json::to_canonical(verdict)?).into_owned();
    let npub = provider.npub();
    let id = json::hash(&(npub.as_str(), at_ms, text.as_str()))?;
    let mode = match verdict.mode {
        Mode::Trusted => "trusted",
        Mode::TamperEvident => "tamper_evident",
    };
    let metrics = &verdict.metrics;
    let score = |measure: &Measure| measure.value().map(number);
    tx.exec(
        "INSERT INTO market_judgement
           (judgement_id, provider, at_ms, suite, suite_hash, submission_hash, class, mode, passed, total,
            wall_us, cpu_us, memory_peak_bytes, coverage_bp, pylint_milli, bandit_milli, mypy_milli, verdict)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
         ON CONFLICT (judgement_id) DO NOTHING",
        args![
            &id.to_string(),
            &npub,
            at_ms,
            &verdict.suite,
            &verdict.suite_hash.to_string(),
            &verdict.submission_hash.to_string(),
            verdict.class.name(),
            mode,
            number(verdict.passed),
            number(verdict.total),
            number(metrics.wall_us),
            number(metrics.cpu_us),
            number(metrics.memory_peak_bytes),
            score(&metrics.coverage_bp),
            score(&metrics.pylint_milli),
            score(&metrics.bandit_milli),
            score(&metrics.mypy_milli),
            &text
        ],
    )?;
    Ok(id)
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT judgement_id, provider, at_ms, suite, suite_hash, submission_hash, class, mode, passed, total,
                    wall_us, cpu_us, memory_peak_bytes, coverage_bp, pylint_milli, bandit_milli, mypy_milli
             FROM market_judgement ",
            $rest
        )
    };
}

/// The latest points of a provider, or of all, the newest first.
pub fn series(rx: &mut Rx<'_>, provider: Option<&PublicKey>, limit: i64) -> Result<Vec<Point>> {
    Ok(match provider {
        Some(provider) => rx.all(
            select!("WHERE provider = $1 ORDER BY at_ms DESC, judgement_id DESC LIMIT $2"),
            args![&provider.npub(), page(limit)],
        )?,
        None => {
            rx.all(select!("ORDER BY at_ms DESC, judgement_id DESC LIMIT $1"), args![page(limit)])?
        }
    })
}

/// A verdict as it was kept, in its canonical bytes.
pub fn get(rx: &mut Rx<'_>, judgement_id: &Hash) -> Result<Option<String>> {
    let sql = "SELECT verdict FROM market_judgement WHERE judgement_id = $1";
    let row: Option<(String,)> = rx.first(sql, args![&judgement_id.to_string()])?;
    Ok(row.map(|(text,)| text))
}
