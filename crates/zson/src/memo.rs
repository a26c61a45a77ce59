//! The documents decoded last, so that several operators on one value decode it once.
//!
//! Invariants:
//! 1. A value is recognised by its bytes. An address says nothing: the server reuses memory from row to row.
//! 2. The last [`MEMO_ENTRIES_PROTECTED`] documents that were inserted or found are neither moved nor overwritten by
//!    the next insertion, so that an operator can hold several at once.
//! 3. Memory stays within the budget, except that those documents and the one being inserted are kept however
//!    large they are; [`Memo::clear`] and [`Memo::set_budget`] give everything above back.
//! 4. Buffers go from one document to the next: rows of about the same size allocate nothing.

use crate::error::Error;
use crate::limits::{MEMO_ENTRIES_MAX, MEMO_ENTRIES_PROTECTED};
use crate::memory;

/// A small cache of decoded documents, the least recently used leaving first.
#[derive(Debug)]
pub struct Memo {
    /// Most recently used first, each with the [`fingerprint`] of its datum.
    entries: Vec<(u64, Box<Entry>)>,
    /// Bytes of memory that the entries hold.
    held: usize,
    /// Bytes of memory.
    budget: usize,
    /// The first entry was inserted or found since it was [taken](Memo::take_latest).
    is_latest_new: bool,
}

#[derive(Default, Debug)]
struct Entry {
    datum: Vec<u8>,
    document: Aligned,
}

/// A document behind the 4 bytes of a varlena header, the header aligned to 8 bytes.
///
/// The header is filled in, as the server's `SET_VARSIZE` does (`varatt.h`), so that a pointer to it is a jsonb.
#[derive(Default)]
pub struct Aligned {
    /// Longer than needed by what alignment can take.
    memory: Vec<u8>,
    start: usize,
    /// Header and document.
    len: usize,
}

impl Memo {
    /// An empty one that may hold `budget` bytes.
    pub fn new(budget: usize) -> Self {
        Memo { entries: Vec::with_capacity(MEMO_ENTRIES_MAX + 1), held: 0, budget, is_latest_new: false }
    }

    /// Changes the budget and gives memory above it back. No document may be in use.
    pub fn set_budget(&mut self, budget: usize) {
        self.budget = budget;
        while self.held > budget && self.take_last().is_some() {}
    }

    /// The document of a datum that is still here.
    #[inline]
    pub fn get(&mut self, datum: &[u8]) -> Option<&Aligned> {
        let wanted = fingerprint(datum);
        let found =
            self.entries.iter().position(|(known, entry)| *known == wanted && entry.datum == datum)?;
        self.is_latest_new = true;
        if found > 0 {
            self.entries[..=found].rotate_right(1);
        }
        Some(&self.entries[0].1.document)
    }

    /// The datum and the document that were inserted or found last, each time once.
    pub fn take_latest(&mut self) -> Option<(&[u8], &Aligned)> {
        if !std::mem::take(&mut self.is_latest_new) {
            return None;
        }
        let (_, entry) = self.entries.first()?;
        Some((&entry.datum, &entry.document))
    }

    /// Keeps the document of `raw_len` bytes that `fill` writes, which sees bytes of earlier documents until then.
    /// When it fails nothing is kept.
    pub fn insert(
        &mut self,
        datum: &[u8],
        raw_len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<&Aligned, Error> {
        let mut entry = self.room_for(datum.len(), Aligned::memory_for(raw_len));
        entry.datum.clear();
        memory::reserve_exact(&mut entry.datum, datum.len())?;
        entry.datum.extend_from_slice(datum);
        entry.document.resize(raw_len)?;
        fill(entry.document.document_mut())?;
        self.held += entry.memory_size();
        self.is_latest_new = true;
        self.entries.insert(0, (fingerprint(datum), entry));
        Ok(&self.entries[0].1.document)
    }

    /// Forgets all and gives the memory back. No document may be in use.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.held = 0;
    }

    /// Bytes of memory held.
    pub fn memory_size(&self) -> usize {
        self.held
    }

    /// Buffers for a datum and a document of so many bytes, at best those of an entry that is not needed any more.
    fn room_for(&mut self, datum: usize, document: usize) -> Box<Entry> {
        let needed = datum + document;
        let full = self.entries.len() >= MEMO_ENTRIES_MAX || self.held.saturating_add(needed) > self.budget;
        let mut entry = if full { self.pop() } else { None }.unwrap_or_default();
        while self.held.saturating_add(entry.memory_with(datum, document)) > self.budget {
            if self.pop().is_none() {
                // One large document does not keep its memory for all that follow.
                if entry.memory_size() > needed.saturating_mul(2) {
                    *entry = Entry::default();
                }
                break;
            }
        }
        entry
    }

    /// Takes the least recently used away unless it is protected.
    fn pop(&mut self) -> Option<Box<Entry>> {
        if self.entries.len() > MEMO_ENTRIES_PROTECTED { self.take_last() } else { None }
    }

    fn take_last(&mut self) -> Option<Box<Entry>> {
        let (_, entry) = self.entries.pop()?;
        self.held -= entry.memory_size();
        Some(entry)
    }
}

/// What two datums of different documents nearly never share: the beginning, with most of the check sum, and the
/// length. Saves comparing them where many have one length.
#[inline]
fn fingerprint(datum: &[u8]) -> u64 {
    let beginning = match datum.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => datum.iter().fold(0, |known, byte| known << 8 | u64::from(*byte)),
    };
    beginning ^ (datum.len() as u64).rotate_right(16)
}

impl Entry {
    fn memory_size(&self) -> usize {
        self.memory_with(0, 0)
    }

    /// Bytes of memory once it has room for a datum and a document of so many bytes.
    fn memory_with(&self, datum: usize, document: usize) -> usize {
        self.datum.capacity().max(datum) + self.document.memory.capacity().max(document)
    }
}

impl Aligned {
    /// Header and document.
    pub fn varlena(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    /// The document.
    pub fn document(&self) -> &[u8] {
        &self.varlena()[VARLENA_HEADER_BYTES..]
    }

    fn document_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len][VARLENA_HEADER_BYTES..]
    }

    fn memory_for(raw_len: usize) -> usize {
        raw_len + VARLENA_HEADER_BYTES + ALIGNMENT - 1
    }

    /// Makes room for a document of this size, whose bytes are arbitrary.
    fn resize(&mut self, raw_len: usize) -> Result<(), Error> {
        let needed = Self::memory_for(raw_len);
        if self.memory.len() < needed {
            self.memory.clear();
            // Not twice as much as there was: the budget is counted in what is really held.
            memory::reserve_exact(&mut self.memory, needed)?;
            self.memory.resize(needed, 0);
        }
        self.start = self.memory.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        self.len = VARLENA_HEADER_BYTES + raw_len;
        let header = varlena_header(self.len as u32);
        self.memory[self.start..][..VARLENA_HEADER_BYTES].copy_from_slice(&header);
        Ok(())
    }
}

impl std::fmt::Debug for Aligned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Aligned({} bytes)", self.len)
    }
}

const ALIGNMENT: usize = 8;
const VARLENA_HEADER_BYTES: usize = 4;

/// `SET_VARSIZE_4B` of the server's `varatt.h`: the two bits of the kind are where the first byte shows them.
fn varlena_header(len: u32) -> [u8; VARLENA_HEADER_BYTES] {
    if cfg!(target_endian = "big") { (len & 0x3fff_ffff).to_be_bytes() } else { (len << 2).to_le_bytes() }
}
