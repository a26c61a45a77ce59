//! Tables of what libpq does, and the same tables put to libpq itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up its case fails")]

mod agreement;
mod conninfo;
mod oracle;
mod parameters;
mod passfile;
mod service;
mod ssl;
mod target;
mod world;
