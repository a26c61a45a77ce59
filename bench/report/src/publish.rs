//! From a finished table to its page and the terminal.

use std::path::{Path, PathBuf};

use crate::{Arguments, Machine, Page, Result, Table, markdown};

/// What the tables of one part of the product have in common.
#[derive(Debug)]
pub struct Publication<'a> {
    /// The files' name, without what tells their format.
    pub name: &'a str,
    /// The page's heading.
    pub title: &'a str,
    /// All tables, in the page's order.
    pub order: &'a [&'a str],
    /// Versions of whatever the figures depend on.
    pub versions: Vec<String>,
}

/// The checkout that is measured, which this crate is a part of.
pub fn checkout() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

impl Publication<'_> {
    /// Puts a table that `program` made on the page and on the terminal.
    pub fn publish(self, arguments: &Arguments, program: &str, table: Table) -> Result<()> {
        let mut shown = String::new();
        let id = table.id.clone();
        let flag = if arguments.full { "--full " } else { "" };
        let results = self.folder(arguments);
        let mut page = Page::open(&results.join(format!("{}.json", self.name)), self.title)?;
        page.machine = Machine::here(self.versions);
        page.put(table, self.order, format!("bench/run {flag}{program} --only {id}"), checkout());
        page.save(&results, self.name)?;
        if let Some(table) = page.tables.iter().find(|table| table.id == id) {
            markdown::section(table, &mut shown);
            println!("{shown}");
            for verdict in &table.verdicts {
                let met = if verdict.met { "met" } else { "MISSED" };
                println!("{met}: {} (line {}, found {})\n", verdict.what, verdict.limit, verdict.found);
            }
        }
        Ok(())
    }

    /// A quick look must not change what is published.
    fn folder(&self, arguments: &Arguments) -> PathBuf {
        let usual = if arguments.full { "bench/results" } else { "target/bench/results" };
        arguments.results.clone().unwrap_or_else(|| checkout().join(usual))
    }
}
