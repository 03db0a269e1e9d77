//! Settings that are lists, written with commas.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use guild_gateway::Network;
use guild_network::client::relay_url;
use guild_network::content::peer_url;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::kind;
use guild_protocol::schema::SchemaId;
use guild_roles::router::TaskType;
use guild_sandbox::Layer;
use serde::{Deserialize, Serialize};

use super::environment::{Environment, PREFIX};

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
    /// From a directory, with this digest if one is named.
    Directory(PathBuf, Option<Hash>),
}

/// Images that are sold, as `name:vX.Y.Z=/directory`, `name:vX.Y.Z=/directory@sha256:…` or `name:vX.Y.Z=host`.
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
                    let (path, digest) = match path.rsplit_once("@sha256:") {
                        Some((path, _)) => (path, part.rsplit_once('@').map(|(_, digest)| digest)),
                        None => (path, None),
                    };
                    let digest = digest.map(|text| text.parse::<Hash>()).transpose();
                    let digest = digest.map_err(|e| format!("{part:?}: {e}"))?;
                    Some((name, HostedSource::Directory(PathBuf::from(path), digest)))
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
            HostedSource::Directory(path, None) => format!("{name}={}", path.display()),
            HostedSource::Directory(path, Some(digest)) => {
                format!("{name}={}@{digest}", path.display())
            }
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

/// More networks are a mistake: each is compared with whoever comes.
const NETWORKS_MAX: usize = 64;

/// Addresses and networks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Networks(pub(crate) Vec<Network>);

impl TryFrom<String> for Networks {
    type Error = String;
    fn try_from(text: String) -> Result<Networks, String> {
        let all: Vec<Network> = parts(&text).map(str::parse).collect::<Result<_, _>>()?;
        match all.len() {
            0..=NETWORKS_MAX => Ok(Networks(all)),
            n => Err(format!("{n} networks are more than the limit of {NETWORKS_MAX}")),
        }
    }
}

impl From<Networks> for String {
    fn from(all: Networks) -> String {
        all.0.iter().map(Network::to_string).collect::<Vec<_>>().join(",")
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

/// More prices are a mistake.
const PRICES_MAX: usize = 256;

/// What kinds of work cost, in millisatoshi.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct BidPrices(pub(crate) BTreeMap<String, i64>);

impl TryFrom<String> for BidPrices {
    type Error = String;
    fn try_from(text: String) -> Result<BidPrices, String> {
        let mut all = BTreeMap::new();
        for part in parts(&text) {
            let malformed = || format!("{part:?} is not SCHEMA=MSAT");
            let (schema_id, msat) = part.split_once('=').ok_or_else(malformed)?;
            let schema_id: SchemaId = schema_id.trim().parse().map_err(|_| malformed())?;
            let msat: u32 = msat.trim().parse().map_err(|_| malformed())?;
            all.insert(schema_id.to_string(), i64::from(msat));
        }
        match all.len() {
            0..=PRICES_MAX => Ok(BidPrices(all)),
            n => Err(format!("{n} prices are more than the limit of {PRICES_MAX}")),
        }
    }
}

impl From<BidPrices> for String {
    fn from(all: BidPrices) -> String {
        let one = |(schema_id, msat): (&String, &i64)| format!("{schema_id}={msat}");
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

/// More variables are a mistake: each is read at the start.
const VARIABLES_MAX: usize = 64;

/// Names of variables of the environment, none of them ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Variables(BTreeSet<String>);

impl Variables {
    /// Those that are set, with their values; and the names of those that are not.
    pub(crate) fn read(&self, environment: &Environment) -> (BTreeMap<String, String>, Vec<&str>) {
        let (mut values, mut missing) = (BTreeMap::new(), Vec::new());
        for name in &self.0 {
            match environment.secret(name) {
                Some(value) => drop(values.insert(name.clone(), value)),
                None => missing.push(name.as_str()),
            }
        }
        (values, missing)
    }
}

impl TryFrom<String> for Variables {
    type Error = String;
    fn try_from(text: String) -> Result<Variables, String> {
        let names: BTreeSet<String> = parts(&text).map(str::to_owned).collect();
        for name in &names {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if !name.chars().all(fits) || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(format!("{name:?} is no name of a variable"));
            }
            if name.starts_with(PREFIX) {
                return Err(format!("{name} is a variable of guild itself, which no tool is told"));
            }
        }
        match names.len() {
            0..=VARIABLES_MAX => Ok(Variables(names)),
            n => Err(format!("{n} variables are more than the limit of {VARIABLES_MAX}")),
        }
    }
}

impl From<Variables> for String {
    fn from(names: Variables) -> String {
        names.0.into_iter().collect::<Vec<_>>().join(",")
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_other_variables_are_variables() {
        let read = |text: &str| Variables::try_from(text.to_owned()).map(String::from);
        assert_eq!(read(" SHOP_KEY,a1 ,,a1"), Ok("SHOP_KEY,a1".to_owned()));
        assert_eq!(read(""), Ok(String::new()));
        for bad in ["A B", "1A", "A=1", "A*", "GUILD_PASSPHRASE_FILE", "ä"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let many: Vec<String> = (0..65).map(|n| format!("V{n}")).collect();
        assert!(read(&many.join(",")).is_err());
        assert!(Environment::default().secret("SHOP_KEY").is_none());
        let names = Variables::try_from("SHOP_KEY".to_owned()).unwrap();
        assert_eq!(names.read(&Environment::default()), (BTreeMap::new(), vec!["SHOP_KEY"]));
    }
}
