//! The type's input and output, and its casts.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Datum, FunctionCallInfo};

use crate::backend::typmod_of;
use crate::sys::{self, pg_function, raw};
use crate::{profiles, value};

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
    /// `json_to_zson(json [, int4 typmod, bool])`.
    fn json_to_zson(fcinfo) {
        let text = pg_sys::text_to_cstring(sys::arg(fcinfo, 0).cast_mut_ptr());
        let jsonb = call_with(raw::jsonb_in, Datum::from(text));
        value::pack(jsonb, sys::int4_arg(fcinfo, 1, -1))
    }
    /// `zson_to_json(zson)`.
    fn zson_to_json(fcinfo) {
        let text = call_with(raw::jsonb_out, value::view(sys::arg(fcinfo, 0)));
        Datum::from(pg_sys::cstring_to_text(text.cast_mut_ptr()))
    }
    /// `zson_coerce(zson, int4 typmod, bool)`: what a column of this typmod is assigned.
    fn zson_coerce(fcinfo) {
        let (given, typmod) = (sys::arg(fcinfo, 0), sys::int4_arg(fcinfo, 1, -1));
        // Without a typmod any encoding is right.
        if typmod < 0 || value::is_current(given, typmod) { given } else { value::pack(value::view(given), typmod) }
    }
    /// `zson_reencode(zson, profile text)`.
    fn zson_reencode(fcinfo) {
        let given = sys::arg(fcinfo, 0);
        let typmod = typmod_of(&profiles::text_arg(fcinfo, 1));
        if value::is_current(given, typmod) { given } else { value::pack(value::view(given), typmod) }
    }
}

/// Calls a server's function of one argument, without pgrx's guard.
///
/// # Safety
/// `value` is what the function takes; the caller holds nothing that needs dropping.
pub unsafe fn call_with(
    function: unsafe extern "C-unwind" fn(FunctionCallInfo) -> Datum,
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
