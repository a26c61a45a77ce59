//! Taking turns.

use pgshrink_bench_report::{Result, Samples, Table, Value};

use crate::side::{Side, Usage, reported};

/// What one side was found to need, round by round.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<const N: usize>(pub [Samples; N]);

/// Measures every side in each round, each round beginning with another, after one that does not count.
pub fn in_turn<const N: usize>(
    sides: &[Side],
    rounds: usize,
    mut measure: impl FnMut(&Side, usize) -> Result<[f64; N]>,
) -> Result<Vec<Found<N>>> {
    let mut found: Vec<Found<N>> =
        sides.iter().map(|_| Found(std::array::from_fn(|_| Samples::default()))).collect();
    for round in 0..=rounds {
        for at in (0..sides.len()).map(|at| (at + round) % sides.len()) {
            let numbers = measure(&sides[at], round)?;
            if round > 0 {
                found[at].0.iter_mut().zip(numbers).for_each(|(samples, number)| samples.push(number));
            }
        }
    }
    Ok(found)
}

/// Of pgbench on one side: TPS, and of one transaction processor seconds of backends and of the server, pages that
/// shared buffers did not have, bytes from disk.
pub type Transactions = Found<5>;
/// As above, of a statement: seconds instead of TPS.
pub type Statement = Found<5>;

/// Runs pgbench for some seconds in each round, a checkpoint included.
pub fn transactions(
    sides: &[Side],
    rounds: usize,
    seconds: u32,
    arguments: &[&str],
) -> Result<Vec<Transactions>> {
    let seconds = seconds.to_string();
    let arguments = [&["-n", "-M", "prepared", "-T", &seconds], arguments].concat();
    in_turn(sides, rounds, |side, _| {
        let before = side.usage()?;
        let printed = side.pgbench(&arguments)?;
        side.cluster.sql("checkpoint")?;
        let used = side.usage()?.since(before);
        let count = reported(&printed, "number of transactions actually processed")?;
        Ok(of_each(reported(&printed, "tps")?, used, count))
    })
}

/// Runs a statement in each round, which counts from 0, in a session of its own.
pub fn statement(sides: &[Side], rounds: usize, sql: impl Fn(usize) -> String) -> Result<Vec<Statement>> {
    let mut answers = vec![Vec::new(); sides.len()];
    let found = in_turn(sides, rounds, |side, round| {
        let sql = sql(round);
        let before = side.usage()?;
        let begin = std::time::Instant::now();
        let answer = side.cluster.sql(&sql)?;
        let seconds = begin.elapsed().as_secs_f64();
        let used = side.usage()?.since(before);
        if let Some(at) = sides.iter().position(|other| other.name == side.name) {
            answers[at].push(answer);
        }
        Ok(of_each(seconds, used, 1.0))
    })?;
    if answers.iter().any(|answer| *answer != answers[0]) {
        return Err(format!("different answers to {}: {answers:?}", sql(0)).into());
    }
    Ok(found)
}

fn of_each(first: f64, used: Usage, count: f64) -> [f64; 5] {
    [first, used.backends() / count, used.server / count, used.missed / count, used.read / count]
}

/// Adds a row for each side.
///
/// The columns: what, side, [`first`](Found), processor microseconds of backends, of the server, pages missed, bytes from disk,
/// and round by round to plain: the first, backends, server.
pub fn tell(table: &mut Table, what: &str, sides: &[Side], found: &[Found<5>], first_times: f64) {
    for (side, of_side) in sides.iter().zip(found) {
        let [first, backends, server, missed, read] = &of_side.0;
        let to_plain = |at: usize| match std::ptr::eq(of_side, &found[0]) {
            true => Value::None,
            false => of_side.0[at].over(&found[0].0[at]).spread(),
        };
        table.push(vec![
            what.into(),
            side.name.into(),
            (first.median() * first_times).into(),
            (backends.median() * 1e6).into(),
            (server.median() * 1e6).into(),
            missed.median().into(),
            read.median().into(),
            to_plain(0),
            to_plain(1),
            to_plain(2),
        ]);
    }
}

/// The second side to the first one, round by round.
pub fn ours_to_plain<const N: usize>(found: &[Found<N>], at: usize) -> Samples {
    found[1].0[at].over(&found[0].0[at])
}

/// A verdict on ratios.
pub fn judge(table: &mut Table, what: &str, ratios: &Samples, line: Line) {
    let median = ratios.median();
    let (limit, met) = match line {
        Line::AtLeast(limit) => (format!("at least {limit}"), median >= limit),
        Line::AtMost(limit) => (format!("at most {limit}"), median <= limit),
    };
    let found = format!("{median:.3} ({} rounds)", ratios.count());
    table.verdict(what, &limit, found, met);
}

/// What a ratio has to be.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Line {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}
