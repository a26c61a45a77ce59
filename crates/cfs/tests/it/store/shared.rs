//! Stores of several threads over one real file: who reads ranges meets writers, commits and the collector.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::shell::{FileDevice, FileFolder};
use pgshrink_cfs::{Birth, Identity, KEY_BYTES, Tuning};
use pgshrink_testkit::TempDir;

const PAGES: u32 = 200;
const WRITERS: u32 = 2;
const LASTING: Duration = Duration::from_millis(1500);

struct Segment {
    folder: TempDir,
    words: Vec<AtomicU64>,
    /// Of each page: the generation that is being written, and the last one that was.
    begun: Vec<AtomicU32>,
    done: Vec<AtomicU32>,
    is_over: AtomicBool,
}

impl Segment {
    fn options() -> Options<'static> {
        // Space is used again soon.
        Options { tuning: Tuning { free_bytes_min: 16 << 10, ..Tuning::default() }, ..Options::new(1024) }
    }

    fn new() -> Segment {
        let words = (0..Self::options().geometry.words()).map(|_| AtomicU64::new(0)).collect();
        let counts = || (0..PAGES).map(|_| AtomicU32::new(0)).collect();
        let is_over = AtomicBool::new(false);
        Segment { folder: TempDir::new().unwrap(), words, begun: counts(), done: counts(), is_over }
    }

    fn folder(&self) -> FileFolder {
        FileFolder(self.folder.path().to_owned())
    }

    fn create(&self) -> PageStore<'_, FileDevice> {
        let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
        let made = segment::create(&self.folder(), Alone, &self.words, &birth, Self::options());
        PageStore::new(made.unwrap()).unwrap()
    }

    fn open(&self) -> PageStore<'_, FileDevice> {
        let file = self.folder().open(segment::FILE_NAME).unwrap();
        let opened = Container::open(file, Alone, &self.words, Recovery::Discard, Self::options());
        PageStore::new(opened.unwrap().0).unwrap()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Each page is one writer's.
    fn write(&self, writer: u32) {
        let (store, mut workspace) = (self.open(), workspace());
        let mut rng = Seed::from_env_or_time().rng();
        while !self.is_over() {
            let block = rng.below((PAGES / WRITERS) as usize) as u32 * WRITERS + writer;
            let generation = self.begun[block as usize].fetch_add(1, Ordering::SeqCst) + 1;
            let how = Writing { verify: generation.is_multiple_of(2), ..by(Algorithm::Lz4, 1) };
            store.write(block, &page(block, generation), &how, &mut workspace).unwrap();
            self.done[block as usize].store(generation, Ordering::SeqCst);
        }
    }

    fn tidy(&self) {
        let store = self.open();
        while !self.is_over() {
            store.container().commit().unwrap();
            store.container().collect(Budget { bytes: 64 << 10, garbage_percent: 2 }).unwrap();
        }
    }

    /// Returns the ranges read.
    fn read(&self) -> u64 {
        let (store, mut workspace) = (self.open(), workspace());
        let mut rng = Seed::from_env_or_time().rng();
        let mut pages = vec![[0; 8192]; 40];
        let mut ranges = 0;
        let end = Instant::now() + LASTING;
        while Instant::now() < end {
            let first = rng.below(PAGES as usize - 1);
            let count = rng.between(1, (PAGES as usize - first).min(pages.len()));
            let load = |all: &[AtomicU32]| -> Vec<u32> {
                all[first..first + count].iter().map(|word| word.load(Ordering::SeqCst)).collect()
            };
            let from = load(&self.done);
            let faults = store.read_range(first as u32, pages[..count].iter_mut(), &mut workspace);
            let to = load(&self.begun);
            assert!(faults.is_empty(), "{faults:?}");
            for (index, found) in pages[..count].iter().enumerate() {
                let block = (first + index) as u32;
                let mut allowed = from[index]..=to[index];
                assert!(allowed.any(|generation| *found == page(block, generation)), "block {block}");
            }
            ranges += 1;
        }
        ranges
    }
}

#[test]
fn p1_ranges_read_beside_writers_commits_and_the_collector_are_pages_of_their_time() {
    let segment = Segment::new();
    let store = segment.create();
    let pages: Vec<Page> = (0..PAGES).map(|block| page(block, 0)).collect();
    store.write_range(0, &pages, &Writing::default(), &mut workspace()).unwrap();
    store.container().commit().unwrap();
    drop(store);
    let (ranges, writes) = std::thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| {
            scope.spawn({
                let segment = &segment;
                move || segment.write(writer)
            })
        });
        let mut workers: Vec<_> = writers.collect();
        workers.push(scope.spawn(|| segment.tidy()));
        let reader = scope.spawn(|| segment.read());
        let ranges = reader.join();
        segment.is_over.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        (ranges.unwrap(), segment.done.iter().map(|done| done.load(Ordering::Relaxed)).sum::<u32>())
    });
    println!("{ranges} ranges, {writes} writes");
    assert!(ranges > 20 && writes > 20);
}
