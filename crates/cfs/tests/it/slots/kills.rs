//! kill -9 of real processes that share fifty segments and a third as many slots.
//!
//! What must be there, and what may, is noted beside the region: of each block the write that has begun, the
//! one that ended and the one that was committed. Each block has one writer at a time, as PostgreSQL sees to.

use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pgshrink_cfs::slots::{Access, Member, Segment, Slots};
use pgshrink_cfs::{Error, Geometry, Scratch, Stored};
use pgshrink_testkit::seed::{Rng, Seed};
use rustix::fs::FlockOperation;

use super::real::{Running, Server};
use super::*;
use crate::shell::{FileDevice, FileFolder, map};
use crate::workers::{self, kill};

const SEGMENTS: u32 = 50;
const SLOTS: u32 = 16;
const WORKERS: u32 = 4;
const BLOCKS: u32 = 8;

type Joined = Member<'static, Running, AtomicU64>;
type Handle<'p> = Segment<'p, 'static, FileDevice, Running, AtomicU64>;

fn of_kills() -> Capacity {
    let geometry = Geometry { pages_max: 96, extent_units: 256, extents_max: 4000 };
    Capacity { geometry, segments_max: SLOTS, processes_max: 8 }
}

/// Three words for each block: the write that has begun, ended, was committed; then one: who was refused a
/// commit.
#[derive(Clone, Copy)]
struct Progress(&'static [AtomicU64]);

impl Progress {
    const WORDS: usize = (SEGMENTS * BLOCKS * 3) as usize + 1;

    fn block(&self, segment: u32, block: u32) -> [&AtomicU64; 3] {
        let first = ((segment * BLOCKS + block) * 3) as usize;
        [&self.0[first], &self.0[first + 1], &self.0[first + 2]]
    }

    fn refused(&self) -> &AtomicU64 {
        &self.0[Progress::WORDS - 1]
    }
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::SeqCst)
}

fn region(folder: &Path) -> (&'static [AtomicU64], Progress) {
    let words = of_kills().words();
    let all = map(&folder.join("memory"), words + Progress::WORDS);
    (&all[..words], Progress(&all[words..]))
}

fn payload(segment: u32, block: u32, value: u64) -> Vec<u8> {
    let mut rng = Seed(value * 10_000 + u64::from(segment * BLOCKS + block)).rng();
    let mut payload = Vec::from(value.to_le_bytes());
    let length = rng.between(50, 2500);
    payload.extend_from_slice(&rng.bytes(length));
    payload
}

/// The number of the write; 0: there is no page.
fn value_of(segment: u32, block: u32, read: Result<Stored<'_>, Error>) -> Result<u64, Error> {
    match read {
        Err(Error::PastEnd { .. }) | Ok(Stored::Zeros) => Ok(0),
        Ok(Stored::Base(_)) => unreachable!("no test of these has a base"),
        Err(error) => Err(error),
        Ok(Stored::Record { payload: found, .. }) => {
            let value = u64::from_le_bytes(found[..8].try_into().unwrap());
            assert!(found == payload(segment, block, value), "{segment} {block} has what nobody wrote");
            Ok(value)
        }
    }
}

struct Worker<'p> {
    member: &'p Joined,
    server: Server,
    progress: Progress,
    number: u32,
    rng: Rng,
    scratch: Scratch,
    handles: Vec<Option<Handle<'p>>>,
}

impl<'p> Worker<'p> {
    /// Its life, until it is killed.
    fn work(&mut self) {
        loop {
            let segment = self.rng.below(SEGMENTS as usize) as u32;
            // PostgreSQL's lock of a relation.
            let lock =
                std::fs::File::options().append(true).open(self.server.folder_of(&key(segment)).join("lock"));
            let lock = lock.unwrap();
            let remakes = self.rng.below(200) == 0;
            let how = if remakes { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
            rustix::fs::flock(&lock, how).unwrap();
            let done = if remakes { self.remake(segment) } else { self.use_segment(segment) };
            match done {
                Ok(()) => {}
                Err(Error::Poisoned) => self.progress.refused().store(1, Ordering::SeqCst),
                Err(Error::SegmentGone { .. }) => self.handles[segment as usize] = None,
                // Who was to make it anew was killed.
                Err(Error::Device { source: DeviceError::NotFound, .. }) => {
                    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
                    self.remake(segment).unwrap();
                }
                Err(error) => panic!("segment {segment}: {error}"),
            }
        }
    }

    fn use_segment(&mut self, segment: u32) -> Result<(), Error> {
        let Worker { member, server, progress, rng, scratch, .. } = self;
        let handle = match &mut self.handles[segment as usize] {
            Some(handle) => handle,
            none => none.insert(Segment::new(*member, key(segment))?),
        };
        let block = rng.below(BLOCKS as usize) as u32;
        match rng.below(20) {
            0..8 => {
                let from = load(progress.block(segment, block)[1]);
                let found = handle.pin(Access::Read, server)?.read(block, scratch);
                let found = value_of(segment, block, found)?;
                let to = load(progress.block(segment, block)[0]);
                assert!((from..=to).contains(&found), "{segment} {block} is {found}, may be {from} to {to}");
            }
            8..16 => {
                let block = block / WORKERS * WORKERS + self.number;
                let [begun, completed, _] = progress.block(segment, block);
                let pinned = handle.pin(Access::Write, server)?;
                let value = load(begun) + 1;
                begun.store(value, Ordering::SeqCst);
                pinned.write(block, 1, 0, &payload(segment, block, value), scratch)?;
                completed.store(value, Ordering::SeqCst);
            }
            16..18 => {
                let ended: Vec<u64> =
                    (0..BLOCKS).map(|block| load(progress.block(segment, block)[1])).collect();
                handle.pin(Access::Write, server)?.commit()?;
                for (block, ended) in (0..).zip(ended) {
                    progress.block(segment, block)[2].fetch_max(ended, Ordering::SeqCst);
                }
            }
            18 => drop(member.evict(&key(segment))?),
            _ => self.handles[segment as usize] = None,
        }
        Ok(())
    }

    /// With nobody else there.
    fn remake(&mut self, segment: u32) -> Result<(), Error> {
        let folder = FileFolder(self.server.folder_of(&key(segment)));
        segment::unlink(&folder).unwrap();
        self.member.invalidate(&key(segment))?;
        for block in 0..BLOCKS {
            self.progress.block(segment, block).iter().for_each(|word| word.store(0, Ordering::SeqCst));
        }
        self.handles[segment as usize] = Some(self.server.create(self.member, segment, self.rng.bits())?);
        Ok(())
    }
}

fn server(folder: &Path) -> Server {
    let geometry = of_kills().geometry;
    Server { root: folder.to_owned(), number: 1, options: Options { geometry, ..Options::new(96) } }
}

#[test]
#[ignore = "a process of the test of kills"]
fn worker() {
    let Some((folder, number)) = workers::called() else { return };
    let (words, progress) = region(&folder);
    let member = Member::enter(Slots::over(words, of_kills()).unwrap(), Running).unwrap();
    let mut worker = Worker {
        member: &member,
        server: server(&folder),
        progress,
        number,
        rng: Seed(u64::from(std::process::id())).rng(),
        scratch: Scratch::new(),
        handles: (0..SEGMENTS).map(|_| None).collect(),
    };
    worker.work();
}

fn spawn(folder: &Path, worker: u32) -> Child {
    workers::spawn("slots::kills::worker", folder, worker)
}

/// The server starts again: nothing is in shared memory, and what was committed is there. Returns the
/// evictions of its life.
fn restart(folder: &Path) -> u64 {
    let (words, progress) = region(folder);
    let join = || Member::enter(Slots::over(words, of_kills()).unwrap(), Running).unwrap();
    let evictions = join().usage().evictions;
    words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    progress.refused().store(0, Ordering::SeqCst);
    let (member, server) = (join(), server(folder));
    for segment in 0..SEGMENTS {
        let mut handle = Handle::new(&member, key(segment)).unwrap();
        let pinned = match handle.pin(Access::Read, &server) {
            // Killed while it was made anew.
            Err(Error::Device { source: DeviceError::NotFound, .. }) => continue,
            pinned => pinned.unwrap(),
        };
        for block in 0..BLOCKS {
            let words = progress.block(segment, block);
            let found = value_of(segment, block, pinned.read(block, &mut Scratch::new())).unwrap();
            let (from, to) = (load(words[2]), load(words[0]));
            assert!((from..=to).contains(&found), "{segment} {block} is {found}, may be {from} to {to}");
            words.iter().for_each(|word| word.store(found, Ordering::SeqCst));
        }
    }
    drop(member);
    words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    evictions
}

fn many_kills(kills: u32) {
    let scratch = pgshrink_testkit::scratch::TempDir::new().unwrap();
    let folder = scratch.path().to_owned();
    let (words, progress) = region(&folder);
    {
        let member = Member::enter(Slots::over(words, of_kills()).unwrap(), Running).unwrap();
        for segment in 0..SEGMENTS {
            let at = server(&folder).folder_of(&key(segment));
            std::fs::create_dir(&at).unwrap();
            std::fs::write(at.join("lock"), "").unwrap();
            server(&folder).create(&member, segment, segment.into()).unwrap();
        }
    }
    let mut rng = Seed::from_env_or_time().rng();
    let mut evictions = 0;
    let mut workers: Vec<Child> = (0..WORKERS).map(|worker| spawn(&folder, worker)).collect();
    for killed in 1..=kills {
        std::thread::sleep(Duration::from_micros(rng.between(500, 40_000) as u64));
        let worker = rng.below(workers.len());
        kill(workers.remove(worker));
        // Its blocks have one writer at a time.
        workers.insert(worker, spawn(&folder, worker as u32));
        if killed % 25 == 0 || load(progress.refused()) != 0 {
            workers.drain(..).for_each(kill);
            evictions += restart(&folder);
            workers = (0..WORKERS).map(|worker| spawn(&folder, worker)).collect();
        }
    }
    workers.drain(..).for_each(kill);
    evictions += restart(&folder);
    println!("{kills} kills, {evictions} evictions");
    assert!(evictions > 0);
}

#[test]
fn killed_processes_of_fifty_segments_harm_nobody() {
    many_kills(60);
}

#[test]
#[ignore = "minutes: thousands of kills"]
fn thousands_of_killed_processes_of_fifty_segments_harm_nobody() {
    many_kills(2000);
}
