//! Asking every document for its keys.

use pgshrink_bench_report::{Result, Table, Unit};

use super::load::{Form, Loaded};
use super::{Bench, Found, judge};
use crate::store::Store;
use crate::timing::{Timed, Work, in_turn};

/// The time of zson to that of jsonb lz4.
const TOASTED_MAX: f64 = 1.2;
const PLAIN_MAX: f64 = 3.0;
const JUDGED_BYTES_MIN: usize = 1 << 20;
/// Keys asked for in the query of several.
const KEYS: usize = 4;

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "`select sum(length(doc->>'key')) from t` over a table in shared buffers, one process, by the processor time of the backend: \
        jsonb lz4, then zson to it, round by round in turn; `4 keys` asks every document four times. The keys are the \
        most frequent ones of the corpus. `in TOAST`: the share of documents that the server compresses as jsonb; from one half \
        on the first line holds, below it the second. Corpora of less than 1 MiB are not judged.";
    let columns = [
        ("corpus", Unit::Text),
        ("in TOAST", Unit::Ratio),
        ("codec", Unit::Text),
        ("jsonb lz4 ns/doc", Unit::Count),
        ("zson to lz4", Unit::Ratio),
        ("to pglz", Unit::Ratio),
        ("4 keys, to lz4", Unit::Ratio),
        ("4 keys, to pglz", Unit::Ratio),
    ];
    let mut table = Table::new("scan", "Sequential scan with ->>", about, &columns);
    let (mut toasted, mut plain) = (Found::default(), Found::default());
    let (store, all) = bench.loaded()?;
    for loaded in all {
        let keys = keys(store, loaded)?;
        let one = measure(bench, store, loaded, &keys[..1])?;
        let several = measure(bench, store, loaded, &keys)?;
        for (codec, (ours, codec_name)) in Form::OURS.into_iter().enumerate() {
            let to = |timed: &[Timed], jsonb: usize| timed[ours].cpu.over(&timed[jsonb].cpu);
            if loaded.jsonb_bytes >= JUDGED_BYTES_MIN {
                let found = if loaded.toasted >= 0.5 { &mut toasted } else { &mut plain };
                let name = &loaded.staged.name;
                found[codec].push((to(&one, 1).median(), name.clone()));
                found[codec].push((to(&several, 1).median(), format!("{name}, {KEYS} keys")));
            }
            table.row([
                loaded.staged.name.as_str().into(),
                loaded.toasted.into(),
                codec_name.into(),
                (one[1].cpu.median() * 1e9 / loaded.documents.max(1) as f64).into(),
                to(&one, 1).spread(),
                to(&one, 0).median().into(),
                to(&several, 1).spread(),
                to(&several, 0).median().into(),
            ]);
        }
    }
    let (found, met) = judge(toasted, TOASTED_MAX, true);
    table.verdict("->> scan to jsonb lz4, most documents TOAST-compressed", "at most 1.2", found, met);
    let (found, met) = judge(plain, PLAIN_MAX, true);
    table.verdict("->> scan to jsonb lz4, most documents stored plain", "at most 3", found, met);
    Ok(table)
}

/// The most frequent keys at the top of a corpus' documents.
pub(super) fn keys(store: &Store, loaded: &Loaded) -> Result<Vec<String>> {
    let printed = store.cluster().sql(&format!(
        "select key from {}, jsonb_object_keys(doc) key group by key order by count(*) desc, key limit {KEYS}",
        loaded.staged.table
    ))?;
    Ok(printed.lines().map(str::to_owned).collect())
}

/// The query over a table.
pub(super) fn query(table: &str, keys: &[String]) -> String {
    let sums: Vec<String> =
        keys.iter().map(|key| format!("sum(length(doc->>'{}'))", key.replace('\'', "''"))).collect();
    format!("select {} from {table}", sums.join(", "))
}

/// What each form takes. The answers have to be the same.
fn measure(bench: &Bench, store: &Store, loaded: &Loaded, keys: &[String]) -> Result<Vec<Timed>> {
    let works = Form::LIVE.map(|form| Work {
        setup: String::new(),
        sql: query(&form.table(&loaded.staged.name), keys),
        repeat: loaded.repeats(bench.full),
    });
    let timed = in_turn(store.cluster(), &works, bench.rounds(3, 7))?;
    if timed.iter().any(|form| form.answer != timed[0].answer) {
        return Err(format!("{}: different answers", loaded.staged.name).into());
    }
    Ok(timed)
}
