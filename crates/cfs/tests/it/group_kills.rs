//! kill -9 of real processes that commit several real containers together.
//!
//! What must be there, and what may, is noted beside the containers' memory: of each block the write that has begun,
//! the one that ended and the one that was committed. Each block has one writer at a time.

use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pgshrink_cfs::group::{self, InTurn, Threads};
use pgshrink_cfs::{
    Birth, Budget, Container, Error, Folder, Geometry, Identity, KEY_BYTES, Options, Recovery, Scratch,
    Stored, segment,
};
use pgshrink_testkit::TempDir;
use pgshrink_testkit::seed::{Rng, Seed};

use crate::shell::{FileDevice, FileFolder, Pids, map};
use crate::workers::{self, kill};

const SEGMENTS: usize = 7;
const WORKERS: u32 = 4;
const BLOCKS: u32 = 8;
/// How long a lock that this program has let go may still be held.
const PATIENCE: Duration = Duration::from_secs(20);

type Open = Container<'static, FileDevice, Pids>;

fn options() -> Options<'static> {
    let geometry = Geometry { pages_max: 96, extent_units: 256, extents_max: 4000 };
    Options { geometry, ..Options::new(96) }
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::SeqCst)
}

/// The memory of all containers, and what is noted: three words for each block, and one for each segment: a commit of
/// it was refused.
#[derive(Clone, Copy)]
struct Shared(&'static [AtomicU64]);

impl Shared {
    fn of(folder: &Path) -> Shared {
        let noted = SEGMENTS * (BLOCKS as usize * 3 + 1);
        Shared(map(&folder.join("memory"), SEGMENTS * options().geometry.words() + noted))
    }

    fn words(self, segment: usize) -> &'static [AtomicU64] {
        let words = options().geometry.words();
        &self.0[segment * words..][..words]
    }

    fn refused(self, segment: usize) -> &'static AtomicU64 {
        &self.0[SEGMENTS * options().geometry.words() + segment]
    }

    /// The writes of a block that has begun, ended, was committed.
    fn block(self, segment: usize, block: u32) -> &'static [AtomicU64] {
        let first = (segment * BLOCKS as usize + block as usize) * 3;
        &self.0[SEGMENTS * (options().geometry.words() + 1) + first..][..3]
    }

    fn ended(self, segment: usize) -> Vec<u64> {
        (0..BLOCKS).map(|block| load(&self.block(segment, block)[1])).collect()
    }

    fn committed(self, segment: usize, ended: &[u64]) {
        for (block, ended) in (0..).zip(ended) {
            self.block(segment, block)[2].fetch_max(*ended, Ordering::SeqCst);
        }
    }
}

fn home(folder: &Path, segment: usize) -> FileFolder {
    FileFolder(folder.join(segment.to_string()))
}

fn open(folder: &Path, shared: Shared, segment: usize) -> Open {
    let begun = Instant::now();
    loop {
        let file = home(folder, segment).open(segment::FILE_NAME).unwrap();
        match Container::open(file, Pids, shared.words(segment), Recovery::Discard, options()) {
            // A process that another test of this program has forked has this one's descriptors, and so their locks, until
            // it becomes another program.
            Err(Error::InUse) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened.unwrap().0,
        }
    }
}

fn payload(segment: usize, block: u32, value: u64) -> Vec<u8> {
    let mut rng = Seed(value * 10_000 + segment as u64 * u64::from(BLOCKS) + u64::from(block)).rng();
    let mut payload = Vec::from(value.to_le_bytes());
    let length = rng.between(50, 2500);
    payload.extend_from_slice(&rng.bytes(length));
    payload
}

/// The number of the write that is found; 0: there is no page.
fn found(container: &Open, segment: usize, block: u32, scratch: &mut Scratch) -> u64 {
    match container.read(block, scratch) {
        Err(Error::PastEnd { .. }) | Ok(Stored::Zeros) => 0,
        Ok(Stored::Base(_)) => unreachable!("no test of these has a base"),
        Err(error) => panic!("{segment} {block}: {error}"),
        Ok(Stored::Record { payload: bytes, .. }) => {
            let value = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert!(bytes == payload(segment, block, value), "{segment} {block} has what nobody wrote");
            value
        }
    }
}

struct Worker {
    shared: Shared,
    containers: Vec<Open>,
    number: u32,
    rng: Rng,
    scratch: Scratch,
}

impl Worker {
    /// Its life, until it is killed.
    fn work(&mut self) {
        loop {
            let segment = self.rng.below(SEGMENTS);
            let block = self.rng.below(BLOCKS as usize) as u32;
            match self.rng.below(40) {
                0..14 => self.read(segment, block),
                14..30 => self.write(segment, block / WORKERS * WORKERS + self.number),
                30..33 => {
                    let ended = self.shared.ended(segment);
                    let done = self.containers[segment].commit().map(drop);
                    self.note(segment, &ended, done);
                }
                33..39 => self.group(),
                _ => {
                    self.containers[segment]
                        .collect(Budget { bytes: 64 << 10, garbage_percent: 30 })
                        .map(drop)
                        .unwrap();
                }
            }
        }
    }

    fn read(&mut self, segment: usize, block: u32) {
        let from = load(&self.shared.block(segment, block)[1]);
        let found = found(&self.containers[segment], segment, block, &mut self.scratch);
        let to = load(&self.shared.block(segment, block)[0]);
        assert!((from..=to).contains(&found), "{segment} {block} is {found}, may be {from} to {to}");
    }

    fn write(&mut self, segment: usize, block: u32) {
        let words = self.shared.block(segment, block);
        let value = load(&words[0]) + 1;
        words[0].store(value, Ordering::SeqCst);
        let page = payload(segment, block, value);
        self.containers[segment].write(block, 1, 0, &page, &mut self.scratch).unwrap();
        words[1].store(value, Ordering::SeqCst);
    }

    /// Commits some, in any order, now and then with one of them twice.
    fn group(&mut self) {
        let mut segments: Vec<usize> = (0..SEGMENTS).filter(|_| self.rng.chance(60)).collect();
        let first = self.rng.below(SEGMENTS);
        segments.sort_by_key(|segment| (segment + first) % SEGMENTS);
        segments.extend(segments.first().copied().filter(|_| self.rng.chance(20)));
        let ended: Vec<Vec<u64>> = segments.iter().map(|segment| self.shared.ended(*segment)).collect();
        let group: Vec<&Open> = segments.iter().map(|segment| &self.containers[*segment]).collect();
        let done = match self.rng.below(3) {
            0 => group::commit(&group, &InTurn),
            _ => group::commit(&group, &Threads { count: 3 }),
        };
        for ((segment, ended), done) in segments.iter().zip(&ended).zip(done) {
            self.note(*segment, ended, done.map(drop));
        }
    }

    fn note(&self, segment: usize, ended: &[u64], done: Result<(), Error>) {
        match done {
            Ok(()) => self.shared.committed(segment, ended),
            // A process was killed in an fsync of it.
            Err(Error::Poisoned) => self.shared.refused(segment).store(1, Ordering::SeqCst),
            Err(error) => panic!("segment {segment}: {error}"),
        }
    }
}

#[test]
#[ignore = "a process of the test of kills"]
fn worker() {
    let Some((folder, number)) = workers::called() else { return };
    let shared = Shared::of(&folder);
    let mut worker = Worker {
        shared,
        containers: (0..SEGMENTS).map(|segment| open(&folder, shared, segment)).collect(),
        number,
        rng: Seed(u64::from(std::process::id())).rng(),
        scratch: Scratch::new(),
    };
    worker.work();
}

fn spawn(folder: &Path, worker: u32) -> Child {
    workers::spawn("group_kills::worker", folder, worker)
}

/// The server starts again: nothing is in shared memory, and what was committed is there. Before that, nobody who
/// lives is kept from committing what no death has refused.
fn restart(folder: &Path, scratch: &mut Scratch) {
    let shared = Shared::of(folder);
    for segment in 0..SEGMENTS {
        let container = open(folder, shared, segment);
        let ended = shared.ended(segment);
        match container.commit() {
            Ok(_) => shared.committed(segment, &ended),
            Err(Error::Poisoned) => {}
            Err(error) => panic!("segment {segment}: {error}"),
        }
    }
    for segment in 0..SEGMENTS {
        shared.words(segment).iter().for_each(|word| word.store(0, Ordering::SeqCst));
        shared.refused(segment).store(0, Ordering::SeqCst);
        let container = open(folder, shared, segment);
        for block in 0..BLOCKS {
            let words = shared.block(segment, block);
            let found = found(&container, segment, block, scratch);
            let (from, to) = (load(&words[2]), load(&words[0]));
            assert!((from..=to).contains(&found), "{segment} {block} is {found}, may be {from} to {to}");
            words.iter().for_each(|word| word.store(found, Ordering::SeqCst));
        }
    }
}

fn many_kills(kills: u32) {
    let scratch = TempDir::new().unwrap();
    let folder = scratch.path().to_owned();
    let shared = Shared::of(&folder);
    for segment in 0..SEGMENTS {
        std::fs::create_dir(home(&folder, segment).0).unwrap();
        let birth = Birth { id: [segment as u8; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
        segment::create(&home(&folder, segment), Pids, shared.words(segment), &birth, options()).unwrap();
    }
    let mut rng = Seed::from_env_or_time().rng();
    let mut scratch = Scratch::new();
    let mut refused = 0;
    let mut workers: Vec<Child> = (0..WORKERS).map(|worker| spawn(&folder, worker)).collect();
    for killed in 1..=kills {
        std::thread::sleep(Duration::from_micros(rng.between(500, 40_000) as u64));
        let worker = rng.below(workers.len());
        kill(workers.remove(worker));
        // Its blocks have one writer at a time.
        workers.insert(worker, spawn(&folder, worker as u32));
        let count = (0..SEGMENTS).filter(|segment| load(shared.refused(*segment)) != 0).count();
        if killed % 25 == 0 || count > SEGMENTS / 2 {
            refused += count;
            workers.drain(..).for_each(kill);
            restart(&folder, &mut scratch);
            workers = (0..WORKERS).map(|worker| spawn(&folder, worker)).collect();
        }
    }
    workers.drain(..).for_each(kill);
    restart(&folder, &mut scratch);
    let commits: u64 =
        (0..SEGMENTS).map(|segment| open(&folder, shared, segment).commit().map(|_| 1).unwrap()).sum();
    assert_eq!(commits, SEGMENTS as u64);
    println!("{kills} kills, {refused} containers refused commits after one");
}

#[test]
fn killed_processes_that_commit_together_harm_nobody() {
    many_kills(80);
}

#[test]
#[ignore = "minutes: thousands of kills"]
fn thousands_of_killed_processes_that_commit_together_harm_nobody() {
    many_kills(3000);
}
