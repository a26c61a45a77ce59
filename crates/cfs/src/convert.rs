//! The protocol by which a live segment changes its form: names, descriptors and the order of syncs.
//!
//! The segment's path is R. As a plain file it is an inode; as a container it is a directory with the
//! container's file and, while the form changes, a second name of a plain file, the *base*. What the base
//! means is the engine's; this room sees to it that everybody who writes goes to the base or to the
//! container, whichever holds, and that a crash at any moment leaves a name that leads to all pages. Why the
//! design is as it is: `docs/decisions/2026-11-25-cfs-live-conversion.md`.
//!
//! ```text
//!   exchange_in     R: plain file  -> container whose base is that file     (under AccessShareLock)
//!   look            until no descriptor of before can write                 (again and again)
//!   make_durable    the name, and the base's content
//!   flip            the base never changes again                            (everybody waits, at most 20 ms)
//!   ...             the engine copies pages from the base
//!   finish          a root that needs no base; then the base goes
//!
//!   make_base       an empty base
//!   ...             the engine copies pages to the base
//!   flip            the base has all pages again
//!   exchange_out    R: container -> its base                                (under AccessShareLock)
//!
//!   remove_leftover what a crash has left beside R
//! ```
//!
//! Nothing here calls a system or knows the time: a [`Site`] is one segment's place as a worker sees it, a
//! [`Flip`] its slot in shared memory, and [`Generation::by_name`] is what every hooked call by path goes
//! through.
//!
//! # Invariants
//! Each has injected faults ([`crate::fault`]) that the simulator of `tests/it/convert` finds.
//!
//! * **L1** From the exchange on, each byte that a server process writes for R reaches the base's inode,
//!   until the flip: the old name, the new name and descriptors of either lead to it.
//! * **L2** At the flip nobody can write to the base but through a slot: no writable descriptor of its inode
//!   is open under a name of before, no call by path that began before the exchange ends without another
//!   look, and no process has the slot pinned.
//! * **L3** Of the two things that R may be after a loss of power, both have all that was synced: a name
//!   inside the container's directory is durable before the exchange, one above before anything differs
//!   between the two, and nothing is removed from what R may still turn out to be.
//! * **L4** The base is unlinked only after a root that does not need it is durable.
//! * **L5** A name is given only to, and taken only from, the very inode that was looked at. Names inside the
//!   container's directory are resolved from the open directory, never from R.
//! * **L6** A worker that dies anywhere leaves R readable and writable, with nothing to be undone first.

mod error;
mod exchange;
mod flip;
mod generation;
mod leftovers;
mod settle;

pub use crate::engine::segment::BASE_NAME;
pub use error::ConvertError;
pub use exchange::{Exchanged, exchange_in, exchange_out, finish, make_base};
pub use flip::{Flip, Flipped, Phase, flip};
pub use generation::{Call, Generation};
pub use leftovers::remove_leftover;
pub use settle::{Holders, SETTLE_BARRIER_MS, Settling, make_durable};

use std::fmt;

use crate::device::DeviceError;
use crate::fault::Fault;
use crate::format::error::Error;
use crate::shared::word::Word;

/// What follows R in the name of what is about to be exchanged with it; a process's id follows.
pub const NEW_SUFFIX: &str = ".pgshrink-new.";

/// A name in the directory above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// R, the segment's.
    Segment,
    /// R, [`NEW_SUFFIX`], and the id of the process that made it.
    New(u32),
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Segment => out.write_str("the file itself"),
            Name::New(process) => write!(out, "the file with {NEW_SUFFIX}{process} appended to its name"),
        }
    }
}

/// A file, for as long as it is open or has a name; afterwards the number may be another's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Inode(pub u64);

/// What a name has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Which file. All are of one filesystem: hard links and exchanges do not leave it.
    pub inode: Inode,
    /// Of what kind.
    pub kind: Kind,
    /// How many names it has.
    pub links: u32,
}

/// The kind of what has a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    Plain,
    /// A directory: a container.
    Directory,
    /// Anything else.
    Other,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Plain => "plain file",
            Kind::Directory => "directory",
            Kind::Other => "neither a file nor a directory",
        })
    }
}

impl fmt::Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, inode {}, {} names", self.kind, self.inode.0, self.links)
    }
}

/// One segment's place, as a worker sees it: the directory above is open, so all names are relative to it.
/// Interrupts are held during each function of this room; no call waits for a lock or for another process.
pub trait Site {
    /// An open directory of a container. It is that directory whatever becomes of its name.
    type Directory;
    /// Words of shared memory.
    type Word: Word;

    /// The id of this process: whose [`Name::New`] it makes.
    fn me(&self) -> u32;

    /// The server's word for [`Generation`].
    fn generation(&self) -> Generation<'_, Self::Word>;

    /// What has the name; a symbolic link is not followed.
    fn look(&self, name: Name) -> Result<Option<Found>, DeviceError>;

    /// Makes the directory [`Name::New`] of this process.
    fn make_directory(&self) -> Result<Self::Directory, DeviceError>;

    /// Opens the directory that has the name.
    fn open_directory(&self, name: Name) -> Result<Self::Directory, DeviceError>;

    /// The directory itself, whatever its name.
    fn look_at(&self, directory: &Self::Directory) -> Result<Found, DeviceError>;

    /// Makes a container in the directory whose only root says that the base has all pages, and syncs the
    /// file. The directory is synced by who asks.
    ///
    /// # Errors
    /// As [`segment::create`](crate::segment::create).
    fn make_container(&self, directory: &Self::Directory) -> Result<(), Error>;

    /// What [`BASE_NAME`] is in the directory.
    fn look_at_base(&self, directory: &Self::Directory) -> Result<Option<Found>, DeviceError>;

    /// Makes an empty file [`BASE_NAME`] in the directory.
    fn make_base(&self, directory: &Self::Directory) -> Result<(), DeviceError>;

    /// Gives R a second name: [`BASE_NAME`] in the directory.
    fn link_segment(&self, directory: &Self::Directory) -> Result<(), DeviceError>;

    /// Gives the base a second name: [`Name::New`] of this process.
    fn link_base(&self, directory: &Self::Directory) -> Result<(), DeviceError>;

    /// Exchanges R and [`Name::New`] of this process, both or neither (`RENAME_EXCHANGE`).
    fn exchange(&self) -> Result<(), DeviceError>;

    /// Removes the name of a file that is no directory.
    fn unlink(&self, name: Name) -> Result<(), DeviceError>;

    /// Removes [`BASE_NAME`] from the directory.
    fn unlink_base(&self, directory: &Self::Directory) -> Result<(), DeviceError>;

    /// Removes all files in the directory.
    fn empty(&self, directory: &Self::Directory) -> Result<(), DeviceError>;

    /// Removes an empty directory.
    fn remove_directory(&self, name: Name) -> Result<(), DeviceError>;

    /// fsync of the directory above.
    fn sync_above(&self) -> Result<(), DeviceError>;

    /// fsync of the directory.
    fn sync_directory(&self, directory: &Self::Directory) -> Result<(), DeviceError>;

    /// fsync of the base. A failure poisons the container, before this returns.
    fn sync_base(&self, directory: &Self::Directory) -> Result<(), DeviceError>;

    /// The descriptors of this file, in all processes of this user, that can write and whose name (`readlink`
    /// of `/proc/PID/fd/N`) begins with R and [`NEW_SUFFIX`]. With *any* process's id: a descriptor keeps the
    /// name that an earlier exchange gave it, when the file has been R again since. Names of the container
    /// that is R now begin otherwise.
    ///
    /// One look at all processes may do for many files, but only while [`Generation::steady`] is what it was
    /// before that look began. That it was begun after this segment was first seen is not enough: the segment
    /// may have become a plain file since, and a container again.
    fn holders(&self, inode: Inode) -> Result<Holders, DeviceError>;

    /// Asks all server processes to close their files (`PROCSIGNAL_BARRIER_SMGRRELEASE`); waits for none.
    fn emit_barrier(&self);

    /// A bug, for tests of the tests.
    #[doc(hidden)]
    fn fault(&self) -> Fault {
        Fault::None
    }
}
