//! The type's input and output, and its casts.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Datum};

use crate::sys::{self, pg_function, raw};
use crate::value;

pg_function! {
    /// `zson_in(cstring [, oid, int4])`: the text of a document, for a column of the typmod.
    fn zson_in(fcinfo) {
        let typmod = sys::int4_arg(fcinfo, 2, -1);
        let jsonb = raw::jsonb_in(fcinfo);
        if jsonb.is_null() { sys::null(fcinfo) } else { value::pack(jsonb, typmod) }
    }
    /// `zson_out(zson)`.
    fn zson_out(fcinfo) {
        call_with(raw::jsonb_out, value::view(sys::arg(fcinfo, 0)))
    }
    /// `zson_recv(internal [, oid, int4])`.
    fn zson_recv(fcinfo) {
        let typmod = sys::int4_arg(fcinfo, 2, -1);
        value::pack(raw::jsonb_recv(fcinfo), typmod)
    }
    /// `zson_send(zson)`.
    fn zson_send(fcinfo) {
        call_with(raw::jsonb_send, value::view(sys::arg(fcinfo, 0)))
    }
    /// `zson_to_jsonb(zson)`.
    fn zson_to_jsonb(fcinfo) {
        value::copy(sys::arg(fcinfo, 0))
    }
    /// `jsonb_to_zson(jsonb [, int4 typmod, bool])`.
    fn jsonb_to_zson(fcinfo) {
        value::pack(sys::arg(fcinfo, 0), sys::int4_arg(fcinfo, 1, -1))
    }
}

/// Calls a server's function of one argument, without its guard.
pub unsafe fn call_with(
    function: unsafe extern "C-unwind" fn(pg_sys::FunctionCallInfo) -> Datum,
    value: Datum,
) -> Datum {
    #[repr(C)]
    struct Call {
        head: pg_sys::FunctionCallInfoBaseData,
        args: [pg_sys::NullableDatum; 1],
    }
    let mut call = Call { head: Default::default(), args: [pg_sys::NullableDatum { value, isnull: false }] };
    call.head.nargs = 1;
    // SAFETY: a call record with room for its one argument behind it.
    unsafe { function((&raw mut call).cast()) }
}
