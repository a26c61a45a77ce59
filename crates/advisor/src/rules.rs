//! What can be made smaller, one rule a module.
//!
//! A rule looks at a table (or at the whole snapshot) and returns [`Candidate`]s. It computes no savings of tables: `advise` simulates the
//! edits, and drops what saves nothing.

pub mod cfs;
mod quoted;
pub mod toast;
pub mod zson;

use crate::edit::Edit;
use crate::finding::Finding;

/// A finding that is not measured yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its `bytes` are filled in from the simulation of `edits`. Where there are no edits, the rule has filled them in.
    pub finding: Finding,
    /// What it changes about the table. Empty: nothing about its rows.
    pub edits: Vec<Edit>,
    /// Part of the table's proposal. False where it changes what applications see, or costs more than space.
    pub is_recommended: bool,
}
