//! A container over a device: writing, reading, commits, recovery, collection.

pub mod adjacent;
pub mod base;
pub mod collector;
pub(crate) mod commit;
pub mod container;
pub mod dictionaries;
pub mod group;
#[doc(hidden)]
pub mod leaves;
pub(crate) mod limit;
pub mod prepared;
pub mod recovery;
pub mod reserve;
pub mod salvage;
pub(crate) mod scan;
pub mod segment;
pub mod stats;
pub(crate) mod stored;
pub mod unload;
