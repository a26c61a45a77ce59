//! Which relations of a database have files, as its catalog says.

use super::super::Failure;
use super::session::{Answer, Session};
use super::verdict::Doing;
use pgshrink_pgclient::connection::Table;

/// Relations that are listed at a time: some 300 bytes each.
const BATCH_ROWS_MAX: usize = 10_000;

/// What is read of a relation, and how it is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Tables, TOAST tables and materialized views: of PostgreSQL's own table access method, or of another one.
    Heap,
    OtherTable,
    Sequence,
    Index,
}

/// A relation with files of its own.
pub(super) struct Relation {
    pub(super) oid: u32,
    pub(super) kind: Kind,
    /// Schema and name, quoted; `None` when they are not UTF-8.
    pub(super) quoted: Option<String>,
    pub(super) schema: String,
    pub(super) name: String,
    /// Of an index.
    pub(super) method: String,
    /// An index that is complete, or anything else.
    pub(super) is_valid: bool,
    /// A materialized view that has contents, or anything else.
    pub(super) is_populated: bool,
    /// The number that its files are named after.
    pub(super) filenode: u32,
    /// All databases have it.
    pub(super) is_shared: bool,
    /// What is selected: all columns but those that are computed when they are read.
    pub(super) columns: String,
}

/// Lists relations by OID.
pub(super) struct Lister {
    last: u32,
    /// Whether those that all databases share are among them.
    with_shared: bool,
    is_done: bool,
}

impl Lister {
    pub(super) fn new(with_shared: bool) -> Lister {
        Lister { last: 0, with_shared, is_done: false }
    }

    /// The next relations; empty at the end. Temporary tables have no files in a backup.
    pub(super) fn next(
        &mut self,
        session: &mut Session<'_>,
    ) -> Result<Result<Vec<Relation>, Answer>, Failure> {
        if self.is_done {
            return Ok(Ok(Vec::new()));
        }
        let shared = if self.with_shared { "" } else { "AND NOT c.relisshared" };
        let sql = format!(
            "SELECT c.oid, c.relkind, CASE WHEN n.nspname IS NOT NULL THEN format('%I.%I', n.nspname, c.relname) END, \
                    n.nspname, c.relname, CASE WHEN c.relkind = 'i' THEN a.amname END, \
                    i.indexrelid IS NULL OR (i.indisvalid AND i.indisready AND i.indislive), c.relispopulated, \
                    pg_relation_filenode(c.oid), CASE WHEN v.attrelid IS NOT NULL THEN coalesce(v.columns, '') END, \
                    c.relam = 2, c.relisshared \
               FROM pg_class c LEFT JOIN pg_namespace n ON n.oid = c.relnamespace \
               LEFT JOIN pg_am a ON a.oid = c.relam LEFT JOIN pg_index i ON i.indexrelid = c.oid \
               LEFT JOIN (SELECT attrelid, \
                                 string_agg(quote_ident(attname), ', ' ORDER BY attnum) FILTER (WHERE attgenerated <> 'v') \
                                   AS columns \
                            FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped \
                           GROUP BY attrelid HAVING bool_or(attgenerated = 'v')) v ON v.attrelid = c.oid \
              WHERE c.oid > {} AND c.relkind IN ('r', 'm', 't', 'S', 'i') AND c.relpersistence <> 't' {shared} \
              ORDER BY c.oid LIMIT {BATCH_ROWS_MAX}",
            self.last
        );
        let table = match session.ask(&sql, Doing::Read)? {
            Answer::Done(mut tables) => tables.pop().unwrap_or_default(),
            failed => return Ok(Err(failed)),
        };
        let relations: Vec<_> = (0..table.row_count()).filter_map(|row| relation(&table, row)).collect();
        self.is_done = table.row_count() < BATCH_ROWS_MAX;
        self.last = relations.last().map_or(self.last, |relation| relation.oid);
        Ok(Ok(relations))
    }
}

fn relation(table: &Table, row: usize) -> Option<Relation> {
    let lossy =
        |column| table.bytes(row, column).map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    let is = |column| table.text(row, column) == Some("t");
    let kind = match (table.text(row, 1)?, is(10)) {
        ("i", _) => Kind::Index,
        ("S", _) => Kind::Sequence,
        (_, true) => Kind::Heap,
        (_, false) => Kind::OtherTable,
    };
    Some(Relation {
        oid: table.text(row, 0)?.parse().ok()?,
        kind,
        quoted: table.text(row, 2).map(str::to_owned),
        schema: lossy(3),
        name: lossy(4),
        method: lossy(5),
        is_valid: is(6),
        is_populated: is(7),
        filenode: table.text(row, 8).and_then(|number| number.parse().ok()).unwrap_or(0),
        is_shared: is(11),
        columns: table.text(row, 9).unwrap_or("*").to_owned(),
    })
}
