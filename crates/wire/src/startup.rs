//! What a client sends before the first typed message: startup, cancel, TLS and GSS requests.
//!
//! Owns parsing and rewriting of these packets. A packet is at most [`STARTUP_SIZE_MAX`] bytes
//! (PostgreSQL `MAX_STARTUP_PACKET_LENGTH`), checked from its length word before anything is kept.
//! Parameters are bytes, not text: PostgreSQL does not say their encoding.

use crate::error::Error;

/// Largest startup packet a server accepts, in bytes, length word included.
pub const STARTUP_SIZE_MAX: usize = 10_000;
/// Protocol 3.0.
pub const PROTOCOL_3_0: u32 = 3 << 16;

const CANCEL_CODE: u32 = 80_877_102;
const SSL_CODE: u32 = 80_877_103;
const GSS_CODE: u32 = 80_877_104;
const TLS_HANDSHAKE_RECORD: u8 = 0x16;
/// How HTTP requests begin: read as a length, each is far above [`STARTUP_SIZE_MAX`].
const HTTP_METHODS: [&[u8; 4]; 10] =
    [b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "];
/// Length word, code, pid and at least one byte of key.
const CANCEL_SIZE_MIN: usize = 13;
/// Protocol 3.2: keys are at most 256 bytes.
const CANCEL_SIZE_MAX: usize = 12 + 256;

/// The first packet of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum First {
    /// SSLRequest.
    Ssl,
    /// GSSENCRequest.
    Gss,
    /// CancelRequest, whole and verbatim; the key is opaque.
    Cancel(Vec<u8>),
    /// A startup message of any 3.x version.
    Startup(StartupPacket),
    /// The connection begins with a TLS handshake (`sslnegotiation=direct`).
    TlsClientHello,
}

/// Parses the first packet. `Ok(None)` asks for more bytes; otherwise the packet and the bytes it took
/// (0 for [`First::TlsClientHello`], which belongs to the TLS library).
pub fn parse_first(bytes: &[u8]) -> Result<Option<(First, usize)>, Error> {
    if bytes.first() == Some(&TLS_HANDSHAKE_RECORD) {
        return Ok(Some((First::TlsClientHello, 0)));
    }
    let Some(length) = read_u32(bytes, 0) else { return Ok(None) };
    if HTTP_METHODS.iter().any(|method| bytes.starts_with(*method)) {
        return Err(Error::protocol("first packet", "a startup packet", "an HTTP request"));
    }
    let length = length as usize;
    if length < 8 {
        return Err(Error::protocol(
            "startup packet",
            "a length of at least 8",
            format!("a length of {length}"),
        ));
    }
    if length > STARTUP_SIZE_MAX {
        return Err(Error::Limit {
            what: "startup packet size",
            allowed: STARTUP_SIZE_MAX as u64,
            found: length as u64,
        });
    }
    if bytes.len() < length {
        return Ok(None);
    }
    let packet = &bytes[..length];
    let code = read_u32(packet, 4).unwrap_or_default();
    let first = match code {
        SSL_CODE | GSS_CODE if length != 8 => {
            return Err(Error::protocol("encryption request", "8 bytes", format!("{length} bytes")));
        }
        SSL_CODE => First::Ssl,
        GSS_CODE => First::Gss,
        CANCEL_CODE => {
            if !(CANCEL_SIZE_MIN..=CANCEL_SIZE_MAX).contains(&length) {
                return Err(Error::protocol(
                    "cancel request",
                    format!("{CANCEL_SIZE_MIN} to {CANCEL_SIZE_MAX} bytes"),
                    format!("{length} bytes"),
                ));
            }
            First::Cancel(packet.to_vec())
        }
        _ => First::Startup(StartupPacket::parse(code, &packet[8..])?),
    };
    Ok(Some((first, length)))
}

/// A startup message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartupPacket {
    /// Major version in the high half, minor in the low half.
    pub protocol: u32,
    /// Names and values in the order they came, without the closing zero bytes.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

impl StartupPacket {
    fn parse(protocol: u32, body: &[u8]) -> Result<Self, Error> {
        if protocol >> 16 != 3 {
            return Err(Error::protocol(
                "startup packet",
                "protocol 3.x",
                format!("protocol {}.{}", protocol >> 16, protocol & 0xffff),
            ));
        }
        let Some((0, strings)) = body.split_last().map(|(last, rest)| (*last, rest)) else {
            return Err(Error::protocol("startup packet", "a closing zero byte", "another byte"));
        };
        let mut parameters = Vec::new();
        let mut rest = strings;
        while !rest.is_empty() {
            let (name, after) = take_string(rest)?;
            if name.is_empty() {
                return Err(Error::protocol("startup packet", "a parameter name", "an empty name"));
            }
            let (value, after) = take_string(after)?;
            parameters.push((name.to_vec(), value.to_vec()));
            rest = after;
        }
        Ok(Self { protocol, parameters })
    }

    /// The last value given for `name`, as the server takes it.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.parameters.iter().rev().find(|(n, _)| n == name.as_bytes()).map(|(_, v)| v.as_slice())
    }

    /// Replaces `name`, or appends it.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        match self.parameters.iter_mut().find(|(n, _)| n == name.as_bytes()) {
            Some((_, old)) => *old = value.to_vec(),
            None => self.parameters.push((name.as_bytes().to_vec(), value.to_vec())),
        }
    }

    /// Removes every `name` and returns the last value.
    pub fn remove(&mut self, name: &str) -> Option<Vec<u8>> {
        let last = self.get(name).map(<[u8]>::to_vec);
        self.parameters.retain(|(n, _)| n != name.as_bytes());
        last
    }

    /// The role that logs in; empty when it is missing.
    pub fn user(&self) -> &[u8] {
        self.get("user").unwrap_or_default()
    }

    /// The database, which is the user's name when it is not given.
    pub fn database(&self) -> &[u8] {
        match self.get("database") {
            Some(name) if !name.is_empty() => name,
            _ => self.user(),
        }
    }

    /// True for a physical replication connection or a logical one (`replication=database`).
    pub fn is_replication(&self) -> bool {
        self.get("replication").is_some_and(|value| {
            !matches!(value.to_ascii_lowercase().as_slice(), b"" | b"0" | b"off" | b"false" | b"no")
        })
    }

    /// The packet as bytes, length word first.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend_from_slice(&self.protocol.to_be_bytes());
        for (name, value) in &self.parameters {
            for text in [name, value] {
                out.extend_from_slice(text);
                out.push(0);
            }
        }
        out.push(0);
        let length = out.len() as u32;
        out[..4].copy_from_slice(&length.to_be_bytes());
        out
    }
}

fn take_string(bytes: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    match bytes.iter().position(|b| *b == 0) {
        Some(end) => Ok((&bytes[..end], &bytes[end + 1..])),
        None => Err(Error::protocol("startup packet", "a zero byte after each string", "its end")),
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(pairs: &[(&str, &str)]) -> StartupPacket {
        StartupPacket {
            protocol: PROTOCOL_3_0,
            parameters: pairs.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect(),
        }
    }

    #[test]
    fn a_startup_packet_comes_back_byte_for_byte() {
        let bytes = packet(&[("user", "u"), ("_pq_.x", ""), ("options", "-c a=b")]).to_bytes();
        for cut in 0..bytes.len() {
            assert_eq!(parse_first(&bytes[..cut]), Ok(None), "cut at {cut}");
        }
        let (first, used) = parse_first(&bytes).unwrap().unwrap();
        let First::Startup(parsed) = first else { panic!("not a startup packet") };
        assert_eq!((used, parsed.to_bytes()), (bytes.len(), bytes));
        assert_eq!(parsed.database(), b"u");
    }

    #[test]
    fn sizes_and_forms_are_checked_before_anything_is_kept() {
        assert!(matches!(parse_first(&10_001u32.to_be_bytes()), Err(Error::Limit { found: 10_001, .. })));
        assert!(matches!(parse_first(&7u32.to_be_bytes()), Err(Error::Protocol { .. })));
        let mut unterminated = packet(&[("user", "u")]).to_bytes();
        *unterminated.last_mut().unwrap() = b'x';
        assert!(matches!(parse_first(&unterminated), Err(Error::Protocol { .. })));
        let mut old = packet(&[]).to_bytes();
        old[5] = 2;
        assert!(parse_first(&old).unwrap_err().to_string().contains("protocol 2.0"));
    }

    #[test]
    fn an_http_request_is_called_by_its_name() {
        for line in ["GET / HTTP/1.1", "POST /x HTTP/1.0", "PRI * HTTP/2.0"] {
            assert_eq!(parse_first(&line.as_bytes()[..3]), Ok(None));
            let error = parse_first(line.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("expected a startup packet, found an HTTP request"), "{error}");
        }
        let methods = HTTP_METHODS.iter().map(|method| u32::from_be_bytes(**method));
        assert!(methods.min() > Some(STARTUP_SIZE_MAX as u32), "no startup packet begins so");
    }

    #[test]
    fn cancel_keys_of_any_length_stay_opaque() {
        for key_len in [4, 32, 256] {
            let mut bytes = (12 + key_len as u32).to_be_bytes().to_vec();
            bytes.extend_from_slice(&CANCEL_CODE.to_be_bytes());
            bytes.extend(std::iter::repeat_n(7, 4 + key_len));
            assert_eq!(parse_first(&bytes), Ok(Some((First::Cancel(bytes.clone()), bytes.len()))));
        }
    }

    #[test]
    fn encryption_requests_are_told_apart() {
        for (code, first) in [(SSL_CODE, First::Ssl), (GSS_CODE, First::Gss)] {
            let mut bytes = 8u32.to_be_bytes().to_vec();
            bytes.extend_from_slice(&code.to_be_bytes());
            assert_eq!(parse_first(&bytes), Ok(Some((first, 8))));
        }
        assert_eq!(parse_first(&[0x16, 3]), Ok(Some((First::TlsClientHello, 0))));
    }

    #[test]
    fn removing_a_key_takes_every_copy() {
        let mut p = packet(&[("a", "1"), ("user", "u"), ("a", "2")]);
        assert_eq!(p.remove("a"), Some(b"2".to_vec()));
        assert_eq!(p, packet(&[("user", "u")]));
        assert!(packet(&[("replication", "database")]).is_replication());
        assert!(!packet(&[("replication", "off")]).is_replication());
    }
}
