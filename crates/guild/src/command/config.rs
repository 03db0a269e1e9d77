//! `guild config`

use serde::Serialize;

use super::Context;
use crate::config;
use crate::error::Result;
use crate::output::Answer;

/// Look at the configuration
///
/// Defaults, then guild.toml, then the environment, then flags: the later wins.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Show(ShowArgs),
}

/// Print the effective configuration and where it comes from
///
/// The text is TOML and can be used as a guild.toml. Passwords inside addresses are hidden.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Print the reference of every key instead: default, environment variable, meaning
    #[arg(long)]
    docs: bool,
    /// Name the origin of every value, the defaults included
    #[arg(long, conflicts_with = "docs")]
    origin: bool,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    let Command::Show(args) = command;
    if args.docs {
        return docs(cx);
    }
    let loaded = cx.config()?;
    if cx.out.json() {
        cx.out.object(true, config::show::body(&loaded, args.origin))?;
    } else {
        cx.out.raw(config::show::text(&loaded, args.origin).as_bytes())?;
    }
    Ok(Answer::Yes)
}

#[derive(Serialize)]
struct Docs {
    keys: Vec<config::key::Reference>,
}

fn docs(cx: &mut Context<'_>) -> Result<Answer> {
    let keys = config::key::reference();
    if cx.out.json() {
        cx.out.object(true, Docs { keys })?;
        return Ok(Answer::Yes);
    }
    for (i, key) in keys.iter().enumerate() {
        if i > 0 {
            cx.out.line("")?;
        }
        cx.out.line(&format!("{} = {}", key.key, key.default))?;
        cx.out.line(&format!("    {}", key.meaning))?;
        cx.out.line(&format!("    environment: {}", key.env))?;
    }
    Ok(Answer::Yes)
}
