//! What the processes of a container share: words in memory, their names, who may write where, and the locks.
//!
//! Nothing here does I/O.

pub(crate) mod gate;
#[doc(hidden)]
pub mod live;
#[doc(hidden)]
pub mod lock;
#[doc(hidden)]
pub mod region;
#[doc(hidden)]
pub mod space;
#[doc(hidden)]
pub mod word;
