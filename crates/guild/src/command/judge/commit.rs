//! `guild judge commit` and `guild judge verify-commitment`

use guild_market::judge::Salt;
use guild_protocol::hash::Hash;
use serde_json::json;

use super::{made_up_salt, read_suite};
use crate::command::Context;
use crate::error::Result;
use crate::input::Input;
use crate::output::Answer;

/// Print what proves later that a suite was this one, and says nothing about it now
///
/// The commitment is the SHA-256 of the salt and the canonical form of the suite. Publish it before the work begins,
/// keep the salt secret, and publish suite and salt after the verdict.
#[derive(Debug, clap::Args)]
pub(crate) struct CommitArgs {
    /// The suite: a JSON file, or - for standard input
    #[arg(long, value_name = "FILE")]
    suite: Input,
    /// 64 hex digits that nobody can guess; made up if they are not given
    #[arg(long, value_name = "HEX")]
    salt: Option<String>,
}

/// Check that a suite and a salt are those of a commitment
///
/// The exit code is 0 if they are and 1 if not.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// The suite: a JSON file, or - for standard input
    #[arg(long, value_name = "FILE")]
    suite: Input,
    /// The salt that was revealed
    #[arg(long, value_name = "HEX")]
    salt: String,
    /// The commitment that was published, as sha256:<hex>
    #[arg(long, value_name = "HASH")]
    commitment: Hash,
}

pub(super) fn commit(args: &CommitArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let suite = read_suite(&args.suite)?;
    let salt = match &args.salt {
        Some(salt) => Salt::parse(salt)?,
        None => made_up_salt(),
    };
    let commitment = suite.commitment(&salt);
    if cx.out.json() {
        let body =
            json!({"commitment": commitment, "salt": salt.hex(), "suite_hash": suite.hash()});
        cx.out.object(true, body)?;
    } else {
        cx.out.fields(&[("commitment", &commitment.to_string()), ("salt", &salt.hex())])?;
    }
    Ok(Answer::Yes)
}

pub(super) fn verify(args: &VerifyArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let suite = read_suite(&args.suite)?;
    let found = suite.commitment(&Salt::parse(&args.salt)?);
    let holds = found == args.commitment;
    if cx.out.json() {
        cx.out.object(holds, json!({"holds": holds, "commitment": found}))?;
    } else if holds {
        cx.out.line("the suite and the salt are those of the commitment")?;
    } else {
        cx.out.line(&format!("NOT the same: this suite and salt give {found}"))?;
    }
    Ok(Answer::of(holds))
}
