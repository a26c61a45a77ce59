//! Codecs: what was predicted from samples, and what whole relations take.

use crate::Bench;
use crate::lab::{Lab, list, number, text};
use pgshrink_bench_report::{Result, Table, Unit, Value};
use pgshrink_bench_wire::pair::Pair;
use pgshrink_bench_wire::session::Session;
use pgshrink_wire::{Dialect, LinkConfig};
use serde_json::Value as Json;
use std::time::Duration;

/// Of the real size.
const ERROR_PERCENT_MAX: f64 = 5.0;
/// Of what is compressed: where little is left of it, a dictionary more or less is much of that, and nothing of the table.
const NEARLY: f64 = 0.005;
/// The default of every part.
const CHOICE: &str = "zstd:1";
/// Smaller files stay plain.
const BYTES_MIN: f64 = 256.0 * 1024.0;

/// Each table in a compressed tablespace, its documents as zson, its COPY text on the wire.
///
/// # Errors
/// Those of the server and of the program.
pub fn table(bench: &Bench) -> Result<Table> {
    let lab = bench.lab()?;
    let advice = lab.advice()?;
    let about = "zstd:1 everywhere, predicted from a sample of at most 32 MB of a table, and found. cfs: the table's own pages, without the maps, after `cfs_compress_relation` on a copy of the \
        database, as `cfs_segments` says. zson: `pg_total_relation_size` after the SQL of the finding was run on a copy. wire: the \
        whole answer to COPY TO STDOUT, carried by a gateway's link. Relations below 256 KiB are not judged: small files stay plain.";
    let columns = [
        ("what", Unit::Text),
        ("table", Unit::Text),
        ("now", Unit::Bytes),
        ("predicted", Unit::Bytes),
        ("found", Unit::Bytes),
        ("off", Unit::Percent),
        ("ratio", Unit::Ratio),
    ];
    let mut table = Table::new("codecs", "Codecs: predicted and found", about, &columns);
    for (what, lines) in
        [("cfs", cfs(lab, &advice)?), ("zson", zson(lab, &advice)?), ("wire", wire(lab, &advice)?)]
    {
        judge(&mut table, what, lines);
    }
    lab.drop_copy()?;
    Ok(table)
}

/// One comparison.
struct Line {
    table: String,
    now: f64,
    predicted: f64,
    found: f64,
}

fn judge(table: &mut Table, what: &str, lines: Vec<Line>) {
    let (mut judged, mut close, mut nearly, mut worst) = (0, 0, 0, (0.0f64, String::new()));
    for line in lines {
        let off = (line.predicted / line.found.max(1.0) - 1.0) * 100.0;
        if line.now >= BYTES_MIN {
            judged += 1;
            let is_close = off.abs() <= ERROR_PERCENT_MAX;
            close += usize::from(is_close);
            nearly += usize::from(!is_close && (line.predicted - line.found).abs() <= line.now * NEARLY);
            if off.abs() >= worst.0.abs() {
                worst = (off, line.table.clone());
            }
        }
        let mut row: Vec<Value> = vec![what.into(), line.table.as_str().into()];
        row.extend(
            [line.now, line.predicted, line.found, off, line.now / line.found.max(1.0)].map(Value::from),
        );
        table.push(row);
    }
    let found = format!(
        "{close} of {judged}, and {nearly} more within 0.5 % of what is now; {:+.2} % at worst ({})",
        worst.0, worst.1
    );
    table.verdict(
        &format!("{what}: predicted to found"),
        "within 5 % on every table",
        found,
        judged > 0 && close == judged,
    );
}

/// Tables with what a codec makes of them: the object's name and the figures.
fn codecs(advice: &Json) -> impl Iterator<Item = (&str, &Json)> {
    let tables = list(advice, "/codecs").iter().filter(|codecs| text(codecs, "/object/kind") == "table");
    tables.map(|codecs| (text(codecs, "/object/name"), codecs))
}

fn figure(codecs: &Json, path: &str) -> Option<f64> {
    let found = list(codecs, path).iter().find(|figure| text(figure, "/codec") == CHOICE)?;
    Some(number(found, "/bytes"))
}

fn cfs(lab: &Lab, advice: &Json) -> Result<Vec<Line>> {
    let copy = lab.copy()?;
    let judged: Vec<(&str, f64, f64)> = codecs(advice)
        .filter_map(|(name, codecs)| Some((name, number(codecs, "/bytes"), figure(codecs, "/pages")?)))
        .filter(|(_, bytes, _)| *bytes >= BYTES_MIN)
        .collect();
    for (name, _, _) in &judged {
        lab.sql(
            copy,
            &format!("select cfs_compress_relation('\"{name}\"', '{CHOICE}'); select cfs_wait('\"{name}\"')"),
        )?;
    }
    wait_for_rest(lab, copy)?;
    let mut lines = Vec::new();
    for (name, now, predicted) in judged {
        let found = lab.sql(
            copy,
            &format!(
                "select sum(disk_bytes) from cfs_places p cross join lateral cfs_segments(p.tablespace, p.file) s
                 where p.oid = '\"{name}\"'::regclass and s.fork = 'main'"
            ),
        )?;
        let found = found.parse().map_err(|_| format!("{name}: no size: {found}"))?;
        lines.push(Line { table: name.to_owned(), now, predicted, found });
    }
    Ok(lines)
}

/// Collectors train dictionaries in the background, store older pages anew with them, and pack files to which nobody writes: until nothing
/// has changed for a while.
fn wait_for_rest(lab: &Lab, database: &str) -> Result<()> {
    const PAUSE: Duration = Duration::from_secs(3);
    const LOOKS_MAX: u32 = 300;
    const SAME_LOOKS: u32 = 10;
    let (mut last, mut same) = (String::new(), 0);
    for _ in 0..LOOKS_MAX {
        std::thread::sleep(PAUSE);
        let found = lab.sql(
            database,
            "checkpoint; select count(*), sum(disk_bytes), sum(dictionaries) from cfs_places p
             cross join lateral cfs_segments(p.tablespace, p.file) s where s.form = 'compressed'",
        )?;
        same = if found == last { same + 1 } else { 0 };
        last = found;
        if same == SAME_LOOKS {
            return Ok(());
        }
    }
    Err("files still change after minutes".into())
}

fn zson(lab: &Lab, advice: &Json) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for finding in list(advice, "/findings").iter().filter(|finding| text(finding, "/rule") == "zson") {
        let (schema, name) = (text(finding, "/object/schema"), text(finding, "/object/name"));
        let copy = lab.copy()?;
        let statements: Vec<&str> = list(finding, "/sql").iter().filter_map(Json::as_str).collect();
        let now = lab.total_bytes(copy, schema, name)?;
        lab.sql(copy, &statements.join("\n"))?;
        lab.sql(copy, "vacuum")?;
        let saved = number(finding, "/bytes/disk/now") - number(finding, "/bytes/disk/after");
        let found = lab.total_bytes(copy, schema, name)?;
        lines.push(Line { table: name.to_owned(), now, predicted: now - saved, found });
    }
    Ok(lines)
}

fn wire(lab: &Lab, advice: &Json) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (name, codecs) in codecs(advice) {
        let Some(predicted) = figure(codecs, "/wire") else { continue };
        let mut session = Session::connect(lab.cluster().port(), &[("database", "loaded")])?;
        let answer = session.query(&format!("copy \"{name}\" to stdout"), usize::MAX)?;
        let cost = Pair::new(Dialect::Ack, CHOICE, LinkConfig::default())?.carry_answer(&answer)?;
        lines.push(Line { table: name.to_owned(), now: cost.raw as f64, predicted, found: cost.wire as f64 });
    }
    Ok(lines)
}
