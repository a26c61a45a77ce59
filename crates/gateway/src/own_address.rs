//! Whether a server or target is the process itself. Each session would open the next one, until no descriptor is left.
//!
//! Compares resolved addresses and opens no socket. A loop that leads over another process is not found.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use crate::config::{TargetConfig, UnixSocketConfig, split_host_port};
use crate::error::Error;
use crate::listen::{ANY, Address};

/// The addresses of the kernel's routing table, the machine's own among them.
const IPV4_ADDRESSES: &str = "/proc/net/fib_trie";
/// The machine's IPv6 addresses.
const IPV6_ADDRESSES: &str = "/proc/net/if_inet6";

/// What a configuration would listen on. Names that cannot be resolved, ports that the kernel chooses and sockets of
/// socket activation are not known before the start.
pub(crate) fn configured(listen: &[String], unix: Option<&UnixSocketConfig>) -> Vec<Address> {
    let mut addresses = Vec::new();
    for (host, port) in listen.iter().filter_map(|address| split_host_port(address).ok()) {
        if host == ANY {
            let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
            addresses.extend(any.map(|ip| Address::Tcp(SocketAddr::new(ip, port))));
        } else if let Ok(resolved) = (host.as_str(), port).to_socket_addrs() {
            addresses.extend(resolved.map(Address::Tcp));
        }
    }
    addresses.extend(unix.map(|unix| Address::Unix(unix.path())));
    addresses
}

/// An error if the target is one of the addresses in `listening`. `item` is its table in the configuration file.
pub(crate) fn fault(item: &str, target: &TargetConfig, listening: &[Address]) -> Option<Error> {
    let own = own_address(target, listening)?;
    let reason = format!(
        "{} is this process itself, which listens on {own}: every session would open another one; name the address of the \
         {item}, or listen on another port",
        target.describe()
    );
    Some(Error::config(item, reason))
}

fn own_address<'a>(target: &TargetConfig, listening: &'a [Address]) -> Option<&'a Address> {
    if let Some(path) = target.unix_path() {
        return listening.iter().find(|own| matches!(own, Address::Unix(own) if is_same_socket(own, &path)));
    }
    let has_port = |own: &&Address| matches!(own, Address::Tcp(own) if own.port() == target.port);
    // Most configurations have no port twice, and so need no lookup.
    listening.iter().find(has_port)?;
    let addresses: Vec<IpAddr> = match target.hostaddr {
        Some(address) => vec![address],
        // A name that is unknown now may be known later; the session says so.
        None => (target.host.as_str(), target.port).to_socket_addrs().ok()?.map(|found| found.ip()).collect(),
    };
    let leads_to = |own: &Address| match own {
        Address::Tcp(own) => addresses.iter().any(|address| reaches(*address, own.ip())),
        Address::Unix(_) => false,
    };
    listening.iter().filter(has_port).find(|own| leads_to(own))
}

/// Whether a connection to `target` comes to a socket that is bound to `own`.
fn reaches(target: IpAddr, own: IpAddr) -> bool {
    // A connection to no address is one to loopback.
    let target = match target.to_canonical() {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    let own = own.to_canonical();
    own == target || (own.is_unspecified() && own.is_ipv4() == target.is_ipv4() && is_machines_own(target))
}

fn is_machines_own(address: IpAddr) -> bool {
    address.is_loopback()
        || match address {
            IpAddr::V4(address) => {
                local_ipv4(&fs::read_to_string(IPV4_ADDRESSES).unwrap_or_default(), address)
            }
            IpAddr::V6(address) => {
                local_ipv6(&fs::read_to_string(IPV6_ADDRESSES).unwrap_or_default(), address)
            }
        }
}

/// An address stands on a line of its own, what it is on the lines below it.
fn local_ipv4(table: &str, address: Ipv4Addr) -> bool {
    let mut last = None;
    table.lines().map(str::trim).any(|line| {
        if let Some(found) = line.strip_prefix("|-- ") {
            last = found.parse::<Ipv4Addr>().ok();
        }
        last == Some(address) && line == "/32 host LOCAL"
    })
}

/// An address is the first word of a line, as 32 hexadecimal digits.
fn local_ipv6(table: &str, address: Ipv6Addr) -> bool {
    let digits = format!("{:032x}", u128::from(address));
    table.lines().any(|line| line.split_whitespace().next() == Some(&digits))
}

/// Directories may be links, as `/var/run` is.
fn is_same_socket(one: &Path, other: &Path) -> bool {
    let directory = |path: &Path| path.parent().and_then(|directory| fs::canonicalize(directory).ok());
    one == other
        || (one.file_name() == other.file_name()
            && directory(one).is_some_and(|found| Some(found) == directory(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(listen: &[&str], host: &str, port: u16) -> bool {
        let listen: Vec<String> = listen.iter().map(|address| (*address).to_owned()).collect();
        let unix = UnixSocketConfig::new("/proc/self/root/tmp", 6432);
        fault("server", &TargetConfig::new(host, port), &configured(&listen, Some(&unix))).is_some()
    }

    #[test]
    fn a_server_that_is_an_own_address_is_found() {
        for (listen, host) in [
            ("127.0.0.1:6432", "127.0.0.1"),
            ("127.0.0.1:6432", "localhost"),
            ("127.0.0.1:6432", "0.0.0.0"),
            ("127.0.0.1:6432", "::ffff:127.0.0.1"),
            ("localhost:6432", "127.0.0.1"),
            ("0.0.0.0:6432", "127.0.0.1"),
            ("0.0.0.0:6432", "127.0.0.5"),
            ("*:6432", "127.0.0.1"),
            ("*:6432", "::1"),
            (":6432", "localhost"),
            ("[::]:6432", "::1"),
            ("[::1]:6432", "::"),
            ("127.0.0.1:0", "/tmp"),
        ] {
            assert!(found(&[listen], host, 6432), "{listen} and {host}");
        }
    }

    #[test]
    fn another_server_is_left_alone() {
        for (listen, host) in [
            ("127.0.0.1:6432", "127.0.0.2"),
            ("127.0.0.1:6432", "::1"),
            ("0.0.0.0:6432", "192.0.2.1"),
            ("[::]:6432", "127.0.0.1"),
            ("*:6432", "name.invalid"),
            ("*:6432", "/var"),
        ] {
            assert!(!found(&[listen], host, 6432), "{listen} and {host}");
        }
        assert!(!found(&["127.0.0.1:6432"], "127.0.0.1", 5432));
        assert!(!found(&["127.0.0.1:6432"], "/tmp", 5432));
    }

    #[test]
    fn the_machines_addresses_are_read_from_the_kernels_tables() {
        let table = "Main:\n  +-- 10.0.0.0/8 2 0 2\n     |-- 10.0.0.0\n        /8 link UNICAST\n     |-- 10.0.0.5\n        \
                     /32 host LOCAL\n     |-- 10.255.255.255\n        /32 link BROADCAST\n";
        let local = |a: [u8; 4]| local_ipv4(table, a.into());
        assert!(local([10, 0, 0, 5]) && !local([10, 0, 0, 0]) && !local([10, 255, 255, 255]));
        let table = "fe80000000000000000000000000000a 02 40 20 80     eth0\n";
        let local = |a: &str| local_ipv6(table, a.parse().unwrap());
        assert!(local("fe80::a") && !local("fe80::b"));
    }
}
