//! Benches of the advisor: what it predicts beside what happens when its SQL is run.
//!
//! Every corpus is loaded into a database, and beside it tables that each have something for a rule. The built `pgshrink
//! advise` looks at it. Then its scripts are run on copies of that database, and `pg_total_relation_size` is compared.
//!
//! * [`lab`]: the server, its databases, advice as JSON.
//! * [`layout`], [`codecs`], [`scale`], [`peer`]: the tables.

pub mod codecs;
pub mod lab;
pub mod layout;
pub mod peer;
pub mod scale;

use lab::Lab;
use pgshrink_bench_report::{Arguments, Publication, Result, Table};
use pgshrink_testkit::Server;
use std::cell::OnceCell;

/// Measures and fills a table.
pub type Make = fn(&Bench) -> Result<Table>;

/// Tables of this program and what makes each.
pub const TABLES: &[(&str, Make)] = &[
    ("proposals", layout::proposals),
    ("findings", layout::findings),
    ("codecs", codecs::table),
    ("many-tables", scale::table),
    ("alignment-report", peer::table),
];

/// What the tables share; the server starts when it is first needed.
#[derive(Debug)]
pub struct Bench {
    full: bool,
    lab: OnceCell<Lab>,
}

impl Bench {
    /// `full` as in [`Arguments`].
    pub fn new(full: bool) -> Bench {
        Bench { full, lab: OnceCell::new() }
    }

    /// The server with everything loaded.
    fn lab(&self) -> Result<&Lab> {
        if let Some(lab) = self.lab.get() {
            return Ok(lab);
        }
        let lab = Lab::start(self.full)?;
        Ok(self.lab.get_or_init(|| lab))
    }
}

/// Puts a finished table on the page and on the terminal.
pub fn publish(arguments: &Arguments, table: Table) -> Result<()> {
    let server = Server::with_extensions(15).ok().map(|server| format!("PostgreSQL {}", server.version));
    let publication = Publication {
        name: "advisor",
        title: "Advice: predicted and found",
        order: &["proposals", "findings", "codecs", "many-tables", "alignment-report"],
        versions: server.into_iter().collect(),
    };
    publication.publish(arguments, "advisor-system", table)
}
