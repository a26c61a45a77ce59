//! Integration tests of the zson crate.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod roundtrip;
