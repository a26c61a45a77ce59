//! Open segments of a server: which container has which part of the shared memory, who uses it, and when it
//! is given to another.
//!
//! A server has thousands of segments and shares one region of memory. This room divides the region into
//! *slots*, each with the words of one container, and into tables that say which segment has which slot and
//! which process is using it. It makes no file, opens none by itself, and knows no process: the [`Host`] and
//! the [`Opener`] are the caller's. What they may do, and when the engine calls them, is in
//! `docs/decisions/2026-11-22-cfs-callbacks.md`.
//!
//! ```text
//!  header | processes: name, pins | slots: state, key | index | words of slot 0 | words of slot 1 | ...
//! ```
//!
//! ```text
//!   Member::enter      a process joins the region                         (once per process)
//!   Segment::new       a handle; nothing is opened yet                    (once per segment and process)
//!   Segment::pin       finds or opens, and keeps the slot while it is used (every operation)
//!   Member::invalidate after the file's name has gone or changed
//!   Member::evict      gives the memory of an idle segment back
//! ```
//!
//! # Invariants
//! * **S1** A slot's words belong to one container from the moment its segment is entered in the index until
//!   the slot is wiped. It is wiped only while no live process has a pin on it.
//! * **S2** A pin is a count in words of the process that has it, published before the slot's state is looked
//!   at. So a process that dies has no pins, with nothing to be undone.
//! * **S3** A key has one slot. While an invalidated slot of a key is still pinned, the key has no other.
//! * **S4** A slot is evicted only if opening the file again gives the same pages: nothing uncommitted, no
//!   failed or unanswered fsync, no commit that its process did not end.
//! * **S5** A generation is used once. A handle of an earlier one never reaches the words: it opens the file
//!   again by name, and fails with [`Error::SegmentGone`](crate::Error::SegmentGone) if that is another
//!   container.
//! * **S6** A process killed between any two operations on a word leaves tables that the next holder of their
//!   lock repairs.

pub(crate) mod handle;
pub(crate) mod layout;
pub(crate) mod processes;
pub(crate) mod table;

pub use crate::format::key::SegmentKey;
pub use handle::{Access, Opened, Opener, Pinned, Segment};
pub use layout::{Capacity, Slots};
pub use processes::{Host, Member, Peer, ProcessName};
pub use table::{Evicted, Look, Usage};

#[doc(hidden)]
pub use processes::Pin;
#[doc(hidden)]
pub use table::{Acquired, Full};
