//! `guild schema`

use std::path::{Path, PathBuf};

use guild_protocol::schema::{self, Detail, Registry, Schema, SchemaId};
use serde::Serialize;

use super::Context;
use crate::error::{Error, InFile, Result, code};
use crate::input::Input;
use crate::output::{Answer, lossy};
use crate::suggest;

/// More files than this in a directory are something else than schemas.
const MAX_SCHEMA_FILES: usize = 1000;

/// Look at job schemas and check documents against them
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the schemas that are known
    Ls(LsArgs),
    /// Print a schema
    Show(ShowArgs),
    Check(CheckArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    more: More,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The id, such as oa.embedding.v1
    id: String,
    #[command(flatten)]
    more: More,
}

/// Check the input of a job, or its output, against a schema
///
/// Every problem is listed. What fits has its defaults filled in, and its hashes are printed.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The id, such as oa.embedding.v1
    id: String,
    /// The JSON file; - reads from standard input
    file: Input,
    /// The file is what a provider gave, not what a buyer asked
    #[arg(long)]
    output: bool,
    #[command(flatten)]
    more: More,
}

#[derive(Debug, clap::Args)]
struct More {
    /// Know the schemas of this directory's .json files too
    #[arg(long, value_name = "DIR")]
    schemas: Option<PathBuf>,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Ls(args) => ls(args, cx),
        Command::Show(args) => show(args, cx),
        Command::Check(args) => check(args, cx),
    }
}

#[derive(Serialize)]
struct Row<'a> {
    schema_id: &'a str,
    verification_mode: &'a str,
    purpose: &'a str,
    builtin: bool,
}

impl<'a> Row<'a> {
    fn of(schema: &'a Schema) -> Row<'a> {
        Row {
            schema_id: schema.schema_id.as_str(),
            verification_mode: schema.verification_mode.as_str(),
            purpose: &schema.purpose,
            builtin: Registry::is_builtin(&schema.schema_id),
        }
    }
}

#[derive(Serialize)]
struct Ls<'a> {
    schemas: Vec<Row<'a>>,
}

fn ls(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let registry = args.more.registry()?;
    let schemas: Vec<Row<'_>> = registry.iter().map(Row::of).collect();
    if cx.out.json() {
        cx.out.object(true, Ls { schemas })?;
        return Ok(Answer::Yes);
    }
    let width = schemas.iter().map(|row| row.schema_id.len()).max().unwrap_or(0);
    for Row { schema_id, verification_mode, purpose, .. } in schemas {
        cx.out.line(&format!("{schema_id:width$}  {verification_mode:10}  {purpose}"))?;
    }
    Ok(Answer::Yes)
}

#[derive(Serialize)]
struct Show<'a> {
    schema_hash: String,
    schema: &'a Schema,
}

fn show(args: &ShowArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let registry = args.more.registry()?;
    let schema = find(&registry, &args.id)?;
    if cx.out.json() {
        cx.out.object(true, Show { schema_hash: schema.hash()?.to_string(), schema })?;
    } else {
        for line in schema.to_json_pretty()?.lines() {
            cx.out.line(line)?;
        }
    }
    Ok(Answer::Yes)
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Checked {
    Input {
        job_hash: String,
        payload_hash: String,
        payload: serde_json::Value,
    },
    Output {
        output_hash: String,
        verification_hash: String,
        lacking: Vec<Detail>,
        output: serde_json::Value,
    },
}

#[derive(Serialize)]
struct CheckBody<'a> {
    #[serde(serialize_with = "lossy")]
    file: &'a Path,
    schema_id: &'a str,
    #[serde(flatten)]
    checked: Checked,
}

fn check(args: &CheckArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let registry = args.more.registry()?;
    let schema = find(&registry, &args.id)?;
    let path = args.file.path();
    let limit = if args.output { schema::MAX_OUTPUT_BYTES } else { schema::MAX_INPUT_BYTES };
    let text = args.file.read(limit)?;
    let checked = match args.output {
        false => input(&registry, schema, &text),
        true => output(&registry, schema, &text),
    };
    let checked = checked.map_err(|e| e.in_file(path))?;
    if cx.out.json() {
        cx.out.object(
            true,
            CheckBody { file: path, schema_id: schema.schema_id.as_str(), checked },
        )?;
        return Ok(Answer::Yes);
    }
    cx.out.line(&format!("{}: fits {}", path.display(), schema.schema_id))?;
    match checked {
        Checked::Input { job_hash, payload_hash, .. } => {
            cx.out.fields(&[("  job", &job_hash), ("  payload", &payload_hash)])?;
        }
        Checked::Output { output_hash, verification_hash, lacking, .. } => {
            cx.out.fields(&[("  output", &output_hash), ("  verification", &verification_hash)])?;
            if !lacking.is_empty() {
                let names: Vec<_> = lacking.iter().map(|detail| detail.as_str()).collect();
                cx.out
                    .line(&format!("  provenance that it does not state: {}", names.join(", ")))?;
            }
        }
    }
    Ok(Answer::Yes)
}

fn input(registry: &Registry, schema: &Schema, text: &[u8]) -> Result<Checked> {
    let job = registry.validate_input_text(&schema.schema_id, text)?;
    Ok(Checked::Input {
        job_hash: job.job_hash().to_string(),
        payload_hash: job.payload_hash().to_string(),
        payload: job.into_payload(),
    })
}

fn output(registry: &Registry, schema: &Schema, text: &[u8]) -> Result<Checked> {
    let output = registry.validate_output_text(&schema.schema_id, text)?;
    Ok(Checked::Output {
        output_hash: output.output_hash().to_string(),
        verification_hash: schema::verification_hash(schema, &output)?.to_string(),
        lacking: output.lacking().to_vec(),
        output: output.into_value(),
    })
}

/// The schema with this id; a slip gets a suggestion.
fn find<'a>(registry: &'a Registry, id: &str) -> Result<&'a Schema> {
    let found = id.parse::<SchemaId>().and_then(|id| registry.get(&id));
    found.map_err(|e| {
        let known = registry.iter().map(|schema| schema.schema_id.as_str());
        match suggest::nearest(id, known) {
            Some(near) => Error::from(e).help(format!("Did you mean {near}?")),
            None => Error::from(e).help("`guild schema ls` lists those that are known."),
        }
    })
}

impl More {
    /// The built-in schemas, and those of the directory, in the order of their names.
    fn registry(&self) -> Result<Registry> {
        let mut registry = Registry::builtin();
        let Some(dir) = &self.schemas else { return Ok(registry) };
        let failed = |e: std::io::Error| Error::io(dir, &e);
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                paths.push(path);
            }
            if paths.len() > MAX_SCHEMA_FILES {
                let message = format!("more than {MAX_SCHEMA_FILES} .json files");
                return Err(Error::new(&code::IO_TOO_LARGE, message).in_file(dir));
            }
        }
        paths.sort();
        for path in paths {
            let text = Input::from(path.clone().into_os_string()).read(Schema::MAX_BYTES)?;
            registry.add_json(&text).in_file(&path)?;
        }
        Ok(registry)
    }
}
