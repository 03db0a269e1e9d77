//! The terms of a quote as a document: `guild.quote.v1`.

use guild_protocol::identity::PublicKey;
use guild_protocol::json::{self, Doc, Limits};
use guild_protocol::wire::{self, Reading, Shape, field};
use serde::{Deserialize, Serialize};

use super::{
    AccountId, Amount, Decision, Error, Hash, NewQuote, PolicyBundleId, QuoteId, Rail, Result,
    SchemaId, Tier, UnixMs, code, refused,
};
use crate::policy::Action;

/// The most bytes of a quote's document or an approval.
pub(super) const MAX_BYTES: usize = 16 * 1024;

/// The fields of a quote.
pub(crate) static WIRE: wire::Type = wire::Type {
    schema_version: "guild.quote.v1",
    fields: &[
        field("action", Shape::Text),
        field("amount", Shape::Object),
        field("amount.asset_id", Shape::Text),
        field("amount.units", Shape::Integer),
        field("approval_rule_id", Shape::Text).or_null(),
        field("credit", Shape::Text),
        field("debit", Shape::Text),
        field("expires_ms", Shape::Integer),
        field("guardian_key", Shape::Text).or_null(),
        field("hold_until_ms", Shape::Integer),
        field("made_ms", Shape::Integer),
        field("policy_bundle_id", Shape::Text),
        field("provider_tier", Shape::Text),
        field("quote_id", Shape::Text),
        field("rail", Shape::Text),
        field("schema_id", Shape::Text).or_null(),
        field("schema_version", Shape::Text),
        field("subject", Shape::Text),
        field("why", Shape::Text),
    ],
};

/// What a quote is about, and how it was decided. All of it is in the hash that a guardian signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// What was asked for.
    pub wanted: NewQuote,
    /// When it was made.
    pub made_ms: UnixMs,
    /// The policy that decided.
    pub policy_bundle_id: PolicyBundleId,
    /// What it decided.
    pub decision: Decision,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    action: String,
    amount: Amount,
    approval_rule_id: Option<String>,
    credit: AccountId,
    debit: AccountId,
    expires_ms: UnixMs,
    guardian_key: Option<PublicKey>,
    hold_until_ms: UnixMs,
    made_ms: UnixMs,
    policy_bundle_id: PolicyBundleId,
    provider_tier: String,
    quote_id: QuoteId,
    rail: Rail,
    schema_id: Option<SchemaId>,
    schema_version: String,
    subject: String,
    why: String,
}

impl Terms {
    /// The canonical JSON document.
    pub fn to_canonical(&self) -> Result<String> {
        let (wanted, decision) = (self.wanted.clone(), self.decision.clone());
        let wire = Wire {
            action: decision.action.as_str().to_owned(),
            amount: wanted.amount,
            approval_rule_id: decision.approval_rule_id,
            credit: wanted.credit,
            debit: wanted.debit,
            expires_ms: wanted.expires_ms,
            guardian_key: decision.action.guardian_key().copied(),
            hold_until_ms: wanted.hold_until_ms,
            made_ms: self.made_ms,
            policy_bundle_id: self.policy_bundle_id.clone(),
            provider_tier: wanted.provider_tier.as_str().to_owned(),
            quote_id: wanted.quote_id,
            rail: wanted.rail,
            schema_id: wanted.schema_id,
            schema_version: WIRE.schema_version.to_owned(),
            subject: wanted.subject,
            why: decision.why,
        };
        canonical(&wire)
    }

    /// The hash of the canonical document: what a guardian signs.
    pub fn hash(&self) -> Result<Hash> {
        Ok(Hash::of(self.to_canonical()?.as_bytes()))
    }

    /// Reads a document.
    pub fn parse(text: &[u8]) -> Result<Terms> {
        let wire: Wire = decode(text, &WIRE)?;
        let malformed =
            |what: &str| Error::refused(&code::MALFORMED, format!("{what} is not known"));
        let action = match (wire.action.as_str(), wire.guardian_key) {
            ("auto", None) => Action::Auto,
            ("guardian", Some(key)) => Action::Guardian(key),
            ("deny", None) => Action::Deny,
            _ => return Err(malformed("action")),
        };
        let tier =
            Tier::from_word(&wire.provider_tier).ok_or_else(|| malformed("provider_tier"))?;
        Ok(Terms {
            wanted: NewQuote {
                quote_id: wire.quote_id,
                debit: wire.debit,
                credit: wire.credit,
                amount: wire.amount,
                subject: wire.subject,
                provider_tier: tier,
                schema_id: wire.schema_id,
                rail: wire.rail,
                expires_ms: wire.expires_ms,
                hold_until_ms: wire.hold_until_ms,
            },
            made_ms: wire.made_ms,
            policy_bundle_id: wire.policy_bundle_id,
            decision: Decision { action, approval_rule_id: wire.approval_rule_id, why: wire.why },
        })
    }
}

/// The canonical text of a value.
pub(super) fn canonical<T: Serialize>(value: &T) -> Result<String> {
    let bytes = json::to_canonical(value).map_err(refused)?;
    // Canonical JSON is UTF-8 by definition.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a document of this version and no other field.
pub(super) fn decode<T: serde::de::DeserializeOwned>(text: &[u8], wire: &wire::Type) -> Result<T> {
    let limits = Limits { max_bytes: MAX_BYTES, max_depth: 4 };
    let doc = Doc::parse_within(text, limits).map_err(refused)?;
    if let Some(Doc::Text(version)) = doc.get("schema_version")
        && version != wire.schema_version
    {
        let message = format!("schema_version is not {}", wire.schema_version);
        return Err(Error::refused(&code::VERSION, message));
    }
    wire.check(&doc, Reading::Strict).map_err(refused)?;
    json::decode_within(text, limits).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version whose fields change is another version.
    #[test]
    fn no_field_changes_without_a_new_version() {
        let prints = [&WIRE, &super::super::approval::WIRE]
            .map(|wire| format!("{} {}", wire.schema_version, wire.fingerprint()));
        assert_eq!(
            prints,
            [
                "guild.quote.v1 sha256:b8315699be0f2bf6ecf8d6d77c1064169f72f54d716b409f34a99319764e754e",
                "guild.approval.v1 sha256:57ee9b92b8561235e703aca4e4b0967bb9d25d144dc8955b0ac96509c58fea01",
            ]
        );
    }

    #[test]
    fn the_documentation_names_every_field() {
        let page = include_str!("../../../../docs/formats/policy.md");
        for wire in [&WIRE, &super::super::approval::WIRE] {
            for field in wire.fields {
                let name = field.path.rsplit('.').next().unwrap_or_default();
                assert!(page.contains(&format!("`{name}`")), "{}: {name}", wire.schema_version);
            }
        }
    }
}
