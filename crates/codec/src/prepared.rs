//! Dictionaries digested once and then used for many small inputs by [`bare`](crate::bare).
//!
//! Digesting costs a compressor 50-600 microseconds and a decompressor 10-80, many times what one small document
//! takes. What is digested here is immutable and may be shared between threads; both kinds keep the dictionary
//! they were made of and refer to its bytes instead of copying them.
#![allow(unsafe_code)]

use std::fmt;

use zstd_safe::{CDict, DDict};

use crate::algorithm::{Algorithm, Choice};
use crate::dictionary::Dictionary;
use crate::error::Error;
use crate::limits::LZ4_HISTORY_BYTES;
use crate::lz4::{STREAM_BYTES, Stream};

/// A dictionary prepared for compressing by one algorithm at one level.
pub struct CompressorDictionary {
    // Before the dictionary, to whose bytes it refers: fields are dropped in this order.
    digest: Digest,
    dictionary: Dictionary,
    choice: Choice,
}

/// What a compressor has made of a dictionary.
pub(crate) enum Digest {
    Zstd(CDict<'static>),
    Lz4(Box<Stream>),
}

/// A dictionary prepared for decompressing, by every algorithm that [`bare`](crate::bare) knows.
pub struct DecompressorDictionary {
    // Before the dictionary, to whose bytes it refers.
    zstd: DDict<'static>,
    dictionary: Dictionary,
}

// SAFETY: a digest is only read once it is made (zstd.h on ZSTD_CDict; LZ4_attach_dictionary takes it as const).
unsafe impl Sync for CompressorDictionary {}

impl CompressorDictionary {
    /// Digests `dictionary` for `choice`. Only zstd and LZ4 can; LZ4 uses the last 64 KiB.
    pub fn new(dictionary: &Dictionary, choice: Choice) -> Result<Self, Error> {
        let dictionary = dictionary.clone();
        let choice = Choice::new(choice.algorithm, choice.level.0.into())?;
        let digest = match choice.algorithm {
            Algorithm::Zstd => {
                // SAFETY: the digest is kept beside the dictionary and dropped before it.
                let bytes = unsafe { forever(&dictionary) };
                Digest::Zstd(CDict::try_create_by_reference(bytes, choice.level.0).ok_or_else(why_not)?)
            }
            Algorithm::Lz4 => {
                let mut stream = Stream::new();
                // SAFETY: the bytes are immutable, on the heap, and kept alive beside the stream.
                unsafe { stream.load(dictionary.bytes(), true) };
                Digest::Lz4(stream)
            }
            algorithm => return Err(Error::Unsupported { algorithm, what: "prepared dictionaries" }),
        };
        Ok(CompressorDictionary { digest, dictionary, choice })
    }

    /// The algorithm and level it was prepared for.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// What it was made of.
    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Bytes of memory it holds, the dictionary's own included.
    pub fn memory_size(&self) -> usize {
        let digest = match &self.digest {
            Digest::Zstd(digest) => digest.sizeof(),
            Digest::Lz4(_) => STREAM_BYTES,
        };
        size_of::<Self>() + digest + self.dictionary.bytes().len()
    }

    pub(crate) fn digest(&self) -> &Digest {
        &self.digest
    }
}

impl DecompressorDictionary {
    /// Digests `dictionary`.
    pub fn new(dictionary: &Dictionary) -> Result<Self, Error> {
        let dictionary = dictionary.clone();
        // SAFETY: the digest is kept beside the dictionary and dropped before it.
        let bytes = unsafe { forever(&dictionary) };
        let zstd = DDict::try_create_by_reference(bytes).ok_or_else(why_not)?;
        Ok(DecompressorDictionary { zstd, dictionary })
    }

    /// What it was made of.
    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Bytes of memory it holds, the dictionary's own included.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>() + self.zstd.sizeof() + self.dictionary.bytes().len()
    }

    pub(crate) fn zstd(&self) -> &DDict<'static> {
        &self.zstd
    }

    /// What an LZ4 block can refer to.
    pub(crate) fn lz4(&self) -> &[u8] {
        let bytes = self.dictionary.bytes();
        &bytes[bytes.len().saturating_sub(LZ4_HISTORY_BYTES)..]
    }
}

impl fmt::Debug for CompressorDictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompressorDictionary({}, {:?})", self.choice, self.dictionary)
    }
}

impl fmt::Debug for DecompressorDictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecompressorDictionary({:?})", self.dictionary)
    }
}

/// zstd does not say why it could not digest a dictionary. Where memory for a digest is lacking, that is why.
fn why_not() -> Error {
    let mut probe = Vec::<u8>::new();
    match probe.try_reserve_exact(DIGEST_BYTES) {
        Ok(()) => UNUSABLE,
        Err(_) => Error::Memory { algorithm: Algorithm::Zstd },
    }
}

/// More than the digest of a dictionary of the largest size takes at the usual levels.
const DIGEST_BYTES: usize = 8 << 20;

/// Bytes that begin like a trained dictionary must be one.
const UNUSABLE: Error = Error::Unsupported {
    algorithm: Algorithm::Zstd,
    what: "this dictionary: its entropy tables are damaged",
};

/// The dictionary's bytes without the borrow.
///
/// # Safety
/// They must not be used once the last clone of `dictionary` is gone.
unsafe fn forever(dictionary: &Dictionary) -> &'static [u8] {
    let bytes = dictionary.bytes();
    // SAFETY: the bytes are immutable and stay where they are on the heap while any clone lives.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
}
