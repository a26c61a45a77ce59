//! cfs: compressed tables and tablespaces, as a PostgreSQL extension.
//!
//! The storage engine is the crate `pgshrink-cfs`, a server's files are `pgshrink-cfs-server`, and the functions that
//! stand in the place of libc's are `pgshrink-interpose`. Here is what they need of the server, and what its users need.
//!
//! ```text
//!  CREATE TABLESPACE … WITH (compression = …)       the server's file calls
//!            |                                                |
//!    ddl: strips the option  -->  labels: catalog, pg_cfs/OID, shared memory  -->  cfs-server
//!                                     ^                                              ^
//!    mend: what the labels say, to files and memory                                 |
//!    worker: the launcher, which mends; collectors of garbage ----------------------'
//!
//!    targets, conversion: settings of tables and databases --> labels, board (a word to the launcher)
//!    dispatching: the launcher starts a dispatcher for a database --> dispatcher: members' files that lack their form
//!    converter: workers that bring these files to it
//!    absence: statements that need a database for themselves --> board --> the dispatcher leaves it
//!
//!    functions, collecting, estimate: what SQL sees; damage: what a client is told of it
//! ```
//!
//! Rules:
//! 1. The library is loaded by the postmaster or not at all; what it cannot work with is refused at start.
//! 2. The hook of utility statements is unguarded and holds nothing that needs dropping: errors of all other
//!    statements come out as without the library ([`ddl`]).
//! 3. Nothing here writes WAL of its own. A setting is a security label, and what else says it follows that label
//!    ([`labels`], [`mend`]).

mod absence;
mod board;
mod collecting;
mod conversion;
mod converter;
mod damage;
mod ddl;
mod dispatcher;
mod dispatching;
mod estimate;
mod functions;
mod labels;
mod members;
mod mend;
mod report;
mod settings;
mod start;
mod targets;
mod worker;

use pgrx::prelude::*;
use pgshrink_cfs_server::spare::Spare;
use std::alloc::System;

#[global_allocator]
static MEMORY: Spare<System> = Spare::beside(System);

pg_module_magic!();

/// What the server calls when it loads the library.
#[allow(non_snake_case)]
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    // A panic here is an ERROR on its way: what to print is decided where it arrives.
    std::panic::set_hook(Box::new(|_| {}));
    start::require_preload();
    settings::define();
    start::reserve_setting_names();
    start::check_server();
    start::install();
    board::register();
    damage::register();
    labels::register();
    absence::register();
    ddl::register();
    worker::register();
}
