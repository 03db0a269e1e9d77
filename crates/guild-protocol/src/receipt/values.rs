//! Rails, proofs and states of a payment.

use serde::{Deserialize, Serialize};

use crate::amount::AssetId;
use crate::hash::Hash;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$word_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word that stands in files.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }

            /// The one with this word.
            pub fn from_word(word: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|it| it.as_str() == word)
            }
        }
    };
}

words! {
    /// What moves money.
    Rail {
        /// The Lightning network; the asset is always `BTC_LN`.
        Lightning = "lightning",
        /// Ecash of a mint; the assets end in `_CASHU(<mint>)`.
        Cashu = "cashu",
        /// A transaction on a public chain.
        Onchain = "onchain",
        /// An asset on top of Bitcoin; the assets end in `_TAP(<id>)`.
        TaprootAssets = "taproot_assets",
        /// The payer's own book, in any asset.
        Ledger = "ledger",
    }
}

impl Rail {
    /// The type of proof that a payment on this rail leaves.
    pub fn proof_type(self) -> &'static str {
        match self {
            Rail::Lightning => "lightning_preimage",
            Rail::Cashu => "cashu_proof",
            Rail::Onchain => "onchain_txid",
            Rail::TaprootAssets => "taproot_assets_proof",
            Rail::Ledger => "ledger_transfer",
        }
    }

    /// Whether this rail can move that asset. A book can hold every asset; every other asset has one rail.
    pub fn carries(self, asset_id: &AssetId) -> bool {
        self == Rail::Ledger || Rail::of(asset_id) == self
    }

    fn of(asset_id: &AssetId) -> Rail {
        let text = asset_id.as_str();
        match text.split_once('(').map(|(name, _)| name) {
            Some(name) if name.ends_with("_CASHU") => Rail::Cashu,
            Some(name) if name.ends_with("_TAP") => Rail::TaprootAssets,
            _ if text == AssetId::BTC_LN => Rail::Lightning,
            _ if text == AssetId::USD_MICRO => Rail::Ledger,
            _ => Rail::Onchain,
        }
    }
}

words! {
    /// How a payment was settled. By default money is reserved, the work is done and verified, and then the money is
    /// released or withheld. A provider that asks for money first gets `prepaid`, and perhaps later `refunded`.
    Status {
        /// The work was accepted and the reserved money paid.
        Released = "released",
        /// The work was not accepted; the reserved money went back.
        Withheld = "withheld",
        /// Paid before the work was done.
        Prepaid = "prepaid",
        /// Paid before, and given back.
        Refunded = "refunded",
    }
}

/// What proves a payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub enum Proof {
    /// The preimage of the invoice's payment hash: 64 hex digits.
    LightningPreimage(String),
    /// The token that was handed over: `cashuA…` or `cashuB…`.
    CashuProof(String),
    /// The id of the transaction: 64 hex digits, after `0x` on EVM chains.
    OnchainTxid(String),
    /// The hash of the proof file.
    TaprootAssetsProof(Hash),
    /// The transfer in the payer's book.
    LedgerTransfer {
        /// The transfer.
        transfer_id: String,
        /// The head of the book's hash chain once the transfer was in it.
        ledger_head: Hash,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_asset_has_its_rail() {
        let carriers = |asset: &str| {
            let asset = AssetId::new(asset).unwrap();
            Rail::ALL.iter().filter(|r| r.carries(&asset)).map(|r| r.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(carriers("BTC_LN"), ["lightning", "ledger"]);
        assert_eq!(carriers("USD_CASHU(https://mint.example)"), ["cashu", "ledger"]);
        assert_eq!(carriers("USDC_EIP155_8453"), ["onchain", "ledger"]);
        assert_eq!(carriers("USDT_TAP(0f)"), ["taproot_assets", "ledger"]);
        assert_eq!(carriers("USD_MICRO"), ["ledger"]);
    }

    #[test]
    fn words_are_read_back() {
        for rail in Rail::ALL {
            assert_eq!(Rail::from_word(rail.as_str()), Some(*rail));
        }
        assert_eq!(Status::from_word("Released"), None);
    }
}
