//! The map in memory: loaded leaf by leaf, and what that costs; damaged leaves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::region::FIXED_WORDS;
use pgshrink_cfs::sim::Disk;
use pgshrink_cfs::word::Word;
use pgshrink_cfs::{
    Birth, Budget, Container, Device, Error, Folder, Geometry, Identity, KEY_BYTES, Options, Recovery,
    Scratch, Stored, Tuning, segment,
};

use crate::fixture::{Bench, Open, read};
use crate::plan::wide_options;
use crate::shell;
use crate::updates::Memory;

/// Entries of a leaf.
const LEAF: usize = 512;
/// Bytes of memory of the fixed words.
const FIXED_BYTES: u64 = FIXED_WORDS as u64 * 8;

/// A word that knows whether it was looked at.
struct Seen {
    word: AtomicU64,
    seen: AtomicBool,
}

impl Seen {
    fn word(&self) -> &AtomicU64 {
        self.seen.store(true, Ordering::Relaxed);
        &self.word
    }
}

impl Word for Seen {
    fn load(&self) -> u64 {
        Word::load(self.word())
    }

    fn store(&self, value: u64) {
        Word::store(self.word(), value);
    }

    fn swap_if(&self, current: u64, new: u64) -> Result<(), u64> {
        self.word().swap_if(current, new)
    }

    fn add(&self, value: u64) -> u64 {
        Word::add(self.word(), value)
    }
}

fn seen_words(geometry: Geometry) -> Vec<Seen> {
    (0..geometry.words()).map(|_| Seen { word: 0.into(), seen: false.into() }).collect()
}

/// Which memory pages were looked at, by number.
fn pages_seen(words: &[Seen]) -> Vec<usize> {
    let is_seen = |page: &[Seen]| page.iter().any(|word| word.seen.load(Ordering::Relaxed));
    words.chunks(LEAF).enumerate().filter(|(_, page)| is_seen(page)).map(|(number, _)| number).collect()
}

/// A closed segment of the usual size with short records in so many pages.
pub fn long(pages: u32) -> (Memory, Options<'static>) {
    let (file, options) = (Memory::default(), Options::new(1 << 17));
    let words: Vec<AtomicU64> = (0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect();
    let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
    let container = Container::create(&file, Alone, words.as_slice(), &birth, options).unwrap();
    let mut scratch = Scratch::new();
    for block in 0..pages {
        container.write(block, 1, 0, &block.to_le_bytes(), &mut scratch).unwrap();
    }
    container.close().unwrap();
    (file, options)
}

pub fn open<'m, W: Word>(
    file: &'m Memory,
    words: &'m [W],
    options: Options<'m>,
) -> Container<'m, &'m Memory, Alone, W> {
    Container::open(file, Alone, words, Recovery::Discard, options).unwrap().0
}

pub fn number<W: Word>(container: &Container<'_, &Memory, Alone, W>, block: u32) -> Result<u32, Error> {
    let mut scratch = Scratch::new();
    match container.read(block, &mut scratch)? {
        Stored::Record { payload, .. } => Ok(u32::from_le_bytes(payload.try_into().unwrap())),
        Stored::Zeros => panic!("block {block} is empty"),
        Stored::Base(_) => unreachable!("no test of these has a base"),
    }
}

#[test]
fn opening_a_whole_segment_touches_fixed_memory_and_a_read_one_page_of_it_more() {
    let (file, options) = long(1 << 17);
    let words = seen_words(options.geometry);
    let container = open(&file, &words, options);
    let extents = FIXED_WORDS / LEAF + (1 << 17) / LEAF;
    let at_opening = pages_seen(&words);
    let fixed: Vec<usize> = (0..FIXED_WORDS / LEAF).collect();
    assert!(at_opening.starts_with(&fixed) && at_opening.len() == fixed.len() + 1, "{at_opening:?}");
    assert!(at_opening[fixed.len()] >= extents, "the last extent's word: {at_opening:?}");
    for block in [70_000, 70_100] {
        assert_eq!(number(&container, block).unwrap(), block);
    }
    let mut expected = at_opening.clone();
    expected.insert(fixed.len(), FIXED_WORDS / LEAF + 70_000 / LEAF);
    assert_eq!(pages_seen(&words), expected);
    // A write needs no leaf, a small commit neither.
    container.write(9, 1, 0, &[9, 0, 0, 0], &mut Scratch::new()).unwrap();
    container.commit().unwrap();
    expected.insert(fixed.len(), FIXED_WORDS / LEAF);
    assert_eq!(pages_seen(&words), expected);
    let stats = container.stats();
    assert!(stats.touched_leaves == 2 && !stats.map_is_complete, "{stats:?}");
    assert_eq!((number(&container, 9), number(&container, 10)), (Ok(9), Ok(10)));
    container.complete().unwrap();
    assert!(container.stats().map_is_complete);
    (0..1 << 17).for_each(|block| assert_eq!(number(&container, block), Ok(block)));
}

#[test]
fn shared_memory_that_nobody_touched_is_not_allocated() {
    let (file, options) = long(1 << 17);
    let (memory, words) = shell::anonymous(options.geometry.words());
    let container = open(&file, words, options);
    assert_eq!(number(&container, 1000).unwrap(), 1000);
    container.write(2000, 1, 0, &2000u32.to_le_bytes(), &mut Scratch::new()).unwrap();
    container.commit().unwrap();
    let allocated = shell::allocated_bytes(&memory);
    // Two leaves, and extents at the old and the new end of the file, which may lie in two pages of memory.
    println!("{allocated} bytes of shared memory for a segment of 1 GB with two leaves in use");
    assert!(allocated <= FIXED_BYTES + 4096 * (2 + 2), "{allocated}");
    container.complete().unwrap();
    println!("{} bytes with the whole map", shell::allocated_bytes(&memory));
}

#[test]
fn opening_reads_no_more_of_a_long_segment_than_of_a_short_one() {
    let reads = |pages| {
        let (file, options) = long(pages);
        let words: Vec<AtomicU64> = (0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect();
        file.reads.set(0);
        let container = open(&file, &words, options);
        let at_opening = file.reads.get();
        file.reads.set(0);
        assert_eq!(number(&container, pages - 1), Ok(pages - 1));
        // The leaf, and the page.
        assert_eq!(file.reads.replace(0), 2);
        assert_eq!(number(&container, pages - 2), Ok(pages - 2));
        assert_eq!(file.reads.get(), 1);
        at_opening
    };
    let (short, long) = (reads(4096), reads(1 << 17));
    assert_eq!((short, long), (4, 4), "three superblock slots and the index");
}

#[test]
fn space_that_was_free_is_used_again_when_the_file_has_grown() {
    let (file, options) = long(20_000);
    let words: Vec<AtomicU64> = (0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect();
    let container = open(&file, &words, options);
    let before = container.stats().allocated_bytes;
    for round in 0..40 {
        for block in (0..20_000).step_by(10) {
            container.write(block, 1, 0, &block.to_le_bytes(), &mut Scratch::new()).unwrap();
        }
        container.commit().unwrap();
        container.collect(Budget { bytes: 1 << 20, garbage_percent: 20 }).unwrap();
        assert_eq!(number(&container, round), Ok(round));
    }
    let stats = container.stats();
    assert!(stats.map_is_complete && stats.allocated_bytes < before * 3 / 2, "{before}, then {stats:?}");
    (0..20_000).for_each(|block| assert_eq!(number(&container, block), Ok(block)));
}

/// The file's size after openings that each write some pages anew and close.
fn size_after_openings(sparse_divisor: u64) -> u64 {
    let (file, options) = long(20_000);
    let tuning = Tuning { sparse_divisor, ..options.tuning };
    let options = Options { tuning, ..options };
    for round in 0..200 {
        let words: Vec<AtomicU64> = (0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect();
        let container = open(&file, &words, options);
        let first = round * 400 % 20_000;
        for block in first..first + 400 {
            container.write(block, 1, 0, &block.to_le_bytes(), &mut Scratch::new()).unwrap();
        }
        container.close().unwrap();
    }
    (&file).size().unwrap()
}

#[test]
fn many_short_openings_do_not_make_the_file_longer_and_longer() {
    let [always, never] = [u64::MAX, 0].map(size_after_openings);
    let as_it_is = size_after_openings(Tuning::default().sparse_divisor);
    println!("{as_it_is} bytes; {always} if all is loaded at once, {never} if nothing ever is");
    assert!(as_it_is < always * 5 / 4 && never > always * 3);
}

type Work = Box<dyn FnOnce()>;

/// Reads page 600, cut off while its leaf is being read, and made anew afterwards.
fn read_during_truncation(fault: Fault) -> Vec<u8> {
    let steps = Rc::new(Cell::new(0));
    let then: Rc<RefCell<Option<Work>>> = Rc::default();
    let (counted, once) = (steps.clone(), then.clone());
    let mut bench = Bench::new(wide_options(fault, 0));
    bench.disk = Disk::new(1, move || {
        counted.set(counted.get() + 1);
        // A pause before the entry is believed to be missing; then the leaf was read, and its content waits.
        if counted.get() == 2
            && let Some(work) = once.take()
        {
            work();
        }
    });
    bench.disk.set_locks_ignored(true);
    let container = bench.create(1);
    (0..WIDE_PAGES).for_each(|block| write(&container, block, 1));
    container.close().unwrap();
    let words = bench.words();
    let (container, _) = bench.open_in(words).unwrap();
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    let other = Container::open(file, Alone, words, Recovery::Discard, bench.options).unwrap().0;
    then.replace(Some(Box::new(move || other.truncate(550).unwrap())));
    steps.set(0);
    let while_cut = read(&container, 600);
    assert!(then.take().is_none() && (fault != Fault::None || while_cut.is_err()), "{while_cut:?}");
    container.extend(700).unwrap();
    let page = read(&container, 600).unwrap();
    assert_eq!(read(&container, 540).unwrap(), content(540, 1));
    page
}

#[test]
fn i14_truncated_pages_are_not_brought_back_by_a_late_loader_and_the_injected_one_is_caught() {
    assert_eq!(read_during_truncation(Fault::None), Vec::<u8>::new());
    assert_eq!(read_during_truncation(Fault::LoaderForgetsTruncation), content(600, 1));
}

pub const WIDE_PAGES: u32 = 1300;

/// Short, so that many pages are a small file.
pub fn content(block: u32, generation: u32) -> Vec<u8> {
    format!("block {block} generation {generation}").into_bytes()
}

pub fn write(container: &Open<'_>, block: u32, generation: u32) {
    container.write(block, 1, 0, &content(block, generation), &mut Scratch::new()).unwrap();
}

/// A closed container of three leaves, the record of the second one damaged.
fn with_a_damaged_leaf(sparse_divisor: u64) -> Bench {
    let mut bench = Bench::new(wide_options(Fault::None, 0));
    let container = bench.create(1);
    (0..WIDE_PAGES).for_each(|block| write(&container, block, 1));
    container.close().unwrap();
    let mut bytes = bench.bytes();
    let mut damaged = 0;
    for at in (12288..bytes.len() - 32).step_by(16) {
        // A leaf's kind, and its number.
        if bytes[at + 7] & 128 != 0 && bytes[at + 14..at + 18] == [0, 1, 1, 0] {
            bytes[at + 40] ^= 1;
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    bench.set_bytes(bytes);
    // Whether or not opening tries to load it.
    bench.options.tuning.sparse_divisor = sparse_divisor;
    bench
}

fn assert_named(error: &Error) {
    let text = error.to_string();
    assert!(text.starts_with("damaged map leaf of blocks 512 to 1023: checksum should be"), "{text}");
}

#[test]
fn a_damaged_leaf_is_named_by_its_pages_and_harms_no_others() {
    let bench = with_a_damaged_leaf(u64::MAX);
    let (container, _) = bench.open().unwrap();
    for block in (0..512).chain(1024..WIDE_PAGES) {
        assert_eq!(read(&container, block).unwrap(), content(block, 1));
    }
    (512..1024).for_each(|block| assert_named(&read(&container, block).unwrap_err()));
    assert_named(&container.complete().unwrap_err());
    assert_named(&container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap_err());
}

#[test]
fn pages_of_a_damaged_leaf_are_written_and_committed_and_kept() {
    let bench = with_a_damaged_leaf(0);
    let (mut container, _) = bench.open().unwrap();
    let is_written = |block: u32| block.is_multiple_of(7);
    for generation in 2..30 {
        let blocks = (0..WIDE_PAGES).filter(|block| is_written(*block)).skip(generation as usize % 20);
        blocks.step_by(20).for_each(|block| write(&container, block, generation));
        container.commit().unwrap();
        if generation % 9 == 0 {
            bench.disk.lose_power();
            container = bench.open().unwrap().0;
        }
    }
    assert!(container.stats().map_checkpoints > 0);
    bench.disk.lose_power();
    let (container, _) = bench.open().unwrap();
    let mut kept = 0;
    for block in 512..1024 {
        match read(&container, block) {
            Ok(page) => {
                assert!((2..30).any(|generation| page == content(block, generation)), "block {block}");
                kept += 1;
            }
            Err(error) => assert!(!is_written(block), "block {block}: {error}"),
        }
    }
    assert!(kept > 70, "{kept}");
}

#[test]
fn a_damaged_leaf_is_cut_off_without_a_look_at_it() {
    for left in [700, 512, 0] {
        let bench = with_a_damaged_leaf(0);
        let (container, _) = bench.open().unwrap();
        container.truncate(left).unwrap();
        container.commit().unwrap();
        container.extend(900).unwrap();
        container.commit().unwrap();
        container.close().unwrap();
        let (container, _) = bench.open().unwrap();
        assert_eq!(container.pages(), 900);
        for block in 0..900 {
            match read(&container, block) {
                Ok(page) if block < left => assert_eq!(page, content(block, 1)),
                Ok(page) => assert!(page.is_empty()),
                Err(error) => {
                    assert_named(&error);
                    assert!(block < left);
                }
            }
        }
        assert_eq!(read(&container, 600).is_ok(), left <= 512);
        assert_eq!(container.complete().is_ok(), left <= 512);
    }
}

#[test]
fn a_root_that_says_too_little_about_the_files_end_is_refused_before_anything_is_cut() {
    let bench = Bench::new(wide_options(Fault::None, 0));
    let container = bench.create(1);
    (0..WIDE_PAGES).for_each(|block| write(&container, block, 1));
    container.close().unwrap();
    let whole = bench.bytes();
    for (end, expected) in
        [(769u64, "end in units should be at least"), (1 << 32, "end in units should be at most 307200")]
    {
        let mut bytes = whole.clone();
        for disk_block in bytes[..12288].chunks_exact_mut(4096) {
            disk_block[212..220].copy_from_slice(&end.to_le_bytes());
            disk_block[220..236].fill(0);
            let crc = crc32fast::hash(&disk_block[12..]);
            disk_block[8..12].copy_from_slice(&crc.to_le_bytes());
        }
        bench.set_bytes(bytes.clone());
        let error = bench.open().map(drop).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(bench.bytes(), bytes);
    }
}
