//! Secrets that commands may use. They are in memory alone, come once for each attestation, and are wiped at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

use guild_protocol::env::Random;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::nip44;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::auth::Nonce;
use super::error::{Error, Result, code};
use super::redact::{Forms, MIN_BYTES};
use super::wire::SecretRelease;

const MAX_SECRETS: usize = 64;
/// How many values an agent keeps out of the output in its life.
const MAX_VALUES: usize = 256;
const MAX_VALUE_BYTES: usize = 16 << 10;
const MAX_ATTESTATIONS: usize = 16;

/// Secrets by their names. `Debug` shows the names alone; the values are wiped when dropped.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secrets(BTreeMap<String, String>);

impl Secrets {
    /// None yet.
    pub fn new() -> Secrets {
        Secrets::default()
    }

    /// The same with one more. The name is that of a variable.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Secrets {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Seals them so that only the agent with this key can read them, whatever carries them.
    pub fn seal(
        &self,
        agent: &PublicKey,
        attestation: Nonce,
        random: &dyn Random,
    ) -> Result<SecretRelease> {
        // A key for this once: nobody who learns another key later can open it.
        let key = SecretKey::make(random);
        let text = Zeroizing::new(serde_json::to_string(&self.0).map_err(|_| unreadable())?);
        let sealed = nip44::encrypt(&key, agent, &text, random)?;
        let sender = guild_protocol::env::Signer::public_key(&key);
        Ok(SecretRelease { attestation, sender, sealed })
    }

    fn open(release: &SecretRelease, agent: &SecretKey) -> Result<Secrets> {
        let text = nip44::decrypt(agent, &release.sender, &release.sealed);
        let text = Zeroizing::new(text.map_err(|_| unreadable())?);
        // The parser's words could repeat a value.
        let secrets: Secrets = serde_json::from_str(&text).map_err(|_| unreadable())?;
        secrets.check()?;
        Ok(secrets)
    }

    fn check(&self) -> Result<()> {
        if self.0.len() > MAX_SECRETS {
            return Err(Error::bad("secrets", format!("there are more than {MAX_SECRETS}")));
        }
        for (name, value) in &self.0 {
            let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            if name.is_empty() || name.len() > 128 || !name.bytes().all(word) {
                let why = "a name is 1 to 128 letters, digits and underscores";
                return Err(Error::bad("secrets", why));
            }
            let fits = (MIN_BYTES..=MAX_VALUE_BYTES).contains(&value.len());
            if !fits || value.contains('\0') {
                let why = format!(
                    "the value of {name} is not of {MIN_BYTES} to {MAX_VALUE_BYTES} bytes without a zero: \
                     a shorter one could not be kept out of what is printed"
                );
                return Err(Error::bad("secrets", why));
            }
        }
        Ok(())
    }
}

fn unreadable() -> Error {
    Error::bad("sealed", "it cannot be opened with this agent's key, or is not what it must be")
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        self.0.values_mut().for_each(Zeroize::zeroize);
    }
}

/// What one command gets: variables with their values.
pub(crate) type Given = BTreeMap<String, Zeroizing<String>>;

/// What an agent keeps.
#[derive(Default)]
pub(crate) struct Vault {
    /// Attestations that were given and not used up, oldest first.
    attestations: Vec<Nonce>,
    released: Option<Secrets>,
    values: usize,
    forms: Arc<RwLock<Forms>>,
}

impl Vault {
    /// What must be kept out of the output, now and later.
    pub(crate) fn forms(&self) -> Arc<RwLock<Forms>> {
        self.forms.clone()
    }

    pub(crate) fn attested(&mut self, nonce: Nonce) {
        if self.attestations.len() >= MAX_ATTESTATIONS {
            self.attestations.remove(0);
        }
        self.attestations.push(nonce);
    }

    /// Takes what is released for one attestation, instead of what was released before.
    pub(crate) fn release(
        &mut self,
        release: &SecretRelease,
        agent: &SecretKey,
    ) -> Result<Vec<String>> {
        if !self.attestations.contains(&release.attestation) {
            let why = "there is no such attestation, or it was used already";
            return Err(Error::new(&code::NOT_ATTESTED, why));
        }
        let secrets = Secrets::open(release, agent)?;
        let values = self.values.saturating_add(secrets.0.len());
        if values > MAX_VALUES {
            let why = format!("more than {MAX_VALUES} values have been released");
            return Err(Error::new(&code::TOO_MANY, why));
        }
        self.values = values;
        // All earlier ones too: whoever checked an old answer did not check this agent as it is now.
        self.attestations.clear();
        let mut forms = self.forms.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        secrets.0.values().for_each(|value| forms.add(value.as_bytes()));
        drop(forms);
        let names = secrets.0.keys().cloned().collect();
        self.released = Some(secrets);
        Ok(names)
    }

    pub(crate) fn is_released(&self) -> bool {
        self.released.is_some()
    }

    /// The secrets that a command asks for.
    pub(crate) fn give(&self, wanted: &BTreeSet<String>) -> Result<Given> {
        let not_released = |name: &String| {
            Error::new(&code::SECRETS_NOT_RELEASED, format!("{name:?} has not been released"))
        };
        let value = |name: &String| self.released.as_ref().and_then(|all| all.0.get(name));
        let give = |name: &String| {
            let value = value(name).ok_or_else(|| not_released(name))?;
            Ok((name.clone(), Zeroizing::new(value.clone())))
        };
        wanted.iter().map(give).collect()
    }

    /// Wipes all values. What is still printed goes on being masked: the forms go with the agent.
    pub(crate) fn wipe(&mut self) {
        self.released = None;
        self.attestations.clear();
    }
}

#[cfg(test)]
mod tests {
    use guild_protocol::env::Signer;

    use super::*;

    struct Dice;
    impl Random for Dice {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(4);
        }
    }

    fn key(n: u8) -> SecretKey {
        format!("{n:064x}").parse().unwrap()
    }

    fn nonce(n: u8) -> Nonce {
        format!("{n:032x}").parse().unwrap()
    }

    fn sealed(secrets: &Secrets, attestation: Nonce) -> SecretRelease {
        secrets.seal(&key(2).public_key(), attestation, &Dice).unwrap()
    }

    #[test]
    fn secrets_come_once_for_each_attestation() {
        let mut vault = Vault::default();
        let secrets = Secrets::new().with("TOKEN", "correct horse");
        let release = sealed(&secrets, nonce(1));
        let refused = |vault: &mut Vault, release: &SecretRelease| {
            vault.release(release, &key(2)).unwrap_err().code().name
        };
        assert_eq!(refused(&mut vault, &release), "agent.not_attested");
        vault.attested(nonce(1));
        assert_eq!(vault.release(&release, &key(2)).unwrap(), ["TOKEN"]);
        assert_eq!(refused(&mut vault, &release), "agent.not_attested");
        vault.attested(nonce(2));
        assert_eq!(refused(&mut vault, &release), "agent.not_attested");
        vault.release(&sealed(&secrets, nonce(2)), &key(2)).unwrap();
    }

    #[test]
    fn only_this_agent_opens_them_and_a_bad_release_uses_nothing_up() {
        let mut vault = Vault::default();
        vault.attested(nonce(1));
        let elsewhere = Secrets::new().with("TOKEN", "correct horse");
        let elsewhere = elsewhere.seal(&key(3).public_key(), nonce(1), &Dice).unwrap();
        let cases = [
            elsewhere,
            sealed(&Secrets::new().with("TOKEN", "short"), nonce(1)),
            sealed(&Secrets::new().with("TOKEN", "with\0zero"), nonce(1)),
            sealed(&Secrets::new().with("A=B", "correct horse"), nonce(1)),
        ];
        for release in cases {
            let error = vault.release(&release, &key(2)).unwrap_err();
            assert_eq!(error.code(), &code::BAD_REQUEST);
            assert!(!error.to_string().contains("horse") && !error.to_string().contains("short b"));
        }
        let good = sealed(&Secrets::new().with("TOKEN", "correct horse"), nonce(1));
        vault.release(&good, &key(2)).unwrap();
    }

    #[test]
    fn a_command_gets_what_it_names_and_nothing_after_the_end() {
        let mut vault = Vault::default();
        let wanted = BTreeSet::from(["A".to_owned()]);
        let refused = |vault: &Vault, wanted| vault.give(wanted).err().unwrap().code().name;
        assert_eq!(refused(&vault, &wanted), "agent.secrets_not_released");
        assert!(vault.give(&BTreeSet::new()).unwrap().is_empty());
        vault.attested(nonce(1));
        let secrets = Secrets::new().with("A", "first value").with("B", "second value");
        vault.release(&sealed(&secrets, nonce(1)), &key(2)).unwrap();
        let given = vault.give(&wanted).unwrap();
        assert_eq!((given["A"].as_str(), given.len()), ("first value", 1));
        let unknown = BTreeSet::from(["A".to_owned(), "C".to_owned()]);
        assert_eq!(refused(&vault, &unknown), "agent.secrets_not_released");
        vault.wipe();
        assert_eq!(refused(&vault, &wanted), "agent.secrets_not_released");
        let forms = vault.forms();
        assert_eq!(forms.read().unwrap().mask(b"first value"), b"[secret]");
    }

    #[test]
    fn nobody_shows_them() {
        let secrets = Secrets::new().with("TOKEN", "correct horse");
        assert_eq!(format!("{secrets:?}"), r#"{"TOKEN"}"#);
    }
}
