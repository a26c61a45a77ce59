//! What the layout of PostgreSQL's tables wastes, from sampled rows.
//!
//! This crate refuses to know a server, a clock or a file: it gets a [`snapshot`], and the same snapshot gives the same advice. It
//! multiplies nothing: rows are laid out byte by byte, as the server does it, and put into pages one by one.
//!
//! ```text
//!   Snapshot ──> rules ──> Edits ──> simulate ──> Findings ──┐
//!      │                     └─────> combined ──> Proposals ─┼──> Report
//!      └───────> codecs (cfs, zson, wire, backup) ───────────┘
//!   layout: rows and pages, byte by byte          plan: the SQL that rewrites a table
//! ```

pub mod advise;
mod anatomy;
pub mod arrangement;
pub mod codecs;
pub mod datum;
pub mod edit;
pub mod egress;
pub mod finding;
pub mod heap_page;
pub mod index;
pub mod layout;
#[cfg(test)]
mod made;
pub mod plan;
pub mod price;
pub mod report;
pub mod rules;
pub mod simulate;
pub mod snapshot;
pub mod sql;

pub use finding::Report;
pub use snapshot::Snapshot;
