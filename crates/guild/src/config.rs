//! The settings of a node: defaults, then `guild.toml`, then the environment, then flags.
//!
//! To add a key: a field here, with its default, and a line in [`key::KEYS`]. Everything else follows: the file, the
//! environment variable, `--set`, `config show` and the reference page.

use std::net::SocketAddr;
use std::path::PathBuf;

use guild_roles::{disputes, router};
use serde::{Deserialize, Serialize};

mod environment;
pub(crate) mod key;
mod list;
mod load;
pub(crate) mod show;

pub(crate) use environment::Environment;
pub(crate) use list::{
    BidPrices, ChainIds, HostedImages, HostedSource, ImageList, Layers, Networks, PeerUrls,
    PublicKeys, RelayUrls, RequestKinds, Synonyms, Variables, not_a_layer,
};
pub(crate) use load::{Loaded, Setting, load};

/// The file in the data directory.
pub(crate) const FILE_NAME: &str = "guild.toml";

/// Every setting.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) data_dir: PathBuf,
    pub(crate) log: Log,
    pub(crate) gateway: Gateway,
    pub(crate) store: Store,
    pub(crate) bus: Bus,
    pub(crate) outbox: Outbox,
    pub(crate) network: Network,
    pub(crate) content: Content,
    pub(crate) policy: Policy,
    pub(crate) relay: Relay,
    pub(crate) provider: Provider,
    pub(crate) buyer: Buyer,
    pub(crate) market: Market,
    pub(crate) meeting: Meeting,
    pub(crate) sandbox: Sandbox,
    pub(crate) sandbox_run: SandboxRun,
    pub(crate) hosting: Hosting,
    pub(crate) kernel: Kernel,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    pub(crate) level: Level,
    pub(crate) format: LogFormat,
}

impl Default for Log {
    fn default() -> Log {
        Log { level: Level::Info, format: LogFormat::Text }
    }
}

/// From silent to everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Gateway {
    pub(crate) listen: SocketAddr,
    pub(crate) hosts: String,
}

impl Default for Gateway {
    fn default() -> Gateway {
        Gateway { listen: SocketAddr::from(([127, 0, 0, 1], 4848)), hosts: String::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Store {
    pub(crate) url: String,
    pub(crate) queue_max_calls: u32,
    pub(crate) keep_events_days: u32,
    pub(crate) slow_call_ms: u32,
}

impl Default for Store {
    fn default() -> Store {
        Store { url: String::new(), queue_max_calls: 4096, keep_events_days: 0, slow_call_ms: 20 }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Bus {
    pub(crate) url: String,
    pub(crate) namespace: String,
}

impl Default for Bus {
    fn default() -> Bus {
        Bus { url: String::new(), namespace: "guild".to_owned() }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Kernel {
    pub(crate) enabled: bool,
    pub(crate) worker_targets: String,
    pub(crate) tasks: u32,
    pub(crate) lease_ms: u32,
    pub(crate) max_steps: u32,
    pub(crate) suspend_timeout_ms: u32,
    pub(crate) tools: String,
    pub(crate) tool_env: Variables,
    pub(crate) hire_max_msat: u32,
}

impl Default for Kernel {
    fn default() -> Kernel {
        Kernel {
            enabled: true,
            worker_targets: "worker_generic".to_owned(),
            tasks: 64,
            lease_ms: 30_000,
            max_steps: 8,
            suspend_timeout_ms: 30_000,
            tools: "sandbox_run,ledger_balance".to_owned(),
            tool_env: Variables::default(),
            hire_max_msat: 10_000,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Outbox {
    pub(crate) lease_ms: u32,
    pub(crate) max_attempts: u32,
}

impl Default for Outbox {
    fn default() -> Outbox {
        Outbox { lease_ms: 10_000, max_attempts: 12 }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Network {
    pub(crate) relays: RelayUrls,
    pub(crate) polled_relays: RelayUrls,
    pub(crate) discover_relays: bool,
    pub(crate) request_kinds: RequestKinds,
    pub(crate) jobs_lookback_hours: u32,
    pub(crate) private_hints: bool,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            relays: RelayUrls::default(),
            polled_relays: RelayUrls::default(),
            discover_relays: true,
            request_kinds: RequestKinds::default(),
            jobs_lookback_hours: 24,
            private_hints: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Content {
    pub(crate) max_mb: u32,
    pub(crate) public: bool,
    pub(crate) grace_minutes: u32,
    pub(crate) collect_minutes: u32,
    pub(crate) peers: PeerUrls,
    pub(crate) peer_timeout_ms: u32,
}

impl Default for Content {
    fn default() -> Content {
        Content {
            max_mb: 4_000,
            public: true,
            grace_minutes: 60,
            collect_minutes: 60,
            peers: PeerUrls::default(),
            peer_timeout_ms: 15_000,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Policy {
    pub(crate) file: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Relay {
    pub(crate) enabled: bool,
    pub(crate) max_events: u32,
    pub(crate) max_mb: u32,
    pub(crate) connections_max: u32,
    pub(crate) connections_per_address: u32,
    pub(crate) frames_per_minute: u32,
    pub(crate) events_per_minute: u32,
    pub(crate) key_events_per_minute: u32,
    pub(crate) auth_to_read: bool,
    pub(crate) auth_to_write: bool,
}

impl Default for Relay {
    fn default() -> Relay {
        Relay {
            enabled: true,
            max_events: 1_000_000,
            max_mb: 2_048,
            connections_max: 512,
            connections_per_address: 128,
            frames_per_minute: 12_000,
            events_per_minute: 6_000,
            key_events_per_minute: 3_000,
            auth_to_read: false,
            auth_to_write: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Provider {
    pub(crate) enabled: bool,
    pub(crate) name: String,
    pub(crate) price_msat: u32,
    pub(crate) concurrency: u32,
    pub(crate) credit_msat: u32,
    pub(crate) solver: String,
}

impl Default for Provider {
    fn default() -> Provider {
        Provider {
            enabled: true,
            name: String::new(),
            price_msat: 1_000,
            concurrency: 2,
            credit_msat: 1_000_000,
            solver: String::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Meeting {
    pub(crate) silent_s: u32,
    pub(crate) work_s: u32,
    pub(crate) more_s: u32,
    pub(crate) result_s: u32,
    pub(crate) unresponsive_s: u32,
    pub(crate) budget_msat: u32,
    pub(crate) budget_day_msat: u32,
    pub(crate) tools: String,
}

impl Default for Meeting {
    fn default() -> Meeting {
        Meeting {
            silent_s: 30,
            work_s: 300,
            more_s: 60,
            result_s: 60,
            unresponsive_s: 86_400,
            budget_msat: 100_000,
            budget_day_msat: 1_000_000,
            tools: String::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Buyer {
    pub(crate) live_s: u32,
    pub(crate) bid_prices: BidPrices,
    pub(crate) bid_price_msat: u32,
    pub(crate) bid_buffer_percent: u32,
    pub(crate) bid_max_msat: u32,
    pub(crate) hidden_rate_bp: u32,
    pub(crate) hidden_max_msat: u32,
}

impl Default for Buyer {
    fn default() -> Buyer {
        Buyer {
            live_s: 900,
            bid_prices: BidPrices::default(),
            bid_price_msat: 2_000,
            bid_buffer_percent: 0,
            bid_max_msat: 1_000_000,
            hidden_rate_bp: 200,
            hidden_max_msat: 100_000,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Market {
    pub(crate) synonyms: Synonyms,
    pub(crate) trusted: PublicKeys,
    pub(crate) trusted_reviewers: PublicKeys,
    pub(crate) review_delay_s: u32,
    pub(crate) arbiters: PublicKeys,
    pub(crate) dispute_s: u32,
    pub(crate) dispute_default: DisputeDefault,
    pub(crate) policy: RoutePolicy,
    pub(crate) judge_model: String,
    pub(crate) copies: bool,
    pub(crate) public: bool,
}

impl Default for Market {
    fn default() -> Market {
        Market {
            synonyms: Synonyms::default(),
            trusted: PublicKeys::default(),
            trusted_reviewers: PublicKeys::default(),
            review_delay_s: 86_400,
            arbiters: PublicKeys::default(),
            dispute_s: 259_200,
            dispute_default: DisputeDefault::Stands,
            policy: RoutePolicy::Tiered,
            judge_model: String::new(),
            copies: true,
            public: false,
        }
    }
}

/// What holds where nobody decides a dispute in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DisputeDefault {
    /// What the verdict about the result says
    Stands,
    /// The provider is paid
    Release,
    /// The buyer keeps the money
    Withhold,
}

impl From<DisputeDefault> for disputes::Fallback {
    fn from(fallback: DisputeDefault) -> disputes::Fallback {
        match fallback {
            DisputeDefault::Stands => disputes::Fallback::Stands,
            DisputeDefault::Release => disputes::Fallback::Release,
            DisputeDefault::Withhold => disputes::Fallback::Withhold,
        }
    }
}

/// How one is chosen among those whom the routing matrix knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RoutePolicy {
    /// The best of a tier that is drawn
    Tiered,
    /// The best of what is drawn for everybody
    Thompson,
}

impl From<RoutePolicy> for router::Policy {
    fn from(policy: RoutePolicy) -> router::Policy {
        match policy {
            RoutePolicy::Tiered => router::Policy::Tiered,
            RoutePolicy::Thompson => router::Policy::Thompson,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Sandbox {
    pub(crate) backend: Backend,
    pub(crate) runtime: String,
    pub(crate) platform: String,
    pub(crate) timeout_ms: u32,
    pub(crate) image: String,
    pub(crate) require: Layers,
    pub(crate) mac_profile: String,
    pub(crate) ahead: u32,
}

impl Default for Sandbox {
    fn default() -> Sandbox {
        Sandbox {
            backend: Backend::Ns,
            runtime: "runc".to_owned(),
            platform: String::new(),
            timeout_ms: 10_000,
            image: String::new(),
            require: Layers::default(),
            mac_profile: String::new(),
            ahead: 0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SandboxRun {
    pub(crate) enabled: bool,
    pub(crate) price_msat: u32,
    pub(crate) at_once: u32,
    pub(crate) max_memory_mb: u32,
    pub(crate) max_cores: u32,
    pub(crate) max_timeout_s: u32,
    pub(crate) max_disk_mb: u32,
    pub(crate) images: ImageList,
}

impl Default for SandboxRun {
    fn default() -> SandboxRun {
        SandboxRun {
            enabled: false,
            price_msat: 1_000,
            at_once: 2,
            max_memory_mb: 1_024,
            max_cores: 2,
            max_timeout_s: 600,
            max_disk_mb: 512,
            images: ImageList::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Hosting {
    pub(crate) enabled: bool,
    pub(crate) origins: String,
    pub(crate) chain_ids: ChainIds,
    pub(crate) images: HostedImages,
    pub(crate) machine: String,
    pub(crate) vcpu_micro_usd: u32,
    pub(crate) ram_gib_micro_usd: u32,
    pub(crate) keep_sign_ins_days: u32,
    pub(crate) requests_per_minute: u32,
    pub(crate) trusted_proxies: Networks,
    pub(crate) sign_in_without_proof: bool,
}

impl Default for Hosting {
    fn default() -> Hosting {
        Hosting {
            enabled: false,
            origins: String::new(),
            chain_ids: ChainIds::default(),
            images: HostedImages::default(),
            machine: "local".to_owned(),
            vcpu_micro_usd: 840,
            ram_gib_micro_usd: 270,
            keep_sign_ins_days: 90,
            requests_per_minute: 600,
            trusted_proxies: Networks::default(),
            sign_in_without_proof: false,
        }
    }
}

/// Who makes sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Backend {
    /// The launcher in this program
    Ns,
    /// An OCI runtime
    Oci,
}
