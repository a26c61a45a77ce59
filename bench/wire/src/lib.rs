//! Benches of wire compression.
//!
//! Two programs. `wire-size` carries what a real server sent through a pair of `pgshrink_wire::Link`s in this process
//! and counts bytes, memory and processor time. `wire-system` runs the built `pgshrink` between real servers and
//! clients, beside its rivals. Neither says anything about correctness that it does not need for its figures: every
//! byte carried is compared with what went in, because a ratio of wrong bytes is worth nothing.
//!
//! * [`session`], [`recording`]: what servers and clients really say.
//! * [`pair`], [`yardstick`]: ours, and what it is held against.
//! * [`size`], [`system`]: the tables.

pub mod pair;
pub mod recording;
pub mod session;
pub mod size;
pub mod source;
pub mod system;
pub mod yardstick;

use std::process::Command;

use pgshrink_bench_report::{Arguments, Publication, Result, Table, machine};
use pgshrink_bench_rivals::Rival;

/// Those that speed is measured with: rows from narrow to wide, ratios from 3 to 20.
pub const TIMED_CORPORA: [&str; 4] = ["deb_package", "flights", "stock_price", "cve_record"];

/// The page's tables, in its order.
pub const ORDER: &[&str] = &[
    "copy",
    "json",
    "dialects",
    "windows",
    "frames",
    "contexts",
    "pgbench-bytes",
    "memory",
    "cpu",
    "hop-cpu",
    "hop-rate",
    "pgbench",
    "tpcb-256",
    "replication-levels",
    "link-16",
    "link-125",
    "standby",
    "connections",
    "growth",
];
const NAME: &str = "wire";
const TITLE: &str = "Wire compression: size, speed, memory";

/// Puts a finished table on the page and on the terminal.
pub fn publish(arguments: &Arguments, program: &str, table: Table) -> Result<()> {
    let publication = Publication { name: NAME, title: TITLE, order: ORDER, versions: versions() };
    publication.publish(arguments, program, table)
}

/// Versions of whatever the figures depend on.
fn versions() -> Vec<String> {
    let of = |program: &str| machine::version_of(Command::new(program).arg("--version"));
    let library = format!("libzstd {} in codec and yardstick", zstd_safe::version_string());
    let zstd = of("zstd").map(|text| text.trim_matches(['*', ' ']).to_owned());
    let rivals = Rival::ALL.iter().filter_map(|rival| rival.version().ok());
    of("psql").into_iter().chain([library]).chain(zstd).chain(rivals).collect()
}
