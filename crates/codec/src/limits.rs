//! Every cap of this crate, in one place.

/// Bytes of an algorithm list's text.
pub const LIST_BYTES_MAX: usize = 1024;
/// Items of an algorithm list.
pub const LIST_ITEMS_MAX: usize = 16;
/// Bytes of foreign text that an error message repeats.
pub const QUOTED_BYTES_MAX: usize = 64;

/// Smallest zstd window log that zstd knows.
pub const ZSTD_WINDOW_LOG_MIN: u32 = 10;
/// Largest zstd window log that a decoder takes without extra consent from its peer (128 MiB).
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Raw bytes at most in one chunk of a zstd stream.
pub const ZSTD_CHUNK_MAX: usize = 1 << 20;

/// Raw bytes at most in one chunk of a zlib stream.
pub const ZLIB_CHUNK_MAX: usize = 1 << 20;

/// How far back an LZ4 block can refer, and thus the history both sides of an LZ4 stream keep.
pub const LZ4_HISTORY_BYTES: usize = 64 << 10;
/// Raw bytes at most in one chunk (one block) of an LZ4 stream.
pub const LZ4_CHUNK_MAX: usize = 64 << 10;
/// Largest raw size that an LZ4 decoder can be asked to accept for one block.
pub const LZ4_BLOCK_RAW_MAX: usize = 16 << 20;

/// Raw bytes at most of one block, as of one PostgreSQL value.
pub const BLOCK_RAW_MAX: usize = 1 << 30;
/// Bytes at most of a dictionary.
pub const DICTIONARY_BYTES_MAX: usize = 1 << 20;
/// Bytes at most of all samples that a dictionary is trained from.
pub const DICTIONARY_SAMPLE_BYTES_MAX: usize = 1 << 30;
