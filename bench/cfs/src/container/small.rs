//! What a database of small relations takes, plain and packed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgshrink_bench_report::{Result, Table, Unit, checkout};
use pgshrink_testkit::{Cluster, Stop, TempDir};

const TABLES: u32 = 300;

/// A new database, and one with many tables of a few rows.
pub fn table() -> Result<Table> {
    let about = format!(
        "Databases of a new server, stopped, beside what `pgshrink cfs pack` makes of their folders by its default: what their files and folders have allocated \
        (st_blocks). `empty`: as CREATE DATABASE leaves it. `tiny tables`: with {TABLES} tables of a row to 500 rows, a primary key and another index \
        each. Plain files, containers and their folders are counted alike."
    );
    let columns = [
        ("database", Unit::Text),
        ("files", Unit::Count),
        ("containers", Unit::Count),
        ("plain", Unit::Bytes),
        ("packed", Unit::Bytes),
        ("packed to plain", Unit::Ratio),
    ];
    let mut table = Table::new("small", "Databases of small relations", &about, &columns);
    let cluster = Cluster::builder().major(15).start()?;
    cluster.sql("create database empty")?;
    cluster.sql("create database tiny")?;
    let tiny = cluster.psql().database("tiny");
    tiny.clone().sql(&format!(
        "do $$ begin for n in 1..{TABLES} loop execute format('create table t%s (id int primary key, at timestamptz default now(), \
        name text); create index on t%s (name); insert into t%s (id, name) select i, md5(i::text) from generate_series(1, %s) i', n, n, n, 1 + n * n % 500); \
        end loop; end $$"
    ))?;
    tiny.sql("vacuum analyze")?;
    cluster.sql("checkpoint")?;
    let mut folders = Vec::new();
    for (name, database) in [("empty", "empty"), ("tiny tables", "tiny")] {
        let oid = cluster.sql(&format!("select oid from pg_database where datname = '{database}'"))?;
        folders.push((name, cluster.data_dir().join("base").join(oid.trim())));
    }
    cluster.stop(Stop::Fast)?;
    let mut larger = Vec::new();
    for (name, folder) in folders {
        let scratch = TempDir::new()?;
        let packed = scratch.path().join("packed");
        pack(&folder, &packed)?;
        let (files, plain) = usage(&folder)?;
        let (_, ours) = usage(&packed)?;
        let containers = containers(&packed)?;
        let ratio = ours as f64 / plain as f64;
        table.row([name.into(), files.into(), containers.into(), plain.into(), ours.into(), ratio.into()]);
        larger.push(ratio);
    }
    let most = larger.into_iter().fold(0.0, f64::max);
    table.verdict(
        "a database of small relations, to plain",
        "at most 1.0",
        format!("{most:.3}"),
        most <= 1.0,
    );
    Ok(table)
}

/// `target/release/pgshrink`, or what `PGSHRINK_PROGRAM` names.
fn pack(from: &Path, to: &Path) -> Result<()> {
    let named = std::env::var_os("PGSHRINK_PROGRAM").map(PathBuf::from);
    let program = named.unwrap_or_else(|| checkout().join("target/release/pgshrink"));
    if !program.exists() {
        return Err("there is no target/release/pgshrink: run make build".into());
    }
    let output = Command::new(program).args(["cfs", "pack", "--quiet"]).arg(from).arg(to).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("pgshrink cfs pack: {stderr}").into()) }
}

/// Files below a folder, and bytes allocated for it and everything below.
fn usage(folder: &Path) -> Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, std::fs::metadata(folder)?.blocks() * 512);
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            let (more, below) = usage(&path)?;
            (files, bytes) = (files + more, bytes + below);
        } else {
            (files, bytes) = (files + 1, bytes + std::fs::metadata(&path)?.blocks() * 512);
        }
    }
    Ok((files, bytes))
}

fn containers(folder: &Path) -> Result<usize> {
    let entries: Vec<_> = std::fs::read_dir(folder)?.collect::<std::io::Result<_>>()?;
    Ok(entries.iter().filter(|entry| entry.path().is_dir()).count())
}
