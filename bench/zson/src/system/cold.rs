//! Scans of tables that are not in memory.

use pgshrink_bench_report::{Result, Table, Unit};

use super::load::Form;
use super::scan::query;
use super::small::Small;
use super::{Bench, Found, judge};
use crate::timing::{Timed, Work, once};

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "`select sum(length(doc->>'key')) from t` with every page coming from disk: before each measurement the server is restarted \
        and the files of its database are written back and dropped from the kernel's cache (posix_fadvise, DONTNEED); then \
        the session asks for one document, so that catalogs and dictionary are there. Shared buffers hold a fraction of \
        a table. Time that passed, zson to jsonb, round by round in turn; `read`: what the kernel read from disk for the \
        backend. `even at`: the disk, in 10^6 bytes per \
        second, on which zson takes as long as jsonb lz4, were reading all that counts beside processor time; slower ones favour \
        zson, empty where it computes no longer. A table that is larger than memory is read so from its beginning to its end, as what \
        remains of it in memory is what the next scan asks for last. Corpora are repeated until they have 48 MiB of jsonb.";
    let columns = [
        ("corpus", Unit::Text),
        ("codec", Unit::Text),
        ("jsonb pglz read", Unit::Bytes),
        ("jsonb lz4 read", Unit::Bytes),
        ("zson read", Unit::Bytes),
        ("jsonb lz4 ms", Unit::Ms),
        ("zson to pglz", Unit::Ratio),
        ("zson to lz4", Unit::Ratio),
        ("CPU, to lz4", Unit::Ratio),
        ("even at MB/s", Unit::Average),
    ];
    let mut table = Table::new("cold-scan", "Scan of a table that is not in memory", about, &columns);
    let small = &bench.cold()?;
    let mut found = Found::default();
    for (name, _) in &small.corpora {
        let timed = measure(small, name, bench.rounds(1, 5))?;
        for (codec, (ours, codec_name)) in Form::OURS.into_iter().enumerate() {
            let [to_pglz, to_lz4] = [0, 1].map(|jsonb| timed[ours].wall.over(&timed[jsonb].wall));
            found[codec].push((to_pglz.median(), format!("{name}, pglz")));
            found[codec].push((to_lz4.median(), format!("{name}, lz4")));
            table.row([
                name.as_str().into(),
                codec_name.into(),
                timed[0].read.median().into(),
                timed[1].read.median().into(),
                timed[ours].read.median().into(),
                (timed[1].wall.median() * 1e3).into(),
                to_pglz.spread(),
                to_lz4.spread(),
                timed[ours].cpu.over(&timed[1].cpu).spread(),
                even_rate(&timed[1], &timed[ours]).into(),
            ]);
        }
    }
    let (found, met) = judge(found, 1.0, true);
    table.verdict("->> scan to jsonb, table not in memory", "faster (1.0)", found, met);
    Ok(table)
}

/// 10^6 bytes per second of a disk on which what is read less makes up for what is computed more; not a number where
/// nothing is.
fn even_rate(jsonb: &Timed, zson: &Timed) -> f64 {
    let more_seconds = zson.cpu.median() - jsonb.cpu.median();
    let less_bytes = jsonb.read.median() - zson.read.median();
    if more_seconds > 0.0 { less_bytes / 1e6 / more_seconds } else { f64::NAN }
}

fn measure(small: &Small, name: &str, rounds: usize) -> Result<[Timed; Form::LIVE.len()]> {
    let cluster = small.store.cluster();
    let key = key(small, name)?;
    let mut timed: [Timed; Form::LIVE.len()] = Default::default();
    for round in 0..rounds {
        for at in (0..timed.len()).map(|at| (at + round) % Form::LIVE.len()) {
            let table = Form::LIVE[at].table(name);
            let sql = query(&table, &[format!("doc->>'{key}'")]);
            let setup = format!("select length(doc->>'{key}') from {table} where id = 1");
            small.forget()?;
            once(cluster, &Work { setup, sql, repeat: 1 }, &mut timed[at])?;
        }
    }
    if timed.iter().any(|form| form.answer != timed[0].answer) {
        return Err(format!("{name}: different answers").into());
    }
    Ok(timed)
}

/// The most frequent key at the top of a corpus' documents.
pub(super) fn key(small: &Small, name: &str) -> Result<String> {
    Ok(small.store.cluster().sql(&format!(
        "select key from {}, jsonb_object_keys(doc) key where id <= 1000
        group by key order by count(*) desc, key limit 1",
        Form::Pglz.table(name)
    ))?)
}
