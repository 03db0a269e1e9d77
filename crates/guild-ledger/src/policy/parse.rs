//! Reading a bundle, with all that is wrong in it.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::Error;
use guild_protocol::amount::AssetId;
use guild_protocol::error::Code;
use guild_protocol::json::{self, Doc, Limits};
use guild_protocol::problems::{Gathered, Problems};
use guild_protocol::receipt::Rail;
use serde::{Deserialize, Deserializer};

use super::{
    Action, Bundle, MAX_BYTES, MAX_NAME_BYTES, MAX_NAMES, MAX_RULE_ID_BYTES, MAX_RULES,
    PolicyBundleId, Range, Rule, SCHEMA_VERSION, Tier, When, code,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireBundle {
    #[serde(rename = "schema_version")]
    _schema_version: String,
    name: String,
    caps: BTreeMap<String, i64>,
    rules: Vec<WireRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRule {
    id: String,
    when: WireWhen,
    action: String,
    #[serde(default, deserialize_with = "given")]
    guardian_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireWhen {
    #[serde(default, deserialize_with = "given")]
    amount: Option<BTreeMap<String, WireRange>>,
    #[serde(default, deserialize_with = "given")]
    provider_tiers: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    schema_ids: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    rails: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRange {
    #[serde(default, deserialize_with = "given")]
    at_least: Option<i64>,
    #[serde(default, deserialize_with = "given")]
    at_most: Option<i64>,
}

/// What may be left out is never null: a condition has one way not to be there.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl Bundle {
    /// Reads a bundle. A text that is not JSON or has other fields than a bundle is one problem; of all others every
    /// one is listed, with the path of its field.
    pub fn parse(text: &[u8]) -> Result<Bundle, Problems> {
        let limits = Limits { max_bytes: MAX_BYTES, max_depth: 8 };
        let doc = Doc::parse_within(text, limits)?;
        // Before the fields: those of another version are not mistakes.
        if let Some(Doc::Text(version)) = doc.get("schema_version")
            && version != SCHEMA_VERSION
        {
            let message = format!("{:?} is not {SCHEMA_VERSION}", short(version));
            return Err(Error::new(&code::VERSION, message).at("schema_version").into());
        }
        let wire: WireBundle = json::decode_within(text, limits)?;
        let canonical = String::from_utf8_lossy(&doc.to_canonical()).into_owned();
        let policy_bundle_id = PolicyBundleId::of(&doc.hash());
        Reader::default().bundle(wire, policy_bundle_id, canonical)
    }
}

#[derive(Default)]
struct Reader {
    gathered: Gathered,
}

impl Reader {
    fn refuse(&mut self, code: &'static Code, at: impl Into<String>, message: impl Into<String>) {
        self.gathered.push(Error::new(code, message).at(at));
    }

    fn bundle(
        mut self,
        wire: WireBundle,
        policy_bundle_id: PolicyBundleId,
        canonical: String,
    ) -> Result<Bundle, Problems> {
        let name = wire.name;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            let message = format!("must be 1 to {MAX_NAME_BYTES} bytes without control characters");
            self.refuse(&code::VALUE, "name", message);
        }
        let caps = self.caps(wire.caps);
        if wire.rules.len() > MAX_RULES {
            let message = format!("has {} rules, more than {MAX_RULES}", wire.rules.len());
            self.refuse(&code::TOO_MANY, "rules", message);
        }
        self.unique_ids(&wire.rules);
        let rules = wire.rules.into_iter().take(MAX_RULES).enumerate();
        let rules = rules.filter_map(|(i, rule)| self.rule(rule, &format!("rules[{i}]"))).collect();
        self.gathered.unless_any(Bundle { policy_bundle_id, canonical, name, caps, rules })
    }

    fn caps(&mut self, wire: BTreeMap<String, i64>) -> BTreeMap<AssetId, i64> {
        self.limited("caps", wire.len());
        let mut caps = BTreeMap::new();
        for (asset, units) in wire.into_iter().take(MAX_NAMES) {
            let at = member("caps", &asset);
            if units < 0 {
                self.refuse(&code::VALUE, &at, "must be zero or more");
            }
            if let Some(asset_id) = self.asset(&asset, &at) {
                caps.insert(asset_id, units);
            }
        }
        caps
    }

    fn unique_ids(&mut self, rules: &[WireRule]) {
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for (i, rule) in rules.iter().enumerate() {
            if let Some(earlier) = first.get(rule.id.as_str()) {
                let message =
                    format!("{:?} is already the id of rules[{earlier}]", short(&rule.id));
                self.refuse(&code::DUPLICATE, format!("rules[{i}].id"), message);
            } else {
                first.insert(&rule.id, i);
            }
        }
    }

    /// `None` only if a problem was found.
    fn rule(&mut self, wire: WireRule, at: &str) -> Option<Rule> {
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
        let id = wire.id;
        if id.is_empty() || id.len() > MAX_RULE_ID_BYTES || !id.bytes().all(letter) {
            let message = format!(
                "must be 1 to {MAX_RULE_ID_BYTES} lower-case letters, digits, dashes, underscores and dots"
            );
            self.refuse(&code::VALUE, format!("{at}.id"), message);
        }
        let when = self.when(wire.when, &format!("{at}.when"));
        let action = self.action(&wire.action, wire.guardian_key.as_deref(), at)?;
        Some(Rule { id, when, action })
    }

    fn action(&mut self, word: &str, key: Option<&str>, at: &str) -> Option<Action> {
        let key_at = format!("{at}.guardian_key");
        match (word, key) {
            ("auto", None) => Some(Action::Auto),
            ("deny", None) => Some(Action::Deny),
            ("guardian", Some(key)) => match key.parse() {
                Ok(key) => Some(Action::Guardian(key)),
                Err(error) => {
                    self.refuse(&code::VALUE, key_at, error.message());
                    None
                }
            },
            ("guardian", None) => {
                self.refuse(
                    &code::GUARDIAN,
                    key_at,
                    "is missing: somebody must be able to approve",
                );
                None
            }
            ("auto" | "deny", Some(_)) => {
                let message = format!("is given, but the action {word} asks nobody");
                self.refuse(&code::GUARDIAN, key_at, message);
                None
            }
            (other, _) => {
                let message = format!("{:?} is not auto, guardian or deny", short(other));
                self.refuse(&code::VALUE, format!("{at}.action"), message);
                None
            }
        }
    }

    fn when(&mut self, wire: WireWhen, at: &str) -> When {
        let tier = |word: &str| {
            let words =
                || format!("{:?} is not {}", short(word), listed(Tier::ALL.map(Tier::as_str)));
            Tier::from_word(word).ok_or_else(words)
        };
        let rail = |word: &str| {
            let all = Rail::ALL.iter().map(|rail| rail.as_str());
            Rail::from_word(word).ok_or_else(|| format!("{:?} is not {}", short(word), listed(all)))
        };
        let schema = |text: &str| text.parse().map_err(|e: Error| e.message().to_owned());
        When {
            amount: wire.amount.map(|ranges| self.ranges(ranges, &format!("{at}.amount"))),
            provider_tiers: self.set(wire.provider_tiers, &format!("{at}.provider_tiers"), tier),
            schema_ids: self.set(wire.schema_ids, &format!("{at}.schema_ids"), schema),
            rails: self.set(wire.rails, &format!("{at}.rails"), rail),
        }
    }

    fn ranges(&mut self, wire: BTreeMap<String, WireRange>, at: &str) -> BTreeMap<AssetId, Range> {
        if wire.is_empty() {
            self.refuse(&code::RANGE, at, "must name at least one asset");
        }
        self.limited(at, wire.len());
        let mut ranges = BTreeMap::new();
        for (asset, wire) in wire.into_iter().take(MAX_NAMES) {
            let at = member(at, &asset);
            let range = Range { at_least: wire.at_least, at_most: wire.at_most };
            self.range(&range, &at);
            if let Some(asset_id) = self.asset(&asset, &at) {
                ranges.insert(asset_id, range);
            }
        }
        ranges
    }

    fn range(&mut self, range: &Range, at: &str) {
        let below_one = |bound: Option<i64>| bound.is_some_and(|units| units < 1);
        if range.at_least.is_none() && range.at_most.is_none() {
            self.refuse(&code::RANGE, at, "must have at_least, at_most or both");
        } else if below_one(range.at_least) {
            let message = "must be 1 or more: there is no smaller payment";
            self.refuse(&code::RANGE, format!("{at}.at_least"), message);
        } else if below_one(range.at_most) {
            let message = "must be 1 or more: there is no smaller payment";
            self.refuse(&code::RANGE, format!("{at}.at_most"), message);
        } else if range.least() > range.most() {
            let message = format!("{} is above at_most {}", range.least(), range.most());
            self.refuse(&code::RANGE, format!("{at}.at_least"), message);
        }
    }

    /// A list of words that must not be empty and holds each once.
    fn set<T: Ord>(
        &mut self,
        wire: Option<Vec<String>>,
        at: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<BTreeSet<T>> {
        let wire = wire?;
        if wire.is_empty() {
            self.refuse(&code::RANGE, at, "must hold at least one; leave it out to allow all");
        }
        self.limited(at, wire.len());
        let mut set = BTreeSet::new();
        for (i, word) in wire.iter().take(MAX_NAMES).enumerate() {
            let at = format!("{at}[{i}]");
            match read(word) {
                Err(message) => self.refuse(&code::VALUE, at, message),
                Ok(value) => {
                    if !set.insert(value) {
                        self.refuse(
                            &code::DUPLICATE,
                            at,
                            format!("{:?} stands twice", short(word)),
                        );
                    }
                }
            }
        }
        Some(set)
    }

    fn asset(&mut self, text: &str, at: &str) -> Option<AssetId> {
        match AssetId::new(text) {
            Ok(asset_id) => Some(asset_id),
            Err(error) => {
                self.refuse(&code::VALUE, at, error.message());
                None
            }
        }
    }

    fn limited(&mut self, at: &str, len: usize) {
        if len > MAX_NAMES {
            self.refuse(&code::TOO_MANY, at, format!("has {len} entries, more than {MAX_NAMES}"));
        }
    }
}

/// A hostile key must not look like a path.
fn member(outer: &str, name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if !name.is_empty() && name.bytes().all(plain) {
        format!("{outer}.{}", short(name))
    } else {
        format!("{outer}.{:?}", short(name))
    }
}

/// Enough of a hostile text to recognise it.
fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().collect();
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}
