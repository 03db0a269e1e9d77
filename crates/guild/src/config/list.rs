//! Settings that are lists, written with commas.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use guild_network::client::relay_url;
use guild_network::content::peer_url;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::kind;
use guild_roles::router::TaskType;
use guild_sandbox::Layer;
use serde::{Deserialize, Serialize};

/// More relays are a mistake: every one of them is a connection.
const RELAYS_MAX: usize = 64;

/// The addresses of relays, each in its one spelling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RelayUrls(pub(crate) Vec<String>);

impl TryFrom<String> for RelayUrls {
    type Error = String;
    fn try_from(text: String) -> Result<RelayUrls, String> {
        let mut urls: Vec<String> = Vec::new();
        for part in parts(&text) {
            let url = relay_url(part).map_err(|e| e.to_string())?;
            if !urls.contains(&url) {
                urls.push(url);
            }
        }
        match urls.len() {
            0..=RELAYS_MAX => Ok(RelayUrls(urls)),
            n => Err(format!("{n} relays are more than the limit of {RELAYS_MAX}")),
        }
    }
}

impl From<RelayUrls> for String {
    fn from(urls: RelayUrls) -> String {
        urls.0.join(",")
    }
}

/// More peers are a mistake: each is asked for what the ones before do not have.
const PEERS_MAX: usize = 32;

/// The addresses of nodes with content, each in its one spelling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct PeerUrls(pub(crate) Vec<String>);

impl TryFrom<String> for PeerUrls {
    type Error = String;
    fn try_from(text: String) -> Result<PeerUrls, String> {
        let mut urls: Vec<String> = Vec::new();
        for part in parts(&text) {
            let url = peer_url(part).map_err(|e| e.to_string())?;
            if !urls.contains(&url) {
                urls.push(url);
            }
        }
        match urls.len() {
            0..=PEERS_MAX => Ok(PeerUrls(urls)),
            n => Err(format!("{n} peers are more than the limit of {PEERS_MAX}")),
        }
    }
}

impl From<PeerUrls> for String {
    fn from(urls: PeerUrls) -> String {
        urls.0.join(",")
    }
}

/// Images by their digests, as `sha256:…=/directory`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ImageList(pub(crate) BTreeMap<String, PathBuf>);

impl TryFrom<String> for ImageList {
    type Error = String;
    fn try_from(text: String) -> Result<ImageList, String> {
        let mut images = BTreeMap::new();
        for part in parts(&text) {
            let named = part.split_once('=').filter(|(digest, directory)| {
                digest.starts_with("sha256:") && digest.len() > 7 && directory.starts_with('/')
            });
            let Some((digest, directory)) = named else {
                return Err(format!("{part:?} is not sha256:…=/directory"));
            };
            if images.insert(digest.to_owned(), PathBuf::from(directory)).is_some() {
                return Err(format!("{digest} is there twice"));
            }
        }
        Ok(ImageList(images))
    }
}

impl From<ImageList> for String {
    fn from(images: ImageList) -> String {
        let one =
            |(digest, directory): (&String, &PathBuf)| format!("{digest}={}", directory.display());
        images.0.iter().map(one).collect::<Vec<_>>().join(",")
    }
}

/// Where an image of a sandbox for others comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostedSource {
    /// From this host's own system.
    Host,
    /// From a directory.
    Directory(PathBuf),
}

/// Images that are sold, as `name:vX.Y.Z=/directory` or `name:vX.Y.Z=host`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct HostedImages(pub(crate) BTreeMap<String, HostedSource>);

impl Default for HostedImages {
    fn default() -> HostedImages {
        HostedImages([("sandbox-base:v1.0.0".to_owned(), HostedSource::Host)].into())
    }
}

impl TryFrom<String> for HostedImages {
    type Error = String;
    fn try_from(text: String) -> Result<HostedImages, String> {
        let mut images = BTreeMap::new();
        for part in parts(&text) {
            let source = match part.split_once('=') {
                Some((name, "host")) => Some((name, HostedSource::Host)),
                Some((name, path)) if path.starts_with('/') => {
                    Some((name, HostedSource::Directory(PathBuf::from(path))))
                }
                _ => None,
            };
            let Some((name, source)) = source else {
                return Err(format!("{part:?} is not name:vX.Y.Z=/directory or name:vX.Y.Z=host"));
            };
            if images.insert(name.to_owned(), source).is_some() {
                return Err(format!("{name} is there twice"));
            }
        }
        Ok(HostedImages(images))
    }
}

impl From<HostedImages> for String {
    fn from(images: HostedImages) -> String {
        let one = |(name, source): (&String, &HostedSource)| match source {
            HostedSource::Host => format!("{name}=host"),
            HostedSource::Directory(path) => format!("{name}={}", path.display()),
        };
        images.0.iter().map(one).collect::<Vec<_>>().join(",")
    }
}

/// Chains by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ChainIds(pub(crate) BTreeSet<u64>);

impl Default for ChainIds {
    fn default() -> ChainIds {
        ChainIds([1, 8_453].into())
    }
}

impl TryFrom<String> for ChainIds {
    type Error = String;
    fn try_from(text: String) -> Result<ChainIds, String> {
        let read = |part: &str| {
            let number = part.parse().ok().filter(|number: &u64| *number > 0);
            number.ok_or_else(|| format!("{part:?} is not the number of a chain"))
        };
        let ids: BTreeSet<u64> = parts(&text).map(read).collect::<Result<_, _>>()?;
        if ids.is_empty() { Err("there is no chain".to_owned()) } else { Ok(ChainIds(ids)) }
    }
}

impl From<ChainIds> for String {
    fn from(ids: ChainIds) -> String {
        ids.0.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Kinds of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RequestKinds(pub(crate) BTreeSet<u16>);

impl Default for RequestKinds {
    fn default() -> RequestKinds {
        RequestKinds([kind::BENCHMARK_REQUEST, kind::DEFAULT_REQUEST].into())
    }
}

impl TryFrom<String> for RequestKinds {
    type Error = String;
    fn try_from(text: String) -> Result<RequestKinds, String> {
        let read = |part: &str| {
            let number = part.parse().ok().filter(|number| kind::is_request(*number));
            number.ok_or_else(|| format!("{part:?} is not a number from 5000 to 5999"))
        };
        let kinds: BTreeSet<u16> = parts(&text).map(read).collect::<Result<_, _>>()?;
        if kinds.is_empty() { Err("there is no kind".to_owned()) } else { Ok(RequestKinds(kinds)) }
    }
}

impl From<RequestKinds> for String {
    fn from(kinds: RequestKinds) -> String {
        kinds.0.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
    }
}

/// More words are a mistake: each is compared with what everybody says.
const WORDS_MAX: usize = 256;

/// Other words for kinds of work, as `task=word|word`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Synonyms(pub(crate) BTreeMap<String, BTreeSet<String>>);

impl Default for Synonyms {
    fn default() -> Synonyms {
        Synonyms(guild_roles::discovery::Options::default().synonyms)
    }
}

impl TryFrom<String> for Synonyms {
    type Error = String;
    fn try_from(text: String) -> Result<Synonyms, String> {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for part in parts(&text) {
            let malformed = || format!("{part:?} is not TASK=WORD|WORD");
            let (task, words) = part.split_once('=').ok_or_else(malformed)?;
            let task = task.trim().parse::<TaskType>().map_err(|e| e.to_string())?;
            let words: BTreeSet<String> =
                words.split('|').map(str::trim).filter(|w| !w.is_empty()).map(Into::into).collect();
            if words.is_empty() || words.iter().any(|word| word.len() > 100) {
                return Err(malformed());
            }
            all.entry(task.to_string()).or_default().extend(words);
        }
        match all.values().map(BTreeSet::len).sum() {
            0..=WORDS_MAX => Ok(Synonyms(all)),
            n => Err(format!("{n} words are more than the limit of {WORDS_MAX}")),
        }
    }
}

impl From<Synonyms> for String {
    fn from(all: Synonyms) -> String {
        let words = |words: &BTreeSet<String>| words.iter().cloned().collect::<Vec<_>>().join("|");
        let one = |(task, all): (&String, &BTreeSet<String>)| format!("{task}={}", words(all));
        all.0.iter().map(one).collect::<Vec<_>>().join(",")
    }
}

/// More keys are a mistake: what all of them recommend is read again and again.
const KEYS_MAX: usize = 256;

/// Keys of people, as npub or in hex digits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct PublicKeys(pub(crate) BTreeSet<PublicKey>);

impl TryFrom<String> for PublicKeys {
    type Error = String;
    fn try_from(text: String) -> Result<PublicKeys, String> {
        let read = |part: &str| part.parse().map_err(|e: guild_protocol::Error| e.to_string());
        let keys: BTreeSet<PublicKey> = parts(&text).map(read).collect::<Result<_, _>>()?;
        match keys.len() {
            0..=KEYS_MAX => Ok(PublicKeys(keys)),
            n => Err(format!("{n} keys are more than the limit of {KEYS_MAX}")),
        }
    }
}

impl From<PublicKeys> for String {
    fn from(keys: PublicKeys) -> String {
        keys.0.iter().map(PublicKey::npub).collect::<Vec<_>>().join(",")
    }
}

/// Layers of isolation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Layers(pub(crate) BTreeSet<Layer>);

impl TryFrom<String> for Layers {
    type Error = String;
    fn try_from(text: String) -> Result<Layers, String> {
        let read = |part| Layer::named(part).ok_or_else(|| not_a_layer(part));
        Ok(Layers(parts(&text).map(read).collect::<Result<_, _>>()?))
    }
}

impl From<Layers> for String {
    fn from(layers: Layers) -> String {
        layers.0.iter().map(|layer| layer.name()).collect::<Vec<_>>().join(",")
    }
}

/// Names those that there are.
pub(crate) fn not_a_layer(text: &str) -> String {
    let names: Vec<_> = Layer::ALL.iter().map(|layer| layer.name()).collect();
    format!("{text:?} is no layer; there are {}", names.join(", "))
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}
