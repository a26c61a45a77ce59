//! Tests that need more than the crate: real servers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod rebuilt;
mod catalog;
mod indexes;
mod browser;
mod report;
mod server;
mod table;
mod collected;
mod images;
mod server;
mod values;
