//! What steady random updates write, and what they let a file grow to.

use pgshrink_bench_report::{Result, Table, Unit};
use pgshrink_cfs::{Budget, Collected, Pace, Rules, Scratch};
use pgshrink_testkit::{Seed, TempDir};
use std::time::Duration;

use super::sample::Sample;
use super::{Subject, compare, write};

const COLLECT_EVERY: u32 = 64;
const COMMIT_EVERY: u32 = 2000;
/// Updates per page; the first half is the way to the steady state.
const FULL_ROUNDS: u32 = 6;
const QUICK_ROUNDS: u32 = 4;
const THRESHOLDS: [u32; 3] = [24, 32, 50];
const DEFAULT: u32 = 32;

/// What a run came to.
struct Figures {
    /// Bytes given to write(2) per byte of payload updated.
    written: f64,
    /// Bytes of disk blocks dirtied, which is what the disk gets at most, per byte of payload updated.
    dirtied: f64,
    /// The most that was allocated, over the payloads and over the container when it was packed.
    over_payloads: f64,
    over_packed: f64,
}

/// Uniform and skewed, at several thresholds.
pub fn table(sample: &Sample, full: bool) -> Result<Table> {
    let rounds = if full { FULL_ROUNDS } else { QUICK_ROUNDS };
    let about = format!(
        "A container of {} pages ({:.0} MB plain, {:.0} MB of payloads) of churned tables and their indexes in a file of ext4. Pages drawn at random are \
        replaced by others of the same relation; `skewed`: four of five go to a fifth of the pages. Collection after {COLLECT_EVERY} updates, in pieces of \
        256 KiB, a commit after {COMMIT_EVERY} or when a twentieth waits for one. The second half of {rounds} updates a page counts. `written`: what \
        went through write(2), maps, roots and collection included, per byte of payload; `dirtied`: the same in whole disk_blocks of the page cache \
        (write_bytes of /proc). `size`: the most the file had allocated (st_blocks), to the payloads of that moment, and to the container just packed. All \
        pages are read and compared at the end.",
        sample.pages(),
        sample.plain_bytes() as f64 / 1e6,
        (0..sample.pages()).map(|at| sample.bytes(at)).sum::<u64>() as f64 / 1e6,
    );
    let columns = [
        ("updates", Unit::Text),
        ("garbage, percent", Unit::Count),
        ("written", Unit::Ratio),
        ("dirtied", Unit::Ratio),
        ("size to payloads", Unit::Ratio),
        ("size to packed", Unit::Ratio),
    ];
    let mut table = Table::new("updates", "Steady random updates", &about, &columns);
    for skewed in [false, true] {
        for percent in THRESHOLDS {
            let name = if skewed { "skewed" } else { "uniform" };
            let figures = run(sample, skewed, percent, rounds)?;
            let Figures { written, dirtied, over_payloads, over_packed } = figures;
            let shown = [written, dirtied, over_payloads, over_packed].map(Into::into);
            let [written_cell, dirtied_cell, payloads_cell, packed_cell] = shown;
            table.row([
                name.into(),
                u64::from(percent).into(),
                written_cell,
                dirtied_cell,
                payloads_cell,
                packed_cell,
            ]);
            if percent == DEFAULT {
                table.verdict(
                    &format!("{name} updates, bytes written per byte at a size to compact"),
                    "at most 2.3 at at most 1.45",
                    format!("{written:.2} at {over_packed:.2}"),
                    written <= 2.3 && over_packed <= 1.45,
                );
            }
        }
    }
    Ok(table)
}

fn run(sample: &Sample, skewed: bool, garbage_percent: u32, rounds: u32) -> Result<Figures> {
    let folder = TempDir::new()?;
    let subject = Subject::pack(folder.path(), sample)?;
    let packed = subject.disk_bytes()? as f64;
    let container = subject.open()?;
    let rules = Rules { budget: Budget { garbage_percent, ..Rules::default().budget }, ..Rules::default() };
    let mut pace = Pace::new(rules);
    let mut rng = Seed(6).rng();
    let mut scratch = Scratch::new();
    let mut pages: Vec<u32> = (0..sample.pages()).collect();
    let mut compact: u64 = pages.iter().map(|at| sample.bytes(*at)).sum();
    let total = sample.pages() * rounds;
    let (mut updated, mut over_payloads, mut most) = (0, 0f64, 0f64);
    let mut before = Io::now()?;
    for round in 1..=total {
        let hot = skewed && rng.chance(80);
        // One page of five, spread over all relations.
        let block = match hot {
            true => rng.below(sample.pages() as usize / 5) as u32 * 5,
            false => rng.below(sample.pages() as usize) as u32,
        };
        let at = sample.another(block, &mut rng);
        let (mode, payload) = &sample.payloads[at as usize];
        write(&container, block, *mode, payload, &mut scratch)?;
        compact = compact - sample.bytes(pages[block as usize]) + sample.bytes(at);
        pages[block as usize] = at;
        updated += sample.bytes(at);
        if round % COLLECT_EVERY == 0 {
            let found: Collected = container.collect(rules.budget)?;
            // The clock stands still here: how much is moved is a matter of counts, not of this machine.
            if pace.after(Duration::ZERO, Duration::ZERO, &found).commit {
                container.commit()?;
            }
        }
        if round % COMMIT_EVERY == 0 {
            container.commit()?;
        }
        if round == total / 2 {
            (updated, before) = (0, Io::now()?);
        }
        if round % 256 == 0 && round > total / 2 {
            let disk = subject.disk_bytes()? as f64;
            most = most.max(disk);
            over_payloads = over_payloads.max(disk / compact as f64);
        }
    }
    let after = Io::now()?;
    compare(&container, sample, &pages)?;
    Ok(Figures {
        written: (after.written - before.written) as f64 / updated as f64,
        dirtied: (after.dirtied - before.dirtied) as f64 / updated as f64,
        over_payloads,
        over_packed: most / packed,
    })
}

/// What this process has written so far, by the kernel's count.
struct Io {
    written: u64,
    dirtied: u64,
}

impl Io {
    fn now() -> Result<Io> {
        let text = std::fs::read_to_string("/proc/self/io")?;
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|number| number.trim().parse().ok()).ok_or("/proc/self/io")
        };
        Ok(Io { written: of("wchar:")?, dirtied: of("write_bytes:")? })
    }
}
