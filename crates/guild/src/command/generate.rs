//! `guild generate`: what is made from the program itself, so that it cannot drift from it.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Context, completions};
use crate::cli;
use crate::error::{Error, Result};
use crate::input::{Existing, write_whole};
use crate::output::Answer;

mod page;

/// Write reference pages, manual pages or completions
#[derive(Debug, clap::Subcommand)]
#[command(hide = true)]
pub(crate) enum Command {
    /// Write errors.md, config.md and cli.md
    Docs(Args),
    /// Write a manual page for each command
    Man(Args),
    /// Write the completions for each shell
    Completions(Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to; made if it is not there
    #[arg(long)]
    dir: PathBuf,
}

#[derive(Serialize)]
struct Body {
    files: Vec<PathBuf>,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    let (dir, pages) = match command {
        Command::Docs(args) => (&args.dir, page::all()),
        Command::Man(args) => (&args.dir, manual()?),
        Command::Completions(args) => (&args.dir, scripts()),
    };
    std::fs::create_dir_all(dir).map_err(|e| Error::io(dir, &e))?;
    let mut files = Vec::new();
    for (name, bytes) in pages {
        let path = dir.join(name);
        write_whole(&path, &bytes, 0o644, Existing::Replace)?;
        files.push(path);
    }
    if cx.out.json() {
        cx.out.object(true, Body { files })?;
    } else {
        for file in files {
            cx.out.line(&file.display().to_string())?;
        }
    }
    Ok(Answer::Yes)
}

type Pages = Vec<(String, Vec<u8>)>;

fn manual() -> Result<Pages> {
    fn walk(name: &str, command: &clap::Command, pages: &mut Pages) -> std::io::Result<()> {
        let mut page = Vec::new();
        clap_mangen::Man::new(command.clone()).render(&mut page)?;
        pages.push((format!("{name}.1"), page));
        for inner in
            command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help")
        {
            walk(&format!("{name}-{}", inner.get_name()), inner, pages)?;
        }
        Ok(())
    }
    let mut pages = Vec::new();
    walk("guild", &cli::tree(), &mut pages).map_err(|e| Error::io(Path::new("man"), &e))?;
    Ok(pages)
}

fn scripts() -> Pages {
    use clap::ValueEnum;
    use clap_complete::{Generator, Shell};
    let script = |shell: &Shell| (shell.file_name("guild"), completions::script(*shell));
    Shell::value_variants().iter().map(script).collect()
}
