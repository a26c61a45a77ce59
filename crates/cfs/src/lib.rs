//! Compressed segments of PostgreSQL relations, over a device trait.
//!
//! This crate refuses to open a file, to know a server's process, to retry an fsync, and to return a page that is not proved
//! to be that page. What it promises about crashes is in [`container`], as numbered invariants.
//!
//! ```text
//!   a page's 8 KB  --  page: encode  -->  mode byte, payload
//!                                              |
//!   Container::write   append a record, publish an 8-byte entry    (shared memory: live, space)
//!   Container::read    entry, one pread, proof, payload
//!   Container::commit  fsync: data and map, then a root            (commit, map, root)
//!   Container::collect moves live records, so that zones get free  (collector)
//!                                              |
//!                      device: one file, one folder;  seal: encryption
//! ```
//!
//! * [`page`]: what a page is turned into; knows PostgreSQL's layouts, nothing of containers.
//! * [`container`], with `commit`, [`recovery`], [`collector`], [`pace`], [`salvage`], [`dictionaries`]: a segment.
//! * [`dictionary_policy`]: when a dictionary is trained, and when another.
//! * `shared`, `live`, `lock`, `leaves`, `space`, `gate`: what its processes share; `root`, `map`, `record`, `entry`, [`units`]: what lies in the file.
//! * [`segment`]: a container in its folder. [`mod@reserve`]: what a full filesystem must not stop. [`sim`]: a disk that fails
//!   in every way we know.
//!
//! Layouts are in `formats/cfs.md` and nowhere else.

pub mod collector;
mod commit;
pub mod container;
#[doc(hidden)]
pub mod decoders;
pub mod device;
pub mod dictionaries;
pub mod dictionary_policy;
#[doc(hidden)]
pub mod entry;
pub mod error;
pub mod estimate;
mod gate;
#[doc(hidden)]
pub mod leaves;
#[doc(hidden)]
pub mod live;
#[doc(hidden)]
pub mod lock;
mod map;
pub mod pace;
pub mod page;
#[doc(hidden)]
pub mod plant;
mod record;
pub mod recovery;
pub mod reserve;
mod root;
pub mod salvage;
mod scan;
pub mod seal;
pub mod segment;
#[doc(hidden)]
pub mod shared;
pub mod sim;
#[doc(hidden)]
pub mod space;
pub mod stats;
mod stored;
pub mod units;

pub use collector::{Budget, Collected};
pub use commit::Committed;
pub use container::{Container, Options, Scratch, Stored, Tuning};
pub use device::{Device, DeviceError, Folder, LockMode, Need, Peers};
pub use error::{Damage, Error, Part, Reason};

pub use pace::{Next, Pace, Rules};
pub use record::{ContainerId, PAGE_PAYLOAD_MAX, PAGES_MAX};
pub use recovery::{Birth, OpenReport, Recovery};
pub use root::{Identity, KEY_BYTES};
pub use salvage::Salvaged;
pub use seal::{SEAL_OVERHEAD_MAX, Seal};
pub use shared::Geometry;
pub use stats::Stats;
pub use units::DictionaryNumber;
