//! PostgreSQL's typed messages: headers, the few tags that matter here, and builders for what a gateway says itself.
//!
//! A message is `tag (1) | length (4, big-endian, counts itself but not the tag) | body`. Source: PostgreSQL
//! documentation, "Message Formats".

use crate::error::Error;

/// Tag and length word.
pub const HEADER_SIZE: usize = 5;
/// Largest message passed on; PostgreSQL's own limit is `MaxAllocSize` (1 GiB - 1).
pub const MESSAGE_SIZE_MAX: u32 = 0x3fff_ffff;

/// Message tags by direction.
pub mod tag {
    /// Server: authentication request.
    pub const AUTHENTICATION: u8 = b'R';
    /// Server: key for cancel requests.
    pub const BACKEND_KEY_DATA: u8 = b'K';
    /// Server: a parameter's value.
    pub const PARAMETER_STATUS: u8 = b'S';
    /// Server: ready for the next query.
    pub const READY_FOR_QUERY: u8 = b'Z';
    /// Server: an error.
    pub const ERROR_RESPONSE: u8 = b'E';
    /// Server: a notice.
    pub const NOTICE_RESPONSE: u8 = b'N';
    /// Server: options or versions it does not know.
    pub const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';
    /// Server: a row.
    pub const DATA_ROW: u8 = b'D';
    /// Server: columns of the rows to come.
    pub const ROW_DESCRIPTION: u8 = b'T';
    /// Server: a command is done.
    pub const COMMAND_COMPLETE: u8 = b'C';
    /// Server: the answer to an empty query.
    pub const EMPTY_QUERY_RESPONSE: u8 = b'I';
    /// Server: an Execute has given as many rows as it asked for.
    pub const PORTAL_SUSPENDED: u8 = b's';
    /// Server: a Parse is done.
    pub const PARSE_COMPLETE: u8 = b'1';
    /// Server: a Close is done.
    pub const CLOSE_COMPLETE: u8 = b'3';
    /// Server: COPY FROM STDIN begins.
    pub const COPY_IN_RESPONSE: u8 = b'G';
    /// Server: COPY in both directions begins.
    pub const COPY_BOTH_RESPONSE: u8 = b'W';
    /// Both: COPY data.
    pub const COPY_DATA: u8 = b'd';
    /// Client: simple query.
    pub const QUERY: u8 = b'Q';
    /// Client: parse a statement.
    pub const PARSE: u8 = b'P';
    /// Client: tie a prepared statement to a portal.
    pub const BIND: u8 = b'B';
    /// Client: run a portal.
    pub const EXECUTE: u8 = b'E';
    /// Client: forget a prepared statement or a portal.
    pub const CLOSE: u8 = b'C';
    /// Client: end of a series of the extended protocol.
    pub const SYNC: u8 = b'S';
    /// Client: call a function.
    pub const FUNCTION_CALL: u8 = b'F';
    /// Client: COPY data is complete.
    pub const COPY_DONE: u8 = b'c';
    /// Client: COPY is given up.
    pub const COPY_FAIL: u8 = b'f';
    /// Client: password or SASL data.
    pub const PASSWORD: u8 = b'p';
    /// Client: end of the session.
    pub const TERMINATE: u8 = b'X';
    /// Restart dialect: a compressed frame. Ack dialect: CompressionAck.
    pub const COMPRESSION_ACK: u8 = b'z';
    /// Ack dialect: SetCompressionMethod.
    pub const SET_COMPRESSION_METHOD: u8 = b'k';
    /// Ack dialect: CompressedData.
    pub const COMPRESSED_DATA: u8 = b'm';
}

/// Tag and length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The type byte.
    pub tag: u8,
    /// The length word: itself and the body.
    pub length: u32,
}

impl Header {
    /// Bytes of the whole message, tag included.
    pub fn total(self) -> usize {
        self.length as usize + 1
    }

    /// Bytes of the body.
    pub fn body_size(self) -> usize {
        self.length as usize - 4
    }
}

/// The header at the start of `bytes`: `None` while fewer than five are there, an error when its length is
/// impossible.
#[inline]
pub fn header(bytes: &[u8]) -> Result<Option<Header>, Error> {
    let Some((&[tag, a, b, c, d], _)) = bytes.split_first_chunk::<HEADER_SIZE>() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]);
    if !(4..=MESSAGE_SIZE_MAX).contains(&length) {
        return Err(impossible(tag, length));
    }
    Ok(Some(Header { tag, length }))
}

#[cold]
fn impossible(tag: u8, length: u32) -> Error {
    if length < 4 {
        let found = format!("{length} in a message of type {}", printable(tag));
        return Error::protocol("message length", "at least 4", found);
    }
    Error::Limit { what: "message length", allowed: MESSAGE_SIZE_MAX.into(), found: length.into() }
}

/// A tag for an error text.
pub(crate) fn printable(tag: u8) -> String {
    if tag.is_ascii_graphic() { format!("'{}'", tag as char) } else { format!("0x{tag:02x}") }
}

/// Any message from its tag and body.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_SIZE + body.len());
    out.push(tag);
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// What an ErrorResponse or NoticeResponse says.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// `FATAL`, `ERROR`, `WARNING`, ...
    pub severity: &'a str,
    /// Five characters.
    pub sqlstate: &'a str,
    /// The primary message.
    pub message: &'a str,
    /// More facts.
    pub detail: Option<&'a str>,
    /// The next step.
    pub hint: Option<&'a str>,
}

impl Report<'_> {
    fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let fields = [
            (b'S', Some(self.severity)),
            (b'V', Some(self.severity)),
            (b'C', Some(self.sqlstate)),
            (b'M', Some(self.message)),
            (b'D', self.detail),
            (b'H', self.hint),
        ];
        for (code, text) in fields {
            if let Some(text) = text {
                out.push(code);
                push_string(&mut out, text);
            }
        }
        out.push(0);
        out
    }

    /// As an ErrorResponse.
    pub fn error_response(&self) -> Vec<u8> {
        message(tag::ERROR_RESPONSE, &self.body())
    }

    /// As a NoticeResponse.
    pub fn notice_response(&self) -> Vec<u8> {
        message(tag::NOTICE_RESPONSE, &self.body())
    }
}

/// The fields of an ErrorResponse or NoticeResponse body: `(code, text)`, read leniently.
pub fn report_fields(body: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    body.split(|b| *b == 0).filter_map(|field| field.split_first().map(|(code, text)| (*code, text)))
}

/// A ParameterStatus.
pub fn parameter_status(name: &str, value: &str) -> Vec<u8> {
    let mut body = Vec::new();
    push_string(&mut body, name);
    push_string(&mut body, value);
    message(tag::PARAMETER_STATUS, &body)
}

/// Name and value of a ParameterStatus body.
pub fn parse_parameter_status(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = body.splitn(3, |b| *b == 0);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(name), Some(value), Some(_)) => Some((name, value)),
        _ => None,
    }
}

/// A ReadyForQuery with the transaction status `I`, `T` or `E`.
pub fn ready_for_query(status: u8) -> Vec<u8> {
    message(tag::READY_FOR_QUERY, &[status])
}

/// A CommandComplete.
pub fn command_complete(text: &str) -> Vec<u8> {
    let mut body = Vec::new();
    push_string(&mut body, text);
    message(tag::COMMAND_COMPLETE, &body)
}

/// An authentication request of `kind` with its data.
pub fn authentication(kind: u32, data: &[u8]) -> Vec<u8> {
    message(tag::AUTHENTICATION, &[&kind.to_be_bytes()[..], data].concat())
}

/// The kind word of an authentication request body.
pub fn authentication_kind(body: &[u8]) -> Option<u32> {
    body.first_chunk::<4>().map(|b| u32::from_be_bytes(*b))
}

/// A RowDescription of text columns.
pub fn row_description(names: &[&str]) -> Vec<u8> {
    const TEXT_OID: u32 = 25;
    let mut body = (names.len() as u16).to_be_bytes().to_vec();
    for name in names {
        push_string(&mut body, name);
        body.extend_from_slice(&[0; 6]);
        body.extend_from_slice(&TEXT_OID.to_be_bytes());
        body.extend_from_slice(&(-1i16).to_be_bytes());
        body.extend_from_slice(&(-1i32).to_be_bytes());
        body.extend_from_slice(&[0; 2]);
    }
    message(tag::ROW_DESCRIPTION, &body)
}

/// A DataRow of text values; `None` is NULL.
pub fn data_row(values: &[Option<&str>]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        match value {
            Some(text) => {
                body.extend_from_slice(&(text.len() as u32).to_be_bytes());
                body.extend_from_slice(text.as_bytes());
            }
            None => body.extend_from_slice(&(-1i32).to_be_bytes()),
        }
    }
    message(tag::DATA_ROW, &body)
}

/// Text with its closing zero byte; inner zero bytes are dropped, they would end the field early.
fn push_string(out: &mut Vec<u8>, text: &str) {
    out.extend(text.bytes().filter(|b| *b != 0));
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_lengths_are_refused() {
        assert_eq!(header(b"Q\0\0\0"), Ok(None));
        assert!(header(b"Q\0\0\0\x03").unwrap_err().to_string().contains("type 'Q'"));
        assert!(matches!(header(b"Q\x7f\0\0\0"), Err(Error::Limit { .. })));
        assert_eq!(header(b"Q\0\0\0\x08rest"), Ok(Some(Header { tag: b'Q', length: 8 })));
    }

    #[test]
    fn an_error_response_names_all_its_fields() {
        let report =
            Report { severity: "FATAL", sqlstate: "08P01", message: "m\0x", detail: None, hint: Some("h") };
        let bytes = report.error_response();
        let fields: Vec<_> = report_fields(&bytes[HEADER_SIZE..]).collect();
        assert_eq!(
            fields,
            [(b'S', &b"FATAL"[..]), (b'V', b"FATAL"), (b'C', b"08P01"), (b'M', b"mx"), (b'H', b"h")]
        );
        assert_eq!(header(&bytes).unwrap().unwrap().total(), bytes.len());
    }

    #[test]
    fn a_parameter_status_is_read_back() {
        let bytes = parameter_status("a", "b c");
        assert_eq!(parse_parameter_status(&bytes[HEADER_SIZE..]), Some((&b"a"[..], &b"b c"[..])));
        assert_eq!(parse_parameter_status(b"unterminated"), None);
    }
}
