//! Checking a receipt, from its bytes alone.

use super::{MAX_BYTES, SCHEMA_VERSION, WIRE, code, forms};
use crate::hash::{Hash, shorten};
use crate::id::ReceiptId;
use crate::identity::{PublicKey, Signature};
use crate::json::{self, Doc, Limits};
use crate::verification::{Problem, Verification};
use crate::wire::{Reading, canonical_without, text_at};
use crate::{Error, Result, tamper};

const MAX_DEPTH: usize = 8;

/// Checks everything that the bytes of a receipt say about themselves.
///
/// An error means that the bytes are not a receipt of a version known here; a verification that does not
/// [hold](Verification::holds), that they are one and must not be trusted. Whether the payment happened, only the
/// rail can tell.
pub fn verify(bytes: &[u8]) -> Result<Verification> {
    Ok(Reader::new(bytes)?.verification(false))
}

/// As [`verify`], and where the content was changed after signing it looks for the field. That takes a fraction of a
/// second instead of a fraction of a millisecond.
pub fn explain(bytes: &[u8]) -> Result<Verification> {
    Ok(Reader::new(bytes)?.verification(true))
}

/// A document with the shape of a receipt, in canonical bytes.
struct Reader<'a> {
    doc: Doc<'a>,
    /// What the digest covers.
    signed: Vec<u8>,
    /// The digest of `signed`.
    digest: Hash,
    /// The id that belongs to the content.
    receipt_id: ReceiptId,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Reader<'a>> {
        let limits = Limits { max_bytes: MAX_BYTES, max_depth: MAX_DEPTH };
        let doc = Doc::parse_within(bytes, limits).map_err(|e| name_field(e, bytes))?;
        match text_at(&doc, "schema_version") {
            Some(SCHEMA_VERSION) | None => {}
            Some(other) => {
                let message = format!("{:?} is not {SCHEMA_VERSION}", shorten(other));
                return Err(Error::new(&code::UNKNOWN_VERSION, message).at("schema_version"));
            }
        }
        WIRE.check(&doc, Reading::Strict)?;
        json::require_canonical(bytes, &doc).map_err(|e| name_field(e, bytes))?;
        let signed = canonical_without(&doc, &["digest", "signature"]);
        let digest = Hash::of(&signed);
        let content = canonical_without(&doc, &["digest", "receipt_id", "signature"]);
        Ok(Reader { doc, signed, digest, receipt_id: ReceiptId::of(&Hash::of(&content)) })
    }

    fn verification(&self, explain: bool) -> Verification {
        let mut all = Verification::default();
        all.record("form", "every field has its form", forms::forms(&self.doc));
        // A check that a malformed field makes impossible is left out: it must not look passed.
        if let Some(problems) = forms::amounts(&self.doc) {
            all.record("amount", "the stated amounts agree", problems);
        }
        if let Some(problems) = forms::rails(&self.doc) {
            all.record("rail", "rail, asset and proof belong together", problems);
        }
        if let Some(problems) = forms::statuses(&self.doc) {
            all.record("status", "the status fits verdict and proof", problems);
        }
        all.record("receipt_id", "the id is that of the content", self.id_problem());
        all.record("digest", "the digest is that of the content", self.digest_problem(explain));
        all.record("signer", "the signer is the buyer", self.signer_problem());
        all.record("signature", "the signature fits digest and key", self.signature_problem());
        all
    }

    fn id_problem(&self) -> Option<Problem> {
        let stated = text_at(&self.doc, "receipt_id")?;
        (stated != self.receipt_id.as_str()).then(|| {
            let message = format!("the content has the id {}", self.receipt_id);
            Problem::new(&code::ID, message).at("receipt_id")
        })
    }

    fn digest_problem(&self, explain: bool) -> Option<Problem> {
        let stated = self.stated_digest();
        if stated == Some(self.digest) {
            return None;
        }
        let problem =
            |field: &str, message: &str| Some(Problem::new(&code::DIGEST, message).at(field));
        if self.id_problem().is_none() {
            return problem("digest", "was changed: the content still has its id");
        }
        if stated == Some(self.digest_with_true_id()) {
            return problem("receipt_id", "was changed after signing");
        }
        // Only a digest that was signed is worth searching for.
        let searched = explain
            && self.signature_problem().is_none()
            && self.signed.len() <= tamper::MAX_SEARCH_BYTES;
        if !searched {
            return problem("digest", "does not belong to the content: a field was changed");
        }
        match stated.and_then(|digest| tamper::search(b"", &self.signed, &digest)) {
            Some(found) => problem(&found.path, "was changed after signing"),
            None => problem(
                "digest",
                "does not belong to the content: it was changed in more than one byte",
            ),
        }
    }

    fn stated_digest(&self) -> Option<Hash> {
        text_at(&self.doc, "digest")?.parse().ok()
    }

    fn digest_with_true_id(&self) -> Hash {
        let Doc::Object(members) = &self.doc else { return self.digest };
        let members = members.iter().filter(|(key, _)| key != "digest" && key != "signature");
        let restored = members.map(|(key, value)| match key.as_ref() {
            "receipt_id" => (key.clone(), Doc::Text(self.receipt_id.as_str().into())),
            _ => (key.clone(), value.clone()),
        });
        Doc::Object(restored.collect()).hash()
    }

    fn key(&self, field: &str) -> Option<PublicKey> {
        text_at(&self.doc, field)?.parse().ok()
    }

    fn signer_problem(&self) -> Option<Problem> {
        let signer = self.key("signature.public_key");
        (signer.is_none() || signer != self.key("buyer_id")).then(|| {
            Problem::new(&code::SIGNER, "is not the key of buyer_id").at("signature.public_key")
        })
    }

    fn signature_problem(&self) -> Option<Problem> {
        let wrong =
            |field: &str, message: &str| Some(Problem::new(&code::SIGNATURE, message).at(field));
        let Some(signature) =
            text_at(&self.doc, "signature.value").and_then(|text| text.parse::<Signature>().ok())
        else {
            return wrong("signature.value", "is not a signature");
        };
        let fits = |key: Option<PublicKey>, digest: Option<Hash>| {
            key.zip(digest)
                .is_some_and(|(key, digest)| key.verify(digest.as_bytes(), &signature).is_ok())
        };
        let (signer, buyer) = (self.key("signature.public_key"), self.key("buyer_id"));
        let stated = self.stated_digest();
        if fits(signer, stated) {
            None
        } else if fits(signer, Some(self.digest)) {
            wrong("digest", "is not what was signed: the signature fits the content")
        } else if fits(buyer, stated) {
            wrong("signature.public_key", "is not the key that signed: the buyer's did")
        } else {
            wrong("signature.value", "does not fit digest and key")
        }
    }
}

/// The same error with the field in which it is, as far as a text that cannot be read shows it.
fn name_field(error: Error, text: &[u8]) -> Error {
    let Some(byte) = error.place().and_then(|place| place.strip_prefix("byte ")) else {
        return error;
    };
    let path = byte.parse().ok().and_then(|offset| tamper::path_at(text, offset));
    match path {
        Some(path) => {
            let place = format!("{}, byte {byte}", shorten(&path));
            error.at(place)
        }
        None => error,
    }
}
