//! What lies in a container's file: numbers, records, the map, and the roots that refer to them.
//!
//! Pure: bytes in, values or a [`error::Damage`] out. Layouts are in `formats/cfs.md`.

#[doc(hidden)]
pub mod decoders;
#[doc(hidden)]
pub mod entry;
pub mod error;
pub(crate) mod key;
pub(crate) mod map;
pub(crate) mod record;
pub(crate) mod root;
pub mod units;
