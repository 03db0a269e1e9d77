//! The commands, one file each.

use clap::Subcommand;

use crate::cli::{Cli, Global};
use crate::config::{Environment, Loaded, load};
use crate::error::Result;
use crate::output::{Answer, Output};
use crate::telemetry;

mod agent;
mod audit;
mod benchmark;
mod billing;
mod blueprint;
mod budget;
mod cid;
mod completions;
mod config;
mod content;
mod demo;
mod disputes;
mod doctor;
mod evidence;
mod generate;
mod hash;
mod hire;
mod hosted;
mod job;
mod judge;
mod key;
mod ledger;
mod log;
mod login;
mod market;
mod outbox;
mod policy;
mod providers;
mod reading;
mod receipts;
mod relay;
mod replay;
mod requests;
mod reviews;
mod route;
mod sandbox;
mod sandbox_agent;
mod schema;
mod store;
mod table;
mod turn;
mod up;
mod verdict;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Up(up::Args),
    Hire(hire::Args),
    #[command(subcommand)]
    Agent(agent::Command),
    #[command(subcommand)]
    Turn(turn::Command),
    #[command(subcommand)]
    Requests(requests::Command),
    #[command(subcommand)]
    Providers(providers::Command),
    #[command(subcommand)]
    Market(market::Command),
    #[command(subcommand)]
    Benchmark(benchmark::Command),
    #[command(subcommand)]
    Route(route::Command),
    #[command(subcommand)]
    Budget(budget::Command),
    #[command(subcommand)]
    Disputes(disputes::Command),
    #[command(subcommand)]
    Reviews(reviews::Command),
    #[command(subcommand)]
    Receipts(receipts::Command),
    #[command(subcommand)]
    Log(log::Command),
    #[command(subcommand)]
    Ledger(ledger::Command),
    #[command(subcommand)]
    Policy(policy::Command),
    Audit(audit::Args),
    #[command(subcommand)]
    Evidence(evidence::Command),
    #[command(subcommand)]
    Outbox(outbox::Command),
    #[command(subcommand)]
    Store(store::Command),
    Hash(hash::Args),
    Cid(cid::Args),
    #[command(subcommand)]
    Content(content::Command),
    #[command(subcommand)]
    Relay(relay::Command),
    #[command(subcommand)]
    Replay(replay::Command),
    #[command(subcommand)]
    Blueprint(blueprint::Command),
    Judge(judge::Args),
    #[command(subcommand)]
    Sandbox(sandbox::Command),
    SandboxAgent(sandbox_agent::Args),
    Login(login::Args),
    Logout(login::LogoutArgs),
    #[command(subcommand)]
    Job(job::Command),
    #[command(subcommand)]
    Billing(billing::Command),
    #[command(subcommand)]
    Schema(schema::Command),
    #[command(subcommand)]
    Key(key::Command),
    #[command(subcommand)]
    Config(config::Command),
    Doctor(doctor::Args),
    Completions(completions::Args),
    #[command(subcommand)]
    Generate(generate::Command),
}

/// What a command works with.
pub(crate) struct Context<'a> {
    pub(crate) global: &'a Global,
    pub(crate) environment: &'a Environment,
    pub(crate) out: &'a mut Output,
}

impl Context<'_> {
    /// The effective configuration; from now on there is a log, as it says.
    ///
    /// A command that only looks at files it is given never asks for it, so it works whatever the settings are.
    pub(crate) fn config(&self) -> Result<Loaded> {
        let loaded = load(self.global, self.environment)?;
        telemetry::start(&loaded.config.log, self.global.louder());
        Ok(loaded)
    }

    /// As [`Context::config`], for a command that tells by itself how it goes: its log is one step quieter.
    pub(crate) fn config_in_peace(&self) -> Result<Loaded> {
        let loaded = load(self.global, self.environment)?;
        telemetry::start(&loaded.config.log, self.global.louder().saturating_sub(1));
        Ok(loaded)
    }
}

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli, environment: &Environment, out: &mut Output) -> Result<Answer> {
    let Cli { global, command } = cli;
    let mut cx = Context { global: &global, environment, out };
    match command {
        Command::Demo(args) => demo::run(&args, &mut cx),
        Command::Up(args) => up::run(&args, &mut cx),
        Command::Hire(args) => hire::run(&args, &mut cx),
        Command::Agent(command) => agent::run(&command, &mut cx),
        Command::Turn(command) => turn::run(&command, &mut cx),
        Command::Requests(command) => requests::run(&command, &mut cx),
        Command::Providers(command) => providers::run(&command, &mut cx),
        Command::Market(command) => market::run(&command, &mut cx),
        Command::Benchmark(command) => benchmark::run(&command, &mut cx),
        Command::Route(command) => route::run(&command, &mut cx),
        Command::Budget(command) => budget::run(&command, &mut cx),
        Command::Disputes(command) => disputes::run(&command, &mut cx),
        Command::Reviews(command) => reviews::run(&command, &mut cx),
        Command::Log(command) => log::run(&command, &mut cx),
        Command::Ledger(command) => ledger::run(&command, &mut cx),
        Command::Policy(command) => policy::run(&command, &mut cx),
        Command::Audit(args) => audit::run(&args, &mut cx),
        Command::Evidence(command) => evidence::run(&command, &mut cx),
        Command::Outbox(command) => outbox::run(&command, &mut cx),
        Command::Store(command) => store::run(&command, &mut cx),
        Command::Hash(args) => hash::run(&args, &mut cx),
        Command::Cid(args) => cid::run(&args, &mut cx),
        Command::Content(command) => content::run(&command, &mut cx),
        Command::Relay(command) => relay::run(&command, &mut cx),
        Command::Receipts(command) => receipts::run(&command, &mut cx),
        Command::Replay(command) => replay::run(&command, &mut cx),
        Command::Blueprint(command) => blueprint::run(&command, &mut cx),
        Command::Judge(args) => judge::run(&args, &mut cx),
        Command::Sandbox(command) => sandbox::run(&command, &mut cx),
        Command::SandboxAgent(args) => sandbox_agent::run(&args, &mut cx),
        Command::Login(args) => login::run(&args, &mut cx),
        Command::Logout(args) => login::logout(&args, &mut cx),
        Command::Job(command) => job::run(&command, &mut cx),
        Command::Billing(command) => billing::run(&command, &mut cx),
        Command::Schema(command) => schema::run(&command, &mut cx),
        Command::Key(command) => key::run(&command, &mut cx),
        Command::Config(command) => config::run(&command, &mut cx),
        Command::Doctor(args) => doctor::run(&args, &mut cx),
        Command::Completions(args) => completions::run(&args, &mut cx),
        Command::Generate(command) => generate::run(&command, &mut cx),
    }
}
