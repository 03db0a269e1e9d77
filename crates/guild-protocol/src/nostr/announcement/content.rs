//! What an announcement says in JSON: the fields of both source documents and those of NIP-89.
//!
//! Every field is optional. One that has another type than expected is not understood and stays, with all unknown
//! ones, in `other`: nothing is lost, and one odd field does not hide a provider.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{CONTENT_LIMITS, code};
use crate::amount::Msat;
use crate::json::{self, Doc, MAX_SAFE_INTEGER};
use crate::{Error, Result};

/// A value that is understood or left alone.
trait Claim: Sized {
    fn read(value: &Value) -> Option<Self>;
    fn write(&self) -> Value;
    /// As `read`, of a value that nobody else needs; it comes back if it is not understood.
    fn take(value: Value) -> Result<Self, Value> {
        Self::read(&value).ok_or(value)
    }
}

/// Declares an object of optional claims.
macro_rules! claims {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $key:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: Option<$type>,)+
            /// All other fields, as written.
            pub other: Map<String, Value>,
        }

        impl $name {
            fn of_object(mut other: Map<String, Value>) -> $name {
                $(let $field = take(&mut other, $key);)+
                $name { $($field,)+ other }
            }

            fn to_object(&self) -> Map<String, Value> {
                let mut object = self.other.clone();
                $(if let Some(claim) = &self.$field {
                    object.insert($key.to_owned(), claim.write());
                })+
                object
            }
        }
    )+};
}

macro_rules! plain_objects {
    ($($name:ident),+) => {$(
        impl Claim for $name {
            fn read(value: &Value) -> Option<$name> {
                value.as_object().map(|object| $name::of_object(object.clone()))
            }
            fn take(value: Value) -> Result<$name, Value> {
                match value {
                    Value::Object(object) => Ok($name::of_object(object)),
                    other => Err(other),
                }
            }
            fn write(&self) -> Value {
                Value::Object(self.to_object())
            }
        }
    )+};
}

fn take<T: Claim>(object: &mut Map<String, Value>, key: &str) -> Option<T> {
    match T::take(object.remove(key)?) {
        Ok(claim) => Some(claim),
        Err(value) => {
            object.insert(key.to_owned(), value);
            None
        }
    }
}

claims! {
    /// The content of an announcement.
    Content {
        /// For people.
        name: String = "name",
        /// For people; NIP-89 calls it `about`.
        description: String = "description",
        /// Of the provider's software.
        version: String = "version",
        /// The kinds once more, and names such as `benchmark-task`.
        supported_kinds: KindNames = "supported_kinds",
        /// What stands behind the provider.
        supply_class: SupplyClass = "supply_class",
        /// What it can do.
        capabilities: Capabilities = "capabilities",
        /// What it costs.
        pricing: Pricing = "pricing",
        /// How much it can do at once.
        capacity: Capacity = "capacity",
        /// How well it has done, as it says.
        stability: Stability = "stability",
        /// How fast it is, as it says.
        performance: Performance = "performance",
        /// Whether it reads encrypted requests.
        supports_encryption: bool = "supportsEncryption",
    }

    /// What a provider can do.
    Capabilities {
        /// Schema ids.
        supported_jobs: Vec<String> = "supported_jobs",
        /// Names of models.
        models: Vec<String> = "models",
        /// The machine.
        hardware: Hardware = "hardware",
        /// Plain names; a bare list of texts is read as these.
        names: Vec<String> = "names",
    }

    /// The machine.
    Hardware {
        /// Main memory.
        memory_gb: u64 = "memory_gb",
        /// Name of the graphics processor.
        gpu_type: String = "gpu_type",
        /// Its memory.
        vram_gb: u64 = "vram_gb",
    }

    /// What a provider costs.
    Pricing {
        /// In words, as `per-request`; a bare text is read as this.
        scheme: String = "scheme",
        /// Per thousand tokens read.
        input_tokens_per_1k: Msat = "input_tokens_per_1k_msats",
        /// Per thousand tokens written.
        output_tokens_per_1k: Msat = "output_tokens_per_1k_msats",
        /// Per minute of sandbox.
        sandbox_per_minute: Msat = "sandbox_per_minute_msats",
        /// Per job, by schema id.
        per_job: JobPrices = "per_job_msats",
    }

    /// How much a provider can do at once.
    Capacity {
        /// Jobs at one time.
        max_concurrent_jobs: u64 = "max_concurrent_jobs",
        /// Tokens of one job.
        max_context_tokens: u64 = "max_context_tokens",
    }

    /// How well a provider has done, as it says.
    Stability {
        /// 0 to 1.
        success_rate: f64 = "success_rate",
        /// From request to result.
        avg_latency_ms: u64 = "avg_latency_ms",
        /// So far.
        jobs_completed: u64 = "jobs_completed",
    }

    /// How fast a provider is, as it says.
    Performance {
        /// From request to result.
        typical_latency_ms: u64 = "typical_latency_ms",
    }
}

plain_objects!(Hardware, Capacity, Stability, Performance);

impl Content {
    /// Reads the content of an announcement. An empty one says nothing.
    pub fn parse(text: &str) -> Result<Content> {
        if text.trim().is_empty() {
            return Ok(Content::default());
        }
        let refuse = |e: Error| {
            let refused = Error::new(&code::BAD_CONTENT, e.message());
            e.place().map_or(refused.clone(), |place| refused.at(place))
        };
        // The strict reader: limits, and no key that two readers could understand differently.
        let doc = Doc::parse_within(text.as_bytes(), CONTENT_LIMITS).map_err(refuse)?;
        match value_of(doc) {
            Some(Value::Object(object)) => Ok(Content::of_names(object)),
            _ => Err(Error::new(&code::BAD_CONTENT, "the content is not an object")),
        }
    }

    /// Reads a content that the strict reader has taken before.
    pub(super) fn read_again(text: &str) -> Option<Content> {
        if text.trim().is_empty() {
            return Some(Content::default());
        }
        serde_json::from_str(text).ok().map(Content::of_names)
    }

    /// Some fields have two names.
    fn of_names(mut object: Map<String, Value>) -> Content {
        rename(&mut object, "about", "description");
        rename(&mut object, "encryptionSupported", "supportsEncryption");
        Content::of_object(object)
    }

    /// The canonical JSON of the content: empty if it says nothing.
    pub fn to_json(&self) -> Result<String> {
        let mut object = self.to_object();
        if object.is_empty() {
            return Ok(String::new());
        }
        // Readers of NIP-89 show the field of a profile.
        if let (Some(description), false) = (&self.description, object.contains_key("about")) {
            object.insert("about".to_owned(), Value::from(description.as_str()));
        }
        let text = String::from_utf8_lossy(&json::to_canonical(&object)?).into_owned();
        // Nothing is sent that would not be read.
        Content::parse(&text)?;
        Ok(text)
    }

    /// The schema ids that the capabilities list.
    pub fn supported_jobs(&self) -> &[String] {
        let jobs = self.capabilities.as_ref().and_then(|c| c.supported_jobs.as_deref());
        jobs.unwrap_or_default()
    }
}

/// Moves a field to its other name, unless that is taken by something else.
fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    let Some(value) = object.remove(from) else { return };
    let is_taken = object.get(to).is_some_and(|taken| *taken != value);
    let name = if is_taken { from } else { to };
    object.insert(name.to_owned(), value);
}

/// What was read strictly, as values; nothing if a number is too large for any.
fn value_of(doc: Doc<'_>) -> Option<Value> {
    Some(match doc {
        Doc::Null => Value::Null,
        Doc::Bool(yes) => Value::Bool(yes),
        Doc::Number(written) => Value::Number(serde_json::from_str(&written).ok()?),
        Doc::Text(text) => Value::String(text.into_owned()),
        Doc::Array(items) => Value::Array(items.into_iter().map(value_of).collect::<Option<_>>()?),
        Doc::Object(members) => {
            let member = |(key, doc): (Cow<'_, str>, _)| Some((key.into_owned(), value_of(doc)?));
            Value::Object(members.into_iter().map(member).collect::<Option<_>>()?)
        }
    })
}

/// What stands behind a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SupplyClass {
    /// One machine.
    SingleNode,
    /// Several machines on one local network; also written `local_cluster`.
    BundleLan,
    /// A node in a data centre.
    BundleRack,
    /// Rented capacity.
    InstanceMarket,
    /// What an operator keeps ready to fill gaps.
    ReservePool,
}

impl SupplyClass {
    /// Every class.
    pub const ALL: [SupplyClass; 5] = [
        SupplyClass::SingleNode,
        SupplyClass::BundleLan,
        SupplyClass::BundleRack,
        SupplyClass::InstanceMarket,
        SupplyClass::ReservePool,
    ];

    /// The word that is sent.
    pub fn as_str(self) -> &'static str {
        match self {
            SupplyClass::SingleNode => "SingleNode",
            SupplyClass::BundleLan => "BundleLAN",
            SupplyClass::BundleRack => "BundleRack",
            SupplyClass::InstanceMarket => "InstanceMarket",
            SupplyClass::ReservePool => "ReservePool",
        }
    }

    /// Reads `BundleLAN`, `bundle_lan` and `local_cluster`.
    pub fn of(written: &str) -> Option<SupplyClass> {
        let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
        let word = plain(written);
        if word == "localcluster" {
            return Some(SupplyClass::BundleLan);
        }
        SupplyClass::ALL.into_iter().find(|class| plain(class.as_str()) == word)
    }
}

/// Kinds as written: numbers and names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindNames(pub Vec<String>);

impl Claim for KindNames {
    fn read(value: &Value) -> Option<KindNames> {
        let name = |item: &Value| match item {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => number.as_u64().map(|number| number.to_string()),
            _ => None,
        };
        value.as_array()?.iter().map(name).collect::<Option<_>>().map(KindNames)
    }
    fn write(&self) -> Value {
        // Every number that is read as a text is written as a number again.
        let item = |text: &String| match text.parse::<u64>() {
            Ok(number) if number <= MAX_SAFE_INTEGER && number.to_string() == *text => {
                Value::from(number)
            }
            _ => Value::from(text.as_str()),
        };
        Value::Array(self.0.iter().map(item).collect())
    }
}

/// What one job costs, by schema id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobPrices(pub BTreeMap<String, Msat>);

impl Claim for JobPrices {
    fn read(value: &Value) -> Option<JobPrices> {
        let price =
            |(schema_id, price): (&String, &Value)| Some((schema_id.clone(), Msat::read(price)?));
        value.as_object()?.iter().map(price).collect::<Option<_>>().map(JobPrices)
    }
    fn write(&self) -> Value {
        let price = |(schema_id, price): (&String, &Msat)| (schema_id.clone(), price.write());
        Value::Object(self.0.iter().map(price).collect())
    }
}

impl Claim for Capabilities {
    fn read(value: &Value) -> Option<Capabilities> {
        match value {
            Value::Object(object) => Some(Capabilities::of_object(object.clone())),
            list => Some(Capabilities { names: Some(Claim::read(list)?), ..Default::default() }),
        }
    }
    fn write(&self) -> Value {
        Value::Object(self.to_object())
    }
}

impl Claim for Pricing {
    fn read(value: &Value) -> Option<Pricing> {
        match value {
            Value::Object(object) => Some(Pricing::of_object(object.clone())),
            text => Some(Pricing { scheme: Some(Claim::read(text)?), ..Default::default() }),
        }
    }
    fn write(&self) -> Value {
        Value::Object(self.to_object())
    }
}

impl Claim for SupplyClass {
    fn read(value: &Value) -> Option<SupplyClass> {
        SupplyClass::of(value.as_str()?)
    }
    fn write(&self) -> Value {
        Value::from(self.as_str())
    }
}

impl Claim for Msat {
    fn read(value: &Value) -> Option<Msat> {
        value.as_i64().filter(|units| *units >= 0).map(Msat)
    }
    fn write(&self) -> Value {
        Value::from(self.0)
    }
}

impl Claim for Vec<String> {
    fn read(value: &Value) -> Option<Vec<String>> {
        value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
    }
    fn write(&self) -> Value {
        Value::from(self.clone())
    }
}

impl Claim for String {
    fn read(value: &Value) -> Option<String> {
        value.as_str().map(str::to_owned)
    }
    fn take(value: Value) -> Result<String, Value> {
        match value {
            Value::String(text) => Ok(text),
            other => Err(other),
        }
    }
    fn write(&self) -> Value {
        Value::from(self.as_str())
    }
}

impl Claim for u64 {
    fn read(value: &Value) -> Option<u64> {
        value.as_u64()
    }
    fn write(&self) -> Value {
        Value::from(*self)
    }
}

impl Claim for f64 {
    fn read(value: &Value) -> Option<f64> {
        value.as_f64()
    }
    fn write(&self) -> Value {
        Value::from(*self)
    }
}

impl Claim for bool {
    fn read(value: &Value) -> Option<bool> {
        value.as_bool()
    }
    fn write(&self) -> Value {
        Value::from(*self)
    }
}
