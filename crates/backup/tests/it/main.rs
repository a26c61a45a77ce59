//! Tests of the crate from outside: hostile input, and what real servers write and accept.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod base_backup_server;
mod chunk;
mod connection;
mod files_server;
mod label_server;
mod manifest;
mod manifest_server;
mod pack;
mod record;
mod retention;

/// Tests of limits look at what their thread holds.
#[global_allocator]
static COUNTING: pgshrink_testkit::allocations::Counting = pgshrink_testkit::allocations::Counting;
