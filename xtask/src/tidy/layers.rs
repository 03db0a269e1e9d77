//! Which crate may use which. The table of `ARCHITECTURE.md`, as data.

use super::{Finding, Tree};

/// A crate, where it stands, and what it must never know.
struct Crate {
    name: &'static str,
    layer: u8,
    /// The crates of this tree that it may use.
    may_use: &'static [&'static str],
    /// The outside crates that it must not use.
    never: &'static [&'static [&'static str]],
}

const RUNTIMES: &[&str] = &["tokio", "tokio-util", "async-std", "smol"];
const HTTP_SERVERS: &[&str] =
    &["axum", "axum-core", "hyper", "hyper-util", "warp", "actix-web", "tower-http"];
/// Those that cannot also ask.
const WEB_FRAMEWORKS: &[&str] = &["axum", "axum-core", "warp", "actix-web", "tower-http"];
const HTTP_CLIENTS: &[&str] = &["reqwest", "ureq", "octocrab", "hyper", "hyper-util"];
const SOCKETS: &[&str] = &["tokio-tungstenite", "tungstenite", "mio", "socket2"];
const CHAINS: &[&str] = &["alloy", "alloy-provider", "alloy-network", "ethers"];
const CLOCKS: &[&str] = &["chrono", "time"];

const CRATES: &[Crate] = &[
    Crate {
        name: "guild-protocol",
        layer: 0,
        may_use: &[],
        never: &[
            RUNTIMES,
            HTTP_SERVERS,
            HTTP_CLIENTS,
            SOCKETS,
            CHAINS,
            CLOCKS,
            &["futures-util", "tracing", "rustix", "tempfile"],
        ],
    },
    Crate {
        name: "guild-store",
        layer: 1,
        may_use: &["guild-protocol"],
        never: &[HTTP_SERVERS, HTTP_CLIENTS, SOCKETS, CHAINS, CLOCKS],
    },
    Crate {
        name: "guild-bus",
        layer: 1,
        may_use: &["guild-protocol"],
        never: &[HTTP_SERVERS, HTTP_CLIENTS, CHAINS, CLOCKS],
    },
    Crate {
        name: "guild-sandbox",
        layer: 1,
        may_use: &["guild-protocol"],
        never: &[CHAINS, CLOCKS],
    },
    Crate {
        name: "guild-ledger",
        layer: 2,
        may_use: &["guild-protocol", "guild-store"],
        never: &[HTTP_SERVERS, HTTP_CLIENTS, SOCKETS, CHAINS, CLOCKS],
    },
    Crate {
        name: "guild-memory",
        layer: 2,
        may_use: &["guild-protocol", "guild-store"],
        never: &[HTTP_SERVERS, SOCKETS, CHAINS, CLOCKS],
    },
    Crate {
        name: "guild-network",
        layer: 2,
        may_use: &["guild-protocol", "guild-store", "guild-bus"],
        never: &[CLOCKS],
    },
    Crate {
        name: "guild-kernel",
        layer: 3,
        may_use: &["guild-protocol", "guild-store", "guild-bus", "guild-sandbox"],
        never: &[WEB_FRAMEWORKS, SOCKETS, CHAINS, CLOCKS],
    },
    Crate {
        name: "guild-hosting",
        layer: 3,
        may_use: &[
            "guild-protocol",
            "guild-store",
            "guild-bus",
            "guild-sandbox",
            "guild-ledger",
            "guild-network",
        ],
        never: &[HTTP_SERVERS, SOCKETS, CHAINS, CLOCKS],
    },
    Crate {
        name: "guild-market",
        layer: 3,
        may_use: &[
            "guild-protocol",
            "guild-store",
            "guild-sandbox",
            "guild-ledger",
            "guild-memory",
            "guild-network",
        ],
        never: &[HTTP_SERVERS, SOCKETS, CHAINS, CLOCKS],
    },
    Crate {
        name: "guild-roles",
        layer: 4,
        may_use: &[
            "guild-protocol",
            "guild-store",
            "guild-bus",
            "guild-sandbox",
            "guild-ledger",
            "guild-memory",
            "guild-network",
            "guild-kernel",
            "guild-hosting",
            "guild-market",
        ],
        never: &[HTTP_SERVERS, SOCKETS, CHAINS, CLOCKS],
    },
    Crate {
        name: "guild-gateway",
        layer: 5,
        may_use: &[
            "guild-protocol",
            "guild-network",
            "guild-hosting",
            "guild-market",
            "guild-roles",
        ],
        never: &[HTTP_CLIENTS, CHAINS, CLOCKS],
    },
    Crate { name: "guild", layer: 6, may_use: ALL, never: &[HTTP_SERVERS, CHAINS, CLOCKS] },
    Crate { name: "sim", layer: 7, may_use: ALL, never: &[RUNTIMES, CLOCKS] },
    Crate { name: "testbed", layer: 7, may_use: &[], never: &[RUNTIMES, HTTP_CLIENTS] },
    Crate { name: "xtask", layer: 8, may_use: &["testbed"], never: &[RUNTIMES, HTTP_CLIENTS] },
];

/// Every crate of the product below the binary.
const ALL: &[&str] = &[
    "guild-protocol",
    "guild-store",
    "guild-bus",
    "guild-sandbox",
    "guild-ledger",
    "guild-memory",
    "guild-network",
    "guild-kernel",
    "guild-hosting",
    "guild-market",
    "guild-roles",
    "guild-gateway",
];

/// An outside crate that only some may use.
struct Reserved {
    dependencies: &'static [&'static str],
    only: &'static [&'static str],
    why: &'static str,
}

const RESERVED: &[Reserved] = &[
    Reserved {
        dependencies: &["openssl", "openssl-sys", "native-tls"],
        only: &[],
        why: "TLS is rustls with ring",
    },
    Reserved {
        dependencies: &["sqlx", "diesel"],
        only: &[],
        why: "their SQLite and ours cannot share a workspace",
    },
    Reserved {
        dependencies: &[
            "rusqlite",
            "libsqlite3-sys",
            "postgres",
            "tokio-postgres",
            "postgres-types",
        ],
        only: &["guild-store", "testbed"],
        why: "the store's `Tx` is the only way to the database",
    },
    Reserved {
        dependencies: &["clap", "clap_complete", "clap_mangen"],
        only: &["guild", "sim", "xtask"],
        why: "only programs have arguments",
    },
    Reserved {
        dependencies: &["tracing-subscriber", "rpassword"],
        only: &["guild"],
        why: "only the binary owns the terminal",
    },
    Reserved {
        dependencies: &["rand", "getrandom", "fastrand", "uuid"],
        only: &["guild"],
        why: "randomness is passed in",
    },
    Reserved {
        dependencies: &["async-nats"],
        only: &["guild-bus"],
        why: "a bell does not say what carries it",
    },
    Reserved {
        dependencies: &["landlock", "libc"],
        only: &["guild-sandbox"],
        why: "only the sandbox speaks to the kernel itself",
    },
    Reserved {
        dependencies: &["async-graphql", "async-graphql-axum"],
        only: &["guild-gateway"],
        why: "only the gateway translates",
    },
    Reserved {
        dependencies: &["utoipa"],
        only: &["guild-gateway", "guild-hosting"],
        why: "only the gateway translates, and hosting keeps its answers word for word",
    },
    Reserved {
        dependencies: &["rmcp"],
        only: &["guild-gateway", "guild-kernel"],
        why: "tools are offered by the gateway and called by the kernel",
    },
    Reserved {
        dependencies: &["nostr", "secp256k1"],
        only: &["guild-protocol", "guild-network"],
        why: "there is one signing function, `Signer`",
    },
];

fn find(name: &str) -> Option<&'static Crate> {
    CRATES.iter().find(|known| known.name == name)
}

fn manifest(package: &crate::workspace::Package) -> String {
    package.manifest_path.to_string_lossy().into_owned()
}

/// Every crate has its place in the table.
pub(super) fn known_crates(tree: &Tree) -> Vec<Finding> {
    let unknown = tree.packages.iter().filter(|package| find(&package.name).is_none());
    unknown
        .map(|package| {
            let message =
                format!("{} has no place in the layers (xtask/src/tidy/layers.rs)", package.name);
            Finding::new(&manifest(package), 0, message)
        })
        .collect()
}

/// Crates use only those that the table lets them use; tests may use anything lower, the simulation and the
/// real servers.
pub(super) fn edges(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (package, place) in tree.packages.iter().filter_map(|p| Some((p, find(&p.name)?))) {
        for used in package.dependencies.iter().filter(|used| used.path.is_some()) {
            let allowed = match (used.kind.as_deref(), find(&used.name)) {
                (Some("dev"), Some(other)) => {
                    other.layer < place.layer || ["sim", "testbed"].contains(&other.name)
                }
                (_, Some(other)) => place.may_use.contains(&other.name),
                (_, None) => false,
            };
            if !allowed {
                let message = format!("{} must not use {}", package.name, used.name);
                findings.push(Finding::new(&manifest(package), 0, message));
            }
        }
    }
    findings
}

/// Crates do not use outside crates that they must not know.
pub(super) fn outside_crates(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        for used in package.dependencies.iter().filter(|used| used.path.is_none()) {
            let dev = used.kind.as_deref() == Some("dev");
            if let Some(why) = why_not(&package.name, &used.name, dev) {
                let message = format!("{} must not use {}: {why}", package.name, used.name);
                findings.push(Finding::new(&manifest(package), 0, message));
            }
        }
    }
    findings
}

fn why_not(name: &str, used: &str, dev: bool) -> Option<&'static str> {
    // A test may use what its crate may not, but nobody may bring in what is banned for all.
    let reserved = RESERVED.iter().find(|reserved| {
        let banned_for_all = reserved.only.is_empty();
        reserved.dependencies.contains(&used)
            && !reserved.only.contains(&name)
            && (banned_for_all || !dev)
    });
    if let Some(reserved) = reserved {
        return Some(reserved.why);
    }
    let banned = |place: &Crate| place.never.iter().any(|group| group.contains(&used));
    (!dev && find(name).is_some_and(banned)).then_some("its layer must never know it")
}

#[cfg(test)]
mod tests {
    use super::super::planted::{package, shown, workspace};
    use super::*;

    #[test]
    fn the_table_points_downwards_and_names_only_crates() {
        for place in CRATES {
            for used in place.may_use {
                assert!(find(used).unwrap().layer < place.layer, "{} → {used}", place.name);
            }
        }
        let names: Vec<_> = CRATES.iter().map(|place| place.name).collect();
        let of_product = names.iter().filter(|name| find(name).unwrap().layer < 6);
        assert!(of_product.eq(ALL), "ALL lists the crates below the binary");
        assert!(
            RESERVED.iter().flat_map(|reserved| reserved.only).all(|name| names.contains(name))
        );
    }

    #[test]
    fn an_unknown_crate_is_caught() {
        let tree = workspace(vec![package("guild-extras", &[]), package("guild-store", &[])]);
        assert_eq!(
            shown(&known_crates(&tree)),
            [
                "crates/guild-extras/Cargo.toml: guild-extras has no place in the layers (xtask/src/tidy/layers.rs)"
            ]
        );
    }

    #[test]
    fn an_upward_edge_is_caught_also_in_tests() {
        let wrong = [
            ("guild-protocol", "guild-store"),
            ("guild-bus", "guild-store"),
            ("guild-gateway", "guild-store"),
            ("guild-kernel", "guild-market"),
            ("guild-kernel", "build:guild-market"),
            ("guild-store", "dev:guild-roles"),
            ("guild-store", "sim"),
            ("guild-roles", "guild"),
        ];
        for (name, used) in wrong {
            let findings = edges(&workspace(vec![package(name, &[used])]));
            let used = used.rsplit(':').next().unwrap();
            let expected = format!("crates/{name}/Cargo.toml: {name} must not use {used}");
            assert_eq!(shown(&findings), [expected]);
        }
        let right = [
            ("guild-store", "guild-protocol"),
            ("guild-store", "dev:sim"),
            ("guild-gateway", "dev:guild-store"),
            ("guild", "guild-gateway"),
        ];
        for (name, used) in right {
            assert_eq!(edges(&workspace(vec![package(name, &[used])])), [], "{name} → {used}");
        }
    }

    #[test]
    fn a_banned_outside_crate_is_caught() {
        let wrong = [
            ("guild-protocol", "tokio"),
            ("guild-protocol", "rusqlite"),
            ("guild-protocol", "reqwest"),
            ("guild-protocol", "tokio-tungstenite"),
            ("guild-store", "axum"),
            ("guild-gateway", "rusqlite"),
            ("guild-gateway", "postgres"),
            ("guild-roles", "rmcp"),
            ("guild-roles", "axum"),
            ("guild-kernel", "nostr"),
            ("guild-kernel", "axum"),
            ("guild-roles", "hyper"),
            ("guild-gateway", "clap"),
            ("guild-store", "rand"),
            ("guild", "openssl"),
            ("guild", "dev:native-tls"),
            ("guild-network", "build:native-tls"),
        ];
        for (name, used) in wrong {
            let findings = outside_crates(&workspace(vec![package(name, &[used])]));
            assert_eq!(findings.len(), 1, "{name} → {used}");
        }
        let right = [
            ("guild-store", "rusqlite"),
            ("guild-protocol", "dev:tokio"),
            ("guild-protocol", "nostr"),
            ("guild", "clap"),
            ("guild-gateway", "axum"),
            ("guild-kernel", "hyper"),
        ];
        for (name, used) in right {
            assert_eq!(
                outside_crates(&workspace(vec![package(name, &[used])])),
                [],
                "{name} → {used}"
            );
        }
    }
}
