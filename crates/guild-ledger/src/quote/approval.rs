//! What a guardian signs: `guild.approval.v1`.

use guild_protocol::env::Signer;
use guild_protocol::identity::code::BAD_PUBLIC_KEY;
use guild_protocol::identity::{PublicKey, Signature};
use guild_protocol::receipt::SIGNATURE_SCHEME;
use guild_protocol::wire::{self, Shape, field};
use serde::{Deserialize, Serialize};

use super::document::{canonical, decode};
use super::{Error, Hash, QuoteId, Result, Terms, UnixMs, code, refused};

/// The fields of an approval.
pub(crate) static WIRE: wire::Type = wire::Type {
    schema_version: "guild.approval.v1",
    fields: &[
        field("at_ms", Shape::Integer),
        field("decision", Shape::Text),
        field("quote_hash", Shape::Text),
        field("quote_id", Shape::Text),
        field("schema_version", Shape::Text),
        field("signature", Shape::Object),
        field("signature.public_key", Shape::Text),
        field("signature.scheme", Shape::Text),
        field("signature.value", Shape::Text),
    ],
};

/// What a guardian says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The payment may go through.
    Approve,
    /// It may not.
    Deny,
}

impl Verdict {
    /// The word in an approval.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Approve => "approve",
            Verdict::Deny => "deny",
        }
    }
}

/// A guardian's decision about a quote, signed: anybody who has it and the quote can check it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// The quote.
    pub quote_id: QuoteId,
    /// The hash of its terms.
    pub quote_hash: Hash,
    /// What was decided.
    pub verdict: Verdict,
    /// When the guardian says it was.
    pub at_ms: UnixMs,
    /// Who signed.
    pub key: PublicKey,
    /// The BIP-340 signature of the hash of the document without its `signature`.
    pub signature: Signature,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    at_ms: UnixMs,
    decision: Verdict,
    quote_hash: Hash,
    quote_id: QuoteId,
    schema_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<WireSignature>,
}

#[derive(Serialize, Deserialize)]
struct WireSignature {
    public_key: String,
    scheme: String,
    value: Signature,
}

impl Approval {
    /// Decides about a quote and signs it.
    pub fn sign(
        terms: &Terms,
        verdict: Verdict,
        at_ms: UnixMs,
        signer: &dyn Signer,
    ) -> Result<Approval> {
        let (quote_id, quote_hash) = (terms.wanted.quote_id.clone(), terms.hash()?);
        let digest = digest(&quote_id, &quote_hash, verdict, at_ms)?;
        let signature = signer.sign_digest(digest.as_bytes()).map_err(refused)?;
        Ok(Approval { quote_id, quote_hash, verdict, at_ms, key: signer.public_key(), signature })
    }

    /// Reads an approval. Whether it fits a quote only [`Approval::check`] knows.
    pub fn parse(text: &[u8]) -> Result<Approval> {
        let wire: Wire = decode(text, &WIRE)?;
        let signature = wire.signature.filter(|signature| signature.scheme == SIGNATURE_SCHEME);
        let Some(signature) = signature else {
            let message = format!("signature.scheme is not {SIGNATURE_SCHEME}");
            return Err(Error::refused(&code::VERSION, message));
        };
        let key: PublicKey = signature.public_key.parse().map_err(refused)?;
        if key.hex() != signature.public_key {
            let message = "signature.public_key must be 64 lower-case hex digits";
            return Err(Error::refused(&BAD_PUBLIC_KEY, message));
        }
        Ok(Approval {
            quote_id: wire.quote_id,
            quote_hash: wire.quote_hash,
            verdict: wire.decision,
            at_ms: wire.at_ms,
            key,
            signature: signature.value,
        })
    }

    /// The canonical JSON document.
    pub fn to_canonical(&self) -> Result<String> {
        let signature = WireSignature {
            public_key: self.key.hex(),
            scheme: SIGNATURE_SCHEME.to_owned(),
            value: self.signature,
        };
        let unsigned = unsigned(&self.quote_id, &self.quote_hash, self.verdict, self.at_ms);
        canonical(&Wire { signature: Some(signature), ..unsigned })
    }

    /// Whether this is a decision about these terms, made in time and signed by the guardian that they name. Needs
    /// nothing but the two documents.
    pub fn check(&self, terms: &Terms) -> Result<()> {
        let Some(guardian) = terms.decision.action.guardian_key() else {
            let message = format!("{} asks no guardian", terms.wanted.quote_id);
            return Err(Error::refused(&code::NO_GUARDIAN, message));
        };
        if self.quote_id != terms.wanted.quote_id || self.quote_hash != terms.hash()? {
            let message = format!("the approval is of {} with {}", self.quote_id, self.quote_hash);
            return Err(Error::refused(&code::WRONG_QUOTE, message));
        }
        if self.key != *guardian {
            let message = format!("the approval is signed by {}, not by {guardian}", self.key);
            return Err(Error::refused(&code::WRONG_GUARDIAN, message));
        }
        let digest = digest(&self.quote_id, &self.quote_hash, self.verdict, self.at_ms)?;
        self.key.verify(digest.as_bytes(), &self.signature).map_err(refused)?;
        if self.at_ms >= terms.wanted.expires_ms {
            let message = format!("the approval is of {}, after the quote ran out", self.at_ms);
            return Err(Error::refused(&code::EXPIRED, message));
        }
        Ok(())
    }
}

fn unsigned(quote_id: &QuoteId, quote_hash: &Hash, decision: Verdict, at_ms: UnixMs) -> Wire {
    Wire {
        at_ms,
        decision,
        quote_hash: *quote_hash,
        quote_id: quote_id.clone(),
        schema_version: WIRE.schema_version.to_owned(),
        signature: None,
    }
}

/// What is signed. The version inside keeps it apart from everything else that the key signs.
fn digest(quote_id: &QuoteId, quote_hash: &Hash, verdict: Verdict, at_ms: UnixMs) -> Result<Hash> {
    let text = canonical(&unsigned(quote_id, quote_hash, verdict, at_ms))?;
    Ok(Hash::of(text.as_bytes()))
}
