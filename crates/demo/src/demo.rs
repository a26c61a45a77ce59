//! The worker: sets the stage, takes the steps, tells what they found.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::Arguments;
use crate::advice;
use crate::backup;
use crate::documents;
use crate::failure::Failure;
use crate::interrupt;
use crate::live;
use crate::pages;
use crate::progress::Progress;
use crate::report;
use crate::stage::{self, Stage};
use crate::step::{Report, Step};
use crate::supervisor::{COULD_NOT_RUN, INTERRUPTED, PROBLEM, follow_supervisor};
use crate::tablespaces;
use crate::terminal::{self, Charset};
use crate::wire;

/// Everything there is to show, in order. A part of the product adds its steps here.
fn steps() -> Vec<Box<dyn Step>> {
    let mut steps = wire::steps();
    steps.push(Box::new(documents::Documents));
    steps.push(Box::new(tablespaces::Tablespaces));
    steps.push(Box::new(live::Live));
    steps.push(Box::new(backup::Backup));
    steps.push(Box::new(advice::Advice));
    // Stops the server: the last.
    steps.push(Box::new(pages::Pages));
    steps
}

/// Shows everything and returns the program's exit code.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let mut report = Report::default();
    let outcome = show(arguments, &mut report);
    if matches!(outcome, Err(Failure::Interrupted)) || outcome.is_err() && interrupt::explains_failure() {
        eprintln!("pgshrink-demo: interrupted; everything it started is stopped and removed");
        return ExitCode::from(INTERRUPTED);
    }
    // A reader that went away is no reason to fail.
    let _ = report::print(&mut std::io::stdout().lock(), &report, terminal::width(), Charset::detect());
    for row in report.all_rows().filter(|row| !row.same) {
        let what = "both sides should hold the same data and do not; this is a bug, please report it";
        eprintln!("pgshrink-demo: {}: {what}", row.what);
    }
    for problem in &report.problems {
        eprintln!("pgshrink-demo: {problem}");
    }
    if let Err(failure) = &outcome {
        eprintln!("pgshrink-demo: {failure}");
    }
    ExitCode::from(exit_code(outcome.is_ok_and(|verdict| verdict == Verdict::Complete), &report))
}

fn exit_code(complete: bool, report: &Report) -> u8 {
    let same = report.all_rows().all(|row| row.same);
    match (complete, same && report.problems.is_empty()) {
        (false, _) => COULD_NOT_RUN,
        (true, false) => PROBLEM,
        (true, true) => 0,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Complete,
    Incomplete,
}

fn show(arguments: &Arguments, report: &mut Report) -> Result<Verdict, Failure> {
    interrupt::watch().map_err(|error| Failure::io("watching for signals", &error))?;
    follow_supervisor().map_err(|error| Failure::io("following the supervisor", &error))?;
    let pgshrink = find_binary(arguments.pgshrink.as_deref())?;
    stage::find_server()?;
    let mut steps = steps();
    let progress =
        Progress::new(stage::PHASE_COUNT + steps.iter().map(|step| step.phase_count()).sum::<u64>());
    let verdict = play(&pgshrink, &mut steps, arguments.report.as_deref(), &progress, report);
    progress.finish();
    verdict
}

fn play(
    pgshrink: &Path,
    steps: &mut [Box<dyn Step>],
    folder: Option<&Path>,
    progress: &Progress,
    report: &mut Report,
) -> Result<Verdict, Failure> {
    let stage = Stage::set(pgshrink, progress)?;
    report.heading = format!(
        "{} packages of this machine's index, PostgreSQL {}: plain and by pgshrink",
        stage.package_count,
        stage.cluster.server().version,
    );
    let mut verdict = Verdict::Complete;
    let mut phases = stage::PHASE_COUNT;
    for step in steps {
        match step.run(&stage, progress, report) {
            Ok(()) => {}
            Err(Failure::Interrupted) => return Err(Failure::Interrupted),
            Err(_) if interrupt::explains_failure() => return Err(Failure::Interrupted),
            Err(failure) => {
                verdict = Verdict::Incomplete;
                report.problems.push(format!("{}: {failure}", step.title()));
            }
        }
        phases += step.phase_count();
        progress.skip_to(phases);
        interrupt::check()?;
    }
    if let Some(folder) = folder.filter(|_| verdict == Verdict::Complete) {
        report.notes.push(advice::write_report(&stage, report, folder)?);
    }
    Ok(verdict)
}

/// The binary that `cargo build --release` leaves beside this program.
fn find_binary(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let binary = match named {
        Some(named) => named.to_owned(),
        None => std::env::current_exe()
            .map_err(|error| Failure::io("finding this program", &error))?
            .with_file_name("pgshrink"),
    };
    if binary.is_file() {
        return Ok(binary);
    }
    let what = format!("no pgshrink at {}", binary.display());
    Err(Failure::with_advice(
        what,
        "build it with: cargo build --release -p pgshrink-cli (make demo does), or name it with --pgshrink",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Row;

    #[test]
    fn only_a_complete_demo_whose_data_is_the_same_ends_well() {
        let row = |same| Row {
            what: "a".to_owned(),
            plain_size: 2,
            shrunk_size: 1,
            cpu_seconds: 0.0,
            plain_wall: Default::default(),
            shrunk_wall: Default::default(),
            same,
        };
        let report = |rows, problems: &[&str]| Report {
            rows,
            problems: problems.iter().map(|problem| (*problem).to_owned()).collect(),
            ..Report::default()
        };
        assert_eq!(exit_code(true, &report(vec![row(true)], &[])), 0);
        assert_eq!(exit_code(true, &report(vec![row(true), row(false)], &[])), 1);
        let documents = Report { documents: vec![row(false)], ..Report::default() };
        let tablespaces = Report { tablespaces: vec![row(false)], ..Report::default() };
        let live = Report { live: vec![row(false)], ..Report::default() };
        let backup = Report { backup: vec![row(false)], ..Report::default() };
        let advice = Report { advice: vec![row(false)], ..Report::default() };
        let pages = Report { pages: vec![row(false)], ..Report::default() };
        let reports = [documents, tablespaces, live, backup, advice, pages];
        assert_eq!(reports.map(|report| exit_code(true, &report)), [1; 6]);
        assert_eq!(exit_code(true, &report(vec![row(true)], &["counters disagree"])), 1);
        assert_eq!(exit_code(false, &report(vec![row(true)], &["a step failed"])), 2);
    }
}
