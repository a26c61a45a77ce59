//! Integration tests of the codec crate.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod list;
mod random;
mod stream;
