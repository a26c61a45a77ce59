//! zson: jsonb documents compressed with trained dictionaries.
mod backend;
mod catalog;
mod column;
mod error;
mod estimate;
mod inspect;
mod internal;
mod io;
mod learn;
mod profiles;
mod query;
mod reencode;
mod references;
mod settings;
mod surface;
#[allow(dead_code)]
mod sys;
#[allow(dead_code)]
mod vacuum;
#[allow(dead_code)]
mod value;
use pgrx::prelude::*;
pg_module_magic!();

/// What the server calls when it loads the library.
#[allow(non_snake_case)]
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    // A panic here is an ERROR on its way: what to print is decided where it arrives.
    std::panic::set_hook(Box::new(|_| {}));
    settings::define();
}
