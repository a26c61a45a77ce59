//! The two GIN operator classes: their keys are those of jsonb's.
//!
//! Strategies have jsonb's numbers. One is added, for `zson @> jsonb`: an extraction function is told the strategy and
//! not the type of the right side.
// The server's call convention is pointers.
#![allow(unsafe_code)]

use pgrx::pg_sys::{Datum, FunctionCallInfo};

use super::call::{Builtin, Call, scalar};
use super::operators::trampolines;
use crate::sys::pg_function;

/// `JsonbContainsStrategyNumber` of the server: here `zson @> zson`.
const CONTAINS: usize = 7;
/// Ours: `zson @> jsonb`.
const CONTAINS_JSONB: usize = 17;

trampolines! {
    scalar zson_gin_extract = gin_extract_jsonb [0];
    scalar zson_gin_extract_path = gin_extract_jsonb_path [0];
}

macro_rules! with_strategy {
    ($($kind:ident $name:ident = $builtin:ident;)+) => { pg_function! {$(
        fn $name(fcinfo) {
            unsafe extern "C-unwind" {
                fn $builtin(fcinfo: FunctionCallInfo) -> Datum;
            }
            $kind(fcinfo, $builtin)
        }
    )+}};
}

with_strategy! {
    extract_query zson_gin_extract_query = gin_extract_jsonb_query;
    extract_query zson_gin_extract_query_path = gin_extract_jsonb_query_path;
    consistent zson_gin_consistent = gin_consistent_jsonb;
    consistent zson_gin_consistent_path = gin_consistent_jsonb_path;
    consistent zson_gin_triconsistent = gin_triconsistent_jsonb;
    consistent zson_gin_triconsistent_path = gin_triconsistent_jsonb_path;
}

/// `extractQuery(query, nkeys, strategy, ...)`.
///
/// # Safety
/// `fcinfo` is a valid call record of that support function, the query of the strategy's type.
unsafe fn extract_query(fcinfo: FunctionCallInfo, builtin: Builtin) -> Datum {
    // SAFETY: by the caller.
    unsafe {
        let mut call = Call::like(fcinfo);
        match call.arg(2).value() {
            CONTAINS => call.view_arg(0),
            CONTAINS_JSONB => call.set_arg(2, Datum::from(CONTAINS)),
            _ => {}
        }
        call.run(builtin, fcinfo)
    }
}

/// `consistent(check, strategy, query, ...)` and `triConsistent`. jsonb's do not look at the query.
///
/// # Safety
/// `fcinfo` is a valid call record of that support function.
unsafe fn consistent(fcinfo: FunctionCallInfo, builtin: Builtin) -> Datum {
    // SAFETY: by the caller.
    unsafe {
        let mut call = Call::like(fcinfo);
        if call.arg(1).value() == CONTAINS_JSONB {
            call.set_arg(1, Datum::from(CONTAINS));
        }
        call.run(builtin, fcinfo)
    }
}
