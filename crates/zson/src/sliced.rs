//! A datum of shapes that is read slice by slice, as the server's TOAST gives it.
//!
//! ```text
//!   the first bytes --> Sliced::new --> view --> Error::Missing --> needed --> slice --> fill --> view ...
//! ```

use std::ops::Range;

use crate::datum::{BLOCK_BYTES, Header, Layout};
use crate::dictionary::{DictionaryId, ReadingDictionary};
use crate::error::Error;
use crate::memory;
use crate::shapes::{Blocks, View};

/// A datum of shapes of which some bytes are here.
#[derive(Debug)]
pub struct Sliced {
    layout: Layout,
    dictionary: DictionaryId,
    identity: u64,
    sums: Vec<u8>,
    payload: Vec<u8>,
    blocks: Blocks,
}

impl Sliced {
    /// Bytes from the beginning of a datum of `len` bytes that [`new`](Self::new) needs.
    pub fn head_len(len: usize) -> usize {
        Layout::head_len(len)
    }

    /// Begins with the first bytes of a datum of `len` bytes, which are compared with their check sum; none if it is not
    /// one of shapes, whatever dictionary is given.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::WrongDictionary`], [`Error::Memory`].
    pub fn new(head: &[u8], len: usize, dictionary: &ReadingDictionary) -> Result<Option<Sliced>, Error> {
        let Some((header, layout)) = Header::parse_head(head, len)? else { return Ok(None) };
        let identity = dictionary.unverified(&header)?.identity();
        layout.verify_first(&header, identity)?;
        let mut payload = memory::zeroed(layout.payload_len())?;
        let first = header.payload();
        let blocks = Blocks::first_of(&payload)?;
        if let Some(target) = payload.get_mut(..first.len()) {
            target.copy_from_slice(first);
        }
        let sums = memory::copy(header.sums())?;
        Ok(Some(Sliced { layout, dictionary: dictionary.id(), identity, sums, payload, blocks }))
    }

    /// The document, as far as it is here. Whatever needs more gives [`Error::Missing`].
    ///
    /// # Errors
    /// [`Error::WrongDictionary`].
    pub fn view<'a>(&'a self, dictionary: &'a ReadingDictionary) -> Result<View<'a>, Error> {
        let reader = dictionary.of_id(self.dictionary)?;
        let payload = (self.payload.as_slice(), Some(&self.blocks));
        Ok(View::new((reader, dictionary.prepared()), payload, self.layout.raw_len(), self.dictionary))
    }

    /// After [`Error::Missing`]: the range of the datum that is to be [filled in](Self::fill).
    pub fn needed(&self) -> Option<Range<usize>> {
        let blocks = self.blocks.missing()?;
        let start = self.layout.payload_start();
        let end = (blocks.end * BLOCK_BYTES).min(self.payload.len());
        Some(start + blocks.start * BLOCK_BYTES..start + end)
    }

    /// Fills in the bytes of the range that was [needed](Self::needed), which are compared with their sums.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn fill(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some(blocks) = self.blocks.missing() else { return Ok(()) };
        for (block, bytes) in blocks.clone().zip(bytes.chunks(BLOCK_BYTES)) {
            self.layout.verify_block(self.dictionary, self.identity, &self.sums, (block, bytes))?;
        }
        let start = blocks.start * BLOCK_BYTES;
        let end = (blocks.end * BLOCK_BYTES).min(self.payload.len());
        match self.payload.get_mut(start..end).filter(|target| target.len() == bytes.len()) {
            Some(target) => target.copy_from_slice(bytes),
            None => return Err(Error::Target { needed: end - start, given: bytes.len() }),
        }
        self.blocks.filled(blocks);
        Ok(())
    }
}
