//! `make demo`: pgshrink on a throwaway cluster with the machine's own package index, and what it saves.
//!
//! It starts what a user would start, the product's binary, and knows nothing of its insides: bytes are counted by
//! a relay between connector and gateway, CPU time comes from the kernel, equality from checksums of what arrived.
//!
//! ```text
//!   plain:  client ──────────────▶ relay ──────────────▶ server
//!   zstd:   client ──▶ connector ──▶ relay ──▶ gateway ──▶ server
//! ```
//!
//! The same server then stores the documents of the index as jsonb and as zson, and the index in a plain and in a
//! compressed tablespace, and compresses a table where it lies, in use. It is backed up, and the backup is restored and started. The index as a
//! table is looked at by `pgshrink advise`, whose script is run. At the end its files are packed, unpacked and started on again.
//!
//! 1. Nothing is left behind, however it ends: [`supervisor`] owns a directory in which everything happens.
//! 2. A part of the product adds its rows by adding to [`demo::steps`].

mod advice;
mod backup;
mod demo;
mod documents;
mod failure;
mod interrupt;
mod live;
mod package_index;
mod package_table;
mod pages;
mod program;
mod progress;
mod report;
mod stage;
mod step;
mod supervisor;
mod tablespaces;
mod terminal;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Shows what pgshrink saves, on a throwaway PostgreSQL cluster filled from this machine's package index.
///
/// Exit codes: 0 done, 1 data differs or counters disagree, 2 a step could not run, 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "pgshrink-demo", version)]
pub(crate) struct Arguments {
    /// The binary to show; otherwise the `pgshrink` beside this program.
    #[arg(long, value_name = "PATH")]
    pub(crate) pgshrink: Option<PathBuf>,
    /// Where report.html and report.json are written; otherwise they are not.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) report: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if supervisor::is_worker() { demo::run(&arguments) } else { supervisor::run() }
}
