//! Benches of backups.
//!
//! `backup-size` has a private server fill relations with the corpora, with pgbench and with tables that are updated
//! and deleted from, and encodes and decodes their files chunk by chunk in this process, ours beside zstd of the same
//! chunks and beside one stream of zstd over all of them, which is what a compressed tar is.
//!
//! `backup-system` runs the built `pgshrink` against a private server, beside pg_basebackup, pgBackRest and WAL-G, through links
//! of a chosen bandwidth. All ways of one table take turns. A ratio is taken within a round, so what slows the machine down for a
//! while slows all of them down.
//!
//! * [`size`], [`system`]: the tables.

pub mod size;
pub mod system;

use pgshrink_bench_report::{Arguments, Publication, Result, Table};
use pgshrink_testkit::Server;

/// The page's tables, in its order.
pub const ORDER: &[&str] = &[
    "plain",
    "tar",
    "incompressible",
    "archive",
    "peers",
    "restore",
    "literature",
    "chunks",
    "chunk-relations",
];

/// Puts a finished table on the page and on the terminal.
pub fn publish(arguments: &Arguments, program: &str, table: Table) -> Result<()> {
    let server = Server::find(15).ok().map(|server| format!("PostgreSQL {}", server.version));
    let library = format!("libzstd {}", zstd_safe::version_string());
    let versions = server.into_iter().chain([library]).chain(system::rivals()).collect();
    let title = "Backups: size and speed";
    Publication { name: "backup", title, order: ORDER, versions }.publish(arguments, program, table)
}
