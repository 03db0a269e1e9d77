//! Who may ask, and who answers. The controller signs every request; the agent signs the head of every answer.
//!
//! A request's signature covers method, path with query, the hash of the body, the time, a nonce, the id of the sandbox
//! and the key of its agent: what was signed for one sandbox is of no use at another, and none is of use twice. The
//! agent's signature covers that nonce, so an answer belongs to one request, and a client that knows the agent's key
//! notices anybody else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use guild_protocol::env::{Random, Signer, UnixMs};
use guild_protocol::hash::{Hash, from_hex_exact, to_hex};
use guild_protocol::identity::{PublicKey, Signature};

use super::error::{Error, Result, code};

guild_protocol::typed_id! {
    /// Names a sandbox that an agent serves.
    SandboxId = "sandbox", made;
}

/// The word before the signature in the header `authorization`.
const SCHEME: &str = "Guild-Sandbox";
/// What a request's signature begins with, so that it can never be taken for one of anything else.
const REQUEST: &str = "guildhall/sandbox-agent/request/v1";
const ANSWER: &str = "guildhall/sandbox-agent/answer/v1";
/// The header with the agent's signature.
pub(crate) const ANSWER_HEADER: &str = "x-guild-sandbox-answer";

/// A sandbox and the key of the agent that serves it: the one whom a signature is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Party {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// Its agent.
    pub agent: PublicKey,
}

impl Party {
    /// The digest of what is said to or by this party.
    pub(crate) fn digest(&self, about: &str, lines: &[&str]) -> [u8; 32] {
        let agent = self.agent.hex();
        let mut text = [about, self.sandbox_id.as_str(), &agent].join("\n");
        for line in lines {
            text.push('\n');
            text.push_str(line);
        }
        *Hash::of(text.as_bytes()).as_bytes()
    }
}

/// What makes a request unlike any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// A new one.
    pub fn make(random: &dyn Random) -> Nonce {
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        Nonce(bytes)
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl FromStr for Nonce {
    type Err = Error;

    fn from_str(text: &str) -> Result<Nonce> {
        let malformed = || Error::bad("nonce", "a nonce is 32 lower-case hex digits");
        from_hex_exact(text).map(Nonce).ok_or_else(malformed)
    }
}

impl serde::Serialize for Nonce {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Nonce {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Nonce, D::Error> {
        <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What a signature of a request says beside what the request itself shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) at_ms: UnixMs,
    pub(crate) nonce: Nonce,
    pub(crate) body: Hash,
    signature: Signature,
}

impl Pass {
    /// The value of the header `authorization` for one request.
    pub(crate) fn sign(
        party: &Party,
        asked: &Asked<'_>,
        body: Hash,
        at_ms: UnixMs,
        nonce: Nonce,
        signer: &dyn Signer,
    ) -> Result<Pass> {
        let digest = asked.digest(party, &body, at_ms, nonce);
        let signature = signer.sign_digest(&digest)?;
        Ok(Pass { at_ms, nonce, body, signature })
    }

    pub(crate) fn parse(header: &str) -> Result<Pass> {
        let malformed = || Error::new(&code::NOT_SIGNED, "the header authorization is not whole");
        let rest = header.strip_prefix(SCHEME).and_then(|rest| rest.strip_prefix(' '));
        let mut fields = BTreeMap::new();
        for pair in rest.ok_or_else(malformed)?.split(',') {
            let (name, value) = pair.split_once('=').ok_or_else(malformed)?;
            if fields.insert(name, value).is_some() {
                return Err(malformed());
            }
        }
        let mut take = |name| fields.remove(name).ok_or_else(malformed);
        let pass = Pass {
            at_ms: take("at")?.parse().map_err(|_| malformed())?,
            nonce: take("nonce")?.parse().map_err(|_| malformed())?,
            body: format!("sha256:{}", take("body")?).parse().map_err(|_| malformed())?,
            signature: take("signature")?.parse().map_err(|_| malformed())?,
        };
        if fields.is_empty() { Ok(pass) } else { Err(malformed()) }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pass { at_ms, nonce, body, signature } = self;
        let (body, signature) = (body.hex(), signature.hex());
        write!(f, "{SCHEME} at={at_ms},nonce={nonce},body={body},signature={signature}")
    }
}

/// What a request shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) path_and_query: &'a str,
}

impl Asked<'_> {
    fn digest(&self, party: &Party, body: &Hash, at_ms: UnixMs, nonce: Nonce) -> [u8; 32] {
        let (body, at_ms, nonce) = (body.hex(), at_ms.to_string(), nonce.to_string());
        party.digest(REQUEST, &[self.method, self.path_and_query, &body, &at_ms, &nonce])
    }
}

/// How long a signature of a request is good, in either direction of time.
pub const WINDOW_MS: i64 = 60_000;
/// How many signatures are remembered.
const MAX_SEEN: usize = 65_536;

/// Lets in what the controller has signed, once.
#[derive(Debug)]
pub(crate) struct Gate {
    party: Party,
    controller: PublicKey,
    /// Nothing signed before this is let in. It never goes back, whatever the clock does.
    floor_ms: UnixMs,
    seen: BTreeSet<(UnixMs, Nonce)>,
}

impl Gate {
    pub(crate) fn new(party: Party, controller: PublicKey, started_ms: UnixMs) -> Gate {
        Gate { party, controller, floor_ms: started_ms, seen: BTreeSet::new() }
    }

    /// Whether this request may be served now.
    pub(crate) fn admit(&mut self, pass: &Pass, asked: &Asked<'_>, now_ms: UnixMs) -> Result<()> {
        self.floor_ms = self.floor_ms.max(now_ms.saturating_sub(WINDOW_MS));
        if pass.at_ms < self.floor_ms || pass.at_ms > now_ms.saturating_add(WINDOW_MS) {
            let why = format!("it was signed at {}, and here it is {now_ms}", pass.at_ms);
            return Err(Error::new(&code::NOT_IN_TIME, why));
        }
        let digest = asked.digest(&self.party, &pass.body, pass.at_ms, pass.nonce);
        self.controller.verify(&digest, &pass.signature).map_err(|_| {
            Error::new(&code::WRONG_SIGNATURE, "the signature is not the controller's for this")
        })?;
        // Only what was signed is remembered: strangers cannot fill the memory.
        if !self.seen.insert((pass.at_ms, pass.nonce)) {
            return Err(Error::new(&code::REPLAYED, "this request was served already"));
        }
        self.forget();
        Ok(())
    }

    /// What is below the floor is refused by its time. If there is too much above it, the floor rises.
    fn forget(&mut self) {
        while let Some((at_ms, _)) = self.seen.first().copied()
            && (at_ms < self.floor_ms || self.seen.len() > MAX_SEEN)
        {
            self.seen.pop_first();
            self.floor_ms = self.floor_ms.max(at_ms.saturating_add(1));
        }
    }
}

/// The agent's word that an answer is its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seal {
    /// The hash of the body; none of what is sent while it is made.
    pub(crate) body: Option<Hash>,
    signature: Signature,
}

impl Seal {
    pub(crate) fn sign(
        party: &Party,
        nonce: Option<Nonce>,
        status: u16,
        body: Option<Hash>,
        agent: &dyn Signer,
    ) -> Result<Seal> {
        let signature = agent.sign_digest(&Seal::digest(party, nonce, status, body.as_ref()))?;
        Ok(Seal { body, signature })
    }

    /// Whether the agent of this party answered this request.
    pub(crate) fn check(&self, party: &Party, nonce: Nonce, status: u16) -> Result<()> {
        let digest = Seal::digest(party, Some(nonce), status, self.body.as_ref());
        party.agent.verify(&digest, &self.signature).map_err(|_| {
            Error::new(&code::WRONG_AGENT, "the answer is not signed by the agent's key")
        })
    }

    fn digest(party: &Party, nonce: Option<Nonce>, status: u16, body: Option<&Hash>) -> [u8; 32] {
        let nonce = nonce.map_or_else(|| "-".to_owned(), |nonce| nonce.to_string());
        let body = body.map_or_else(|| "-".to_owned(), Hash::hex);
        party.digest(ANSWER, &[&nonce, &status.to_string(), &body])
    }

    pub(crate) fn parse(header: &str) -> Result<Seal> {
        let malformed = || Error::new(&code::WRONG_AGENT, "the answer is not signed");
        let (body, signature) = header.split_once(',').ok_or_else(malformed)?;
        let body = match body {
            "-" => None,
            hex => Some(format!("sha256:{hex}").parse().map_err(|_| malformed())?),
        };
        Ok(Seal { body, signature: signature.parse().map_err(|_| malformed())? })
    }
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body.as_ref().map_or_else(|| "-".to_owned(), Hash::hex);
        write!(f, "{body},{}", self.signature.hex())
    }
}

#[cfg(test)]
mod tests {
    use guild_protocol::identity::SecretKey;

    use super::*;

    fn key(n: u8) -> SecretKey {
        format!("{n:064x}").parse().unwrap()
    }

    fn party(n: u8) -> Party {
        let sandbox_id = format!("sandbox_{n:032x}").parse().unwrap();
        Party { sandbox_id, agent: key(2).public_key() }
    }

    const ASKED: Asked<'_> = Asked { method: "POST", path_and_query: "/v1/exec?a=b" };

    fn pass(n: u8, at_ms: i64) -> Pass {
        let nonce = Nonce([n; 16]);
        Pass::sign(&party(1), &ASKED, Hash::of(b"x"), at_ms, nonce, &key(1)).unwrap()
    }

    fn gate() -> Gate {
        Gate::new(party(1), key(1).public_key(), 1_000)
    }

    fn refused(gate: &mut Gate, pass: &Pass, asked: &Asked<'_>, now_ms: i64) -> &'static str {
        gate.admit(pass, asked, now_ms).unwrap_err().code().name
    }

    #[test]
    fn a_pass_is_read_as_it_was_written() {
        let one = pass(7, 5_000);
        assert_eq!(Pass::parse(&one.to_string()).unwrap(), one);
        let text = one.to_string();
        for bad in [
            "",
            "Bearer x",
            &text[..text.len() - 1],
            &format!("{text},at=1"),
            &text.replace("at=", "ät="),
        ] {
            assert_eq!(Pass::parse(bad).unwrap_err().code(), &code::NOT_SIGNED, "{bad}");
        }
    }

    #[test]
    fn what_was_signed_is_served_once_and_nothing_else() {
        let mut gate = gate();
        let one = pass(1, 5_000);
        for asked in [
            Asked { method: "GET", ..ASKED },
            Asked { path_and_query: "/v1/exec?a=c", ..ASKED },
            Asked { path_and_query: "/v1/exec", ..ASKED },
        ] {
            assert_eq!(refused(&mut gate, &one, &asked, 5_000), "agent.wrong_signature");
        }
        for changed in [
            Pass { body: Hash::of(b"y"), ..one },
            Pass { at_ms: 5_001, ..one },
            Pass { nonce: Nonce([9; 16]), ..one },
            Pass { signature: pass(2, 5_000).signature, ..one },
        ] {
            assert_eq!(refused(&mut gate, &changed, &ASKED, 5_000), "agent.wrong_signature");
        }
        let mut other = Gate::new(party(2), key(1).public_key(), 0);
        assert_eq!(refused(&mut other, &one, &ASKED, 5_000), "agent.wrong_signature");
        let mut other = Gate::new(party(1), key(3).public_key(), 0);
        assert_eq!(refused(&mut other, &one, &ASKED, 5_000), "agent.wrong_signature");
        gate.admit(&one, &ASKED, 5_000).unwrap();
        assert_eq!(refused(&mut gate, &one, &ASKED, 6_000), "agent.replayed");
    }

    #[test]
    fn time_never_lets_an_old_request_in_again() {
        let mut gate = gate();
        assert_eq!(refused(&mut gate, &pass(1, 999), &ASKED, 5_000), "agent.not_in_time");
        assert_eq!(refused(&mut gate, &pass(1, 65_001), &ASKED, 5_000), "agent.not_in_time");
        let one = pass(1, 5_000);
        gate.admit(&one, &ASKED, 5_000).unwrap();
        gate.admit(&pass(2, 200_000), &ASKED, 200_000).unwrap();
        assert_eq!(gate.seen.len(), 1, "what is too old is forgotten");
        // The clock is set back: the old request looks fresh, and is not.
        assert_eq!(refused(&mut gate, &one, &ASKED, 5_000), "agent.not_in_time");
    }

    #[test]
    fn the_memory_is_bounded_and_forgets_nobody_who_could_come_again() {
        let mut gate = gate();
        gate.seen = (0..MAX_SEEN).map(|n| (2_000, Nonce((n as u128).to_be_bytes()))).collect();
        gate.admit(&pass(9, 3_000), &ASKED, 3_000).unwrap();
        assert!(gate.seen.len() <= MAX_SEEN);
        assert_eq!(refused(&mut gate, &pass(8, 2_000), &ASKED, 3_000), "agent.not_in_time");
        gate.admit(&pass(8, 3_000), &ASKED, 3_000).unwrap();
    }

    #[test]
    fn an_answer_belongs_to_its_request_and_its_agent() {
        let (nonce, body) = (Nonce([1; 16]), Some(Hash::of(b"{}")));
        let seal = Seal::sign(&party(1), Some(nonce), 200, body, &key(2)).unwrap();
        assert_eq!(Seal::parse(&seal.to_string()).unwrap(), seal);
        seal.check(&party(1), nonce, 200).unwrap();
        assert!(seal.check(&party(1), nonce, 201).is_err());
        assert!(seal.check(&party(1), Nonce([2; 16]), 200).is_err());
        assert!(seal.check(&party(2), nonce, 200).is_err());
        assert!(Seal { body: None, ..seal }.check(&party(1), nonce, 200).is_err());
        let foreign = Seal::sign(&party(1), Some(nonce), 200, body, &key(3)).unwrap();
        let error = foreign.check(&party(1), nonce, 200).unwrap_err();
        assert_eq!(error.code(), &code::WRONG_AGENT);
    }
}
