//! pgbench: many small transactions, where compression has little to win and must not cost much.
//!
//! Runs have a fixed number of transactions and a fixed seed, so that all do the same and leave the same balances.

use super::link::{Connector, Used, Way};
use super::{COMPRESSION, SharedLink};
use crate::failure::Failure;
use crate::program;
use crate::progress::Progress;
use crate::stage::Stage;
use crate::step::{Report, Step};

const SCALE: &str = "4";
const CLIENTS: u32 = 4;
const TRANSACTIONS_PER_CLIENT: u32 = 1000;
/// The history's times differ from run to run; its order too.
const BALANCES: &str = "
    select md5(string_agg(line, ',' order by line)) from (
        select format('a%s:%s', aid, abalance) line from pgbench_accounts where abalance <> 0
        union all select format('t%s:%s', tid, tbalance) from pgbench_tellers
        union all select format('b%s:%s', bid, bbalance) from pgbench_branches
        union all select format('h%s:%s:%s:%s', tid, bid, aid, delta) from pgbench_history) lines";
const RESET: &str = "
    truncate pgbench_history;
    update pgbench_accounts set abalance = 0 where abalance <> 0;
    update pgbench_tellers set tbalance = 0;
    update pgbench_branches set bbalance = 0;
    vacuum pgbench_branches, pgbench_tellers, pgbench_accounts; checkpoint";

/// The standard TPC-B-like script.
pub(super) struct Pgbench {
    link: SharedLink,
}

/// What one run left.
struct Outcome {
    used: Used,
    transactions_per_second: f64,
    balances: String,
}

impl Pgbench {
    pub(super) fn new(link: SharedLink) -> Pgbench {
        Pgbench { link }
    }

    fn bench(&self, stage: &Stage, way: Way, port: u16) -> Result<Outcome, Failure> {
        let link = self.link.get(stage)?;
        stage.sql(RESET)?;
        let mut command = pgbench(stage, port);
        let per_client = TRANSACTIONS_PER_CLIENT.to_string();
        command.args(["-n", "-c", &CLIENTS.to_string(), "-j", "1", "-t", &per_client, "--random-seed=1"]);
        let (finished, used) = link.measure(way, || program::run(&mut command, None))?;
        let transactions_per_second = rate(&finished.output.text).ok_or_else(|| {
            Failure::with_advice("pgbench printed no rate; its output:", finished.output.text.clone())
        })?;
        Ok(Outcome { used, transactions_per_second, balances: stage.sql(BALANCES)? })
    }
}

impl Step for Pgbench {
    fn title(&self) -> &'static str {
        "pgbench"
    }

    fn phase_count(&self) -> u64 {
        4
    }

    fn run(&mut self, stage: &Stage, progress: &Progress, report: &mut Report) -> Result<(), Failure> {
        let link = self.link.get(stage)?;
        progress.phase("pgbench, filling its tables");
        program::run(pgbench(stage, stage.cluster.port()).args(["-i", "-q", "-s", SCALE]), None)?;

        progress.phase("pgbench, plain");
        let plain = self.bench(stage, Way::Plain, link.port(Way::Plain))?;
        progress.phase("pgbench, same hops, compression off");
        let uncompressing: Connector = link.connector(stage, "off")?;
        let off = self.bench(stage, Way::Connect, uncompressing.port())?;
        drop(uncompressing);
        progress.phase(&format!("pgbench, {COMPRESSION}"));
        let shrunk = self.bench(stage, Way::Connect, link.port(Way::Connect))?;

        let same = plain.balances == shrunk.balances && plain.balances == off.balances;
        report.rows.push(Used::row("pgbench", plain.used, shrunk.used, same));
        report.notes.push(format!(
            "pgbench (TPC-B-like, {CLIENTS} clients): {:.0} transactions/s straight to the server, {:.0} through both \
             hops with compression off, {:.0} with {COMPRESSION}.",
            plain.transactions_per_second, off.transactions_per_second, shrunk.transactions_per_second,
        ));
        Ok(())
    }
}

fn pgbench(stage: &Stage, port: u16) -> std::process::Command {
    let mut command = stage.cluster.command("pgbench");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres"]);
    command.env("PGPASSWORD", stage.password()).env("PGDATABASE", "postgres");
    command
}

/// Of the line `tps = 1234.567890 (without initial connection time)`.
fn rate(printed: &str) -> Option<f64> {
    let line = printed.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn the_rate_is_read_from_what_pgbench_prints() {
        let printed =
            "initial connection time = 9.1 ms\ntps = 1234.500000 (without initial connection time)\n";
        assert_eq!(rate(printed), Some(1234.5));
        assert_eq!(rate("number of transactions: 1\n"), None);
    }
}
