//! Equality, order and hash of documents, which are jsonb's.
// The server's call convention is pointers.
#![allow(unsafe_code)]

use pgrx::pg_sys::{Datum, FunctionCallInfo, varlena};

use super::call::{Builtin, scalar};
use super::operators::trampolines;
use crate::sys::{self, pg_function};

// Of two zson: equal when they are stored alike, without decoding either.
macro_rules! comparisons {
    ($($name:ident = $builtin:ident, $alike:expr;)+) => { pg_function! {$(
        fn $name(fcinfo) {
            unsafe extern "C-unwind" {
                fn $builtin(fcinfo: FunctionCallInfo) -> Datum;
            }
            compare(fcinfo, $builtin, Datum::from($alike))
        }
    )+}};
}

comparisons! {
    zson_eq = jsonb_eq, true;
    zson_ne = jsonb_ne, false;
    zson_lt = jsonb_lt, false;
    zson_le = jsonb_le, true;
    zson_gt = jsonb_gt, false;
    zson_ge = jsonb_ge, true;
    zson_cmp = jsonb_cmp, 0_i32;
}

trampolines! {
    scalar zson_eq_jsonb = jsonb_eq [0];
    scalar zson_ne_jsonb = jsonb_ne [0];
    scalar zson_lt_jsonb = jsonb_lt [0];
    scalar zson_le_jsonb = jsonb_le [0];
    scalar zson_gt_jsonb = jsonb_gt [0];
    scalar zson_ge_jsonb = jsonb_ge [0];
    scalar zson_cmp_jsonb = jsonb_cmp [0];
    scalar jsonb_eq_zson = jsonb_eq [1];
    scalar jsonb_ne_zson = jsonb_ne [1];
    scalar jsonb_lt_zson = jsonb_lt [1];
    scalar jsonb_le_zson = jsonb_le [1];
    scalar jsonb_gt_zson = jsonb_gt [1];
    scalar jsonb_ge_zson = jsonb_ge [1];
    scalar jsonb_cmp_zson = jsonb_cmp [1];
    scalar zson_hash = jsonb_hash [0];
    scalar zson_hash_extended = jsonb_hash_extended [0];
}

/// # Safety
/// `fcinfo` is a valid call record with two zson, neither null.
unsafe fn compare(fcinfo: FunctionCallInfo, builtin: Builtin, alike: Datum) -> Datum {
    // SAFETY: by the caller.
    unsafe {
        if stored_alike(sys::arg(fcinfo, 0), sys::arg(fcinfo, 1)) {
            return alike;
        }
        scalar(fcinfo, [0, 1], builtin)
    }
}

/// Whether the bytes at hand say that two documents are the same. That they do not says nothing.
///
/// # Safety
/// Both are zson values.
pub(super) unsafe fn stored_alike(a: Datum, b: Datum) -> bool {
    let (a, b) = (a.cast_mut_ptr::<varlena>(), b.cast_mut_ptr::<varlena>());
    // SAFETY: by the caller.
    unsafe { in_line(a) && in_line(b) && sys::bytes_of(a) == sys::bytes_of(b) }
}

/// Whether a varlena's bytes are at hand: neither out of line nor compressed by the server.
///
/// # Safety
/// `value` is a varlena.
pub(super) unsafe fn in_line(value: *const varlena) -> bool {
    // SAFETY: by the caller.
    unsafe { pgrx::varatt_is_4b_u(value) || (pgrx::varatt_is_1b(value) && !pgrx::varatt_is_1b_e(value)) }
}
