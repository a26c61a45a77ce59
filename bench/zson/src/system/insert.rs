//! Taking documents in.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::TempDir;
use pgshrink_testkit::run::Owner;

use super::load::{Form, Loaded};
use super::{Bench, Found, judge};
use crate::store::Store;
use crate::timing::{Timed, Work, in_turn};

/// Where in [`Form::LIVE`] zson zstd:3 is.
const ZSTD: usize = 3;
/// The rate of zson to that of jsonb.
const RATE_MIN: f64 = 0.8;
const HOW: [&str; 2] = ["INSERT ... SELECT", "COPY"];
/// Fewer bytes are inserted faster than clocks tick.
const JUDGED_BYTES_MIN: usize = 1 << 20;

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "Bulk loading into a logged table without indexes: `INSERT ... SELECT` from an unlogged table of uncompressed jsonb, and \
        server-side `COPY` of text; fsync is on. The rate of zson, with its trained dictionary, to that of jsonb, round by round in turn: by the \
        time that passed, and by the processor time of the backend alone, which leaves out that smaller rows are \
        less to write. The absolute rate is of jsonb pglz in 10^6 bytes of jsonb per processor second. Corpora of less than 1 MiB are not judged.";
    let columns = [
        ("corpus", Unit::Text),
        ("how", Unit::Text),
        ("codec", Unit::Text),
        ("jsonb pglz MB/s", Unit::MegabytesPerSecond),
        ("to pglz", Unit::Ratio),
        ("to lz4", Unit::Ratio),
        ("CPU, to pglz", Unit::Ratio),
        ("CPU, to lz4", Unit::Ratio),
        ("to zson zstd:3", Unit::Ratio),
        ("CPU, to zson zstd:3", Unit::Ratio),
    ];
    let mut table = Table::new("insert", "Bulk loading", about, &columns);
    // By how, by time or processor time.
    let mut found: [[Found; 2]; 2] = Default::default();
    let mut found_to_zstd: [[Found; 2]; 2] = Default::default();
    let (store, all) = bench.loaded()?;
    for loaded in all {
        for (at, how) in HOW.iter().enumerate() {
            let text = if at == 1 { Some(Text::write(store, loaded)?) } else { None };
            let timed = measure(bench, store, loaded, text.as_ref())?;
            for (codec, (ours, codec_name)) in Form::OURS.into_iter().enumerate() {
                let wall = [0, 1].map(|jsonb| timed[jsonb].wall.over(&timed[ours].wall));
                let cpu = [0, 1].map(|jsonb| timed[jsonb].cpu.over(&timed[ours].cpu));
                let to_zstd =
                    [timed[ZSTD].wall.over(&timed[ours].wall), timed[ZSTD].cpu.over(&timed[ours].cpu)];
                if loaded.jsonb_bytes >= JUDGED_BYTES_MIN {
                    for (found, ratios) in found[at].iter_mut().zip([&wall, &cpu]) {
                        let worse = ratios[0].median().min(ratios[1].median());
                        found[codec].push((worse, loaded.staged.name.clone()));
                    }
                    for (found, ratio) in found_to_zstd[at].iter_mut().zip(&to_zstd) {
                        found[codec].push((ratio.median(), loaded.staged.name.clone()));
                    }
                }
                let mut row: Vec<Value> = vec![
                    loaded.staged.name.as_str().into(),
                    (*how).into(),
                    codec_name.into(),
                    (loaded.jsonb_bytes as f64 / 1e6 / timed[0].cpu.median()).into(),
                ];
                row.extend(wall.iter().chain(&cpu).chain(&to_zstd).map(Samples::spread));
                table.push(row);
            }
        }
    }
    for (at, how) in HOW.iter().enumerate() {
        for (to, limit, found) in
            [("the faster jsonb", RATE_MIN, &mut found), ("zson zstd:3", 1.0, &mut found_to_zstd)]
        {
            for (by, found) in ["time", "processor time"].iter().zip(std::mem::take(&mut found[at])) {
                let (found, met) = judge(found, limit, false);
                table.verdict(
                    &format!("{how}: rate to {to} by {by}"),
                    &format!("at least {limit:.1}"),
                    found,
                    met,
                );
            }
        }
    }
    Ok(table)
}

/// A file that the server can read.
struct Text {
    path: String,
    _dir: TempDir,
}

impl Text {
    fn write(store: &Store, loaded: &Loaded) -> Result<Text> {
        let dir = TempDir::owned_by(&Owner::find()?)?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        let path = dir.path().join("documents").to_string_lossy().into_owned();
        store.cluster().sql(&format!("copy {} to '{path}'", loaded.staged.table))?;
        Ok(Text { path, _dir: dir })
    }
}

fn measure(bench: &Bench, store: &Store, loaded: &Loaded, text: Option<&Text>) -> Result<Vec<Timed>> {
    let name = &loaded.staged.name;
    let mut works = Vec::new();
    for form in Form::LIVE {
        let table = format!("into_{}", form.table(name));
        store.cluster().sql(&format!("create table {table} ({})", form.column(name)))?;
        let sql = match text {
            Some(text) => format!("copy {table} from '{}'", text.path),
            None => format!("insert into {table} select doc from {}", loaded.staged.table),
        };
        let repeat = (loaded.repeats(bench.full) / 4).max(1);
        works.push(Work { setup: format!("truncate {table}; checkpoint"), sql, repeat });
    }
    let timed = in_turn(store.cluster(), &works, bench.rounds(3, 5))?;
    for form in Form::LIVE {
        store.cluster().sql(&format!("drop table into_{}", form.table(name)))?;
    }
    Ok(timed)
}
