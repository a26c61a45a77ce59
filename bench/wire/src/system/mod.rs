//! End-to-end tables: the built program between real servers and clients.

mod costs;
mod crowd;
mod levels;
mod links;
mod load;
mod observe;
mod overhead;
mod processor;
mod product;
mod rate;
mod sessions;
mod standby;
mod standin;
mod way;

use pgshrink_bench_report::{Result, Table};

use product::Product;

/// Measures and fills a table.
pub type Make = fn(&Bench) -> Result<Table>;

/// Tables of this program and what makes each.
pub const TABLES: &[(&str, Make)] = &[
    ("hop-cpu", processor::table),
    ("hop-rate", rate::table),
    ("pgbench", overhead::table),
    ("observe", observe::table),
    ("costs-tps", costs::transactions),
    ("costs-copy", costs::copies),
    ("tpcb-256", crowd::table),
    ("replication-levels", levels::table),
    ("link-16", links::slow),
    ("link-125", links::fast),
    ("standby", standby::table),
    ("connections", sessions::table),
    ("growth", sessions::growth),
];

/// What the tables share.
#[derive(Debug)]
pub struct Bench {
    full: bool,
    product: Product,
}

impl Bench {
    /// `full` as in [`pgshrink_bench_report::Arguments`].
    pub fn new(full: bool) -> Result<Bench> {
        Ok(Bench { full, product: Product::find()? })
    }

    fn rounds(&self, quick: usize, full: usize) -> usize {
        if self.full { full } else { quick }
    }
}
