//! Transactions on documents that shared buffers cannot hold.

use std::fs;

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::{Cluster, TempDir, run};

use super::load::Form;
use super::small::Small;
use super::{Bench, Found, judge};

const CORPORA: [&str; 2] = ["cve_record", "deb_package"];
/// Sessions, on two cores with pgbench beside them.
const CLIENTS: &str = "4";

/// Of a round of a full run. Each session of a round loads the dictionary anew.
const ROUND_SECONDS: &str = "3";

/// What a transaction does to the table in `{table}`, whose ids end at `{last}`, with its key `{key}`.
pub(super) const SCRIPTS: [(&str, &str); 2] = [
    ("select", "\\set id random(1, {last})\nselect doc->>'{key}' from {table} where id = :id;\n"),
    (
        "update",
        "\\set id random(1, {last})\n\\set n random(1, 1000000)\n\
        update {table} set doc = doc || jsonb_build_object('touched', :n::int) where id = :id;\n",
    ),
];

/// TPS of each script to those of jsonb.
pub(super) const TPS_MIN: [f64; SCRIPTS.len()] = [1.0, 0.9];

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "pgbench with prepared statements, 4 clients, on a table `(id primary key, doc)` that is larger than shared buffers as jsonb: \
        *select* asks a random document for one key, *update* adds a member to one. fsync is on. What shared buffers lack \
        comes from the kernel's cache, which holds all tables: with a slow disk behind it the smaller table wins by more. \
        A round takes three seconds (one in a short run) and has new sessions. TPS of zson to that of jsonb, round by round in turn.";
    let columns = [
        ("corpus", Unit::Text),
        ("script", Unit::Text),
        ("codec", Unit::Text),
        ("jsonb pglz", Unit::Bytes),
        ("jsonb lz4", Unit::Bytes),
        ("zson", Unit::Bytes),
        ("jsonb lz4 TPS", Unit::PerSecond),
        ("zson to pglz", Unit::Ratio),
        ("zson to lz4", Unit::Ratio),
    ];
    let mut table = Table::new("pgbench", "Transactions", about, &columns);
    let small = bench.small()?;
    let mut found: [Found; SCRIPTS.len()] = Default::default();
    for (name, count) in small.corpora.iter().filter(|(name, _)| CORPORA.contains(&name.as_str())) {
        let mut sizes = Vec::new();
        for form in Form::LIVE {
            sizes.push(small.size(form, name)?);
        }
        for ((script, text), found) in SCRIPTS.into_iter().zip(&mut found) {
            let tps = measure(bench, 10, small, name, (*count, text))?;
            Measured { name, script, sizes: &sizes, tps }.tell(None, &mut table, found);
        }
    }
    table.about.push_str(&format!(" Shared buffers: {}.", small.buffers));
    for (((script, _), limit), found) in SCRIPTS.into_iter().zip(TPS_MIN).zip(found) {
        let (found, met) = judge(found, limit, false);
        let what = format!("pgbench {script}, TPS to jsonb, table larger than shared_buffers");
        table.verdict(&what, &format!("at least {limit:.1}"), found, met);
    }
    Ok(table)
}

/// A script on a corpus.
pub(super) struct Measured<'a> {
    pub(super) name: &'a str,
    pub(super) script: &'a str,
    /// Bytes of the table of each form.
    pub(super) sizes: &'a [f64],
    /// Of each form, round by round.
    pub(super) tps: [Samples; Form::LIVE.len()],
}

impl Measured<'_> {
    /// Adds a row for each of our codecs. A table that has columns for them is judge where the data was, and the limit of memory in
    /// bytes, or NaN.
    pub(super) fn tell(&self, data: Option<(&str, f64)>, table: &mut Table, found: &mut Found) {
        let Measured { name, script, sizes, tps } = self;
        for (codec, (ours, codec_name)) in Form::OURS.into_iter().enumerate() {
            let [to_pglz, to_lz4] = [0, 1].map(|jsonb| tps[ours].over(&tps[jsonb]));
            found[codec].push((to_pglz.median(), format!("{name} {script}, pglz")));
            found[codec].push((to_lz4.median(), format!("{name} {script}, lz4")));
            let mut row: Vec<Value> = vec![(*name).into()];
            row.extend(data.map(|(data, _)| data.into()));
            row.extend([(*script).into(), codec_name.into()]);
            row.extend([0, 1, ours].map(|form| Value::from(sizes[form])));
            row.extend(data.map(|(_, limit)| limit.into()));
            row.extend([tps[1].median().into(), to_pglz.spread(), to_lz4.spread()]);
            table.push(row);
        }
    }
}

/// TPS of each form, round by round.
pub(super) fn measure(
    bench: &Bench,
    full_rounds: usize,
    small: &Small,
    name: &str,
    (last, text): (u64, &str),
) -> Result<[Samples; Form::LIVE.len()]> {
    let rounds = bench.rounds(1, full_rounds);
    let seconds = if bench.full { ROUND_SECONDS } else { "1" };
    let cluster = small.store.cluster();
    let key = super::cold::key(small, name)?;
    let dir = TempDir::new()?;
    let mut tps: [Samples; Form::LIVE.len()] = Default::default();
    // Short and many, as a shared disk has bad seconds. The first round fills the caches.
    for round in 0..=rounds {
        for at in (0..tps.len()).map(|at| (at + round) % Form::LIVE.len()) {
            let table = Form::LIVE[at].table(name);
            let script = dir.path().join("script");
            let filled =
                text.replace("{last}", &last.to_string()).replace("{table}", &table).replace("{key}", &key);
            fs::write(&script, filled)?;
            let found = pgbench(cluster, &["-T", seconds, "-c", CLIENTS, "-f", &script.to_string_lossy()])?;
            if round > 0 {
                tps[at].push(found);
            }
            if text.contains("update") {
                // What updates leave behind, as autovacuum would.
                cluster.sql(&format!("vacuum {table}"))?;
            }
        }
    }
    Ok(tps)
}

fn pgbench(cluster: &Cluster, arguments: &[&str]) -> Result<f64> {
    let mut command = cluster.command("pgbench");
    let conninfo = cluster.conninfo_unix("postgres");
    let printed = run::output(command.args(["-n", "-M", "prepared"]).args(arguments).arg(conninfo))?;
    let line = printed.lines().find_map(|line| line.strip_prefix("tps ="));
    let tps = line.and_then(|rest| rest.trim().split(' ').next()?.parse().ok());
    tps.ok_or_else(|| format!("pgbench tells no TPS:\n{printed}").into())
}
