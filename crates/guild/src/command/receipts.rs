//! `guild receipts`

use std::path::{Path, PathBuf};

use guild_protocol::id::ReceiptId;
use guild_protocol::receipt::{self, Receipt};
use guild_protocol::replay;
use guild_protocol::verification::Verification;
use guild_roles::explorer::{Receipt as Line, Side};
use serde::Serialize;

use super::reading::{self, ListArgs};
use super::table::Column;
use super::{Context, verdict};
use crate::error::{InFile, Result};
use crate::input::{self, Existing, Input};
use crate::keystore::make_private_directory;
use crate::output::{Answer, lossy};

/// List, check and export signed receipts
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(LsArgs),
    Show(ShowArgs),
    Verify(VerifyArgs),
    Export(ExportArgs),
}

/// List receipts given and taken, the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    list: ListArgs,
}

/// Print a receipt byte for byte, as it was signed
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Its id
    id: ReceiptId,
}

/// Check receipts from their bytes alone
///
/// Every check is listed; where the content was changed after signing, the changed field is named. The exit code is 1
/// if a receipt must not be trusted, 2 if a file is not a receipt at all. With --json there is one line for each file.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// The receipts: files, or ids of receipts that this node has; - reads one from standard input
    #[arg(required = true, value_name = "FILE|ID")]
    files: Vec<Input>,
}

/// Write a receipt, and its replay if it is here, as files that a stranger can check
///
/// `guild receipts verify` checks the receipt, `guild replay verify` both together.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Its id
    id: ReceiptId,
    /// The directory to write into
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(serialize_with = "lossy")]
    file: &'a Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt_id: Option<String>,
    checks: Verification,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Ls(args) => ls(args, cx),
        Command::Show(args) => show(args, cx),
        Command::Verify(args) => verify_all(args, cx),
        Command::Export(args) => export(args, cx),
    }
}

fn ls(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let page = args.list.page();
    let listed = reading::read(&cx.config()?, |market| async move { market.receipts(page).await })?;
    let columns = [
        Column::Left("receipt"),
        Column::Left("when"),
        Column::Left("side"),
        Column::Left("with"),
        Column::Right("amount"),
        Column::Left("status"),
    ];
    reading::list("receipts", &listed, columns, row, cx)?;
    Ok(Answer::Yes)
}

fn row(receipt: &Line) -> [String; 6] {
    let (side, with) = match receipt.side {
        Side::Hired => ("taken", &receipt.buyer),
        Side::Bought | Side::Seen => ("given", &receipt.provider),
    };
    [
        receipt.receipt_id.clone(),
        reading::time(receipt.at_ms),
        side.to_owned(),
        reading::party(with),
        receipt.amount.to_string(),
        receipt.status.as_str().to_owned(),
    ]
}

/// The bytes of a receipt that this node has.
fn kept(id: &ReceiptId, cx: &mut Context<'_>) -> Result<Vec<u8>> {
    let wanted = id.clone();
    let ask = |market: guild_roles::explorer::Explorer| async move { market.receipt(wanted).await };
    let found = reading::read(&cx.config()?, ask)?;
    Ok(found.ok_or_else(|| reading::unknown("receipt", id, "receipts"))?.bytes)
}

fn show(args: &ShowArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let bytes = kept(&args.id, cx)?;
    cx.out.raw(&bytes)?;
    if !bytes.ends_with(b"\n") {
        cx.out.raw(b"\n")?;
    }
    Ok(Answer::Yes)
}

fn export(args: &ExportArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let bytes = kept(&args.id, cx)?;
    let id = args.id.clone();
    let replay = reading::read(&cx.config()?, |market| async move { market.replay(id).await })?;
    make_private_directory(&args.directory)?;
    let path = args.directory.join(receipt::FILE_NAME);
    input::write_whole(&path, &bytes, 0o644, Existing::Keep)?;
    let mut written = vec![path];
    if let Some(bytes) = replay {
        let path = args.directory.join(replay::FILE_NAME);
        input::write_whole(&path, &bytes, 0o644, Existing::Keep)?;
        written.push(path);
    }
    let written: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
    if cx.out.json() {
        let body = serde_json::json!({ "receipt_id": args.id, "files": written });
        cx.out.object(true, body)?;
        return Ok(Answer::Yes);
    }
    for path in written {
        cx.out.line(&path)?;
    }
    Ok(Answer::Yes)
}

fn verify_all(args: &VerifyArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let mut all = Answer::Yes;
    for file in &args.files {
        // One bad file must not hide what the others say.
        let answer = match verify(file, cx) {
            Ok(answer) => answer,
            Err(error) => Answer::Failed(cx.out.error(&error)),
        };
        all = all.and(answer);
    }
    Ok(all)
}

/// A file of that name, or a receipt of this node.
fn bytes_of(file: &Input, cx: &mut Context<'_>) -> Result<Vec<u8>> {
    let id = file.path().to_str().and_then(|text| text.parse::<ReceiptId>().ok());
    match id {
        Some(id) if !file.path().exists() => kept(&id, cx),
        _ => file.read(receipt::MAX_BYTES),
    }
}

fn verify(file: &Input, cx: &mut Context<'_>) -> Result<Answer> {
    let path = file.path();
    let bytes = bytes_of(file, cx)?;
    let checks = receipt::explain(&bytes).in_file(path)?;
    let holds = checks.holds();
    let receipt = if holds { Some(Receipt::from_bytes(&bytes).in_file(path)?) } else { None };
    if cx.out.json() {
        let receipt_id = receipt.map(|r| r.receipt_id().to_string());
        cx.out.object(holds, Body { file: path, receipt_id, checks })?;
        return Ok(Answer::of(holds));
    }
    let verdict = if holds { "holds" } else { "does NOT hold" };
    cx.out.line(&format!("{}: the receipt {verdict}", path.display()))?;
    verdict::checks(&checks, cx)?;
    if let Some(receipt) = receipt {
        let stated = receipt.stated();
        let payment = format!("{} ({})", stated.amount, stated.status.as_str());
        cx.out.line("")?;
        cx.out.fields(&[
            ("  receipt", receipt.receipt_id().as_str()),
            ("  from", &stated.buyer_id.npub()),
            ("  to", &stated.provider_id.npub()),
            ("  amount", &payment),
        ])?;
    }
    cx.out.line("")?;
    Ok(Answer::of(holds))
}
