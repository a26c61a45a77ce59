//! zson: jsonb documents compressed with trained dictionaries, as a PostgreSQL extension.
//!
//! The compression is the crate `pgshrink-zson`; here is what it needs of a server, and what a server's users need.
//!
//! ```text
//!   SQL value --> value::pack --> datum                 datum --> value::view --> jsonb --> the server's function
//!                     |                                               |
//!                  backend: dictionaries made ready, contexts, documents decoded last
//!                     |
//!                  catalog: zson_profile, zson_dictionary, zson_dict
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `sys`, `error`, `internal`, `query`, `settings`, `reserve` | how the server is called, and calls us |
//! | `catalog`, `profiles`, `backend` | the extension's tables, what guards them, what a backend keeps of them |
//! | `value`, `io`, `surface`, `inspect` | values: text and binary form, casts, all of jsonb's operators, looking inside |
//! | `column`, `learn`, `estimate`, `reencode`, `worker` | columns: sampling, training, measuring, bringing along |
//! | `misses` | what dictionaries of shapes were used for, and how often they did not fit |
//! | `references`, `vacuum` | finding and removing dictionaries that nothing needs |
//!
//! Rules:
//! 1. A function that is called for every value enters below a guard, calls the server past pgrx's own, and holds
//!    nothing then that needs dropping ([`sys`]).
//! 2. A dictionary is immutable, its id is never used again, and nothing is written with it before it is committed
//!    ([`catalog`]).
//! 3. What grows with data grows by `pgshrink_zson::memory` or in the server's memory contexts, so that a lack of
//!    memory is an ERROR and never the end of the server ([`reserve`]).
//! 4. There is no hook: statements that do not touch a zson run as without the extension.

mod backend;
mod catalog;
mod column;
mod error;
mod estimate;
mod inspect;
mod internal;
mod io;
mod learn;
mod misses;
mod profiles;
mod query;
mod reencode;
mod references;
mod reserve;
mod settings;
mod surface;
mod sys;
mod vacuum;
mod value;
mod worker;

use pgrx::prelude::*;

pg_module_magic!();

/// What the server calls when it loads the library.
#[allow(non_snake_case)]
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    // A panic here is an ERROR on its way: what to print is decided where it arrives.
    std::panic::set_hook(Box::new(|_| {}));
    settings::define();
    worker::register();
}
