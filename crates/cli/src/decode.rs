//! `pgshrink decode`: the messages of a captured session, a line each.

use crate::args::DecodeArgs;
use crate::error::Error;
use crate::{EXIT_FAILED, EXIT_PROBLEM};
use pgshrink_codec::counted;
use pgshrink_wire::capture::{
    Finding, RECORD_HEADER_SIZE, Reader, RecordHeader, Unreadable, Way, record_header,
};
use pgshrink_wire::message::{Header, authentication_kind, report_fields, tag};
use pgshrink_wire::startup::First;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// Characters of a text that a line shows.
const TEXT_SIZE_MAX: usize = 100;

/// Runs the subcommand.
pub(crate) fn main(args: &DecodeArgs) -> ExitCode {
    let out = BufWriter::new(io::stdout().lock());
    match decode(args, out) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_PROBLEM),
        // Whoever read the output has seen enough.
        Err(Error::Write { source, .. }) if source.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pgshrink: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Prints everything; false when something could not be read.
fn decode(args: &DecodeArgs, mut out: impl Write) -> Result<bool, Error> {
    let unreadable = |reason: String| Error::Capture { path: args.capture.clone(), reason };
    let file = File::open(&args.capture).map_err(|e| unreadable(e.to_string()))?;
    let (mut file, mut offset) = (BufReader::new(file), 0u64);
    let mut readers = BTreeMap::<u32, Reader>::new();
    let mut lines = Lines { all_read: true, data: args.data, text: Vec::new() };
    while let Some(record) = next_record(&mut file, offset).map_err(unreadable)? {
        let (header, bytes) = record;
        let at = format!("at byte {offset} of {}", name(&args.capture));
        offset += (RECORD_HEADER_SIZE + bytes.len()) as u64;
        if args.connection.is_some_and(|wanted| wanted != header.connection) {
            continue;
        }
        let reader = readers.entry(header.connection).or_default();
        reader.feed(header.way, &bytes, |found| lines.put(&header, &at, found));
        out.write_all(&lines.text).map_err(written)?;
        lines.text.clear();
    }
    for (connection, _) in readers.iter().filter(|(_, reader)| !reader.is_whole()) {
        writeln!(
            out,
            "connection {connection} ends inside a message: the capture or the connection was cut off"
        )
        .map_err(written)?;
        lines.all_read = false;
    }
    if readers.is_empty() {
        return Err(unreadable("it does not contain this connection".to_owned()));
    }
    out.flush().map_err(written)?;
    Ok(lines.all_read)
}

fn written(source: io::Error) -> Error {
    Error::Write { what: "the messages".to_owned(), source }
}

fn name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// The record at `offset`; `None` at the file's end.
fn next_record(file: &mut impl Read, offset: u64) -> Result<Option<(RecordHeader, Vec<u8>)>, String> {
    let wrong = |reason: String| format!("record at byte {offset}: {reason}");
    let mut head = Vec::new();
    file.take(RECORD_HEADER_SIZE as u64).read_to_end(&mut head).map_err(|e| wrong(e.to_string()))?;
    if head.is_empty() {
        return Ok(None);
    }
    let Ok(head) = <[u8; RECORD_HEADER_SIZE]>::try_from(head) else {
        return Err(wrong("the file ends inside its header".to_owned()));
    };
    let header = record_header(&head).map_err(|e| wrong(format!("{e}; is this a relay's capture?")))?;
    let mut bytes = Vec::new();
    file.take(header.size.into()).read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
    if bytes.len() < header.size as usize {
        return Err(wrong(format!(
            "the file ends after {} of its {}",
            bytes.len(),
            counted(header.size.into(), "byte", "bytes")
        )));
    }
    Ok(Some((header, bytes)))
}

/// Collects the lines of one record.
struct Lines {
    /// Nothing was unreadable so far.
    all_read: bool,
    data: bool,
    text: Vec<u8>,
}

impl Lines {
    fn put(&mut self, record: &RecordHeader, at: &str, found: Finding<'_>) {
        let (way, what) = match found {
            Finding::First(first) => (Way::ToServer, first_line(first)),
            Finding::Agreed(None) => (Way::ToClient, "no compression is agreed".to_owned()),
            Finding::Agreed(Some(agreed)) => {
                (Way::ToClient, format!("CompressionAck: {}", agreed.describe()))
            }
            Finding::Message(way, header, body) => (way, self.message_line(way, header, body)),
            Finding::Unreadable(way, why) => {
                self.all_read = false;
                (way, unreadable_line(&why, at))
            }
        };
        let arrow = if way == Way::ToServer { "->" } else { "<-" };
        let line = format!("{:12.6} {:5} {arrow} {what}\n", record.seconds, record.connection);
        self.text.extend_from_slice(line.as_bytes());
    }

    fn message_line(&self, way: Way, header: Header, body: &[u8]) -> String {
        let detail = match (way, header.tag) {
            (Way::ToServer, tag::PASSWORD) | (_, tag::BACKEND_KEY_DATA) => String::new(),
            (Way::ToClient, tag::AUTHENTICATION) => {
                authentication_kind(body).map(|kind| format!("request {kind}")).unwrap_or_default()
            }
            (Way::ToClient, tag::ERROR_RESPONSE | tag::NOTICE_RESPONSE) => {
                let shown = report_fields(body).filter(|(code, _)| matches!(code, b'S' | b'C' | b'M'));
                shown.map(|(_, text)| shown_text(text)).collect::<Vec<_>>().join(" ")
            }
            (Way::ToClient, tag::DATA_ROW) if !self.data => match body.first_chunk::<2>() {
                Some(count) => counted(u16::from_be_bytes(*count).into(), "column", "columns"),
                None => String::new(),
            },
            (_, tag::COPY_DATA) | (Way::ToServer, b'B') if !self.data => String::new(),
            _ => shown_text(body),
        };
        let name = message_name(way, header.tag);
        let line = format!("{name} {} bytes {detail}", header.total());
        line.trim_end().to_owned()
    }
}

fn first_line(first: &First) -> String {
    match first {
        First::Ssl => "SSLRequest".to_owned(),
        First::Gss => "GSSENCRequest".to_owned(),
        First::Cancel(_) => "CancelRequest".to_owned(),
        First::TlsClientHello => "TLS ClientHello".to_owned(),
        First::Startup(packet) => {
            let pair =
                |(name, value): &(Vec<u8>, Vec<u8>)| format!(" {}={}", shown_text(name), shown_text(value));
            let (major, minor) = (packet.protocol >> 16, packet.protocol & 0xffff);
            let parameters: String = packet.parameters.iter().map(pair).collect();
            format!("StartupMessage protocol {major}.{minor}{parameters}")
        }
        _ => "another first packet".to_owned(),
    }
}

fn unreadable_line(why: &Unreadable, at: &str) -> String {
    match why {
        Unreadable::Tls => format!("cannot be read from here on ({at}): the two ends continue with TLS"),
        Unreadable::BeginsInside => format!(
            "cannot be read ({at}): the capture starts inside this session, so the negotiated settings are \
             unknown, and frames may refer to an earlier context (preserved); capture from the start of \
             the connection, or use context per-frame"
        ),
        Unreadable::Error(error) => format!(
            "cannot be read from here on ({at}): {error}; with a preserved context all later frames refer to this one"
        ),
    }
}

/// The begin of a text, on one line.
fn shown_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * TEXT_SIZE_MAX)]).into_owned();
    let text = text.trim_matches('\0');
    let mut shown: String = text.chars().take(TEXT_SIZE_MAX).flat_map(char::escape_default).collect();
    if text.chars().count() > TEXT_SIZE_MAX {
        shown.push_str("...");
    }
    shown.replace("\\u{0}", " ").replace("\\'", "'").replace("\\\"", "\"")
}

/// As PostgreSQL's documentation calls it, "Message Formats".
fn message_name(way: Way, tag: u8) -> Cow<'static, str> {
    let name = match (way, tag) {
        (_, b'd') => "CopyData",
        (_, b'c') => "CopyDone",
        (Way::ToServer, b'f') => "CopyFail",
        (Way::ToServer, b'B') => "Bind",
        (Way::ToServer, b'C') => "Close",
        (Way::ToServer, b'D') => "Describe",
        (Way::ToServer, b'E') => "Execute",
        (Way::ToServer, b'F') => "FunctionCall",
        (Way::ToServer, b'H') => "Flush",
        (Way::ToServer, b'P') => "Parse",
        (Way::ToServer, b'p') => "PasswordMessage",
        (Way::ToServer, b'Q') => "Query",
        (Way::ToServer, b'S') => "Sync",
        (Way::ToServer, b'X') => "Terminate",
        (Way::ToClient, b'1') => "ParseComplete",
        (Way::ToClient, b'2') => "BindComplete",
        (Way::ToClient, b'3') => "CloseComplete",
        (Way::ToClient, b'A') => "NotificationResponse",
        (Way::ToClient, b'C') => "CommandComplete",
        (Way::ToClient, b'D') => "DataRow",
        (Way::ToClient, b'E') => "ErrorResponse",
        (Way::ToClient, b'G') => "CopyInResponse",
        (Way::ToClient, b'H') => "CopyOutResponse",
        (Way::ToClient, b'I') => "EmptyQueryResponse",
        (Way::ToClient, b'K') => "BackendKeyData",
        (Way::ToClient, b'N') => "NoticeResponse",
        (Way::ToClient, b'n') => "NoData",
        (Way::ToClient, b'R') => "Authentication",
        (Way::ToClient, b'S') => "ParameterStatus",
        (Way::ToClient, b's') => "PortalSuspended",
        (Way::ToClient, b'T') => "RowDescription",
        (Way::ToClient, b't') => "ParameterDescription",
        (Way::ToClient, b'V') => "FunctionCallResponse",
        (Way::ToClient, b'v') => "NegotiateProtocolVersion",
        (Way::ToClient, b'W') => "CopyBothResponse",
        (Way::ToClient, b'Z') => "ReadyForQuery",
        _ => return format!("message 0x{tag:02x}").into(),
    };
    name.into()
}
