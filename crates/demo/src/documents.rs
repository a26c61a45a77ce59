//! The rows of documents at rest: the package index once as jsonb, once as zson.
//!
//! Both tables are filled from the same uncompressed documents, and asked in the same session of the same server.

use std::time::Duration;

use serde_json::Value;

use crate::failure::Failure;
use crate::progress::Progress;
use crate::stage::{Stage, checksum_query};
use crate::step::{Report, Row, Step};

/// One row of so many is learnt from: more than the sample that learning takes of a large table.
const LEARN_ONE_IN: usize = 3;
/// Of each scan, the quickest counts.
const SCANS: usize = 3;

/// The documents of the stage's table.
pub(crate) struct Documents;

/// How it went with one of the two types.
struct Side {
    table_size: u64,
    /// Bytes of write-ahead log for the insert.
    inserted: (u64, Duration),
    /// Bytes of the pages looked at by the scan.
    scanned: (u64, Duration),
    /// What the scan answered.
    answer: String,
    /// A digest of all documents.
    checksum: String,
}

impl Step for Documents {
    fn title(&self) -> &'static str {
        "documents as zson"
    }

    fn phase_count(&self) -> u64 {
        4
    }

    fn run(&mut self, stage: &Stage, progress: &Progress, report: &mut Report) -> Result<(), Failure> {
        progress.phase("copying the documents");
        prepare(stage)?;
        progress.phase("learning from a third of them");
        let note = learn(stage)?;
        progress.phase("documents as jsonb: insert, scan");
        let jsonb = Side::fill(stage, "as_jsonb")?;
        progress.phase("documents as zson: insert, scan");
        let zson = Side::fill(stage, "as_zson")?;
        stage.sql("drop table as_jsonb, as_zson, uncompressed")?;
        report.documents_heading =
            format!("\n{} documents of the index, as jsonb and as zson", stage.package_count);
        report.documents = rows(&jsonb, &zson);
        report.notes.push(note);
        Ok(())
    }
}

fn rows(jsonb: &Side, zson: &Side) -> Vec<Row> {
    let row = |what: &str, plain: (u64, Duration), shrunk: (u64, Duration), same: bool| Row {
        what: what.to_owned(),
        plain_size: plain.0,
        shrunk_size: shrunk.0,
        cpu_seconds: 0.0,
        plain_wall: plain.1,
        shrunk_wall: shrunk.1,
        same,
    };
    let same = jsonb.checksum == zson.checksum;
    let size = |side: &Side| (side.table_size, Duration::ZERO);
    vec![
        row("the table", size(jsonb), size(zson), same),
        row("INSERT (bytes of WAL)", jsonb.inserted, zson.inserted, same),
        row("->> scan (bytes of pages)", jsonb.scanned, zson.scanned, jsonb.answer == zson.answer),
    ]
}

/// Documents that nothing has compressed: an insert would copy what is.
fn prepare(stage: &Stage) -> Result<(), Failure> {
    if stage.sql("select 1 from pg_available_extensions where name = 'zson'")?.is_empty() {
        let what = "the server has no extension zson";
        return Err(Failure::with_advice(what, "build it with: tools/extensions 15 (make demo does)"));
    }
    stage.sql(
        "create extension if not exists zson;
        create unlogged table uncompressed (id int, document jsonb);
        alter table uncompressed alter document set storage external;
        insert into uncompressed select id, document || '{}' from package order by id;
        vacuum analyze uncompressed",
    )?;
    Ok(())
}

/// Returns what the server said.
fn learn(stage: &Stage) -> Result<String, Failure> {
    stage.sql(&format!(
        "create table as_jsonb (id int, document jsonb);
        create table as_zson (id int, document zson('package'));
        insert into as_zson select * from uncompressed where id % {LEARN_ONE_IN} = 0"
    ))?;
    let said = stage.sql("select zson_learn('as_zson', 'document')")?;
    stage.sql("truncate as_zson")?;
    // The rest is about what to do next with a table that has documents.
    let said = said.split(". New documents").next().unwrap_or_default();
    Ok(format!("zson_learn: {said}."))
}

impl Side {
    fn fill(stage: &Stage, table: &'static str) -> Result<Side, Failure> {
        let scan = format!("select sum(length(document->>'package')) from {table};\n");
        let printed = stage.sql(&format!(
            "checkpoint;
            {MARK} insert into {table} select * from uncompressed; {MARK}
            vacuum analyze {table};
            {scan} {}
            select pg_table_size('{table}');
            explain (analyze, buffers, timing off, format json) {scan}",
            format!("{MARK} {scan} {MARK}").repeat(SCANS)
        ))?;
        let checksum = stage.sql(&checksum_query(table))?;
        Side::read(&printed, checksum)
            .ok_or_else(|| Failure::with_advice(format!("psql printed\n{printed}"), "please report it"))
    }

    /// Takes apart what psql printed.
    fn read(printed: &str, checksum: String) -> Option<Side> {
        let mut lines = printed.lines();
        let insert = [mark(lines.next()?)?, mark(lines.next()?)?];
        let answer = lines.next()?.to_owned();
        let mut scan = Duration::MAX;
        for _ in 0..SCANS {
            let before = mark(lines.next()?)?.at;
            lines.next().filter(|line| *line == answer)?;
            scan = scan.min(mark(lines.next()?)?.at.checked_sub(before)?);
        }
        let table_size = lines.next()?.parse().ok()?;
        let plan: Value = serde_json::from_str(&lines.collect::<String>()).ok()?;
        let blocks = |kind: &str| plan[0]["Plan"][kind].as_u64();
        let pages = blocks("Shared Hit Blocks")? + blocks("Shared Read Blocks")?;
        let [before, after] = insert;
        Some(Side {
            table_size,
            inserted: (after.wal.checked_sub(before.wal)?, after.at.checked_sub(before.at)?),
            scanned: (pages * PAGE_BYTES, scan),
            answer,
            checksum,
        })
    }
}

/// A moment of the server.
struct Mark {
    /// Since the epoch.
    at: Duration,
    /// Bytes of write-ahead log since the cluster was made.
    wal: u64,
}

const MARK: &str =
    "select 'mark', extract(epoch from clock_timestamp()), pg_current_wal_insert_lsn() - '0/0'::pg_lsn;\n";
const PAGE_BYTES: u64 = 8192;

fn mark(line: &str) -> Option<Mark> {
    let (at, wal) = line.strip_prefix("mark|")?.split_once('|')?;
    Some(Mark { at: Duration::try_from_secs_f64(at.parse().ok()?).ok()?, wal: wal.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_psql_prints_is_taken_apart() {
        let scans = "mark|20.5|3000\n77\nmark|20.75|3000\n".repeat(SCANS);
        let plan = "[\n {\"Plan\": {\"Shared Hit Blocks\": 2,\n \"Shared Read Blocks\": 1}}]";
        let printed = format!("mark|10|1000\nmark|12.5|3000\n77\n{scans}8192\n{plan}");
        let side = Side::read(&printed, String::new()).unwrap();
        assert_eq!(side.inserted, (2000, Duration::from_millis(2500)));
        assert_eq!(side.scanned, (3 * PAGE_BYTES, Duration::from_millis(250)));
        assert_eq!((side.table_size, side.answer.as_str()), (8192, "77"));
        assert!(
            Side::read(&printed.replace("\n77", "\n78").replacen("78", "77", 1), String::new()).is_none()
        );
    }
}
