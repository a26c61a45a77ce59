//! Bringing documents along that were written before: to the profile's dictionary of today.
#![allow(unsafe_code)]

use pgshrink_codec::counted;
use std::ffi::{c_int, c_long};
use std::time::{Duration, Instant};

use pgrx::pg_sys::{self, Datum, FunctionCallInfo};

use crate::backend::{objects, typmod_of};
use crate::column::Column;
use crate::error::{PgSqlErrorCode as Code, notice, raise};
use crate::internal::check_interrupts;
use crate::profiles::text_arg;
use crate::query::{Session, quoted, statement};
use crate::sys::{self, pg_function};
use crate::value;

/// Rows of a page as long as nobody has analysed the table.
const ROWS_OF_PAGE_UNKNOWN: f64 = 20.0;

pg_function! {
    /// `zson_is_current(zson, profile text)`: whether it is written as its profile writes now.
    fn zson_is_current(fcinfo) {
        let typmod = typmod_of(&text_arg(fcinfo, 1));
        Datum::from(value::is_current(sys::arg(fcinfo, 0), typmod))
    }
    /// `zson_reencode(table_name text, column_name text, batch int4, pause_ms int4)`, a procedure.
    fn zson_reencode_table(fcinfo) {
        for (n, name) in ["table_name", "column_name", "batch", "pause_ms"].iter().enumerate() {
            if sys::arg_is_null(fcinfo, n) {
                raise(Code::ERRCODE_NULL_VALUE_NOT_ALLOWED, format!("zson: {name} is null"), "", "");
            }
        }
        let column = Column::find(&sys::name_arg(fcinfo, 0), &sys::name_arg(fcinfo, 1));
        let batch = sys::int4_arg(fcinfo, 2, 0);
        let pause = sys::int4_arg(fcinfo, 3, 0);
        if batch < 1 || pause < 0 {
            raise(Code::ERRCODE_INVALID_PARAMETER_VALUE, format!("zson: batch must be at least 1 and \
                pause_ms at least 0, are {batch} and {pause}"), "", "");
        }
        by_call(fcinfo, &column, f64::from(batch), Duration::from_millis(pause as u64));
        Datum::null()
    }
}

/// A table that stores rows itself, a range of its pages at a time.
pub struct Pass {
    update: [Vec<u8>; 2],
    pages: u32,
    pages_of_batch: u32,
    next_page: u32,
}

impl Pass {
    /// One for each table that holds rows of the column: its own, or its partitions.
    pub fn all_of(session: &mut Session, column: &Column, rows_of_batch: f64) -> Vec<Pass> {
        if !column.is_zson {
            raise(
                Code::ERRCODE_WRONG_OBJECT_TYPE,
                format!("zson: column {} is not of type zson", String::from_utf8_lossy(&column.name)),
                "",
                "ALTER TABLE ... ALTER COLUMN ... TYPE zson re-encodes its documents anyway.",
            );
        }
        let oid = u32::from(column.table);
        let query = format!(
            "SELECT n.nspname, c.relname, c.reltuples, c.relkind, \
             pg_catalog.pg_relation_size(c.oid) OPERATOR(pg_catalog./) \
             pg_catalog.current_setting('block_size')::pg_catalog.int8 \
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
             WHERE c.oid OPERATOR(pg_catalog.=) {oid} OR c.oid IN \
             (SELECT relid FROM pg_catalog.pg_partition_tree({oid}) WHERE isleaf)"
        );
        let rows = session.rows(&statement(&[query.as_bytes()]));
        rows.iter().filter_map(|row| Pass::of(row, column, rows_of_batch)).collect()
    }

    fn of(row: &[Option<Vec<u8>>], column: &Column, rows_of_batch: f64) -> Option<Pass> {
        let text = |at: usize| row.get(at)?.as_deref();
        let number = |at: usize| -> Option<f64> { std::str::from_utf8(text(at)?).ok()?.parse().ok() };
        match text(3)? {
            b"r" => {}
            b"m" => raise(
                Code::ERRCODE_WRONG_OBJECT_TYPE,
                "zson: cannot re-encode a materialized view",
                "",
                "REFRESH MATERIALIZED VIEW re-encodes its documents.",
            ),
            _ => return None,
        }
        let (tuples, pages) = (number(2)?, number(4)?);
        let rows_of_page = if tuples > 0.0 && pages > 0.0 { tuples / pages } else { ROWS_OF_PAGE_UNKNOWN };
        let objects = objects();
        let (reencode, current) = (objects.qualified("zson_reencode"), objects.qualified("zson_is_current"));
        let name = &column.name;
        let profile = column.profile.name.as_bytes();
        let table = [quoted(text(0)?), quoted(text(1)?)].join(&b'.');
        let head = [
            &b"UPDATE ONLY "[..],
            &table,
            b" SET ",
            name,
            b" = ",
            reencode.as_bytes(),
            b"(",
            name,
            b", '",
            profile,
            b"') WHERE NOT ",
            current.as_bytes(),
            b"(",
            name,
            b", '",
            profile,
            b"') AND ctid OPERATOR(pg_catalog.>=) '(",
        ];
        Some(Pass {
            update: [head.concat(), b",0)'::pg_catalog.tid AND ctid OPERATOR(pg_catalog.<) '(".to_vec()],
            pages: pages as u32,
            pages_of_batch: (rows_of_batch / rows_of_page.max(1.0)).clamp(1.0, 1e6) as u32,
            next_page: 0,
        })
    }

    /// Re-encodes the next pages. How many rows; none at the end of the table as it was at the beginning.
    pub fn step(&mut self, session: &mut Session) -> Option<u64> {
        if self.next_page >= self.pages {
            return None;
        }
        let (from, to) = (self.next_page, self.next_page.saturating_add(self.pages_of_batch));
        self.next_page = to;
        let update = statement(&[
            &self.update[0],
            from.to_string().as_bytes(),
            &self.update[1],
            to.to_string().as_bytes(),
            b",0)'::pg_catalog.tid",
        ]);
        Some(session.run(&update))
    }
}

/// What `CALL zson_reencode` does: commits after each batch, unless it is part of a transaction.
unsafe fn by_call(fcinfo: FunctionCallInfo, column: &Column, batch: f64, pause: Duration) {
    // SAFETY: the context of a procedure says whether it may commit.
    let atomic = unsafe {
        let context = (*fcinfo).context;
        context.is_null()
            || (*context).type_ != pg_sys::NodeTag::T_CallContext
            || (*context.cast::<pg_sys::CallContext>()).atomic
    };
    let mut session = if atomic { Session::open() } else { Session::open_committing() };
    let (start, mut rows) = (Instant::now(), 0);
    for mut pass in Pass::all_of(&mut session, column, batch) {
        while let Some(changed) = pass.step(&mut session) {
            rows += changed;
            if !atomic {
                session.commit();
                sleep(pause);
            }
            check_interrupts();
        }
    }
    let table = String::from_utf8_lossy(&column.table_name).into_owned();
    notice(
        format!(
            "zson: {} of {table} re-encoded in {:.1} s",
            counted(rows, "document", "documents"),
            start.elapsed().as_secs_f64()
        ),
        "",
    );
}

/// Sleeps, but for interrupts.
pub fn sleep(time: Duration) {
    if time.is_zero() {
        return;
    }
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: the backend's own latch.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            events as c_int,
            time.as_millis() as c_long,
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    check_interrupts();
}
