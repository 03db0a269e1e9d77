//! What to run, and in what.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::host::Layer;
use crate::limits::Limits;

/// The directories of its own that every sandbox can write into.
pub const WRITABLE: [&str; 3] = ["/tmp", "/workspace", "/dev/shm"];
/// What all files of a spec may weigh together, in any case.
const MAX_FILES_BYTES: usize = 64 << 20;
const MAX_WORDS: usize = 4_096;
const MAX_WORD_BYTES: usize = 128 << 10;
/// What all words may weigh together: more than any kernel takes.
const MAX_WORDS_BYTES: usize = 8 << 20;
const MAX_BINDS: usize = 64;
const MAX_FILES: usize = 10_000;

/// A program, what it sees, and what it may use.
///
/// ```
/// use guild_sandbox::{Limits, Spec};
/// let spec = Spec::new(["python3", "-I", "/workspace/main.py"], Limits::judge())
///     .file("/workspace/main.py", b"print(6 * 7)");
/// assert!(spec.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The program and its arguments. A name without `/` is looked for in the spec's own `PATH`. Empty if it stays.
    pub argv: Vec<String>,
    /// Whether it has no program of its own, and stays for commands ([`crate::Handle::exec`]) until it is killed.
    pub stay: bool,
    /// Its whole environment: nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Where it starts.
    pub cwd: String,
    /// The system it sees.
    pub image: Image,
    /// Directories and files of the host that it sees too.
    pub binds: Vec<Bind>,
    /// Files that are written before it starts. Outside of the writable directories it cannot change them.
    pub files: Vec<File>,
    /// What it may use.
    pub limits: Limits,
    /// Which system calls it may make.
    pub profile: Profile,
    /// Layers without which it must not run.
    pub require: BTreeSet<Layer>,
    /// Whom it can talk to.
    pub network: Network,
    /// The profile of AppArmor or SELinux that it runs under, on hosts that have one of them.
    #[serde(default)]
    pub mac: Option<String>,
}

/// What a sandbox adds to every spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// What specs with [`Image::Host`] see.
    pub image: Image,
    /// Layers without which nothing runs, beside those that a spec requires itself.
    pub require: BTreeSet<Layer>,
    /// The profile of AppArmor or SELinux of specs that name none.
    pub mac: Option<String>,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults { image: Image::Host, require: BTreeSet::new(), mac: None }
    }
}

/// The system that a sandbox sees, read-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Image {
    /// The host's `/usr`, and of `/etc` only what programs need to start.
    Host,
    /// The directories below this one.
    Directory(PathBuf),
}

/// Something of the host that the sandbox sees at another place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// On the host. The sandbox has its own user: others must be able to read it (and write, if it is writable).
    pub host: PathBuf,
    /// In the sandbox.
    pub at: String,
    /// Whether the sandbox can write there. Its disk limit does not hold there.
    pub writable: bool,
}

/// A file that is put into the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Where.
    pub at: String,
    /// Whether it can be executed.
    pub executable: bool,
    /// What is in it. On its way to the launcher it follows the rest.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

/// Which system calls a program may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// What one process without threads or children needs. Anything else ends it.
    Strict,
    /// Threads, children, temporary files. What is not listed fails; what is dangerous ends it.
    Python,
    /// Nearly everything, sockets too: the namespaces hold them. What is dangerous fails and is flagged.
    Hosted,
}

/// Whom a sandbox can talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nobody.
    None,
    /// Whoever listens on this port of its own loopback: [`crate::Running::proxy`] is that listener.
    Proxy {
        /// The port.
        port: u16,
    },
}

impl Spec {
    /// A program in the host's `/usr` with the profile `python`, a plain environment and no network.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>, limits: Limits) -> Spec {
        let env = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"),
            ("HOME", "/tmp"),
            ("LANG", "C.UTF-8"),
            ("TZ", "UTC"),
        ];
        Spec {
            argv: argv.into_iter().map(Into::into).collect(),
            stay: false,
            env: env.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            cwd: "/workspace".to_owned(),
            image: Image::Host,
            binds: Vec::new(),
            files: Vec::new(),
            limits,
            profile: Profile::Python,
            require: BTreeSet::new(),
            network: Network::None,
            mac: None,
        }
    }

    /// With what the sandbox adds.
    pub(crate) fn with(&self, defaults: &Defaults) -> Cow<'_, Spec> {
        let image = if self.image == Image::Host { &defaults.image } else { &self.image };
        let mac = self.mac.as_ref().or(defaults.mac.as_ref());
        if (image, mac) == (&self.image, self.mac.as_ref())
            && defaults.require.is_subset(&self.require)
        {
            return Cow::Borrowed(self);
        }
        let require = self.require.union(&defaults.require).copied().collect();
        Cow::Owned(Spec { image: image.clone(), mac: mac.cloned(), require, ..self.clone() })
    }

    /// A sandbox without a program of its own, in which commands come and go until it is killed or a limit ends it.
    ///
    /// ```
    /// use guild_sandbox::{Limits, Spec};
    /// assert!(Spec::stay(Limits::job()).check().is_ok());
    /// ```
    pub fn stay(limits: Limits) -> Spec {
        Spec { stay: true, ..Spec::new(Vec::<String>::new(), limits) }
    }

    /// The same with one more file.
    #[must_use]
    pub fn file(mut self, at: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Spec {
        self.files.push(File { at: at.into(), executable: false, bytes: bytes.into() });
        self
    }

    /// Whether all of it can be meant.
    pub fn check(&self) -> Result<()> {
        self.limits.check()?;
        match (self.stay, self.argv.is_empty()) {
            (true, true) => check_words(&["true".to_owned()], &self.env)?,
            (true, false) => return Err(Error::spec("argv", "what stays has no program")),
            (false, _) => check_words(&self.argv, &self.env)?,
        }
        let many = |field, count, most| match count > most {
            true => Err(Error::spec(field, format!("there are {count}, at most {most}"))),
            false => Ok(()),
        };
        many("binds", self.binds.len(), MAX_BINDS)?;
        many("files", self.files.len(), MAX_FILES)?;
        inside("cwd", &self.cwd)?;
        let mut bytes = 0usize;
        for file in &self.files {
            free_place("files.at", &file.at)?;
            bytes = bytes.saturating_add(file.bytes.len());
        }
        let most = usize::try_from(self.limits.disk_bytes).unwrap_or(usize::MAX);
        let most = most.min(MAX_FILES_BYTES);
        if bytes > most {
            let why = format!("{bytes} bytes are more than fit, {most}");
            return Err(Error::spec("files", why));
        }
        for bind in &self.binds {
            free_place("binds.at", &bind.at)?;
            if !bind.host.is_absolute() {
                return Err(Error::spec("binds.host", "the path is not absolute"));
            }
        }
        if let Image::Directory(path) = &self.image
            && !path.is_absolute()
        {
            return Err(Error::spec("image", "the path is not absolute"));
        }
        if let Some(profile) = &self.mac
            && (!(1..=255).contains(&profile.len())
                || profile.contains(|c: char| c.is_whitespace() || c.is_control()))
        {
            return Err(Error::spec("mac", format!("{profile:?} is no name of a profile")));
        }
        match self.network {
            Network::Proxy { port: 0 } => Err(Error::spec("network.port", "0 is no port")),
            Network::Proxy { .. } if self.profile != Profile::Hosted => {
                let why = "only the profile hosted may open sockets";
                Err(Error::spec("network", why))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a program and its environment can be meant.
pub(crate) fn check_words(argv: &[String], env: &BTreeMap<String, String>) -> Result<()> {
    if argv.first().is_none_or(String::is_empty) {
        return Err(Error::spec("argv", "there is no program"));
    }
    if argv.len() + env.len() > MAX_WORDS {
        return Err(Error::spec("argv", format!("there are more than {MAX_WORDS} words")));
    }
    let env_words = env.iter().flat_map(|(key, value)| [("env", key), ("env", value)]);
    let words = argv.iter().chain(env_words.clone().map(|(_, word)| word));
    let bytes = words.fold(0usize, |bytes, word| bytes.saturating_add(word.len()));
    if bytes > MAX_WORDS_BYTES {
        let why = format!("{bytes} bytes of words are more than {MAX_WORDS_BYTES}");
        return Err(Error::spec("argv", why));
    }
    for (field, word) in argv.iter().map(|word| ("argv", word)).chain(env_words) {
        if word.contains('\0') {
            return Err(Error::spec(field, "there is a zero byte in a word"));
        }
        if word.len() > MAX_WORD_BYTES {
            return Err(Error::spec(field, "a word is too long"));
        }
    }
    match env.keys().find(|key| key.is_empty() || key.contains('=')) {
        Some(key) => Err(Error::spec("env", format!("{key:?} is no name of a variable"))),
        None => Ok(()),
    }
}

/// A path inside the sandbox: absolute, without `.`, `..` and empty parts.
pub(crate) fn inside(field: &str, path: &str) -> Result<()> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err(Error::spec(field, format!("{path:?} is not absolute")));
    };
    let odd = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains('\0');
    if path.len() > 4_000 || (!rest.is_empty() && rest.split('/').any(odd)) {
        return Err(Error::spec(field, format!("{path:?} is not a plain path")));
    }
    Ok(())
}

/// A path that something can be put at: not the root, and not in what the launcher makes itself.
fn free_place(field: &str, path: &str) -> Result<()> {
    inside(field, path)?;
    let below = |top: &str| path == top || path.starts_with(&format!("{top}/"));
    if path == "/" || below("/proc") || (below("/dev") && !path.starts_with("/dev/shm/")) {
        return Err(Error::spec(field, format!("{path:?} is kept by the sandbox")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let good = Spec::new(["true"], Limits::judge());
        assert_eq!(good.check(), Ok(()));
        let bind =
            |host: &str, at: &str| Bind { host: host.into(), at: at.to_owned(), writable: false };
        let wrong: [(Spec, &str); 13] = [
            (Spec { mac: Some("a b".into()), ..good.clone() }, "mac: \"a b\" is no name"),
            (Spec { argv: vec![], ..good.clone() }, "argv: there is no program"),
            (Spec { argv: vec!["a\0b".into()], ..good.clone() }, "argv: there is a zero byte"),
            (Spec { cwd: "work".into(), ..good.clone() }, "cwd: \"work\" is not absolute"),
            (
                Spec { cwd: "/workspace/../etc".into(), ..good.clone() },
                "cwd: \"/workspace/../etc\" is not",
            ),
            (good.clone().file("/../x", ""), "files.at: \"/../x\" is not a plain path"),
            (good.clone().file("/proc/x", ""), "files.at: \"/proc/x\" is kept"),
            (good.clone().file("/", ""), "files.at: \"/\" is kept"),
            (Spec { binds: vec![bind("x", "/y")], ..good.clone() }, "binds.host: the path is not"),
            (
                Spec { binds: vec![bind("/x", "/dev")], ..good.clone() },
                "binds.at: \"/dev\" is kept",
            ),
            (Spec { image: Image::Directory("x".into()), ..good.clone() }, "image: the path is"),
            (Spec { network: Network::Proxy { port: 1 }, ..good.clone() }, "network: only"),
            (
                Spec { env: [("A=B".to_owned(), String::new())].into(), ..good.clone() },
                "env: \"A=B\" is no name",
            ),
        ];
        for (spec, says) in wrong {
            let error = spec.check().unwrap_err();
            assert!(error.to_string().starts_with(says), "{error}");
            assert_eq!(error.code().name, "sandbox.bad_spec");
        }
        let defaults = Defaults { require: [Layer::Mac].into(), ..Defaults::default() };
        assert_eq!(good.with(&Defaults::default()), Cow::Borrowed(&good));
        assert_eq!(good.with(&defaults).require, [Layer::Mac].into());
        let wordy = Spec { argv: vec!["x".repeat(MAX_WORD_BYTES); 65], ..good.clone() };
        assert!(wordy.check().unwrap_err().to_string().contains("bytes of words are more than"));
        let heavy = good.file("/workspace/x", vec![0; MAX_FILES_BYTES + 1]);
        assert!(heavy.check().unwrap_err().to_string().contains("more than fit"));
    }
}
