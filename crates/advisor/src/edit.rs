//! Changes to a table, in a form that can be simulated and combined.
//!
//! A rule does not compute savings. It says what it would change, as [`Edit`]s; `simulate` lays the sampled rows out with them.
//! So a finding alone and a proposal of several are measured in the same way, and nothing is counted twice.

use crate::layout;

/// One change to a table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Edit {
    /// A new table: dropped columns go, the rest is stored in the order that makes rows shortest.
    Reorder,
    /// A new table: dropped columns go, the order stays.
    DropDead,
    /// A column gets another type.
    Retype(Retype),
    /// A column moves out of the table, as its values are (nearly) all the same: into a default, a view or a table beside it. It is
    /// simulated, and never part of a proposal, so there is no script for it: what applications read and write in its place is
    /// for their owner to write.
    Remove(Removal),
    /// New columns, whose values come out of an existing one (keys of a document). The document keeps the rest.
    Extract(Extraction),
    /// `fillfactor` of the table.
    Fillfactor(u8),
    /// `toast_tuple_target` of the table.
    ToastTarget(u16),
    /// `STORAGE` or `COMPRESSION` of a column, its values written anew.
    Recompress(Recompression),
}

/// A column with another type.
#[derive(Clone, Debug, PartialEq)]
pub struct Retype {
    /// Index in the table's columns.
    pub column: usize,
    /// The new type in SQL: `uuid`.
    pub type_name: String,
    /// `format_type` is not enough where the type must be created before: `CREATE TYPE … AS ENUM (…)`.
    pub prepare: Vec<String>,
    /// Statements that have to be committed before any row is converted, with names that need no `search_path`.
    pub first: Vec<String>,
    /// The conversion in SQL, with the column's quoted name in it: `"id"::uuid`.
    pub using: String,
    /// How the new column is laid out.
    pub layout: layout::Column,
    /// The new values of sampled rows as they are stored in a row (with their varlena header of one byte where they may have it,
    /// else of four; without alignment). None: NULL. In the order of the sample's rows.
    pub images: Vec<Option<Vec<u8>>>,
    /// A query that counts what does not fit: it must give 0.
    pub proof: String,
}

/// A column that is taken out.
#[derive(Clone, Debug, PartialEq)]
pub struct Removal {
    /// Index in the table's columns.
    pub column: usize,
    /// Where exceptions go: bytes of a row for each exception in a table beside this one, 0 for none.
    pub exception_row_bytes: u32,
    /// How many of the sampled rows are exceptions.
    pub exceptions: usize,
}

/// Keys of a document that become columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Extraction {
    /// Index of the document's column.
    pub column: usize,
    /// The columns that are added.
    pub added: Vec<ExtractedColumn>,
    /// What is left of the document, as with [`Retype::images`].
    pub rest: Vec<Option<Vec<u8>>>,
    /// The expression of what is left: `doc - '{a,b}'::text[]`.
    pub rest_expression: String,
}

/// A key that becomes a column.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtractedColumn {
    /// How it is laid out, with its new name.
    pub layout: layout::Column,
    /// Its type in SQL.
    pub type_name: String,
    /// Its value in SQL.
    pub expression: String,
    /// As with [`Retype::images`].
    pub images: Vec<Option<Vec<u8>>>,
}

/// Another compression of a column's values.
#[derive(Clone, Debug, PartialEq)]
pub struct Recompression {
    /// Index in the table's columns.
    pub column: usize,
    /// `pglz`, `lz4`; None keeps it.
    pub compression: Option<String>,
    /// `plain`, `main`, `external`, `extended`; None keeps it.
    pub storage: Option<String>,
    /// What every sampled value is when it is compressed, with its header of four bytes, and 4 more for the raw size: None where
    /// it is NULL or compression does not pay (less than the server's minimum).
    pub compressed: Vec<Option<u32>>,
    /// What it is when it is not compressed, header of four bytes included. None: NULL.
    pub raw: Vec<Option<u32>>,
}
