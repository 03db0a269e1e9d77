//! The servers that a URL names, one by one: one that is silent must not keep us from the next, and whoever asks
//! whether a server is still there must ask that one.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts};

use crate::{Error, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection whose other end has vanished without a word is given up after this.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);
/// So often is asked whether the other end is still there while an answer is awaited.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(5);
/// The client's own, if the URL says nothing else: two hours.
const KEEPALIVE_UNSET: Duration = Duration::from_secs(2 * 3_600);
/// Whoever wants to wait for longer waits for ever, and a clock has an end.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);
const PORT: u16 = 5432;

/// Where a server is, as a URL says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    host: Where,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Where {
    Name(String),
    Address(IpAddr),
    Directory(PathBuf),
}

/// What the URL leaves open.
pub(super) fn set_defaults(config: &mut Config) {
    config.connect_timeout(connect_timeout(config));
    config.tcp_user_timeout(silence_timeout(config));
    if config.get_keepalives_idle() == KEEPALIVE_UNSET {
        config.keepalives_idle(KEEPALIVE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE);
    }
    if config.get_application_name().is_none() {
        config.application_name("guild");
    }
}

/// How long a server has for all that comes before the first call.
pub(crate) fn connect_timeout(config: &Config) -> Duration {
    config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT).min(LONGEST)
}

/// How long nothing need be heard before anybody worries.
pub(super) fn silence_timeout(config: &Config) -> Duration {
    config.get_tcp_user_timeout().copied().unwrap_or(SILENCE_TIMEOUT).min(LONGEST)
}

/// All that the URL names, in the order in which they are tried; or what is wrong with them.
pub(super) fn servers(config: &Config) -> std::result::Result<Vec<Server>, &'static str> {
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let (ports, count) = (config.get_ports(), hosts.len().max(addresses.len()));
    if count == 0 {
        return Err("it names no host");
    }
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err("it has another number of hosts than of their addresses");
    }
    if ports.len() > 1 && ports.len() != count {
        return Err("it has another number of ports than of hosts");
    }
    let server = |i: usize| {
        let host = match (addresses.get(i), hosts.get(i)) {
            (Some(address), _) => Where::Address(*address),
            (None, None) => return None,
            (None, Some(Host::Unix(directory))) => Where::Directory(directory.clone()),
            (None, Some(Host::Tcp(name))) => match name.parse() {
                Ok(address) => Where::Address(address),
                Err(_) => Where::Name(name.clone()),
            },
        };
        let port = ports.get(i).or(ports.first()).copied().unwrap_or(PORT);
        Some(Server { host, port })
    };
    let mut servers: Vec<Server> = (0..count).filter_map(server).collect();
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        // Each process begins with another one.
        let first = usize::try_from(std::process::id()).unwrap_or(0) % servers.len().max(1);
        servers.rotate_left(first);
    }
    Ok(servers)
}

impl Server {
    /// The same settings for each address that this server has, and for nothing else.
    pub(super) fn configs(&self, config: &Config) -> Result<Vec<Config>> {
        let addresses = match &self.host {
            Where::Directory(directory) => {
                let mut alone = without_hosts(config);
                alone.host_path(directory).port(self.port);
                return Ok(vec![alone]);
            }
            Where::Address(address) => vec![*address],
            Where::Name(name) => addresses_of(name, connect_timeout(config))?,
        };
        let alone = |address| {
            let mut alone = without_hosts(config);
            alone.hostaddr(address).port(self.port);
            alone
        };
        Ok(addresses.into_iter().map(alone).collect())
    }
}

/// On a thread of its own, which is left alone when it takes too long: the system's resolver knows no limit.
fn addresses_of(name: &str, limit: Duration) -> Result<Vec<IpAddr>> {
    let unreachable = |why: String| Error::Unreachable(format!("{name:?}: {why}"));
    let (found, finds) = mpsc::channel();
    let wanted = name.to_owned();
    let look = move || {
        // Whoever asked may have gone.
        let _ = found.send((wanted.as_str(), 0).to_socket_addrs());
    };
    let thread = std::thread::Builder::new().name("store-resolve".to_owned()).spawn(look);
    thread.map_err(|e| unreachable(format!("no thread could be started: {e}")))?;
    let found = finds.recv_timeout(limit);
    let found = found.map_err(|_| unreachable("the name was not resolved in time".to_owned()))?;
    let found = found.map_err(|e| unreachable(e.to_string()))?;
    Ok(found.map(|address| address.ip()).collect())
}

/// All settings but where. The client's own copy cannot forget a host.
fn without_hosts(config: &Config) -> Config {
    let mut alone = Config::new();
    if let Some(user) = config.get_user() {
        alone.user(user);
    }
    if let Some(password) = config.get_password() {
        alone.password(password);
    }
    if let Some(dbname) = config.get_dbname() {
        alone.dbname(dbname);
    }
    if let Some(options) = config.get_options() {
        alone.options(options);
    }
    if let Some(name) = config.get_application_name() {
        alone.application_name(name);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        alone.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        alone.keepalives_retries(retries);
    }
    alone
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .connect_timeout(connect_timeout(config))
        .tcp_user_timeout(silence_timeout(config))
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    alone
}

/// For messages: `127.0.0.1:5432`.
pub(super) fn shown(alone: &Config) -> String {
    let port = alone.get_ports().first().copied().unwrap_or(PORT);
    match (alone.get_hostaddrs().first(), alone.get_hosts().first()) {
        (Some(address), _) => std::net::SocketAddr::new(*address, port).to_string(),
        (None, Some(Host::Unix(directory))) => directory.display().to_string(),
        (None, _) => "the server".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configs(url: &str) -> Vec<Config> {
        let config: Config = url.parse().unwrap();
        let servers = servers(&config).unwrap();
        servers.iter().flat_map(|server| server.configs(&config).unwrap()).collect()
    }

    #[test]
    fn each_server_is_tried_by_itself() {
        let all = configs("postgresql://ann@127.0.0.1:1,[::1]:2,%2Frun%2Fpg:3/guild");
        let all: Vec<_> = all.iter().map(shown).collect();
        assert_eq!(all, ["127.0.0.1:1", "[::1]:2", "/run/pg"]);
        let default = configs("postgresql://ann@127.0.0.1/guild");
        assert_eq!(shown(&default[0]), "127.0.0.1:5432");
        let named = configs("postgresql://localhost:7/guild");
        assert!(named.iter().any(|config| shown(config) == "127.0.0.1:7"), "{named:?}");
    }

    #[test]
    fn no_setting_is_lost_on_the_way() {
        let url = "user=ann password=secret dbname=guild options=-cx application_name=a sslmode=disable \
             sslnegotiation=direct hostaddr=127.0.0.1 port=7 connect_timeout=3 tcp_user_timeout=4 keepalives=0 \
             keepalives_idle=5 keepalives_interval=6 keepalives_retries=7 target_session_attrs=read-write \
             channel_binding=disable load_balance_hosts=random";
        let config: Config = url.parse().unwrap();
        let alone = servers(&config).unwrap()[0].configs(&config).unwrap();
        assert!(alone == [config], "{alone:?}");
    }

    #[test]
    fn hosts_that_do_not_fit_together_are_refused() {
        let refused = |text: &str| servers(&text.parse().unwrap()).unwrap_err();
        assert_eq!(refused("user=ann"), "it names no host");
        assert!(refused("host=a,b hostaddr=127.0.0.1").contains("addresses"));
        assert!(refused("host=a,b,c port=1,2").contains("ports"));
    }

    #[test]
    fn a_wait_has_an_end_whatever_the_url_says() {
        let url =
            "postgresql://a/b?connect_timeout=9000000000000000&tcp_user_timeout=9000000000000000";
        let mut config: Config = url.parse().unwrap();
        set_defaults(&mut config);
        assert_eq!((connect_timeout(&config), silence_timeout(&config)), (LONGEST, LONGEST));
        let unset: Config = "postgresql://a/b?connect_timeout=0".parse().unwrap();
        assert_eq!(connect_timeout(&unset), CONNECT_TIMEOUT);
    }
}
