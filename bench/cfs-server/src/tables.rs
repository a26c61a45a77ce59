//! The tables.

mod beyond;
mod checkpoint;
mod conversion;
mod corpora;
mod drop;
mod idle;
mod init;
mod instructions;
mod latency;
mod scan;
mod transactions;

use pgshrink_bench_report::{Result, Table, Unit};

/// Measures and fills a table.
pub type Make = fn(&Bench) -> Result<Table>;

/// Tables of this program and what makes each.
pub const TABLES: &[(&str, Make)] = &[
    ("init", init::table),
    ("corpora", corpora::table),
    ("buffers", transactions::buffers),
    ("page-cache", transactions::page_cache),
    ("encryption", transactions::encryption),
    ("beyond", beyond::table),
    ("scan", scan::table),
    ("checkpoint", checkpoint::table),
    ("latency", latency::table),
    ("conversion", conversion::table),
    ("drop", drop::table),
    ("idle", idle::table),
    ("instructions", instructions::table),
];

/// How long a run may be.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bench {
    full: bool,
}

impl Bench {
    /// `full` as in [`pgshrink_bench_report::Arguments`].
    pub fn new(full: bool) -> Bench {
        Bench { full }
    }

    /// One of two lengths.
    fn pick<T>(self, quick: T, full: T) -> T {
        if self.full { full } else { quick }
    }

    /// Rounds: at least ten of what is published.
    fn rounds(self) -> usize {
        self.pick(2, 10)
    }
}

/// The columns of [`tell`](crate::rounds::tell).
fn columns(first: &'static str, unit: Unit) -> [(&'static str, Unit); 10] {
    [
        ("what", Unit::Text),
        ("side", Unit::Text),
        (first, unit),
        ("backends, CPU µs", Unit::Average),
        ("server, CPU µs", Unit::Average),
        ("pages missed", Unit::Average),
        ("read from disk", Unit::Bytes),
        ("to plain", Unit::Ratio),
        ("CPU of backends", Unit::Ratio),
        ("CPU of server", Unit::Ratio),
    ]
}

/// How to read them.
const HOW: &str = " Processor time, pages that shared buffers did not have, and bytes that came from disk are of one transaction or statement; \
    *server* has checkpointer, background writer, collectors and the checkpoint at the end with it. The last three columns are ratios to \
    plain, round by round in turn: median and quartiles.";
