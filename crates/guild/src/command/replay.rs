//! `guild replay`

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use guild_protocol::receipt;
use guild_protocol::replay::{self, Checker, Report, SessionStatus, Standing, bundle};
use serde::Serialize;

use super::{Context, verdict};
use crate::error::{Error, InFile, Result, code};
use crate::input::{Existing, Input, MAX_DOCUMENT_BYTES, write_whole};
use crate::output::{Answer, lossy};

/// Check, repair and convert replays, the record of what a session did
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Verify(VerifyArgs),
    Repair(RepairArgs),
    /// Make a replay of a ReplayBundle, the JSON file of earlier systems
    ///
    /// A bundle carries no hashes, so the replay says that it was imported and is not evidence.
    Import(ConvertArgs),
    /// Make a ReplayBundle of a replay
    ///
    /// What a bundle has no place for is left out.
    Export(ConvertArgs),
}

/// Check a replay line by line, alone or against its receipt
///
/// The exit code is 0 if the replay is sealed and whole and, where a receipt is given, signed for by it. It is 1 if
/// something does not hold, or if the replay proves nothing because it is unsealed, repaired or imported.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// The replay (REPLAY.jsonl); - reads from standard input
    file: Input,
    /// The receipt that signs for it
    #[arg(long, value_name = "FILE")]
    receipt: Option<Input>,
}

/// Close a replay whose writer was interrupted
///
/// Drops a last line that broke off and adds the missing end. The result says that it was repaired, and is not
/// evidence. It goes to standard output unless --out or --in-place is given.
#[derive(Debug, clap::Args)]
pub(crate) struct RepairArgs {
    /// The replay (REPLAY.jsonl); - reads from standard input
    file: Input,
    /// How the session is said to have ended
    #[arg(long, value_enum, default_value = "failed")]
    status: End,
    /// Write to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file itself
    #[arg(long, conflicts_with = "out")]
    in_place: bool,
}

/// An interrupted session never succeeded.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum End {
    Failed,
    Cancelled,
    Timeout,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    /// The file to convert; - reads from standard input
    file: Input,
    /// Write to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Verify(args) => verify(args, cx),
        Command::Repair(args) => repair(args, cx),
        Command::Import(args) => {
            let text = args.file.read(MAX_DOCUMENT_BYTES)?;
            let made = bundle::import(&text).in_file(args.file.path())?;
            deliver(&args.file, args.out.as_deref(), Existing::Keep, &made, Made::default(), cx)
        }
        Command::Export(args) => {
            let text = args.file.read(replay::MAX_BYTES)?;
            let mut made = bundle::export(&text).in_file(args.file.path())?;
            made.push(b'\n');
            deliver(&args.file, args.out.as_deref(), Existing::Keep, &made, Made::default(), cx)
        }
    }
}

#[derive(Serialize)]
struct VerifyBody<'a> {
    #[serde(serialize_with = "lossy")]
    file: &'a Path,
    #[serde(flatten)]
    report: &'a Report,
}

fn verify(args: &VerifyArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let path = args.file.path();
    let receipt = match &args.receipt {
        Some(file) => Some(file.read(receipt::MAX_BYTES)?),
        None => None,
    };
    // Before the long walk: a bad receipt must be named as the bad file.
    if let (Some(file), Some(bytes)) = (&args.receipt, &receipt) {
        receipt::verify(bytes).in_file(file.path())?;
    }
    let report = check(&args.file)?.finish(receipt.as_deref()).in_file(path)?;
    let yes = matches!(report.standing, Standing::Verified | Standing::Sealed);
    if cx.out.json() {
        cx.out.object(yes, VerifyBody { file: path, report: &report })?;
        return Ok(Answer::of(yes));
    }
    cx.out.line(&format!("{}: {}", path.display(), report.standing.sentence()))?;
    verdict::checks(&report.checks, cx)?;
    cx.out.line("")?;
    let (lines, tool_calls) = (report.lines.to_string(), report.tool_calls.to_string());
    let hash = report.trajectory_hash.map(|hash| hash.to_string()).unwrap_or_default();
    let mut fields = vec![("  session", report.session_id.as_deref().unwrap_or("unknown"))];
    if !hash.is_empty() {
        fields.push(("  trajectory", &hash));
    }
    let signed_by = report.signed_by.map(|key| key.npub());
    if let Some(npub) = &signed_by {
        fields.push(("  signed by", npub));
    }
    fields.push(("  lines", &lines));
    fields.push(("  tool calls", &tool_calls));
    cx.out.fields(&fields)?;
    Ok(Answer::of(yes))
}

/// Takes the file line by line: it may be larger than memory.
fn check(file: &Input) -> Result<Checker> {
    let path = file.path();
    let bound = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(1);
    let mut reader = BufReader::new(file.open()?.take(bound(replay::MAX_BYTES)));
    let mut checker = Checker::explaining();
    let (mut line, mut total_bytes) = (Vec::new(), 0usize);
    loop {
        line.clear();
        let mut one = reader.by_ref().take(bound(replay::MAX_LINE_BYTES));
        let count = one.read_until(b'\n', &mut line).map_err(|e| Error::io(path, &e))?;
        if count == 0 {
            return Ok(checker);
        }
        total_bytes = total_bytes.saturating_add(count);
        if total_bytes > replay::MAX_BYTES {
            let message = format!("larger than the limit of {} bytes", replay::MAX_BYTES);
            return Err(Error::new(&code::IO_TOO_LARGE, message).in_file(path));
        }
        checker.line(&line).in_file(path)?;
    }
}

fn repair(args: &RepairArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let path = args.file.path();
    if args.in_place && args.file.is_stdin() {
        let message = "standard input cannot be replaced";
        return Err(Error::new(&code::USAGE, message).help("Name the file, or use --out."));
    }
    let status = match args.status {
        End::Failed => SessionStatus::Failed,
        End::Cancelled => SessionStatus::Cancelled,
        End::Timeout => SessionStatus::Timeout,
    };
    let text = args.file.read(replay::MAX_BYTES)?;
    let repaired = replay::repair(&text, status).in_file(path)?;
    let made = Made {
        kept_lines: Some(repaired.kept_lines),
        dropped_bytes: Some(repaired.dropped_bytes),
        ..Made::default()
    };
    let (out, existing) = match args.in_place {
        true => (Some(path), Existing::Replace),
        false => (args.out.as_deref(), Existing::Keep),
    };
    let answer = deliver(&args.file, out, existing, &repaired.bytes, made, cx)?;
    cx.out.remark(&format!(
        "kept {} lines, dropped {} bytes; the replay says that it was repaired",
        repaired.kept_lines, repaired.dropped_bytes
    ));
    Ok(answer)
}

/// What was made from a file.
#[derive(Default, Serialize)]
struct Made {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_lines: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_bytes: Option<usize>,
}

/// Hands out what was made: to a file, to standard output, or inside the JSON answer.
fn deliver(
    file: &Input,
    out: Option<&Path>,
    existing: Existing,
    bytes: &[u8],
    mut made: Made,
    cx: &mut Context<'_>,
) -> Result<Answer> {
    made.file = file.path().display().to_string();
    if let Some(out) = out {
        write_whole(out, bytes, 0o644, existing)?;
        made.out = Some(out.display().to_string());
    } else if cx.out.json() {
        made.content = Some(String::from_utf8_lossy(bytes).into_owned());
    } else {
        cx.out.raw(bytes)?;
    }
    if cx.out.json() {
        cx.out.object(true, made)?;
    } else if let Some(out) = out {
        cx.out.line(&out.display().to_string())?;
    }
    Ok(Answer::Yes)
}
