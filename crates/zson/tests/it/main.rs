//! Integration tests of the zson crate.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod allocations;
mod fixtures;
mod golden;
mod hostile;
mod legacy;
mod memo;
mod roundtrip;
mod training;
