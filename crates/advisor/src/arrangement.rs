//! A table's columns as they are stored after some changes.

use crate::edit::{Edit, Extraction, Recompression, Removal, Retype};
use crate::layout::{self, Alignment, order};
use crate::simulate::rows::Rows;
use crate::snapshot::{self, Server, Table};

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

/// Rows that orders are compared on: the search takes as many milliseconds as it has hundreds of them.
const ORDERED_ROWS: usize = 250;
/// `TOAST_TUPLE_TARGET`, which is `TOAST_TUPLE_THRESHOLD` too.
pub const TOAST_TARGET: u16 = 2032;

impl<'e> Arrangement<'e> {
    /// The columns after these changes. Where the table is made anew ([`is_new_table`]), dropped columns are gone. With
    /// [`Edit::Reorder`] the order is the one that makes sampled rows shortest. Of two changes to one column the first one counts, and of
    /// a column that the table does not have nothing is changed.
    pub fn of(table: &Table, edits: &[&'e Edit]) -> Arrangement<'e> {
        let is_new = is_new_table(edits);
        let mut columns: Vec<Stored<'e>> = Vec::with_capacity(table.columns.len());
        for (index, column) in table.columns.iter().enumerate() {
            if column.is_dropped && is_new {
                continue;
            }
            columns.extend(changed(index, column, edits));
        }
        for added in extractions(edits).flat_map(|extraction| &extraction.added) {
            columns.push(Stored { layout: added.layout.clone(), source: Source::New(&added.images) });
        }
        let fillfactor = edits.iter().find_map(|edit| match edit {
            Edit::Fillfactor(percent) => Some(*percent),
            _ => None,
        });
        let target = edits.iter().find_map(|edit| match edit {
            Edit::ToastTarget(bytes) => Some(*bytes),
            _ => None,
        });
        let mut arrangement = Arrangement {
            columns,
            fillfactor: fillfactor.unwrap_or_else(|| table.fillfactor()),
            toast_target: target.unwrap_or_else(|| toast_target(table)),
        };
        if edits.iter().any(|edit| matches!(edit, Edit::Reorder)) {
            arrangement.reorder(table);
        }
        arrangement
    }

    /// Puts the columns into the order that makes sampled rows shortest.
    fn reorder(&mut self, table: &Table) {
        let layouts: Vec<layout::Column> = self.columns.iter().map(|stored| stored.layout.clone()).collect();
        // Which values go to the TOAST table hardly depends on the order.
        let values = Rows::of(&Server::default(), table, self).some_values(ORDERED_ROWS);
        let order = order::best(&layouts, &values);
        if order.len() == self.columns.len() {
            self.columns = order.into_iter().map(|index| self.columns[index].clone()).collect();
        }
    }

    /// The new types among these changes.
    pub fn retyped(edits: &[&'e Edit]) -> Vec<&'e Retype> {
        let retyped = edits.iter().filter_map(|edit| match edit {
            Edit::Retype(retype) => Some(retype),
            _ => None,
        });
        retyped.collect()
    }
}

impl Stored<'_> {
    /// The name of its type, as SQL has it, after the changes that led to it.
    pub fn type_name<'n>(&self, table: &'n Table, edits: &[&'n Edit]) -> &'n str {
        let own = |index: usize| table.columns.get(index).map_or("", |column| &*column.type_name);
        match self.source {
            Source::Kept(index) => own(index),
            Source::Recompressed(recompression) => own(recompression.column),
            Source::New(images) => {
                let of = |edit: &&'n Edit| match edit {
                    Edit::Retype(retype) if std::ptr::eq(&*retype.images, images) => Some(&*retype.type_name),
                    Edit::Extract(extraction) if std::ptr::eq(&*extraction.rest, images) => {
                        Some(own(extraction.column))
                    }
                    Edit::Extract(extraction) => {
                        let added =
                            extraction.added.iter().find(|added| std::ptr::eq(&*added.images, images));
                        added.map(|added| &*added.type_name)
                    }
                    _ => None,
                };
                edits.iter().find_map(of).unwrap_or("")
            }
        }
    }
}

/// Whether these changes make a new table, filled by `INSERT … SELECT`. The others are made in place: `ALTER TABLE … TYPE`, or a
/// storage parameter and `VACUUM FULL`. Dropped columns stay then.
///
/// Taking a column out makes a new table too: a dropped column would be a NULL in each row, whose bitmap can cost what the
/// column's values did. Values that are to be compressed in another way must be written by a statement that reads them: neither
/// `ALTER TABLE` nor `VACUUM FULL` compresses them again.
pub fn is_new_table(edits: &[&Edit]) -> bool {
    edits.iter().any(|edit| match edit {
        Edit::Reorder | Edit::DropDead | Edit::Remove(_) | Edit::Extract(_) | Edit::Recompress(_) => true,
        Edit::Retype(_) | Edit::Fillfactor(_) | Edit::ToastTarget(_) => false,
    })
}

/// Columns that are taken out.
pub(crate) fn removals<'e>(edits: &[&'e Edit]) -> impl Iterator<Item = &'e Removal> {
    edits.iter().filter_map(|edit| match edit {
        Edit::Remove(removal) => Some(removal),
        _ => None,
    })
}

fn extractions<'e>(edits: &[&'e Edit]) -> impl Iterator<Item = &'e Extraction> {
    edits.iter().filter_map(|edit| match edit {
        Edit::Extract(extraction) => Some(extraction),
        _ => None,
    })
}

/// The column that an edit is about, if it is about one.
pub(crate) fn column_of(edit: &Edit) -> Option<usize> {
    match edit {
        Edit::Retype(Retype { column, .. })
        | Edit::Remove(Removal { column, .. })
        | Edit::Extract(Extraction { column, .. })
        | Edit::Recompress(Recompression { column, .. }) => Some(*column),
        Edit::Reorder | Edit::DropDead | Edit::Fillfactor(_) | Edit::ToastTarget(_) => None,
    }
}

/// A column of the table as the first edit about it leaves it. None: it is taken out.
fn changed<'e>(index: usize, column: &snapshot::Column, edits: &[&'e Edit]) -> Option<Stored<'e>> {
    let own = layout_of(column);
    let edit = edits.iter().find(|edit| column_of(edit) == Some(index) && !column.is_dropped);
    match edit {
        Some(Edit::Remove(_)) => None,
        Some(Edit::Retype(retype)) => {
            let layout = layout::Column { name: own.name, is_dropped: false, ..retype.layout.clone() };
            Some(Stored { layout, source: Source::New(&retype.images) })
        }
        Some(Edit::Extract(extraction)) => {
            Some(Stored { layout: own, source: Source::New(&extraction.rest) })
        }
        Some(Edit::Recompress(recompression)) => {
            let mut layout = own;
            if let Some(storage) = &recompression.storage {
                layout.is_packable = storage != "plain";
            }
            Some(Stored { layout, source: Source::Recompressed(recompression) })
        }
        _ => Some(Stored { layout: own, source: Source::Kept(index) }),
    }
}

/// How a column of the table is laid out.
pub fn layout_of(column: &snapshot::Column) -> layout::Column {
    // No server has another letter; the widest alignment promises least.
    layout::Column::of(column).unwrap_or_else(|| layout::Column::aligned(column, Alignment::Double))
}

/// `toast_tuple_target` of the table.
fn toast_target(table: &Table) -> u16 {
    let own = table.option("toast_tuple_target").and_then(|text| text.parse::<u16>().ok());
    own.map_or(TOAST_TARGET, |bytes| bytes.clamp(128, 8160))
}
