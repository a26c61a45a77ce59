//! What the processes of a container share: words in memory, their names, who may write where, and the locks.
//!
//! Nothing here does I/O.

#[doc(hidden)]
pub mod allocator;
pub(crate) mod gate;
#[doc(hidden)]
pub mod lock;
#[doc(hidden)]
pub mod region;
#[doc(hidden)]
pub mod state;
#[doc(hidden)]
pub mod word;
