//! The extensions in real servers, seen through psql and the other clients of the server itself.
//!
//! The tests of a file share a cluster per major and work in databases of their own.

// clippy.toml lets tests unwrap; what they share stands outside of a #[test] and is a test all the same.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod advised;
mod backend;
mod calls;
mod cancel;
mod cfs;
mod cleanup;
mod compressed;
mod concurrency;
mod copy;
mod corrupt;
mod databases;
mod defects;
mod documents;
mod drivers;
mod dump;
mod encodings;
mod exec;
mod install;
mod learning;
mod live;
mod memory;
mod original;
mod packages;
mod parts;
mod power;
mod profiles;
mod regression;
mod replication;
mod roles;
mod session;
mod suites;
mod surface;
mod twin;
mod upgrade;
