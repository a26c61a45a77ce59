//! Not there yet.
#![allow(unsafe_code)]
use crate::sys::{pg_function, raw};
use pgrx::prelude::*;
pg_function! {
    fn zson_extract_strings(_f) { error!("stub") }
    fn json_to_zson(_f) { error!("stub") }
    fn zson_to_json(f) { let j = crate::value::view(crate::sys::arg(f, 0)); let s = crate::io::call_with(raw::jsonb_out, j); pgrx::pg_sys::Datum::from(pgrx::pg_sys::cstring_to_text(s.cast_mut_ptr())) }
    fn zson_coerce(f) { crate::sys::arg(f, 0) }
    fn zson_info(_f) { error!("stub") }
    fn zson_dictionary_ids(_f) { error!("stub") }
    fn zson_reencode(_f) { error!("stub") }
    fn zson_learn_strings(_f) { error!("stub") }
    fn zson_learn_column(_f) { error!("stub") }
    fn zson_estimate(_f) { error!("stub") }
    fn zson_reencode_table(_f) { error!("stub") }
    fn zson_vacuum_dictionaries(_f) { error!("stub") }
}
