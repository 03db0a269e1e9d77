//! `guild providers`

use guild_protocol::identity::PublicKey;
use guild_protocol::schema::SchemaId;
use guild_roles::explorer::{Offer, Provider, Recommendations, Wanted, msat};

use super::reading::{self, ListArgs};
use super::table::Column;
use super::{Context, route};
use crate::error::Result;
use crate::output::Answer;

/// Look at who offers work
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(LsArgs),
    Show(ShowArgs),
}

/// List offers, those heard last first
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Only for this kind of work
    #[arg(long, value_name = "ID")]
    schema: Option<SchemaId>,
    /// Only who has given a sign of life in the last 15 minutes
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    list: ListArgs,
}

/// Show what a provider offers, and what this node knows of its work
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Its key, as npub or in hex digits
    key: PublicKey,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Ls(args) => ls(args, cx),
        Command::Show(args) => show(args, cx),
    }
}

fn ls(args: &LsArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let page = args.list.page();
    let schema_id = args.schema.as_ref().map(ToString::to_string);
    let wanted = Wanted { schema_id, live: args.live };
    let ask = |market: guild_roles::explorer::Explorer| async move {
        market.providers(page, wanted).await
    };
    let listed = reading::read(&cx.config()?, ask)?;
    let columns = [
        Column::Left("provider"),
        Column::Left("name"),
        Column::Left("work"),
        Column::Right("price"),
        Column::Left("private"),
        Column::Left("heard"),
        Column::Left("live"),
    ];
    reading::list("providers", &listed, columns, row, cx)?;
    Ok(Answer::Yes)
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// A name that looks like another key's is marked: only the key tells them apart.
fn name(offer: &Offer) -> String {
    let name = offer.provider.name.as_deref().unwrap_or_default();
    let short: String = name.chars().take(24).collect();
    if offer.name_shared { format!("{short} (shared)") } else { short }
}

fn row(offer: &Offer) -> [String; 7] {
    [
        offer.provider.npub.clone(),
        name(offer),
        offer.schema_ids.join(", "),
        offer.price_msat.map(msat).unwrap_or_default(),
        yes(offer.private),
        offer.last_seen_ms.map(reading::time).unwrap_or_default(),
        yes(offer.live),
    ]
}

fn show(args: &ShowArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let (key, loaded) = (args.key, cx.config()?);
    let found = reading::read(&loaded, |market| async move { market.provider(key).await })?;
    let provider = found.ok_or_else(|| reading::unknown("provider", &key.npub(), "providers"))?;
    let beliefs = route::beliefs(key, &loaded)?;
    if cx.out.json() {
        cx.out.object(true, Shown { provider: &provider, routing: &beliefs })?;
        return Ok(Answer::Yes);
    }
    print(&provider, cx)?;
    route::print_beliefs(&beliefs, cx)?;
    Ok(Answer::Yes)
}

/// A provider, and what is believed of it.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    provider: &'a Provider,
    routing: &'a [route::Belief],
}

fn print(provider: &Provider, cx: &mut Context<'_>) -> Result<()> {
    let record = &provider.record;
    let name = provider.provider.name.clone().unwrap_or_default();
    let heard = provider.last_seen_ms.map(reading::time).unwrap_or_else(|| "never".to_owned());
    let work = format!(
        "{} paid, {} not accepted, {} in all",
        record.released,
        record.withheld,
        msat(record.paid_msat)
    );
    cx.out.fields(&[
        ("provider", &provider.provider.npub),
        ("name", &name),
        ("live", &yes(provider.live)),
        ("heard", &heard),
        ("our jobs", &work),
        ("recommended", &recommended(&provider.recommendations)),
    ])?;
    for offer in &provider.offers {
        let price = offer.price_msat.map(msat).unwrap_or_else(|| "a price on request".to_owned());
        cx.out.line("")?;
        cx.out.fields(&[
            ("  offer", &offer.d),
            ("  work", &offer.schema_ids.join(", ")),
            ("  price", &price),
            ("  private", &yes(offer.private)),
            ("  relays", &offer.relays.join(", ")),
            ("  about", offer.about.as_deref().unwrap_or_default()),
        ])?;
        if offer.name_shared {
            cx.out
                .line("  Another key offers under a name that looks the same: compare the keys.")?;
        }
    }
    Ok(())
}

fn recommended(by: &Recommendations) -> String {
    let shown: Vec<&str> = by.by.iter().map(|party| party.npub.as_str()).collect();
    match by.count {
        0 => "by nobody".to_owned(),
        count if count > shown.len() => format!("by {count} keys, last by {}", shown.join(", ")),
        _ => format!("by {}", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use guild_roles::explorer::Party;

    use super::*;

    #[test]
    fn many_who_recommend_are_counted_and_some_are_named() {
        let party = |npub: &str| Party {
            npub: npub.to_owned(),
            pubkey: String::new(),
            name: None,
            ours: false,
        };
        let by = |count| Recommendations { count, by: vec![party("npub1a"), party("npub1b")] };
        assert_eq!(recommended(&Recommendations::default()), "by nobody");
        assert_eq!(recommended(&by(2)), "by npub1a, npub1b");
        assert_eq!(recommended(&by(9)), "by 9 keys, last by npub1a, npub1b");
    }
}
