//! What stands before the payload of a datum; `formats/zson.md` is the layout.
//!
//! Reading a header neither allocates nor decompresses, so that `zson_info` and the search for used dictionaries
//! are as cheap as reading the bytes. A header that is returned has a raw size that its payload can hold.

use pgshrink_codec::bare::Shape;
use twox_hash::XxHash3_64;

use crate::dictionary::DictionaryId;
use crate::error::Error;
use crate::legacy;
use crate::limits::{RAW_BYTES_MAX, SHAPES_RAW_BYTES_MAX};
use crate::memory;

/// The newest version that is read. Version 2 is that of [`Method::Shapes`]; all else is written in version 1.
pub const VERSION: u8 = 2;

/// Bytes of a payload of shapes that are checked together.
pub const BLOCK_BYTES: usize = 4096;

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
    /// Of shapes: the sums of all blocks of the payload but the first, four bytes each.
    sums: &'a [u8],
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
    /// A shape and its values, each of which can be read alone.
    Shapes,
}

/// The low three bits of a tag.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Raw,
    Compressed(Shape),
    Shapes,
}

/// Takes a datum, the bytes behind the varlena header, apart.
#[inline]
pub fn parse(datum: &[u8]) -> Result<Stored<'_>, Error> {
    match datum.first() {
        None => Err(truncated("length in bytes, at least,", None, 1, 0)),
        Some(0) => Ok(Stored::Legacy(legacy::Datum::parse(datum)?)),
        Some(_) => Ok(Stored::Current(Header::parse(datum)?)),
    }
}

/// As [`parse`], of a datum of shapes alone; none if it is another, or damaged.
#[inline(always)]
pub fn parse_shapes(datum: &[u8]) -> Option<Header<'_>> {
    Header::of_shapes(datum)?.ok()
}

/// How a document is compressed and with which dictionary, by the first bytes of its datum; none if these are of no datum
/// that this crate writes.
pub fn method_and_dictionary(head: &[u8]) -> Option<(Method, Option<DictionaryId>)> {
    let mut reader = Reader { datum: head, at: 0, dictionary: None };
    let tag = reader.byte().ok().filter(|tag| *tag != 0)?;
    let form = form_of(tag).ok()?;
    let dictionary = if tag & DICTIONARY_BIT != 0 { Some(reader.id().ok()?) } else { None };
    Some((form.method(), dictionary))
}

impl Form {
    #[inline]
    fn method(self) -> Method {
        match self {
            Form::Raw => Method::Raw,
            Form::Compressed(Shape::ZstdBlock | Shape::ZstdBlocks) => Method::Zstd,
            Form::Compressed(Shape::Lz4) => Method::Lz4,
            Form::Shapes => Method::Shapes,
        }
    }
}

impl<'a> Header<'a> {
    /// The method of compression.
    pub fn method(&self) -> Method {
        self.form.method()
    }

    /// The dictionary that decoding needs.
    #[inline]
    pub fn dictionary(&self) -> Option<DictionaryId> {
        self.dictionary
    }

    /// Bytes of the document; at most [`RAW_BYTES_MAX`].
    #[inline]
    pub fn raw_len(&self) -> usize {
        self.raw_len
    }

    /// What the document was compressed to.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    #[inline]
    fn parse(datum: &'a [u8]) -> Result<Self, Error> {
        Header::of_shapes(datum).unwrap_or_else(|| Header::parse_other(datum))
    }

    /// Of a datum with the head of one of shapes; none if it has another.
    #[inline(always)]
    fn of_shapes(datum: &'a [u8]) -> Option<Result<Self, Error>> {
        let (header, rest) = shapes_head(datum)?;
        Some(sums_len(rest.len(), header.dictionary).map(|len| {
            let (sums, payload) = rest.split_at(len);
            Header { sums, payload, ..header }
        }))
    }

    /// Of a datum that is not of shapes, or that is none.
    fn parse_other(datum: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader { datum, at: 0, dictionary: None };
        let tag = reader.byte()?;
        let form = form_of(tag)?;
        if tag & DICTIONARY_BIT != 0 {
            reader.dictionary = Some(reader.id()?);
        }
        let dictionary = reader.dictionary;
        let raw_len = match form {
            Form::Raw => None,
            Form::Compressed(_) | Form::Shapes => Some(reader.varint("document size")?),
        };
        let check = reader.check()?;
        let stored = &datum[reader.at..];
        let (sums, payload) = match form {
            Form::Shapes => stored.split_at(sums_len(stored.len(), dictionary)?),
            Form::Raw | Form::Compressed(_) => (&[][..], stored),
        };
        let raw_len = raw_len.unwrap_or(payload.len() as u64);
        let allowed = match form {
            Form::Raw => RAW_BYTES_MAX,
            Form::Shapes => SHAPES_RAW_BYTES_MAX,
            Form::Compressed(shape) => RAW_BYTES_MAX.min(shape.raw_size_max(payload.len())),
        } as u64;
        if raw_len > allowed {
            return Err(corrupt("document size, at most,", dictionary, allowed, raw_len));
        }
        Ok(Header { form, dictionary, raw_len: raw_len as usize, check, sums, payload })
    }

    /// As [`parse`] of the first bytes of a datum of shapes of `len` bytes; none if it is another. Its payload is the first
    /// block.
    pub(crate) fn parse_head(head: &'a [u8], len: usize) -> Result<Option<(Header<'a>, Layout)>, Error> {
        let Some(tag) = head.first() else { return Ok(None) };
        if form_of(*tag)? != Form::Shapes {
            return Ok(None);
        }
        let Some((header, rest)) = shapes_head(head) else { return Header::parse_other(head).map(|_| None) };
        let at = head.len() - rest.len();
        let stored = len.saturating_sub(at);
        let sums = sums_len(stored, header.dictionary)?;
        let payload_len = stored - sums;
        let (start, first) = (at + sums, payload_len.min(BLOCK_BYTES));
        let (Some(sums), Some(payload)) = (head.get(at..start), head.get(start..start + first)) else {
            return Err(truncated(
                "length in bytes, at least,",
                header.dictionary,
                start + first,
                head.len(),
            ));
        };
        let layout = Layout { raw_len: header.raw_len, payload_start: start, payload_len };
        Ok(Some((Header { sums, payload, ..header }, layout)))
    }

    /// Of shapes: the sums of all blocks but the first.
    pub(crate) fn sums(&self) -> &'a [u8] {
        self.sums
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Compares what is stored of a payload of shapes with its sums; `identity` is the dictionary's.
    #[inline(always)]
    pub(crate) fn verify_stored(&self, identity: u64) -> Result<(), Error> {
        if self.sums.is_empty() {
            let seed = seed_of(self.dictionary, identity, self.raw_len, self.payload.len());
            return self.compare(self.check, first_sum(seed, &[], self.payload));
        }
        self.verify_blocks(identity)
    }

    fn verify_blocks(&self, identity: u64) -> Result<(), Error> {
        let seed = seed_of(self.dictionary, identity, self.raw_len, self.payload.len());
        let mut blocks = self.payload.chunks(BLOCK_BYTES).enumerate();
        let mut expected = self.sums.as_chunks::<SUM_BYTES>().0.iter().map(|sum| u32::from_le_bytes(*sum));
        let first = blocks.next().map_or(&[][..], |(_, block)| block);
        self.compare(self.check, first_sum(seed, self.sums, first))?;
        blocks.try_for_each(|(at, block)| {
            self.compare(expected.next().unwrap_or(0), block_sum(seed, at, block))
        })
    }

    #[inline]
    fn compare(&self, expected: u32, found: u32) -> Result<(), Error> {
        if found == expected {
            Ok(())
        } else {
            Err(corrupt("check sum", self.dictionary, expected.into(), found.into()))
        }
    }

    /// Compares `document` with the check sum.
    pub(crate) fn verify(&self, document: &[u8]) -> Result<(), Error> {
        self.compare(self.check, check(tag_of(self.form, self.dictionary), self.dictionary, document))
    }
}

impl Method {
    /// The name that settings and messages use.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Raw => "raw",
            Method::Zstd => "zstd",
            Method::Lz4 => "lz4",
            Method::Shapes => "shapes",
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
        let check = check(tag_of(form, dictionary), dictionary, document);
        Encoded::with(form, dictionary, document.len(), check)
    }

    fn with(form: Form, dictionary: Option<DictionaryId>, raw_len: usize, check: u32) -> Self {
        let mut encoded = Encoded { bytes: [0; HEADER_BYTES_MAX], len: 0 };
        encoded.push(&[tag_of(form, dictionary)]);
        if let Some(id) = dictionary {
            encoded.varint(id.get());
        }
        if form != Form::Raw {
            encoded.varint(raw_len as u32);
        }
        encoded.push(&check.to_le_bytes());
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

/// Completes a datum of shapes that begins at `start` of `out`: room for its header, then its payload.
pub(crate) fn seal_shapes(
    id: DictionaryId,
    identity: u64,
    raw_len: usize,
    start: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let dictionary = Some(id);
    let header = header_len(dictionary, raw_len);
    let stored = start + header;
    let payload_len = out.len() - stored;
    let sums = sums_of(payload_len);
    let seed = seed_of(dictionary, identity, raw_len, payload_len);
    memory::reserve(out, sums)?;
    out.resize(out.len() + sums, 0);
    let (_, stored) = out.split_at_mut(stored);
    stored.copy_within(..payload_len, sums);
    let (sums, payload) = stored.split_at_mut(sums);
    let mut blocks = payload.chunks(BLOCK_BYTES).enumerate();
    let first = blocks.next().map_or(&[][..], |(_, block)| block);
    for ((at, block), sum) in blocks.zip(sums.chunks_mut(SUM_BYTES)) {
        sum.copy_from_slice(&block_sum(seed, at, block).to_le_bytes());
    }
    let check = first_sum(seed, sums, first);
    let encoded = Encoded::with(Form::Shapes, dictionary, raw_len, check);
    out[start..start + header].copy_from_slice(encoded.bytes());
    Ok(())
}

/// Where the parts of a datum of shapes are, of which only the first are here.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Layout {
    raw_len: usize,
    payload_start: usize,
    payload_len: usize,
}

impl Layout {
    /// Bytes of the header, the sums and the first block of a datum of so many bytes, at most.
    pub(crate) fn head_len(len: usize) -> usize {
        let sums = len.div_ceil(BLOCK_BYTES) * SUM_BYTES;
        (HEADER_BYTES_MAX + sums + BLOCK_BYTES).min(len)
    }

    pub(crate) fn raw_len(&self) -> usize {
        self.raw_len
    }

    pub(crate) fn payload_start(&self) -> usize {
        self.payload_start
    }

    pub(crate) fn payload_len(&self) -> usize {
        self.payload_len
    }

    /// Compares the first block, and the sums of the others, with the check sum.
    pub(crate) fn verify_first(&self, header: &Header<'_>, identity: u64) -> Result<(), Error> {
        let seed = seed_of(header.dictionary, identity, self.raw_len, self.payload_len);
        header.compare(header.check, first_sum(seed, header.sums, header.payload))
    }

    /// Compares a block, numbered from 0 and not the first, with its sum.
    pub(crate) fn verify_block(
        &self,
        dictionary: DictionaryId,
        identity: u64,
        sums: &[u8],
        (at, block): (usize, &[u8]),
    ) -> Result<(), Error> {
        let dictionary = Some(dictionary);
        let found = block_sum(seed_of(dictionary, identity, self.raw_len, self.payload_len), at, block);
        let expected = at.checked_sub(1).and_then(|at| sums.as_chunks::<SUM_BYTES>().0.get(at));
        match expected.map(|sum| u32::from_le_bytes(*sum)) {
            Some(expected) if expected == found => Ok(()),
            expected => Err(corrupt("check sum", dictionary, expected.unwrap_or(0).into(), found.into())),
        }
    }
}

const SUM_BYTES: usize = 4;
const SEED_OF_ID: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes of the sums that a payload of shapes has before it: of all its blocks but the first.
pub(crate) fn sums_of(payload_len: usize) -> usize {
    payload_len.div_ceil(BLOCK_BYTES).saturating_sub(1) * SUM_BYTES
}

/// How many of the bytes behind a header of shapes are sums of blocks.
#[inline]
fn sums_len(stored: usize, dictionary: Option<DictionaryId>) -> Result<usize, Error> {
    // Nearly all have one block, and divisions take time.
    if (1..=BLOCK_BYTES).contains(&stored) {
        return Ok(0);
    }
    let blocks = (stored + SUM_BYTES).div_ceil(BLOCK_BYTES + SUM_BYTES);
    let sums = blocks.saturating_sub(1) * SUM_BYTES;
    let least = blocks.saturating_sub(1) * BLOCK_BYTES + 1;
    if stored < sums + least {
        return Err(corrupt(
            "payload size, at least,",
            dictionary,
            least as u64,
            (stored - sums.min(stored)) as u64,
        ));
    }
    Ok(sums)
}

/// Ties a payload of shapes to its dictionary and to its lengths.
#[inline]
fn seed_of(dictionary: Option<DictionaryId>, identity: u64, raw_len: usize, payload_len: usize) -> u64 {
    let id = u64::from(dictionary.map_or(0, DictionaryId::get));
    (identity ^ (raw_len as u64) << 28 ^ payload_len as u64).wrapping_add(id.wrapping_mul(SEED_OF_ID))
}

/// Of the first block, and of the sums of all others.
#[inline(always)]
fn first_sum(seed: u64, sums: &[u8], block: &[u8]) -> u32 {
    let of_sums = if sums.is_empty() { 0 } else { XxHash3_64::oneshot_with_seed(seed, sums) };
    (XxHash3_64::oneshot_with_seed(seed, block) ^ of_sums.rotate_left(1)) as u32
}

/// Of block `at`, from 1.
fn block_sum(seed: u64, at: usize, block: &[u8]) -> u32 {
    XxHash3_64::oneshot_with_seed(seed.wrapping_add(at as u64), block) as u32
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
    let (version, form) = match form {
        Form::Raw => (1, 0),
        Form::Compressed(Shape::ZstdBlock) => (1, 1),
        Form::Compressed(Shape::ZstdBlocks) => (1, 2),
        Form::Compressed(Shape::Lz4) => (1, 3),
        Form::Shapes => (2, SHAPES),
    };
    version << 4 | form | if dictionary.is_some() { DICTIONARY_BIT } else { 0 }
}

/// The form of version 2.
const SHAPES: u8 = 4;

#[inline]
fn form_of(tag: u8) -> Result<Form, Error> {
    let (version, form) = (tag >> 4, tag & FORM_BITS);
    if version > VERSION {
        return Err(Error::Unsupported { found: version, known: VERSION });
    }
    let has_dictionary = tag & DICTIONARY_BIT != 0;
    match (version, form) {
        (0, _) => Err(corrupt("format version", None, 1, 0)),
        (1, 0) if has_dictionary => Err(corrupt("dictionary bit of a raw document", None, 0, 1)),
        (1, 0) => Ok(Form::Raw),
        (1, 1) => Ok(Form::Compressed(Shape::ZstdBlock)),
        (1, 2) => Ok(Form::Compressed(Shape::ZstdBlocks)),
        (1, 3) => Ok(Form::Compressed(Shape::Lz4)),
        (1, form) => Err(corrupt("form, at most,", None, 3, form.into())),
        (_, SHAPES) if has_dictionary => Ok(Form::Shapes),
        (_, SHAPES) => Err(corrupt("dictionary bit of a document of shapes", None, 1, 0)),
        (_, form) => Err(corrupt("form of version 2", None, SHAPES.into(), form.into())),
    }
}

/// Ties the document to the header: with another tag or dictionary id the same document has another sum, and its
/// length is part of the hash.
fn check(tag: u8, dictionary: Option<DictionaryId>, document: &[u8]) -> u32 {
    XxHash3_64::oneshot(document) as u32 ^ dictionary.map_or(0, DictionaryId::get) ^ u32::from(tag) << 24
}

/// The head of a datum of shapes, and what is behind it; none if that is no datum, or not of shapes.
#[inline(always)]
fn shapes_head(datum: &[u8]) -> Option<(Header<'_>, &[u8])> {
    const TAG: u8 = 2 << 4 | SHAPES | DICTIONARY_BIT;
    let mut rest = datum.strip_prefix(&[TAG])?;
    let dictionary = Some(DictionaryId::new(varint(&mut rest)?)?);
    let raw_len = varint(&mut rest)? as usize;
    let (check, rest) = rest.split_first_chunk()?;
    let check = u32::from_le_bytes(*check);
    let header = Header { form: Form::Shapes, dictionary, raw_len, check, sums: &[], payload: &[] };
    (raw_len <= SHAPES_RAW_BYTES_MAX).then_some((header, rest))
}

/// As [`Reader::varint`].
#[inline(always)]
fn varint(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0u64;
    for shift in [0, 7, 14, 21, 28] {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(value).ok().filter(|_| *byte != 0);
        }
    }
    None
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

    fn id(&mut self) -> Result<DictionaryId, Error> {
        let id = self.varint("dictionary id")?;
        let known = u32::try_from(id).ok().and_then(DictionaryId::new);
        known.ok_or_else(|| corrupt("dictionary id, at most,", None, i32::MAX as u64, id))
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

#[cold]
pub(crate) fn corrupt(
    what: &'static str,
    dictionary: Option<DictionaryId>,
    expected: u64,
    found: u64,
) -> Error {
    Error::Corrupt { what, dictionary, expected, found }
}
