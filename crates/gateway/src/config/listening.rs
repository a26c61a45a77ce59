//! Checks of the addresses to listen on: each by itself, and beside each other.
//!
//! Looks names up and opens no socket. Whether another process has an address is known only at start.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use super::UnixSocketConfig;
use super::check::check_socket_path;
use crate::error::Error;
use crate::listen::{ANY, SYSTEMD};

/// Where service managers make a directory for a service when they start it (`RuntimeDirectory=`).
const MADE_AT_START: [&str; 2] = ["/run", "/var/run"];

/// Everything that is wrong with the addresses as they are written.
pub(super) fn check_listen(listen: &[String], unix: Option<&UnixSocketConfig>) -> Vec<Error> {
    let mut found = Vec::new();
    if listen.is_empty() && unix.is_none() {
        found.push(Error::config("listen", "nothing to listen on: give an address such as 127.0.0.1:6432"));
    }
    for address in listen.iter().filter(|a| *a != SYSTEMD) {
        let fault = |reason| Error::config("listen", format!("'{address}': {reason}"));
        found.extend(split_host_port(address).err().map(fault));
    }
    if let Some(unix) = unix {
        found.extend(check_socket_path("unix_socket", &unix.path()).err());
        found.extend(unix_mode(unix).err());
        if unix.port == 0 {
            found.push(Error::config("unix_socket.port", "0: allowed are 1 to 65535"));
        }
    }
    found
}

pub(super) fn check_metrics(address: Option<&str>) -> Result<(), Error> {
    let fault =
        |reason| Error::config("metrics_listen", format!("'{}': {reason}", address.unwrap_or_default()));
    address.map_or(Ok(()), |a| split_host_port(a).map(|_| ()).map_err(fault))
}

/// Addresses that are listed twice or overlap: a start would get only one of them.
pub(crate) fn check_addresses(listen: &[String], metrics: Option<&str>) -> Vec<Error> {
    let mut found = Vec::new();
    let mut taken: Vec<(&str, SocketAddr)> = Vec::new();
    let listed = listen.iter().filter(|a| *a != SYSTEMD).map(|address| ("listen", address.as_str()));
    for (item, address) in listed.chain(metrics.map(|address| ("metrics_listen", address))) {
        let own = resolved(address);
        // Beside an address of IPv6, `*` is content with IPv4.
        let is_needed = |own: &&SocketAddr| own.is_ipv4() || !is_any(address);
        let clash = own
            .iter()
            .filter(is_needed)
            .find_map(|own| taken.iter().find(|(_, other)| overlap(*own, *other)).map(|(other, _)| *other));
        found.extend(clash.map(|other| {
            let reason = match other == address {
                true if item == "listen" => format!("'{address}' is listed twice"),
                true => format!("'{address}' is an address of listen too: choose another port"),
                false => format!("'{address}' overlaps with '{other}': choose another port"),
            };
            Error::config(item, reason)
        }));
        taken.extend(own.into_iter().map(|own| (address, own)));
    }
    found
}

/// What a start would not find on this machine: names, and the directory of the Unix socket.
pub(super) fn check_machine(
    listen: &[String],
    metrics: Option<&str>,
    unix: Option<&UnixSocketConfig>,
) -> Vec<Error> {
    let listed = listen.iter().filter(|a| *a != SYSTEMD).map(|address| ("listen", address.as_str()));
    let unknown =
        listed.chain(metrics.map(|address| ("metrics_listen", address))).filter_map(|(item, address)| {
            let (host, port) = split_host_port(address).ok().filter(|(host, _)| host != ANY)?;
            let error = (host.as_str(), port).to_socket_addrs().err()?;
            Some(Error::config(item, format!("'{address}': {error}")))
        });
    unknown.chain(unix.and_then(|unix| check_directory(&unix.directory))).collect()
}

fn check_directory(directory: &Path) -> Option<Error> {
    let fault =
        |reason: String| Error::config("unix_socket.directory", format!("{}: {reason}", directory.display()));
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some(fault("not a directory".to_owned())),
        Err(_)
            if directory.parent().is_some_and(|p| MADE_AT_START.iter().any(|made| p == Path::new(made))) =>
        {
            None
        }
        Err(error) => Some(fault(error.to_string())),
    }
}

/// Without ports that the kernel chooses.
fn resolved(address: &str) -> Vec<SocketAddr> {
    let Ok((host, port)) = split_host_port(address) else { return Vec::new() };
    if port == 0 {
        return Vec::new();
    }
    if host == ANY {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        return any.map(|ip| SocketAddr::new(ip, port)).to_vec();
    }
    (host.as_str(), port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

fn is_any(address: &str) -> bool {
    split_host_port(address).is_ok_and(|(host, _)| host == ANY)
}

/// Sockets of IPv6 take no connections of IPv4 here.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip(), other.ip());
    one.port() == other.port()
        && a.is_ipv4() == b.is_ipv4()
        && (a == b || a.is_unspecified() || b.is_unspecified())
}

/// Permissions as a number.
pub(crate) fn unix_mode(unix: &UnixSocketConfig) -> Result<u32, Error> {
    u32::from_str_radix(&unix.mode, 8).ok().filter(|mode| *mode <= 0o777).ok_or_else(|| {
        Error::config("unix_socket.mode", format!("'{}': expected octal such as 0777", unix.mode))
    })
}

/// `host:port` or `[v6]:port`; `*` or nothing is any address, a port of 0 lets the kernel choose.
pub(crate) fn split_host_port(address: &str) -> Result<(String, u16), String> {
    let (host, port) = address.rsplit_once(':').ok_or("expected host:port")?;
    let port = port.parse().map_err(|_| format!("'{port}' is not a port"))?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if bare.len() == host.len() && host.contains(':') {
        return Err("write an IPv6 address in brackets".into());
    }
    Ok((if bare.is_empty() { "*" } else { bare }.to_string(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clashes(listen: &[&str], metrics: Option<&str>) -> Vec<String> {
        let listen: Vec<String> = listen.iter().map(|address| (*address).to_owned()).collect();
        check_addresses(&listen, metrics).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn addresses_that_cannot_be_bound_beside_each_other_are_found() {
        let table = [
            (&["127.0.0.1:1", "127.0.0.1:1"][..], None, "listen: '127.0.0.1:1' is listed twice"),
            (
                &["127.0.0.1:1"],
                Some("127.0.0.1:1"),
                "metrics_listen: '127.0.0.1:1' is an address of listen too",
            ),
            (&["*:1"], Some("127.0.0.1:1"), "metrics_listen: '127.0.0.1:1' overlaps with '*:1'"),
            (&["localhost:1", "0.0.0.0:1"], None, "listen: '0.0.0.0:1' overlaps with 'localhost:1'"),
            (&["*:1", "[::1]:1"], None, "listen: '[::1]:1' overlaps with '*:1'"),
        ];
        for (listen, metrics, message) in table {
            let found = clashes(listen, metrics);
            assert!(found.len() == 1 && found[0].starts_with(message), "{listen:?} {metrics:?}: {found:?}");
        }
    }

    #[test]
    fn addresses_that_can_be_bound_beside_each_other_are_left_alone() {
        for (listen, metrics) in [
            (&["127.0.0.1:1", "127.0.0.1:2"][..], Some("127.0.0.1:3")),
            (&["127.0.0.1:0", "127.0.0.1:0"], Some("127.0.0.1:0")),
            (&["0.0.0.0:1", "[::]:1"], None),
            (&["[::1]:1", "*:1"], None),
            (&["systemd", "127.0.0.1:1"], None),
        ] {
            assert_eq!(clashes(listen, metrics), [""; 0], "{listen:?} {metrics:?}");
        }
    }

    #[test]
    fn a_missing_directory_is_found_unless_a_start_makes_it() {
        let check = |dir: &str| check_machine(&[], None, Some(&UnixSocketConfig::new(dir, 1)));
        let found = check("/nonexistent/dir");
        assert!(found[0].to_string().starts_with("unix_socket.directory: /nonexistent/dir: No such file"));
        assert!(check("/proc/version")[0].to_string().contains("not a directory"));
        assert!(check("/tmp").is_empty() && check("/run/not-there-yet").is_empty());
    }
}
