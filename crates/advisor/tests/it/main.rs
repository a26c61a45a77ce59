//! Tests that need more than the crate: real servers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod advice;
mod browser;
mod catalog;
mod codecs;
mod collected;
mod documents;
mod images;
mod index_rules;
mod indexes;
mod maintenance;
mod mutated;
mod packing;
mod plan;
mod rebuilt;
mod report;
mod server;
mod table;
mod values;
