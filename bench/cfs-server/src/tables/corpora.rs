//! Real tables with indexes, loaded and then updated.

use std::time::Duration;

use pgshrink_bench_report::{Result, Table, Unit, Value};
use pgshrink_testkit::corpora;

use super::Bench;
use crate::side::{Kind, Side};

/// What the benches of pages build on the corpora.
const INDEXES: &str = include_str!("../../../cfs/src/sql/indexes.sql");
/// Corpora are updated in so many parts, with a checkpoint after each.
const PARTS: usize = 5;
const SETTLED: Duration = Duration::from_secs(12);
const SETTLES_MAX: usize = 10;

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "All corpora as tables with 30 indexes of all kinds: bytes on disk after loading, and after updating every third row, with a \
        checkpoint after each fifth of that and collection in the background, until sizes stay. A statement updates each row with what it has, so \
        plain tables and indexes grow as well; the ratio is to plain at the same moment. Sizes do not depend on the machine, so \
        there is one round.";
    let columns = [
        ("side", Unit::Text),
        ("loaded", Unit::Bytes),
        ("updated", Unit::Bytes),
        ("loaded, times smaller", Unit::Ratio),
        ("updated, times smaller", Unit::Ratio),
    ];
    let mut table = Table::new("corpora", "Real tables", about, &columns);
    let settings = [("shared_buffers", "512MB"), ("maintenance_work_mem", "128MB"), ("cfs.gc_period", "1s")];
    // The stock servers keep a setting of a library that they have not loaded, and do nothing with it.
    let (sides, left_out) = match bench.full {
        true => Side::all(8 << 30, &settings)?,
        false => {
            let sides = [Kind::Plain, Kind::Ours].map(|kind| Side::start(kind, 0, &settings));
            let left_out = " btrfs is left out: this is a quick look.".to_owned();
            (sides.into_iter().collect::<Result<Vec<_>>>()?, left_out)
        }
    };
    table.about.push_str(&left_out);
    let corpora = corpora::all()?;
    let mut found = Vec::new();
    for side in &sides {
        for corpus in &corpora {
            corpus.load(&side.cluster)?;
        }
        side.cluster.sql(INDEXES)?;
        side.cluster.sql("vacuum analyze")?;
        let loaded = settled(side)?;
        for part in 0..PARTS {
            for corpus in &corpora {
                update(side, &corpus.name, part)?;
            }
            side.cluster.sql("checkpoint")?;
        }
        side.cluster.sql("vacuum")?;
        found.push([loaded, settled(side)?]);
    }
    for (side, [loaded, updated]) in sides.iter().zip(&found) {
        let smaller = |at: usize, bytes: f64| match side.name {
            "plain" => Value::None,
            _ => (found[0][at] / bytes).into(),
        };
        let smaller = [smaller(0, *loaded), smaller(1, *updated)];
        let [of_loaded, of_updated] = smaller;
        table.row([side.name.into(), (*loaded).into(), (*updated).into(), of_loaded, of_updated]);
    }
    for (at, what, line) in [(0, "after loading", 4.8), (1, "after updating a third", 3.6)] {
        let ratio = found[0][at] / found[1][at];
        table.verdict(
            &format!("times smaller {what}"),
            &format!("at least {line}"),
            format!("{ratio:.2}"),
            ratio >= line,
        );
    }
    Ok(table)
}

/// Updates the rows of a part, of which all parts are a third of the table, with what they have.
fn update(side: &Side, table: &str, part: usize) -> Result<()> {
    let column = side.cluster.sql(&format!(
        "select quote_ident(attname) from pg_attribute where attrelid = '\"{table}\"'::regclass and attnum = 1"
    ))?;
    side.cluster.sql(&format!(
        "update \"{table}\" set {column} = {column} where (hashtid(ctid) & 2147483647) % {} = {part}",
        3 * PARTS
    ))?;
    Ok(())
}

/// Bytes on disk when they have stopped to change.
fn settled(side: &Side) -> Result<f64> {
    let mut bytes = side.bytes_on_disk()?;
    if side.name != "ours" {
        return Ok(bytes);
    }
    let mut still = 0;
    for _ in 0..SETTLES_MAX {
        std::thread::sleep(SETTLED);
        let now = side.bytes_on_disk()?;
        still = if (now / bytes - 1.0).abs() < 0.005 { still + 1 } else { 0 };
        bytes = now;
        // Files are packed when they have rested.
        if still == 2 {
            break;
        }
    }
    Ok(bytes)
}
