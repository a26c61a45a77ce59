//! One program for all tests of this crate.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod bursts;
mod golden;
