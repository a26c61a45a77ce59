//! Reading a manifest in pieces.

use sha2::{Digest, Sha256};

use super::lexer::{Lexer, Token, Wrong};
use super::{FileEntry, SystemIdentifier, WalRange, decimal};
use crate::checksum::{Checksum, ChecksumAlgorithm};
use crate::error::{Error, shown};
use crate::hex;
use crate::path::BackupPath;
use crate::time::ServerTime;
use crate::wal::{Lsn, Timeline};

/// Reads a manifest: [`Reader::next`] until the input ends, then [`Reader::finish`].
///
/// It accepts what `json_parse_manifest` does: any white space, the version first and the checksum last, the
/// other fields in any order. Beyond that it refuses fields that come twice, numbers out of range, paths that
/// lead out of the backup, checksums of the wrong size, and times in another form. Whether a path comes twice
/// is for the caller to check: the reader does not remember paths.
///
/// Items are given before the checksum of the whole is known. Nothing may be trusted until [`Reader::finish`]
/// has returned.
///
/// ```
/// use pgshrink_backup::manifest::{Item, PathEncoding, Reader, Writer};
/// let mut bytes = Vec::new();
/// Writer::new(None, PathEncoding::AsNeeded, &mut bytes).end(&[], &mut bytes);
/// let mut reader = Reader::new();
/// for mut piece in bytes.chunks(7) {
///     while let Some(item) = reader.next(&mut piece)? {
///         println!("{item:?}");
///     }
/// }
/// assert_eq!(reader.finish()?.version, 1);
/// # Ok::<(), pgshrink_backup::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    lexer: Lexer,
    at: At,
    seen: Vec<TopField>,
    version: u64,
    system: Option<SystemIdentifier>,
    files: u64,
    fields: Fields,
    checksum: [u8; 32],
    position: Position,
}

/// What a manifest lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A file of the backup.
    File(FileEntry),
    /// WAL that it needs.
    WalRange(WalRange),
}

/// What is known at the end of a whole manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finished {
    /// 1 or 2.
    pub version: u64,
    /// Always there in a server's manifest of version 2.
    pub system: Option<SystemIdentifier>,
    /// Number of files that were listed.
    pub files: u64,
    /// The checksum in the last line: SHA-256 of all lines before it.
    pub checksum: [u8; 32],
}

/// Where the reader stands: what the next token may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Start,
    TopKey,
    TopColon(TopField),
    TopValue(TopField),
    TopEnd,
    /// In a list, before an element; `first` allows the end of the list.
    Element {
        list: List,
        first: bool,
    },
    ElementEnd(List),
    /// In an element, before a key; `first` allows its end.
    Key {
        list: List,
        first: bool,
    },
    Colon(List, Field),
    Value(List, Field),
    ValueEnd(List),
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TopField {
    Version,
    System,
    Files,
    WalRanges,
    Checksum,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum List {
    Files,
    WalRanges,
}

/// A field of a file or of a range, and its place in [`Fields`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Path,
    EncodedPath,
    Size,
    LastModified,
    Algorithm,
    Checksum,
    Timeline,
    Start,
    End,
}

/// The values of one element, each of at most `STRING_BYTES_MAX` bytes.
#[derive(Debug, Default)]
struct Fields([Option<Vec<u8>>; 9]);

impl Reader {
    /// At the start of a manifest.
    pub fn new() -> Reader {
        Reader {
            lexer: Lexer::new(),
            at: At::Start,
            seen: Vec::new(),
            version: 0,
            system: None,
            files: 0,
            fields: Fields::default(),
            checksum: [0; 32],
            position: Position::default(),
        }
    }

    /// The system identifier, as soon as it was read. Servers write it before the first file.
    pub fn system(&self) -> Option<SystemIdentifier> {
        self.system
    }

    /// Takes bytes from the front of `input` until there is an item. None: `input` is used up.
    ///
    /// # Errors
    /// [`Error::Manifest`] with the place, [`Error::Unsupported`] for another version. The reader is of no
    /// more use then.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Item>, Error> {
        let whole = *input;
        let mut used = 0;
        let mut item = None;
        while item.is_none() && used < whole.len() {
            used += self.lexer.plain(&whole[used..]);
            let Some(&byte) = whole.get(used) else { break };
            let (token, taken) =
                self.lexer.byte(byte).map_err(|wrong| self.wrong_token(wrong, &whole[..used]))?;
            used += usize::from(taken);
            if let Some(token) = token {
                item = self.token(token).map_err(|error| match error {
                    Refused::Expected(expected, found) => self.refused(expected, found, &whole[..used]),
                    Refused::Other(error) => error,
                })?;
            }
        }
        self.position.advance(&whole[..used]);
        *input = &whole[used..];
        Ok(item)
    }

    /// The end of the input.
    ///
    /// # Errors
    /// [`Error::Manifest`] when the manifest is not at its end, does not end with a newline or has fewer than
    /// two lines; [`Error::ManifestChecksum`] when the last line has another checksum.
    pub fn finish(self) -> Result<Finished, Error> {
        let ended = self.at == At::End && self.lexer.is_between();
        if !ended {
            return Err(self.refused("the rest of the manifest", "its end".into(), b""));
        }
        let Some(before_last_line) = self.position.before_last_line() else {
            let expected = "at least two lines, the last one ended by a newline";
            return Err(self.refused(expected, "the end".into(), b""));
        };
        let found: [u8; 32] = before_last_line.finalize().into();
        if found != self.checksum {
            let text = |digest: &[u8; 32]| digest.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(Error::ManifestChecksum { expected: text(&self.checksum), found: text(&found) });
        }
        let Reader { version, system, files, checksum, .. } = self;
        Ok(Finished { version, system, files, checksum })
    }

    fn token(&mut self, token: Token) -> Result<Option<Item>, Refused> {
        self.at = match (self.at, token) {
            (At::Start, Token::Mark(b'{')) => At::TopKey,
            (At::TopKey, Token::String) => At::TopColon(self.top_field()?),
            (At::TopColon(field), Token::Mark(b':')) => At::TopValue(field),
            (At::TopValue(TopField::Files), Token::Mark(b'[')) => {
                At::Element { list: List::Files, first: true }
            }
            (At::TopValue(TopField::WalRanges), Token::Mark(b'[')) => {
                At::Element { list: List::WalRanges, first: true }
            }
            (At::TopValue(field), Token::String | Token::Word) => {
                self.top_value(field)?;
                At::TopEnd
            }
            (At::TopEnd, Token::Mark(b',')) if !self.seen.contains(&TopField::Checksum) => At::TopKey,
            (At::TopEnd, Token::Mark(b'}')) if self.seen.contains(&TopField::Checksum) => At::End,
            (At::Element { list, .. }, Token::Mark(b'{')) => At::Key { list, first: true },
            (At::Element { first: true, .. }, Token::Mark(b']')) => At::TopEnd,
            (At::ElementEnd(list), Token::Mark(b',')) => At::Element { list, first: false },
            (At::ElementEnd(_), Token::Mark(b']')) => At::TopEnd,
            (At::Key { list, .. }, Token::String) => At::Colon(list, self.field(list)?),
            (At::Colon(list, field), Token::Mark(b':')) => At::Value(list, field),
            (At::Value(list, field), Token::String | Token::Word) => {
                self.fields.0[field as usize] = Some(self.lexer.text().to_vec());
                At::ValueEnd(list)
            }
            (At::ValueEnd(list), Token::Mark(b',')) => At::Key { list, first: false },
            (At::ValueEnd(list) | At::Key { list, first: true }, Token::Mark(b'}')) => {
                self.at = At::ElementEnd(list);
                return self.element(list).map(Some);
            }
            (at, token) => return Err(Refused::Expected(at.expects(self.seen.last()), self.shown(token))),
        };
        Ok(None)
    }

    fn top_field(&mut self) -> Result<TopField, Refused> {
        const NAMES: [(&str, TopField); 5] = [
            ("PostgreSQL-Backup-Manifest-Version", TopField::Version),
            ("System-Identifier", TopField::System),
            ("Files", TopField::Files),
            ("WAL-Ranges", TopField::WalRanges),
            ("Manifest-Checksum", TopField::Checksum),
        ];
        let found =
            NAMES.iter().find(|(name, _)| name.as_bytes() == self.lexer.text()).map(|(_, field)| *field);
        let expected = if self.seen.is_empty() {
            "the field PostgreSQL-Backup-Manifest-Version"
        } else {
            "one of the fields System-Identifier, Files, WAL-Ranges, Manifest-Checksum, once"
        };
        match found {
            Some(field)
                if (field == TopField::Version) == self.seen.is_empty() && !self.seen.contains(&field) =>
            {
                self.seen.push(field);
                Ok(field)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    fn top_value(&mut self, field: TopField) -> Result<(), Refused> {
        let text = self.lexer.text();
        match field {
            TopField::Version => {
                self.version = decimal(text).ok_or_else(|| self.unexpected("the number of a version"))?;
                if !matches!(self.version, 1 | 2) {
                    let found = self.version.to_string();
                    return Err(Error::Unsupported {
                        what: "version of a backup manifest",
                        found,
                        known: "1 and 2",
                    }
                    .into());
                }
            }
            TopField::System => {
                let system = decimal(text).ok_or_else(|| self.unexpected("a number of 64 bits"))?;
                self.system = Some(SystemIdentifier(system));
            }
            TopField::Files | TopField::WalRanges => return Err(self.unexpected("a list")),
            TopField::Checksum => {
                let digest = hex::decode(text).and_then(|digest| digest.try_into().ok());
                self.checksum = digest.ok_or_else(|| self.unexpected("64 hexadecimal digits"))?;
            }
        }
        Ok(())
    }

    fn field(&mut self, list: List) -> Result<Field, Refused> {
        const OF_FILES: [(&str, Field); 6] = [
            ("Path", Field::Path),
            ("Encoded-Path", Field::EncodedPath),
            ("Size", Field::Size),
            ("Last-Modified", Field::LastModified),
            ("Checksum-Algorithm", Field::Algorithm),
            ("Checksum", Field::Checksum),
        ];
        const OF_RANGES: [(&str, Field); 3] =
            [("Timeline", Field::Timeline), ("Start-LSN", Field::Start), ("End-LSN", Field::End)];
        let (names, expected) = match list {
            List::Files => (
                &OF_FILES[..],
                "one of the fields Path, Encoded-Path, Size, Last-Modified, Checksum-Algorithm, Checksum, once",
            ),
            List::WalRanges => (&OF_RANGES[..], "one of the fields Timeline, Start-LSN, End-LSN, once"),
        };
        let found =
            names.iter().find(|(name, _)| name.as_bytes() == self.lexer.text()).map(|(_, field)| *field);
        match found {
            Some(field) if self.fields.0[field as usize].is_none() => Ok(field),
            _ => Err(self.unexpected(expected)),
        }
    }

    /// The element that ends here.
    fn element(&mut self, list: List) -> Result<Item, Refused> {
        let fields = std::mem::take(&mut self.fields);
        match list {
            List::Files => {
                self.files += 1;
                file(fields).map(Item::File)
            }
            List::WalRanges => range(fields).map(Item::WalRange),
        }
    }

    fn unexpected(&self, expected: &'static str) -> Refused {
        Refused::Expected(expected, shown(self.lexer.text()))
    }

    fn shown(&self, token: Token) -> String {
        match token {
            Token::Mark(mark) => shown(&[mark]),
            Token::String => format!("the string {}", shown(self.lexer.text())),
            Token::Word => shown(self.lexer.text()),
        }
    }

    fn wrong_token(&self, wrong: Wrong, before: &[u8]) -> Error {
        match wrong {
            Wrong::Byte { expected, found } => self.refused(expected, shown(&[found]), before),
            Wrong::Long { what, allowed } => {
                let expected = if what == "a string" { "a string of at most 2048 bytes" } else { "a number" };
                self.refused(expected, format!("{what} of more than {allowed} bytes"), before)
            }
            Wrong::NotUtf8 => self.refused("UTF-8", shown(self.lexer.text()), before),
            Wrong::Character { code } => self.refused("a character", format!("code {code:#06x}"), before),
        }
    }

    fn refused(&self, expected: &'static str, found: String, before: &[u8]) -> Error {
        let (line, offset) = self.position.after(before);
        Error::Manifest { line, offset, expected, found }
    }
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new()
    }
}

/// Why a token does not fit: the place is added by the caller.
enum Refused {
    Expected(&'static str, String),
    Other(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        match error {
            Error::Malformed { expected, found, .. } => Refused::Expected(expected, found),
            other => Refused::Other(other),
        }
    }
}

impl At {
    fn expects(self, last: Option<&TopField>) -> &'static str {
        match self {
            At::Start => "`{`",
            At::TopKey => "the name of a field",
            At::TopColon(_) | At::Colon(..) => "`:`",
            At::TopValue(TopField::Files | TopField::WalRanges) => "`[`",
            At::TopValue(_) | At::Value(..) => "a string or a number",
            At::TopEnd if last == Some(&TopField::Checksum) => "`}`, as Manifest-Checksum is the last field",
            At::TopEnd => "`,` and the field Manifest-Checksum at the end",
            At::Element { first: true, .. } => "`{` or `]`",
            At::Element { .. } => "`{`",
            At::ElementEnd(_) => "`,` or `]`",
            At::Key { first: true, .. } => "the name of a field or `}`",
            At::Key { .. } => "the name of a field",
            At::ValueEnd(_) => "`,` or `}`",
            At::End => "nothing more",
        }
    }
}

impl Fields {
    fn take(&mut self, field: Field, expected: &'static str) -> Result<Vec<u8>, Refused> {
        let value = self.0[field as usize].take();
        value.ok_or_else(|| Refused::Expected(expected, "the end of the element".into()))
    }

    /// As text, for what has to be ASCII anyway. Strings are UTF-8.
    fn text(&mut self, field: Field, expected: &'static str) -> Result<String, Refused> {
        let value = self.take(field, expected)?;
        String::from_utf8(value).map_err(|error| Refused::Expected(expected, shown(error.as_bytes())))
    }
}

fn file(mut fields: Fields) -> Result<FileEntry, Refused> {
    let path = match fields.0[Field::EncodedPath as usize].take() {
        None => fields.take(Field::Path, "one of the fields Path and Encoded-Path")?,
        Some(digits) => {
            if let Some(path) = &fields.0[Field::Path as usize] {
                return Err(Refused::Expected("one of the fields Path and Encoded-Path", shown(path)));
            }
            hex::decode(&digits)
                .ok_or_else(|| Refused::Expected("a path in pairs of hexadecimal digits", shown(&digits)))?
        }
    };
    let size = fields.take(Field::Size, "the field Size")?;
    let size = decimal(&size).ok_or_else(|| Refused::Expected("a size in bytes", shown(&size)))?;
    let last_modified = match fields.0[Field::LastModified as usize] {
        None => None,
        Some(_) => Some(fields.text(Field::LastModified, "a time")?.parse::<ServerTime>()?),
    };
    let algorithm = match fields.0[Field::Algorithm as usize] {
        None => ChecksumAlgorithm::None,
        Some(_) => fields.text(Field::Algorithm, "a checksum algorithm")?.parse()?,
    };
    let digits = fields.0[Field::Checksum as usize].take().unwrap_or_default();
    let checksum = Checksum::from_hex(algorithm, &digits)?;
    Ok(FileEntry { path: BackupPath::new(&path)?, size, last_modified, checksum })
}

fn range(mut fields: Fields) -> Result<WalRange, Refused> {
    let timeline: Timeline = fields.text(Field::Timeline, "the field Timeline")?.parse()?;
    let start: Lsn = fields.text(Field::Start, "the field Start-LSN")?.parse()?;
    let end: Lsn = fields.text(Field::End, "the field End-LSN")?.parse()?;
    if end < start {
        return Err(Refused::Expected("an End-LSN not before Start-LSN", format!("{start} to {end}")));
    }
    Ok(WalRange { timeline, start, end })
}

/// How much was read, and the hashes of what was read up to the last newlines.
#[derive(Debug, Default)]
struct Position {
    offset: u64,
    newlines: u64,
    /// Of everything.
    hash: Sha256,
    /// Of everything up to the last newline, and up to the one before it.
    last: Option<Sha256>,
    penultimate: Option<Sha256>,
    ends_with_newline: bool,
}

impl Position {
    fn advance(&mut self, bytes: &[u8]) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.hash.update(line);
            self.ends_with_newline = line.ends_with(b"\n");
            if self.ends_with_newline {
                self.newlines += 1;
                self.penultimate = self.last.replace(self.hash.clone());
            }
        }
        self.offset += bytes.len() as u64;
    }

    /// Line, from 1, and offset of what comes after these further bytes.
    fn after(&self, bytes: &[u8]) -> (u64, u64) {
        let newlines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        (self.newlines + newlines + 1, self.offset + bytes.len() as u64)
    }

    fn before_last_line(&self) -> Option<Sha256> {
        self.penultimate.clone().filter(|_| self.ends_with_newline)
    }
}
