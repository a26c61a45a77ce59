//! One server's compressed files: which there are, who has them open, how they are written.
//!
//! This crate refuses to know SQL, catalogs and the server's functions: it sees paths, descriptors and pages, and
//! answers with error numbers. No call of it raises an error in the server.
//!
//! ```text
//!  hooks (pgshrink_interpose) -- Front --> front: paths and descriptors -> segments
//!                                            |            \
//!                        process: files that are open      names: paths <-> segments
//!                                            |
//!     region: settings, slots, activity     file: containers in files      reserve
//! ```
//!
//! * A relation file that is compressed is a directory of that name with a container in it. A server without the
//!   library cannot open it (EISDIR), nor copy the directory above it (a file that nobody can read).
//! * A file is *born* compressed if its tablespace's setting says so when the server makes it, and stays what it
//!   is: settings decide about new files and newly written pages.
//! * In directories that may hold a database's catalogs everything is born plain.
//! * Containers may lie in `base/` and in tablespaces without a setting too, in directories that were noted for that
//!   (`directories`). Nothing is born compressed there.

pub mod activity;
mod asking;
pub mod collecting;
pub mod convert;
mod databases;
mod descriptors;
mod directories;
pub mod error;
mod file;
mod front;
pub mod guard;
mod host;
pub mod keys;
mod names;
pub mod owner;
pub mod policy;
mod process;
mod region;
mod report;
mod reserve;
pub mod saved;
pub mod secrets;
pub mod server;
pub mod setting;
pub mod spare;
pub mod tool;
pub mod training;
pub mod work;

pub use databases::has_containers;
pub use directories::{DIRECTORIES_MAX, Exchanging};
pub use error::Problem;
pub use front::ServerFront;
pub use names::{DEFAULT_TABLESPACE, GUARD_NAME, RESERVE_NAME};
pub use region::{Room, TABLESPACES_MAX};
pub use report::last_failure;
