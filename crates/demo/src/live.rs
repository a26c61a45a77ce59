//! The row of a live table: compressed where it lies, in the default tablespace, while pgbench reads and updates it; and
//! made plain again.
//!
//! Each transaction counts itself in the row that it updates. So what pgbench says and what the table has must agree, and
//! all other columns must be what they were.

use std::fs;
use std::thread::scope;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::program;
use crate::progress::Progress;
use crate::report::size;
use crate::stage::Stage;
use crate::step::{Report, Row, Step};
use crate::tablespaces::on_disk;

const CLIENTS: &str = "4";
/// Of a run of pgbench without a conversion, and beside one.
const SECONDS: &str = "3";
const SECONDS_MEANWHILE: &str = "5";
/// A conversion takes about so long, so that pgbench has time to notice it.
const CONVERSION_SECONDS: u64 = 3;
/// The table's files: its own, its index's and its TOAST table's, by the number that their names begin with.
const FILES: &str = "select pg_relation_filepath(c.oid) from pg_class c
    where c.oid in ('live'::regclass, 'live_pkey'::regclass)
       or c.oid in (select reltoastrelid from pg_class where oid = 'live'::regclass)";

/// A copy of the stage's table.
pub(crate) struct Live;

/// Transactions per second, and how many.
struct Bench {
    rate: f64,
    count: u64,
}

impl Step for Live {
    fn title(&self) -> &'static str {
        "a live table"
    }

    fn phase_count(&self) -> u64 {
        3
    }

    // tidy: long, the stage's steps in their order
    fn run(&mut self, stage: &Stage, progress: &Progress, report: &mut Report) -> Result<(), Failure> {
        progress.phase("a live table, plain");
        let columns = make_table(stage)?;
        let checksum = |from: &str| {
            stage.sql(&format!(
                "select count(*), md5(string_agg(md5(t::text), '' order by id)) from (select {columns} from {from}) t"
            ))
        };
        let expected = checksum("package")?;
        // What is read first is not in memory yet.
        stage.sql("select count(*), sum(length(document::text)) from live")?;
        let before = bench(stage, SECONDS)?;
        stage.sql("checkpoint")?;
        let plain_size = size_of(stage)?;

        progress.phase("compressing it under pgbench");
        stage
            .cluster
            .set_conf("cfs.convert_rate", format!("{}kB", plain_size / CONVERSION_SECONDS / 1024))?;
        stage.cluster.reload()?;
        let (meanwhile, took) = scope(|scope| {
            let running = scope.spawn(|| bench(stage, SECONDS_MEANWHILE));
            let took = convert(stage, "cfs_compress_relation");
            (running.join().unwrap_or(Err(Failure::Interrupted)), took)
        });
        let (meanwhile, took) = (meanwhile?, took?);
        stage.sql("checkpoint; select cfs_gc_relation('live'); checkpoint")?;
        let shrunk_size = size_of(stage)?;
        let after = bench(stage, SECONDS)?;
        let mut same = checksum("live")? == expected;

        progress.phase("making it plain again");
        stage.cluster.set_conf("cfs.convert_rate", "0")?;
        stage.cluster.reload()?;
        let back = convert(stage, "cfs_decompress_relation")?;
        let count = before.count + meanwhile.count + after.count;
        same &=
            checksum("live")? == expected && stage.sql("select sum(hits) from live")? == count.to_string();
        stage.sql("checkpoint")?;
        let back_size = size_of(stage)?;

        remove_table(stage)?;
        report.live_heading =
            "\nThe index as a live table, compressed where it lies while pgbench reads and updates it: bytes on disk"
                .to_owned();
        report.live.push(Row {
            what: "table, index, TOAST".to_owned(),
            plain_size,
            shrunk_size,
            cpu_seconds: 0.0,
            plain_wall: Duration::ZERO,
            shrunk_wall: Duration::ZERO,
            same,
        });
        report.notes.push(format!(
            "Live table: pgbench (a lookup and an update by key, {CLIENTS} clients) did {:.0} transactions/s before, {:.0} \
             while the table was compressed ({:.1} s, cfs.convert_rate as for {CONVERSION_SECONDS} s), {:.0} after. Plain again \
             in {:.1} s without that limit: {}, with what {count} updates added.",
            before.rate,
            meanwhile.rate,
            took.as_secs_f64(),
            after.rate,
            back.as_secs_f64(),
            size(back_size),
        ));
        Ok(())
    }
}

/// Makes the table on a server with the library, and returns the columns that it has in common with the stage's.
fn make_table(stage: &Stage) -> Result<String, Failure> {
    stage.cluster.set_conf("shared_preload_libraries", "cfs")?;
    stage.cluster.restart()?;
    stage.sql("create extension cfs")?;
    stage.sql("create table live as select p.*, 0 as hits from package p order by id")?;
    stage.sql("alter table live add primary key (id); vacuum analyze live; checkpoint")?;
    stage.sql(
        "select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
         where attrelid = 'package'::regclass and attnum > 0 and not attisdropped",
    )
}

fn remove_table(stage: &Stage) -> Result<(), Failure> {
    stage.sql("drop table live; drop extension cfs")?;
    stage.cluster.set_conf("shared_preload_libraries", "")?;
    Ok(stage.cluster.restart()?)
}

/// Converts the table, and waits until it has its new form.
fn convert(stage: &Stage, function: &str) -> Result<Duration, Failure> {
    let begin = Instant::now();
    stage.sql(&format!("select {function}('live')"))?;
    if stage.sql("select cfs_wait('live', '2 min')")? != "t" {
        let waits = stage.sql("select path, state, waits_for from cfs_progress")?;
        return Err(Failure::with_advice(format!("{function} did not end in two minutes"), waits));
    }
    Ok(begin.elapsed())
}

/// Looks up and updates rows for some seconds.
fn bench(stage: &Stage, seconds: &str) -> Result<Bench, Failure> {
    let count = stage.package_count;
    let script = format!(
        "\\set n random(1, {count})\n\\set m random(1, {count})\n\
         select name, version, depends from live where id = :n;\nupdate live set hits = hits + 1 where id = :m;\n"
    );
    let path = stage.scratch().join("live.sql");
    fs::write(&path, script).map_err(|error| Failure::io(format!("writing {}", path.display()), &error))?;
    let input =
        fs::File::open(&path).map_err(|error| Failure::io(format!("opening {}", path.display()), &error))?;
    let mut command = stage.cluster.command("pgbench");
    command.args(["-h", "127.0.0.1", "-p", &stage.cluster.port().to_string(), "-U", "postgres"]);
    command.env("PGPASSWORD", stage.password()).env("PGDATABASE", "postgres");
    command.args(["-n", "-c", CLIENTS, "-j", "1", "-M", "prepared", "-T", seconds, "-f", "-"]);
    let printed = program::run(&mut command, Some(input))?.output.text;
    let told = |line: &str| {
        let rest = printed.lines().find_map(|printed| printed.strip_prefix(line));
        rest.and_then(|rest| rest.trim().split([' ', '/']).next()).map(str::to_owned)
    };
    let rate = told("tps = ").and_then(|text| text.parse().ok());
    let count = told("number of transactions actually processed:").and_then(|text| text.parse().ok());
    match (rate, count) {
        (Some(rate), Some(count)) => Ok(Bench { rate, count }),
        _ => Err(Failure::with_advice("pgbench printed no rate; its output:", printed)),
    }
}

/// Bytes that the table's files take.
fn size_of(stage: &Stage) -> Result<u64, Failure> {
    let mut bytes = 0;
    for path in stage.sql(FILES)?.lines() {
        let path = stage.cluster.data_dir().join(path);
        let failed = |error| Failure::io(format!("looking at {}", path.display()), &error);
        let (Some(folder), Some(number)) = (path.parent(), path.file_name()) else { continue };
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let rest = name.as_encoded_bytes().strip_prefix(number.as_encoded_bytes());
            // 16401, 16401.1 and 16401_fsm are its files, 164010 is not.
            if rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'.' | b'_'))) {
                match on_disk(&entry.path()) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    found => bytes += found.map_err(failed)?,
                }
            }
        }
    }
    Ok(bytes)
}
