//! The rows of advice: the package table in a database of its own, looked at by `pgshrink advise`, and the script that it
//! wrote run on it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::Failure;
use crate::interrupt;
use crate::package_table;
use crate::program;
use crate::progress::Progress;
use crate::report::size;
use crate::stage::Stage;
use crate::step::{Report, Row, Step};

/// The database.
const DATABASE: &str = "advised";
/// In the stage's scratch directory: what was seen of it.
pub(crate) const SNAPSHOT: &str = "advised.snapshot.json";
const TOTAL: &str = "select pg_total_relation_size('package')";

/// The package table, advised.
pub(crate) struct Advice;

impl Step for Advice {
    fn title(&self) -> &'static str {
        "advice"
    }

    fn phase_count(&self) -> u64 {
        3
    }

    fn run(&mut self, stage: &Stage, progress: &Progress, report: &mut Report) -> Result<(), Failure> {
        progress.phase("a database to be advised");
        make_database(stage)?;
        let columns = columns(stage)?;
        progress.phase("pgshrink advise");
        let snapshot = stage.scratch().join(SNAPSHOT);
        let begin = Instant::now();
        let conninfo = stage.cluster.conninfo_unix(DATABASE);
        let advice = advise(stage, |command| command.arg(conninfo).arg("--save").arg(&snapshot))?;
        let took = begin.elapsed();
        progress.phase("running the script that it wrote");
        let proposal = advice.pointer("/proposals/0").cloned().unwrap_or_default();
        let before = bytes(stage)?;
        in_database(stage, &script(&proposal))?;
        in_database(stage, "vacuum")?;
        let after = bytes(stage)?;
        // Columns whose types have changed print other texts: the script compares those itself.
        let now = self::columns(stage)?;
        let kept: Vec<_> = now.iter().filter(|column| columns.contains(column)).collect();
        let same = now.len() == columns.len()
            && digest(stage, "package", &kept)? == digest(stage, "untouched", &kept)?;
        stage.sql(&format!("drop database {DATABASE}"))?;
        report.advice_heading =
            "\nThe index as a table, as it is and as pgshrink advise would have it".to_owned();
        report.advice = vec![row(before, after, same)];
        report.notes.push(note(&advice, &proposal, after, took));
        Ok(())
    }
}

fn row(before: u64, after: u64, same: bool) -> Row {
    Row {
        what: "with its index and TOAST".to_owned(),
        plain_size: before,
        shrunk_size: after,
        cpu_seconds: 0.0,
        plain_wall: Duration::ZERO,
        shrunk_wall: Duration::ZERO,
        same,
    }
}

fn note(advice: &Value, proposal: &Value, found: u64, took: Duration) -> String {
    let count = |value: &Value| value.pointer("/findings").and_then(Value::as_array).map_or(0, Vec::len);
    let took = took.as_secs_f64();
    if proposal.is_null() {
        return format!(
            "pgshrink advise: {} findings after {took:.1} s, none of which it recommends without knowing the application.",
            count(advice),
        );
    }
    let predicted = proposal.pointer("/bytes/disk/after").and_then(Value::as_u64).unwrap_or_default();
    format!(
        "pgshrink advise: {} findings in one script, after {took:.1} s; {} predicted, {} found.",
        count(proposal),
        size(predicted),
        size(found),
    )
}

/// The stage's table in another database, and a copy of it that stays as it is.
fn make_database(stage: &Stage) -> Result<(), Failure> {
    stage.sql(&format!("create database {DATABASE}"))?;
    in_database(stage, &package_table::definition("package"))?;
    let mut copy = stage.cluster.psql().database(DATABASE).arg("-c").arg("copy package from stdin").command();
    program::run(&mut copy, Some(stage.open_rows()?))?;
    in_database(stage, "create unlogged table untouched as select * from package; vacuum analyze package")?;
    Ok(())
}

/// Names and types.
fn columns(stage: &Stage) -> Result<Vec<(String, String)>, Failure> {
    let found = in_database(
        stage,
        "select quote_ident(attname), atttypid::regtype from pg_attribute
         where attrelid = 'package'::regclass and attnum > 0 and not attisdropped order by attname",
    )?;
    Ok(found
        .lines()
        .filter_map(|line| line.split_once('|'))
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .collect())
}

fn digest(stage: &Stage, table: &str, columns: &[&(String, String)]) -> Result<String, Failure> {
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let sql = format!(
        "select count(*), md5(string_agg(md5(row({})::text), '' order by id)) from {table}",
        names.join(", ")
    );
    in_database(stage, &sql)
}

fn bytes(stage: &Stage) -> Result<u64, Failure> {
    let found = in_database(stage, TOTAL)?;
    found
        .trim()
        .parse()
        .map_err(|_| Failure::with_advice(format!("no size: {found}"), "this is a bug, please report it"))
}

fn in_database(stage: &Stage, sql: &str) -> Result<String, Failure> {
    interrupt::check()?;
    Ok(stage.cluster.psql().database(DATABASE).sql(sql)?)
}

/// All statements of a proposal.
fn script(proposal: &Value) -> String {
    let steps = proposal.pointer("/sql").and_then(Value::as_array).into_iter().flatten();
    let statements = steps.filter_map(|step| step.pointer("/statements")?.as_array()).flatten();
    statements.filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
}

/// Runs `pgshrink advise --json`.
fn advise(stage: &Stage, arguments: impl FnOnce(&mut Command) -> &mut Command) -> Result<Value, Failure> {
    interrupt::check()?;
    let mut command = pgshrink_testkit::run::command(&stage.pgshrink);
    command.env("PGPASSWORD", stage.password());
    let command = arguments(command.arg("advise")).arg("--json");
    let output = command.output().map_err(|error| Failure::io("starting pgshrink advise", &error))?;
    let failed = |why: String| {
        Failure::with_advice(format!("pgshrink advise: {why}"), "this is a bug, please report it")
    };
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

/// Writes `report.json`, bytes before and after of every system, and `report.html`, the advice with a picture of them, into `folder`.
pub(crate) fn write_report(stage: &Stage, report: &Report, folder: &Path) -> Result<String, Failure> {
    let (figures, html) = (folder.join("report.json"), folder.join("report.html"));
    let text = serde_json::to_string_pretty(&systems(report)).unwrap_or_default() + "\n";
    fs::write(&figures, text)
        .map_err(|error| Failure::io(format!("writing {}", figures.display()), &error))?;
    let snapshot = stage.scratch().join(SNAPSHOT);
    advise(stage, |command| {
        command.arg("--snapshot").arg(snapshot).arg("--figures").arg(&figures).arg("--html").arg(&html)
    })?;
    Ok(format!("The report: {}, its figures: {}.", html.display(), figures.display()))
}

/// For `pgshrink advise --figures`.
fn systems(report: &Report) -> Value {
    let all =
        |rows: &[Row]| rows.iter().fold((0, 0), |sum, row| (sum.0 + row.plain_size, sum.1 + row.shrunk_size));
    let first = |rows: &[Row]| all(&rows[..rows.len().min(1)]);
    let found = [
        ("wire", all(&report.rows), "COPY, a JSON result, a base backup, a replica and pgbench"),
        ("zson", first(&report.documents), "a table of documents, beside jsonb"),
        ("cfs", first(&report.tablespaces), "a table with four indexes in a compressed tablespace"),
        ("backup", first(&report.backup), "the whole server, beside its data directory"),
        ("advisor", first(&report.advice), "a table after the script of pgshrink advise"),
    ];
    let systems = found.into_iter().filter(|(_, (before, _), _)| *before > 0);
    let systems: Vec<_> = systems
        .map(|(name, (before, after), note)| {
            serde_json::json!({ "name": name, "before": before, "after": after, "note": note })
        })
        .collect();
    serde_json::json!({ "systems": systems })
}
