//! What pages would take by every algorithm, and how fast, found by encoding and decoding them.
//!
//! It does not read clocks: the caller hands one in, so that a bench can count processor time and a test
//! nothing.
//!
//! ```
//! use std::time::Duration;
//! use pgshrink_cfs::estimate::{Allocation, Method, estimate};
//! let pages = vec![[7; 8192]; 10];
//! let found = estimate(&pages, 0, &Method::all(), Allocation::default(), &mut || Duration::ZERO)?;
//! assert!(found.iter().all(|estimate| estimate.ratio() > 10.0));
//! # Ok::<(), pgshrink_cfs::page::Error>(())
//! ```

use std::time::Duration;

use pgshrink_codec::{Algorithm, Choice, Level};

use crate::engine::container::Tuning;
use crate::engine::segment::PLAIN_PAGES_MAX;
use crate::format::record::HEADER_BYTES;
use crate::format::root::{DISK_BLOCK_BYTES, HEAD_BYTES, INLINE_MAX, ITEM_BYTES};
use crate::format::units::{PAGES_MAX, UNIT_BYTES};
use crate::page::{Error, Mode, PAGE_SIZE, PageCodec, PageDictionary, Policy, TransformPolicy};
use crate::shared::region::EXTENT_UNITS;

/// A way to store pages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Method {
    /// How pages are encoded.
    pub policy: Policy,
    /// The largest dictionary to train from the first pages, in bytes; 0 for none.
    pub dictionary_size_max: usize,
}

/// What a payload takes in a container.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Bytes in front of each payload.
    pub header_bytes: usize,
    /// Records are rounded up to a multiple of this many bytes.
    pub granule_bytes: usize,
}

/// What was found for one method.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// The method.
    pub method: Method,
    /// Pages, those of zeros included.
    pub page_count: usize,
    /// Pages that had to be stored raw.
    pub raw_count: usize,
    /// Bytes of all payloads.
    pub payload_bytes: u64,
    /// Bytes of all records and of the dictionary.
    pub allocated_bytes: u64,
    /// Bytes of the dictionary.
    pub dictionary_bytes: usize,
    /// Time that encoding all pages took, training left out.
    pub encode: Duration,
    /// Time that decoding all pages took.
    pub decode: Duration,
}

/// Pages that a dictionary is trained from.
pub const TRAINING_PAGES_MAX: usize = 128;
/// The usual size of a dictionary.
pub const DICTIONARY_BYTES: usize = 16 << 10;

impl Method {
    /// Pages rearranged, `choice`, a dictionary of the usual size where `choice` can use one.
    pub fn of(choice: Choice) -> Method {
        let dictionary_size_max = if PageDictionary::usable_with(choice) { DICTIONARY_BYTES } else { 0 };
        Method { policy: Policy { choice, transform: TransformPolicy::Auto }, dictionary_size_max }
    }

    /// Every algorithm, zstd at a fast, the usual and a thorough level.
    pub fn all() -> Vec<Method> {
        let levels = [(Algorithm::Lz4, 1), (Algorithm::Zstd, 1), (Algorithm::Zstd, 3), (Algorithm::Zstd, 9)];
        let levels = levels.map(|(algorithm, level)| Choice { algorithm, level: Level(level) });
        let others =
            [Algorithm::Zlib, Algorithm::Pglz, Algorithm::Snappy, Algorithm::Lzfse].map(Choice::from);
        levels.into_iter().chain(others).map(Method::of).collect()
    }
}

/// What the container of a relation's records takes besides them (`formats/cfs.md`): its head, the map, the dictionary, and
/// what of a relation stays plain.
///
/// `records_bytes` are those of all `pages`, as [`Allocation::RECORD`] counts them; `dictionary_bytes` is 0 for none. The map's entries are counted
/// as those of leaves that were written in sequence, which is what conversion and packing leave behind.
///
/// ```
/// use pgshrink_cfs::estimate::container_bytes;
/// assert_eq!(container_bytes(4, 400, 0), 4 * 8192, "so few pages stay a plain file");
/// assert_eq!(container_bytes(100, 100_000, 0), 12288 + 100_000, "entries of so few pages are in the root");
/// assert_eq!(container_bytes(100_000, 5_000_000, 0), 12288 + 5_000_000 + 100_000 * 4);
/// ```
pub fn container_bytes(pages: u64, records_bytes: u64, dictionary_bytes: u64) -> u64 {
    let (segment, plain_max) = (u64::from(PAGES_MAX), u64::from(PLAIN_PAGES_MAX));
    // The last segment alone may be that small.
    let rest = pages % segment;
    let plain = if rest <= plain_max { rest } else { 0 };
    let packed = pages - plain;
    let records = u128::from(records_bytes) * u128::from(packed) / u128::from(pages.max(1));
    let dictionary = match dictionary_bytes {
        0 => 0,
        // It is durable before its first use, and no later record shares its last disk block.
        bytes => Allocation::RECORD
            .of(bytes as usize + DICTIONARY_HEAD_BYTES)
            .next_multiple_of(DISK_BLOCK_BYTES as u64),
    };
    let segments = packed.div_ceil(segment);
    plain * PAGE_SIZE as u64
        + records as u64
        + map_bytes(packed)
        + segments * (HEAD_BYTES as u64 + dictionary)
}

/// What the container of a relation's records takes in a running server that has packed it because nobody writes to it:
/// [`container_bytes`], and what stays empty.
///
/// Space becomes free in extents. Of each segment's last extent, half is empty on average. About as much is empty around a
/// dictionary: pages beside it are stored anew elsewhere, and it is not moved.
///
/// ```
/// use pgshrink_cfs::estimate::{container_bytes, packed_bytes};
/// assert_eq!(packed_bytes(100, 100_000, 0), container_bytes(100, 100_000, 0) + 4096);
/// assert_eq!(packed_bytes(4, 400, 0), 4 * 8192, "so few pages stay a plain file");
/// ```
pub fn packed_bytes(pages: u64, records_bytes: u64, dictionary_bytes: u64) -> u64 {
    let extent = u64::from(EXTENT_UNITS) * UNIT_BYTES as u64;
    let holes = if dictionary_bytes > 0 { extent } else { extent / 2 };
    let segments = pages.saturating_sub(u64::from(PLAIN_PAGES_MAX)).div_ceil(u64::from(PAGES_MAX));
    container_bytes(pages, records_bytes, dictionary_bytes) + segments * holes
}

/// Bytes of all `pages` of a relation, of which `measured` took so many: the mean times the number.
pub fn extrapolated(measured_bytes: u64, measured: u64, pages: u64) -> u64 {
    (u128::from(measured_bytes) * u128::from(pages) / u128::from(measured.max(1))) as u64
}

/// What the map takes of a relation whose pages were written in sequence and then committed.
fn map_bytes(pages: u64) -> u64 {
    let segment = u64::from(PAGES_MAX);
    let of_segment = |pages: u64| match pages as usize {
        // In the root itself, in a delta, in leaves.
        pages if pages <= INLINE_MAX => 0,
        pages if pages <= Tuning::default().changes_min => pages * ITEM_BYTES,
        pages => pages * ENTRY_BYTES,
    };
    (pages / segment * of_segment(segment) as u64) + of_segment(pages % segment) as u64
}

/// Bytes of a page's entry in a leaf of the map that was written in sequence.
const ENTRY_BYTES: usize = 4;
/// Number and name of a dictionary, before its content.
const DICTIONARY_HEAD_BYTES: usize = 18;

impl Default for Allocation {
    /// A record's header, and granules as fine as a container can have.
    fn default() -> Self {
        Allocation { header_bytes: 32, granule_bytes: 16 }
    }
}

impl Allocation {
    /// What a record takes in a container.
    pub const RECORD: Allocation = Allocation { header_bytes: HEADER_BYTES, granule_bytes: UNIT_BYTES };

    fn of(self, payload_bytes: usize) -> u64 {
        (self.header_bytes + payload_bytes).next_multiple_of(self.granule_bytes) as u64
    }
}

impl Estimate {
    /// Of no page yet, without a dictionary.
    pub fn new(method: Method) -> Estimate {
        Estimate {
            method,
            page_count: 0,
            raw_count: 0,
            payload_bytes: 0,
            allocated_bytes: 0,
            dictionary_bytes: 0,
            encode: Duration::ZERO,
            decode: Duration::ZERO,
        }
    }

    /// Encodes, decodes and compares pages, each with its block, and adds what they take. Whether a
    /// dictionary counts is the caller's business.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a page that did not come back; [`Error::Codec`].
    pub fn add(
        &mut self,
        codec: &mut PageCodec,
        batch: &[(u32, &[u8; PAGE_SIZE])],
        dictionary: Option<&PageDictionary>,
        allocation: Allocation,
        clock: &mut dyn FnMut() -> Duration,
    ) -> Result<(), Error> {
        let (mut payloads, mut ends) = (Vec::new(), Vec::with_capacity(batch.len()));
        let mut back = [0; PAGE_SIZE];
        let begun = clock();
        for &(block, page) in batch {
            let encoded = codec.encode(page, Some(block), &self.method.policy, dictionary, &mut payloads)?;
            ends.push((encoded.mode, payloads.len()));
        }
        let encoded = clock();
        decode_all(codec, batch, dictionary, &payloads, &ends, false, &mut back)?;
        self.decode += clock().saturating_sub(encoded);
        self.encode += encoded.saturating_sub(begun);
        decode_all(codec, batch, dictionary, &payloads, &ends, true, &mut back)?;
        let mut start = 0;
        for (mode, end) in ends {
            self.count(mode, end - start, allocation);
            start = end;
        }
        Ok(())
    }

    /// As [`add`](Self::add), but pages are only encoded: half the time, no comparison, no times.
    ///
    /// # Errors
    /// [`Error::Codec`].
    pub fn add_sizes(
        &mut self,
        codec: &mut PageCodec,
        batch: &[(u32, &[u8; PAGE_SIZE])],
        dictionary: Option<&PageDictionary>,
        allocation: Allocation,
    ) -> Result<(), Error> {
        let mut payload = Vec::new();
        for &(block, page) in batch {
            payload.clear();
            let encoded = codec.encode(page, Some(block), &self.method.policy, dictionary, &mut payload)?;
            self.count(encoded.mode, payload.len(), allocation);
        }
        Ok(())
    }

    fn count(&mut self, mode: Mode, payload_bytes: usize, allocation: Allocation) {
        self.page_count += 1;
        self.raw_count += usize::from(mode == Mode::RAW);
        self.payload_bytes += payload_bytes as u64;
        self.allocated_bytes += if mode == Mode::ZERO { 0 } else { allocation.of(payload_bytes) };
    }

    /// Bytes of pages to bytes allocated. Only zeros: infinite.
    pub fn ratio(&self) -> f64 {
        (self.page_count * PAGE_SIZE) as f64 / self.allocated_bytes as f64
    }
}

/// Encodes and decodes `pages`, which begin at `first_block` of their relation, by each method. `clock` tells
/// the time since whenever.
///
/// # Errors
/// [`Error::Corrupt`] for a page that did not come back; [`Error::Codec`].
pub fn estimate(
    pages: &[[u8; PAGE_SIZE]],
    first_block: u32,
    methods: &[Method],
    allocation: Allocation,
    clock: &mut dyn FnMut() -> Duration,
) -> Result<Vec<Estimate>, Error> {
    let mut trained: Vec<(usize, Option<Vec<u8>>)> = vec![];
    let mut found = Vec::with_capacity(methods.len());
    for method in methods {
        let size_max = method.dictionary_size_max;
        if size_max > 0 && !trained.iter().any(|(size, _)| *size == size_max) {
            trained.push((size_max, PageDictionary::train(pages.iter().take(TRAINING_PAGES_MAX), size_max)));
        }
        let bytes = trained.iter().find(|(size, _)| *size == size_max).and_then(|(_, bytes)| bytes.clone());
        let dictionary =
            bytes.map(|bytes| PageDictionary::new(bytes, &[method.policy.choice])).transpose()?;
        found.push(one(pages, first_block, *method, dictionary.as_ref(), allocation, clock)?);
    }
    Ok(found)
}

fn one(
    pages: &[[u8; PAGE_SIZE]],
    first_block: u32,
    method: Method,
    dictionary: Option<&PageDictionary>,
    allocation: Allocation,
    clock: &mut dyn FnMut() -> Duration,
) -> Result<Estimate, Error> {
    let mut estimate = Estimate::new(method);
    estimate.dictionary_bytes = dictionary.map_or(0, |dictionary| dictionary.bytes().len());
    estimate.allocated_bytes = estimate.dictionary_bytes as u64;
    let mut codec = PageCodec::new();
    for (batch, first) in pages.chunks(BATCH_PAGES).zip((first_block..).step_by(BATCH_PAGES)) {
        let batch: Vec<_> = (first..).zip(batch).collect();
        estimate.add(&mut codec, &batch, dictionary, allocation, clock)?;
    }
    Ok(estimate)
}

/// Pages that are to be encoded before they are decoded: they fit into no near cache, as in a server.
pub const BATCH_PAGES: usize = 1024;

fn decode_all(
    codec: &mut PageCodec,
    batch: &[(u32, &[u8; PAGE_SIZE])],
    dictionary: Option<&PageDictionary>,
    payloads: &[u8],
    ends: &[(Mode, usize)],
    check: bool,
    back: &mut [u8; PAGE_SIZE],
) -> Result<(), Error> {
    let mut start = 0;
    for (&(block, page), &(mode, end)) in batch.iter().zip(ends) {
        codec.decode(mode.byte(), &payloads[start..end], Some(block), dictionary, back)?;
        if check && back != page {
            return Err(Error::Corrupt { what: "another page than was encoded" });
        }
        start = end;
    }
    Ok(())
}
