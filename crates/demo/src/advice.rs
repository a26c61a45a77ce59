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
/// What the demo agrees to, as nothing but the demo reads the table.
const ACCEPTED: [&str; 4] = ["--accept", "zson", "--accept", "column_type"];
/// Nothing of the server is to change.
const OF_THE_TABLE: [&str; 2] = ["--skip", "setting,catalog_bloat,autovacuum_lag"];

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
        progress.phase("pgshrink advise");
        let snapshot = stage.scratch().join(SNAPSHOT);
        let begin = Instant::now();
        let conninfo = stage.cluster.conninfo_unix(DATABASE);
        let advice = advise(stage, |command| {
            command.arg(conninfo).arg("--save").arg(&snapshot).args(ACCEPTED).arg("--json")
        })?;
        let advice = serde_json::from_str(&advice).map_err(|error| bug(&error.to_string()))?;
        let took = begin.elapsed();
        let script = advise(stage, |command| {
            command.arg("--snapshot").arg(&snapshot).args(ACCEPTED).args(OF_THE_TABLE).arg("--sql")
        })?;
        progress.phase("running the script that it wrote");
        let before = bytes(stage)?;
        in_database(stage, &script)?;
        in_database(stage, "vacuum")?;
        let after = bytes(stage)?;
        let same = digest(stage, "package")? == digest(stage, "untouched")?;
        stage.sql(&format!("drop database {DATABASE}"))?;
        report.advice_heading =
            "\nThe index as a table, as it is and as pgshrink advise would have it".to_owned();
        report.advice = vec![row(before, after, same)];
        report.notes.push(note(&advice, after, took));
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

fn note(advice: &Value, found: u64, took: Duration) -> String {
    let count = |value: &Value| value.pointer("/findings").and_then(Value::as_array).map_or(0, Vec::len);
    let took = took.as_secs_f64();
    let Some(proposal) = advice.pointer("/proposals/0") else {
        return format!(
            "pgshrink advise: {} findings after {took:.1} s, and nothing to propose.",
            count(advice)
        );
    };
    let predicted = proposal.pointer("/bytes/disk/after").and_then(Value::as_u64).unwrap_or_default();
    format!(
        "pgshrink advise {}: {} findings in one script, after {took:.1} s; {} predicted, {} found.",
        ACCEPTED.join(" "),
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

/// Of all columns, whatever their types are by now.
fn digest(stage: &Stage, table: &str) -> Result<String, Failure> {
    let texts = in_database(
        stage,
        &format!(
            "select string_agg(case when atttypid::regtype::text = 'bytea' then format('encode(%I, ''hex'')', attname)
                    when atttypid::regtype::text = 'zson' then format('%I::jsonb::text', attname)
                    else format('%I::text', attname) end, ', ' order by attname)
             from pg_attribute where attrelid = '{table}'::regclass and attnum > 0 and not attisdropped"
        ),
    )?;
    in_database(
        stage,
        &format!("select count(*), md5(string_agg(md5(row({texts})::text), '' order by id)) from {table}"),
    )
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

/// Runs `pgshrink advise`, and gives what it prints.
fn advise(stage: &Stage, arguments: impl FnOnce(&mut Command) -> &mut Command) -> Result<String, Failure> {
    interrupt::check()?;
    let mut command = pgshrink_testkit::run::command(&stage.pgshrink);
    command.env("PGPASSWORD", stage.password());
    let output = arguments(command.arg("advise"))
        .output()
        .map_err(|error| Failure::io("starting pgshrink advise", &error))?;
    if !output.status.success() {
        return Err(bug(&String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| bug(&error.to_string()))
}

fn bug(why: &str) -> Failure {
    Failure::with_advice(format!("pgshrink advise: {why}"), "this is a bug, please report it")
}

/// Writes `report.json`, bytes before and after of every system, and `report.html`, the advice with a picture of them, into `folder`.
pub(crate) fn write_report(stage: &Stage, report: &Report, folder: &Path) -> Result<String, Failure> {
    let (figures, html) = (folder.join("report.json"), folder.join("report.html"));
    let text = serde_json::to_string_pretty(&systems(report)).unwrap_or_default() + "\n";
    fs::write(&figures, text)
        .map_err(|error| Failure::io(format!("writing {}", figures.display()), &error))?;
    let snapshot = stage.scratch().join(SNAPSHOT);
    advise(stage, |command| {
        command
            .arg("--snapshot")
            .arg(snapshot)
            .args(ACCEPTED)
            .arg("--figures")
            .arg(&figures)
            .arg("--html")
            .arg(&html)
    })?;
    Ok(format!("The report: {}, its figures: {}.", html.display(), figures.display()))
}

/// For `pgshrink advise --figures`.
fn systems(report: &Report) -> Value {
    let all =
        |rows: &[Row]| rows.iter().fold((0, 0), |sum, row| (sum.0 + row.plain_size, sum.1 + row.shrunk_size));
    let first = |rows: &[Row]| all(&rows[..rows.len().min(1)]);
    let found = [
        ("wire", all(&report.rows), "COPY, replication, backup, pgbench"),
        ("zson", first(&report.documents), "documents, beside jsonb"),
        ("cfs", first(&report.tablespaces), "a table with four indexes"),
        ("backup", first(&report.backup), "the whole server"),
        ("advisor", first(&report.advice), "a table and the script for it"),
    ];
    let systems = found.into_iter().filter(|(_, (before, _), _)| *before > 0);
    let systems: Vec<_> = systems
        .map(|(name, (before, after), note)| {
            serde_json::json!({ "name": name, "before": before, "after": after, "note": note })
        })
        .collect();
    serde_json::json!({ "systems": systems })
}
