//! Programs that reach for a network. An attempt is refused and flagged; the run goes on, so that all of it is seen.

use std::net::TcpListener;

use guild_sandbox::{Class, Limit, Network, Profile, Spec};

use super::super::support::{printed, python, sandbox};
use super::{attack, hosted};

/// The attempt fails, is named, and makes the class.
fn is_flagged(detail: &str, code: &str) {
    let code = format!(
        "import socket\ntry:\n    {code}\nexcept OSError as error:\n    print(error.errno)\n"
    );
    let collected = attack(&python(&code));
    let outcome = &collected.outcome;
    assert_eq!(outcome.class, Class::SecurityViolation, "{outcome:?} {}", printed(&collected));
    assert_eq!(outcome.exit_code, Some(0), "{}", printed(&collected));
    let flag = &outcome.flags[0];
    assert_eq!((flag.call.as_str(), flag.detail.as_str(), flag.fatal), ("socket", detail, false));
    assert!(outcome.limits[&Limit::Network].reached);
    assert_eq!(printed(&collected), "1\n");
}

#[test]
fn tcp() {
    is_flagged("AF_INET", "socket.create_connection(('127.0.0.1', 80))");
}

#[test]
fn tcp_over_ipv6() {
    is_flagged("AF_INET6", "socket.socket(socket.AF_INET6).connect(('::1', 80))");
}

#[test]
fn udp() {
    is_flagged("AF_INET", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)");
}

#[test]
fn raw_packets() {
    is_flagged("AF_PACKET", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)");
}

#[test]
fn netlink() {
    is_flagged("AF_NETLINK", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)");
}

#[test]
fn virtual_machine_sockets() {
    is_flagged("AF_VSOCK", "socket.socket(socket.AF_VSOCK)");
}

#[test]
fn kernel_crypto_sockets() {
    is_flagged("AF_ALG", "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)");
}

#[test]
fn attempts_are_counted_not_listed_for_ever() {
    let code = "import socket\nfor i in range(1000):\n    try: socket.socket(2)\n    except OSError: pass\n\
                for i in range(50, 1000):\n    try: socket.socket(i)\n    except OSError: pass\n";
    let outcome = attack(&python(code)).outcome;
    assert_eq!(outcome.flags[0].count, 1_000);
    assert_eq!(outcome.flags.len(), 64);
}

#[test]
fn a_name_service_at_a_path_is_no_network() {
    let code = "import socket, pwd\nprint(pwd.getpwuid(1000).pw_name)\n\
                try: socket.socket(socket.AF_UNIX)\nexcept PermissionError: print('refused')\n";
    let collected = attack(&python(code));
    assert_eq!(printed(&collected), "guild\nrefused\n");
    assert!(collected.outcome.succeeded(), "{:?}", collected.outcome);
}

#[test]
fn pairs_of_sockets_are_no_network() {
    let code = "import asyncio\nasync def f(): return 7\nprint(asyncio.run(f()))";
    let collected = attack(&python(code));
    assert_eq!(printed(&collected), "7\n");
    assert!(collected.outcome.succeeded());
}

#[test]
fn the_host_s_loopback_is_not_the_sandbox_s() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = format!(
        "import socket\ntry: socket.create_connection(('127.0.0.1', {port}))\n\
         except ConnectionRefusedError: print('nobody')\n"
    );
    let collected = attack(&hosted(python(&code)));
    assert_eq!(printed(&collected), "nobody\n");
    assert!(collected.outcome.succeeded(), "{:?}", collected.outcome);
}

#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("guild-sandbox-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let code = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ntry: s.connect('\\0{name}')\n\
         except OSError as error: print(type(error).__name__)\n"
    );
    let collected = attack(&hosted(python(&code)));
    assert!(
        ["ConnectionRefusedError\n", "PermissionError\n"].contains(&printed(&collected).as_str())
    );
}

#[test]
fn nothing_is_routed_even_with_sockets() {
    let code = "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 5)\n\
                except OSError as error: print(error.errno)\n";
    assert_eq!(printed(&attack(&hosted(python(code)))), "101\n");
}

#[test]
fn the_proxy_is_the_only_way_out() {
    use std::io::{Read, Write};
    let code = "import socket\ns = socket.create_connection(('127.0.0.1', 3128))\n\
                s.sendall(b'hello')\nprint(s.recv(100).decode())\n";
    let spec =
        Spec { network: Network::Proxy { port: 3128 }, profile: Profile::Hosted, ..python(code) };
    use guild_sandbox::Sandbox;
    let mut running = sandbox().start(&spec).unwrap();
    let proxy = running.proxy.take().unwrap();
    let (mut stream, _) = proxy.accept().unwrap();
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).unwrap();
    stream.write_all(b"through the proxy").unwrap();
    drop(stream);
    let collected = running.collect().unwrap();
    assert_eq!((&hello, printed(&collected).as_str()), (b"hello", "through the proxy\n"));
}
