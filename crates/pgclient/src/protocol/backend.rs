//! Bodies of a server's messages.

use std::fmt;

use super::Malformed;

/// Longest piece of a server's report that is kept, in bytes.
pub const REPORT_FIELD_SIZE_MAX: usize = 8 << 10;
/// Most SASL mechanisms read from an authentication request.
pub const MECHANISM_COUNT_MAX: usize = 16;

/// What an ErrorResponse or NoticeResponse says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// `FATAL`, `ERROR`, `WARNING` and so on, never translated.
    pub severity: String,
    /// Five characters.
    pub sqlstate: String,
    /// The primary message.
    pub message: String,
    /// More facts.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Report {
    /// Reads a body leniently: a field that is lacking is empty.
    pub fn parse(body: &[u8]) -> Self {
        let mut report = Report::default();
        for (code, text) in pgshrink_wire::message::report_fields(body) {
            let text = || {
                let kept = &text[..text.len().min(REPORT_FIELD_SIZE_MAX)];
                String::from_utf8_lossy(kept).into_owned()
            };
            match code {
                b'V' => report.severity = text(),
                b'S' if report.severity.is_empty() => report.severity = text(),
                b'C' => report.sqlstate = text(),
                b'M' => report.message = text(),
                b'D' => report.detail = Some(text()),
                b'H' => report.hint = Some(text()),
                _ => {}
            }
        }
        report
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (SQLSTATE {})", self.severity, self.message, self.sqlstate)?;
        if let Some(detail) = &self.detail {
            write!(f, "\nDETAIL: {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nHINT: {hint}")?;
        }
        Ok(())
    }
}

/// What the server asks for in order to authenticate the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// Nothing more.
    Ok,
    /// The password in clear.
    Cleartext,
    /// The password hashed with this salt.
    Md5([u8; 4]),
    /// One of these SASL mechanisms.
    Sasl(Vec<&'a str>),
    /// The next step of a SASL exchange.
    SaslContinue(&'a [u8]),
    /// The last step of a SASL exchange.
    SaslFinal(&'a [u8]),
    /// A method that this client does not have, by its name.
    Other(String),
}

impl<'a> Authentication<'a> {
    /// Reads the body of an authentication request.
    ///
    /// # Errors
    /// [`Malformed`] when the body is shorter than its kind.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new("authentication request", body);
        Ok(match fields.i32()? {
            0 => Authentication::Ok,
            3 => Authentication::Cleartext,
            5 => Authentication::Md5(fields.array()?),
            10 => Authentication::Sasl(mechanisms(fields)?),
            11 => Authentication::SaslContinue(fields.rest),
            12 => Authentication::SaslFinal(fields.rest),
            2 => Authentication::Other("Kerberos V5".into()),
            6 => Authentication::Other("SCM credentials".into()),
            7 | 8 => Authentication::Other("GSSAPI".into()),
            9 => Authentication::Other("SSPI".into()),
            code => Authentication::Other(format!("method {code}")),
        })
    }
}

fn mechanisms<'a>(mut fields: Fields<'a>) -> Result<Vec<&'a str>, Malformed> {
    let mut found = Vec::new();
    while found.len() < MECHANISM_COUNT_MAX {
        let name = fields.string()?;
        if name.is_empty() {
            break;
        }
        found.extend(std::str::from_utf8(name));
    }
    Ok(found)
}

/// One column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type's OID.
    pub type_oid: u32,
}

/// Reads a RowDescription.
///
/// # Errors
/// [`Malformed`] when the body is cut off or has more than it says.
pub fn row_description(body: &[u8]) -> Result<Vec<Column>, Malformed> {
    let mut fields = Fields::new("RowDescription", body);
    let count = fields.count()?;
    let mut columns = Vec::new();
    for _ in 0..count {
        let name = String::from_utf8_lossy(fields.string()?).into_owned();
        let _table_and_column: [u8; 6] = fields.array()?;
        let type_oid = u32::from_be_bytes(fields.array()?);
        let _size_modifier_format: [u8; 8] = fields.array()?;
        columns.push(Column { name, type_oid });
    }
    fields.end()?;
    Ok(columns)
}

/// A DataRow that is known to be well formed. It borrows the bytes it was read from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    count: usize,
    values: &'a [u8],
}

impl<'a> Row<'a> {
    /// Checks every length in the body.
    ///
    /// # Errors
    /// [`Malformed`] when the body is cut off or has more than it says.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new("DataRow", body);
        let count = fields.count()?;
        let values = fields.rest;
        for _ in 0..count {
            fields.value()?;
        }
        fields.end()?;
        Ok(Row { count, values })
    }

    /// How many values it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no values at all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The values in order, `None` for NULL.
    pub fn values(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut fields = Fields::new("DataRow", self.values);
        (0..self.count).map_while(move |_| fields.value().ok())
    }

    /// One value; `None` for NULL and behind the last column.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.values().nth(index).flatten()
    }
}

impl fmt::Debug for Row<'_> {
    /// Sizes only: rows are the user's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values().map(|value| value.map(<[u8]>::len))).finish()
    }
}

/// Process and secret of a BackendKeyData.
///
/// # Errors
/// [`Malformed`] when there is no room for both.
pub fn backend_key(body: &[u8]) -> Result<(u32, &[u8]), Malformed> {
    let mut fields = Fields::new("BackendKeyData", body);
    let process = u32::from_be_bytes(fields.array()?);
    match fields.rest.len() {
        4..=256 => Ok((process, fields.rest)),
        _ => Err(fields.malformed("a key of 4 to 256 bytes")),
    }
}

/// A part of a replication stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Streamed<'a> {
    /// XLogData.
    Wal {
        /// Position of the first byte of `data`.
        start: u64,
        /// The server's end of WAL.
        end: u64,
        /// The server's clock, microseconds since 2000-01-01 UTC.
        clock: i64,
        /// WAL.
        data: &'a [u8],
    },
    /// Primary keepalive.
    Keepalive {
        /// The server's end of WAL.
        end: u64,
        /// The server's clock, microseconds since 2000-01-01 UTC.
        clock: i64,
        /// The server wants a status update now.
        reply: bool,
    },
}

impl<'a> Streamed<'a> {
    /// Reads the payload of a CopyData message of a replication stream.
    ///
    /// # Errors
    /// [`Malformed`] when it is neither, or too short.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new("replication message", payload);
        match fields.array()? {
            [b'w'] => {
                let (start, end, clock) = (fields.u64()?, fields.u64()?, fields.u64()? as i64);
                Ok(Streamed::Wal { start, end, clock, data: fields.rest })
            }
            [b'k'] => {
                let (end, clock) = (fields.u64()?, fields.u64()? as i64);
                let [reply] = fields.array()?;
                Ok(Streamed::Keepalive { end, clock, reply: reply != 0 })
            }
            [other] => Err(Malformed {
                what: "replication message",
                expected: "'w' or 'k'",
                found: format!("0x{other:02x}"),
            }),
        }
    }
}

/// A cursor over a message's body.
struct Fields<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(what: &'static str, rest: &'a [u8]) -> Self {
        Self { what, rest }
    }

    fn malformed(&self, expected: &'static str) -> Malformed {
        Malformed { what: self.what, expected, found: format!("{} bytes", self.rest.len()) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.malformed("more bytes"));
        };
        self.rest = rest;
        Ok(*taken)
    }

    fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    fn count(&mut self) -> Result<usize, Malformed> {
        self.array().map(u16::from_be_bytes).map(usize::from)
    }

    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let Some(end) = self.rest.iter().position(|&byte| byte == 0) else {
            return Err(self.malformed("a string that ends in a zero byte"));
        };
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    fn value(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let length = self.i32()?;
        if length == -1 {
            return Ok(None);
        }
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let Some((value, rest)) = split else {
            return Err(self.malformed("a value that ends inside the message"));
        };
        self.rest = rest;
        Ok(Some(value))
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed("the end of the message")) }
    }
}
