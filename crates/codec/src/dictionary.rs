//! Dictionaries: what many small inputs have in common, given to both sides beforehand.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::algorithm::Algorithm;
use crate::error::Error;
use crate::limits::{DICTIONARY_BYTES_MAX, DICTIONARY_SAMPLE_BYTES_MAX};

/// Immutable dictionary bytes and the hash that tells one content from another. Cheap to clone.
///
/// Any bytes make a dictionary. zstd uses all of them, and the entropy tables of a [trained](Self::train) one;
/// LZ4 uses the last 64 KiB and zlib the last 32 KiB, so the best belongs at the end, where the trainer puts it.
/// PGLZ, Snappy and LZFSE have none.
#[derive(Clone, PartialEq, Eq)]
pub struct Dictionary(Arc<Inner>);

#[derive(PartialEq, Eq)]
struct Inner {
    bytes: Vec<u8>,
    hash: [u8; 32],
}

impl Dictionary {
    /// The dictionary of these bytes, at most [`DICTIONARY_BYTES_MAX`] and not empty.
    pub fn new(bytes: Vec<u8>) -> Result<Self, Error> {
        check("dictionary size", bytes.len(), DICTIONARY_BYTES_MAX)?;
        if bytes.is_empty() {
            return Err(Error::Training { detail: "the dictionary is empty" });
        }
        let hash = Sha256::digest(&bytes).into();
        Ok(Dictionary(Arc::new(Inner { bytes, hash })))
    }

    /// Trains a dictionary of at most `size_max` bytes with zstd's trainer. The same samples in the same order
    /// give the same dictionary. It wants many samples (hundreds; a hundred times `size_max` of bytes) and
    /// refuses too few.
    pub fn train<S: AsRef<[u8]>>(samples: &[S], size_max: usize) -> Result<Self, Error> {
        check("dictionary size", size_max, DICTIONARY_BYTES_MAX)?;
        let total = samples.iter().map(|s| s.as_ref().len()).fold(0usize, usize::saturating_add);
        check("size of all dictionary samples", total, DICTIONARY_SAMPLE_BYTES_MAX)?;
        let (mut sizes, mut joined, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        // Samples are somebody's data: a lack of memory for them must not end the process.
        sizes.try_reserve_exact(samples.len()).map_err(|_| MEMORY)?;
        joined.try_reserve_exact(total).map_err(|_| MEMORY)?;
        bytes.try_reserve_exact(size_max).map_err(|_| MEMORY)?;
        for sample in samples {
            sizes.push(sample.as_ref().len());
            joined.extend_from_slice(sample.as_ref());
        }
        zstd_safe::train_from_buffer(&mut bytes, &joined, &sizes).map_err(|code| {
            let detail = zstd_safe::get_error_name(code);
            if is_memory(detail) { MEMORY } else { Error::Training { detail } }
        })?;
        Self::new(bytes)
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// SHA-256 of the content.
    pub fn hash(&self) -> &[u8; 32] {
        &self.0.hash
    }

    /// Whether `algorithm` can use dictionaries.
    pub const fn usable_with(algorithm: Algorithm) -> bool {
        matches!(algorithm, Algorithm::Zstd | Algorithm::Lz4 | Algorithm::Zlib)
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0.hash;
        write!(f, "Dictionary({} bytes, {a:02x}{b:02x}{c:02x}{d:02x}..)", self.0.bytes.len())
    }
}

/// Whether zstd reports by this name of an error that it could not get memory.
pub(crate) fn is_memory(error_name: &str) -> bool {
    error_name.contains("not enough memory")
}

const MEMORY: Error = Error::Memory { algorithm: Algorithm::Zstd };

fn check(what: &'static str, found: usize, allowed: usize) -> Result<(), Error> {
    let (found, allowed) = (found as u64, allowed as u64);
    if found > allowed { Err(Error::Limit { what, found, allowed }) } else { Ok(()) }
}
