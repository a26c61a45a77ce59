//! What a checkpoint of many segments waits for, each with one dirty page.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use pgshrink_bench_report::{Result, Samples, Table, Unit};
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::group::{self, GROUP_MAX, InTurn, SyncAll, Threads};
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_cfs::{Birth, Device, Folder, Geometry, Identity, KEY_BYTES, Options, Scratch, segment};
use pgshrink_testkit::{Rng, Seed, TempDir};

use super::Open;
use crate::shell::{FileDevice, FileFolder};

const SEGMENTS: usize = 1000;
/// Of each segment.
const PAGES: u32 = 64;
/// Bytes of a page that shrinks to three tenths.
const PAYLOAD: usize = 2458;
const FULL_ROUNDS: usize = 10;
const QUICK_ROUNDS: usize = 3;
/// Lets the device come to rest between measurements.
const REST: Duration = Duration::from_millis(200);
const LIMIT: f64 = 1.5;
const EXT4: i64 = 0xef53;

/// Plain files and containers in turn.
pub fn table(full: bool) -> Result<Table> {
    let rounds = if full { FULL_ROUNDS } else { QUICK_ROUNDS };
    let folder = TempDir::new()?;
    let found = rustix::fs::statfs(folder.path())?.f_type as i64;
    let filesystem =
        if found == EXT4 { "ext4".to_owned() } else { format!("a filesystem of type {found:#x}") };
    let about = format!(
        "{SEGMENTS} segments of {PAGES} pages on {filesystem}. A page of each is written, then all are made durable. `plain files`: as PostgreSQL's \
        checkpointer does: a write and the begin of writeback (sync_file_range) for each file, then an fsync each, one after the other. Containers: a page of \
        {PAYLOAD} bytes is appended to each; `one by one`: a commit each; `group`: one call for all, in groups of {GROUP_MAX}, then {SEGMENTS} more \
        commits, which find nothing to do; `in turn` has one fsync at a time, the others so many threads. {rounds} rounds of all; ratios are taken \
        round by round."
    );
    let columns = [("what", Unit::Text), ("time, ms", Unit::Ms), ("to plain files", Unit::Ratio)];
    let mut table = Table::new("checkpoint", "Checkpoint of many segments", &about, &columns);
    super::raise_descriptors()?;
    let plain = Plain::new(&folder.path().join("plain"))?;
    let memory = Memory::new();
    let containers = memory.containers(&folder.path().join("containers"))?;
    let group: Vec<&Open<'_>> = containers.iter().collect();
    let names = ["plain files", "one by one", "group, in turn", "group, 4", "group, 8", "group, 16"];
    let mut times = names.map(|_| Samples::default());
    let mut rng = Seed(1).rng();
    for _ in 0..rounds {
        for (index, samples) in times.iter_mut().enumerate() {
            std::thread::sleep(REST);
            let begun = Instant::now();
            match index {
                0 => plain.checkpoint(&mut rng)?,
                1 => one_by_one(&group, &mut rng)?,
                2 => together(&group, &InTurn, &mut rng)?,
                more => together(&group, &Threads { count: 1 << (more - 1) }, &mut rng)?,
            }
            samples.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    for (name, samples) in names.iter().zip(&times) {
        table.row([(*name).into(), samples.spread(), samples.over(&times[0]).spread()]);
    }
    let found = times[4].over(&times[0]);
    table.verdict(
        "checkpoint of 1,000 segments with one dirty page each, against plain files, on ext4",
        &format!("at most {LIMIT}x the time"),
        format!("{:.2} ({:.2} - {:.2})", found.median(), found.quantile(0.25), found.quantile(0.75)),
        found.median() <= LIMIT,
    );
    Ok(table)
}

/// Plain files, each open for writing and for what the test shell can do.
struct Plain(Vec<(File, FileDevice)>);

impl Plain {
    fn new(folder: &Path) -> Result<Plain> {
        std::fs::create_dir(folder)?;
        let home = FileFolder(folder.to_owned());
        let mut rng = Seed(2).rng();
        let mut files = Vec::new();
        for number in 0..SEGMENTS {
            let name = number.to_string();
            let device = home.create(&name)?;
            let file = File::options().write(true).open(folder.join(&name))?;
            file.write_all_at(&rng.bytes(PAGES as usize * PAGE_SIZE), 0)?;
            file.sync_all()?;
            files.push((file, device));
        }
        Ok(Plain(files))
    }

    fn checkpoint(&self, rng: &mut Rng) -> Result<()> {
        for (file, device) in &self.0 {
            file.write_all_at(&rng.bytes(PAGE_SIZE), rng.below(PAGES as usize) as u64 * PAGE_SIZE as u64)?;
            device.begin_writeback()?;
        }
        for (file, _) in &self.0 {
            file.sync_all()?;
        }
        Ok(())
    }
}

/// Words for each container.
struct Memory(Vec<Vec<AtomicU64>>);

impl Memory {
    fn new() -> Memory {
        let words = || (0..Geometry::of(PAGES).words()).map(|_| AtomicU64::new(0)).collect();
        Memory((0..SEGMENTS).map(|_| words()).collect())
    }

    fn containers(&self, folder: &Path) -> Result<Vec<Open<'_>>> {
        let mut rng = Seed(3).rng();
        let mut scratch = Scratch::new();
        let mut containers = Vec::new();
        for (number, words) in self.0.iter().enumerate() {
            let home = folder.join(number.to_string());
            std::fs::create_dir_all(&home)?;
            let id = (number as u128 + 1).to_le_bytes();
            let birth = Birth { id, identity: Identity::default(), key: [0; KEY_BYTES] };
            let container = segment::create(&FileFolder(home), Alone, words, &birth, Options::new(PAGES))?;
            for block in 0..PAGES {
                container.write(block, 0, 0, &rng.bytes(PAYLOAD), &mut scratch)?;
            }
            containers.push(container);
        }
        let group: Vec<_> = containers.iter().collect();
        commit(&group, &Threads::default())?;
        Ok(containers)
    }
}

fn write_each(group: &[&Open<'_>], rng: &mut Rng) -> Result<()> {
    let mut scratch = Scratch::new();
    for container in group {
        let block = rng.below(PAGES as usize) as u32;
        container.write(block, 0, 0, &rng.bytes(PAYLOAD), &mut scratch)?;
    }
    Ok(())
}

fn commit<'m>(group: &[&Open<'m>], syncs: &impl SyncAll<FileDevice, AtomicU64>) -> Result<()> {
    for done in group::commit(group, syncs) {
        if done?.sequence.is_none() {
            return Err("a container that was written to had nothing to commit".into());
        }
    }
    Ok(())
}

fn one_by_one(group: &[&Open<'_>], rng: &mut Rng) -> Result<()> {
    write_each(group, rng)?;
    for container in group {
        container.commit()?;
    }
    Ok(())
}

fn together(group: &[&Open<'_>], syncs: &impl SyncAll<FileDevice, AtomicU64>, rng: &mut Rng) -> Result<()> {
    write_each(group, rng)?;
    commit(group, syncs)?;
    for container in group {
        if container.commit()?.sequence.is_some() {
            return Err("a commit after the group's found something to do".into());
        }
    }
    Ok(())
}
