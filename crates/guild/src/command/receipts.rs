//! `guild receipts`

use std::path::Path;

use guild_protocol::receipt::{self, Receipt};
use guild_protocol::verification::Verification;
use serde::Serialize;

use super::{Context, verdict};
use crate::error::{InFile, Result};
use crate::input::Input;
use crate::output::{Answer, lossy};

/// Check signed receipts
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Verify(VerifyArgs),
}

/// Check receipts from their bytes alone
///
/// Every check is listed; where the content was changed after signing, the changed field is named. The exit code is 1
/// if a receipt must not be trusted, 2 if a file is not a receipt at all. With --json there is one line for each file.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// The receipts; - reads one from standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<Input>,
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
    let Command::Verify(args) = command;
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

fn verify(file: &Input, cx: &mut Context<'_>) -> Result<Answer> {
    let path = file.path();
    let bytes = file.read(receipt::MAX_BYTES)?;
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
