//! Tests that need more than the crate: real servers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod catalog;
mod index_rules;
mod indexes;
mod maintenance;
mod server;
