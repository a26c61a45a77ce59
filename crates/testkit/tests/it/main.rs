//! The testkit against real servers, real sockets and the source tree it guards.

// clippy.toml lets tests unwrap; what they share stands outside of a #[test] and is a test all the same.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cluster;
mod corpora;
mod daemon;
mod guardian;
mod netns;
mod relay;
mod setup;
mod site;
mod skips;
mod tidy;
mod tls;
