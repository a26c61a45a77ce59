//! The PROXY protocol (HAProxy, versions 1 and 2): the real address of a client behind a load balancer.
//!
//! Only headers of trusted proxies are read; from anybody else such bytes are just an impossible startup packet.
//! Source: haproxy.org, "The PROXY protocol", version 2.3.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The signature of version 2.
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_HEADER_SIZE: usize = 16;
/// Largest extra part (addresses and TLVs) of version 2.
const V2_EXTRA_SIZE_MAX: usize = 4096;
/// Longest line of version 1, its end included.
const V1_SIZE_MAX: usize = 107;
const V1_START: &[u8] = b"PROXY ";

/// What the beginning of a connection says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// More bytes are needed to tell.
    More,
    /// No header here.
    Absent,
    /// A header of `size` bytes; `client` is `None` for health checks and unknown families.
    Header { client: Option<SocketAddr>, size: usize },
    /// A header that breaks the rules.
    Broken(&'static str),
}

/// Looks for a header at the start of `bytes`.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    if starts_like(bytes, V2_SIGNATURE) {
        return parse_v2(bytes);
    }
    if starts_like(bytes, V1_START) {
        return parse_v1(bytes);
    }
    Parsed::Absent
}

fn starts_like(bytes: &[u8], start: &[u8]) -> bool {
    let n = bytes.len().min(start.len());
    n > 0 && bytes[..n] == start[..n]
}

fn parse_v1(bytes: &[u8]) -> Parsed {
    let window = &bytes[..bytes.len().min(V1_SIZE_MAX)];
    let Some(end) = window.windows(2).position(|w| w == b"\r\n") else {
        return if window.len() < V1_SIZE_MAX { Parsed::More } else { Parsed::Broken("line too long") };
    };
    let size = end + 2;
    let Ok(line) = std::str::from_utf8(&window[..end]) else { return Parsed::Broken("not ASCII") };
    let mut words = line.split(' ').skip(1);
    let client = match words.next() {
        Some("UNKNOWN") => return Parsed::Header { client: None, size },
        Some("TCP4" | "TCP6") => words.next().and_then(|a| a.parse::<IpAddr>().ok()),
        _ => None,
    };
    let port = words.nth(1).and_then(|p| p.parse::<u16>().ok());
    match (client, port) {
        (Some(ip), Some(port)) => Parsed::Header { client: Some(SocketAddr::new(ip, port)), size },
        _ => Parsed::Broken("malformed line"),
    }
}

fn parse_v2(bytes: &[u8]) -> Parsed {
    let Some(header) = bytes.first_chunk::<V2_HEADER_SIZE>() else { return Parsed::More };
    let extra = usize::from(u16::from_be_bytes([header[14], header[15]]));
    if header[12] >> 4 != 2 {
        return Parsed::Broken("unknown version");
    }
    if extra > V2_EXTRA_SIZE_MAX {
        return Parsed::Broken("header too long");
    }
    let size = V2_HEADER_SIZE + extra;
    let Some(body) = bytes.get(V2_HEADER_SIZE..size) else { return Parsed::More };
    let client = match (header[12] & 15, header[13]) {
        (0, _) => None,
        (1, 0x11) => match body.first_chunk::<12>() {
            Some(a) => Some(SocketAddr::new(
                Ipv4Addr::new(a[0], a[1], a[2], a[3]).into(),
                u16::from_be_bytes([a[8], a[9]]),
            )),
            None => return Parsed::Broken("too short for its addresses"),
        },
        (1, 0x21) => match (body.first_chunk::<16>(), body.get(32..34)) {
            (Some(a), Some(port)) => {
                Some(SocketAddr::new(Ipv6Addr::from(*a).into(), u16::from_be_bytes([port[0], port[1]])))
            }
            _ => return Parsed::Broken("too short for its addresses"),
        },
        (1, _) => None,
        _ => return Parsed::Broken("unknown command"),
    };
    Parsed::Header { client, size }
}

/// A header to send to a server behind this process. `client` unknown (a Unix socket) says so.
pub(crate) fn build(version: u8, client: Option<SocketAddr>, server: Option<SocketAddr>) -> Vec<u8> {
    let pair = match (client, server) {
        (Some(c), Some(s)) if c.is_ipv4() == s.is_ipv4() => Some((c, s)),
        (Some(c), Some(s)) => Some((as_v6(c), as_v6(s))),
        _ => None,
    };
    if version == 1 {
        return match pair {
            Some((c, s)) => {
                let family = if c.is_ipv4() { "TCP4" } else { "TCP6" };
                format!("PROXY {family} {} {} {} {}\r\n", c.ip(), s.ip(), c.port(), s.port()).into_bytes()
            }
            None => b"PROXY UNKNOWN\r\n".to_vec(),
        };
    }
    let mut out = V2_SIGNATURE.to_vec();
    let Some((c, s)) = pair else {
        out.extend_from_slice(&[0x20, 0, 0, 0]);
        return out;
    };
    out.extend_from_slice(if c.is_ipv4() { &[0x21, 0x11, 0, 12] } else { &[0x21, 0x21, 0, 36] });
    for address in [c, s] {
        match address.ip() {
            IpAddr::V4(a) => out.extend_from_slice(&a.octets()),
            IpAddr::V6(a) => out.extend_from_slice(&a.octets()),
        }
    }
    out.extend_from_slice(&c.port().to_be_bytes());
    out.extend_from_slice(&s.port().to_be_bytes());
    out
}

fn as_v6(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    };
    SocketAddr::new(ip.into(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_come_back_and_every_cut_asks_for_more() {
        let address = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        for version in [1, 2] {
            for (client, server) in [("10.1.2.3:4", "10.0.0.1:5432"), ("[fd00::1]:65535", "[::1]:1")] {
                let bytes = build(version, address(client), address(server));
                for cut in 1..bytes.len() {
                    assert_eq!(parse(&bytes[..cut]), Parsed::More, "version {version}, cut at {cut}");
                }
                let long = [&bytes[..], b"rest"].concat();
                assert_eq!(parse(&long), Parsed::Header { client: address(client), size: bytes.len() });
            }
            let local = build(version, None, address("10.0.0.1:1"));
            assert_eq!(parse(&local), Parsed::Header { client: None, size: local.len() });
        }
    }

    #[test]
    fn a_startup_packet_is_no_header() {
        assert_eq!(parse(&[0, 0, 0, 8]), Parsed::Absent);
        assert_eq!(parse(&[0x16, 3, 1]), Parsed::Absent);
    }

    #[test]
    fn broken_headers_are_named() {
        assert_eq!(parse(&[b'P'; 1]), Parsed::More);
        assert_eq!(parse(b"PROXY TCP4 nonsense 1 2 3\r\n"), Parsed::Broken("malformed line"));
        assert_eq!(parse(&[b"PROXY ", &[b'x'; 200][..]].concat()), Parsed::Broken("line too long"));
        let mut v2 = build(2, None, None);
        v2[14] = 0xff;
        assert_eq!(parse(&v2), Parsed::Broken("header too long"));
        let mut v3 = build(2, None, None);
        v3[12] = 0x31;
        assert_eq!(parse(&v3), Parsed::Broken("unknown version"));
    }
}
