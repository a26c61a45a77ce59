//! Tables of what libpq does, and the same tables put to libpq itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up its case fails")]

mod agreement;
mod connecting;
mod conninfo;
mod hostile;
mod oracle;
mod parameters;
mod passfile;
mod protocol;
mod queries;
mod service;
mod session;
mod ssl;
mod streams;
mod target;
mod world;
