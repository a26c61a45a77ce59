//! Codecs: what was predicted from samples, and what whole relations take.

use crate::Bench;
use crate::lab::{Lab, list, number, text};
use pgshrink_bench_report::{Result, Table, Unit, Value};
use pgshrink_bench_wire::pair::Pair;
use pgshrink_bench_wire::session::Session;
use pgshrink_wire::{Dialect, LinkConfig};
use serde_json::Value as Json;

/// Of the real size.
const ERROR_PERCENT_MAX: f64 = 5.0;
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
    let about = "zstd:1 everywhere, predicted from a sample of at most 8 MB of a table, and found. cfs: the table's own file after `cfs_compress_relation` on a copy of the \
        database, as `cfs_relations` says. zson: `pg_total_relation_size` after the SQL of the finding was run on a copy. wire: the \
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
    let (mut judged, mut close, mut worst) = (0, 0, (0.0f64, String::new()));
    for line in lines {
        let off = (line.predicted / line.found.max(1.0) - 1.0) * 100.0;
        if line.now >= BYTES_MIN {
            judged += 1;
            close += usize::from(off.abs() <= ERROR_PERCENT_MAX);
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
    let found = format!("{close} of {judged}; {:+.2} % at worst ({})", worst.0, worst.1);
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
    let mut lines = Vec::new();
    lab.sql("postgres", "alter system set cfs.convert_rate = 0; select pg_reload_conf()")?;
    for (name, codecs) in codecs(advice) {
        let Some(predicted) = figure(codecs, "/pages") else { continue };
        if number(codecs, "/bytes") < BYTES_MIN {
            continue;
        }
        lab.sql(
            copy,
            &format!("select cfs_compress_relation('\"{name}\"', '{CHOICE}'); select cfs_wait('\"{name}\"')"),
        )?;
        lab.sql(copy, &format!("checkpoint; select cfs_gc_relation('\"{name}\"'); checkpoint"))?;
        let found = lab.sql(
            copy,
            &format!("select disk_bytes from cfs_relations where relation = '\"{name}\"'::regclass"),
        )?;
        let found = found.parse().map_err(|_| format!("{name}: no size: {found}"))?;
        lines.push(Line { table: name.to_owned(), now: number(codecs, "/bytes"), predicted, found });
    }
    Ok(lines)
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
