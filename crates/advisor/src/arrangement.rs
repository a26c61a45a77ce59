//! A table's columns as they are stored after some changes.

use crate::layout;

/// The stored columns, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrangement<'e> {
    /// Without dropped columns where the table is made anew, with them where it is not.
    pub columns: Vec<Stored<'e>>,
    /// Of the table.
    pub fillfactor: u8,
    /// `toast_tuple_target`, in bytes.
    pub toast_target: u16,
}

/// A stored column.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored<'e> {
    /// How it is laid out.
    pub layout: layout::Column,
    /// Where its values come from.
    pub source: Source<'e>,
}

/// Where the values of a stored column come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source<'e> {
    /// The column with this index in the table, as it is.
    Kept(usize),
    /// As [`Retype::images`](crate::edit::Retype::images), by sampled row.
    New(&'e [Option<Vec<u8>>]),
    /// The column with this index, with these sizes when compressed and when not:
    /// [`Recompression`](crate::edit::Recompression).
    Recompressed(&'e crate::edit::Recompression),
}
