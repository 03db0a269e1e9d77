//! `guild policy`

use std::path::PathBuf;

use guild_ledger::policy::{
    Action, Asked, Bundle, Decision, MAX_BYTES, Range, Rule, Tier, Warning, decide, lint,
};
use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::receipt::Rail;
use guild_protocol::schema::SchemaId;
use serde::Serialize;
use serde_json::value::RawValue;

use super::Context;
use crate::error::{Error, InFile, Result, code};
use crate::input::Input;
use crate::node;
use crate::output::Answer;

mod approve;

/// Check, show and try policies: which payments go through; approve one
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Check(CheckArgs),
    Show(ShowArgs),
    Decide(DecideArgs),
    Quote(approve::QuoteArgs),
    Sign(approve::SignArgs),
    Approve(approve::ApproveArgs),
}

/// Check a policy bundle and print its id
///
/// Every problem is listed. A rule that can never decide, because an earlier one takes all it could match, is a
/// warning; the exit code is then 1.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The policy bundle; - reads from standard input
    file: Input,
}

/// Show the rules and caps of a policy bundle
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The policy bundle; - reads from standard input [default: the node's own, see policy.file]
    file: Option<Input>,
}

/// Say what a policy bundle would decide about a payment
///
/// Nothing is paid. The exit code is 0 if the payment would go through, 1 if it would be denied, and 3 if a guardian
/// would have to approve it.
#[derive(Debug, clap::Args)]
pub(crate) struct DecideArgs {
    /// The policy bundle; - reads from standard input [default: the node's own, see policy.file]
    file: Option<Input>,
    /// How many of the asset's smallest unit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    units: i64,
    /// The asset, such as USD_MICRO or BTC_LN
    #[arg(long, value_name = "ASSET", value_parser = asset)]
    asset: AssetId,
    /// How far the provider is trusted
    #[arg(long, value_name = "TIER", value_parser = Tier::ALL.map(Tier::as_str), default_value = "tertiary")]
    tier: String,
    /// The kind of work, such as oa.embedding.v1 [default: none]
    #[arg(long, value_name = "ID", value_parser = schema)]
    schema: Option<SchemaId>,
    /// What is to move the money
    #[arg(long, value_name = "RAIL", value_parser = rails(), default_value = "ledger")]
    rail: String,
}

fn asset(text: &str) -> Result<AssetId, String> {
    AssetId::new(text).map_err(|e| e.message().to_owned())
}

fn schema(text: &str) -> Result<SchemaId, String> {
    text.parse().map_err(|e: guild_protocol::Error| e.message().to_owned())
}

fn rails() -> clap::builder::PossibleValuesParser {
    Rail::ALL.iter().map(|rail| rail.as_str()).collect::<Vec<_>>().into()
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Check(args) => check(args, cx),
        Command::Show(args) => show(args, cx),
        Command::Decide(args) => dry_run(args, cx),
        Command::Quote(args) => approve::quote(args, cx),
        Command::Sign(args) => approve::sign(args, cx),
        Command::Approve(args) => approve::approve(args, cx),
    }
}

/// Where a bundle comes from, for people and programs.
struct Read {
    bundle: Bundle,
    /// None: it is built in.
    file: Option<PathBuf>,
}

impl Read {
    fn file(&self) -> Option<String> {
        self.file.as_ref().map(|path| path.display().to_string())
    }
}

fn read(file: &Input) -> Result<Read> {
    let path = file.path();
    let text = file.read(MAX_BYTES)?;
    let bundle = Bundle::parse(&text).in_file(path)?;
    Ok(Read { bundle, file: Some(path.to_owned()) })
}

/// The file named, or the node's own bundle.
fn read_or_own(file: Option<&Input>, cx: &Context<'_>) -> Result<Read> {
    match file {
        Some(file) => read(file),
        None => {
            let loaded = cx.config()?;
            Ok(Read { bundle: node::own_bundle(&loaded)?, file: loaded.policy_file() })
        }
    }
}

#[derive(Serialize)]
struct WarningBody<'a> {
    rule_id: &'a str,
    at: String,
    covered_by: Option<&'a str>,
    message: String,
}

#[derive(Serialize)]
struct CheckBody<'a> {
    file: Option<String>,
    policy_bundle_id: &'a str,
    name: &'a str,
    rules: usize,
    warnings: Vec<WarningBody<'a>>,
}

fn check(args: &CheckArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let read = read(&args.file)?;
    let bundle = &read.bundle;
    let warnings = lint(bundle);
    let answer = Answer::of(warnings.is_empty());
    if cx.out.json() {
        let body = CheckBody {
            file: read.file(),
            policy_bundle_id: bundle.policy_bundle_id().as_str(),
            name: bundle.name(),
            rules: bundle.rules().len(),
            warnings: warnings.iter().map(warning_body).collect(),
        };
        cx.out.object(warnings.is_empty(), body)?;
        return Ok(answer);
    }
    let count = bundle.rules().len();
    let plural = if count == 1 { "" } else { "s" };
    let good = if warnings.is_empty() { "a good policy" } else { "a policy with warnings" };
    cx.out.line(&format!("{}: {good}, {count} rule{plural}", args.file.path().display()))?;
    cx.out.line(&format!("  {}", bundle.policy_bundle_id()))?;
    for warning in &warnings {
        cx.out.line(&format!("  WARNING  rules[{}]: {warning}", warning.place))?;
    }
    Ok(answer)
}

fn warning_body(warning: &Warning) -> WarningBody<'_> {
    WarningBody {
        rule_id: &warning.rule_id,
        at: format!("rules[{}]", warning.place),
        covered_by: warning.covered_by.as_deref(),
        message: warning.to_string(),
    }
}

#[derive(Serialize)]
struct ShowBody<'a> {
    /// None: it is built in.
    file: Option<String>,
    policy_bundle_id: &'a str,
    bundle: Box<RawValue>,
}

fn show(args: &ShowArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let read = read_or_own(args.file.as_ref(), cx)?;
    let bundle = &read.bundle;
    if cx.out.json() {
        let document = RawValue::from_string(bundle.canonical().to_owned())
            .map_err(|e| Error::new(&code::BUG, format!("a canonical text is not JSON: {e}")))?;
        let policy_bundle_id = bundle.policy_bundle_id().as_str();
        cx.out.object(true, ShowBody { file: read.file(), policy_bundle_id, bundle: document })?;
        return Ok(Answer::Yes);
    }
    let file = read.file().unwrap_or_else(|| "built in; policy.file names another".to_owned());
    cx.out.fields(&[
        ("policy", bundle.name()),
        ("id", bundle.policy_bundle_id().as_str()),
        ("from", &file),
    ])?;
    cx.out.line("")?;
    cx.out.line("The first rule that matches decides:")?;
    table(bundle.rules(), cx)?;
    cx.out.line("If none matches:")?;
    for (asset_id, cap) in bundle.caps() {
        cx.out.line(&format!("      auto up to {cap} {asset_id}"))?;
    }
    cx.out.line("      deny everything else")?;
    Ok(Answer::Yes)
}

fn table(rules: &[Rule], cx: &mut Context<'_>) -> Result<()> {
    let width = rules.iter().map(|rule| rule.id.len()).max().unwrap_or(0);
    for (number, rule) in (1..).zip(rules) {
        let Rule { id, action, .. } = rule;
        let line = format!("{number:>4}  {id:width$}  {:8}  {}", action.as_str(), conditions(rule));
        cx.out.line(line.trim_end())?;
        if let Action::Guardian(key) = action {
            cx.out.line(&format!("      {:width$}            approved by {key}", ""))?;
        }
    }
    Ok(())
}

/// What must hold, in a few words.
fn conditions(rule: &Rule) -> String {
    let when = &rule.when;
    let mut all = Vec::new();
    if let Some(amount) = &when.amount {
        let ranges = amount.iter().map(|(asset_id, range)| format!("{} {asset_id}", words(range)));
        all.push(ranges.collect::<Vec<_>>().join(" or "));
    }
    let mut one_of = |what: &str, words: Option<Vec<&str>>| {
        all.extend(words.map(|words| format!("{what} {}", words.join(" or "))));
    };
    one_of("tier", when.provider_tiers.as_ref().map(|s| s.iter().map(|t| t.as_str()).collect()));
    one_of("schema", when.schema_ids.as_ref().map(|s| s.iter().map(|id| id.as_str()).collect()));
    one_of("rail", when.rails.as_ref().map(|s| s.iter().map(|r| r.as_str()).collect()));
    if all.is_empty() { "always".to_owned() } else { all.join("; ") }
}

fn words(range: &Range) -> String {
    match (range.at_least, range.at_most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => "any".to_owned(),
    }
}

#[derive(Serialize)]
struct DecideBody<'a> {
    file: Option<String>,
    policy_bundle_id: &'a str,
    action: &'a str,
    guardian_key: Option<String>,
    approval_rule_id: Option<&'a str>,
    why: &'a str,
}

fn dry_run(args: &DecideArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let read = read_or_own(args.file.as_ref(), cx)?;
    // clap has let only these words through.
    let unknown = |word: &str| Error::new(&code::USAGE, format!("{word} is not known"));
    let asked = Asked {
        amount: Amount::new(args.asset.clone(), args.units),
        provider_tier: Tier::from_word(&args.tier).ok_or_else(|| unknown(&args.tier))?,
        schema_id: args.schema.clone(),
        rail: Rail::from_word(&args.rail).ok_or_else(|| unknown(&args.rail))?,
    };
    let Decision { action, approval_rule_id, why } = decide(&read.bundle, &asked);
    let answer = match action {
        Action::Auto => Answer::Yes,
        Action::Guardian(_) => Answer::Open,
        Action::Deny => Answer::No,
    };
    if cx.out.json() {
        let body = DecideBody {
            file: read.file(),
            policy_bundle_id: read.bundle.policy_bundle_id().as_str(),
            action: action.as_str(),
            guardian_key: action.guardian_key().map(ToString::to_string),
            approval_rule_id: approval_rule_id.as_deref(),
            why: &why,
        };
        cx.out.object(answer == Answer::Yes, body)?;
        return Ok(answer);
    }
    let said = match action {
        Action::Auto => "goes through by itself".to_owned(),
        Action::Guardian(key) => format!("waits for the approval of {key}"),
        Action::Deny => "is denied".to_owned(),
    };
    cx.out.line(&format!("{} {said}: {why}", asked.amount))?;
    Ok(answer)
}
