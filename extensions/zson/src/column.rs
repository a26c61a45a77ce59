//! Columns with documents: finding one by its names, and taking samples of it.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::ops::ControlFlow;

use pgrx::pg_sys::{self, Datum, Oid};
use pgshrink_zson::memory;

use crate::backend::{objects, profile_of};
use crate::catalog::ProfileRow;
use crate::error::{PgSqlErrorCode as Code, raise};
use crate::inspect::strings_of;
use crate::internal::check_interrupts;
use crate::query::{Session, quoted, statement};
use crate::sys::{bytes_of, copy_of, had};

/// Documents sampled of one column, unless the caller wants fewer.
const SAMPLE_DOCUMENTS_MAX: usize = 20_000;
/// Bytes of jsonb sampled of one column.
const SAMPLE_BYTES_MAX: usize = 48 << 20;
/// Bytes of a table, as it is stored, that are read for them.
const READ_BYTES_MAX: f64 = 256e6;

/// A column of documents.
pub struct Column {
    /// Its table.
    pub table: Oid,
    /// The table's kind, as in `pg_class.relkind`.
    kind: u8,
    /// The table's name with its schema, quoted.
    pub table_name: Vec<u8>,
    /// Its own name, quoted.
    pub name: Vec<u8>,
    /// Whether it is of type zson or a domain over it.
    pub is_zson: bool,
    /// The profile it is written with; the default one for a column that is not zson yet.
    pub profile: ProfileRow,
}

/// What a sample is to hold.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Documents at most.
    pub documents: usize,
    /// Strings in them at most, keys included.
    pub strings: Option<usize>,
}

impl Column {
    /// The column of these names, the table's as a query would write it.
    pub fn find(table: &[u8], column: &[u8]) -> Column {
        // SAFETY: lookups by names that are C strings; errors of the server come as panics.
        unsafe {
            let table_text = CString::new(table).unwrap_or_default();
            let oid = pgrx::direct_function_call::<Oid>(
                pg_sys::regclassin,
                &[Some(Datum::from(table_text.as_ptr()))],
            )
            .unwrap_or(pg_sys::InvalidOid);
            let column_text = CString::new(column).unwrap_or_default();
            let number = pg_sys::get_attnum(oid, column_text.as_ptr());
            if number == pg_sys::InvalidAttrNumber as i16 {
                raise(
                    Code::ERRCODE_UNDEFINED_COLUMN,
                    format!(
                        "zson: table {} has no column \"{}\"",
                        String::from_utf8_lossy(table),
                        String::from_utf8_lossy(column)
                    ),
                    "",
                    "Write column names exactly as they are, without quotes.",
                );
            }
            Column::of(oid, number, column)
        }
    }

    /// The column of this number.
    pub fn of(table: Oid, number: i16, name: &[u8]) -> Column {
        // SAFETY: lookups in the catalog.
        unsafe {
            let (mut of, mut typmod, mut collation) = (pg_sys::InvalidOid, -1, pg_sys::InvalidOid);
            pg_sys::get_atttypetypmodcoll(table, number, &mut of, &mut typmod, &mut collation);
            let base = pg_sys::getBaseTypeAndTypmod(of, &mut typmod);
            let objects = objects();
            let is_zson = base == objects.zson;
            if !is_zson && base != pg_sys::JSONBOID && base != pg_sys::JSONOID {
                let found = CStr::from_ptr(pg_sys::format_type_be(of)).to_string_lossy();
                raise(
                    Code::ERRCODE_WRONG_OBJECT_TYPE,
                    format!("zson: column \"{}\" is of type {found}", String::from_utf8_lossy(name)),
                    "Expected zson, jsonb or json.",
                    "",
                );
            }
            let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(table));
            let relation = pg_sys::get_rel_name(table);
            let table_name =
                [quoted(CStr::from_ptr(schema).to_bytes()), quoted(CStr::from_ptr(relation).to_bytes())];
            Column {
                table,
                kind: pg_sys::get_rel_relkind(table) as u8,
                table_name: table_name.join(&b'.'),
                name: quoted(name),
                is_zson,
                profile: profile_of(&objects, if is_zson { typmod } else { -1 }),
            }
        }
    }

    /// Documents from all over the table, as jsonb without varlena headers, read as the current role may.
    pub fn sample(&self, session: &mut Session, wanted: Wanted) -> Vec<Vec<u8>> {
        let part = self.share(session).map(|percent| format!(" TABLESAMPLE SYSTEM ({percent:.6})"));
        let query = statement(&[
            b"SELECT (",
            &self.name,
            b")::pg_catalog.jsonb FROM ",
            &self.table_name,
            part.unwrap_or_default().as_bytes(),
        ]);
        let mut sample = Sample::new(wanted);
        session.scan(&query, &mut |datum| {
            // SAFETY: the query's column is a jsonb.
            unsafe { sample.take(datum) };
            check_interrupts();
            ControlFlow::Continue(())
        });
        had(memory::collect(sample.kept.into_iter().map(|(document, _)| document)))
    }

    /// Whether some documents of what is read for a sample are not written as the column's profile writes now.
    pub fn has_old(&self, session: &mut Session) -> bool {
        let part = self.share(session).map(|percent| format!(" TABLESAMPLE SYSTEM ({percent:.6})"));
        let current = objects().qualified("zson_is_current");
        let query = statement(&[
            b"SELECT ",
            current.as_bytes(),
            b"(",
            &self.name,
            b", '",
            self.profile.name.as_bytes(),
            b"') FROM ",
            &self.table_name,
            part.unwrap_or_default().as_bytes(),
        ]);
        let mut old = false;
        session.scan(&query, &mut |current| {
            check_interrupts();
            old = current.value() == 0;
            if old { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        old
    }

    /// The percentage of the table's pages that is read; none for all.
    fn share(&self, session: &mut Session) -> Option<f64> {
        if !matches!(self.kind, b'r' | b'm' | b'p') {
            return None;
        }
        let oid = u32::from(self.table);
        // A partitioned table has no size of its own.
        let query = format!(
            "SELECT pg_catalog.sum(pg_catalog.pg_table_size(c.oid))::pg_catalog.float8 FROM pg_catalog.pg_class c \
             WHERE c.relkind::pg_catalog.text OPERATOR(pg_catalog.<>) 'p' AND (c.oid OPERATOR(pg_catalog.=) {oid} \
             OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree({oid})))"
        );
        let rows = session.rows(&statement(&[query.as_bytes()]));
        let size: f64 = std::str::from_utf8(rows.first()?.first()?.as_deref()?).ok()?.parse().ok()?;
        (size > READ_BYTES_MAX).then(|| READ_BYTES_MAX / size * 100.0)
    }
}

/// Every so-manieth document of those it is given, so that what it keeps is from all over and not too much.
struct Sample {
    wanted: Wanted,
    /// Documents, each with the number of its strings if they are counted.
    kept: Vec<(Vec<u8>, usize)>,
    bytes: usize,
    strings: usize,
    /// One in so many is kept.
    stride: usize,
    given: usize,
}

impl Sample {
    fn new(wanted: Wanted) -> Sample {
        Sample { wanted, kept: Vec::new(), bytes: 0, strings: 0, stride: 1, given: 0 }
    }

    /// # Safety
    /// `datum` is a jsonb.
    unsafe fn take(&mut self, datum: Datum) {
        let chosen = self.given.is_multiple_of(self.stride);
        self.given += 1;
        if !chosen {
            return;
        }
        // SAFETY: by the caller.
        unsafe {
            let jsonb = pg_sys::pg_detoast_datum(datum.cast_mut_ptr());
            let document = copy_of(bytes_of(jsonb));
            let mut strings = 0;
            if self.wanted.strings.is_some() {
                strings_of(Datum::from(jsonb), &mut |_| strings += 1);
            }
            if !std::ptr::eq(jsonb, datum.cast_mut_ptr()) {
                pg_sys::pfree(jsonb.cast());
            }
            self.bytes += document.len();
            self.strings += strings;
            had(memory::push(&mut self.kept, (document, strings)));
        }
        while self.is_too_much() {
            self.thin();
        }
    }

    fn is_too_much(&self) -> bool {
        self.kept.len() > 1
            && (self.kept.len() > self.wanted.documents.min(SAMPLE_DOCUMENTS_MAX)
                || self.bytes > SAMPLE_BYTES_MAX
                || self.wanted.strings.is_some_and(|most| self.strings > most))
    }

    /// Lets every second go.
    fn thin(&mut self) {
        let mut at = 0;
        self.kept.retain(|_| {
            at += 1;
            at % 2 == 1
        });
        self.bytes = self.kept.iter().map(|(document, _)| document.len()).sum();
        self.strings = self.kept.iter().map(|(_, strings)| strings).sum();
        self.stride *= 2;
    }
}
