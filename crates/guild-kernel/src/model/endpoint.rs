//! Where models answer, by what key, and for how much.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::{Error, Result, code};

/// Names, as they go into `model` of a step, which has 256 bytes for both and what is between them.
const NAME_MAX_BYTES: usize = 64;
const MODEL_MAX_BYTES: usize = 180;
/// One dollar for a single token. Whoever asks more has mistaken the unit.
const PRICE_MAX_MICRO_USD: i64 = 1_000_000_000_000;

/// Who answers, and so what is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// OpenAI.
    OpenAi,
    /// Anthropic.
    Anthropic,
    /// Google's Gemini.
    Gemini,
    /// Ollama, by its own words.
    Ollama,
    /// Whoever speaks as OpenAI does: vLLM, llama.cpp, OpenRouter, Mistral, Groq and many more.
    OpenAiCompatible,
}

impl Provider {
    /// All of them.
    pub const ALL: [Provider; 5] = [
        Provider::OpenAi,
        Provider::Anthropic,
        Provider::Gemini,
        Provider::Ollama,
        Provider::OpenAiCompatible,
    ];

    /// As it is written in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Provider::OpenAi => "openai",
            Provider::Anthropic => "anthropic",
            Provider::Gemini => "gemini",
            Provider::Ollama => "ollama",
            Provider::OpenAiCompatible => "openai_compatible",
        }
    }

    /// Where it is, if there is only one.
    fn home(self) -> Option<&'static str> {
        match self {
            Provider::OpenAi => Some("https://api.openai.com/v1"),
            Provider::Anthropic => Some("https://api.anthropic.com"),
            Provider::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            Provider::Ollama => Some("http://127.0.0.1:11434"),
            Provider::OpenAiCompatible => None,
        }
    }
}

impl FromStr for Provider {
    type Err = Error;

    fn from_str(text: &str) -> Result<Provider> {
        let found = Provider::ALL.into_iter().find(|provider| provider.as_str() == text);
        found.ok_or_else(|| {
            let known = Provider::ALL.map(Provider::as_str).join(", ");
            malformed(format!("{text:?} is no provider of models: {known}"))
        })
    }
}

/// A key. It is never shown, and wiped when it is dropped.
///
/// ```
/// let key = guild_kernel::model::Secret::new("sk-1234");
/// assert_eq!(format!("{key:?}"), "Secret(…)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Keeps a key.
    pub fn new(key: impl Into<String>) -> Secret {
        Secret(Zeroizing::new(key.into()))
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// The text without the key: services like to repeat what they were sent.
    pub(super) fn redact(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(self.0.as_str(), "[key]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What a million tokens cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Price {
    /// Those that a model reads.
    pub prompt_micro_usd: i64,
    /// Those that it writes, thoughts included.
    pub completion_micro_usd: i64,
}

/// Somewhere that models answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// What profiles call it: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// What it speaks.
    pub provider: Provider,
    /// Where it is; the provider's own address if it is not said.
    pub url: Option<String>,
    /// Who pays.
    pub key: Option<Secret>,
    /// The model that answers if none is named.
    pub default_model: Option<String>,
    /// What its models cost, by their names.
    pub prices: BTreeMap<String, Price>,
}

/// How much is taken, and how long is waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of an answer.
    pub answer_max_bytes: usize,
    /// Calls of an answer.
    pub calls_max: usize,
    /// Until there is a connection.
    pub connect_timeout_ms: i64,
    /// Until an answer begins: a large question is long thought about.
    pub first_timeout_ms: i64,
    /// Between two pieces of an answer.
    pub idle_timeout_ms: i64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            answer_max_bytes: 10_000_000,
            calls_max: 64,
            connect_timeout_ms: 10_000,
            first_timeout_ms: 300_000,
            idle_timeout_ms: 60_000,
        }
    }
}

/// All places where models answer, in the order in which they are looked through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// The places.
    pub list: Vec<Endpoint>,
    /// What holds at each of them.
    pub limits: Limits,
}

impl Endpoints {
    /// Refuses what nobody could be asked by.
    pub fn check(&self) -> Result<()> {
        for (place, endpoint) in self.list.iter().enumerate() {
            endpoint.check()?;
            if self.list.iter().take(place).any(|other| other.name == endpoint.name) {
                let message = format!("two endpoints of models are called {:?}", endpoint.name);
                return Err(malformed(message));
            }
        }
        let Limits {
            answer_max_bytes,
            calls_max,
            connect_timeout_ms,
            first_timeout_ms,
            idle_timeout_ms,
        } = self.limits;
        let shortest = connect_timeout_ms.min(first_timeout_ms).min(idle_timeout_ms);
        if shortest <= 0 || answer_max_bytes == 0 || calls_max == 0 {
            return Err(malformed("the limits of models are greater than zero"));
        }
        Ok(())
    }

    /// Who answers to this name, and the model's name there. A name is `endpoint/model`, or that of a model that an
    /// endpoint has a price for or takes by default; any other is left to the first endpoint. No name at all means the
    /// first model that is a default.
    pub(super) fn choose(&self, wanted: Option<&str>) -> Result<(&Endpoint, String)> {
        let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else {
            let first = self.list.iter().find_map(|endpoint| Some((endpoint, endpoint.default()?)));
            return first.ok_or_else(|| {
                malformed("the profile names no model, and no endpoint has one by default")
            });
        };
        let (before, model) = wanted.split_once('/').unwrap_or((wanted, ""));
        if let Some(endpoint) = self.list.iter().find(|endpoint| endpoint.name == before) {
            if !model.is_empty() {
                return checked(endpoint, model);
            }
            let none = || malformed(format!("the endpoint {before:?} has no model by default"));
            return Ok((endpoint, endpoint.default().ok_or_else(none)?));
        }
        let has = |endpoint: &&Endpoint| {
            endpoint.default_model.as_deref() == Some(wanted)
                || endpoint.prices.contains_key(wanted)
        };
        let found = self.list.iter().find(has).or(self.list.first());
        let found = found.ok_or_else(|| malformed("no endpoint of models is set up"))?;
        checked(found, wanted)
    }
}

fn checked<'a>(endpoint: &'a Endpoint, model: &str) -> Result<(&'a Endpoint, String)> {
    if model.len() > MODEL_MAX_BYTES || model.chars().any(|c| c.is_control() || c == ' ') {
        return Err(malformed("the name of a model is short and without spaces"));
    }
    Ok((endpoint, model.to_owned()))
}

impl Endpoint {
    fn default(&self) -> Option<String> {
        self.default_model.clone()
    }

    /// Where it is.
    pub(super) fn url(&self) -> &str {
        self.url.as_deref().or(self.provider.home()).unwrap_or_default()
    }

    /// Takes the key out of what is shown.
    pub(super) fn redact(&self, text: &str) -> String {
        self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text))
    }

    fn check(&self) -> Result<()> {
        let Endpoint { name, provider, .. } = self;
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_MAX_BYTES || !name.chars().all(fits) {
            let message = format!("an endpoint of models cannot be called {name:?}");
            return Err(malformed(message));
        }
        if self.url().is_empty() {
            let of = provider.as_str();
            return Err(malformed(format!("the endpoint {name:?} needs a url: it is {of}")));
        }
        super::dial::Address::parse(self.url())
            .map_err(|why| malformed(format!("the url of the endpoint {name:?} {why}")))?;
        if let Some(key) = &self.key
            && !key.reveal().bytes().all(|byte| byte.is_ascii_graphic())
        {
            let message = format!("the key of the endpoint {name:?} holds spaces or other signs");
            return Err(malformed(message));
        }
        if let Some(model) = &self.default_model {
            checked(self, model)?;
        }
        let fits = |price: &i64| (0..=PRICE_MAX_MICRO_USD).contains(price);
        let prices = |p: &Price| fits(&p.prompt_micro_usd) && fits(&p.completion_micro_usd);
        if !self.prices.values().all(prices) {
            let message = format!(
                "a price of the endpoint {name:?} is below zero or above a dollar per token; \
                 prices are micro-USD per million tokens"
            );
            return Err(malformed(message));
        }
        Ok(())
    }
}

fn malformed(message: impl Into<String>) -> Error {
    Error::refused(&code::MODEL_ENDPOINT, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str, default: Option<&str>, priced: &[&str]) -> Endpoint {
        let prices = priced.iter().map(|model| ((*model).to_owned(), Price::default())).collect();
        Endpoint {
            name: name.to_owned(),
            provider: Provider::OpenAiCompatible,
            url: Some("http://127.0.0.1:1/v1".to_owned()),
            key: Some(Secret::new("sk-1")),
            default_model: default.map(str::to_owned),
            prices,
        }
    }

    fn chosen(endpoints: &Endpoints, wanted: Option<&str>) -> Result<(String, String)> {
        endpoints.choose(wanted).map(|(endpoint, model)| (endpoint.name.clone(), model))
    }

    #[test]
    fn a_name_finds_its_endpoint() {
        let list = vec![
            endpoint("one", None, &["a", "b"]),
            endpoint("two", Some("c"), &["b"]),
            endpoint("org", Some("d"), &[]),
        ];
        let endpoints = Endpoints { list, ..Endpoints::default() };
        endpoints.check().unwrap();
        for (wanted, name, model) in [
            (None, "two", "c"),
            (Some(""), "two", "c"),
            (Some("b"), "one", "b"),
            (Some("c"), "two", "c"),
            (Some("two/b"), "two", "b"),
            (Some("two/"), "two", "c"),
            (Some("two"), "two", "c"),
            (Some("two/x/y"), "two", "x/y"),
            (Some("new"), "one", "new"),
            (Some("meta/llama"), "one", "meta/llama"),
        ] {
            let expected = (name.to_owned(), model.to_owned());
            assert_eq!(chosen(&endpoints, wanted).unwrap(), expected, "{wanted:?}");
        }
        for wanted in ["one", "one/", "two/a b", "two/a\n", &format!("two/{}", "x".repeat(181))] {
            assert!(chosen(&endpoints, Some(wanted)).is_err(), "{wanted:?}");
        }
        assert!(chosen(&Endpoints::default(), Some("a")).is_err());
        assert!(chosen(&Endpoints::default(), None).is_err());
    }

    #[test]
    fn what_nobody_could_be_asked_by_is_refused() {
        let good = endpoint("one", None, &["a"]);
        let refused = |change: &dyn Fn(&mut Endpoint)| {
            let mut bad = good.clone();
            change(&mut bad);
            let list = vec![endpoint("zero", None, &[]), bad];
            let error = Endpoints { list, ..Endpoints::default() }.check().unwrap_err();
            assert_eq!(error.code(), &code::MODEL_ENDPOINT);
            assert!(!error.to_string().contains("sk-"), "{error}");
        };
        refused(&|bad| bad.name = "zero".to_owned());
        refused(&|bad| bad.name = String::new());
        refused(&|bad| bad.name = "a/b".to_owned());
        refused(&|bad| bad.url = None);
        for url in [
            "ftp://x/",
            "x",
            "http://",
            "http://sk-2@x/",
            "http://x/?key=sk-2",
            "http://x:0/",
            "http://x/#a",
        ] {
            refused(&|bad| bad.url = Some(url.to_owned()));
        }
        refused(&|bad| bad.key = Some(Secret::new("sk-1\r\nX: y")));
        refused(&|bad| bad.default_model = Some("a b".to_owned()));
        for price in [-1, PRICE_MAX_MICRO_USD + 1] {
            let price = Price { prompt_micro_usd: 0, completion_micro_usd: price };
            refused(&|bad| bad.prices = BTreeMap::from([("b".to_owned(), price)]));
        }
        let limits = Limits { idle_timeout_ms: 0, ..Limits::default() };
        assert!(Endpoints { list: vec![good], limits }.check().is_err());
    }

    #[test]
    fn providers_have_names() {
        for provider in Provider::ALL {
            assert_eq!(provider.as_str().parse::<Provider>().unwrap(), provider);
        }
        assert!("OpenAI".parse::<Provider>().is_err());
    }

    #[test]
    fn a_key_is_not_shown() {
        let one = endpoint("one", None, &[]);
        assert!(!format!("{one:?}").contains("sk-1"));
        assert_eq!(one.redact("no sk-1, sk-1"), "no [key], [key]");
        assert_eq!(Secret::new("").redact("abc"), "abc");
    }
}
