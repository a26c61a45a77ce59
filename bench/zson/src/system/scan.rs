//! Asking every document for its values.

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};

use super::load::{Form, Loaded};
use super::{Bench, Found, judge};
use crate::store::Store;
use crate::timing::{Timed, Work, in_turn};

/// The time of zson to that of jsonb lz4.
const TOASTED_MAX: f64 = 0.5;
const PLAIN_MAX: f64 = 1.1;
/// The same for several keys.
const SEVERAL_TOASTED_MAX: f64 = 1.2;
const SEVERAL_PLAIN_MAX: f64 = 3.0;
const JUDGED_BYTES_MIN: usize = 1 << 20;
/// Keys asked for in the query of several.
const KEYS: usize = 4;

/// What is asked for: the name on the page.
const WHAT: [&str; 6] = ["string", "beside", "nested", "path", "number", "4 keys"];
/// Where in [`WHAT`] several keys are.
const SEVERAL: usize = 5;
/// Bytes of a string, on average, from which another one is asked for as well.
const LONG_BYTES: usize = 2048;

/// Most documents TOAST-compressed, and the others.
#[derive(Default)]
struct ByStorage {
    toasted: Found,
    plain: Found,
}

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "`select sum(length(VALUE)) from t` over a table in shared buffers, one process, by the processor time of the backend: \
        jsonb lz4, then zson to it, round by round in turn. Values are the most frequent of their type in the corpus, of the first that are \
        equally frequent: *string* and *number*, `doc->>'key'`; *beside*, where that string has 2 KB or more on average, one that has less; *nested*, a string in an object, `doc->'key'->>'key'`, where there is one; \
        *path*, the same string by `doc#>>'{key,key}'`; *4 keys*, `->>` of four keys. `in TOAST`: the share of documents that the server \
        compresses as jsonb; from one half on the first line of each kind holds, below it the second. Corpora of less than 1 MiB are not judged.";
    let columns = [
        ("corpus", Unit::Text),
        ("in TOAST", Unit::Ratio),
        ("what", Unit::Text),
        ("jsonb lz4 ns/doc", Unit::Count),
        ("zson to lz4", Unit::Ratio),
        ("zson to pglz", Unit::Ratio),
        ("zstd:3 to lz4", Unit::Ratio),
        ("zson lz4 to lz4", Unit::Ratio),
    ];
    let mut table = Table::new("scan", "Sequential scan with ->>", about, &columns);
    let (mut single, mut several) = (ByStorage::default(), ByStorage::default());
    let (store, all) = bench.loaded()?;
    for loaded in all {
        for (what, sums) in asked(store, loaded)? {
            let timed = measure(bench, store, loaded, &sums)?;
            let by = if what == SEVERAL { &mut several } else { &mut single };
            let found = if loaded.toasted >= 0.5 { &mut by.toasted } else { &mut by.plain };
            if loaded.jsonb_bytes >= JUDGED_BYTES_MIN {
                for (found, (ours, _)) in found.iter_mut().zip(Form::OURS) {
                    found.push((
                        to(&timed, ours, 1).median(),
                        format!("{}, {}", loaded.staged.name, WHAT[what]),
                    ));
                }
            }
            let mut row: Vec<Value> = vec![
                loaded.staged.name.as_str().into(),
                loaded.toasted.into(),
                WHAT[what].into(),
                (timed[1].cpu.median() * 1e9 / loaded.documents.max(1) as f64).into(),
                to(&timed, Form::OURS[0].0, 1).spread(),
                to(&timed, Form::OURS[0].0, 0).spread(),
            ];
            row.extend(Form::OURS[1..].iter().map(|(ours, _)| to(&timed, *ours, 1).spread()));
            table.push(row);
        }
    }
    for (what, by, toasted_max, plain_max) in [
        ("->> of one value", single, TOASTED_MAX, PLAIN_MAX),
        ("->> of four keys", several, SEVERAL_TOASTED_MAX, SEVERAL_PLAIN_MAX),
    ] {
        for (how, found, limit) in
            [("TOAST-compressed", by.toasted, toasted_max), ("stored plain", by.plain, plain_max)]
        {
            let (found, met) = judge(found, limit, true);
            table.verdict(
                &format!("{what} to jsonb lz4, most documents {how}"),
                &format!("at most {limit:.1}"),
                found,
                met,
            );
        }
    }
    Ok(table)
}

/// Processor time of one form to that of another, round by round.
fn to(timed: &[Timed], form: usize, other: usize) -> Samples {
    timed[form].cpu.over(&timed[other].cpu)
}

/// Where in [`WHAT`] what is asked for is, and the values.
fn asked(store: &Store, loaded: &Loaded) -> Result<Vec<(usize, Vec<String>)>> {
    let table = &loaded.staged.table;
    let ranked = |of: &str, having: &str, limit: usize| -> Result<Vec<String>> {
        let printed = store.cluster().sql(&format!(
            "select quote_literal(key) from {table}, jsonb_each(doc) m(key, value) where {of}
            group by key having {having} order by count(*) desc, key limit {limit}"
        ))?;
        Ok(printed.lines().map(|key| format!("doc->>{key}")).collect())
    };
    let top = |of: &str, limit: usize| ranked(of, "true", limit);
    let nested = store.cluster().sql(&format!(
        "select quote_literal(m.key) || '->>' || quote_literal(n.key), quote_literal(array[m.key, n.key])
        from {table}, jsonb_each(doc) m(key, value),
          jsonb_each(case jsonb_typeof(m.value) when 'object' then m.value else '{{}}' end) n(key, value)
        where jsonb_typeof(n.value) = 'string'
        group by m.key, n.key order by count(*) desc, m.key, n.key limit 1"
    ))?;
    let nested = nested.lines().next().and_then(|line| line.split_once('|'));
    let (steps, path) = match nested {
        Some((steps, path)) => (vec![format!("doc->{steps}")], vec![format!("doc#>>{path}")]),
        None => (Vec::new(), Vec::new()),
    };
    let string = top("jsonb_typeof(value) = 'string'", 1)?;
    let is_long = match string.first() {
        Some(string) => format!("(select avg(length({string})) from {table}) >= {LONG_BYTES}"),
        None => "false".into(),
    };
    let is_short = format!("{is_long} and avg(length(value #>> '{{}}')) < {LONG_BYTES}");
    let beside = ranked("jsonb_typeof(value) = 'string'", &is_short, 1)?;
    let number = top("jsonb_typeof(value) = 'number'", 1)?;
    let all = [string, beside, steps, path, number, top("true", KEYS)?];
    Ok(all.into_iter().enumerate().filter(|(_, values)| !values.is_empty()).collect())
}

/// The query over a table.
pub(super) fn query(table: &str, values: &[String]) -> String {
    let sums: Vec<String> = values.iter().map(|value| format!("sum(length({value}))")).collect();
    format!("select {} from {table}", sums.join(", "))
}

/// What each form takes. The answers have to be the same.
fn measure(bench: &Bench, store: &Store, loaded: &Loaded, values: &[String]) -> Result<Vec<Timed>> {
    let works = Form::LIVE.map(|form| Work {
        setup: String::new(),
        sql: query(&form.table(&loaded.staged.name), values),
        repeat: loaded.repeats(bench.full),
    });
    let timed = in_turn(store.cluster(), &works, bench.rounds(3, 7))?;
    if timed.iter().any(|form| form.answer != timed[0].answer) {
        return Err(format!("{}: different answers to {values:?}", loaded.staged.name).into());
    }
    Ok(timed)
}
