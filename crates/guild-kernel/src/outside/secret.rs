//! What proves that a tool was called: a secret that only a command carries.

use std::fmt;

use guild_protocol::env::{Random, UnixMs};
use guild_protocol::hash::{from_hex, to_hex};
use guild_store::{Store, Tx, args};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::header::Caller;
use crate::{Error, Result, code};

const NAME: &str = "calls";

/// The key that the secrets of calls follow from. All processes of one store share it.
#[derive(Clone, PartialEq, Eq)]
pub struct CallKey([u8; 32]);

impl fmt::Debug for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key: whoever has it can answer for every tool.
        f.write_str("CallKey")
    }
}

impl CallKey {
    /// The key of this store; made if there is none.
    pub async fn load(store: &Store, random: &dyn Random, now_ms: UnixMs) -> Result<CallKey> {
        let mut made = [0; 32];
        random.fill(&mut made);
        let made = to_hex(&made);
        let kept = store.write(move |tx| keep(tx, &made, now_ms)).await?;
        let key = from_hex(&kept).and_then(|bytes| bytes.try_into().ok());
        key.map(CallKey).ok_or_else(|| {
            Error::refused(&code::MALFORMED_ROW, "the key of calls cannot be read".to_owned())
        })
    }

    /// The secret of a call.
    pub(super) fn secret(&self, caller: &Caller) -> String {
        to_hex(&self.mac(caller).finalize().into_bytes())
    }

    /// Whether somebody shows the secret of this call.
    pub(super) fn is_shown(&self, caller: &Caller, shown: &str) -> bool {
        // It takes as long for a wrong one as for the right one.
        from_hex(shown).is_some_and(|shown| self.mac(caller).verify_slice(&shown).is_ok())
    }

    fn mac(&self, caller: &Caller) -> Hmac<Sha256> {
        // A key is filled up with zeros to the block of its hash.
        let mut block = [0; 64];
        for (to, from) in block.iter_mut().zip(self.0) {
            *to = from;
        }
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(b"guildhall/call/v1");
        for word in caller.words() {
            // Lengths keep ["ab", "c"] apart from ["a", "bc"].
            mac.update(&u64::try_from(word.len()).unwrap_or(u64::MAX).to_be_bytes());
            mac.update(word.as_bytes());
        }
        mac
    }
}

/// The first one counts.
fn keep(tx: &mut Tx<'_>, made: &str, now_ms: UnixMs) -> Result<String> {
    tx.exec(
        "INSERT INTO kernel_secrets (name, secret, created_ms) VALUES ($1, $2, $3)
         ON CONFLICT (name) DO NOTHING",
        args![NAME, made, now_ms],
    )?;
    let kept: Option<(String,)> =
        tx.first("SELECT secret FROM kernel_secrets WHERE name = $1", args![NAME])?;
    Ok(kept.map(|(secret,)| secret).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        let id = |prefix: &str| format!("{prefix}_{:032x}", 1);
        Caller {
            project_id: "p".parse().unwrap(),
            channel_id: "c".parse().unwrap(),
            agent_id: "a".parse().unwrap(),
            agent_turn_id: id("turn").parse().unwrap(),
            turn_epoch: 1,
            step_id: id("step").parse().unwrap(),
            tool_call_id: id("call").parse().unwrap(),
        }
    }

    #[test]
    fn a_secret_is_of_one_call_as_it_was_made() {
        let (key, other) = (CallKey([7; 32]), CallKey([8; 32]));
        let secret = key.secret(&caller());
        assert!(key.is_shown(&caller(), &secret) && !other.is_shown(&caller(), &secret));
        for shown in ["", "00", "zz", &secret.to_uppercase(), &secret[1..], &format!("{secret}00")]
        {
            assert!(!key.is_shown(&caller(), shown), "{shown}");
        }
        let two = format!("{:032x}", 2);
        let forged = [
            Caller { project_id: "q".parse().unwrap(), ..caller() },
            Caller { channel_id: "q".parse().unwrap(), ..caller() },
            Caller { agent_id: "q".parse().unwrap(), ..caller() },
            Caller { agent_turn_id: format!("turn_{two}").parse().unwrap(), ..caller() },
            Caller { turn_epoch: 2, ..caller() },
            Caller { step_id: format!("step_{two}").parse().unwrap(), ..caller() },
            Caller { tool_call_id: format!("call_{two}").parse().unwrap(), ..caller() },
            Caller {
                project_id: "pc".parse().unwrap(),
                channel_id: "a".parse().unwrap(),
                agent_id: "x".parse().unwrap(),
                ..caller()
            },
        ];
        for forged in forged {
            assert!(!key.is_shown(&forged, &secret), "{forged:?}");
        }
        assert_eq!(format!("{key:?}"), "CallKey");
    }
}
