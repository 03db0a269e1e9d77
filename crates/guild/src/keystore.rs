//! The keystore: the one secret of a node, in a file that only its owner may read.
//!
//! The file holds the public names in the clear, so that they can be shown without the passphrase, and the secret
//! either in the clear or encrypted (NIP-49).

use std::path::{Path, PathBuf};

use guild_protocol::env::{Random, Signer};
use guild_protocol::hash::to_hex;
use guild_protocol::identity::{PublicKey, SecretKey, nip49};
use guild_protocol::json;
use serde::{Deserialize, Serialize};

use crate::config::{Environment, Loaded};
use crate::error::{Error, InFile, Result, code};
use crate::input::{self, Existing, Input};

/// The file in the data directory.
const FILE_NAME: &str = "keystore.json";
const SCHEMA_VERSION: u32 = 1;
/// Far more than any keystore or passphrase.
const MAX_BYTES: usize = 64 * 1024;
pub(crate) const OWNER_ONLY: u32 = 0o600;

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    schema_version: u32,
    npub: PublicKey,
    evm_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ncryptsec: Option<String>,
}

/// What every version of the file has: read first, so that a newer file is named as such.
#[derive(Deserialize)]
struct AnyVersion {
    schema_version: u32,
}

enum Secret {
    Clear(String),
    Encrypted(String),
}

/// A keystore that was found and read; its secret may still be locked.
pub(crate) struct Keystore {
    path: PathBuf,
    pub(crate) public_key: PublicKey,
    pub(crate) evm_address: String,
    secret: Secret,
}

impl Keystore {
    /// Where the keystore of these settings lies.
    pub(crate) fn path(loaded: &Loaded) -> PathBuf {
        loaded.data_file(FILE_NAME)
    }

    /// Makes a new identity and writes it down. An existing keystore is never changed.
    pub(crate) fn create(
        path: &Path,
        random: &dyn Random,
        passphrase: Option<&str>,
    ) -> Result<Keystore> {
        Keystore::refuse_existing(path)?;
        let key = SecretKey::make(random);
        let secret = match passphrase {
            None => Secret::Clear(to_hex(&key.to_bytes())),
            Some(passphrase) => {
                Secret::Encrypted(nip49::encrypt(&key, passphrase, random, nip49::DEFAULT_LOG_N)?)
            }
        };
        let (public_key, evm_address) = (key.public_key(), key.evm_address());
        let keystore = Keystore { path: path.to_owned(), public_key, evm_address, secret };
        keystore.write()?;
        Ok(keystore)
    }

    /// An early refusal, before anybody is asked for a passphrase.
    pub(crate) fn refuse_existing(path: &Path) -> Result<()> {
        match path.symlink_metadata() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::io(path, &e)),
            Ok(_) => {
                let message = "this data directory has a keystore already";
                Err(Error::new(&code::KEYSTORE_EXISTS, message).in_file(path))
            }
        }
    }

    fn write(&self) -> Result<()> {
        if let Some(directory) = self.path.parent() {
            make_private_directory(directory)?;
        }
        let (secret_hex, ncryptsec) = match &self.secret {
            Secret::Clear(hex) => (Some(hex.clone()), None),
            Secret::Encrypted(text) => (None, Some(text.clone())),
        };
        let document = Document {
            schema_version: SCHEMA_VERSION,
            npub: self.public_key,
            evm_address: self.evm_address.clone(),
            secret_hex,
            ncryptsec,
        };
        let mut text = serde_json::to_vec_pretty(&document)
            .map_err(|e| Error::new(&code::KEYSTORE_MALFORMED, e.to_string()))?;
        text.push(b'\n');
        let written = input::write_whole(&self.path, &text, OWNER_ONLY, Existing::Keep);
        written.map_err(|e| match e.code() == &code::IO_EXISTS {
            true => Error::new(&code::KEYSTORE_EXISTS, "another keystore was just written here")
                .in_file(&self.path),
            false => e,
        })
    }

    /// Reads a keystore, if nobody else can.
    pub(crate) fn read(path: &Path) -> Result<Keystore> {
        refuse_readable_by_others(path)?;
        let text = Input::from(path.as_os_str().to_owned()).read(MAX_BYTES)?;
        parse(&text, path).in_file(path)
    }

    /// Whether a passphrase is needed.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.secret, Secret::Encrypted(_))
    }

    /// The secret key; asks for the passphrase if one is needed.
    pub(crate) fn unlock(&self, environment: &Environment) -> Result<SecretKey> {
        let key = match &self.secret {
            Secret::Clear(hex) => hex.parse(),
            Secret::Encrypted(text) => nip49::decrypt(text, &existing_passphrase(environment)?),
        };
        let key: SecretKey = key.in_file(&self.path)?;
        // The names stand in the clear: whoever could write the file could have changed them.
        if key.public_key() != self.public_key || key.evm_address() != self.evm_address {
            let message = "the public names do not belong to the secret";
            return Err(Error::new(&code::KEYSTORE_MALFORMED, message).in_file(&self.path));
        }
        Ok(key)
    }
}

fn parse(text: &[u8], path: &Path) -> Result<Keystore> {
    // The words of the JSON reader are safe: it names fields and places, and no values of ours but numbers.
    let malformed = |e: guild_protocol::Error| {
        let error = Error::new(&code::KEYSTORE_MALFORMED, e.message());
        if let Some(place) = e.place() { error.at(place) } else { error }
    };
    let version = json::decode::<AnyVersion>(text).map_err(malformed)?.schema_version;
    if version != SCHEMA_VERSION {
        let message = format!("schema_version is {version}; this guild knows {SCHEMA_VERSION}");
        return Err(Error::new(&code::KEYSTORE_VERSION, message));
    }
    let document: Document = json::decode(text).map_err(malformed)?;
    let secret = match (document.secret_hex, document.ncryptsec) {
        (Some(hex), None) => Secret::Clear(hex),
        (None, Some(text)) => Secret::Encrypted(text),
        _ => {
            let message = "there must be either secret_hex or ncryptsec";
            return Err(Error::new(&code::KEYSTORE_MALFORMED, message));
        }
    };
    Ok(Keystore {
        path: path.to_owned(),
        public_key: document.npub,
        evm_address: document.evm_address,
        secret,
    })
}

/// The data directory, made for its owner alone if it is not there.
pub(crate) fn make_private_directory(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|e| Error::io(path, &e))
}

/// Refuses a file with a secret key that others can read.
pub(crate) fn refuse_readable_by_others(path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let message = "there is no keystore here";
            return Err(Error::new(&code::KEYSTORE_MISSING, message).in_file(path));
        }
        Err(e) => return Err(Error::io(path, &e)),
    };
    let mode = metadata.mode() & 0o7777;
    if metadata.is_file() && mode & 0o077 != 0 {
        let message = format!("its mode is {mode:04o}, so other users can read or change it");
        return Err(Error::new(&code::KEYSTORE_PERMISSIONS, message).in_file(path).help(format!(
            "Run `chmod 600 {}`; if others may have read it, make a new key.",
            path.display()
        )));
    }
    Ok(())
}

/// The passphrase for a new keystore, if one is wanted: because the flag says so, or because a file with it is named.
pub(crate) fn new_passphrase(asked: bool, environment: &Environment) -> Result<Option<String>> {
    if let Some(path) = environment.passphrase_file() {
        return read_passphrase(path).map(Some);
    }
    if !asked {
        return Ok(None);
    }
    let first = prompt("New passphrase: ")?;
    if first != prompt("The same again: ")? {
        let differ = no_passphrase("the two passphrases differ; nothing was written");
        return Err(differ.help("Try again, and type the same passphrase twice."));
    }
    Ok(Some(first))
}

fn existing_passphrase(environment: &Environment) -> Result<String> {
    match environment.passphrase_file() {
        Some(path) => read_passphrase(path),
        None => prompt("Passphrase: "),
    }
}

/// The first line of the file; an editor's newline at its end does not belong to the passphrase.
fn read_passphrase(path: &Path) -> Result<String> {
    let bytes = Input::from(path.as_os_str().to_owned()).read(MAX_BYTES)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| no_passphrase("the file is not UTF-8").in_file(path))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() || text.contains('\n') {
        return Err(no_passphrase("the file must hold one line, the passphrase").in_file(path));
    }
    Ok(text.to_owned())
}

fn prompt(question: &str) -> Result<String> {
    let typed = rpassword::prompt_password(question)
        .map_err(|_| no_passphrase("there is no terminal to ask for the passphrase"))?;
    if typed.is_empty() { Err(no_passphrase("the passphrase is empty")) } else { Ok(typed) }
}

fn no_passphrase(message: &str) -> Error {
    Error::new(&code::KEYSTORE_NO_PASSPHRASE, message)
}

#[cfg(test)]
mod tests {
    use guild_protocol::error::Kind;
    use proptest::prelude::*;

    use super::*;
    use crate::real::SystemRandom;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

        /// A damaged keystore is refused with a typed error, or still names the identity it named.
        #[test]
        fn a_damaged_keystore_never_becomes_another(
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            cut in any::<bool>(),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(FILE_NAME);
            let made = Keystore::create(&path, &SystemRandom, None).unwrap();
            let mut text = std::fs::read(&path).unwrap();
            let at = at.index(text.len());
            if cut {
                text.truncate(at);
            } else {
                text[at] = byte;
            }
            match parse(&text, &path) {
                Ok(read) => prop_assert_eq!(read.public_key, made.public_key),
                Err(error) => prop_assert_eq!(error.kind(), Kind::Invalid),
            }
        }

        #[test]
        fn rubbish_is_no_keystore(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let error = parse(&bytes, Path::new("x")).err();
            prop_assert_eq!(error.map(|e| e.kind()), Some(Kind::Invalid));
        }
    }
}
