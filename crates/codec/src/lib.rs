//! Compression algorithms, levels, algorithm lists, dictionaries and streams.
//!
//! This crate opens no file and no socket and knows nothing of PostgreSQL's messages or pages. It refuses to
//! allocate what an input merely declares: every size is checked against a caller's cap first, and a decoder
//! yields what was promised or an error, never a part of it.
//!
//! ```text
//!   "zstd:1,lz4:2"  -->  AlgorithmList  -->  Choice { algorithm, level }
//!                                               |               |
//!                       stream::Encoder / Decoder     block::Compressor / Decompressor
//!                       (shared context, flushed      (one shot, dictionaries)
//!                        chunk by chunk)
//!
//!   Dictionary  -->  prepared::CompressorDictionary / DecompressorDictionary
//!                                               |
//!                       bare::Compressor / Decompressor
//!                       (many small inputs, nothing constant kept)
//! ```

pub mod algorithm;
pub mod bare;
pub mod block;
mod counted;
pub mod dictionary;
pub mod error;
pub mod limits;
pub mod list;
mod lz4;
pub mod memory;
pub mod pglz;
pub mod prepared;
mod room;
pub mod stream;

pub use algorithm::{Algorithm, Choice, Level, LevelRange};
pub use counted::{counted, grouped, size};
pub use dictionary::Dictionary;
pub use error::{Error, Error as CodecError};
pub use list::{AlgorithmList, ListError};
