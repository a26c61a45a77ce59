//! Integration tests of the codec crate.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod bare;
mod block;
mod hostile_stream;
mod list;
mod memory;
mod pglz;
mod random;
mod stream;
