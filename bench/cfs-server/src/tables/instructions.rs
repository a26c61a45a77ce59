//! Instructions that the library adds where nothing is compressed.

use std::fs;
use std::process::Stdio;

use pgshrink_bench_report::{Result, Samples, Table, Unit};
use pgshrink_testkit::run;
use pgshrink_testkit::{Stop, TempDir};

use super::Bench;
use crate::rounds::{Line, judge};
use crate::side::{Kind, Side};

/// Where a tool of valgrind says how many instructions it has seen.
const COUNTED: &str = " refs:";
const PLAIN: [&str; 2] = ["-c", "shared_preload_libraries="];
const LOADED: [&str; 2] = ["-c", "shared_preload_libraries=cfs"];

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let (scale, count) = bench.pick((2, 500), (10, 1000));
    let about = format!(
        "A server alone (`postgres --single`) under valgrind's cachegrind, with the library and without, with the same data: \
        pgbench at scale {scale}, shared buffers of 1 MB, so that most pages of each transaction are read by a hooked call. *-S* and *tpcb-like* \
        are pgbench's transactions by `PREPARE` and `EXECUTE`. Instructions of user space only, of one transaction: what {count} more transactions \
        of the same kind add. The kernel's would make the ratios smaller."
    );
    let columns = [
        ("what", Unit::Text),
        ("plain", Unit::Average),
        ("library loaded", Unit::Average),
        ("library loaded to plain", Unit::Ratio),
    ];
    let name = "Instructions of the library, nothing compressed";
    let mut table = Table::new("instructions", name, &about, &columns);
    let side = Side::start(Kind::Plain, 0, &[])?;
    // Each run has a copy of the data directory, and a tablespace's files are not in it.
    side.cluster.sql("alter database postgres reset default_tablespace")?;
    side.pgbench_tables(scale)?;
    side.cluster.sql("vacuum analyze; checkpoint")?;
    side.cluster.stop(Stop::Fast)?;
    for (what, transaction) in [("-S", SELECT), ("tpcb-like", TPCB)] {
        let of = |library: &[&str; 2]| -> Result<f64> {
            let few = instructions(&side, library, &script(scale, count / 2, transaction))?;
            let more = instructions(&side, library, &script(scale, count / 2 + count, transaction))?;
            Ok((more - few) / f64::from(count))
        };
        let mut found: [Samples; 2] = Default::default();
        for _ in 0..bench.pick(1, 3) {
            found[0].push(of(&PLAIN)?);
            found[1].push(of(&LOADED)?);
        }
        let ratio = found[1].over(&found[0]);
        let [plain, loaded] = &found;
        table.row([what.into(), plain.median().into(), loaded.median().into(), ratio.spread()]);
        judge(&mut table, &format!("{what}: instructions per transaction"), &ratio, Line::AtMost(1.005));
    }
    Ok(table)
}

/// Statements of a transaction; `{a}`, `{t}` and `{b}` are an account, a teller and a branch.
type Transaction = &'static [&'static str];

const PREPARED: &str = "\
prepare s(int) as select abalance from pgbench_accounts where aid = $1
prepare a(int) as update pgbench_accounts set abalance = abalance + 5 where aid = $1
prepare t(int) as update pgbench_tellers set tbalance = tbalance + 5 where tid = $1
prepare b(int) as update pgbench_branches set bbalance = bbalance + 5 where bid = $1
prepare h(int, int, int) as insert into pgbench_history (tid, bid, aid, delta, mtime) values ($1, $2, $3, 5, current_timestamp)
";
const SELECT: Transaction = &["execute s({a})"];
const TPCB: Transaction = &[
    "begin",
    "execute a({a})",
    "execute s({a})",
    "execute t({t})",
    "execute b({b})",
    "execute h({t}, {b}, {a})",
    "end",
];

/// So many transactions, always the same ones.
fn script(scale: u32, count: u32, transaction: Transaction) -> String {
    let mut text = PREPARED.to_owned();
    let mut state = 12_345_u32;
    for _ in 0..count {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345) % (1 << 31);
        let of = |count: u32| (state % (scale * count) + 1).to_string();
        for statement in transaction {
            let filled = statement.replace("{a}", &of(100_000)).replace("{t}", &of(10));
            text.push_str(&filled.replace("{b}", &of(1)));
            text.push('\n');
        }
    }
    text
}

/// Instructions of a server alone that runs a script on a copy of the data.
fn instructions(side: &Side, library: &[&str; 2], script: &str) -> Result<f64> {
    let (owner, data) = (side.cluster.owner(), side.cluster.data_dir());
    let home = TempDir::owned_by(owner)?;
    let copy = home.path().join("data");
    run::output(owner.command("cp").arg("-a").arg(&data).arg(&copy))?;
    let statements = home.path().join("statements");
    fs::write(&statements, script)?;
    let mut command = owner.command("valgrind");
    command
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(side.cluster.server().program("postgres"))
        .args(["--single", "-c", "shared_buffers=1MB", "-c", "fsync=off"])
        .args(library)
        .arg("-D")
        .arg(&copy)
        .arg("postgres")
        .stdin(fs::File::open(&statements)?)
        .stdout(Stdio::null());
    let told = command.output().map_err(|error| format!("valgrind: {error}; apt-get install valgrind"))?;
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    let number =
        told.lines().find_map(|line| line.split_once(COUNTED)).map(|(_, rest)| rest.replace(',', ""));
    let number = number.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| format!("valgrind did not count:\n{told}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_the_same_each_time_and_longer_ones_begin_with_shorter_ones() {
        let (short, long) = (script(2, 3, TPCB), script(2, 5, TPCB));
        assert!(long.starts_with(&short) && long.len() > short.len());
        assert!(!long.contains('{'));
    }
}
