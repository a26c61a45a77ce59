//! Where values are stored, from what is known of them. Pure.
//!
//! In this order: what the server says (PostgreSQL 17 and newer), what is on the page, and where neither is known, what the server
//! would have done with the row: `heap_toast_insert_or_update` in `src/backend/access/heap/heaptoast.c`.

use super::rows::{Known, Method, tells_its_length};
use super::tuple::Stored;
use pgshrink_advisor::layout::{self, Alignment, Shape, Value};
use pgshrink_advisor::snapshot::Table;
use pgshrink_advisor::snapshot::sample::Place;

/// `TOAST_TUPLE_THRESHOLD`: longer rows are made shorter.
const THRESHOLD: usize = 2032;
/// `TOAST_TUPLE_TARGET_MAIN`: rows that are longer have even values with MAIN storage moved out.
const MAIN_TARGET: usize = 8160;
/// A pointer takes that much itself: `MAXALIGN(TOAST_POINTER_SIZE)`.
const SIZE_MIN: u32 = 24;

/// The columns of a table, for laying out rows.
pub(super) struct Layout {
    columns: Vec<layout::Column>,
    order: Vec<usize>,
    storage: Vec<char>,
    /// Where uncompressed values are can be seen.
    is_telling: Vec<bool>,
    target: usize,
    has_toast: bool,
}

impl Layout {
    pub(super) fn of(table: &Table) -> Layout {
        let columns = table.columns.iter().map(|column| layout::Column {
            name: String::new(),
            length: u16::try_from(column.length).ok(),
            alignment: u8::try_from(column.alignment)
                .ok()
                .and_then(Alignment::of_letter)
                .unwrap_or(Alignment::Char),
            is_packable: column.length == -1 && column.storage != 'p',
            is_not_null: column.is_not_null,
            is_dropped: column.is_dropped,
        });
        Layout {
            order: (0..table.columns.len()).collect(),
            columns: columns.collect(),
            storage: table.columns.iter().map(|column| column.storage).collect(),
            is_telling: table.columns.iter().map(tells_its_length).collect(),
            target: table
                .option("toast_tuple_target")
                .and_then(|text| text.parse().ok())
                .unwrap_or(THRESHOLD),
            has_toast: table.toast.is_some(),
        }
    }

    /// Which values of a row were moved out, as far as their sizes tell. `known` has an element for each column.
    fn moved_out(&self, known: &[Option<Known>]) -> Vec<bool> {
        let mut is_out = vec![false; self.columns.len()];
        let mut is_certain = vec![false; self.columns.len()];
        let mut values: Vec<Value> = (0..self.columns.len())
            .map(|at| match (known.get(at).copied().flatten(), self.columns[at].length) {
                (None, _) => Value::Null,
                (Some(Known { is_external: true, .. }), _) => {
                    is_out[at] = true;
                    Value::External
                }
                (Some(_), Some(_)) => Value::Fixed,
                (Some(Known { size, method: Method::None, .. }), None) => {
                    is_certain[at] = self.is_telling[at];
                    Value::Inline(size)
                }
                (Some(Known { size, .. }), None) => Value::Compressed(size),
            })
            .collect();
        let bytes = |values: &[Value]| Shape { columns: &self.columns, order: &self.order }.row_bytes(values);
        if !self.has_toast || bytes(&values) <= THRESHOLD {
            return is_out;
        }
        for (storages, target) in [(&['x', 'e'][..], self.target), (&['m'][..], MAIN_TARGET)] {
            while bytes(&values) > target {
                let size = |at: &usize| match values[*at] {
                    Value::Inline(size) | Value::Compressed(size) => size,
                    _ => 0,
                };
                let movable = (0..values.len()).filter(|at| {
                    !is_certain[*at] && storages.contains(&self.storage[*at]) && size(at) > SIZE_MIN
                });
                // Of equals the first.
                let Some(at) = movable.rev().max_by_key(size) else { break };
                (values[at], is_out[at]) = (Value::External, true);
            }
        }
        is_out
    }

    /// Places of a row's values. `known` and `stored` have an element for each column, NULL for those that have no value.
    pub(super) fn places(
        &self,
        table: &Table,
        known: &[Option<Known>],
        stored: Option<&[Stored]>,
        knows_chunks: bool,
    ) -> Vec<Place> {
        let stored = stored.filter(|stored| agrees(known, stored));
        let is_out = match (stored, knows_chunks) {
            (None, false) => self.moved_out(known),
            _ => Vec::new(),
        };
        let place = |(at, known): (usize, &Option<Known>)| {
            let Some(known) = known else { return Place::Null };
            let is_external = match stored.and_then(|stored| stored.get(at)) {
                Some(Stored::Absent) if table.columns.get(at).is_some_and(|column| column.has_missing) => {
                    return Place::Missing;
                }
                Some(Stored::External) => true,
                Some(_) => false,
                None if knows_chunks => known.is_external,
                None => is_out.get(at).copied().unwrap_or(false),
            };
            match (is_external, known.method) {
                (false, Method::None) => Place::Inline,
                (false, Method::Pglz) => Place::Pglz,
                (false, Method::Lz4) => Place::Lz4,
                (true, Method::None) => Place::External,
                (true, Method::Pglz) => Place::ExternalPglz,
                (true, Method::Lz4) => Place::ExternalLz4,
            }
        };
        known.iter().enumerate().map(place).collect()
    }
}

/// Whether what is on a page is the row that was read: the page may be older.
fn agrees(known: &[Option<Known>], stored: &[Stored]) -> bool {
    known.len() == stored.len()
        && known.iter().zip(stored).all(|pair| match pair {
            // A dropped column may still have its value.
            (None, _) => true,
            (Some(_), Stored::Null) => false,
            (Some(known), Stored::Inline(bytes)) => known.size == *bytes,
            (Some(_), Stored::External | Stored::Absent) => true,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_advisor::snapshot::{Column, Toast};

    fn table(columns: &[(i16, char, char)]) -> Table {
        let column = |(length, alignment, storage): &(i16, char, char)| Column {
            length: *length,
            alignment: *alignment,
            storage: *storage,
            ..Column::default()
        };
        let columns = columns.iter().map(column).collect();
        Table { columns, toast: Some(Toast::default()), ..Table::default() }
    }

    fn known(size: u32) -> Option<Known> {
        Some(Known { size, method: Method::None, is_external: false })
    }

    fn places(table: &Table, row: &[Option<Known>]) -> Vec<Place> {
        Layout::of(table).places(table, row, None, false)
    }

    #[test]
    fn the_largest_values_of_a_long_row_are_outside_until_it_fits() {
        use Place::{External, Inline, Null};
        let texts = table(&[(4, 'i', 'p'), (-1, 'i', 'x'), (-1, 'i', 'x'), (-1, 'i', 'm')]);
        assert_eq!(
            places(&texts, &[known(4), known(900), known(1000), None]),
            [Inline, Inline, Inline, Null]
        );
        let row = [known(4), known(900), known(1200), known(10)];
        assert_eq!(places(&texts, &row), [Inline, Inline, External, Inline]);
        let row = [known(4), known(5000), known(3000), known(1990)];
        assert_eq!(places(&texts, &row), [Inline, External, External, Inline]);
        let row = [known(4), known(20), known(20), known(9000)];
        assert_eq!(places(&texts, &row), [Inline, Inline, Inline, External]);
    }

    #[test]
    fn a_text_that_shows_where_it_is_is_not_moved() {
        let mut two = table(&[(-1, 'i', 'x'), (-1, 'i', 'x')]);
        (two.columns[0].base_type_id, two.columns[0].type_kind) = ("text".to_owned(), 'b');
        let out = Some(Known { size: 900, method: Method::None, is_external: true });
        assert_eq!(places(&two, &[known(1500), known(900)]), [Place::Inline, Place::External]);
        assert_eq!(places(&two, &[out, known(1500)]), [Place::External, Place::Inline]);
    }

    #[test]
    fn a_page_that_shows_another_row_is_not_believed() {
        let one = table(&[(-1, 'i', 'x')]);
        let layout = Layout::of(&one);
        let told = |stored| layout.places(&one, &[known(9)], Some(&[stored]), false);
        assert_eq!(told(Stored::Inline(9)), [Place::Inline]);
        assert_eq!(told(Stored::External), [Place::External]);
        assert_eq!(told(Stored::Inline(8)), [Place::Inline], "simulated");
        assert_eq!(told(Stored::Null), [Place::Inline], "simulated");
    }
}
