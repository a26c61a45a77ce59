//! Statements whose text is made of names in the server's encoding, and their rows.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_long};
use std::ops::ControlFlow;

use pgrx::pg_sys::{self, Datum};
use pgshrink_zson::memory;

use crate::error::{PgSqlErrorCode as Code, raise};
use crate::sys::{copy_of, had};

/// Rows fetched at a time.
const FETCH_ROWS: c_long = 200;

/// A connection to the server's own SQL. At most one result is looked at, at a time.
pub struct Session(());

impl Session {
    /// Within the caller's transaction.
    pub fn open() -> Session {
        Session::open_with(0)
    }

    /// One that may commit, where the caller may.
    pub fn open_committing() -> Session {
        Session::open_with(pg_sys::SPI_OPT_NONATOMIC)
    }

    fn open_with(options: u32) -> Session {
        // SAFETY: closed when the session goes, or by the end of a failed transaction.
        let done = unsafe { pg_sys::SPI_connect_ext(options as i32) };
        check("SPI_connect", done);
        Session(())
    }

    /// Runs a statement; how many rows it touched.
    pub fn run(&mut self, statement: &CStr) -> u64 {
        // SAFETY: connected. Errors of the server come as panics.
        unsafe {
            check("SPI_execute", pg_sys::SPI_execute(statement.as_ptr(), false, 0));
            pg_sys::SPI_processed
        }
    }

    /// All rows of a query that has few, each value as the server prints it.
    pub fn rows(&mut self, query: &CStr) -> Vec<Vec<Option<Vec<u8>>>> {
        // SAFETY: connected; the result is there until it is freed below.
        unsafe {
            check("SPI_execute", pg_sys::SPI_execute(query.as_ptr(), true, 0));
            let table = pg_sys::SPI_tuptable;
            let mut rows = Vec::new();
            for at in 0..pg_sys::SPI_processed as usize {
                let tuple = *(*table).vals.add(at);
                let shape = (*table).tupdesc;
                let value = |number| {
                    let text = pg_sys::SPI_getvalue(tuple, shape, number);
                    (!text.is_null()).then(|| copy_of(CStr::from_ptr(text).to_bytes()))
                };
                had(memory::push(&mut rows, (1..=(*shape).natts).map(value).collect()));
            }
            pg_sys::SPI_freetuptable(table);
            rows
        }
    }

    /// Gives the first column of each row to `each` until that breaks.
    pub fn scan(&mut self, query: &CStr, each: &mut dyn FnMut(Datum) -> ControlFlow<()>) {
        // SAFETY: connected; values are looked at while their rows are there.
        unsafe {
            let plan = pg_sys::SPI_prepare(query.as_ptr(), 0, std::ptr::null_mut());
            if plan.is_null() {
                check("SPI_prepare", pg_sys::SPI_result);
            }
            let nothing = std::ptr::null_mut();
            let portal = pg_sys::SPI_cursor_open(std::ptr::null(), plan, nothing, std::ptr::null(), true);
            'rows: loop {
                pg_sys::SPI_cursor_fetch(portal, true, FETCH_ROWS);
                let (table, count) = (pg_sys::SPI_tuptable, pg_sys::SPI_processed as usize);
                for at in 0..count {
                    let mut null = false;
                    let datum = pg_sys::SPI_getbinval(*(*table).vals.add(at), (*table).tupdesc, 1, &mut null);
                    if !null && each(datum).is_break() {
                        pg_sys::SPI_freetuptable(table);
                        break 'rows;
                    }
                }
                pg_sys::SPI_freetuptable(table);
                if count == 0 {
                    break;
                }
            }
            pg_sys::SPI_cursor_close(portal);
        }
    }

    /// Ends the transaction and begins the next.
    pub fn commit(&mut self) {
        // SAFETY: only a session that may commit is asked to; the server raises otherwise.
        unsafe { pg_sys::SPI_commit() };
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: connected.
            unsafe { pg_sys::SPI_finish() };
        }
    }
}

fn check(what: &str, code: i32) {
    if code < 0 {
        raise(Code::ERRCODE_INTERNAL_ERROR, format!("zson: {what} failed with {code}"), "", "");
    }
}

/// A statement of its parts.
pub fn statement(parts: &[&[u8]]) -> CString {
    // Names of the server hold no zero byte.
    CString::new(parts.concat()).unwrap_or_default()
}

/// An identifier as SQL writes it, in the server's encoding.
pub fn quoted(name: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for &byte in name {
        if byte == b'"' {
            quoted.push(b'"');
        }
        quoted.push(byte);
    }
    quoted.push(b'"');
    quoted
}
