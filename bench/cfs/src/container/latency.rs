//! What a read waits for while pages are written, committed and collected.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pgshrink_bench_report::{Result, Samples, Table, Unit};
use pgshrink_cfs::{Budget, Pace, Rules, Scratch};
use pgshrink_testkit::{Seed, TempDir};

use super::sample::Sample;
use super::{Subject, write};

const ROUND: Duration = Duration::from_millis(400);
/// Between rounds, for the collector to begin or to end.
const SETTLE: Duration = Duration::from_millis(20);
const FULL_ROUNDS: usize = 60;
const QUICK_ROUNDS: usize = 10;
const QUANTILES: [(f64, &str); 3] = [(0.5, "p50, us"), (0.99, "p99, us"), (0.999, "p99.9, us")];
const COMMITS_EVERY: Duration = Duration::from_millis(200);
const WRITES_PER_MS: u32 = 16;

/// What threads tell each other.
#[derive(Default)]
struct Shared {
    over: AtomicBool,
    collecting: AtomicBool,
    moved: AtomicU64,
}

/// Rounds in turn with the collector and without it.
pub fn table(sample: &Sample, full: bool) -> Result<Table> {
    let rounds = if full { FULL_ROUNDS } else { QUICK_ROUNDS };
    let about = format!(
        "A container of {} pages ({:.0} MB plain) in a file that is in the page cache. One thread reads random pages without a pause and measures each \
        `Container::read`; one replaces {WRITES_PER_MS} random pages a millisecond; one commits every {} ms; the collector has work at a threshold of 2 % and the \
        default pace otherwise. Rounds of {} ms in turn without and with it, {rounds} of each; the ratio is taken pair by pair.",
        sample.pages(),
        sample.plain_bytes() as f64 / 1e6,
        COMMITS_EVERY.as_millis(),
        ROUND.as_millis(),
    );
    let mut columns = vec![("collector", Unit::Text), ("reads per round", Unit::Count)];
    columns.extend(QUANTILES.map(|(_, name)| (name, Unit::Ratio)));
    columns.push(("moved, MB per second", Unit::Average));
    let mut table = Table::new("latency", "Latency of reads under collection", &about, &columns);
    let [without, with] = measure(sample, rounds)?;
    for (name, found) in [("off", &without), ("on", &with)] {
        let mut cells = vec![name.into(), found.reads.median().into()];
        cells.extend(found.quantiles.iter().map(Samples::spread));
        cells.push(found.moved.median().into());
        table.push(cells);
    }
    let mut cells = vec!["on to off".into(), with.reads.over(&without.reads).median().into()];
    let ratios: Vec<Samples> =
        with.quantiles.iter().zip(&without.quantiles).map(|(with, without)| with.over(without)).collect();
    cells.extend(ratios.iter().map(Samples::spread));
    cells.push(f64::NAN.into());
    table.push(cells);
    let found = &ratios[1];
    table.verdict(
        "p99 of reads with the collector running, to without",
        "at most 1.5",
        format!("{:.2} ({:.2} - {:.2})", found.median(), found.quantile(0.25), found.quantile(0.75)),
        found.median() <= 1.5,
    );
    Ok(table)
}

/// One kind of rounds.
#[derive(Default)]
struct Found {
    reads: Samples,
    quantiles: [Samples; 3],
    moved: Samples,
}

fn measure(sample: &Sample, rounds: usize) -> Result<[Found; 2]> {
    let folder = TempDir::new()?;
    let subject = Subject::pack(folder.path(), sample)?;
    // Attached before anything else is under way.
    subject.open()?;
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let workers = [
            scope.spawn(|| replace(&subject, sample, &shared)),
            scope.spawn(|| commit(&subject, &shared)),
            scope.spawn(|| collect(&subject, &shared)),
        ];
        let found = read(&subject, sample, &shared, rounds);
        shared.over.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().map_err(|_| "a thread panicked")??;
        }
        found
    })
}

fn read(subject: &Subject<'_>, sample: &Sample, shared: &Shared, rounds: usize) -> Result<[Found; 2]> {
    let container = subject.open()?;
    let mut scratch = Scratch::new();
    let mut rng = Seed(1).rng();
    let mut found = [Found::default(), Found::default()];
    for round in 0..rounds * 2 {
        let on = round % 2;
        shared.collecting.store(on == 1, Ordering::Relaxed);
        std::thread::sleep(SETTLE);
        let moved = shared.moved.load(Ordering::Relaxed);
        let mut times = Vec::with_capacity(1 << 18);
        let begun = Instant::now();
        let mut now = begun;
        while now - begun < ROUND {
            let block = rng.below(sample.pages() as usize) as u32;
            let start = Instant::now();
            std::hint::black_box(container.read(block, &mut scratch)?);
            now = Instant::now();
            times.push((now - start).as_nanos() as f64 / 1e3);
        }
        let moved = shared.moved.load(Ordering::Relaxed) - moved;
        let found = &mut found[on];
        found.reads.push(times.len() as f64);
        found.moved.push(moved as f64 / 1e6 / ROUND.as_secs_f64());
        times.sort_by(f64::total_cmp);
        for ((share, _), samples) in QUANTILES.iter().zip(&mut found.quantiles) {
            samples.push(times[((times.len() - 1) as f64 * share) as usize]);
        }
    }
    Ok(found)
}

fn replace(subject: &Subject<'_>, sample: &Sample, shared: &Shared) -> Result<()> {
    let container = subject.open()?;
    let mut scratch = Scratch::new();
    let mut rng = Seed(2).rng();
    while !shared.over.load(Ordering::Relaxed) {
        for _ in 0..WRITES_PER_MS {
            let block = rng.below(sample.pages() as usize) as u32;
            let (mode, payload) = &sample.payloads[sample.another(block, &mut rng) as usize];
            write(&container, block, *mode, payload, &mut scratch)?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn commit(subject: &Subject<'_>, shared: &Shared) -> Result<()> {
    let container = subject.open()?;
    while !shared.over.load(Ordering::Relaxed) {
        container.commit()?;
        std::thread::sleep(COMMITS_EVERY);
    }
    Ok(())
}

/// As a server's collector would: pieces, and the pause that the pace asks for.
fn collect(subject: &Subject<'_>, shared: &Shared) -> Result<()> {
    let container = subject.open()?;
    let rules = Rules::default();
    let budget = Budget { garbage_percent: 2, ..rules.budget };
    let mut pace = Pace::new(Rules { budget, period: Duration::from_millis(10), ..rules });
    let start = Instant::now();
    while !shared.over.load(Ordering::Relaxed) {
        if !shared.collecting.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let begun = start.elapsed();
        let done = container.collect(budget)?;
        shared.moved.fetch_add(done.moved_bytes, Ordering::Relaxed);
        let next = pace.after(begun, start.elapsed(), &done);
        if next.commit {
            container.commit()?;
        }
        std::thread::sleep(next.due.saturating_sub(start.elapsed()));
    }
    Ok(())
}
