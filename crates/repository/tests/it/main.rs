//! Tests of pgshrink-repository.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod directory;
mod locations;
mod memory;
mod model;
mod s3;
mod sealed;
mod soak;
