//! `evidence.json`: which files there are, and what each is of.

use std::collections::BTreeMap;

use guild_protocol::hash::Hash;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::PublicKey;
use guild_protocol::json::{self, Doc, Limits};
use guild_protocol::nostr::EventId;
use serde::{Deserialize, Serialize};

use super::{FILES_MAX, MANIFEST_MAX_BYTES, SCHEMA_VERSION};

/// So many at most do the same work.
const WORKS_MAX: usize = 64;

/// What a dossier holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the form.
    pub schema_version: String,
    /// What it is of: the id of a request or of a delegation.
    pub about: String,
    /// Who asked.
    pub buyer: PublicKey,
    /// Whether the work travelled encrypted: then the files tell more than the relays did.
    pub private: bool,
    /// The delegation that the works are the replicas of, if they are.
    pub delegation: Option<Council>,
    /// What was asked, in the order in which it was.
    pub works: Vec<Work>,
    /// The reviews that cite it.
    pub reviews: Vec<EventId>,
    /// Every other file, with the hash of its bytes.
    pub files: BTreeMap<String, Hash>,
}

/// Work that several did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Council {
    /// Names it.
    pub delegation_id: String,
    /// The most that was to be paid, to all of them together, in millisatoshi.
    pub budget_msat: i64,
}

/// One request, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// The event that asked.
    pub request_id: EventId,
    /// What kind of work.
    pub schema_id: String,
    /// Who was to do it, or did.
    pub provider: Option<PublicKey>,
    /// How it ended: `released`, `withheld`, `expired`, `failed`, `cancelled`; `judged` if it was a trial.
    pub state: String,
    /// The event that delivered, if something counts.
    pub result_id: Option<EventId>,
    /// What else was said about it: feedback, other results, the wish to delete the request.
    pub heard: Vec<EventId>,
    /// The verdict.
    pub verdict_hash: Option<Hash>,
    /// The receipt.
    pub receipt_id: Option<ReceiptId>,
    /// What a trial was judged by.
    pub revealed: Option<Revealed>,
}

/// What a trial was judged by, and was committed to before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revealed {
    /// The benchmark.
    pub benchmark: String,
    /// Its modules.
    pub modules: Vec<String>,
    /// From which its tests follow, in hex digits.
    pub seed: String,
    /// What hid the tests, in hex digits; none if there are no tests.
    pub salt: Option<String>,
    /// The tests.
    pub suite_hash: Option<Hash>,
    /// When it was judged, which the name of the judgement is made of.
    pub judged_ms: Option<i64>,
}

impl Manifest {
    /// Reads the file; else why not.
    pub(super) fn read(bytes: &[u8]) -> Result<Manifest, String> {
        let limits = Limits { max_bytes: MANIFEST_MAX_BYTES, max_depth: 8 };
        let doc = Doc::parse_within(bytes, limits).map_err(|error| error.to_string())?;
        json::require_canonical(bytes, &doc).map_err(|error| error.to_string())?;
        let manifest: Manifest =
            json::decode_within(bytes, limits).map_err(|error| error.to_string())?;
        if manifest.schema_version != SCHEMA_VERSION {
            return Err(format!("its schema_version is not {SCHEMA_VERSION}"));
        }
        if manifest.files.len() > FILES_MAX {
            return Err(format!("it names more than {FILES_MAX} files"));
        }
        match manifest.works.len() {
            1 => Ok(manifest),
            2..=WORKS_MAX if manifest.delegation.is_some() => Ok(manifest),
            count => Err(format!("it is of {count} requests")),
        }
    }
}
