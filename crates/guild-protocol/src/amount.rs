//! Money: a whole number of an asset's smallest unit. Never a float, never without its asset.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The codes of this module.
pub mod code {
    crate::codes! {
        BAD_ASSET = "amount.asset_malformed", Invalid,
            "An asset id is empty, too long, or not qualified by its rail.",
            "Use USD_MICRO, BTC_LN, BTC_CASHU(<mint>) or another rail-qualified id.";
        ASSET_MISMATCH = "amount.asset_mismatch", Invalid,
            "Two amounts of different assets were combined.",
            "Convert first, on a rail that has a rate.";
        OVERFLOW = "amount.overflow", Invalid,
            "An amount does not fit into a signed 64-bit number.",
            "Use smaller amounts.";
    }
}

/// Names an asset together with the rail that moves it. A bare `USD` says neither and is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct AssetId(String);

impl AssetId {
    /// Micro-dollars on the internal ledger; equal to the smallest unit of USDC.
    pub const USD_MICRO: &'static str = "USD_MICRO";
    /// Millisatoshi over Lightning.
    pub const BTC_LN: &'static str = "BTC_LN";

    const MAX_BYTES: usize = 200;

    /// Checks and takes an asset id.
    pub fn new(text: &str) -> Result<AssetId> {
        let refuse = |why: &str| {
            Err(Error::new(
                &code::BAD_ASSET,
                format!("asset id {:?} {why}", crate::hash::shorten(text)),
            ))
        };
        if text.len() > AssetId::MAX_BYTES {
            return refuse("is longer than 200 bytes");
        }
        let (name, mint) = match text.split_once('(') {
            Some((name, rest)) => (name, Some(rest.strip_suffix(')'))),
            None => (text, None),
        };
        let word = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
        // Amounts are shown to people who decide by them: nothing invisible, nothing that looks like something else.
        let in_mint = |b: u8| b.is_ascii_graphic() && b != b'(' && b != b')';
        if name.is_empty() || !name.bytes().all(word) {
            return refuse("must be upper-case letters, digits and underscores");
        }
        if !name.contains('_') {
            return refuse("does not say its rail, as BTC_LN or USD_MICRO do");
        }
        match mint {
            None => {}
            Some(Some(mint)) if !mint.is_empty() && mint.bytes().all(in_mint) => {}
            Some(_) => {
                return refuse("must close its mint, plain ASCII, in one pair of parentheses");
            }
        }
        Ok(AssetId(text.to_owned()))
    }

    /// Micro-dollars.
    pub fn usd_micro() -> AssetId {
        AssetId(AssetId::USD_MICRO.to_owned())
    }

    /// Millisatoshi.
    pub fn btc_ln() -> AssetId {
        AssetId(AssetId::BTC_LN.to_owned())
    }

    /// Whether the unit of this asset is the millisatoshi.
    pub fn is_msat(&self) -> bool {
        self.0 == AssetId::BTC_LN || self.0.starts_with("BTC_CASHU(")
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for AssetId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<AssetId, D::Error> {
        AssetId::new(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for AssetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// So many smallest units of one asset.
///
/// ```
/// use guild_protocol::amount::{Amount, MicroUsd, Msat};
/// let price = Amount::from(MicroUsd::from_cents(5).unwrap());
/// assert_eq!(price.units, 50_000);
/// assert_eq!(price.checked_add(&price).unwrap().units, 100_000);
/// assert!(price.checked_add(&Amount::from(Msat(1))).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    /// What it is an amount of.
    pub asset_id: AssetId,
    /// How many of the asset's smallest unit.
    pub units: i64,
}

impl Amount {
    /// So many units of an asset.
    pub fn new(asset_id: AssetId, units: i64) -> Amount {
        Amount { asset_id, units }
    }

    /// The sum, if both are of one asset and it fits.
    pub fn checked_add(&self, other: &Amount) -> Result<Amount> {
        self.combine(other, i64::checked_add)
    }

    /// The difference, if both are of one asset and it fits.
    pub fn checked_sub(&self, other: &Amount) -> Result<Amount> {
        self.combine(other, i64::checked_sub)
    }

    fn combine(&self, other: &Amount, op: fn(i64, i64) -> Option<i64>) -> Result<Amount> {
        if self.asset_id != other.asset_id {
            return Err(Error::new(
                &code::ASSET_MISMATCH,
                format!("{} cannot be combined with {}", self.asset_id, other.asset_id),
            ));
        }
        match op(self.units, other.units) {
            Some(units) => Ok(Amount { asset_id: self.asset_id.clone(), units }),
            None => Err(overflow(&self.asset_id)),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.units, self.asset_id)
    }
}

fn overflow(asset_id: &AssetId) -> Error {
    Error::new(&code::OVERFLOW, format!("the amount of {asset_id} does not fit into 64 bits"))
}

/// Micro-dollars, for code that knows its asset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroUsd(pub i64);

impl MicroUsd {
    const PER_CENT: i64 = 10_000;

    /// Exactly so many cents.
    pub fn from_cents(cents: i64) -> Result<MicroUsd> {
        let units = cents.checked_mul(MicroUsd::PER_CENT);
        units.map(MicroUsd).ok_or_else(|| overflow(&AssetId::usd_micro()))
    }

    /// In whole cents, if it is a whole number of them.
    pub fn to_cents(self) -> Option<i64> {
        (self.0.checked_rem(MicroUsd::PER_CENT)? == 0)
            .then(|| self.0.checked_div(MicroUsd::PER_CENT))
            .flatten()
    }
}

/// Millisatoshi, for code that knows its asset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Msat(pub i64);

impl From<MicroUsd> for Amount {
    fn from(amount: MicroUsd) -> Amount {
        Amount::new(AssetId::usd_micro(), amount.0)
    }
}

impl From<Msat> for Amount {
    fn from(amount: Msat) -> Amount {
        Amount::new(AssetId::btc_ln(), amount.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asset_ids_are_qualified_by_their_rail() {
        for good in ["USD_MICRO", "BTC_LN", "BTC_CASHU(https://mint.example/a)", "USDC_EIP155_8453"]
        {
            assert_eq!(AssetId::new(good).unwrap().as_str(), good);
        }
        let long = "A_".repeat(101);
        for bad in [
            "",
            "USD",
            "usd_micro",
            "BTC_CASHU()",
            "BTC_CASHU(x",
            "BTC_CASHU(a)(b)",
            "A B_C",
            "BTC_CASHU(a b)",
            "BTC_CASHU(a\nb)",
            "BTC_CASHU(\u{1b}[2J)",
            "BTC_CASHU(\u{202e}a)",
            &long,
        ] {
            assert_eq!(AssetId::new(bad).unwrap_err().code(), &code::BAD_ASSET, "{bad}");
        }
    }

    #[test]
    fn arithmetic_is_checked() {
        let most = Amount::from(MicroUsd(i64::MAX));
        assert_eq!(most.checked_add(&MicroUsd(1).into()).unwrap_err().code(), &code::OVERFLOW);
        assert_eq!(most.checked_sub(&Msat(1).into()).unwrap_err().code(), &code::ASSET_MISMATCH);
        assert_eq!(MicroUsd::from_cents(i64::MAX).unwrap_err().code(), &code::OVERFLOW);
        assert_eq!(MicroUsd(20_000).to_cents(), Some(2));
        assert_eq!(MicroUsd(20_001).to_cents(), None);
    }
}
