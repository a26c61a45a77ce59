//! `pgshrink advise`: what the layout of a database wastes.
//!
//! ```text
//!   server ──▶ collect ──┐                      ┌──▶ text, JSON, SQL, HTML
//!                        ├──▶ Snapshot ──▶ advise ──▶ exit code
//!   --snapshot FILE ─────┘        └──▶ --save FILE
//! ```
//! Everything that computes is in `pgshrink-advisor`, and knows no server: here are the connection, files and output.

mod collect;
mod failure;
mod file;
mod strip;

use failure::Failure;

use crate::args::{AdviseArgs, OutputArgs};
use crate::cfs::output::{self, Progress};
use crate::{EXIT_FAILED, EXIT_PROBLEM};
use collect::{Session, Wanted};
use pgshrink_advisor::finding::{REPORT_FORMAT, Report};
use pgshrink_advisor::snapshot::Snapshot;
use std::process::ExitCode;

/// `pgshrink advise`.
pub(crate) fn main(args: &AdviseArgs) -> ExitCode {
    run(args).unwrap_or_else(|failure| {
        if args.json {
            println!("{}", failure.json());
        }
        eprintln!("pgshrink: {failure}");
        ExitCode::from(EXIT_FAILED)
    })
}

fn run(args: &AdviseArgs) -> Result<ExitCode, Failure> {
    let snapshot = snapshot(args)?;
    if let Some(path) = &args.save {
        file::save(path, &snapshot)?;
    }
    let report = advise(&snapshot, args);
    print(&report, args)?;
    Ok(exit_code(&report, args))
}

/// From a file, or from a server.
fn snapshot(args: &AdviseArgs) -> Result<Snapshot, Failure> {
    let mut snapshot = match &args.snapshot {
        Some(path) => file::load(path)?,
        None => {
            let mut session = Session::connect(args.conninfo.as_deref())?;
            let progress = Progress::new(0, &output_args(args));
            collect::collect(&mut session, &wanted(args), &progress)?
        }
    };
    if args.no_values {
        strip::strip(&mut snapshot);
    }
    Ok(snapshot)
}

fn wanted(args: &AdviseArgs) -> Wanted {
    Wanted {
        tables: args.table.clone(),
        schemas: args.schema.clone(),
        table_bytes_min: args.min_size,
        table_bytes_max: args.sample_size,
        total_bytes_max: args.sample_total,
        has_values: !args.no_values,
    }
}

fn output_args(args: &AdviseArgs) -> OutputArgs {
    OutputArgs { json: args.json, quiet: args.no_progress }
}

/// WIRE: the analysis. `advise::advise(&snapshot, &options)` with `args.rules`, `args.skip`, `args.price` and `args.egress` takes the
/// place of this head of a report, which says what was seen and finds nothing.
fn advise(snapshot: &Snapshot, _args: &AdviseArgs) -> Report {
    Report {
        format: REPORT_FORMAT,
        database: snapshot.server.database.clone(),
        server_version: snapshot.server.version,
        taken_s: snapshot.taken_s,
        unseen: snapshot.unseen.clone(),
        ..Report::default()
    }
}

/// WIRE: `report::{text, sql, html}` take the place of `seen`; `file::write` writes the HTML.
fn print(report: &Report, args: &AdviseArgs) -> Result<(), Failure> {
    output::print(&output_args(args), report, seen).map_err(|error| Failure::new("output", error))
}

/// What was seen, and what was not.
fn seen(report: &Report) -> String {
    let mut text = format!("{} (PostgreSQL {})\n", report.database, report.server_version / 10_000);
    for unseen in &report.unseen {
        text.push_str(&format!("not seen: {}: {}\n", unseen.what, unseen.why));
        if !unseen.remedy.is_empty() {
            text.push_str(&format!("    {}\n", unseen.remedy));
        }
    }
    text
}

fn exit_code(report: &Report, args: &AdviseArgs) -> ExitCode {
    let saved = u64::try_from(report.total.bytes.disk.saved()).unwrap_or(0);
    match args.fail_above {
        Some(limit) if saved > limit => ExitCode::from(EXIT_PROBLEM),
        _ => ExitCode::SUCCESS,
    }
}
