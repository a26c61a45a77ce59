//! `zson_estimate`: what each codec would give on a column's own documents, before anything is stored.
#![allow(unsafe_code)]

use std::ops::ControlFlow;

use pgrx::IntoDatum;
use pgrx::pg_sys::{self, Datum};
use pgshrink_zson::estimate::{Line, Options, measure};

use crate::catalog::text_datum;
use crate::column::{Column, Wanted};
use crate::error::{PgSqlErrorCode as Code, raise, raise_core};
use crate::internal::check_interrupts;
use crate::query::Session;
use crate::sys::{self, bytes_of, pg_function};

const COLUMNS: usize = 8;

pg_function! {
    /// `zson_estimate(table_name text, column_name text)`.
    fn zson_estimate(fcinfo) {
        let name = |n| bytes_of(pg_sys::pg_detoast_datum_packed(sys::arg(fcinfo, n).cast_mut_ptr())).to_vec();
        let column = Column::find(&name(0), &name(1));
        let lines = lines(&column);
        pg_sys::InitMaterializedSRF(fcinfo, 0);
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        for mut row in lines {
            let mut nulls = [false; COLUMNS];
            for (at, null) in nulls.iter_mut().enumerate() {
                *null = row[at].is_none();
            }
            let mut values: Vec<Datum> = row.iter_mut().map(|value| value.take().unwrap_or(Datum::null())).collect();
            pg_sys::tuplestore_putvalues((*result).setResult, (*result).setDesc, values.as_mut_ptr(), nulls.as_mut_ptr());
        }
        sys::null(fcinfo)
    }
}

fn lines(column: &Column) -> Vec<[Option<Datum>; COLUMNS]> {
    let samples = {
        let mut session = Session::open();
        column.sample(&mut session, Wanted { documents: usize::MAX, strings: None })
    };
    let measured = measure(&samples, &Options::usual(), &mut |_| {
        check_interrupts();
        ControlFlow::Continue(())
    })
    .unwrap_or_else(|error| raise_core(&error));
    let Some(first) = measured.first().filter(|line| line.documents > 0) else {
        raise(
            Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("zson: {} documents are too few to estimate with", samples.len()),
            "Some are held out from training, and there have to be some of those.",
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
    let with = if line.dictionary_size > 0 { " + dictionary" } else { "" };
    [
        Some(text_datum(&format!("{}{with}", line.choice))),
        (line.dictionary_size as i32).into_datum(),
        (line.documents as i64).into_datum(),
        (line.raw_bytes as i64).into_datum(),
        (line.bytes as i64).into_datum(),
        ((line.ratio() * 100.0).round() / 100.0).into_datum(),
        line.encode_ns.round().into_datum(),
        line.decode_ns.round().into_datum(),
    ]
}
