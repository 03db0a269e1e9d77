//! How fast the ledger books, with all its checks, beside bare loops that write the same without any; and
//! whether it stays as fast when the history has grown.

use std::process::ExitCode;

use guild_store::Options;
use testbed::bench::{self, Arguments, Measured};

mod bare;
mod growth;
mod ours;
mod rows;
mod sets;
mod world;

use ours::Way;

fn main() -> ExitCode {
    bench::main(measure)
}

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let Some((what, engine)) = arguments.case.split_once('_') else {
        return Err(format!("there is no case {:?}", arguments.case));
    };
    let options = match engine {
        "sqlite" => Options::file(&arguments.directory.join("ours.db")),
        "postgres" => Options::at(arguments.postgres_url()?),
        _ => return Err(format!("there is no database {engine:?}")),
    };
    let way = match what {
        "batched" | "ready" => Way::Batched,
        "direct" => Way::Direct,
        "growth" => return growth::measure(&options, arguments.millions),
        _ => return Err(format!("there is no case {:?}", arguments.case)),
    };
    let (ours, history) = ours::run(&options, way, arguments.seconds)?;
    let path = arguments.directory.join("bare.db");
    let limit = match (what, engine) {
        ("batched", "sqlite") => sets::on_sqlite(&path, &history)?,
        ("batched", _) => sets::on_postgres(arguments.postgres_url()?, &history)?,
        (_, "sqlite") => bare::on_sqlite(&path, &history)?,
        _ => bare::on_postgres(arguments.postgres_url()?, &history)?,
    };
    Ok(vec![ours, limit])
}

/// What went wrong, in words: a bench that fails measures nothing.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
