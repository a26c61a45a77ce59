//! Advice on the order of columns, beside postgres_dba's report of alignment padding.

use crate::Bench;
use crate::lab::{list, number, text};
use pgshrink_bench_report::{Result, Table, Unit, Value};
use serde_json::Value as Json;

/// The folder of a checkout of postgres_dba.
const VARIABLE: &str = "PGSHRINK_POSTGRES_DBA";

/// Both reports on the same tables, and what the server says after the columns were reordered.
///
/// # Errors
/// Those of the server and of the program; when there is no postgres_dba.
pub fn table(bench: &Bench) -> Result<Table> {
    let lab = bench.lab()?;
    let about = format!(
        "Bytes that another order of columns saves: as postgres_dba's `p1_alignment_padding.sql` says, as `pgshrink advise` predicts (rule `column_order` alone), and \
        as found when its order is used (a new table, vacuumed). `theirs, found`: the same with the order that postgres_dba suggests. Tables for which either of them says \
        something. {VARIABLE} names a checkout of postgres_dba; without it, its columns are empty."
    );
    let columns = [
        ("table", Unit::Text),
        ("size", Unit::Bytes),
        ("theirs", Unit::Text),
        ("theirs, found", Unit::Bytes),
        ("ours", Unit::Bytes),
        ("ours, found", Unit::Bytes),
    ];
    let mut table = Table::new("alignment-report", "Order of columns, beside postgres_dba", &about, &columns);
    let advice = lab.advice()?;
    let theirs = theirs(bench)?;
    let ours = |name: &str| {
        list(&advice, "/findings")
            .iter()
            .find(|finding| text(finding, "/rule") == "column_order" && text(finding, "/object/name") == name)
    };
    let names = lab.sql("loaded", "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' order by 1")?;
    let (mut wrong, mut exaggerated, mut missed, mut judged) = (0, 0, 0, 0);
    for name in names.lines() {
        let (their, our) = (theirs.iter().find(|line| line.table == name), ours(name));
        if their.is_none_or(|line| line.wasted.is_empty()) && our.is_none() {
            continue;
        }
        let now = lab.total_bytes("loaded", "public", name)?;
        let saved_by = |order: &[&str]| -> Result<f64> { Ok(now - reordered(bench, name, order)?) };
        let their_found = match their.filter(|line| !line.order.is_empty()) {
            Some(line) => Some(saved_by(&line.order.split(", ").collect::<Vec<_>>())?),
            None => None,
        };
        let our_found = our.map(|finding| followed(bench, finding, now)).transpose()?;
        match their_found {
            Some(found) => {
                judged += 1;
                wrong += usize::from(found <= 0.0);
                let said = their.map_or(0.0, |line| bytes_of(&line.wasted));
                exaggerated += usize::from(found > 0.0 && said > 2.0 * found);
            }
            None => missed += usize::from(our_found.is_some_and(|found| found > 0.0)),
        }
        let predicted =
            our.map(|finding| number(finding, "/bytes/disk/now") - number(finding, "/bytes/disk/after"));
        let cell = |value: Option<f64>| value.map_or(Value::None, Value::from);
        table.push(vec![
            name.into(),
            now.into(),
            their.map_or("", |line| line.wasted.as_str()).into(),
            cell(their_found),
            cell(predicted),
            cell(our_found),
        ]);
    }
    let found = format!(
        "of {judged} orders that postgres_dba suggests {wrong} save nothing or cost space, and {exaggerated} save less than half of what \
         it says; it misses {missed} tables where another order saves space"
    );
    table.verdict("where postgres_dba is wrong", "shown", found, true);
    Ok(table)
}

/// The bytes of `~1597 kB (9.09%)`: as `pg_size_pretty` prints them.
fn bytes_of(wasted: &str) -> f64 {
    let mut words = wasted.trim_start_matches('~').split(' ');
    let number = words.next().and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    let unit = match words.next() {
        Some("kB") => 10,
        Some("MB") => 20,
        Some("GB") => 30,
        _ => 0,
    };
    number * f64::from(1u32 << unit)
}

/// A line of postgres_dba's report.
struct Line {
    table: String,
    wasted: String,
    order: String,
}

fn theirs(bench: &Bench) -> Result<Vec<Line>> {
    let Some(folder) = std::env::var_os(VARIABLE) else { return Ok(Vec::new()) };
    let path = std::path::Path::new(&folder).join("sql/p1_alignment_padding.sql");
    let sql = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    // Fields and records are told apart by bytes that no name has: the suggestion has line breaks.
    let psql = bench.lab()?.cluster().psql().database("loaded").arg("-F\u{1}").arg("-R\u{2}");
    let printed = psql.sql(&sql)?;
    let line = |record: &str| {
        let fields: Vec<&str> = record.split('\u{1}').collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or_default().replace('\n', ", ");
        Line { table: field(0), wasted: field(3), order: field(4) }
    };
    Ok(printed.split('\u{2}').map(line).collect())
}

/// Bytes of a table whose columns are in this order.
fn reordered(bench: &Bench, name: &str, order: &[&str]) -> Result<f64> {
    let lab = bench.lab()?;
    let copy = lab.copy()?;
    let columns: Vec<String> = order.iter().map(|column| format!("\"{}\"", column.trim())).collect();
    let columns = columns.join(", ");
    lab.sql(
        copy,
        &format!(
            "create table reordered as select {columns} from \"{name}\" with no data; insert into reordered select {columns} from \"{name}\";
             vacuum reordered"
        ),
    )?;
    // Indexes are as they were.
    let indexes = lab.sql(copy, &format!("select pg_indexes_size('\"{name}\"')"))?.parse::<f64>()?;
    Ok(lab.total_bytes(copy, "public", "reordered")? + indexes)
}

/// Bytes that a finding's own SQL saves.
fn followed(bench: &Bench, finding: &Json, now: f64) -> Result<f64> {
    let lab = bench.lab()?;
    let copy = lab.copy()?;
    let statements: Vec<&str> = list(finding, "/sql").iter().filter_map(Json::as_str).collect();
    lab.sql(copy, &statements.join("\n"))?;
    lab.sql(copy, "vacuum")?;
    Ok(now - lab.total_bytes(copy, text(finding, "/object/schema"), text(finding, "/object/name"))?)
}
