//! Benches of compressed tablespaces in running servers.
//!
//! Three private servers do the same in turn: one without the library, one with it and a compressed tablespace, one
//! without it whose tablespace lies on btrfs with zstd. Only one works at a time, and each round begins with another.
//! A ratio is taken within a round, so what slows the machine down for a while slows all of them down.
//!
//! * [`mount`], [`group`]: filesystems in files and limits of memory, which need root; what is not available is left
//!   out, and the table says why.
//! * [`side`]: a server, what it used. * [`rounds`]: taking turns. * [`tables`]: the tables.

pub mod group;
pub mod mount;
pub mod rounds;
pub mod side;
pub mod tables;

use pgshrink_bench_report::{Arguments, Publication, Result, Table};
use pgshrink_testkit::Server;

/// The page's tables, in its order.
pub const ORDER: &[&str] = &[
    "init",
    "corpora",
    "buffers",
    "page-cache",
    "encryption",
    "beyond",
    "scan",
    "checkpoint",
    "latency",
    "conversion",
    "drop",
    "idle",
    "instructions",
];

/// Puts a finished table on the page and on the terminal.
pub fn publish(arguments: &Arguments, table: Table) -> Result<()> {
    let server = Server::with_extensions(15).ok().map(|server| format!("PostgreSQL {}", server.version));
    let title = "Compressed tablespaces of a running server";
    let versions = server.into_iter().collect();
    Publication { name: "cfs-server", title, order: ORDER, versions }.publish(arguments, "cfs-server", table)
}
