//! Where stored documents, and with them references to dictionaries, can be in a database.
//!
//! | place | how it is looked through |
//! |---|---|
//! | columns of tables and materialized views, of whatever type can hold a zson | every row |
//! | keys of B-trees over such types: pages keep keys of rows long gone | not; whoever asks has to rebuild them |
//! | missing values (`pg_attribute.attmissingval`) and statistics (`pg_statistic`) | every value |
//! | extended statistics on such columns | not; they count as needing every dictionary |
//! | expressions (defaults, constraints, views, rules, policies, functions, index expressions and the like) | constants |
//!
//! Values in the memory of other sessions are the caller's business, who makes sure that there are none.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use pgrx::pg_sys::{self, Oid};
use pgshrink_zson::memory;

use crate::catalog::Objects;
use crate::inspect::{can_hold, element_dictionaries};
use crate::internal::check_interrupts;
use crate::query::{Session, quoted, statement};
use crate::sys::{copy_of, had};

/// Dictionaries that something needs, each with one place that needs it.
#[derive(Default)]
pub struct References {
    needed: BTreeMap<i32, String>,
    /// A place that may need any.
    any: Option<String>,
}

/// An index whose pages hold documents.
pub struct Index {
    /// Its name with its schema, quoted.
    pub name: Vec<u8>,
}

impl References {
    /// Why a dictionary is needed, if it is.
    pub fn reason(&self, id: i32) -> Option<&str> {
        self.needed.get(&id).or(self.any.as_ref()).map(String::as_str)
    }

    fn add(&mut self, ids: impl IntoIterator<Item = i32>, place: &str) {
        for id in ids {
            self.needed.entry(id).or_insert_with(|| place.to_owned());
        }
    }

    /// Looks through everything under the active snapshot.
    pub fn find(session: &mut Session, objects: &Objects) -> References {
        let mut found = References::default();
        let types = holding_types(session, objects);
        columns(session, objects, &types, &mut found);
        arrays_of_any(session, objects, &mut found);
        extended_statistics(session, &types, &mut found);
        expressions(session, objects, &types, &mut found);
        found
    }
}

/// The types of columns that can hold a document.
fn holding_types(session: &mut Session, objects: &Objects) -> Vec<Oid> {
    let rows = session.rows(c"SELECT DISTINCT t.oid FROM pg_catalog.pg_type t WHERE t.typtype::pg_catalog.text OPERATOR(pg_catalog.<>) 'p'");
    let all = rows.iter().filter_map(|row| number(row, 0)).filter_map(|oid| u32::try_from(oid).ok());
    all.map(Oid::from).filter(|of| can_hold(*of, objects.zson, 0)).collect()
}

/// B-trees (and whatever else stores the values themselves) over such types.
pub fn indexes(session: &mut Session, objects: &Objects) -> Vec<Index> {
    let types = holding_types(session, objects);
    let query = format!(
        "SELECT DISTINCT n.nspname, c.relname FROM pg_catalog.pg_class c \
         JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
         JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid \
         WHERE c.relkind::pg_catalog.text OPERATOR(pg_catalog.=) 'i' AND a.atttypid OPERATOR(pg_catalog.=) ANY ({})",
        oid_array(&types)
    );
    let rows = session.rows(&statement(&[query.as_bytes()]));
    let name = |row: &Vec<Option<Vec<u8>>>| {
        Some([quoted(row.first()?.as_deref()?), quoted(row.get(1)?.as_deref()?)].join(&b'.'))
    };
    rows.iter().filter_map(name).map(|name| Index { name }).collect()
}

fn columns(session: &mut Session, objects: &Objects, types: &[Oid], found: &mut References) {
    let virtual_ones = if cfg!(feature = "pg18") {
        " AND a.attgenerated::pg_catalog.text OPERATOR(pg_catalog.<>) 'v'"
    } else {
        ""
    };
    let query = format!(
        "SELECT n.nspname, c.relname, a.attname, pg_catalog.pg_is_other_temp_schema(n.oid) \
         FROM pg_catalog.pg_attribute a \
         JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.attrelid \
         JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
         WHERE c.relkind::pg_catalog.text OPERATOR(pg_catalog.=) ANY ('{{r,m}}') AND NOT a.attisdropped \
         AND a.attnum OPERATOR(pg_catalog.>) 0 AND a.atttypid OPERATOR(pg_catalog.=) ANY ({}){virtual_ones}",
        oid_array(types)
    );
    let ids = objects.qualified("zson_dictionary_ids");
    for row in session.rows(&statement(&[query.as_bytes()])) {
        let [Some(schema), Some(table), Some(column), Some(others)] = &row[..] else { continue };
        let label = label(&[schema, table, column]);
        if others == b"t" {
            // The table of a session that crashed: nobody else can read it.
            found.any = Some(format!("temporary table of another session: {label}"));
            continue;
        }
        let table = [quoted(schema), quoted(table)].join(&b'.');
        let query = statement(&[
            b"SELECT DISTINCT u FROM (SELECT pg_catalog.unnest(",
            ids.as_bytes(),
            b"(",
            &quoted(column),
            b")) AS u FROM ONLY ",
            &table,
            b") AS s",
        ]);
        session.scan(&query, &mut |id| {
            found.add([id.value() as i32], &format!("column {label}"));
            check_interrupts();
            ControlFlow::Continue(())
        });
    }
}

/// Arrays of the pseudo-type anyarray, whose elements only they themselves tell the type of.
fn arrays_of_any(session: &mut Session, objects: &Objects, found: &mut References) {
    let mut places =
        vec![("pg_catalog.pg_attribute", "attmissingval".to_owned(), "a missing value of a column")];
    places.extend(
        (1..=5)
            .map(|n| ("pg_catalog.pg_statistic", format!("stavalues{n}"), "statistics: ANALYZE the table")),
    );
    for (table, column, place) in places {
        let query = format!("SELECT {column} FROM {table} WHERE {column} IS NOT NULL");
        session.scan(&statement(&[query.as_bytes()]), &mut |array| {
            // SAFETY: the column is an array.
            found.add(unsafe { element_dictionaries(array, objects.zson) }, place);
            ControlFlow::Continue(())
        });
    }
}

fn extended_statistics(session: &mut Session, types: &[Oid], found: &mut References) {
    let query = format!(
        "SELECT s.stxname FROM pg_catalog.pg_statistic_ext s WHERE s.stxexprs IS NOT NULL OR EXISTS \
         (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid OPERATOR(pg_catalog.=) s.stxrelid \
         AND a.attnum OPERATOR(pg_catalog.=) ANY (s.stxkeys::pg_catalog.int2[]) AND a.atttypid OPERATOR(pg_catalog.=) ANY ({}))",
        oid_array(types)
    );
    for row in session.rows(&statement(&[query.as_bytes()])) {
        if let Some(Some(name)) = row.first() {
            found.any = Some(format!(
                "extended statistics {}: they may hold documents; drop them first",
                label(&[name])
            ));
        }
    }
}

/// Constants in the server's expression trees, wherever the catalog keeps some.
fn expressions(session: &mut Session, objects: &Objects, types: &[Oid], found: &mut References) {
    let places = session.rows(
        c"SELECT c.relname, a.attname FROM pg_catalog.pg_attribute a \
          JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.attrelid \
          WHERE a.atttypid OPERATOR(pg_catalog.=) 'pg_catalog.pg_node_tree'::pg_catalog.regtype \
          AND c.relnamespace OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace \
          AND c.relkind::pg_catalog.text OPERATOR(pg_catalog.=) 'r'",
    );
    for place in places {
        let [Some(table), Some(column)] = &place[..] else { continue };
        let query = statement(&[
            b"SELECT ",
            column,
            b"::pg_catalog.text FROM pg_catalog.",
            table,
            b" WHERE pg_catalog.strpos(",
            column,
            b"::pg_catalog.text, '{CONST :consttype ') OPERATOR(pg_catalog.>) 0",
        ]);
        let label = format!("an expression in {}", label(&[table, column]));
        for row in session.rows(&query) {
            let Some(Some(tree)) = row.first() else { continue };
            for (of, value) in constants(tree) {
                if of == objects.zson {
                    match value.as_deref().map(pgshrink_zson::datum::parse) {
                        Some(Ok(pgshrink_zson::datum::Stored::Current(header))) => {
                            found.add(header.dictionary().map(|id| id.get() as i32), &label);
                        }
                        _ => found.any = Some(label.clone()),
                    }
                } else if types.contains(&of) {
                    found.any = Some(label.clone());
                }
            }
        }
    }
}

/// The constants of a tree as `nodeToString` writes them: the type, and of a varlena the bytes behind its header.
fn constants(tree: &[u8]) -> Vec<(Oid, Option<Vec<u8>>)> {
    // What is looked for is ASCII; a copy in which all is.
    let tree = had(memory::collect(tree.iter().map(|byte| if byte.is_ascii() { *byte } else { b'?' })));
    let tree = std::str::from_utf8(&tree).unwrap_or_default();
    let mut found = Vec::new();
    for part in tree.split("{CONST :consttype ").skip(1) {
        let of = part.split(' ').next().and_then(|oid| oid.parse::<u32>().ok());
        let body = part.split('}').next().unwrap_or_default();
        let Some(of) = of else { continue };
        if body.contains(":constisnull true") {
            continue;
        }
        let bytes = body.split(":constvalue ").nth(1).and_then(|value| {
            let list = value.split_once('[')?.1.split_once(']')?.0;
            let mut all = Vec::new();
            for byte in list.split_whitespace() {
                had(memory::push(&mut all, byte.parse::<i16>().ok()? as u8));
            }
            without_header(&all)
        });
        had(memory::push(&mut found, (Oid::from(of), bytes)));
    }
    found
}

/// The content of a varlena that is neither compressed nor out of line (`varatt.h`, little-endian).
fn without_header(varlena: &[u8]) -> Option<Vec<u8>> {
    let first = *varlena.first()?;
    match first & 3 {
        0 => Some(copy_of(varlena.get(4..)?)),
        2 => None,
        _ if first == 1 => None,
        _ => Some(copy_of(&varlena[1..])),
    }
}

fn number(row: &[Option<Vec<u8>>], at: usize) -> Option<i64> {
    std::str::from_utf8(row.get(at)?.as_deref()?).ok()?.parse().ok()
}

fn oid_array(types: &[Oid]) -> String {
    let list: Vec<String> = types.iter().map(|of| u32::from(*of).to_string()).collect();
    format!("'{{{}}}'::pg_catalog.oid[]", list.join(","))
}

/// Names with points between them, for messages.
fn label(names: &[&Vec<u8>]) -> String {
    names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>().join(".")
}

/// A new snapshot, active as long as the guard lives.
pub struct Snapshot(());

impl Snapshot {
    /// Of now.
    pub fn take() -> Snapshot {
        // SAFETY: popped when the guard goes, or by the end of a failed transaction.
        unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot()) };
        Snapshot(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: the one pushed.
            unsafe { pg_sys::PopActiveSnapshot() };
        }
    }
}

/// A single value of a query with one row; for counts.
pub fn count(session: &mut Session, query: &std::ffi::CStr) -> i64 {
    session.rows(query).first().and_then(|row| number(row, 0)).unwrap_or(0)
}
