//! `zson_estimate`: what each codec would give on a column's own documents, before anything is stored.
#![allow(unsafe_code)]

use pgshrink_codec::counted;
use std::ops::ControlFlow;

use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;
use pgshrink_zson::estimate::{Line, Options, measure};

use crate::catalog::text_datum;
use crate::column::{Column, Wanted};
use crate::error::{PgSqlErrorCode as Code, raise, raise_core};
use crate::internal::check_interrupts;
use crate::query::Session;
use crate::sys::{self, pg_function};

const COLUMNS: usize = 8;

pg_function! {
    /// `zson_estimate(table_name text, column_name text)`.
    fn zson_estimate(fcinfo) {
        let column = Column::find(&sys::name_arg(fcinfo, 0), &sys::name_arg(fcinfo, 1));
        sys::return_rows(fcinfo, lines(&column))
    }
}

fn lines(column: &Column) -> Vec<[Option<Datum>; COLUMNS]> {
    let samples = {
        let mut session = Session::open();
        column.sample(&mut session, Wanted { documents: usize::MAX, strings: None })
    };
    let begin = std::time::Instant::now();
    let measured = measure(&samples, &Options::usual(), &|| begin.elapsed(), &mut |_| {
        check_interrupts();
        ControlFlow::Continue(())
    })
    .unwrap_or_else(|error| raise_core(&error));
    let Some(first) = measured.first().filter(|line| line.documents > 0) else {
        raise(
            Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "zson: {} too few for an estimate",
                counted(samples.len() as u64, "document is", "documents are")
            ),
            "Some documents have to be held out from training.",
            "Fill the table first.",
        )
    };
    let mut all = vec![[
        Some(text_datum("jsonb")),
        None,
        (first.documents as i64).into_datum(),
        (first.raw_bytes as i64).into_datum(),
        (first.raw_bytes as i64).into_datum(),
        1f64.into_datum(),
        None,
        None,
    ]];
    all.extend(measured.iter().map(row));
    all
}

fn row(line: &Line) -> [Option<Datum>; COLUMNS] {
    let has_one = line.dictionary_size > 0 && !line.codec.is_shapes;
    let with = if has_one { " + dictionary" } else { "" };
    [
        Some(text_datum(&format!("{}{with}", line.codec))),
        (line.dictionary_size as i32).into_datum(),
        (line.documents as i64).into_datum(),
        (line.raw_bytes as i64).into_datum(),
        (line.bytes as i64).into_datum(),
        ((line.ratio() * 100.0).round() / 100.0).into_datum(),
        line.encode_ns.round().into_datum(),
        line.decode_ns.round().into_datum(),
    ]
}
