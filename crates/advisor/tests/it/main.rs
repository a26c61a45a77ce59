//! Tests that need more than the crate: real servers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod browser;
mod catalog;
mod collected;
mod documents;
mod images;
mod index_rules;
mod indexes;
mod maintenance;
mod mutated;
mod packing;
mod plan;
mod advice;
mod rebuilt;
mod report;
mod codecs;
mod server;
mod table;
mod values;
