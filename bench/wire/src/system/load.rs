//! What clients do: pgbench, and psql that copies.

use std::process::{Command, Stdio};
use std::time::Instant;

use pgshrink_bench_report::Result;
use pgshrink_testkit::{Cluster, run};

/// A server with pgbench's tables at this scale, for at most this many connections.
pub fn pgbench_server(scale: u32, connections_max: u32) -> Result<Cluster> {
    pgbench_server_with(scale, connections_max, &[])
}

/// The same with more settings.
pub fn pgbench_server_with(scale: u32, connections_max: u32, more: &[(&str, &str)]) -> Result<Cluster> {
    let mut builder = Cluster::builder()
        .conf("shared_buffers", "256MB")
        .conf("max_connections", connections_max)
        .conf("autovacuum", "off")
        .conf("checkpoint_timeout", "1h")
        .conf("max_wal_size", "8GB");
    for (name, value) in more {
        builder = builder.conf(name, value);
    }
    let cluster = builder.start()?;
    let mut command = cluster.command("pgbench");
    run::output(command.args(["-i", "-q", "-s", &scale.to_string()]).arg(cluster.conninfo_unix("postgres")))?;
    Ok(cluster)
}

/// What a run of pgbench reports.
#[derive(Debug, Clone, Copy)]
pub struct Pgbench {
    /// Transactions per second, without the time to connect.
    pub tps: f64,
    /// Transactions.
    pub transactions: f64,
}

/// pgbench through `port` of 127.0.0.1.
pub fn pgbench(cluster: &Cluster, port: u16, arguments: &[&str]) -> Result<Pgbench> {
    let mut command = cluster.command("pgbench");
    let conninfo = cluster.conninfo_at("127.0.0.1", port, "postgres") + " sslmode=disable";
    let printed = run::output(command.arg("-n").args(arguments).arg(conninfo))?;
    let figure = |label: &str| -> Result<f64> {
        let line = printed.lines().find_map(|line| line.strip_prefix(label));
        let word = line.and_then(|rest| rest.trim().split([' ', '/']).next()?.parse().ok());
        word.ok_or_else(|| format!("pgbench does not report `{label}`:\n{printed}").into())
    };
    Ok(Pgbench { tps: figure("tps =")?, transactions: figure("number of transactions actually processed:")? })
}

/// psql that runs `sql` at `host` and `port`, throws the rows away and tells the time; for [`seconds_told_by`].
pub fn psql(cluster: &Cluster, host: &str, port: u16, sql: &str) -> Command {
    let psql = cluster.psql().at(host, port).set("sslmode", "disable");
    psql.arg("-o").arg("/dev/null").arg("-c").arg("\\timing on").arg("-c").arg(sql).command()
}

/// Seconds that psql counted for its statement: programs starting and sessions beginning are not what is measured.
pub fn seconds_told_by(psql: &mut Command) -> Result<f64> {
    told_seconds(&run::output(psql)?)
}

/// The same from what psql printed.
pub fn told_seconds(printed: &str) -> Result<f64> {
    let ms =
        printed.lines().find_map(|line| line.strip_prefix("Time: ")?.split(' ').next()?.parse::<f64>().ok());
    Ok(ms.ok_or_else(|| format!("psql tells no time: {printed}"))? / 1000.0)
}

/// Wall seconds of `first | second | third`, whose output nobody reads.
pub fn seconds_of_pipe(first: &mut Command, second: &mut Command, third: &mut Command) -> Result<f64> {
    let began = Instant::now();
    let mut one = first.stdout(Stdio::piped()).spawn()?;
    let mut two = second.stdin(one.stdout.take().ok_or("no pipe")?).stdout(Stdio::piped()).spawn()?;
    let mut three = third.stdin(two.stdout.take().ok_or("no pipe")?).stdout(Stdio::null()).spawn()?;
    let ended = [one.wait()?, two.wait()?, three.wait()?];
    if let Some(status) = ended.iter().find(|status| !status.success()) {
        return Err(format!("a part of the pipe ended with {status}").into());
    }
    Ok(began.elapsed().as_secs_f64())
}

/// The order of `count` variants in a round: each is first as often as the others.
pub fn order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |at| (at + round) % count)
}
