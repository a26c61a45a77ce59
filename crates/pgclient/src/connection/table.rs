//! A result that was collected.

use crate::protocol::backend::{Column, Row};

/// Columns and rows of one command, and what the command was.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Empty for a command without a result.
    pub columns: Vec<Column>,
    /// The command's tag: `SELECT 3`.
    pub tag: String,
    rows: Vec<Vec<Option<Box<[u8]>>>>,
}

impl Table {
    pub(super) fn push(&mut self, row: Row<'_>) {
        self.rows.push(row.values().map(|value| value.map(Box::from)).collect());
    }

    /// How many rows there are.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// One value; `None` for NULL and where there is none.
    pub fn bytes(&self, row: usize, column: usize) -> Option<&[u8]> {
        self.rows.get(row)?.get(column)?.as_deref()
    }

    /// One value as text; `None` for NULL, where there is none, and for what is not UTF-8.
    pub fn text(&self, row: usize, column: usize) -> Option<&str> {
        std::str::from_utf8(self.bytes(row, column)?).ok()
    }

    /// The index of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

impl std::fmt::Debug for Table {
    /// Without values: they are the user's data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        f.debug_struct("Table")
            .field("columns", &names)
            .field("row_count", &self.rows.len())
            .field("tag", &self.tag)
            .finish()
    }
}
