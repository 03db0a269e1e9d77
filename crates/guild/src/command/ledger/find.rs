//! Which account is meant.

use guild_ledger::book::Entry;
use guild_ledger::ledger;
use guild_protocol::amount::AssetId;
use guild_roles::treasury::{AccountName, code};
use guild_store::Rx;

use crate::error::{Error, Result};
use crate::suggest;

/// Among so many names a slip is looked for.
const NAMES_MAX: i64 = 10_000;
/// So many near names are shown.
const NEAR_MAX: usize = 3;

/// What the database holds under a name.
#[derive(Debug, Default)]
pub(super) struct Found {
    entries: Vec<Entry>,
    /// If there is none of that name: those that there are.
    names: Vec<(String, String)>,
}

/// Looks a name up.
pub(super) fn look(rx: &mut Rx<'_>, name: &AccountName) -> guild_ledger::Result<Found> {
    let entries: Vec<Entry> = match name {
        AccountName::Id(account_id) => {
            ledger::entries(rx, &[account_id.clone()].into())?.into_values().collect()
        }
        AccountName::Named { owner, purpose } => ledger::entries_named(rx, owner, purpose)?,
    };
    let names = if entries.is_empty() { ledger::names(rx, NAMES_MAX)? } else { Vec::new() };
    Ok(Found { entries, names })
}

/// The one account that is meant, or what to do about it.
pub(super) fn choose(
    name: &AccountName,
    asset_id: Option<&AssetId>,
    found: Found,
) -> Result<Entry> {
    let Found { mut entries, names } = found;
    if entries.is_empty() {
        return Err(unknown(name, &names));
    }
    let assets: Vec<String> = entries.iter().map(|e| e.account.asset_id.to_string()).collect();
    let counts = assets.join(", ");
    if let Some(asset_id) = asset_id {
        entries.retain(|entry| entry.account.asset_id == *asset_id);
    }
    match (entries.pop(), entries.is_empty(), asset_id) {
        (Some(entry), true, _) => Ok(entry),
        (_, _, Some(asset_id)) => {
            Err(Error::new(&code::WRONG_ASSET, format!("{name} counts {counts}, not {asset_id}")))
        }
        (_, _, None) => {
            let message = format!("there are several accounts {name}, for {counts}");
            Err(Error::new(&code::MALFORMED, message).help("Say which one with --asset."))
        }
    }
}

fn unknown(name: &AccountName, names: &[(String, String)]) -> Error {
    let all: Vec<String> =
        names.iter().map(|(owner, purpose)| format!("{owner}/{purpose}")).collect();
    let near = suggest::near(&name.to_string(), all.iter().map(String::as_str), NEAR_MAX);
    let mut message = format!("there is no account {name}");
    if !near.is_empty() {
        message = format!("{message}; near it: {}", near.join(", "));
    }
    let error = Error::new(&code::UNKNOWN_ACCOUNT, message);
    match name {
        AccountName::Named { owner, purpose } => error.help(format!(
            "`guild ledger accounts` lists those that exist; `guild ledger open {owner:?} {purpose:?} --asset ASSET` \
             opens this one."
        )),
        AccountName::Id(_) => error,
    }
}

#[cfg(test)]
mod tests {
    use guild_ledger::{Account, Limit};

    use super::*;

    fn found(owner: &str, assets: &[AssetId]) -> Found {
        let entry = |asset_id: &AssetId| {
            let account = Account::new(owner, "main", asset_id.clone(), Limit::None).unwrap();
            Entry::opened(account, 1)
        };
        Found { entries: assets.iter().map(entry).collect(), names: Vec::new() }
    }

    #[test]
    fn one_account_is_chosen_or_the_reader_is_told_how_to_choose() {
        let name: AccountName = "ann/main".parse().unwrap();
        let (usd, btc) = (AssetId::usd_micro(), AssetId::btc_ln());
        let one = || found("ann", std::slice::from_ref(&usd));
        let both = || found("ann", &[btc.clone(), usd.clone()]);
        assert_eq!(choose(&name, None, one()).unwrap().account.asset_id, usd);
        assert_eq!(choose(&name, Some(&btc), both()).unwrap().account.asset_id, btc);
        let wrong = choose(&name, Some(&btc), one()).unwrap_err();
        assert_eq!(wrong.message(), "ann/main counts USD_MICRO, not BTC_LN");
        let several = choose(&name, None, both()).unwrap_err();
        assert_eq!(several.message(), "there are several accounts ann/main, for BTC_LN, USD_MICRO");
        let names = ["anna/main", "zoe/escrow"].map(|name| {
            let (owner, purpose) = name.split_once('/').unwrap();
            (owner.to_owned(), purpose.to_owned())
        });
        let none = Found { entries: Vec::new(), names: names.into() };
        let unknown = choose(&name, None, none).unwrap_err();
        assert_eq!(unknown.message(), "there is no account ann/main; near it: anna/main");
        assert!(unknown.remedy().contains("guild ledger open"), "{}", unknown.remedy());
    }
}
