//! The query that reads rows of some blocks, and its answers.
//!
//! One row of an answer has the place of a row, its `xmin`, and four arrays: what is known of each value without looking into it,
//! sizes of expressions, values as text, and values of expressions as text. Arrays, since a query has 1,664 columns at most, and a table 1,600.
//!
//! A value's text may be much longer than what is stored: a numeric of 8 bytes has 131,072 digits, a compressed document of 30 KB may
//! have megabytes. So texts are cut on the server, and what was cut counts as not read.

use pgshrink_advisor::snapshot::sample::{RowPlace, VALUE_BYTES_MAX};
use pgshrink_advisor::snapshot::{Column, Table};
use pgshrink_pgclient::protocol::backend::Row;

/// Characters of one value.
const VALUE_CHARS_MAX: usize = 256 << 10;
/// Characters of all values of a row. A character has four bytes at most: `session` allows rows twice as long.
const ROW_CHARS_MAX: usize = 8 << 20;
/// Characters of a value of a table with many columns.
const VALUE_CHARS_MIN: usize = 4 << 10;
/// `MaxTupleAttributeNumber`, which the subquery's columns count against.
const TARGETS_MAX: usize = 1_664;

/// What is asked of each row.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// Quoted, with its schema.
    pub(super) sql_name: String,
    /// Indexes of columns that have values: not dropped, not virtual.
    pub(super) stored: Vec<usize>,
    /// Of those, the ones whose values are read.
    pub(super) values: Vec<usize>,
    /// Expressions of indexes.
    pub(super) expressions: Vec<Expression>,
    /// Values are read, of expressions too.
    has_values: bool,
    /// `pg_column_toast_chunk_id` exists: PostgreSQL 17.
    pub(super) knows_chunks: bool,
}

/// An expression of an index.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    /// In the table's list of indexes.
    pub(super) index: usize,
    /// In the index's list of columns.
    pub(super) column: usize,
    /// In terms of the table's columns. NULL for rows that the index has not.
    pub(super) sql: String,
}

/// A row of an answer. Lists are as long as those of the question.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) place: RowPlace,
    pub(super) xmin: u32,
    /// Of stored columns; None: NULL.
    pub(super) stored: Vec<Option<Known>>,
    /// Of expressions: bytes as they are stored in the index.
    pub(super) expressions: Vec<Option<u32>>,
    /// Their values, under the same limits; none where no values are read.
    pub(super) expression_values: Vec<Option<String>>,
    /// None: NULL, too large, or too long.
    pub(super) values: Vec<Option<String>>,
}

/// What is known of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    /// `pg_column_size`.
    pub(super) size: u32,
    pub(super) method: Method,
    /// In the TOAST table; only where the server says it, or the column [tells its length](tells_its_length).
    pub(super) is_external: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    None,
    Pglz,
    Lz4,
}

impl Question {
    /// About a table, of all that may be asked.
    pub(super) fn new(table: &Table, sql_name: &str, has_values: bool, major: u32) -> Question {
        let columns = table.columns.iter().enumerate();
        let stored: Vec<usize> = columns
            .filter(|(_, column)| !column.is_dropped && column.generated != 'v')
            .map(|(at, _)| at)
            .collect();
        Question {
            sql_name: sql_name.to_owned(),
            values: if has_values { stored.clone() } else { Vec::new() },
            stored,
            expressions: Vec::new(),
            has_values,
            knows_chunks: major >= 17,
        }
    }

    /// Takes an expression in, if there is room for it.
    pub(super) fn add(&mut self, expression: Expression) {
        // The place, the version, and one to spare.
        if self.stored.len() + self.expressions.len() + 3 < TARGETS_MAX {
            self.expressions.push(expression);
        }
    }

    /// The statement. Its parameters are the first `ctid` and the one behind the last.
    pub(super) fn sql(&self, table: &Table) -> String {
        let names = self.stored.iter().filter_map(|at| Some((at, table.columns.get(*at)?)));
        let columns = names.map(|(at, column)| format!(", t.{} AS c{at}", quoted(&column.name)));
        let expressions = self.expressions.iter().enumerate();
        let expressions = expressions.map(|(at, expression)| format!(", ({}) AS e{at}", expression.sql));
        let inner: String = columns.chain(expressions).collect();
        let known = self.stored.iter().map(|at| self.known(table, *at));
        // A row value has the value as an index row has it, with a header of one byte where it may have that: 24 bytes are the header
        // of the row.
        let sizes = (0..self.expressions.len())
            .map(|at| format!("pg_column_size(x.e{at}) * 0 + pg_column_size(ROW(x.e{at})) - 24"));
        let most = self.value_chars_max() + 1;
        let text = |name: String| {
            format!(
                "CASE WHEN pg_column_size({name}) <= {VALUE_BYTES_MAX} THEN left(format('%s', {name}), {most}) END"
            )
        };
        let values = self.values.iter().map(|at| text(format!("x.c{at}")));
        let texts = (0..self.expression_values()).map(|at| text(format!("x.e{at}")));
        let list = |parts: &mut dyn Iterator<Item = String>| parts.collect::<Vec<_>>().join(", ");
        format!(
            "SELECT x.place, x.version, ARRAY[{}]::int8[], ARRAY[{}]::int4[], ARRAY[{}]::text[], ARRAY[{}]::text[] FROM (\
             SELECT t.ctid AS place, t.xmin AS version{inner} FROM ONLY {} AS t \
             WHERE t.ctid >= $1::tid AND t.ctid < $2::tid) AS x",
            list(&mut { known }),
            list(&mut { sizes }),
            list(&mut { values }),
            list(&mut { texts }),
            self.sql_name,
        )
    }

    /// A statement that fails if a value of this column, in the same blocks, has no text.
    pub(super) fn trial_sql(&self, table: &Table, at: usize) -> Option<String> {
        let name = quoted(&table.columns.get(at)?.name);
        Some(format!(
            "SELECT left(max(CASE WHEN pg_column_size(t.{name}) <= {VALUE_BYTES_MAX} \
             THEN left(format('%s', t.{name}), {}) END), 1) FROM ONLY {} AS t \
             WHERE t.ctid >= $1::tid AND t.ctid < $2::tid",
            self.value_chars_max(),
            self.sql_name
        ))
    }

    /// One number for all that is known of a value: see [`Known::of`].
    fn known(&self, table: &Table, at: usize) -> String {
        let size = format!("pg_column_size(x.c{at})::int8 * 8");
        if table.columns.get(at).is_some_and(|column| column.length >= 0) {
            return size;
        }
        let method =
            format!("CASE pg_column_compression(x.c{at}) WHEN 'pglz' THEN 1 WHEN 'lz4' THEN 2 ELSE 0 END");
        match table.columns.get(at) {
            _ if self.knows_chunks => format!(
                "{size} + {method} + CASE WHEN pg_column_toast_chunk_id(x.c{at}) IS NULL THEN 0 ELSE 4 END"
            ),
            // In a row there is a header as well, so the sizes are equal outside only. Neither looks into the value.
            Some(column) if tells_its_length(column) => format!(
                "{size} + {method} + CASE WHEN octet_length(x.c{at}) = pg_column_size(x.c{at}) THEN 4 ELSE 0 END"
            ),
            _ => format!("{size} + {method}"),
        }
    }

    /// How many expressions have their values read.
    fn expression_values(&self) -> usize {
        if self.has_values { self.expressions.len() } else { 0 }
    }

    fn value_chars_max(&self) -> usize {
        (ROW_CHARS_MAX / (self.values.len() + self.expression_values()).max(1))
            .clamp(VALUE_CHARS_MIN, VALUE_CHARS_MAX)
    }

    /// Reads a row of the answer. None: it is not of the expected shape.
    pub(super) fn read(&self, row: &Row<'_>) -> Option<Seen> {
        let place = row.get(0)?;
        let (block, item) = (place.get(..4)?.try_into().ok()?, place.get(4..6)?.try_into().ok()?);
        let number = |bytes: &[u8]| Some(i64::from_be_bytes(bytes.try_into().ok()?));
        let short = |bytes: &[u8]| u32::try_from(i32::from_be_bytes(bytes.try_into().ok()?)).ok();
        let (most, most_bytes) = (self.value_chars_max(), self.value_chars_max().saturating_mul(4));
        let value = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).ok()?;
            let fits = text.len() <= most || text.len() <= most_bytes && text.chars().count() <= most;
            fits.then(|| text.to_owned())
        };
        let stored = elements(row.get(2)?, self.stored.len())?;
        let stored: Option<Vec<_>> = stored
            .into_iter()
            .map(|bytes| bytes.map_or(Some(None), |bytes| Some(Some(Known::of(number(bytes)?)?))))
            .collect();
        let sizes = elements(row.get(3)?, self.expressions.len())?;
        let values = elements(row.get(4)?, self.values.len())?;
        let texts = elements(row.get(5)?, self.expression_values())?;
        Some(Seen {
            place: RowPlace(u32::from_be_bytes(block), u16::from_be_bytes(item)),
            xmin: u32::from_be_bytes(row.get(1)?.try_into().ok()?),
            stored: stored?,
            expressions: sizes.into_iter().map(|size| size.and_then(short)).collect(),
            expression_values: texts.into_iter().map(|text| text.and_then(value)).collect(),
            values: values.into_iter().map(|text| text.and_then(value)).collect(),
        })
    }
}

impl Known {
    /// Eight times the size, 4 if it is external, and the method.
    fn of(code: i64) -> Option<Known> {
        let method = match code & 3 {
            0 => Method::None,
            1 => Method::Pglz,
            _ => Method::Lz4,
        };
        Some(Known { size: u32::try_from(code >> 3).ok()?, method, is_external: code & 4 != 0 })
    }
}

/// Whether `octet_length` says how long a value is without its header, so that it can be seen where the value is, unless it is
/// compressed. Of base types only: anybody may make others, and name them like those of the server.
pub(super) fn tells_its_length(column: &Column) -> bool {
    column.length == -1
        && column.type_kind == 'b'
        && ["text", "varchar", "bpchar", "bytea"].contains(&column.base_type_id.as_str())
}

/// The parameter that stands before all rows of a block.
pub(super) fn before(block: u32) -> String {
    format!("({block},0)")
}

/// An identifier in SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The elements of an array of one dimension in binary form (`array_send`). None: it is none, or has another number of them.
fn elements(bytes: &[u8], count: usize) -> Option<Vec<Option<&[u8]>>> {
    let mut rest = bytes;
    let mut number = || {
        let (head, tail) = rest.split_first_chunk::<4>()?;
        rest = tail;
        Some(i32::from_be_bytes(*head))
    };
    let dimensions = number()?;
    let (_has_null, _element_type) = (number()?, number()?);
    if dimensions == 0 {
        return (count == 0).then(Vec::new);
    }
    let found = number()?;
    let _first = number()?;
    if dimensions != 1 || usize::try_from(found).ok() != Some(count) {
        return None;
    }
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        let (head, tail) = rest.split_first_chunk::<4>()?;
        rest = tail;
        // -1 is NULL.
        let value = match usize::try_from(i32::from_be_bytes(*head)) {
            Ok(length) => {
                let (value, tail) = rest.split_at_checked(length)?;
                rest = tail;
                Some(value)
            }
            Err(_) => None,
        };
        list.push(value);
    }
    rest.is_empty().then_some(list)
}

#[test]
fn arrays_that_are_cut_off_or_of_another_length_are_none() {
    let mut bytes = Vec::new();
    for number in [1i32, 1, 25, 2, 1, 3] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(b"abc");
    bytes.extend((-1i32).to_be_bytes());
    assert_eq!(elements(&bytes, 2), Some(vec![Some(&b"abc"[..]), None]));
    assert_eq!(elements(&bytes, 3), None);
    for end in 0..bytes.len() {
        assert_eq!(elements(&bytes[..end], 2), None, "cut at {end}");
    }
    let empty: Vec<u8> = [0i32, 0, 25].iter().flat_map(|number| number.to_be_bytes()).collect();
    assert_eq!(elements(&empty, 0), Some(vec![]));
    assert_eq!(elements(&empty, 1), None);
}
