//! Statements in one session of a server, in turn, with the processor time of the backend that runs them.

use pgshrink_bench_report::{Result, Samples};
use pgshrink_testkit::Cluster;

/// What is measured, and what goes before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// Before each measurement.
    pub setup: String,
    /// One statement.
    pub sql: String,
    /// How often it runs within a measurement: clocks of the kernel advance in steps of milliseconds.
    pub repeat: usize,
}

/// What was measured, round by round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timed {
    /// Seconds that the backend computed, for one statement.
    pub cpu: Samples,
    /// Seconds that passed, for one statement.
    pub wall: Samples,
    /// Bytes that the backend caused to be read from disk, for one statement.
    pub read: Samples,
    /// What the statement answered, the first time.
    pub answer: String,
}

/// Printed before and after.
const MARK: &str = "select 'mark', split_part(pg_read_file('/proc/self/schedstat'), ' ', 1), \
    extract(epoch from clock_timestamp()), \
    substring(pg_read_file('/proc/self/io') from '\\mread_bytes: ([0-9]+)');\n";

/// Runs every work once unmeasured, then in rounds, each round beginning with another.
pub fn in_turn(cluster: &Cluster, works: &[Work], rounds: usize) -> Result<Vec<Timed>> {
    let order: Vec<usize> =
        (0..=rounds).flat_map(|round| (0..works.len()).map(move |at| (round + at) % works.len())).collect();
    let mut timed = vec![Timed::default(); works.len()];
    for (measurement, (at, found)) in order.iter().zip(session(cluster, works, &order)?).enumerate() {
        let of_work = &mut timed[*at];
        if measurement < works.len() {
            of_work.answer = found.answer;
        } else {
            of_work.add(found);
        }
    }
    Ok(timed)
}

/// Adds one measurement, in a session of its own.
pub fn once(cluster: &Cluster, work: &Work, timed: &mut Timed) -> Result<()> {
    for found in session(cluster, std::slice::from_ref(work), &[0])? {
        timed.answer.clone_from(&found.answer);
        timed.add(found);
    }
    Ok(())
}

struct Found {
    cpu: f64,
    wall: f64,
    read: f64,
    answer: String,
}

impl Timed {
    fn add(&mut self, found: Found) {
        self.cpu.push(found.cpu);
        self.wall.push(found.wall);
        self.read.push(found.read);
    }
}

/// Measures these works in this order in one session.
fn session(cluster: &Cluster, works: &[Work], order: &[usize]) -> Result<Vec<Found>> {
    let mut script = String::new();
    for at in order {
        let work = &works[*at];
        script.push_str(&format!("{};\n{MARK}", work.setup));
        (0..work.repeat.max(1)).for_each(|_| script.push_str(&format!("{};\n", work.sql)));
        script.push_str(MARK);
    }
    let printed = cluster.sql(&script)?;
    let mut lines = printed.lines();
    let mut all = Vec::with_capacity(order.len());
    for at in order {
        let before = mark(lines.by_ref().find(|line| line.starts_with("mark|")))?;
        let mut answer = "";
        let after = lines.by_ref().find(|line| {
            let ended = line.starts_with("mark|");
            answer = if ended { answer } else { line };
            ended
        });
        let after = mark(after)?;
        let one = |field: usize| (after[field] - before[field]) / works[*at].repeat.max(1) as f64;
        all.push(Found { cpu: one(0) / 1e9, wall: one(1), read: one(2), answer: answer.to_owned() });
    }
    Ok(all)
}

/// Nanoseconds of processor time, seconds since the epoch, bytes read.
fn mark(line: Option<&str>) -> Result<[f64; 3]> {
    let line = line.ok_or("the session printed fewer marks than it was asked for")?;
    let mut fields = line.split('|').skip(1).map(str::parse);
    match (fields.next(), fields.next(), fields.next()) {
        (Some(Ok(cpu)), Some(Ok(wall)), Some(Ok(read))) => Ok([cpu, wall, read]),
        _ => Err(format!("no times in {line}").into()),
    }
}
