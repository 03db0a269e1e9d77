//! What a file is and where it can be had (kind 1063, NIP-94).
//!
//! The hash is what counts: whoever downloads the file from any of the addresses hashes it. Content that is
//! addressed by a CID is named as `ipfs://CID`, as the address or as a fallback.
//!
//! ```
//! use guild_protocol::{hash::Hash, identity::SecretKey, nostr::file_metadata::FileMetadata};
//! let author: SecretKey = format!("{:064x}", 2).parse().unwrap();
//! let cid = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq".parse().unwrap();
//! let file = FileMetadata::of_content(&cid, "text/plain", Hash::of(b"hello"), 5);
//! let event = file.draft(1_700_000_000).unwrap().sign(&author).unwrap();
//! let read = FileMetadata::parse(&event).unwrap();
//! assert_eq!(read, file);
//! assert_eq!(read.cids(), [cid]);
//! ```

use super::{Draft, Event, Tag, kind, tag};
use crate::content::Cid;
use crate::hash::{Hash, from_hex_exact};
use crate::{Error, Result};

/// The codes of this module.
pub mod code {
    crate::codes! {
        WRONG_KIND = "file_metadata.kind_wrong", Invalid,
            "An event does not describe a file.", "Such an event has the kind 1063.";
        MISSING = "file_metadata.field_missing", Invalid,
            "The description of a file has no address, no type or no hash.",
            "NIP-94 demands the tags url, m and x.";
        BAD_VALUE = "file_metadata.value_not_allowed", Invalid,
            "A value may not be sent in the description of a file.",
            "Correct the field named; docs/formats/nostr.md says what is allowed.";
    }
}

/// The longest text of a tag that is sent.
const MAX_VALUE_BYTES: usize = 2_048;
/// The longest caption.
const MAX_CAPTION_BYTES: usize = 16 * 1024;
/// So many fallbacks are sent and read.
const MAX_FALLBACKS: usize = 16;

const KNOWN: [&str; 7] = ["url", "m", "x", "ox", "size", "alt", "fallback"];

/// What a file is and where it can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMetadata {
    /// Where it can be downloaded.
    pub url: String,
    /// Its type, in lower case.
    pub mime_type: String,
    /// The SHA-256 of the file as it is downloaded.
    pub hash: Hash,
    /// The SHA-256 of the file before a server changed it; mostly the same.
    pub original_hash: Option<Hash>,
    /// How many bytes it has.
    pub bytes: Option<u64>,
    /// What it shows, for those who cannot see it.
    pub alt: Option<String>,
    /// Where else it can be had.
    pub fallbacks: Vec<String>,
    /// What its author says about it.
    pub caption: String,
    /// Tags that have no meaning here.
    pub other_tags: Vec<Tag>,
}

impl FileMetadata {
    /// Describes a file that is addressed by its CID.
    pub fn of_content(cid: &Cid, mime_type: &str, hash: Hash, bytes: u64) -> FileMetadata {
        FileMetadata {
            url: format!("ipfs://{cid}"),
            mime_type: mime_type.to_ascii_lowercase(),
            hash,
            original_hash: None,
            bytes: Some(bytes),
            alt: None,
            fallbacks: Vec::new(),
            caption: String::new(),
            other_tags: Vec::new(),
        }
    }

    /// Reads a description. Says nothing about its signature, nor whether the file is as it says. A number or a second
    /// hash that cannot be read is as good as none.
    pub fn parse(event: &Event) -> Result<FileMetadata> {
        if event.kind != kind::FILE_METADATA {
            let message = format!("the kind {} does not describe a file", event.kind);
            return Err(Error::new(&code::WRONG_KIND, message).at("kind"));
        }
        let value = |name: &str| event.tag(name).filter(|value| !value.is_empty());
        let needed = |name: &'static str| {
            let missing =
                || Error::new(&code::MISSING, format!("there is no tag {name}")).at("tags");
            value(name).ok_or_else(missing)
        };
        let hash = |text: &str| from_hex_exact::<32>(text).map(Hash::from_bytes);
        let unreadable =
            || Error::new(&code::MISSING, "the tag x has no SHA-256 in lower-case hex").at("tags");
        let is_other = |tag: &&Tag| tag.first().is_some_and(|name| !KNOWN.contains(&name.as_str()));
        let fallbacks = tag::values(&event.tags, "fallback").filter(|url| !url.is_empty());
        Ok(FileMetadata {
            url: needed("url")?.to_owned(),
            mime_type: needed("m")?.to_ascii_lowercase(),
            hash: hash(needed("x")?).ok_or_else(unreadable)?,
            original_hash: value("ox").and_then(hash),
            bytes: value("size").and_then(|text| text.parse().ok()),
            alt: value("alt").map(str::to_owned),
            fallbacks: fallbacks.take(MAX_FALLBACKS).map(str::to_owned).collect(),
            caption: event.content.clone(),
            other_tags: event.tags.iter().filter(is_other).cloned().collect(),
        })
    }

    /// The description as an event.
    pub fn draft(&self, created_at: u64) -> Result<Draft> {
        self.check()?;
        let mut tags = vec![
            tag::tag(["url", &self.url]),
            tag::tag(["m", &self.mime_type]),
            tag::tag(["x", &self.hash.hex()]),
        ];
        tags.extend(self.original_hash.map(|hash| tag::tag(["ox", &hash.hex()])));
        tags.extend(self.bytes.map(|bytes| tag::tag(["size", &bytes.to_string()])));
        tags.extend(self.alt.iter().map(|alt| tag::tag(["alt", alt])));
        tags.extend(self.fallbacks.iter().map(|url| tag::tag(["fallback", url])));
        tags.extend(self.other_tags.iter().cloned());
        let content = self.caption.clone();
        Ok(Draft { kind: kind::FILE_METADATA, created_at, tags, content })
    }

    /// The CIDs among its addresses: of `ipfs://CID…` and of gateways, `…/ipfs/CID…`, each once.
    pub fn cids(&self) -> Vec<Cid> {
        let mut found = Vec::new();
        for url in std::iter::once(&self.url).chain(&self.fallbacks) {
            let behind = url.strip_prefix("ipfs://").or_else(|| Some(url.split_once("/ipfs/")?.1));
            // A path below a CID names something else than the CID does.
            let cid = behind.and_then(|text| text.trim_end_matches('/').parse::<Cid>().ok());
            found.extend(cid.filter(|cid| !found.contains(cid)));
        }
        found
    }

    fn check(&self) -> Result<()> {
        let refuse = |what: &str, at: &str| Err(Error::new(&code::BAD_VALUE, what).at(at));
        let is_address = |text: &str| {
            let plain = |c: char| !c.is_whitespace() && !c.is_control();
            text.len() <= MAX_VALUE_BYTES && text.contains("://") && text.chars().all(plain)
        };
        if !is_address(&self.url) {
            return refuse("an address has a scheme, no spaces, and at most 2048 bytes", "url");
        }
        if self.fallbacks.len() > MAX_FALLBACKS || !self.fallbacks.iter().all(|url| is_address(url))
        {
            return refuse("at most 16 addresses of at most 2048 bytes", "fallbacks");
        }
        let mime = &self.mime_type;
        let allowed = |c: char| c.is_ascii_graphic() && !c.is_ascii_uppercase();
        if mime.len() > 255 || !mime.contains('/') || !mime.chars().all(allowed) {
            return refuse("a type is written as text/plain, in lower case", "mime_type");
        }
        if self.alt.as_ref().is_some_and(|alt| alt.is_empty() || alt.len() > MAX_VALUE_BYTES) {
            return refuse("what a file shows is said in 1 to 2048 bytes", "alt");
        }
        if self.caption.len() > MAX_CAPTION_BYTES {
            return refuse("a caption has at most 16384 bytes", "caption");
        }
        let known = |tag: &Tag| tag.first().is_none_or(|name| KNOWN.contains(&name.as_str()));
        if self.other_tags.iter().any(known) {
            return refuse("a further tag has a name with a meaning", "other_tags");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::SecretKey;

    fn signed(draft: Draft) -> Event {
        draft.sign(&format!("{:064x}", 7).parse::<SecretKey>().unwrap()).unwrap()
    }

    fn hello() -> FileMetadata {
        let cid = Cid::of(crate::content::Codec::Raw, b"hello");
        FileMetadata::of_content(&cid, "Text/Plain", Hash::of(b"hello"), 5)
    }

    #[test]
    fn what_is_sent_is_read() {
        let mut file = hello();
        file.original_hash = Some(Hash::of(b"before"));
        file.alt = Some("a greeting".to_owned());
        file.caption = "Hello\nthere".to_owned();
        file.fallbacks = vec!["https://gateway.example/ipfs/not-a-cid".to_owned()];
        file.other_tags = vec![tag::tag(["dim", "1x1"])];
        let event = signed(file.draft(5).unwrap());
        assert_eq!(FileMetadata::parse(&event).unwrap(), file);
        assert_eq!(file.cids().len(), 1);
    }

    #[test]
    fn cids_are_found_in_any_address_and_only_whole() {
        let mut file = hello();
        let cid = file.cids()[0];
        file.url = format!("https://gateway.example/ipfs/{cid}/");
        file.fallbacks = vec![format!("ipfs://{cid}"), format!("ipfs://{cid}/below")];
        assert_eq!(file.cids(), [cid]);
    }

    #[test]
    fn what_others_send_wrong_is_refused_or_left_out() {
        let draft = |tags: Vec<Tag>| Draft {
            kind: kind::FILE_METADATA,
            created_at: 1,
            tags,
            content: String::new(),
        };
        let hash = Hash::of(b"x").hex();
        let tags = vec![
            tag::tag(["url", "https://a.example/f"]),
            tag::tag(["m", "image/PNG"]),
            tag::tag(["x", &hash]),
            tag::tag(["size", "many"]),
            tag::tag(["ox", "ff"]),
        ];
        let read = FileMetadata::parse(&signed(draft(tags.clone()))).unwrap();
        assert_eq!(
            (read.mime_type.as_str(), read.bytes, read.original_hash),
            ("image/png", None, None)
        );
        for without in 0..3 {
            let mut fewer = tags.clone();
            fewer.remove(without);
            let refused = FileMetadata::parse(&signed(draft(fewer))).unwrap_err();
            assert_eq!(refused.code().name, "file_metadata.field_missing");
        }
        let note = Draft { kind: 1, ..draft(tags) };
        let refused = FileMetadata::parse(&signed(note)).unwrap_err();
        assert_eq!(refused.code().name, "file_metadata.kind_wrong");
    }

    #[test]
    fn what_may_not_be_sent_is_refused() {
        type Break = fn(&mut FileMetadata);
        let breaks: [(&str, Break); 5] = [
            ("url", |file| file.url = "no address".to_owned()),
            ("mime_type", |file| file.mime_type = "TEXT".to_owned()),
            ("alt", |file| file.alt = Some(String::new())),
            ("fallbacks", |file| file.fallbacks = vec!["x".to_owned()]),
            ("other_tags", |file| file.other_tags = vec![tag::tag(["url", "x://y"])]),
        ];
        for (field, change) in breaks {
            let mut file = hello();
            change(&mut file);
            assert_eq!(file.draft(1).unwrap_err().place(), Some(field));
        }
    }
}
