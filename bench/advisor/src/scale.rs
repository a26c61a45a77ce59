//! A database of many tables.

use crate::Bench;
use crate::lab::list;
use pgshrink_bench_report::{Result, Table, Unit};
use std::time::Instant;

/// Seconds for ten thousand tables.
const SECONDS_MAX: f64 = 30.0;
/// Tables that one statement makes: each holds a lock until the end of its transaction.
const TABLES_PER_STATEMENT: u32 = 500;

/// How long advice takes, by the number of tables.
///
/// # Errors
/// Those of the server and of the program.
pub fn table(bench: &Bench) -> Result<Table> {
    let lab = bench.lab()?;
    let about = "`pgshrink advise --json` of a database of so many tables with 3 indexes and 2,000 rows each, everything in the server's memory. \
        With `--min-size 0` every table is sampled; by default those of 1 MB and more.";
    let columns = [
        ("tables", Unit::Count),
        ("seconds", Unit::Seconds),
        ("all sampled", Unit::Seconds),
        ("findings", Unit::Count),
    ];
    let mut table = Table::new("many-tables", "Databases of many tables", about, &columns);
    lab.sql("postgres", "drop database if exists many")?;
    lab.sql("postgres", "create database many")?;
    let mut made = 0;
    let mut last = 0.0;
    for count in if bench.full { vec![1_000, 10_000] } else { vec![1_000] } {
        while made < count {
            let (from, to) = (made + 1, (made + TABLES_PER_STATEMENT).min(count));
            lab.sql("many", &tables(from, to))?;
            made = to;
        }
        lab.sql("many", "analyze")?;
        let timed = |arguments: &[&str]| -> Result<_> {
            let start = Instant::now();
            let advice = lab.advise("many", arguments)?;
            Ok((start.elapsed().as_secs_f64(), list(&advice, "/findings").len()))
        };
        let (usual, _) = timed(&[])?;
        let (all, findings) = timed(&["--min-size", "0"])?;
        last = usual;
        table.push(vec![f64::from(count).into(), usual.into(), all.into(), (findings as f64).into()]);
    }
    lab.sql("postgres", "drop database many")?;
    if bench.full {
        table.verdict("10,000 tables", "under 30 s", format!("{last:.1} s"), last < SECONDS_MAX);
    }
    Ok(table)
}

fn tables(from: u32, to: u32) -> String {
    format!(
        "do $$ begin for n in {from}..{to} loop
           execute format('create table t_%s (a boolean not null, b bigint primary key, c int not null, d text, e timestamptz)', n);
           execute format('insert into t_%s select true, n, n %% 7, ''row '' || n, now() from generate_series(1, 2000) n', n);
           execute format('create index on t_%s (c)', n);
           execute format('create index on t_%s (d)', n);
         end loop; end $$"
    )
}
