//! x
use crate::rules::Candidate;
use crate::snapshot::{Snapshot, Table};
/// x
pub fn candidates(_snapshot: &Snapshot, _table: &Table) -> Vec<Candidate> {
    Vec::new()
}
