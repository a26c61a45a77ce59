//! In-process tables: bytes, memory, processor time of a pair of links.

mod answers;
mod contexts;
mod cpu;
mod memory;
mod minimum;
mod sweeps;

use std::cell::RefCell;

use pgshrink_bench_report::{Result, Table};
use pgshrink_wire::{ContextMode, Dialect, LinkConfig, Policy};

use crate::recording::{self, Recording};
use crate::source::Source;

/// Measures and fills a table.
pub type Make = fn(&Bench) -> Result<Table>;

/// Tables of this program and what makes each.
pub const TABLES: &[(&str, Make)] = &[
    ("copy", answers::copy),
    ("json", answers::json),
    ("dialects", answers::dialects),
    ("windows", sweeps::windows),
    ("frames", sweeps::frames),
    ("contexts", contexts::table),
    ("pgbench-bytes", minimum::table),
    ("memory", memory::table),
    ("cpu", cpu::table),
];

/// Both dialects.
pub const DIALECTS: [Dialect; 2] = [Dialect::Ack, Dialect::Restart];

/// What the tables share; servers start when first needed.
#[derive(Debug)]
pub struct Bench {
    full: bool,
    source: RefCell<Option<Source>>,
    dialogues: RefCell<Option<Vec<Recording>>>,
}

impl Bench {
    /// `full` as in [`pgshrink_bench_report::Arguments`].
    pub fn new(full: bool) -> Bench {
        Bench { full, source: RefCell::default(), dialogues: RefCell::default() }
    }

    /// Calls `f` with the server that holds the corpora.
    fn with_source<T>(&self, f: impl FnOnce(&mut Source) -> Result<T>) -> Result<T> {
        let mut source = self.source.borrow_mut();
        let source = match &mut *source {
            Some(source) => source,
            empty => empty.insert(Source::start(self.full)?),
        };
        f(source)
    }

    /// Recordings of pgbench: select-only and TPC-B-like, simple and prepared.
    fn dialogues(&self) -> Result<Vec<Recording>> {
        if let Some(dialogues) = &*self.dialogues.borrow() {
            return Ok(dialogues.clone());
        }
        let cluster = recording::pgbench_cluster(10, &[])?;
        let count = if self.full { "20000" } else { "3000" };
        let mut dialogues = Vec::new();
        for (name, script, protocol) in [
            ("pgbench -S", "select-only", "simple"),
            ("pgbench -S -M prepared", "select-only", "prepared"),
            ("pgbench tpcb-like", "tpcb-like", "simple"),
            ("pgbench tpcb-like -M prepared", "tpcb-like", "prepared"),
        ] {
            dialogues.push(recording::pgbench(&cluster, name, &["-t", count, "-b", script, "-M", protocol])?);
        }
        Ok(self.dialogues.borrow_mut().insert(dialogues).clone())
    }
}

fn policy(change: impl FnOnce(&mut Policy)) -> LinkConfig {
    let mut config = LinkConfig::default();
    change(&mut config.policy);
    config
}

fn context(mode: ContextMode) -> LinkConfig {
    policy(|policy| policy.context = mode)
}

/// How much more than the yardstick, in percent.
fn percent_over(found: u64, yardstick: u64) -> f64 {
    100.0 * (found as f64 / yardstick as f64 - 1.0)
}
