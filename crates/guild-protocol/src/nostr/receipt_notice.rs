//! How a receipt travels to its provider: as data of an application (NIP-78, kind 30078), by its own name.
//!
//! The event adds nothing to the receipt, and the receipt needs no event to be checked: whoever reads one goes on with
//! the receipt alone. In the open the content is the receipt's bytes; of a private job they are encrypted to the
//! provider.

use super::job::code::{ENCRYPTED as ENCRYPTED_CODE, NO_RECIPIENT};
use super::{Draft, Event, EventId, kind, nip44, tag};
use crate::env::{Random, Signer};
use crate::id::ReceiptId;
use crate::identity::{PublicKey, SecretKey};
use crate::receipt::Receipt;
use crate::{Error, Result};

/// The codes of this module.
pub mod code {
    crate::codes! {
        WRONG_KIND = "receipt_notice.kind_wrong", Invalid,
            "An event does not carry a receipt.",
            "One that does has the kind 30078 and a d tag that begins with guild:receipt:.";
        MISMATCH = "receipt_notice.mismatch", Invalid,
            "The tags of an event name another receipt, request, provider or buyer than the receipt it carries.",
            "Do not trust the event; a receipt is worth what it says itself.";
    }
}

/// What the `d` tag begins with; the receipt's id follows.
pub const D_PREFIX: &str = "guild:receipt:";

const ENCRYPTED: &str = "encrypted";

/// A receipt on its way.
///
/// The receipt that is read has passed every check of its own, its buyer is the event's author, and the tags agree with
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptNotice {
    /// The receipt.
    pub receipt: Receipt,
    /// The request that it is about.
    pub request_id: EventId,
}

/// Whether an event may carry a receipt: its kind and its name say so.
pub fn is_notice(event: &Event) -> bool {
    event.kind == kind::APP_DATA && event.tag("d").is_some_and(|d| d.starts_with(D_PREFIX))
}

impl ReceiptNotice {
    /// The notice of a receipt about a request on Nostr.
    pub fn of(receipt: &Receipt) -> Result<ReceiptNotice> {
        let request_id = receipt.stated().request_id.as_deref().unwrap_or_default();
        let request_id = request_id.parse().map_err(|e: Error| e.at("request_id"))?;
        Ok(ReceiptNotice { receipt: receipt.clone(), request_id })
    }

    /// Reads a notice. An encrypted one needs the key of its author or of its provider. Says nothing about the event's
    /// signature.
    pub fn parse(event: &Event, key: Option<&SecretKey>) -> Result<ReceiptNotice> {
        if !is_notice(event) {
            return Err(Error::new(&code::WRONG_KIND, "this is no receipt").at("kind"));
        }
        let text = open(event, key)?;
        let receipt = Receipt::from_bytes(text.as_bytes()).map_err(|e| e.within("content"))?;
        let notice = ReceiptNotice::of(&receipt).map_err(|e| e.within("content"))?;
        notice.check(event)?;
        Ok(notice)
    }

    fn check(&self, event: &Event) -> Result<()> {
        let stated = self.receipt.stated();
        let differs =
            |what: &str| Err(Error::new(&code::MISMATCH, "is not the receipt's").at(what));
        if event.tag("d").and_then(|d| d.strip_prefix(D_PREFIX)) != Some(self.receipt_id().as_str())
        {
            return differs("d");
        }
        if event.tag("e") != Some(self.request_id.hex().as_str()) {
            return differs("e");
        }
        if event.tag("p") != Some(stated.provider_id.hex().as_str()) {
            return differs("p");
        }
        if event.pubkey != stated.buyer_id {
            return differs("pubkey");
        }
        Ok(())
    }

    fn receipt_id(&self) -> &ReceiptId {
        self.receipt.receipt_id()
    }

    /// The notice in the open.
    pub fn draft(&self, created_at: u64) -> Result<Draft> {
        Ok(self.draft_of(created_at, self.text(), false))
    }

    /// The notice encrypted to the provider. Who pays whom for which request stays readable; how much does not.
    pub fn sealed_draft(
        &self,
        created_at: u64,
        own: &SecretKey,
        random: &dyn Random,
    ) -> Result<Draft> {
        let provider = &self.receipt.stated().provider_id;
        let content = nip44::encrypt(own, provider, &self.text(), random)?;
        Ok(self.draft_of(created_at, content, true))
    }

    fn text(&self) -> String {
        // Canonical JSON is UTF-8, so nothing is lost.
        String::from_utf8_lossy(self.receipt.as_bytes()).into_owned()
    }

    fn draft_of(&self, created_at: u64, content: String, encrypted: bool) -> Draft {
        let mut tags = vec![
            tag::tag(["d", &format!("{D_PREFIX}{}", self.receipt_id())]),
            tag::tag(["e", &self.request_id.hex()]),
            tag::tag(["p", &self.receipt.stated().provider_id.hex()]),
        ];
        if encrypted {
            tags.push(tag::tag([ENCRYPTED]));
        }
        Draft { kind: kind::APP_DATA, created_at, tags, content }
    }
}

fn open(event: &Event, key: Option<&SecretKey>) -> Result<String> {
    if !tag::has(&event.tags, ENCRYPTED) {
        return Ok(event.content.clone());
    }
    let Some(key) = key else {
        let message = "the receipt is encrypted and no key was given";
        return Err(Error::new(&ENCRYPTED_CODE, message).at("content"));
    };
    let other: PublicKey = match event.tag("p") {
        _ if key.public_key() != event.pubkey => event.pubkey,
        Some(provider) => provider.parse().map_err(|e: Error| e.at("p"))?,
        None => {
            let message = "an encrypted receipt is addressed to its provider";
            return Err(Error::new(&NO_RECIPIENT, message).at("p"));
        }
    };
    nip44::decrypt(key, &other, &event.content).map_err(|e| e.at("content"))
}
