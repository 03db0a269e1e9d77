//! `guild completions`

use super::Context;
use crate::error::Result;
use crate::output::Answer;

/// Print a script that completes guild's commands in a shell
///
/// For bash: `guild completions bash > ~/.local/share/bash-completion/completions/guild`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    cx.out.raw(&script(args.shell))?;
    Ok(Answer::Yes)
}

/// The script for a shell.
pub(crate) fn script(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::cli::tree(), "guild", &mut script);
    script
}
