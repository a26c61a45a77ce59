//! `pgshrink advise`: what the layout of a database wastes.
//!
//! ```text
//!   server ──▶ collect ──┐                      ┌──▶ text, JSON, SQL, HTML
//!                        ├──▶ Snapshot ──▶ advise ──▶ exit code
//!   --snapshot FILE ─────┘        └──▶ --save FILE
//! ```
//! Everything that computes is in `pgshrink-advisor`, and knows no server: here are the connection, files and output.

pub mod collect;
mod failure;
mod file;
mod shown;
mod strip;

use failure::Failure;

use crate::args::{AdviseArgs, OutputArgs};
use crate::cfs::output::Progress;
use crate::{EXIT_FAILED, EXIT_PROBLEM};
use collect::{Session, Wanted};
use pgshrink_advisor::advise::{Accepted, Options};
use pgshrink_advisor::{Report, Snapshot, price};
use std::process::ExitCode;
use std::time::Instant;

/// `pgshrink advise`.
pub(crate) fn main(args: &AdviseArgs) -> ExitCode {
    run(args).unwrap_or_else(|failure| {
        failure.ending().tell(args.json);
        ExitCode::from(EXIT_FAILED)
    })
}

fn run(args: &AdviseArgs) -> Result<ExitCode, Failure> {
    if let (Some(figures), Some(svg)) = (&args.figures, &args.svg) {
        shown::draw(figures, svg)?;
        return Ok(ExitCode::SUCCESS);
    }
    files(args)?;
    let prices = args.price.as_deref().map(price::parse).transpose();
    let options = Options {
        prices: prices.map_err(|error| Failure::new("--price", error))?,
        egress: args.egress.as_deref().map(file::load_egress).transpose()?,
        rules: args.rules.clone(),
        skipped: args.skip.clone(),
        accepted: args.accept.clone(),
        is_online: args.online,
    };
    let snapshot = snapshot(args)?;
    if let Some(path) = &args.save {
        file::save(path, &snapshot)?;
    }
    let start = Instant::now();
    let report = pgshrink_advisor::advise::advise(&snapshot, &options, Some(&|| start.elapsed()));
    check_accepted(&report, args)?;
    shown::show(&report, args)?;
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

/// Each finding that was named is there, and can be in a proposal.
fn check_accepted(report: &Report, args: &AdviseArgs) -> Result<(), Failure> {
    for accepted in &args.accept {
        let Accepted::Finding(id) = accepted else { continue };
        let found = report.findings.iter().find(|finding| finding.id == *id);
        let why = match found {
            Some(finding) if finding.sql.is_empty() => {
                "this finding has no SQL: your application has to make the change"
            }
            Some(finding) if finding.in_proposal => continue,
            Some(_) => {
                "this finding cannot be part of its table's proposal, or saves nothing in addition to the rest of it"
            }
            None => {
                "no finding of this database has this id: ids are in --json and --sql, as rule:schema.table.column"
            }
        };
        return Err(Failure::new(format!("--accept {id}"), why));
    }
    Ok(())
}

/// Looks at the files that are to be written, before anything is read.
fn files(args: &AdviseArgs) -> Result<(), Failure> {
    let outputs = [("--save", &args.save), ("--html", &args.html)];
    let inputs = [("--snapshot", &args.snapshot), ("--egress", &args.egress), ("--figures", &args.figures)];
    let all = outputs.iter().chain(&inputs).enumerate();
    let given: Vec<_> = all.filter_map(|(at, (flag, path))| Some((at, *flag, path.as_deref()?))).collect();
    for (at, flag, path) in given.iter().filter(|(at, ..)| *at < outputs.len()) {
        file::check(path)?;
        let same = given.iter().find(|(other, _, of_other)| other > at && file::is_same(path, of_other));
        if let Some((_, other, _)) = same {
            let reason = format!("{flag} would overwrite the file of {other}: choose another name");
            return Err(Failure::new(path.display(), reason));
        }
    }
    Ok(())
}

fn exit_code(report: &Report, args: &AdviseArgs) -> ExitCode {
    let saved = u64::try_from(report.total.bytes.disk.saved()).unwrap_or(0);
    match args.fail_above {
        Some(limit) if saved > limit => ExitCode::from(EXIT_PROBLEM),
        _ => ExitCode::SUCCESS,
    }
}
