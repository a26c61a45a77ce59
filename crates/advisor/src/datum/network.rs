//! Addresses of networks and of network cards.
//!
//! Sources: `src/backend/utils/adt/network.c`, `src/port/inet_net_ntop.c`, `mac.c`.

use std::net::{Ipv4Addr, Ipv6Addr};

/// `PGSQL_AF_INET` and `PGSQL_AF_INET6`
const FAMILIES: (u8, u8) = (2, 3);

/// The data of an `inet` without a header of `varlena`: family, bits of the mask, address. Only texts that the server prints so.
pub fn inet(text: &str) -> Option<Vec<u8>> {
    let (address, mask) = match text.split_once('/') {
        Some((address, mask)) => (address, Some(super::number::integer(mask)?)),
        None => (text, None),
    };
    let (family, bits_max, bytes) = match address.parse::<Ipv4Addr>() {
        Ok(address) => (FAMILIES.0, 32, address.octets().to_vec()),
        Err(_) => {
            let parsed = address.parse::<Ipv6Addr>().ok()?;
            if print(parsed) != address {
                return None;
            }
            (FAMILIES.1, 128, parsed.octets().to_vec())
        }
    };
    // The mask of a single address is not printed.
    let bits = match mask {
        Some(bits) if (0..bits_max).contains(&bits) => bits,
        Some(_) => return None,
        None => bits_max,
    };
    let mut data = vec![family, u8::try_from(bits).ok()?];
    data.extend(bytes);
    Some(data)
}

/// As `pg_inet_net_ntop` does: the first of the longest runs of zeros is `::`, and embedded IPv4 addresses have dots.
fn print(address: Ipv6Addr) -> String {
    let words = address.segments();
    let mut best = 0..0;
    let mut run = 0..0;
    for (at, word) in words.iter().enumerate() {
        run = match (*word == 0, run.end == at && !run.is_empty()) {
            (true, true) => run.start..at + 1,
            (true, false) => at..at + 1,
            (false, _) => 0..0,
        };
        if run.len() > best.len() {
            best = run.clone();
        }
    }
    if best.len() < 2 {
        best = 0..0;
    }
    let is_embedded = best.start == 0
        && match best.len() {
            6 => true,
            7 => words[7] != 1,
            5 => words[5] == 0xffff,
            _ => false,
        };
    let mut text = String::new();
    for (at, word) in words.iter().enumerate() {
        if best.contains(&at) {
            if at == best.start {
                text.push(':');
            }
            continue;
        }
        if at != 0 {
            text.push(':');
        }
        if at == 6 && is_embedded {
            let [.., a, b, c, d] = address.octets();
            text.push_str(&Ipv4Addr::new(a, b, c, d).to_string());
            return text;
        }
        text.push_str(&format!("{word:x}"));
    }
    if !best.is_empty() && best.end == 8 {
        text.push(':');
    }
    text
}

/// `macaddr`: six bytes of `08:00:2b:01:02:03`, in small letters.
pub fn macaddr(text: &str) -> Option<[u8; 6]> {
    let bytes = text.as_bytes();
    let is_colon = |(at, byte): (usize, &u8)| (at % 3 == 2) == (*byte == b':');
    if bytes.len() != 17 || !bytes.iter().enumerate().all(is_colon) {
        return None;
    }
    if bytes.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    super::hex(&text.replace(':', ""))?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_would_come_back_differently_have_no_image() {
        assert_eq!(inet("10.0.0.1"), Some(vec![2, 32, 10, 0, 0, 1]));
        assert_eq!(inet("10.0.0.0/8"), Some(vec![2, 8, 10, 0, 0, 0]));
        for text in
            ["::1", "::", "2001:db8::1", "::ffff:1.2.3.4", "fe80::1/64", "1:0:0:2::3", "1:2:3:4:5:6:7:8"]
        {
            assert!(inet(text).is_some(), "{text}");
        }
        for text in [
            "010.0.0.1",
            "10.0.0.1/32",
            "::1/128",
            "2001:DB8::1",
            "0:0:0:0:0:0:0:1",
            "2001:db8:0::1",
            "10.0.0",
            "10.0.0.256",
            "::ffff:102:304",
            "fe80::1%eth0",
            "",
            "10.0.0.1/08",
            "1:0:2:3:4:5:6:7/129",
            "10.0.0.1 ",
        ] {
            assert_eq!(inet(text), None, "{text}");
        }
        assert_eq!(macaddr("08:00:2b:01:02:03"), Some([8, 0, 0x2b, 1, 2, 3]));
        for text in [
            "08-00-2b-01-02-03",
            "08:00:2B:01:02:03",
            "0800.2b01.0203",
            "08:00:2b:01:02:0",
            "::::::::::::::::",
        ] {
            assert_eq!(macaddr(text), None, "{text}");
        }
    }
}
