//! Benches of compressed pages.
//!
//! `cfs-size` has a private server fill relations with the corpora, with pgbench and with tables that are
//! updated and deleted from, and encodes and decodes their files in this process by ours, by zstd and LZ4
//! page by page, and by zstd in chunks as btrfs and ZFS would. Whatever is encoded is decoded and compared.
//! `cfs-seal` seals and opens records. `cfs-container` reads, updates, collects and checkpoints containers in
//! real files.
//!
//! * [`relations`]: the files. * [`chunks`]: what file systems do. * [`size`], [`seal`], [`container`]: the
//!   tables.

pub mod chunks;
pub mod container;
pub mod relations;
pub mod seal;
// What the engine's own tests use.
#[allow(dead_code, clippy::unwrap_used)]
#[path = "../../../crates/cfs/tests/it/shell.rs"]
mod shell;
pub mod size;

use pgshrink_bench_report::{Arguments, Publication, Result, Table};
use pgshrink_testkit::Server;

/// The page's tables, in its order.
pub const ORDER: &[&str] =
    &["pages", "relations", "updates", "latency", "checkpoint", "slots", "store", "small", "seal"];

/// Puts a finished table on the page and on the terminal.
pub fn publish(arguments: &Arguments, program: &str, table: Table) -> Result<()> {
    let server = Server::find(15).ok().map(|server| format!("PostgreSQL {}", server.version));
    let library = format!("libzstd {}", zstd_safe::version_string());
    let versions = server.into_iter().chain([library]).collect();
    let title = "Pages: size and speed of compressed relations";
    Publication { name: "cfs", title, order: ORDER, versions }.publish(arguments, program, table)
}
