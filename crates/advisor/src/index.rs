//! Sizes of indexes when they are built.

use crate::edit::Retype;
use crate::snapshot::{Index, Table};

/// Bytes of the index when it is built anew over so many rows of the table, with these columns of the table changed.
/// None: indexes of its kind are not simulated.
pub fn rebuilt_bytes(_table: &Table, _index: &Index, _rows: u64, _retyped: &[&Retype]) -> Option<u64> {
    None
}
