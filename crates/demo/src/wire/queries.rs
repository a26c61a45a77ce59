//! What psql moves: tables out and in, and a result of JSON documents.

use std::fs::File;

use super::SharedLink;
use super::link::{Used, Way};
use crate::failure::Failure;
use crate::package_table;
use crate::progress::Progress;
use crate::stage::{Stage, checksum_query};
use crate::step::{Report, Step};

/// One statement, run by psql.
pub(super) struct Query {
    link: SharedLink,
    title: &'static str,
    sql: &'static str,
    flow: Flow,
}

/// Where the data goes, which decides how to know that it arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// To psql's output.
    ToClient,
    /// From the stage's rows into the table `package_in`.
    ToServer,
}

impl Query {
    pub(super) fn copy_out(link: SharedLink) -> Query {
        Query { link, title: "COPY out", sql: "copy package to stdout", flow: Flow::ToClient }
    }

    pub(super) fn copy_in(link: SharedLink) -> Query {
        Query { link, title: "COPY in", sql: "copy package_in from stdin", flow: Flow::ToServer }
    }

    pub(super) fn json(link: SharedLink) -> Query {
        let sql = "select document from package order by id";
        Query { link, title: "JSON result", sql, flow: Flow::ToClient }
    }

    /// Runs it and returns the checksum of what arrived.
    fn run_by(&self, stage: &Stage, way: Way) -> Result<(String, Used), Failure> {
        let input = self.prepare(stage)?;
        let (output, used) = self.link.get(stage)?.psql(stage, way, self.sql, input)?;
        let checksum = match self.flow {
            Flow::ToClient => output.checksum,
            Flow::ToServer => stage.sql(&checksum_query("package_in"))?,
        };
        Ok((checksum, used))
    }

    fn prepare(&self, stage: &Stage) -> Result<Option<File>, Failure> {
        if self.flow == Flow::ToClient {
            return Ok(None);
        }
        let definition = package_table::definition("package_in");
        stage.sql(&format!("drop table if exists package_in; {definition} checkpoint"))?;
        stage.open_rows().map(Some)
    }
}

impl Step for Query {
    fn title(&self) -> &'static str {
        self.title
    }

    fn phase_count(&self) -> u64 {
        2
    }

    fn run(&mut self, stage: &Stage, progress: &Progress, report: &mut Report) -> Result<(), Failure> {
        let run_by = |way: Way| {
            progress.phase(&format!("{}, {}", self.title, way.name()));
            self.run_by(stage, way)
        };
        let (plain_sum, plain) = run_by(Way::Plain)?;
        let (shrunk_sum, shrunk) = run_by(Way::Run)?;
        let mut same = plain_sum == shrunk_sum;
        if self.flow == Flow::ToServer {
            same &= shrunk_sum == stage.sql(&checksum_query("package"))?;
            stage.sql("drop table package_in")?;
        }
        report.rows.push(Used::row(self.title, plain, shrunk, same));
        Ok(())
    }
}
