//! What a stranger can check: a receipt and its replay, from nothing but their bytes.

use guild_protocol::{receipt, replay};

use super::job::Done;
use crate::client::look;
use crate::error::{Error, Result, code};

/// A receipt that was fetched from the node as anybody can, and what its bytes prove.
pub(super) struct Proof {
    pub(super) receipt_id: String,
    pub(super) verified: bool,
}

impl Proof {
    pub(super) fn fetch(node_url: &str, done: &Done) -> Result<Proof> {
        let receipt_id = done.order.receipt_id.as_ref().map(ToString::to_string);
        let Some(receipt_id) = receipt_id else {
            let message = format!("job {} ended without a receipt", done.number);
            return Err(Error::new(&code::DEMO_FAILED, message));
        };
        let path = format!("/api/receipts/{receipt_id}");
        let bytes = look(node_url, &path)?;
        let holds = receipt::explain(&bytes).is_ok_and(|checks| checks.holds());
        // A stranger gets no replay of private work. The receipt is proof without it.
        let bound =
            done.order.private || is_sealed_by(&bytes, &look(node_url, &format!("{path}/replay"))?);
        Ok(Proof { receipt_id, verified: holds && bound })
    }
}

fn is_sealed_by(receipt: &[u8], story: &[u8]) -> bool {
    replay::verify(story, Some(receipt)).is_ok_and(|report| report.checks.holds())
}
