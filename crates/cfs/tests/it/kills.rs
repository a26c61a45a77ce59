//! kill -9 of real processes that share one real container.
//!
//! The page cache survives a kill, so this proves nothing about power; it proves that what a process leaves
//! in the shared memory at any instruction harms nobody. Workers read, write, extend, truncate, commit and
//! collect; what of theirs must be there, and what may, is noted beside the container's memory.

use std::fs::File;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pgshrink_cfs::{
    Birth, Budget, Container, Error, Folder, Geometry, Identity, KEY_BYTES, Options, Recovery, Scratch,
    Stored, Tuning, segment,
};
use pgshrink_testkit::seed::{Rng, Seed};
use rustix::fs::FlockOperation;

use crate::shell::{FileDevice, FileFolder, Pids, map};
use crate::workers::{self, kill};

const PAGES: u32 = 96;
const WORKERS: u32 = 3;

type Open = Container<'static, FileDevice, Pids>;

/// Events that are remembered of a block: from the last one that a commit covered on.
const EVENTS: usize = 2048;
/// What a block is after an event: past the end, zeros, or what the write of a number less two stored.
const ABSENT: u64 = 0;
const ZEROS: u64 = 1;

/// Behind the container's words: what happened to each block, in order. An event is begun, completed, and
/// covered by a commit, or not.
#[derive(Clone, Copy)]
struct Progress(&'static [AtomicU64]);

impl Progress {
    const BLOCK: usize = 3 + EVENTS;
    const WORDS: usize = PAGES as usize * Progress::BLOCK + 4;

    fn begun(&self, block: u32) -> &AtomicU64 {
        &self.0[block as usize * Progress::BLOCK]
    }

    fn completed(&self, block: u32) -> &AtomicU64 {
        &self.0[block as usize * Progress::BLOCK + 1]
    }

    fn durable(&self, block: u32) -> &AtomicU64 {
        &self.0[block as usize * Progress::BLOCK + 2]
    }

    fn event(&self, block: u32, event: u64) -> &AtomicU64 {
        &self.0[block as usize * Progress::BLOCK + 3 + event as usize % EVENTS]
    }

    /// A commit was refused: a process was killed in an fsync. Until the server starts again, nobody commits.
    fn refused(&self) -> &AtomicU64 {
        &self.0[PAGES as usize * Progress::BLOCK]
    }

    /// A truncation under way: the pages that it leaves, plus one, below, and those before it above.
    fn truncating(&self) -> &AtomicU64 {
        &self.0[PAGES as usize * Progress::BLOCK + 1]
    }

    /// An extension under way: its block, plus one, and the event that makes it a page of zeros.
    fn extending(&self) -> [&AtomicU64; 2] {
        [2, 3].map(|word| &self.0[PAGES as usize * Progress::BLOCK + word])
    }

    /// Begins an event, which makes the block `value`, or what a write stores that is named after the event.
    fn begin(&self, block: u32, value: Option<u64>) -> u64 {
        let event = self.begun(block).load(Ordering::SeqCst) + 1;
        assert!(event - self.durable(block).load(Ordering::SeqCst) < EVENTS as u64, "no commit for long");
        self.event(block, event).store(value.unwrap_or(event + 2), Ordering::SeqCst);
        self.begun(block).store(event, Ordering::SeqCst);
        event
    }

    fn complete(&self, block: u32, event: u64) {
        self.completed(block).fetch_max(event, Ordering::SeqCst);
    }

    /// It has not happened, and will not.
    fn take_back(&self, block: u32, event: u64) {
        let before = self.event(block, event - 1).load(Ordering::SeqCst);
        self.event(block, event).store(before, Ordering::SeqCst);
    }

    fn check(&self, block: u32, found: u64, from: u64) {
        let begun = self.begun(block).load(Ordering::SeqCst);
        let values: Vec<u64> =
            (from..=begun).map(|event| self.event(block, event).load(Ordering::SeqCst)).collect();
        assert!(
            values.contains(&found),
            "block {block} is {found}, may be {values:?}, events {from} to {begun}"
        );
    }
}

/// PostgreSQL's locks of a relation and of its extension: they die with their holder.
struct Locks {
    relation: File,
    extension: File,
}

impl Locks {
    fn new(folder: &Path) -> Locks {
        let open = |name| File::options().create(true).append(true).open(folder.join(name)).unwrap();
        Locks { relation: open("relation"), extension: open("extension") }
    }
}

fn lock(file: &File, how: FlockOperation) {
    rustix::fs::flock(file, how).unwrap();
}

fn options() -> Options<'static> {
    let geometry = Geometry { pages_max: PAGES, extent_units: 256, extents_max: 4000 };
    let tuning = Tuning { inline_max: 20, deltas_max: 4, changes_min: 60, ..Tuning::default() };
    Options { geometry, tuning, ..Options::new(PAGES) }
}

fn memory(folder: &Path) -> (&'static [AtomicU64], Progress) {
    let words = options().geometry.words();
    let all = map(&folder.join("memory"), words + Progress::WORDS);
    (&all[..words], Progress(&all[words..]))
}

fn open(folder: &Path, words: &'static [AtomicU64]) -> Result<Open, Error> {
    let file = FileFolder(folder.to_owned()).open(segment::FILE_NAME).unwrap();
    Container::open(file, Pids, words, Recovery::Discard, options()).map(|(container, _)| container)
}

fn payload(block: u32, value: u64) -> Vec<u8> {
    let mut rng = Seed(value * 1000 + u64::from(block)).rng();
    let mut payload = Vec::from(value.to_le_bytes());
    let length = rng.between(50, 2500);
    payload.extend_from_slice(&rng.bytes(length));
    payload
}

fn value_of(container: &Open, block: u32, scratch: &mut Scratch) -> Result<u64, Error> {
    Ok(match container.read(block, scratch) {
        Err(Error::PastEnd { .. }) => ABSENT,
        Err(error) => return Err(error),
        Ok(Stored::Zeros) => ZEROS,
        Ok(Stored::Base(_)) => unreachable!("no test of these has a base"),
        Ok(Stored::Record { payload: found, .. }) => {
            let value = u64::from_le_bytes(found[..8].try_into().unwrap());
            assert!(found == payload(block, value), "block {block} has what nobody wrote");
            value
        }
    })
}

/// A process of the server.
struct Worker {
    number: u32,
    container: Open,
    progress: Progress,
    locks: Locks,
    rng: Rng,
    scratch: Scratch,
}

impl Worker {
    /// Its life, until it is killed.
    fn work(&mut self) {
        loop {
            match self.rng.below(100) {
                0..40 => self.alone(false, Worker::write),
                40..60 => self.alone(false, Worker::extend),
                60..64 => self.alone(true, Worker::truncate),
                64..85 => self.alone(false, Worker::read),
                85..94 => self.commit(),
                _ => drop(self.container.collect(Budget { bytes: 64 << 10, garbage_percent: 30 }).unwrap()),
            }
        }
    }

    /// Does something under the relation's lock, after seeing to what somebody left who died with it.
    fn alone(&mut self, is_exclusive: bool, work: impl Fn(&mut Worker)) {
        let refused = self.progress.refused().load(Ordering::SeqCst) != 0;
        if refused && !self.rng.chance(20) {
            return;
        }
        let progress = self.progress;
        let left_behind = move || progress.truncating().load(Ordering::SeqCst) != 0;
        loop {
            let is_alone = is_exclusive || left_behind();
            let how = if is_alone { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
            lock(&self.locks.relation, how);
            if !left_behind() {
                break;
            }
            if is_alone {
                settle_truncation(&self.container, progress);
                break;
            }
        }
        work(self);
        lock(&self.locks.relation, FlockOperation::Unlock);
    }

    fn read(&mut self) {
        let block = self.rng.below(PAGES as usize) as u32;
        let from = self.progress.completed(block).load(Ordering::SeqCst);
        let found = value_of(&self.container, block, &mut self.scratch).unwrap();
        self.progress.check(block, found, from);
    }

    fn write(&mut self) {
        // Each block has one writer, as PostgreSQL sees to. Who extends is another, at the end.
        let block = self.rng.below((PAGES / WORKERS) as usize) as u32 * WORKERS + self.number;
        let extending = self.progress.extending()[0].load(Ordering::SeqCst);
        if block < self.container.pages() && extending != u64::from(block) + 1 {
            let event = self.progress.begin(block, None);
            self.store(block, event);
            self.progress.complete(block, event);
        }
    }

    fn store(&mut self, block: u32, event: u64) {
        let payload = payload(block, event + 2);
        self.container.write(block, 1, 0, &payload, &mut self.scratch).unwrap();
    }

    fn extend(&mut self) {
        lock(&self.locks.extension, FlockOperation::LockExclusive);
        settle_extension(&self.container, self.progress);
        let block = self.container.pages();
        if block < PAGES {
            let zeros = self.progress.begin(block, Some(ZEROS));
            let progress = self.progress;
            let [extending, event] = progress.extending();
            event.store(zeros, Ordering::SeqCst);
            extending.store(u64::from(block) + 1, Ordering::SeqCst);
            let last = if self.rng.chance(30) {
                self.container.extend(block + 1).unwrap();
                zeros
            } else {
                let event = self.progress.begin(block, None);
                self.store(block, event);
                event
            };
            self.progress.complete(block, last);
            extending.store(0, Ordering::SeqCst);
        }
        lock(&self.locks.extension, FlockOperation::Unlock);
    }

    fn truncate(&mut self) {
        lock(&self.locks.extension, FlockOperation::LockExclusive);
        settle_extension(&self.container, self.progress);
        let pages = self.container.pages();
        let left = pages - self.rng.below(pages as usize / 2 + 1) as u32;
        // In this order: who dies in between has begun nothing.
        let word = u64::from(left + 1) | u64::from(pages) << 32;
        for block in left..pages {
            self.progress.begin(block, Some(ABSENT));
            self.progress.truncating().store(word, Ordering::SeqCst);
        }
        self.container.truncate(left).unwrap();
        settle_truncation(&self.container, self.progress);
        lock(&self.locks.extension, FlockOperation::Unlock);
    }

    fn commit(&mut self) {
        let progress = self.progress;
        let completed: Vec<u64> =
            (0..PAGES).map(|block| progress.completed(block).load(Ordering::SeqCst)).collect();
        match self.container.commit() {
            Ok(_) => (0..PAGES).zip(completed).for_each(|(block, count)| {
                progress.durable(block).fetch_max(count, Ordering::SeqCst);
            }),
            Err(Error::Poisoned) => progress.refused().store(1, Ordering::SeqCst),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Says whether the truncation that is noted has happened: by the segment's end, with nobody else there.
fn settle_truncation(container: &Open, progress: Progress) {
    let word = progress.truncating().load(Ordering::SeqCst);
    if word == 0 {
        return;
    }
    let (left, old) = (word as u32 - 1, (word >> 32) as u32);
    let has_happened = container.pages() == left;
    for block in left..old {
        let event = progress.begun(block).load(Ordering::SeqCst);
        let is_begun = progress.event(block, event).load(Ordering::SeqCst) == ABSENT;
        match has_happened {
            true => progress.complete(block, event),
            false if is_begun => progress.take_back(block, event),
            false => {}
        }
    }
    progress.truncating().store(0, Ordering::SeqCst);
}

/// Says what became of the extension that is noted, under its lock.
fn settle_extension(container: &Open, progress: Progress) {
    let [extending, event] = progress.extending();
    let Some(block) = extending.load(Ordering::SeqCst).checked_sub(1) else { return };
    let (block, zeros) = (block as u32, event.load(Ordering::SeqCst));
    if container.pages() > block {
        progress.complete(block, zeros);
    } else {
        let absent = progress.begin(block, Some(ABSENT));
        progress.complete(block, absent);
    }
    extending.store(0, Ordering::SeqCst);
}

#[test]
#[ignore = "a process of the test of kills"]
fn worker() {
    let Some((folder, number)) = workers::called() else { return };
    let (words, progress) = memory(&folder);
    let mut worker = Worker {
        number,
        container: open(&folder, words).unwrap(),
        progress,
        locks: Locks::new(&folder),
        rng: Seed(u64::from(std::process::id())).rng(),
        scratch: Scratch::new(),
    };
    worker.work();
}

fn spawn(folder: &Path, worker: u32) -> Child {
    workers::spawn("kills::worker", folder, worker)
}

/// The server starts again: nothing is in shared memory, and what was committed is there.
fn restart(folder: &Path) {
    let (words, progress) = memory(folder);
    words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    let container = open(folder, words).unwrap();
    progress.refused().store(0, Ordering::SeqCst);
    progress.truncating().store(0, Ordering::SeqCst);
    progress.extending()[0].store(0, Ordering::SeqCst);
    let mut scratch = Scratch::new();
    for block in 0..PAGES {
        let found = value_of(&container, block, &mut scratch).unwrap();
        progress.check(block, found, progress.durable(block).load(Ordering::SeqCst));
        // From now on it is that, whatever was begun.
        let event = progress.begin(block, Some(found));
        progress.complete(block, event);
        progress.durable(block).store(event, Ordering::SeqCst);
    }
}

fn many_kills(kills: u32) {
    let scratch = pgshrink_testkit::scratch::TempDir::new().unwrap();
    let folder = scratch.path().to_owned();
    let (words, progress) = memory(&folder);
    let birth = Birth { id: [9; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
    let container = segment::create(&FileFolder(folder.clone()), Pids, words, &birth, options()).unwrap();
    container.extend(PAGES / 2).unwrap();
    container.commit().unwrap();
    drop(container);
    for block in 0..PAGES / 2 {
        let event = progress.begin(block, Some(ZEROS));
        progress.complete(block, event);
        progress.durable(block).store(event, Ordering::SeqCst);
    }
    let mut rng = Seed::from_env_or_time().rng();
    let mut workers: Vec<Child> = (0..WORKERS).map(|worker| spawn(&folder, worker)).collect();
    for killed in 1..=kills {
        std::thread::sleep(Duration::from_micros(rng.between(500, 25_000) as u64));
        let worker = rng.below(workers.len());
        let fresh = spawn(&folder, worker as u32);
        // Its blocks have one writer at a time.
        kill(std::mem::replace(&mut workers[worker], fresh));
        if killed % 12 == 0 || progress.refused().load(Ordering::SeqCst) != 0 {
            workers.drain(..).for_each(kill);
            restart(&folder);
            workers = (0..WORKERS).map(|worker| spawn(&folder, worker)).collect();
        }
    }
    workers.drain(..).for_each(kill);
    restart(&folder);
    let container = open(&folder, words).unwrap();
    println!("{kills} kills, since the last start {:?}", container.stats());
}

#[test]
fn a_hundred_killed_processes_harm_nobody() {
    many_kills(100);
}

#[test]
#[ignore = "minutes: thousands of kills"]
fn thousands_of_killed_processes_harm_nobody() {
    many_kills(4000);
}
