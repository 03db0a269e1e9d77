//! The reference of every key.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Config, environment};

/// How a value may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Plain,
    /// An address that may hold a password.
    Url,
}

/// One key: what the structs of [`Config`] cannot say.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) path: &'static str,
    pub(crate) show: Show,
    /// The values it takes, smallest and largest, if it is a number.
    pub(crate) range: Option<(i64, i64)>,
    pub(crate) meaning: &'static str,
}

const fn key(path: &'static str, meaning: &'static str) -> Key {
    Key { path, show: Show::Plain, range: None, meaning }
}

impl Key {
    const fn url(self) -> Key {
        Key { show: Show::Url, ..self }
    }

    const fn range(self, least: i64, most: i64) -> Key {
        Key { range: Some((least, most)), ..self }
    }

    /// `gateway.listen` is set by `GUILD_GATEWAY_LISTEN`.
    pub(crate) fn env(&self) -> String {
        format!("{}{}", environment::PREFIX, self.path.replace('.', "_").to_uppercase())
    }
}

/// Every key, in the order of the documentation.
pub(crate) static KEYS: &[Key] = &[
    key(
        "data_dir",
        "Where the node keeps its database, keystore and settings. Empty: $XDG_DATA_HOME/guildhall, or \
         ~/.local/share/guildhall. In a file only if that is named with --config.",
    ),
    key("log.level", "How much is logged to standard error: off, error, warn, info, debug, trace."),
    key("log.format", "How it is written: text, or json (one object on a line)."),
    key(
        "gateway.listen",
        "The address and port of the one listener: API, explorer pages and relay.",
    ),
    key(
        "gateway.hosts",
        "Names under which the node may be asked, separated by commas, beside the loopback ones and the \
         address it listens on: a page of another site cannot make its own name point here.",
    ),
    key(
        "store.url",
        "The database: sqlite:///absolute/path/to/file.db, postgresql://user@host:port/database, or empty for \
         node.db in the data directory.",
    )
    .url(),
    key(
        "store.queue_max_calls",
        "How many writes may wait for the database; more are refused until it catches up.",
    )
    .range(1, 1_000_000),
    key(
        "store.keep_events_days",
        "How long entries of the audit log are kept, in days; 0 keeps them for ever. What a receipt names is kept \
         in any case.",
    )
    .range(0, 36_500),
    key(
        "store.slow_call_ms",
        "A write or read of the running node that keeps its transaction for so many milliseconds is reported in the \
         log, with the place in the program that made it; 0 reports none.",
    )
    .range(0, 3_600_000),
    key(
        "bus.url",
        "What carries bells between processes: nats://host:port or tls://host:port of a NATS server, or empty for \
         this process alone. Bells are hints: a server that is out of reach makes others notice later, and stops \
         nothing.",
    )
    .url(),
    key(
        "bus.namespace",
        "The first part of every subject on that server, of lower-case letters, digits, _ and -. The same for all \
         processes of one database, another for every other database.",
    ),
    key(
        "outbox.lease_ms",
        "How long one sender holds an outgoing message before another may take it, in milliseconds.",
    )
    .range(100, 3_600_000),
    key(
        "outbox.max_attempts",
        "How often a message is tried before it is set aside for a person to look at.",
    )
    .range(1, 1_000),
    key(
        "network.relays",
        "The relays of others that are always connected, separated by commas: wss://host or ws://host:port/path.",
    ),
    key(
        "network.polled_relays",
        "The relays of others that are asked every five minutes and left again, separated by commas, as in \
         network.relays.",
    ),
    key(
        "network.discover_relays",
        "Whether relays that providers name are looked at too, if any of others are set: a few at a time, closer only \
         when they bring something. See docs/relays.md.",
    ),
    key(
        "network.request_kinds",
        "The kinds of requests that are followed there, with their results, separated by commas: from 5000 to 5999.",
    ),
    key(
        "network.jobs_lookback_hours",
        "How far back requests and results are fetched from a relay that is new, in hours. What is addressed to this \
         node, and who offers work, is fetched whole.",
    )
    .range(0, 87_600),
    key(
        "network.private_hints",
        "Whether a relay that a stranger names may be on this host or in a private network. With it a stranger can \
         make this node knock at doors that only it can reach.",
    ),
    key(
        "content.max_mb",
        "How many megabytes of content are kept; what would be more is refused.",
    )
    .range(1, 10_000_000),
    key(
        "content.public",
        "Whether strangers may read the content of this node at /ipfs. Only what is kept here: for them no peer is \
         asked.",
    ),
    key(
        "content.grace_minutes",
        "How long content that nobody has pinned stays after it was added, in minutes.",
    )
    .range(0, 5_256_000),
    key(
        "content.collect_minutes",
        "How often content that nobody needs is removed, in minutes; 0 leaves that to `guild content gc`.",
    )
    .range(0, 5_256_000),
    key(
        "content.peers",
        "Who else may have content, separated by commas and asked in this order: https://host or http://host:port of a \
         gateway, kubo+http://host:5001 of Kubo's RPC. Every block is checked.",
    ),
    key(
        "content.peer_timeout_ms",
        "How long a peer may take for one block, in milliseconds.",
    )
    .range(100, 600_000),
    key(
        "policy.file",
        "The policy bundle that decides which payments go through; a relative path starts at the data directory. \
         Empty: the built-in one, which `guild policy show` prints.",
    ),
    key(
        "relay.enabled",
        "Whether strangers may publish to this node and read from it, as a Nostr relay at /relay.",
    ),
    key(
        "relay.max_events",
        "How many events are kept; beyond that strangers' newest announcements go and the oldest of all others, \
         never those of this node's own jobs.",
    )
    .range(1_000, 1_000_000_000),
    key("relay.max_mb", "How many megabytes of events are kept, in the same way.")
        .range(1, 10_000_000),
    key("relay.connections_max", "How many clients the relay has at once.").range(1, 100_000),
    key("relay.connections_per_address", "How many of them may come from one address.")
        .range(1, 100_000),
    key("relay.frames_per_minute", "How many messages a client may send in a minute.")
        .range(1, 1_000_000_000),
    key("relay.events_per_minute", "How many events a client may publish in a minute.")
        .range(1, 1_000_000_000),
    key(
        "relay.key_events_per_minute",
        "How many events of one author are stored in a minute, by whichever clients they come.",
    )
    .range(1, 1_000_000_000),
    key("relay.auth_to_read", "Whether a client must prove a key before it may read (NIP-42)."),
    key(
        "relay.auth_to_write",
        "Whether a client must prove a key before it may publish (NIP-42).",
    ),
    key(
        "provider.enabled",
        "Whether this node offers to do work for others: oa.embedding.v1, with the built-in embedder, and what is \
         enabled beside it.",
    ),
    key("provider.name", "What it calls itself in its announcement; empty: a guild node."),
    key("provider.price_msat", "What one job costs, in millisatoshi.").range(0, 4_000_000_000),
    key("provider.concurrency", "How many jobs are worked on at once.").range(1, 1_000),
    key(
        "provider.credit_msat",
        "What one buyer may owe, in millisatoshi, with what it lets us do and has not paid in the last week; beyond \
         that its requests are refused.",
    )
    .range(0, 4_000_000_000),
    key(
        "provider.solver",
        "What does guild.benchmark.v1: empty: nothing, it is not offered; reference: the answer that is built in, to \
         try things out; or the path of a program that reads a task from its input and prints the answer. It runs in a \
         sandbox.",
    ),
    key(
        "buyer.live_s",
        "Who has given no sign of life for so many seconds is not hired, unless it is named.",
    )
    .range(1, 31_536_000),
    key(
        "buyer.bid_prices",
        "What is bid for a kind of work until it is known what such work costs, in millisatoshi, separated by commas, \
         each as SCHEMA=MSAT.",
    ),
    key("buyer.bid_price_msat", "The same for every kind of work that is not named there.")
        .range(0, 4_000_000_000),
    key("buyer.bid_buffer_percent", "What is added on top of a bid, in percent.").range(0, 100),
    key(
        "buyer.bid_max_msat",
        "The most that is bid where nobody says how much, in millisatoshi.",
    )
    .range(0, 4_000_000_000),
    key(
        "buyer.hidden_rate_bp",
        "With so many of ten thousand orders their provider is also given work whose answer is known, without knowing \
         it, at its ordinary price. 0: with none.",
    )
    .range(0, 10_000),
    key("buyer.hidden_max_msat", "The most that is paid for one such test, in millisatoshi.")
        .range(0, 4_000_000_000),
    key(
        "market.synonyms",
        "Other words that providers use for a kind of work, separated by commas, each as TASK=WORD|WORD: whoever names \
         one of them is taken for able to do it, with less certainty.",
    ),
    key(
        "market.trusted",
        "Keys whose recommendations count (NIP-89), as npub or in hex digits, separated by commas: whom they recommend \
         is let into the registry at once, and comes first among equals.",
    ),
    key(
        "market.trusted_reviewers",
        "Keys whose reviews weigh something although nothing is known of them yet, as npub or in hex digits, separated \
         by commas. Their evidence must be here all the same.",
    ),
    key(
        "market.review_delay_s",
        "How many seconds a review of this node waits for later outcomes before it is published.",
    )
    .range(0, 31_536_000),
    key(
        "market.arbiters",
        "Keys whose decisions about disputes bind this node, as npub or in hex digits, separated by commas. One of \
         them is named when a dispute is filed or answered.",
    ),
    key(
        "market.dispute_s",
        "How many seconds somebody may decide a dispute before the default holds.",
    )
    .range(60, 2_592_000),
    key(
        "market.dispute_default",
        "What holds where nobody decides a dispute in time: stands (what the verdict says), release, or withhold.",
    ),
    key(
        "market.policy",
        "How one is chosen among those whom the routing matrix knows: tiered, or thompson.",
    ),
    key(
        "market.judge_model",
        "The model that chooses where those who do the same work do not agree and nobody can check it, as a name that \
         models.toml knows. It is shown the input and the results, but never of private work. Empty: such work stays \
         undecided, and nobody is paid.",
    ),
    key(
        "market.copies",
        "Whether what is significant in the matrix leaves as a private message of this node to itself, to the relays \
         of network.relays. Without relays nothing leaves.",
    ),
    key(
        "market.public",
        "Whether strangers see the matrix at /matrix and beside providers. A node that listens on loopback alone, \
         under no other name, shows it in any case: it tells whom this node trusts, and of private work what kind \
         it was.",
    ),
    key(
        "meeting.silent_s",
        "How many seconds a provider that is met may be silent before its request is sent again.",
    )
    .range(1, 3_600),
    key("meeting.work_s", "How many seconds it has for a benchmark.").range(1, 86_400),
    key("meeting.more_s", "How many more it gets when it says that it is at work, at most five times.")
        .range(0, 3_600),
    key("meeting.result_s", "How many seconds a result may take that it said was done.")
        .range(1, 3_600),
    key("meeting.unresponsive_s", "For how many seconds whoever said nothing is not met again.")
        .range(0, 31_536_000),
    key("meeting.budget_msat", "The most that is paid for all trials of one meeting, in millisatoshi.")
        .range(0, 4_294_967_295),
    key("meeting.budget_day_msat", "The most that is paid for trials within 24 hours, in millisatoshi.")
        .range(0, 4_294_967_295),
    key(
        "meeting.tools",
        "A directory of Python packages by which the quality of answers is measured, as `pip install --target DIR \
         pylint bandit mypy` makes it. Empty: what is installed where they run.",
    ),
    key(
        "sandbox.backend",
        "What runs strangers' programs: ns, the launcher in this program, or oci, an OCI runtime, which needs root.",
    ),
    key(
        "sandbox.runtime",
        "The OCI runtime, by its path or by its name on PATH: runc, or runsc for a second kernel. It is tried before \
         it is used, and refused if it does not hold the limits.",
    ),
    key(
        "sandbox.platform",
        "How runsc catches system calls, as in ptrace, systrap or kvm; empty for what it takes by itself.",
    ),
    key(
        "sandbox.timeout_ms",
        "How long the runtime may take until a program runs, in milliseconds. It is killed then, with all that it \
         started.",
    )
    .range(100, 20_000),
    key(
        "sandbox.image",
        "The directory whose directories programs see; a relative path starts at the data directory. Empty: the \
         host's /usr.",
    ),
    key(
        "sandbox.require",
        "Layers of isolation without which nothing runs, separated by commas; `guild doctor` lists them.",
    ),
    key(
        "sandbox.mac_profile",
        "The profile of AppArmor, or the context of SELinux, that programs run under on hosts that have one of them; \
         empty for none. Require the layer mac to refuse other hosts.",
    ),
    key(
        "sandbox.ahead",
        "How many sandboxes the launcher has ready ahead; each holds some megabytes. None is used twice.",
    )
    .range(0, 256),
    key(
        "sandbox_run.enabled",
        "Whether this node offers to run the commands of strangers in its sandbox: oa.sandbox_run.v1. They share the \
         kernel of this host.",
    ),
    key(
        "sandbox_run.price_msat",
        "What they cost, in millisatoshi, for each minute on each core that a job may use at most.",
    )
    .range(0, 4_000_000_000),
    key(
        "sandbox_run.at_once",
        "How many such jobs are run at once; as many again to check what others ran for this node, and as many for its \
         agents.",
    )
    .range(1, 1_000),
    key("sandbox_run.max_memory_mb", "The most memory of a job, in mebibytes.")
        .range(16, 4_194_304),
    key("sandbox_run.max_cores", "The most cores of a job.").range(1, 1_024),
    key("sandbox_run.max_timeout_s", "The most seconds for all commands of a job.")
        .range(1, 86_400),
    key("sandbox_run.max_disk_mb", "The most that a job may write, in mebibytes.")
        .range(1, 4_194_304),
    key(
        "sandbox_run.images",
        "Images that jobs may name beside this host's own /usr, separated by commas, each as DIGEST=DIRECTORY: the \
         digest under which others know the image, sha256:…, and where it is unpacked here.",
    ),
    key(
        "hosting.enabled",
        "Whether this node sells sandboxes by the minute, at /v1. They share the kernel of this host.",
    ),
    key(
        "hosting.origins",
        "The addresses under which users reach this node, separated by commas, as https://guild.example: messages to \
         sign in must name one of them. Empty: 127.0.0.1 and localhost with the port of the gateway.",
    ),
    key(
        "hosting.chain_ids",
        "The chains that a message to sign in may name, by their numbers, separated by commas.",
    ),
    key(
        "hosting.images",
        "The images that are sold, separated by commas, each as NAME:vX.Y.Z=DIRECTORY, or =host for this host's own \
         system. DIRECTORY@sha256:… names the digest that its files must have; in any case it must stay what it was \
         when the version was first offered.",
    ),
    key(
        "hosting.machine",
        "The name of this host among those that share the database: at most 40 lower-case letters, digits and hyphens. \
         Each data directory needs one of its own, and keeps it as long as it has sandboxes.",
    ),
    key("hosting.vcpu_micro_usd", "What a minute of a virtual processor costs, in micro-USD.")
        .range(0, 1_000_000_000),
    key("hosting.ram_gib_micro_usd", "What a minute of a gibibyte of memory costs, in micro-USD.")
        .range(0, 1_000_000_000),
    key(
        "hosting.keep_sign_ins_days",
        "How long it is kept who signed in and which keys were made and revoked, in days; 0 keeps it for ever.",
    )
    .range(0, 36_500),
    key(
        "hosting.requests_per_minute",
        "How many requests of one token pass in a minute, and a fifth of that at once; twice as many from one \
         address, and a twentieth to sign in.",
    )
    .range(1, 10_000_000),
    key(
        "hosting.trusted_proxies",
        "The proxies in front of this node, by address or network, separated by commas, as 127.0.0.1 or 10.0.0.0/8. Of \
         what comes from them the last address in x-forwarded-for that is none of them is counted; nobody else is \
         believed. Without it everybody behind a proxy shares the limits of one address.",
    ),
    key(
        "hosting.sign_in_without_proof",
        "Lets anybody sign in as anybody, for development. Refused unless only this machine can reach the node.",
    ),
    key("kernel.enabled", "Whether this process does the turns of agents."),
    key(
        "kernel.worker_targets",
        "Whose turns it does, separated by commas. A target that begins with svc1_ is served by one process at a time.",
    ),
    key("kernel.tasks", "How many turns it works on at once.").range(1, 4_096),
    key(
        "kernel.lease_ms",
        "How long a turn stays with a worker that is not heard of any more, before another one goes on with it.",
    )
    .range(1_000, 3_600_000),
    key("kernel.max_steps", "How many steps a turn may take, unless its profile says otherwise.").range(1, 1_000),
    key(
        "kernel.suspend_timeout_ms",
        "How long a turn waits for a tool that says nothing about it itself.",
    )
    .range(100, 604_800_000),
    key(
        "kernel.tools",
        "The tools of this node that agents may call if their profile allows it, separated by commas: sandbox_run, \
         ledger_balance, hire. What sandbox_run may use is said by sandbox_run.max_memory_mb and its companions.",
    ),
    key(
        "kernel.tool_env",
        "The variables of the environment that options.envs in the row of a tool may name, separated by commas. Their \
         values are told to the tool alone, and written down nowhere.",
    ),
    key(
        "kernel.hire_max_msat",
        "The most that an agent may spend on one order, in millisatoshi, within what the policy lets through.",
    )
    .range(0, 4_000_000_000),
];

/// The key at a path.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// One row of the reference.
#[derive(Debug, Serialize)]
pub(crate) struct Reference {
    pub(crate) key: &'static str,
    pub(crate) default: String,
    pub(crate) env: String,
    pub(crate) meaning: String,
}

/// The reference of every key, with its default as TOML.
pub(crate) fn reference() -> Vec<Reference> {
    let defaults = leaves(&tree_of(&Config::default()));
    let row = |key: &'static Key| Reference {
        key: key.path,
        default: defaults.get(key.path).map(ToString::to_string).unwrap_or_default(),
        env: key.env(),
        meaning: match key.range {
            Some((least, most)) => format!("{} From {least} to {most}.", key.meaning),
            None => key.meaning.to_owned(),
        },
    };
    KEYS.iter().map(row).collect()
}

/// The settings as a tree of TOML.
pub(crate) fn tree_of(config: &Config) -> toml::Table {
    // Texts, numbers and tables always have a TOML form; the completeness test below would see an empty one.
    toml::Table::try_from(config).unwrap_or_default()
}

/// All values of a tree by their path.
pub(crate) fn leaves(tree: &toml::Table) -> BTreeMap<String, toml::Value> {
    fn walk(prefix: &str, tree: &toml::Table, found: &mut BTreeMap<String, toml::Value>) {
        for (name, value) in tree {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                toml::Value::Table(inner) => walk(&path, inner, found),
                value => {
                    found.insert(path, value.clone());
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    walk("", tree, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_key_is_documented_once() {
        let defaults = leaves(&tree_of(&Config::default()));
        let exist: BTreeSet<&str> = defaults.keys().map(String::as_str).collect();
        let documented: BTreeSet<&str> = KEYS.iter().map(|key| key.path).collect();
        assert_eq!(exist, documented);
        assert_eq!(documented.len(), KEYS.len());
    }

    #[test]
    fn every_variable_means_one_key() {
        let names: BTreeSet<String> = KEYS.iter().map(Key::env).collect();
        assert_eq!(names.len(), KEYS.len());
        assert!(!names.contains(environment::PASSPHRASE_FILE));
    }

    #[test]
    fn defaults_are_in_their_range() {
        let defaults = leaves(&tree_of(&Config::default()));
        for key in KEYS {
            let number = defaults[key.path].as_integer();
            assert_eq!(number.is_some(), key.range.is_some(), "{}", key.path);
            if let (Some(number), Some((least, most))) = (number, key.range) {
                assert!((least..=most).contains(&number), "{}", key.path);
            }
        }
    }
}
