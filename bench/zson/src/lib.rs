//! Benches of compressed documents.
//!
//! Two programs. `zson-size` encodes and decodes in this process: what training chooses beside zstd with a dictionary,
//! and zstd beside its bare calls and the original zson 1.1.
//! `zson-system` stores the same documents in a private server as jsonb under pglz and under LZ4, as zson 1.1 would
//! have stored them, and as zson with the codec that learning chooses, zstd:3 and LZ4, and asks the server for them. Whatever is stored is compared with what went in.
//!
//! Documents are those of every corpus: the JSON ones as they are, a row of a table as the object that `to_jsonb`
//! makes of it.
//!
//! * [`store`], [`documents`]: a server with every corpus as jsonb, and the bytes of it.
//! * [`timing`], [`yardstick`]: what is measured, and what with.
//! * [`size`], [`system`]: the tables.

pub mod documents;
pub mod size;
pub mod store;
pub mod system;
pub mod timing;
pub mod yardstick;

use pgshrink_bench_report::{Arguments, Publication, Result, Table};
use pgshrink_testkit::Server;

/// The page's tables, in its order.
pub const ORDER: &[&str] =
    &["shapes", "payload", "codec", "table-size", "insert", "scan", "cold-scan", "pgbench", "memory"];
const NAME: &str = "zson";
const TITLE: &str = "Documents: size and speed of zson";

/// Puts a finished table on the page and on the terminal.
pub fn publish(arguments: &Arguments, program: &str, table: Table) -> Result<()> {
    let publication = Publication { name: NAME, title: TITLE, order: ORDER, versions: versions() };
    publication.publish(arguments, program, table)
}

/// Versions of whatever the figures depend on.
fn versions() -> Vec<String> {
    let server = Server::with_extensions(15).ok().map(|server| format!("PostgreSQL {}", server.version));
    let library = format!("libzstd {} in codec and yardstick", zstd_safe::version_string());
    server.into_iter().chain([library]).collect()
}
