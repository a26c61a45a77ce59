//! Tests of a server's files, in processes of their own: the working directory is the server's data directory.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod checkpoints;
mod elsewhere;
mod exchanges;
mod files;
mod guards;
mod keys;
mod server;
