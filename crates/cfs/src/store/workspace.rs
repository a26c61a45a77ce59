//! What one caller needs to encode and decode pages of any number of containers, within a budget of bytes.

use pgshrink_codec::{Algorithm, Choice};

use super::cache::{Cache, Name, Slot};
use super::error::Error;
use crate::device::{Device, ProcessTable};
use crate::engine::adjacent::{RUN_BYTES_MAX, Run};
use crate::engine::container::{Container, Scratch};
use crate::format::error::{Error as ContainerError, Reason};
use crate::format::units::ContainerId;
use crate::page::{PAGE_SIZE, PageCodec, PageDictionary};
use crate::shared::word::Word;

/// Room for what a page is encoded to, in two ways at once (`page::PageCodec::encode`).
const PAYLOAD_BYTES: usize = 40 << 10;
/// Of what a budget leaves for more than one page, one in so many bytes are for reading ahead of decoding.
const RUN_SHARE: usize = 4;
/// Algorithms that there are.
const ALGORITHMS: usize = Algorithm::ALL.len();

/// Contexts, dictionaries and scratch memory of one caller, a thread or a process: it is passed to every call
/// of any [`PageStore`](super::PageStore).
///
/// Most of what is needed in any case is allocated when it is made. Reading and writing allocate when an
/// algorithm, a level or a dictionary is met that was not there, which [`warm`](super::PageStore::warm) does
/// ahead of time, and when a page needs more of the codec's scratch memory than all pages before it.
pub struct Workspace {
    pub(super) scratch: Scratch,
    pub(super) run: Run,
    pub(super) codecs: Codecs,
}

/// What encodes and decodes.
pub(super) struct Codecs {
    pub(super) codec: PageCodec,
    pub(super) payload: Vec<u8>,
    /// What decoding gives of a page that was just encoded.
    pub(super) check: Box<[u8; PAGE_SIZE]>,
    pub(super) cache: Cache,
    budget: usize,
    /// Bytes that are there for as long as the workspace.
    fixed: usize,
    /// Bytes at most of the contexts that were made, by algorithm.
    writers: [usize; ALGORITHMS],
    readers: [usize; ALGORITHMS],
    /// The newest dictionary, if it could not be prepared for writing.
    pub(super) refused: Option<(Name, Choice)>,
    /// The last choice that contexts were made for, and the dictionary's size.
    ready: Option<(Choice, usize)>,
}

impl Workspace {
    /// What a tool can spare: any level, a few dictionaries of the largest size.
    pub const BUDGET_BYTES: usize = 64 << 20;

    /// With a budget of so many bytes for all that it ever holds.
    ///
    /// # Errors
    /// [`Error::Budget`]: it is not enough for pages without contexts and dictionaries.
    pub fn new(budget_bytes: usize) -> Result<Workspace, Error> {
        let alone = size_of::<Workspace>()
            + Scratch::BYTES
            + PAYLOAD_BYTES
            + PAGE_SIZE
            + PageCodec::SCRATCH_BYTES_MAX;
        let needed = alone + Run::new(0).memory_size();
        if needed > budget_bytes {
            let (needed, budget) = (needed as u64, budget_bytes as u64);
            return Err(Error::Budget { what: "a page's scratch memory", needed, held: 0, budget });
        }
        let run = Run::new(((budget_bytes - needed) / RUN_SHARE).min(RUN_BYTES_MAX));
        let codecs = Codecs {
            codec: PageCodec::new(),
            payload: Vec::with_capacity(PAYLOAD_BYTES),
            check: Box::new([0; PAGE_SIZE]),
            cache: Cache::default(),
            budget: budget_bytes,
            fixed: alone + run.memory_size(),
            writers: [0; ALGORITHMS],
            readers: [0; ALGORITHMS],
            refused: None,
            ready: None,
        };
        Ok(Workspace { scratch: Scratch::new(), run, codecs })
    }

    /// Bytes that it holds at most, never more than its budget: allocations that vary by a page's content
    /// count with their bounds.
    pub fn memory_size(&self) -> usize {
        self.codecs.memory_size()
    }

    /// Dictionaries that it keeps.
    pub fn dictionaries(&self) -> usize {
        self.codecs.cache.len()
    }

    /// Gives up what is kept for a container that is gone. Not needed for what is read to be right: another
    /// store finds nothing of it.
    pub fn forget(&mut self, container: ContainerId) {
        self.codecs.cache.forget(container);
    }
}

impl Codecs {
    fn memory_size(&self) -> usize {
        let contexts: usize = self.writers.iter().chain(&self.readers).sum();
        self.fixed + contexts + self.cache.memory_size()
    }

    /// Sees to it that so many bytes more are within the budget, at the cost of dictionaries other than
    /// `keep`.
    fn make_room(&mut self, needed: usize, keep: Option<Slot>, what: &'static str) -> Result<(), Error> {
        while self.memory_size().saturating_add(needed) > self.budget {
            if !self.cache.evict(keep) {
                let (needed, held) = (needed as u64, self.memory_size() as u64);
                return Err(Error::Budget { what, needed, held, budget: self.budget as u64 });
            }
        }
        Ok(())
    }

    /// Before pages are encoded by `choice`, with a dictionary of so many bytes, which is kept.
    pub(super) fn admit_writer(
        &mut self,
        choice: Choice,
        dictionary_bytes: usize,
        keep: Option<Slot>,
    ) -> Result<(), Error> {
        if self.ready == Some((choice, dictionary_bytes)) {
            return Ok(());
        }
        let index = choice.algorithm as usize;
        let bytes = PageCodec::encoder_bytes_max(choice, dictionary_bytes);
        let more = bytes.saturating_sub(self.writers[index]);
        self.make_room(more, keep, "a compression context")?;
        self.writers[index] += more;
        self.ready = Some((choice, dictionary_bytes));
        Ok(())
    }

    /// Before pages of `algorithm` are decoded.
    pub(super) fn admit_reader(&mut self, algorithm: Algorithm) -> Result<(), Error> {
        let index = algorithm as usize;
        if self.readers[index] > 0 {
            return Ok(());
        }
        let bytes = PageCodec::decoder_bytes_max(algorithm);
        self.make_room(bytes, None, "a decompression context")?;
        self.readers[index] = bytes;
        Ok(())
    }

    /// A dictionary, from memory or from the container.
    ///
    /// # Errors
    /// [`Error::Dictionary`], [`Error::Budget`].
    pub(super) fn load<D: Device, P: ProcessTable, W: Word>(
        &mut self,
        container: &Container<'_, D, P, W>,
        name: Name,
        block: u32,
    ) -> Result<Slot, Error> {
        if let Some(slot) = self.cache.find(name) {
            return Ok(slot);
        }
        let number = name.dictionary;
        let failed = |source: ContainerError| Error::Dictionary { block, number, source };
        let record = container.dictionary_record_bytes(number).map_err(failed)?;
        // Its record as it is read and its content, then the content and what is made of it.
        let needed = (2 * record).max(PageDictionary::bytes_max(record));
        self.make_room(needed + Cache::ENTRY_BYTES, None, "a dictionary")?;
        let (_, content) = container.dictionary(number).map_err(failed)?;
        let dictionary = PageDictionary::new(content, &[]).map_err(|source| match source {
            source @ crate::page::Error::Codec(pgshrink_codec::Error::Memory { .. }) => {
                Error::Page { block, source }
            }
            _ => failed(container.dictionary_damage(number, Reason::Content)),
        })?;
        Ok(self.cache.insert(name, dictionary))
    }

    /// Makes a dictionary that is there ready for writing by `choice`.
    pub(super) fn prepare(&mut self, slot: Slot, choice: Choice, block: u32) -> Result<(), Error> {
        let Some(dictionary) = self.cache.get(slot) else { return Ok(()) };
        let (growth, bytes) = (dictionary.growth_max(choice), dictionary.bytes().len());
        if growth > 0 {
            self.make_room(growth, Some(slot), "a dictionary prepared for writing")?;
            let prepared = self.cache.change(slot, |dictionary| dictionary.prepare(choice));
            prepared.unwrap_or(Ok(())).map_err(|source| Error::Page { block, source })?;
        }
        self.admit_writer(choice, bytes, Some(slot))
    }
}
