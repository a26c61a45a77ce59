//! What the demo is made of: steps that add rows to a report.

use std::time::Duration;

use crate::failure::Failure;
use crate::progress::Progress;
use crate::stage::Stage;

/// One thing to show: done once plain and once through the product.
pub(crate) trait Step {
    /// For messages.
    fn title(&self) -> &'static str;

    /// How many phases it tells [`Progress`].
    fn phase_count(&self) -> u64;

    /// Does it.
    fn run(&mut self, stage: &Stage, progress: &Progress, report: &mut Report) -> Result<(), Failure>;
}

/// What the steps found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// What the rows are about.
    pub(crate) heading: String,
    /// For the table.
    pub(crate) rows: Vec<Row>,
    /// What the rows of documents are about.
    pub(crate) documents_heading: String,
    /// For the table of documents at rest.
    pub(crate) documents: Vec<Row>,
    /// What the rows of tablespaces are about.
    pub(crate) tablespaces_heading: String,
    /// For the table of tablespaces.
    pub(crate) tablespaces: Vec<Row>,
    /// What the row of a live table is about.
    pub(crate) live_heading: String,
    /// For the table of a live table.
    pub(crate) live: Vec<Row>,
    /// What the rows of backups are about.
    pub(crate) backup_heading: String,
    /// For the table of backups.
    pub(crate) backup: Vec<Row>,
    /// What the row of advice is about.
    pub(crate) advice_heading: String,
    /// For the table of advice.
    pub(crate) advice: Vec<Row>,
    /// What the rows of relation files are about.
    pub(crate) pages_heading: String,
    /// For the table of relation files at rest.
    pub(crate) pages: Vec<Row>,
    /// Lines below them.
    pub(crate) notes: Vec<String>,
    /// What is wrong, other than data that differs.
    pub(crate) problems: Vec<String>,
}

impl Report {
    /// The rows of all tables.
    pub(crate) fn all_rows(&self) -> impl Iterator<Item = &Row> {
        let at_rest = self.documents.iter().chain(&self.tablespaces).chain(&self.live);
        self.rows.iter().chain(at_rest).chain(&self.backup).chain(&self.advice).chain(&self.pages)
    }
}

/// A line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What was done.
    pub(crate) what: String,
    /// Bytes without the product.
    pub(crate) plain_size: u64,
    /// Bytes with it.
    pub(crate) shrunk_size: u64,
    /// What the product used.
    pub(crate) cpu_seconds: f64,
    /// How long it took without; zero, as the other, where there is nothing to time.
    pub(crate) plain_wall: Duration,
    /// How long it took with it.
    pub(crate) shrunk_wall: Duration,
    /// Both sides hold the same, by checksum.
    pub(crate) same: bool,
}
