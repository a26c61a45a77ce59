//! Tests that need more than the crate: real servers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod codecs;
mod server;
