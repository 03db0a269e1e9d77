//! `keys.json`: under which keys a node deals.

use std::collections::BTreeSet;

use guild_protocol::identity::PublicKey;
use guild_protocol::json::{self, Limits};
use serde::Deserialize;

use super::code;
use super::finding::{Part, Place, Problem, Refusal};

/// The version that is read.
const SCHEMA_VERSION: &str = "guild.evidence_keys.v1";
/// The file is never longer than this.
const MAX_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    schema_version: String,
    keys: Vec<WireKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireKey {
    #[expect(dead_code, reason = "for people; a key is a node's in every role")]
    role: String,
    npub: PublicKey,
}

/// The keys of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    npubs: BTreeSet<String>,
    problem: Option<Problem>,
}

impl Keys {
    /// Reads the file.
    pub fn file(bytes: &[u8]) -> Keys {
        let limits = Limits { max_bytes: MAX_BYTES, max_depth: 8 };
        let wire = match json::decode_within::<Wire>(bytes, limits) {
            Ok(wire) if wire.schema_version == SCHEMA_VERSION => wire,
            Ok(_) => return Keys::refused(format!("its schema_version is not {SCHEMA_VERSION}")),
            Err(error) => return Keys::refused(error.to_string()),
        };
        let npubs = wire.keys.into_iter().map(|key| key.npub.npub()).collect();
        Keys { npubs, problem: None }
    }

    fn refused(message: String) -> Keys {
        let problem = Refusal::new(&code::KEYS, message).at(Place::of(Part::Keys));
        Keys { npubs: BTreeSet::new(), problem: Some(problem) }
    }

    /// All of them, if the file can be read.
    pub(super) fn npubs(&self) -> Option<&BTreeSet<String>> {
        self.problem.is_none().then_some(&self.npubs)
    }

    pub(super) fn into_parts(self) -> (BTreeSet<String>, Option<Problem>) {
        (self.npubs, self.problem)
    }
}
