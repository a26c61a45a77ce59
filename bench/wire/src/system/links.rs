//! COPY over a link of a chosen bandwidth.

use std::process::Command;

use pgshrink_bench_report::{Result, Samples, Table, Unit, Value};
use pgshrink_testkit::netns::{Link, LinkShape};
use pgshrink_testkit::{Cluster, corpora, run};

use super::Bench;
use super::load::{self, order};
use super::product::Hop;
use crate::TIMED_CORPORA;
use crate::session::Session;
use crate::source::Source;

const ALGORITHMS: [&str; 3] = ["off", "zstd:1", "lz4:1"];
/// Of what the ratio promises.
const SHARE_MIN: f64 = 0.9;

/// A gateway on this side of a link and a connector behind it.
struct Way {
    _gateway: Hop,
    connector: Hop,
}

/// Rounds of one corpus.
#[derive(Default)]
struct Rounds {
    /// Wall seconds by algorithm.
    seconds: [Samples; 3],
    /// Bytes on the link towards the client, its own headers included, by algorithm.
    carried: [u64; 3],
    /// Wall seconds of `COPY | zstd -1 | zstd -d` without a link.
    pipe: Samples,
}

pub(super) fn slow(bench: &Bench) -> Result<Table> {
    let about = "COPY OUT by psql behind a link of 16 * 10^6 bytes a second (network namespace, veth, tbf), connector on its \
        side and gateway on the server's. Ratio is bytes on the link off to on, its packet headers included. Speed-up is \
        time off to time on, round by round in turn.";
    let columns = [
        ("corpus", Unit::Text),
        ("text", Unit::Bytes),
        ("off", Unit::MegabytesPerSecond),
        ("zstd:1", Unit::MegabytesPerSecond),
        ("lz4:1", Unit::MegabytesPerSecond),
        ("ratio zstd:1", Unit::Ratio),
        ("speed-up zstd:1", Unit::Ratio),
        ("of the ratio", Unit::Ratio),
        ("ratio lz4:1", Unit::Ratio),
        ("speed-up lz4:1", Unit::Ratio),
        ("of the ratio", Unit::Ratio),
    ];
    let mut table = Table::new("link-16", "COPY over 16 MB/s", about, &columns);
    let names: &[&str] = if bench.full { &TIMED_CORPORA } else { &["flights", "deb_package"] };
    let mut worst = [(f64::MAX, String::new()), (f64::MAX, String::new())];
    each(bench, 16_000_000, names, bench.rounds(2, 5), |name, text, rounds| {
        let mut cells: Vec<Value> = vec![name.into(), text.into()];
        cells.extend(rates(text, rounds));
        for on in [1, 2] {
            let ratio = rounds.carried[0] as f64 / rounds.carried[on] as f64;
            let speed_up = rounds.seconds[0].over(&rounds.seconds[on]);
            let share = speed_up.median() / ratio;
            if share < worst[on - 1].0 {
                worst[on - 1] = (share, name.to_owned());
            }
            cells.extend([ratio.into(), speed_up.spread(), share.into()]);
        }
        table.push(cells);
        Ok(())
    })?;
    for (algorithm, (share, name)) in ALGORITHMS[1..].iter().zip(worst) {
        table.verdict(
            &format!("COPY through a 16 MB/s link, {algorithm}: speed-up"),
            &format!("at least {SHARE_MIN} x ratio"),
            format!("{share:.3} x ratio at worst ({name})"),
            share >= SHARE_MIN,
        );
    }
    Ok(table)
}

pub(super) fn fast(bench: &Bench) -> Result<Table> {
    let about = "As over 16 MB/s, with 125 * 10^6 bytes a second (a gigabit). The line is the smaller of 0.9 x ratio x link \
        and 0.9 x what `psql COPY | zstd -1 | zstd -d` reaches without any link in the same rounds: on few cores the \
        processor is the limit, and both ends share this one.";
    let columns = [
        ("corpus", Unit::Text),
        ("text", Unit::Bytes),
        ("off", Unit::MegabytesPerSecond),
        ("zstd:1", Unit::MegabytesPerSecond),
        ("lz4:1", Unit::MegabytesPerSecond),
        ("pipe of zstd", Unit::MegabytesPerSecond),
        ("ratio zstd:1", Unit::Ratio),
        ("line", Unit::MegabytesPerSecond),
        ("zstd:1 to line", Unit::Ratio),
    ];
    let mut table = Table::new("link-125", "COPY over 125 MB/s", about, &columns);
    let names: &[&str] = if bench.full { &TIMED_CORPORA } else { &["deb_package", "stock_price"] };
    let mut worst = (f64::MAX, String::new());
    each(bench, 125_000_000, names, bench.rounds(3, 9), |name, text, rounds| {
        let ratio = rounds.carried[0] as f64 / rounds.carried[1] as f64;
        let megabytes = text as f64 / 1e6;
        let line = SHARE_MIN * (ratio * 125.0).min(megabytes / rounds.pipe.median());
        let reached = megabytes / rounds.seconds[1].median() / line;
        if reached < worst.0 {
            worst = (reached, name.to_owned());
        }
        let mut cells: Vec<Value> = vec![name.into(), text.into()];
        cells.extend(rates(text, rounds));
        cells.extend([(megabytes / rounds.pipe.median()).into(), ratio.into(), line.into(), reached.into()]);
        table.push(cells);
        Ok(())
    })?;
    table.verdict(
        "COPY through a 125 MB/s link at zstd:1",
        "at least the smaller of 0.9 x ratio x link and 0.9 x `COPY | zstd -1 | zstd -d`",
        format!("{:.3} of that at worst ({})", worst.0, worst.1),
        worst.0 >= 1.0,
    );
    Ok(table)
}

fn rates(text: u64, rounds: &Rounds) -> Vec<Value> {
    rounds.seconds.iter().map(|samples| Value::from(text as f64 / 1e6 / samples.median())).collect()
}

/// Runs all rounds of each corpus over one link.
fn each(
    bench: &Bench,
    bytes_per_second: u64,
    names: &[&str],
    count: usize,
    mut finish: impl FnMut(&str, u64, &Rounds) -> Result<()>,
) -> Result<()> {
    let mut source = Source::start(true)?;
    let link = Link::new(LinkShape::of(bytes_per_second)).map_err(|missing| missing.to_string())??;
    let near = link.near().to_string();
    for name in names {
        source.load(&corpora::find(name)?)?;
        let cluster = source.cluster();
        let text = text_size(cluster, name)?;
        let mut ways = Vec::new();
        for algorithm in ALGORITHMS {
            let gateway = bench.product.gateway(&near, cluster.port(), algorithm)?;
            let connector = bench.product.connector_behind(&link, &gateway, algorithm, None)?;
            ways.push(Way { _gateway: gateway, connector });
        }
        let mut rounds = Rounds::default();
        let sql = format!("copy \"{name}\" to stdout");
        for round in 0..count {
            for at in order(round, ways.len()) {
                let before = sent_bytes(&link)?;
                let psql = load::psql(cluster, "127.0.0.1", ways[at].connector.port(), &sql);
                rounds.seconds[at].push(load::seconds_told_by(&mut behind(&link, &psql))?);
                rounds.carried[at] += sent_bytes(&link)? - before;
            }
            // Less what starting three programs takes.
            rounds.pipe.push(pipe(cluster, &sql)? - pipe(cluster, "copy (select 1) to stdout")?);
        }
        finish(name, text, &rounds)?;
    }
    Ok(())
}

fn pipe(cluster: &Cluster, sql: &str) -> Result<f64> {
    let mut psql = cluster.psql().at("127.0.0.1", cluster.port()).arg("-c").arg(sql).command();
    let (mut packing, mut unpacking) = (Command::new("zstd"), Command::new("zstd"));
    packing.args(["-1", "-q", "-c"]);
    unpacking.args(["-d", "-q", "-c"]);
    load::seconds_of_pipe(&mut psql, &mut packing, &mut unpacking)
}

pub(super) fn text_size(cluster: &Cluster, table: &str) -> Result<u64> {
    let answer =
        Session::connect(cluster.port(), &[])?.query(&format!("copy \"{table}\" to stdout"), usize::MAX)?;
    Ok(crate::session::text_of(&answer)?.len() as u64)
}

/// The same command on the far side.
pub(super) fn behind(link: &Link, command: &Command) -> Command {
    let mut moved = link.command(command.get_program());
    moved.args(command.get_args());
    moved.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    moved
}

/// Bytes that this side has put on the link.
pub(super) fn sent_bytes(link: &Link) -> Result<u64> {
    let statistics = run::output(run::command("ip").args([
        "-s",
        "-j",
        "address",
        "show",
        "to",
        &link.near().to_string(),
    ]))?;
    let after = statistics.split("\"tx\":{\"bytes\":").nth(1).ok_or("`ip -s -j` shows no counter")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}
