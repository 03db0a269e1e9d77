//! The receipt: what binds a payment to the job, the trajectory and the policy, signed by the one who pays.
//!
//! A [`Draft`] is what the payer wants to state. [`Draft::sign`] gives the [`Receipt`], whose bytes are final: the id
//! is derived from the content, and signing the same draft twice gives the same bytes. Anybody can check them with
//! [`verify`]; [`explain`] also finds the field that was changed. The format is written down in
//! `docs/formats/receipt.md`.

use serde::{Deserialize, Serialize};

use crate::amount::{Amount, AssetId};
use crate::env::Signer;
use crate::hash::Hash;
use crate::id::ReceiptId;
use crate::identity::{PublicKey, Signature};
use crate::json;
use crate::timestamp::Timestamp;
use crate::wire::{self, Shape, field};
use crate::{Error, Result};

mod forms;
mod read;
mod values;

pub(crate) use forms::{
    amounts as amount_problems, payment_forms as payment_form_problems, rails as rail_problems,
};
pub use read::{explain, verify};
pub use values::{Proof, Rail, Status};

/// The codes of this module.
pub mod code {
    crate::codes! {
        UNKNOWN_VERSION = "receipt.unknown_version", Invalid,
            "The receipt has a schema_version that this program does not know.",
            "Use a newer program, or ask for a receipt of version guild.receipt.v1.";
        BAD_VALUE = "receipt.value_malformed", Invalid,
            "A field of a receipt does not have the form its meaning demands.",
            "Do not trust the receipt: ask its signer for the original.";
        AMOUNT = "receipt.amount_mismatch", Invalid,
            "The fields of a receipt that state the amount contradict each other.",
            "Do not trust the receipt: ask its signer for the original.";
        RAIL = "receipt.rail_mismatch", Invalid,
            "The rail does not move this asset, or gives no proof of this type.",
            "Do not trust the receipt: a payment on this rail cannot have happened as stated.";
        STATUS = "receipt.status_mismatch", Invalid,
            "The status of a receipt contradicts what else it states.",
            "Do not trust the receipt: ask its signer for the original.";
        ID = "receipt.id_mismatch", Invalid,
            "The id of a receipt is not the one of its content.",
            "Do not trust the receipt: its content or its id was changed.";
        DIGEST = "receipt.digest_mismatch", Invalid,
            "The content of a receipt does not have the digest that was signed.",
            "Do not trust the receipt: its content was changed after it was signed.";
        SIGNER = "receipt.signer_not_buyer", Invalid,
            "A receipt is not signed by its buyer.",
            "Only the one who pays can sign a receipt: use the buyer's key.";
        SIGNATURE = "receipt.signature_wrong", Invalid,
            "The signature of a receipt does not belong to its digest and its key.",
            "Do not trust the receipt: it was changed, or signed by somebody else.";
    }
}

/// The version that this program writes and reads.
pub const SCHEMA_VERSION: &str = "guild.receipt.v1";

/// The only signature scheme.
pub const SIGNATURE_SCHEME: &str = "bip340";

/// A receipt is never longer than this.
pub const MAX_BYTES: usize = 64 * 1024;
/// What the file of a receipt is called, wherever one is written or given out.
pub const FILE_NAME: &str = "receipt.json";

/// The fields of a receipt.
pub static WIRE: wire::Type = wire::Type {
    schema_version: SCHEMA_VERSION,
    fields: &[
        field("amount", Shape::Object),
        field("amount.asset_id", Shape::Text),
        field("amount.units", Shape::Integer),
        field("amount_msats", Shape::Integer).or_absent(),
        field("approval_rule_id", Shape::Text).or_null(),
        field("asset_id", Shape::Text),
        field("buyer_id", Shape::Text),
        field("digest", Shape::Text),
        field("idempotency_key", Shape::Text),
        field("job_hash", Shape::Text).or_null(),
        field("payment_proof", Shape::Object).or_null(),
        field("payment_proof.type", Shape::Text),
        field("payment_proof.value", Shape::Any),
        field("policy_bundle_id", Shape::Text),
        field("provider_id", Shape::Text),
        field("rail", Shape::Text),
        field("receipt_id", Shape::Text),
        field("request_id", Shape::Text).or_null(),
        field("schema_version", Shape::Text),
        field("session_id", Shape::Text),
        field("signature", Shape::Object),
        field("signature.public_key", Shape::Text),
        field("signature.scheme", Shape::Text),
        field("signature.value", Shape::Text),
        field("status", Shape::Text),
        field("timestamp", Shape::Text),
        field("trajectory_hash", Shape::Text),
        field("verdict_hash", Shape::Text).or_null(),
    ],
};

/// What a payer states about a payment, before it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The session in which the payment was made.
    pub session_id: String,
    /// The request paid for, named as its venue names it; none if nothing was ordered from outside.
    pub request_id: Option<String>,
    /// The seal of the session's replay.
    pub trajectory_hash: Hash,
    /// The policy under which the session ran.
    pub policy_bundle_id: String,
    /// The job; none only if there was no external job.
    pub job_hash: Option<Hash>,
    /// What proves the payment; none only if it was withheld and nothing moved.
    pub payment_proof: Option<Proof>,
    /// What moved the money.
    pub rail: Rail,
    /// How much of what.
    pub amount: Amount,
    /// Who is paid.
    pub provider_id: PublicKey,
    /// Who pays, and signs.
    pub buyer_id: PublicKey,
    /// The rule that allowed the payment, if one was needed.
    pub approval_rule_id: Option<String>,
    /// Made from what the payment is, so that paying again is the same payment.
    pub idempotency_key: String,
    /// How it was settled.
    pub status: Status,
    /// The verdict on which it was settled.
    pub verdict_hash: Option<Hash>,
    /// When it was settled.
    pub timestamp: Timestamp,
}

impl Draft {
    /// The receipt, signed. Refused if the signer is not the buyer, or if the draft contradicts itself: nothing is
    /// signed that does not [`verify`].
    pub fn sign(&self, signer: &dyn Signer) -> Result<Receipt> {
        let key = signer.public_key();
        if key != self.buyer_id {
            let message = format!("the signer {key} is not the buyer {}", self.buyer_id);
            return Err(Error::new(&code::SIGNER, message).at("buyer_id"));
        }
        let mut wire = Wire::of(self);
        let receipt_id = ReceiptId::of(&json::hash(&wire)?);
        wire.receipt_id = Some(receipt_id);
        let digest = json::hash(&wire)?;
        wire.digest = Some(digest);
        wire.signature = Some(WireSignature {
            public_key: key.hex(),
            scheme: SIGNATURE_SCHEME.to_owned(),
            value: signer.sign_digest(digest.as_bytes())?,
        });
        Receipt::from_bytes(&json::to_canonical(&wire)?)
    }
}

/// A receipt that has passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    receipt_id: ReceiptId,
    digest: Hash,
    signature: Signature,
    stated: Draft,
    bytes: Vec<u8>,
}

impl Receipt {
    /// Reads and verifies; the error is the first problem.
    pub fn from_bytes(bytes: &[u8]) -> Result<Receipt> {
        if let Some(problem) = verify(bytes)?.problems().next() {
            return Err(problem.clone().into());
        }
        Receipt::from_verified(bytes)
    }

    /// Reads bytes that have just been verified.
    pub(crate) fn from_verified(bytes: &[u8]) -> Result<Receipt> {
        let wire: Wire = json::decode(bytes)?;
        wire.into_receipt(bytes)
    }

    /// Names it by its content.
    pub fn receipt_id(&self) -> &ReceiptId {
        &self.receipt_id
    }

    /// What was signed.
    pub fn digest(&self) -> &Hash {
        &self.digest
    }

    /// The buyer's signature of the digest.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Everything the buyer stated.
    pub fn stated(&self) -> &Draft {
        &self.stated
    }

    /// The file: canonical JSON, without a newline.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The receipt as it is written. The three optional fields are absent while they are being computed.
#[derive(Serialize, Deserialize)]
struct Wire {
    schema_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt_id: Option<ReceiptId>,
    session_id: String,
    request_id: Option<String>,
    trajectory_hash: Hash,
    policy_bundle_id: String,
    job_hash: Option<Hash>,
    payment_proof: Option<Proof>,
    rail: Rail,
    asset_id: AssetId,
    amount: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount_msats: Option<i64>,
    provider_id: PublicKey,
    buyer_id: PublicKey,
    approval_rule_id: Option<String>,
    idempotency_key: String,
    status: Status,
    verdict_hash: Option<Hash>,
    timestamp: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Hash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<WireSignature>,
}

#[derive(Serialize, Deserialize)]
struct WireSignature {
    public_key: String,
    scheme: String,
    value: Signature,
}

impl Wire {
    fn of(draft: &Draft) -> Wire {
        let draft = draft.clone();
        Wire {
            schema_version: SCHEMA_VERSION.to_owned(),
            receipt_id: None,
            session_id: draft.session_id,
            request_id: draft.request_id,
            trajectory_hash: draft.trajectory_hash,
            policy_bundle_id: draft.policy_bundle_id,
            job_hash: draft.job_hash,
            payment_proof: draft.payment_proof,
            rail: draft.rail,
            asset_id: draft.amount.asset_id.clone(),
            amount_msats: draft.amount.asset_id.is_msat().then_some(draft.amount.units),
            amount: draft.amount,
            provider_id: draft.provider_id,
            buyer_id: draft.buyer_id,
            approval_rule_id: draft.approval_rule_id,
            idempotency_key: draft.idempotency_key,
            status: draft.status,
            verdict_hash: draft.verdict_hash,
            timestamp: draft.timestamp,
            digest: None,
            signature: None,
        }
    }

    fn into_receipt(self, bytes: &[u8]) -> Result<Receipt> {
        let missing = |what| Error::new(&json::code::SHAPE, "is missing").at(what);
        Ok(Receipt {
            receipt_id: self.receipt_id.ok_or_else(|| missing("receipt_id"))?,
            digest: self.digest.ok_or_else(|| missing("digest"))?,
            signature: self.signature.ok_or_else(|| missing("signature"))?.value,
            stated: Draft {
                session_id: self.session_id,
                request_id: self.request_id,
                trajectory_hash: self.trajectory_hash,
                policy_bundle_id: self.policy_bundle_id,
                job_hash: self.job_hash,
                payment_proof: self.payment_proof,
                rail: self.rail,
                amount: self.amount,
                provider_id: self.provider_id,
                buyer_id: self.buyer_id,
                approval_rule_id: self.approval_rule_id,
                idempotency_key: self.idempotency_key,
                status: self.status,
                verdict_hash: self.verdict_hash,
                timestamp: self.timestamp,
            },
            bytes: bytes.to_vec(),
        })
    }
}
