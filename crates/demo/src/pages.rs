//! The rows of relation files at rest: the database's files as PostgreSQL has them, and packed page by page.
//!
//! The server is stopped for it, its files are packed, checked and unpacked again, and it starts on what came back.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use pgshrink_testkit::{Stop, TempDir};

use crate::failure::Failure;
use crate::program;
use crate::progress::Progress;
use crate::stage::{Stage, checksum_query};
use crate::step::{Report, Row, Step};

/// The files of the stage's database.
pub(crate) struct Pages;

/// What a relation counts as, in the order of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Table,
    Index,
    Catalog,
}

const KINDS: [(Kind, &str); 3] = [
    (Kind::Table, "tables, TOAST included"),
    (Kind::Index, "indexes"),
    (Kind::Catalog, "PostgreSQL's own catalogs"),
];

/// Indexes as an application would have, beside the primary key. What pgbench made is nearly constant and would flatter.
const INDEXES: &str = "
    drop table if exists pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers;
    create index if not exists package_name on package (name);
    create index if not exists package_section on package (section, installed_size_kb);
    create index if not exists package_sha256 on package (sha256);
    create index if not exists package_document on package using gin (document jsonb_path_ops);
    create extension if not exists amcheck;
    vacuum analyze;
    checkpoint";
const LIST: &str = "select pg_relation_filenode(oid), \
    case when oid < 16384 then 'c' when relkind = 'i' then 'i' else 't' end \
    from pg_class where pg_relation_filenode(oid) is not null";
/// Every row again, in the order of an index that is held to its table.
const CHECK: &str = "select count(bt_index_check(i.indexrelid, true)) from pg_index i \
    join pg_class c on c.oid = i.indexrelid join pg_am a on a.oid = c.relam \
    where a.amname = 'btree' and i.indrelid = 'package'::regclass";

impl Step for Pages {
    fn title(&self) -> &'static str {
        "relation files, packed"
    }

    fn phase_count(&self) -> u64 {
        4
    }

    fn run(&mut self, stage: &Stage, progress: &Progress, report: &mut Report) -> Result<(), Failure> {
        progress.phase("making indexes");
        make_indexes(stage)?;
        let kinds = kinds(&stage.sql(LIST)?);
        let before = stage.sql(&checksum_query("package"))?;
        let oid = stage.sql("select oid from pg_database where datname = current_database()")?;
        stage.cluster.stop(Stop::Fast)?;
        progress.phase("packing the stopped server's files");
        let files = stage.cluster.data_dir().join("base").join(oid.trim());
        let scratch = TempDir::new()?;
        let packed = scratch.path().join("packed");
        let packing = run(stage, &["pack"], &[&files, &packed])?;
        run(stage, &["verify"], &[&packed])?;
        progress.phase("unpacking them");
        let plain = scratch.path().join("plain");
        let unpacking = run(stage, &["unpack"], &[&packed, &plain])?;
        let mut rows = rows(&files, &packed, &kinds)?;
        put_back(&plain, &files)?;
        progress.phase("starting the server on what came back");
        stage.cluster.start()?;
        let same = stage.sql(&checksum_query("package"))? == before;
        let checked = stage.sql(CHECK)?;
        rows.iter_mut().for_each(|row| row.same = same);
        report.pages_heading = "\nThe database's files at rest, as they are and packed (zstd:1)".to_owned();
        report.pages = rows;
        report.notes.push(format!(
            "pgshrink cfs: packed and compared in {:.1} s, unpacked in {:.1} s; the server started on \
             what came back, amcheck passed {} indexes.",
            packing.as_secs_f64(),
            unpacking.as_secs_f64(),
            checked.trim(),
        ));
        Ok(())
    }
}

/// Makes the indexes that are not there yet.
pub(crate) fn make_indexes(stage: &Stage) -> Result<(), Failure> {
    stage.sql(INDEXES)?;
    Ok(())
}

/// Runs `pgshrink cfs` and returns how long it took.
fn run(stage: &Stage, words: &[&str], paths: &[&Path]) -> Result<Duration, Failure> {
    let mut command = Command::new(&stage.pgshrink);
    command.arg("cfs").args(words).args(paths);
    let begin = Instant::now();
    program::run(&mut command, None)?;
    Ok(begin.elapsed())
}

/// By the number that a relation's files are named by.
fn kinds(listed: &str) -> HashMap<u32, Kind> {
    let kind = |line: &str| {
        let (number, kind) = line.split_once('|')?;
        let kind = match kind {
            "i" => Kind::Index,
            "t" => Kind::Table,
            _ => Kind::Catalog,
        };
        Some((number.parse().ok()?, kind))
    };
    listed.lines().filter_map(kind).collect()
}

fn rows(plain: &Path, packed: &Path, kinds: &HashMap<u32, Kind>) -> Result<Vec<Row>, Failure> {
    let mut rows = KINDS.map(|(_, what)| Row {
        what: what.to_owned(),
        plain_size: 0,
        shrunk_size: 0,
        cpu_seconds: 0.0,
        plain_wall: Duration::ZERO,
        shrunk_wall: Duration::ZERO,
        same: false,
    });
    let failed = |error: io::Error| Failure::io(format!("looking at {}", packed.display()), &error);
    for entry in fs::read_dir(plain).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let kind = name.to_str().and_then(number_of).map(|number| {
            // A file without a relation is a leftover of the server's own.
            kinds.get(&number).copied().unwrap_or(Kind::Catalog)
        });
        let Some(index) = KINDS.iter().position(|(known, _)| Some(*known) == kind) else { continue };
        rows[index].plain_size += on_disk(&entry.path()).map_err(failed)?;
        rows[index].shrunk_size += on_disk(&packed.join(name)).map_err(failed)?;
    }
    Ok(rows.to_vec())
}

/// The number of a relation's file: `16385`, `16385.1`, `16385_fsm`.
fn number_of(name: &str) -> Option<u32> {
    name.split(['.', '_']).next()?.parse().ok()
}

/// What the file system has given to a file, or to a folder and what is in it.
fn on_disk(path: &Path) -> io::Result<u64> {
    let found = fs::metadata(path)?;
    let mut bytes = found.blocks() * 512;
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += on_disk(&entry?.path())?;
        }
    }
    Ok(bytes)
}

/// Writes what was unpacked over the files of the server, which keep their owner.
fn put_back(from: &Path, to: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io(format!("writing to {}", to.display()), &error);
    let names = |folder: &Path| -> io::Result<Vec<_>> {
        let mut names: Vec<_> =
            fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
        names.sort();
        Ok(names)
    };
    let unpacked = names(from).map_err(failed)?;
    if unpacked != names(to).map_err(failed)? {
        let what = "what was unpacked has other files than the server";
        return Err(Failure::with_advice(what, "this is a bug, please report it"));
    }
    for name in unpacked {
        let bytes = fs::read(from.join(&name)).map_err(failed)?;
        fs::write(to.join(&name), bytes).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_what_the_catalog_says_of_their_number() {
        let known = kinds("1249|c\n16385|t\n16391|i\n");
        let kind = |name: &str| number_of(name).and_then(|number| known.get(&number)).copied();
        assert_eq!(kind("1249_vm"), Some(Kind::Catalog));
        assert_eq!(kind("16385.1"), Some(Kind::Table));
        assert_eq!(kind("16391"), Some(Kind::Index));
        assert_eq!((kind("pg_filenode.map"), kind("PG_VERSION")), (None, None));
    }

    #[test]
    fn what_lacks_a_file_is_not_put_back() {
        let folder = TempDir::new().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        for path in [&from, &to] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("1"), path.as_os_str().len().to_string()).unwrap();
        }
        put_back(&from, &to).unwrap();
        assert_eq!(fs::read(from.join("1")).unwrap(), fs::read(to.join("1")).unwrap());
        fs::write(to.join("2"), "").unwrap();
        assert!(put_back(&from, &to).is_err());
    }
}
