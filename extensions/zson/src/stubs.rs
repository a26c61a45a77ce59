//! Not there yet.
#![allow(unsafe_code)]
use crate::sys::pg_function;
use pgrx::prelude::*;
pg_function! {
    fn zson_reencode_table(_f) { error!("stub") }
    fn zson_vacuum_dictionaries(_f) { error!("stub") }
}
