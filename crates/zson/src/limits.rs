//! Every cap of this crate, in one place.

/// Bytes at most of a document: what the length field of a jsonb entry can say (`JENTRY_OFFLENMASK` of the server's
/// `jsonb.h`), so that no jsonb is longer.
pub const RAW_BYTES_MAX: usize = 0x0fff_ffff;

/// Documents whose decoded form a [`Memo`](crate::Memo) keeps.
pub const MEMO_ENTRIES_MAX: usize = 8;
/// How many of them stay where they are whatever is inserted next.
pub const MEMO_ENTRIES_PROTECTED: usize = 4;

/// Codes of the original's dictionaries: 16 bits, zero being none.
pub const LEGACY_CODES_MAX: usize = 1 << 16;

/// Bytes of samples that a dictionary of one byte needs to be worth trying.
pub const SAMPLE_BYTES_PER_DICTIONARY_BYTE_MIN: usize = 4;
/// Bytes of samples, for each byte of a dictionary, that the trainer looks at; more takes longer and gains nothing.
pub const SAMPLE_BYTES_PER_DICTIONARY_BYTE_MAX: usize = 200;
/// Bytes of held-out documents that each candidate encodes.
pub const HOLDOUT_BYTES_MAX: usize = 8 << 20;

/// Bytes of a document that is stored by its shape: writing one takes as much memory again, and can be interrupted only where zstd writes its texts. A
/// part of the format: no datum of shapes says more.
pub const SHAPES_RAW_BYTES_MAX: usize = 16 << 20;
/// Bytes of a text from which on it is written by zstd alone, if that takes at most half of it or less than phrases.
pub const LONG_TEXT_BYTES_MIN: usize = 2 << 10;
/// Bytes of a dictionary of shapes, its dictionary for zstd included.
pub const SHAPES_DICTIONARY_BYTES_MAX: usize = 256 << 10;
/// Bytes of samples that shapes are learned from.
pub const SHAPES_SAMPLE_BYTES_MAX: usize = 24 << 20;
/// Bytes of samples that tell for which documents zstd is tried as well.
pub const SHAPES_TUNING_BYTES_MAX: usize = 2 << 20;
