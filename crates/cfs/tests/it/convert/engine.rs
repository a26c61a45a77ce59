//! What a process has of a container: the small one of `slot`, or the engine's own.

use pgshrink_cfs::DeviceError;
use pgshrink_cfs::convert::{Flipped, Phase};

use super::kernel::File;
use super::slot::Base;

/// The container has gone, or has left: the segment is to be opened by its name again.
pub const GONE: DeviceError = DeviceError::Io(116);

type Done<T> = Result<T, DeviceError>;

/// An open container.
pub trait Opened {
    fn directory(&self) -> File;
    fn write(&mut self, page: usize, value: u64) -> Done<()>;
    fn read(&mut self, page: usize) -> Done<u64>;
    fn size(&mut self) -> Done<usize>;
    fn truncate(&mut self, pages: usize) -> Done<()>;
    /// As an fsync does it, or a worker, whose fsyncs may fail.
    fn commit(&mut self, is_worker: bool) -> Done<()>;

    // What the worker does.
    fn base(&mut self) -> Done<Base>;
    fn flip(&mut self, to: Phase) -> Done<Flipped>;
    fn begin_returning(&mut self, is_new_base: bool) -> Done<()>;
    /// Moves a page where it goes in this state.
    fn copy(&mut self, page: usize) -> Done<()>;
    fn has_pages_in_base(&mut self) -> Done<bool>;
    /// Whether no page is in the base: then, in memory and durably, there is none.
    fn finish_leaving(&mut self) -> Done<bool>;
    /// Whether an fsync has failed.
    fn is_poisoned(&mut self) -> Done<bool>;
    fn leave(&mut self);

    fn close(self: Box<Self>);
}
