//! What stands before the payload of a datum; `formats/zson.md` is the layout.
//!
//! Reading a header neither allocates nor decompresses, so that `zson_info` and the search for used dictionaries
//! are as cheap as reading the bytes. A header that is returned has a raw size that its payload can hold.

use pgshrink_codec::bare::Shape;
use twox_hash::XxHash3_64;

use crate::dictionary::DictionaryId;
use crate::error::Error;
use crate::legacy;
use crate::limits::RAW_BYTES_MAX;

/// The version that is written, and the newest that is read.
pub const VERSION: u8 = 1;

/// Bytes that a datum has more than its document, at most: tag and check sum of the raw form.
pub const OVERHEAD_BYTES_MAX: usize = 5;

/// A datum of any version.
#[derive(Copy, Clone, Debug)]
pub enum Stored<'a> {
    /// Written by the original, zson 1.x.
    Legacy(legacy::Datum<'a>),
    /// Written by this crate.
    Current(Header<'a>),
}

/// A datum of the current version, taken apart.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    form: Form,
    dictionary: Option<DictionaryId>,
    raw_len: usize,
    check: u32,
    payload: &'a [u8],
}

/// How a document is compressed.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Method {
    /// Not at all.
    Raw,
    /// zstd.
    Zstd,
    /// LZ4.
    Lz4,
}

/// The low three bits of a tag.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Raw,
    Compressed(Shape),
}

/// Takes a datum, the bytes behind the varlena header, apart.
pub fn parse(datum: &[u8]) -> Result<Stored<'_>, Error> {
    match datum.first() {
        None => Err(truncated("length in bytes, at least,", None, 1, 0)),
        Some(0) => Ok(Stored::Legacy(legacy::Datum::parse(datum)?)),
        Some(_) => Ok(Stored::Current(Header::parse(datum)?)),
    }
}

impl<'a> Header<'a> {
    /// The method of compression.
    pub fn method(&self) -> Method {
        match self.form {
            Form::Raw => Method::Raw,
            Form::Compressed(Shape::ZstdBlock | Shape::ZstdBlocks) => Method::Zstd,
            Form::Compressed(Shape::Lz4) => Method::Lz4,
        }
    }

    /// The dictionary that decoding needs.
    pub fn dictionary(&self) -> Option<DictionaryId> {
        self.dictionary
    }

    /// Bytes of the document; at most [`RAW_BYTES_MAX`].
    pub fn raw_len(&self) -> usize {
        self.raw_len
    }

    /// What the document was compressed to.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    fn parse(datum: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader { datum, at: 0, dictionary: None };
        let tag = reader.byte()?;
        let form = form_of(tag)?;
        if tag & DICTIONARY_BIT != 0 {
            let id = reader.varint("dictionary id")?;
            reader.dictionary = u32::try_from(id).ok().and_then(DictionaryId::new);
            if reader.dictionary.is_none() {
                return Err(corrupt("dictionary id, at most,", None, i32::MAX as u64, id));
            }
        }
        let dictionary = reader.dictionary;
        let raw_len = match form {
            Form::Raw => None,
            Form::Compressed(_) => Some(reader.varint("document size")?),
        };
        let check = reader.check()?;
        let payload = &datum[reader.at..];
        let raw_len = raw_len.unwrap_or(payload.len() as u64);
        let allowed = match form {
            Form::Raw => RAW_BYTES_MAX,
            Form::Compressed(shape) => RAW_BYTES_MAX.min(shape.raw_size_max(payload.len())),
        } as u64;
        if raw_len > allowed {
            return Err(corrupt("document size, at most,", dictionary, allowed, raw_len));
        }
        Ok(Header { form, dictionary, raw_len: raw_len as usize, check, payload })
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Compares `document` with the check sum.
    pub(crate) fn verify(&self, document: &[u8]) -> Result<(), Error> {
        let found = check(tag_of(self.form, self.dictionary), self.dictionary, document);
        if found == self.check {
            Ok(())
        } else {
            Err(corrupt("check sum", self.dictionary, self.check.into(), found.into()))
        }
    }
}

impl Method {
    /// The name that settings and messages use.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Raw => "raw",
            Method::Zstd => "zstd",
            Method::Lz4 => "lz4",
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A header on its way into a datum.
pub(crate) struct Encoded {
    bytes: [u8; HEADER_BYTES_MAX],
    len: usize,
}

impl Encoded {
    pub(crate) fn new(form: Form, dictionary: Option<DictionaryId>, document: &[u8]) -> Self {
        let mut encoded = Encoded { bytes: [0; HEADER_BYTES_MAX], len: 0 };
        let tag = tag_of(form, dictionary);
        encoded.push(&[tag]);
        if let Some(id) = dictionary {
            encoded.varint(id.get());
        }
        if form != Form::Raw {
            encoded.varint(document.len() as u32);
        }
        encoded.push(&check(tag, dictionary, document).to_le_bytes());
        encoded
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn varint(&mut self, mut value: u32) {
        while value > 0x7f {
            self.push(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.push(&[value as u8]);
    }
}

/// How long the header of a compressed document is; it does not depend on the form.
pub(crate) fn header_len(dictionary: Option<DictionaryId>, raw_len: usize) -> usize {
    let varint_len = |value: u32| (32 - value.leading_zeros()).div_ceil(7).max(1) as usize;
    1 + dictionary.map_or(0, |id| varint_len(id.get())) + varint_len(raw_len as u32) + 4
}

const HEADER_BYTES_MAX: usize = 1 + 5 + 5 + 4;
const DICTIONARY_BIT: u8 = 0x08;
const FORM_BITS: u8 = 0x07;

fn tag_of(form: Form, dictionary: Option<DictionaryId>) -> u8 {
    let form = match form {
        Form::Raw => 0,
        Form::Compressed(Shape::ZstdBlock) => 1,
        Form::Compressed(Shape::ZstdBlocks) => 2,
        Form::Compressed(Shape::Lz4) => 3,
    };
    VERSION << 4 | form | if dictionary.is_some() { DICTIONARY_BIT } else { 0 }
}

fn form_of(tag: u8) -> Result<Form, Error> {
    let (version, form) = (tag >> 4, tag & FORM_BITS);
    if version > VERSION {
        return Err(Error::Unsupported { found: version, known: VERSION });
    }
    if version < VERSION {
        return Err(corrupt("format version", None, VERSION.into(), version.into()));
    }
    match form {
        0 if tag & DICTIONARY_BIT != 0 => Err(corrupt("dictionary bit of a raw document", None, 0, 1)),
        0 => Ok(Form::Raw),
        1 => Ok(Form::Compressed(Shape::ZstdBlock)),
        2 => Ok(Form::Compressed(Shape::ZstdBlocks)),
        3 => Ok(Form::Compressed(Shape::Lz4)),
        _ => Err(corrupt("form, at most,", None, 3, form.into())),
    }
}

/// Ties the document to the header: with another tag or dictionary id the same document has another sum, and its
/// length is part of the hash.
fn check(tag: u8, dictionary: Option<DictionaryId>, document: &[u8]) -> u32 {
    XxHash3_64::oneshot(document) as u32 ^ dictionary.map_or(0, DictionaryId::get) ^ u32::from(tag) << 24
}

struct Reader<'a> {
    datum: &'a [u8],
    at: usize,
    /// For messages.
    dictionary: Option<DictionaryId>,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, Error> {
        let byte = *self.datum.get(self.at).ok_or_else(|| self.truncated(1))?;
        self.at += 1;
        Ok(byte)
    }

    fn check(&mut self) -> Result<u32, Error> {
        let bytes = self.datum[self.at..].first_chunk::<4>().ok_or_else(|| self.truncated(4))?;
        self.at += bytes.len();
        Ok(u32::from_le_bytes(*bytes))
    }

    /// LEB128 of at most 32 bits, in its shortest form, not zero.
    fn varint(&mut self, what: &'static str) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                // A last byte of zero is a longer form, or zero itself.
                let proper = byte != 0 && value <= u32::MAX.into();
                return if proper { Ok(value) } else { Err(corrupt(what, self.dictionary, 1, value)) };
            }
        }
        Err(corrupt("bytes of a number, at most,", self.dictionary, 5, 6))
    }

    fn truncated(&self, needed: usize) -> Error {
        let (expected, found) = (self.at + needed, self.datum.len());
        truncated("length in bytes, at least,", self.dictionary, expected, found)
    }
}

fn truncated(what: &'static str, dictionary: Option<DictionaryId>, expected: usize, found: usize) -> Error {
    corrupt(what, dictionary, expected as u64, found as u64)
}

pub(crate) fn corrupt(
    what: &'static str,
    dictionary: Option<DictionaryId>,
    expected: u64,
    found: u64,
) -> Error {
    Error::Corrupt { what, dictionary, expected, found }
}
