//! kill -9 of real processes that share one real container.
//!
//! The page cache survives a kill, so this proves nothing about power; it proves that what a process leaves in the shared memory
//! at any instruction harms nobody.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pgshrink_cfs::{
    Birth, Budget, Container, Error, Folder, Geometry, Identity, KEY_BYTES, Options, Recovery, Scratch,
    Stored, Tuning, segment,
};
use pgshrink_testkit::seed::{Rng, Seed};

use crate::shell::{FileDevice, FileFolder, Pids, map};

const PAGES: u32 = 96;
const WORKERS: u32 = 3;
const FOLDER: &str = "PGSHRINK_CFS_KILLS";
const WORKER: &str = "PGSHRINK_CFS_WORKER";

type Open = Container<'static, FileDevice, Pids>;

/// Behind the container's words, per block: the last write begun, completed, and covered by a commit.
struct Progress(&'static [AtomicU64]);

impl Progress {
    fn begun(&self, block: u32) -> &AtomicU64 {
        &self.0[block as usize * 3]
    }

    fn completed(&self, block: u32) -> &AtomicU64 {
        &self.0[block as usize * 3 + 1]
    }

    /// A commit was refused: a process was killed in an fsync. Until the server starts again, nobody commits.
    fn refused(&self) -> &AtomicU64 {
        &self.0[PAGES as usize * 3]
    }

    fn durable(&self, block: u32) -> &AtomicU64 {
        &self.0[block as usize * 3 + 2]
    }
}

fn options() -> Options<'static> {
    let geometry = Geometry { pages_max: PAGES, zone_grains: 256, zones_max: 4000 };
    let tuning = Tuning { inline_max: 20, deltas_max: 4, changes_min: 60, ..Tuning::default() };
    Options { geometry, tuning, ..Options::new(PAGES) }
}

fn memory(folder: &Path) -> (&'static [AtomicU64], Progress) {
    let words = options().geometry.words();
    let all = map(&folder.join("memory"), words + PAGES as usize * 3 + 1);
    (&all[..words], Progress(&all[words..]))
}

fn open(folder: &Path, words: &'static [AtomicU64]) -> Result<Open, Error> {
    let file = FileFolder(folder.to_owned()).open(segment::FILE_NAME).unwrap();
    Container::open(file, Pids, words, Recovery::Discard, options()).map(|(container, _)| container)
}

fn payload(block: u32, count: u64) -> Vec<u8> {
    let mut rng = Seed(count * 1000 + u64::from(block)).rng();
    let mut payload = Vec::from(count.to_le_bytes());
    let length = rng.between(50, 2500);
    payload.extend_from_slice(&rng.bytes(length));
    payload
}

fn count_of(container: &Open, block: u32, scratch: &mut Scratch) -> Result<u64, Error> {
    Ok(match container.read(block, scratch)? {
        Stored::Zeros => 0,
        Stored::Record { payload: found, .. } => {
            let count = u64::from_le_bytes(found[..8].try_into().unwrap());
            assert!(found == payload(block, count), "block {block} has what nobody wrote");
            count
        }
    })
}

/// A worker's life, until it is killed.
fn work(folder: &Path, worker: u32) {
    let (words, progress) = memory(folder);
    let container = open(folder, words).unwrap();
    let mut rng = Seed(u64::from(std::process::id())).rng();
    let mut scratch = Scratch::new();
    loop {
        match rng.below(100) {
            0..50 if progress.refused().load(Ordering::SeqCst) == 0 => {
                write(&container, &progress, worker, &mut rng, &mut scratch)
            }
            50..85 => {
                let block = rng.below(PAGES as usize) as u32;
                let at_least = progress.completed(block).load(Ordering::SeqCst);
                let found = count_of(&container, block, &mut scratch).unwrap();
                assert!(found >= at_least, "block {block} reads {found}, completed was {at_least}");
            }
            85..93 => commit(&container, &progress),
            _ => {
                container.collect(Budget { bytes: 64 << 10, garbage_percent: 30 }).unwrap();
            }
        }
    }
}

fn write(container: &Open, progress: &Progress, worker: u32, rng: &mut Rng, scratch: &mut Scratch) {
    // Each block has one writer, as PostgreSQL sees to.
    let block = rng.below((PAGES / WORKERS) as usize) as u32 * WORKERS + worker;
    let count = progress.begun(block).fetch_add(1, Ordering::SeqCst) + 1;
    container.write(block, 1, 0, &payload(block, count), scratch).unwrap();
    progress.completed(block).store(count, Ordering::SeqCst);
}

fn commit(container: &Open, progress: &Progress) {
    let completed: Vec<u64> =
        (0..PAGES).map(|block| progress.completed(block).load(Ordering::SeqCst)).collect();
    match container.commit() {
        Ok(_) => (0..PAGES).zip(completed).for_each(|(block, count)| {
            progress.durable(block).fetch_max(count, Ordering::SeqCst);
        }),
        Err(Error::Poisoned) => progress.refused().store(1, Ordering::SeqCst),
        Err(error) => panic!("{error}"),
    }
}

#[test]
#[ignore = "a process of the test of kills"]
fn worker() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    work(&folder, std::env::var(WORKER).unwrap().parse().unwrap());
}

fn spawn(folder: &Path, worker: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["kills::worker", "--exact", "--ignored", "--nocapture"]);
    command.stdout(std::process::Stdio::null());
    command.env(FOLDER, folder).env(WORKER, worker.to_string()).spawn().unwrap()
}

fn kill(mut child: Child) {
    if let Some(status) = child.try_wait().unwrap() {
        panic!("a worker found something wrong: {status}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The server starts again: nothing is in shared memory, and what was committed is there.
fn restart(folder: &Path) {
    let (words, progress) = memory(folder);
    words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    let container = open(folder, words).unwrap();
    progress.refused().store(0, Ordering::SeqCst);
    let mut scratch = Scratch::new();
    for block in 0..container.pages() {
        let found = count_of(&container, block, &mut scratch).unwrap();
        let (durable, begun) = (progress.durable(block), progress.begun(block));
        let (at_least, at_most) = (durable.load(Ordering::SeqCst), begun.load(Ordering::SeqCst));
        assert!((at_least..=at_most).contains(&found), "block {block}: {found} of {at_least}..={at_most}");
        progress.completed(block).store(found, Ordering::SeqCst);
    }
}

fn many_kills(kills: u32) {
    let scratch = pgshrink_testkit::scratch::TempDir::new().unwrap();
    let folder = scratch.path().to_owned();
    let (words, progress) = memory(&folder);
    let birth = Birth { id: [9; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
    let container = segment::create(&FileFolder(folder.clone()), Pids, words, &birth, options()).unwrap();
    container.extend(PAGES).unwrap();
    container.commit().unwrap();
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
