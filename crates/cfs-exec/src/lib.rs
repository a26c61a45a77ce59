//! The library that `pgshrink cfs exec` has the loader put into a program: containers of a stopped server look like
//! plain files there.
//!
//! It refuses to do anything where `pgshrink cfs exec` has not asked ([`Request`]), and in `postgres`, which loads cfs by
//! itself. It exports nothing: the program's own imports are what is changed, before its `main` runs.
//!
//! ```text
//!  loader -- START --> install_in_tool: hooks in the program's imports --> ToolFront --> ServerFront --> containers
//! ```
//!
//! The program that was asked for is refused where it cannot be hooked. One that it starts is left alone then: a shell, a
//! compressor. So nothing that such a program does to a relation's file passes for a success: it meets a directory.
// Runs before a program's main function.
#![allow(unsafe_code)]

use pgshrink_cfs_server::tool::{self, Request};

const NEXT_STEP: &str = "name a program that is linked dynamically with glibc and does its file work itself, such as \
                         pg_rewind, pg_checksums, tar or cp";

extern "C" fn start() {
    // Nothing may unwind into the loader.
    let _ = std::panic::catch_unwind(begin);
}

fn begin() {
    let request = match Request::of_environment() {
        Ok(Some(request)) => request,
        Ok(None) => return,
        Err(problem) => tool::stop(&problem, "run pgshrink cfs exec of the same build"),
    };
    // Where it is not known, it is the one.
    let own = std::fs::read_link("/proc/self/exe").unwrap_or_else(|_| request.program.clone());
    let is_the_one = own == request.program;
    if !is_the_one && own.file_name().is_some_and(|name| name == "postgres") {
        return;
    }
    match pgshrink_interpose::install_in_tool(tool::start(request)) {
        Err(problem) if is_the_one => {
            tool::stop(&format_args!("{} cannot be run: {problem}", own.display()), NEXT_STEP)
        }
        _ => {}
    }
}

#[used]
// SAFETY: the loader calls what is in this section, once, after all relocations.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
