//! jsonb documents as compressed datums, with dictionaries trained on their kind.
//!
//! This crate refuses to know a server: it opens no file, keeps no global state, and takes bytes for what they are.
//! "jsonb" is a jsonb datum without its varlena header, "datum" what stands behind the header of a zson value. It
//! allocates nothing for a size that a datum merely declares, never ends the process for want of memory ([`memory`]),
//! and decoding gives the whole document, verified
//! against its check sum, or an error.
//!
//! ```text
//!   samples --> training --> Dictionary --> WritingDictionary      ReadingDictionary
//!                                                 |                        |
//!   jsonb ----------------------------------> Encoder --> datum --> Decoder --> jsonb
//!                                                          |   ^
//!                                             datum::parse |   | Memo: decoded once per value
//!                                                          v
//!                                        legacy: what the original zson 1.x has written
//! ```
//!
//! The layout of datums is in `formats/zson.md`. Ids, lifetimes and visibility of dictionaries are the extension's.
//!
//! ```
//! use pgshrink_codec::{Algorithm, Dictionary};
//! use pgshrink_zson::{Decoder, DictionaryId, Encoder, ReadingDictionary, WritingDictionary, datum};
//!
//! let dictionary = Dictionary::new(br#"{"city":"Andorra la Vella","country":"Andorra"}"#.to_vec())?;
//! let id = DictionaryId::new(7).unwrap();
//! let writing = WritingDictionary::new(id, &dictionary, Algorithm::Zstd)?;
//! let reading = ReadingDictionary::new(id, &dictionary)?;
//!
//! let document = br#"{"city":"Encamp","country":"Andorra"}"#;
//! let mut stored = Vec::new();
//! Encoder::new().encode(writing.choice(), Some(&writing), document, &mut stored)?;
//! assert!(stored.len() < document.len());
//!
//! let datum::Stored::Current(header) = datum::parse(&stored)? else { panic!() };
//! assert_eq!(header.dictionary(), Some(id));
//! let mut back = vec![0; header.raw_len()];
//! Decoder::new().decode(&header, Some(&reading), &mut back)?;
//! assert_eq!(back, document);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod codec;
pub mod datum;
mod decoder;
mod dictionary;
mod encoder;
pub mod error;
pub mod estimate;
pub mod legacy;
pub mod limits;
pub mod memo;
pub mod memory;
pub mod shapes;
mod sliced;
pub mod training;

pub use codec::{Codec, CodecError};
pub use decoder::Decoder;
pub use dictionary::{DictionaryId, ReadingDictionary, WritingDictionary};
pub use encoder::{Earlier, Encoder};
pub use error::{Error, Error as ZsonError};
pub use memo::{Aligned, Memo};
pub use sliced::Sliced;
