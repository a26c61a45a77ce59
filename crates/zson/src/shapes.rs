//! Documents by their shapes: a value is found by its place and decoded alone.
//!
//! A dictionary of shapes has a schema (keys, phrases, columns and their shapes), a dictionary of zstd for documents that
//! shapes do not pay for, and the rule by which those are told. `formats/zson.md` is the layout; why it is so is in
//! `docs/decisions/2026-11-27-zson-shapes.md`.
//!
//! ```text
//!   samples --> learning --> Schema --> bytes --> a dictionary's bytes --> Reader, Writer
//!
//!   jsonb --> writing --> payload --> reading --> jsonb
//!                            |
//!                         finding: a value by its path
//! ```
//!
//! 1. A payload is trusted in nothing: what does not fit gives an error, and what is written never gets longer than its
//!    target.
//! 2. What is written comes back byte for byte. A jsonb that the server would not write so is not written at all.
//! 3. What grows with documents grows by [`memory`](crate::memory).

mod blocks;
mod bytes;
mod counting;
mod cutting;
mod direct;
mod earlier;
mod fallback;
mod finding;
mod further;
mod index;
mod jsonb;
mod learning;
mod long;
mod matching;
mod merging;
mod number;
mod out;
mod pace;
mod patching;
mod phrases;
mod reading;
mod schema;
mod template;
mod value;
mod writing;

#[cfg(test)]
mod tests;

pub use direct::Known;
pub use finding::Step;
pub use reading::Scratch;
pub use value::{Text, Type, Value, View};

pub(crate) use blocks::Blocks;
pub(crate) use earlier::Earlier;
pub(crate) use fallback::{Fallback, Measured, Payload};
pub(crate) use learning::{Learned, learned};
pub(crate) use long::Long;
pub(crate) use schema::Schema;
pub(crate) use writing::Remembered;

use pgshrink_codec::Dictionary;
use pgshrink_codec::prepared::DecompressorDictionary;

use crate::error::Error;
use crate::limits::SHAPES_RAW_BYTES_MAX;
use reading::With;
use writing::Tables;

/// Reads what was written with a dictionary of shapes.
#[derive(Debug)]
pub(crate) struct Reader {
    schema: Schema,
    identity: u64,
}

/// Writes with a dictionary of shapes.
#[derive(Debug)]
pub(crate) struct Writer {
    schema: Schema,
    tables: Tables,
    fallback: Fallback,
    identity: u64,
}

/// What a dictionary of shapes holds.
pub(crate) struct Parts<'d> {
    schema: &'d [u8],
    fallback: Fallback,
    /// What zstd uses; may be empty.
    pub(crate) zstd: &'d [u8],
}

/// A payload that was written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    /// Nothing like it was learned from: the document is of none of the shapes, or takes more than nearly all that were.
    pub(crate) is_strange: bool,
    /// zstd may be so much shorter that it is to be tried.
    pub(crate) is_doubtful: bool,
    /// Its bytes.
    pub(crate) payload: Payload,
}

impl<'d> Parts<'d> {
    /// Of a dictionary's bytes; `Ok(None)`: it is one for zstd or LZ4.
    ///
    /// # Errors
    /// [`Error::Dictionary`]: it begins as one of shapes and is none.
    pub(crate) fn of(dictionary: &'d [u8]) -> Result<Option<Parts<'d>>, Error> {
        bytes::parts(dictionary)
    }
}

/// What tells a dictionary from others, in the sums of datums.
fn identity(dictionary: &Dictionary) -> u64 {
    dictionary.hash().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Reader {
    pub(crate) fn new(dictionary: &Dictionary, parts: &Parts<'_>) -> Result<Reader, Error> {
        let mut schema = schema(parts, dictionary)?;
        schema.prepare()?;
        Ok(Reader { schema, identity: identity(dictionary) })
    }

    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// Writes the document of a payload to `target`, all of it. `zstd`: what the dictionary has for that. False: damage.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::Codec`].
    pub(crate) fn decode(
        &self,
        zstd: Option<&DecompressorDictionary>,
        payload: &[u8],
        target: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<bool, Error> {
        Ok(reading::document(With { schema: &self.schema, zstd }, payload, target, scratch)?
            == Some(target.len()))
    }

    /// Bytes of memory.
    pub(crate) fn memory_size(&self) -> usize {
        self.schema.memory_size()
    }
}

impl Writer {
    pub(crate) fn new(dictionary: &Dictionary, parts: &Parts<'_>) -> Result<Writer, Error> {
        let mut schema = schema(parts, dictionary)?;
        schema.prepare_writing()?;
        let tables = Tables::new(&schema)?;
        Ok(Writer { schema, tables, fallback: parts.fallback.clone(), identity: identity(dictionary) })
    }

    /// Of a schema that no dictionary has yet, to see how long payloads get.
    pub(crate) fn of(schema: &Schema) -> Result<Writer, Error> {
        let mut schema = schema.clone();
        schema.prepare_writing()?;
        let tables = Tables::new(&schema)?;
        Ok(Writer { schema, tables, fallback: Fallback::NEVER, identity: 0 })
    }

    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    pub(crate) fn fallback(&self) -> &Fallback {
        &self.fallback
    }

    /// Appends the payload of a document. `Ok(None)`: it cannot be written so; what was appended means nothing.
    ///
    /// # Errors
    /// [`Error::Memory`], and those of `long`.
    pub(crate) fn encode(
        &self,
        jsonb: &[u8],
        earlier: Option<Earlier<'_>>,
        remembered: &mut Remembered,
        long: Long<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Written>, Error> {
        if jsonb.len() > SHAPES_RAW_BYTES_MAX {
            return Ok(None);
        }
        let (start, room) = (out.len(), 2 * jsonb.len() + ROOM_MIN);
        let source = writing::Source { jsonb, earlier };
        let written = writing::write(&self.schema, &self.tables, (remembered, long), source, room, out)?;
        Ok(written.map(|written| {
            let payload = Payload { len: out.len() - start, longest: written.longest };
            // Whether zstd is shorter was decided for the earlier one.
            let earlier = earlier.filter(|_| written.is_like_earlier);
            let earlier = earlier.map(|earlier| (earlier.document.len(), earlier.payload.len()));
            self.judged((jsonb.len(), payload), written.is_strange, earlier)
        }))
    }

    /// Appends the payload of a document of `raw_len` bytes in which the values of `patch`, a jsonb, replace those of its keys.
    /// Returns the document's new length as well. `Ok(None)`: that needs the document; what was appended means nothing.
    ///
    /// # Errors
    /// [`Error::Memory`], and those of `long`.
    pub(crate) fn patch(
        &self,
        (payload, raw_len): (&[u8], usize),
        patch: &[u8],
        remembered: &mut Remembered,
        long: Long<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<(usize, Written)>, Error> {
        let (start, room) = (out.len(), payload.len() + 2 * patch.len() + ROOM_MIN);
        let source = ((payload, raw_len), patch);
        let patched = writing::patch(&self.schema, &self.tables, (remembered, long), source, room, out)?;
        Ok(patched.filter(|patched| patched.raw_len <= SHAPES_RAW_BYTES_MAX).map(|patched| {
            // A long text that it has from the earlier one is not counted.
            let new = Payload { len: out.len() - start, longest: 0 };
            // As if it were encoded after the earlier one.
            let earlier = patched.is_like_earlier.then_some((raw_len, payload.len()));
            (patched.raw_len, self.judged((patched.raw_len, new), patched.has_further, earlier))
        }))
    }

    /// What to say of the payload of a document of `raw` bytes. `earlier`: bytes of the document and payload that it is like.
    fn judged(
        &self,
        (raw, payload): (usize, Payload),
        is_strange: bool,
        earlier: Option<(usize, usize)>,
    ) -> Written {
        let is_strange = is_strange || self.fallback.is_strange(raw, payload.len);
        let is_decided = earlier
            .is_some_and(|(other_raw, other)| Fallback::takes_no_more(raw, payload.len, other_raw, other));
        Written { is_strange, payload, is_doubtful: !is_decided && self.fallback.is_doubtful(raw, payload) }
    }

    /// Bytes of memory.
    pub(crate) fn memory_size(&self) -> usize {
        self.schema.memory_size() + self.tables.memory_size()
    }
}

/// The schema, which shares nothing with others.
fn schema(parts: &Parts<'_>, dictionary: &Dictionary) -> Result<Schema, Error> {
    let mut schema = bytes::schema(parts.schema)?.ok_or(Error::Dictionary { what: "schema" })?;
    schema.seed = identity(dictionary);
    Ok(schema)
}

/// A dictionary's bytes.
///
/// # Errors
/// [`Error::Memory`].
pub(crate) fn dictionary(schema: &Schema, fallback: &Fallback, zstd: &[u8]) -> Result<Dictionary, Error> {
    Ok(Dictionary::new(bytes::dictionary(schema, fallback, zstd)?)?)
}

/// Room for a payload beyond twice its document: heads and tokens.
const ROOM_MIN: usize = 1024;
