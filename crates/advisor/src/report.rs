//! A [`Report`] for people and programs: a table for terminals, a script, one file of HTML.
//!
//! Every function here is pure: it gets a report and gives text. Names of a database may hold anything but NUL, so none of them
//! reaches a terminal, a comment or a page as it is; [`shown`] says how they are written.
//!
//! Nothing is computed here that the report does not say. The three kinds of bytes (on disk, in a compressed tablespace, in memory)
//! stand side by side and are never added up.

mod html;
mod picture;
pub mod shown;
mod sql;
mod text;

pub use html::{html, html_with_picture};
pub use picture::{Picture, SystemBytes, picture_svg};
pub use sql::sql;
pub use text::{Charset, Colour, Extent, Style, text};

use crate::finding::{Finding, Report};

/// Findings in the order that people read: the largest saving on disk first, then in memory, those without bytes last.
fn by_saving(report: &Report) -> Vec<&Finding> {
    let mut findings: Vec<&Finding> = report.findings.iter().collect();
    findings.sort_by_key(|finding| {
        let (disk, memory) = (finding.bytes.disk.saved(), finding.bytes.memory.saved());
        let compressed = finding.bytes.compressed.map_or(0, |change| change.saved());
        let has_bytes = finding.bytes.disk.now > 0 || finding.bytes.disk.after > 0 || memory != 0;
        (!has_bytes, std::cmp::Reverse((disk, memory, compressed)), finding.id.clone())
    });
    findings
}
