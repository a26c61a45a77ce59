//! Operators and casts, as tables: ours, the server's, and which arguments are zson.
// The server's call convention is pointers.
#![allow(unsafe_code)]

use pgrx::pg_sys::{Datum, FunctionCallInfo};

use super::call::{document, scalar};
use crate::sys::pg_function;

macro_rules! trampolines {
    ($($kind:ident $name:ident = $builtin:ident [$($position:literal),+];)+) => { pg_function! {$(
        fn $name(fcinfo) {
            unsafe extern "C-unwind" {
                fn $builtin(fcinfo: FunctionCallInfo) -> Datum;
            }
            $kind(fcinfo, [$($position),+], $builtin)
        }
    )+}};
}
pub(super) use trampolines;

// Changed documents.
trampolines! {
    document zson_delete_key = jsonb_delete [0];
    document zson_delete_keys = jsonb_delete_array [0];
    document zson_delete_index = jsonb_delete_idx [0];
    document zson_delete_path = jsonb_delete_path [0];
    document zson_concat = jsonb_concat [0, 1];
    document zson_concat_jsonb = jsonb_concat [0];
    document jsonb_concat_zson = jsonb_concat [1];
}

// What a document holds.
trampolines! {
    scalar jsonb_contains_zson = jsonb_contains [1];
    scalar zson_contained_jsonb = jsonb_contained [0];
    scalar zson_path_exists = jsonb_path_exists_opr [0];
    scalar zson_path_match = jsonb_path_match_opr [0];
}

// Casts.
trampolines! {
    scalar zson_to_bool = jsonb_bool [0];
    scalar zson_to_numeric = jsonb_numeric [0];
    scalar zson_to_int2 = jsonb_int2 [0];
    scalar zson_to_int4 = jsonb_int4 [0];
    scalar zson_to_int8 = jsonb_int8 [0];
    scalar zson_to_float4 = jsonb_float4 [0];
    scalar zson_to_float8 = jsonb_float8 [0];
}
