//! Compressed segments of PostgreSQL relations, over a device trait.
//!
//! This crate refuses to open a file, to know a server's process, to retry an fsync, and to return a page
//! that is not proved to be that page. What it promises about crashes is in [`container`], as numbered
//! invariants.
//!
//! ```text
//!   a page's 8 KB  --  page: encode  -->  mode byte, payload
//!                                              |
//!   Container::write   append a record, publish an 8-byte entry
//!   Container::read    entry, one pread, proof, payload
//!   Container::commit  fsync: data and map, then a root
//!   Container::collect moves live records, so that extents get free
//!                                              |
//!                      device: one file, one folder;  seal: encryption
//! ```
//!
//! Rooms, each of which knows only those below it:
//!
//! * [`store`]: pages in, pages out: codec, container and dictionaries behind one interface, within a budget
//!   of memory.
//! * `policy`: the [`pace`] of collection, [when a dictionary is trained](dictionary_policy), [what a
//!   relation shrinks to](estimate).
//! * [`convert`]: how a live segment changes its form: names, descriptors, the order of syncs.
//! * [`slots`]: a server's open segments: who has which memory, who uses it, what is evicted.
//! * `engine`: a segment: [`container`], [`adjacent`] records, commits, [`recovery`], [`collector`],
//!   `limit`, [`salvage`], [`dictionaries`]; [`group`]: commits of many; [`segment`]: a container in its folder;
//!   [`mod@reserve`]: what a full filesystem must not stop.
//! * [`relation`]: names of relation files.
//! * `shared`: what the processes of a container share: words, locks, who may write where.
//! * `format`: what lies in the file: roots, map, records, [`units`].
//! * [`page`]: what a page is turned into; knows PostgreSQL's layouts, nothing of containers. [`seal`]:
//!   encryption. [`device`]: what the engine asks of a file. [`sim`]: a disk that fails in every way we know.
//!
//! Layouts are in `formats/cfs.md` and nowhere else.

pub mod convert;
pub mod device;
mod engine;
#[doc(hidden)]
pub mod fault;
mod format;
pub mod page;
mod policy;
pub mod relation;
pub mod seal;
mod shared;
pub mod sim;
pub mod slots;
pub mod store;

pub use engine::container::{Container, LIMIT_PERCENT_MAX, Options, Scratch, Stored, Tuning};
#[doc(hidden)]
pub use engine::leaves;
pub use engine::{
    adjacent, base, collector, container, dictionaries, group, prepared, recovery, reserve, salvage, segment,
    stats,
};
#[doc(hidden)]
pub use format::{decoders, entry};
pub use format::{error, units};
pub use policy::{dictionary_policy, estimate, pace};
#[doc(hidden)]
pub use shared::{allocator, lock, region, state, word};

pub use adjacent::FileRange;
pub use collector::{Anew, Budget, Collected};
pub use device::{Device, DeviceError, Folder, LockMode, Need, ProcessTable};
pub use engine::base::Moved;
pub use engine::commit::{Committed, Moment};
pub use error::{Damage, Error, Part, Reason};
pub use format::record::PAGE_PAYLOAD_MAX;
pub use format::root::{Base, Identity, KEY_BYTES};
pub use pace::{Next, Pace, Rules};
pub use recovery::{Birth, OpenReport, Recovery};
pub use salvage::Salvaged;
pub use seal::{SEAL_OVERHEAD_MAX, Seal};
pub use shared::region::Geometry;
pub use stats::Stats;
pub use store::{PageStore, Workspace};
pub use units::{ContainerId, DictionaryNumber, PAGES_MAX};
