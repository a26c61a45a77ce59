//! What attacks from outside have found, one test or more for each. What needs a schedule is in `crashes` and `plants`, what needs
//! every interleaving of a few steps in `protocol`.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::live::Live;
use pgshrink_cfs::plant::Plant;
use pgshrink_cfs::sim::{Disk, DiskFile};
use pgshrink_cfs::space::Purpose;
use pgshrink_cfs::units::Grains;
use pgshrink_cfs::{
    Birth, Budget, Container, Device, DeviceError, Error, Folder, Geometry, Identity, KEY_BYTES, LockMode,
    Options, Peers, Recovery, Scratch, Stored, segment,
};
use pgshrink_testkit::seed::Seed;

use crate::fixture::{Bench, Open, content, read, write};
use crate::updates::Memory;

fn words(geometry: Geometry) -> &'static [AtomicU64] {
    Vec::leak((0..geometry.words()).map(|_| AtomicU64::new(0)).collect())
}

fn birth(id: u8) -> Birth {
    Birth { id: [id; 16], identity: Identity::default(), key: [0; KEY_BYTES] }
}

/// A page that does not compress.
fn page(block: u32, generation: u64) -> Vec<u8> {
    Seed(generation << 32 | u64::from(block)).rng().bytes(8192)
}

// B: the container's own addresses.

const PAGES: u32 = 512;

struct Filled<'d> {
    container: Container<'static, &'d Memory, Alone>,
    generations: Vec<u64>,
}

impl<'d> Filled<'d> {
    fn new(file: &'d Memory) -> Filled<'d> {
        let options = Options::new(PAGES);
        let container = Container::create(file, Alone, words(options.geometry), &birth(1), options).unwrap();
        Filled { container, generations: vec![0; PAGES as usize] }
    }

    fn open(file: &'d Memory, generations: Vec<u64>, recovery: Recovery) -> Filled<'d> {
        let options = Options::new(PAGES);
        let opened = Container::open(file, Alone, words(options.geometry), recovery, options);
        Filled { container: opened.unwrap().0, generations }
    }

    fn write(&mut self, block: u32, generation: u64) {
        let mut scratch = Scratch::new();
        self.container.write(block, 0, 0, &page(block, generation), &mut scratch).unwrap();
        self.generations[block as usize] = generation;
    }

    fn check(&self) {
        let mut scratch = Scratch::new();
        for (block, generation) in (0..self.container.pages()).zip(&self.generations) {
            let stored = self.container.read(block, &mut scratch).unwrap();
            assert!(matches!(stored, Stored::Record { payload, .. } if payload == page(block, *generation)));
        }
    }
}

#[test]
fn pages_rewritten_again_and_again_without_a_commit_never_use_up_a_segment() {
    let file = Memory::default();
    let mut filled = Filled::new(&file);
    for generation in 1..8 {
        (0..PAGES).for_each(|block| filled.write(block, generation));
    }
    assert!(filled.container.stats().room_made > 0, "the addresses were never used up");
    filled.container.commit().unwrap();
    filled.container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
    filled.check();
    filled.container.truncate(PAGES / 2).unwrap();
    filled.container.commit().unwrap();
    filled.container.extend(PAGES / 2 + 1).unwrap();
    filled.container.close().unwrap();
}

#[test]
fn redo_after_a_restart_does_not_use_up_a_segment_before_the_first_commit() {
    let file = Memory::default();
    let mut filled = Filled::new(&file);
    for generation in 1..4 {
        (0..PAGES).for_each(|block| filled.write(block, generation));
    }
    filled.container.commit().unwrap();
    for recovery in [Recovery::Discard, Recovery::RollForward] {
        let Filled { generations, container } = filled;
        drop(container);
        filled = Filled::open(&file, generations, recovery);
        for generation in 10..15 {
            (0..PAGES).for_each(|block| filled.write(block, generation));
        }
        filled.check();
        filled.container.commit().unwrap();
    }
}

#[test]
fn a_segment_of_which_every_zone_has_something_left_is_made_room_in() {
    let file = Memory::default();
    let mut filled = Filled::new(&file);
    let mut scratch = Scratch::new();
    // Short records far apart: between two of them a page that is written anew again and again.
    for round in 0..3 {
        for block in 0..PAGES - 1 {
            filled.container.write(block, 0, 0, &[round; 20], &mut scratch).unwrap();
            filled.write(PAGES - 1, u64::from(round) << 20 | u64::from(block));
            filled.write(PAGES - 1, u64::from(round) << 21 | u64::from(block));
        }
    }
    assert!(filled.container.stats().room_made > 0);
    filled.container.commit().unwrap();
    for block in 0..PAGES - 1 {
        let stored = filled.container.read(block, &mut scratch).unwrap();
        assert!(matches!(stored, Stored::Record { payload, .. } if payload == [2; 20]), "block {block}");
    }
}

#[test]
fn where_commits_fail_a_write_that_needs_room_says_so_and_changes_nothing() {
    let file = Memory::default();
    let mut filled = Filled::new(&file);
    (0..PAGES).for_each(|block| filled.write(block, 1));
    filled.container.commit().unwrap();
    file.refused_syncs.set(true);
    let mut scratch = Scratch::new();
    let failure = (0..).find_map(|turn| {
        let block = turn % PAGES;
        match filled.container.write(block, 0, 0, &page(block, 2), &mut scratch) {
            Ok(()) => {
                filled.generations[block as usize] = 2;
                None
            }
            Err(error) => Some(error),
        }
    });
    let failure = failure.unwrap();
    assert!(failure.is_no_space() || failure == Error::Poisoned, "{failure}");
    filled.check();
}

#[test]
fn pages_leave_space_to_collection_and_collection_leaves_space_to_commits() {
    let file = Memory::default();
    let options = Options::new(PAGES);
    let shared = words(options.geometry);
    let _container = Container::create(&file, Alone, shared, &birth(1), options).unwrap();
    let live = Live::new(shared, options.geometry).unwrap();
    let taken = |bytes: usize, purpose| {
        let grains = Grains::holding(bytes);
        std::iter::from_fn(|| live.reserve(grains, purpose)).count()
    };
    assert!(taken(8208, Purpose::Page) >= PAGES as usize * 5 / 2);
    assert_eq!(taken(8208, Purpose::Page), 0);
    // Whole zones' worth of records, and every leaf of the map with its index.
    assert!(taken(8208, Purpose::Move) >= 6, "nothing is kept for collection");
    assert!(taken(512 * 8 + 100, Purpose::Map) >= 3, "nothing is kept for commits");
}

// C: dictionaries.

fn write_with(container: &Open<'_>, block: u32, dictionary: u16) {
    container.write(block, 9, dictionary, &content(block, 1), &mut Scratch::new()).unwrap();
}

/// Fills the sheets of the roots, all but what says whose they are.
fn break_roots(bench: &Bench) {
    let mut bytes = bench.bytes();
    (0..3).for_each(|sheet| bytes[sheet * 4096 + 300..(sheet + 1) * 4096].fill(9));
    bench.set_bytes(bytes);
}

fn dictionary_of(container: &Open<'_>, block: u32) -> Vec<u8> {
    let mut scratch = Scratch::new();
    match container.read(block, &mut scratch).unwrap() {
        Stored::Record { dictionary, .. } => container.dictionary(dictionary).unwrap().1,
        Stored::Zeros => panic!("block {block} is empty"),
    }
}

#[test]
fn a_dictionarys_number_is_not_used_again_after_an_opening_and_salvage_finds_the_right_one() {
    let bench = Bench::small();
    let container = bench.create(1);
    let first = container.add_dictionary([1; 16], b"the first").unwrap();
    write_with(&container, 0, first);
    container.commit().unwrap();
    write(&container, 0, 2);
    assert!(container.drop_dictionary(first).unwrap());
    container.close().unwrap();
    drop(container);
    let (container, _) = bench.open().unwrap();
    let second = container.add_dictionary([2; 16], b"the second").unwrap();
    assert_ne!(first, second);
    (0..40).for_each(|block| write_with(&container, block, second));
    container.close().unwrap();
    break_roots(&bench);
    assert!(bench.open().is_err());
    let (container, report) = bench.salvage().unwrap();
    assert!(!report.map_is_whole);
    (0..40).for_each(|block| assert_eq!(dictionary_of(&container, block), b"the second"));
}

#[test]
fn a_number_whose_commit_a_crash_undid_means_the_later_dictionary() {
    let bench = Bench::small();
    let container = bench.create(1);
    write(&container, 0, 1);
    container.commit().unwrap();
    let before = bench.bytes();
    let lost = container.add_dictionary([1; 16], b"the lost one").unwrap();
    // The root did not reach the medium; the dictionary's record did.
    let mut bytes = bench.bytes();
    bytes[..12288].copy_from_slice(&before[..12288]);
    bench.set_bytes(bytes);
    drop(container);
    let (container, _) = bench.open().unwrap();
    let number = container.add_dictionary([2; 16], b"the second").unwrap();
    assert_eq!(number, lost);
    write_with(&container, 3, number);
    container.close().unwrap();
    break_roots(&bench);
    assert_eq!(dictionary_of(&bench.salvage().unwrap().0, 3), b"the second");
}

#[test]
fn salvage_keeps_all_dictionaries_however_many_there_were() {
    let mut bench = Bench::small();
    // Zones of several sheets, as each commit begins a sheet.
    bench.options.geometry.zone_grains = 4096;
    let container = bench.create(1);
    let mut live = Vec::new();
    for block in 0..24 {
        let name = [block as u8 + 1; 16];
        let number = container.add_dictionary(name, &name).unwrap();
        // Pages that live in the zones of those that are dropped, so that they stay in the file.
        write(&container, block + 24, 1);
        if block < 8 {
            assert!(container.drop_dictionary(number).unwrap());
        } else {
            write_with(&container, block, number);
            live.push(block);
        }
    }
    container.close().unwrap();
    assert_eq!(container.dictionary_ids().unwrap().len(), 16);
    break_roots(&bench);
    let (container, _) = bench.salvage().unwrap();
    let found = container.dictionary_ids().unwrap();
    assert!(found.len() > 16, "{found:?}");
    for block in live {
        assert_eq!(read(&container, block).unwrap(), content(block, 1));
        assert_eq!(dictionary_of(&container, block), [block as u8 + 1; 16]);
    }
}

#[test]
fn a_dictionary_whose_adder_died_before_it_opened_its_gate_is_retired_all_the_same() {
    let bench = Bench::small();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    let shared = Live::new(memory, bench.options.geometry).unwrap().shared();
    let number = container.add_dictionary([1; 16], b"content").unwrap();
    // As it is when a process is killed between its commit and the gate.
    shared.gates.iter().for_each(|gate| gate.store(0, Ordering::SeqCst));
    let late = container.write(0, 9, number, b"x", &mut Scratch::new());
    assert_eq!(late, Err(Error::DictionaryMissing(number)));
    container.retire_dictionary(number).unwrap();
    // Now it cannot be opened any more: who counts its pages must not be overtaken.
    assert_ne!(container.add_dictionary([1; 16], b"content").unwrap(), number);
    let late = container.write(0, 9, number, b"x", &mut Scratch::new());
    assert_eq!(late, Err(Error::DictionaryRetired(number)));
    // Gates of dictionaries that are gone are given to others.
    shared.gates.iter().for_each(|gate| gate.store(3000 << 32, Ordering::SeqCst));
    let second = container.add_dictionary([2; 16], b"more").unwrap();
    write_with(&container, 1, second);
    assert!(container.drop_dictionary(number).unwrap());
}

#[test]
fn of_two_dictionaries_with_a_number_the_later_one_is_salvaged() {
    let bench = Bench::small();
    let container = bench.create(1);
    // Its place is for the dictionary that a crash undid.
    container.write(0, 1, 0, &[1; 300], &mut Scratch::new()).unwrap();
    write(&container, 1, 1);
    let number = container.add_dictionary([2; 16], b"the one that was committed").unwrap();
    write_with(&container, 3, number);
    container.close().unwrap();
    let mut bytes = bench.bytes();
    let payload = [&number.to_le_bytes()[..], &[1; 16], b"the lost one"].concat();
    let mut record = vec![0; 16];
    record[4..8].copy_from_slice(&(payload.len() as u32 | 1 << 31).to_le_bytes());
    // Of an earlier commit, kind 4.
    record[15] = 4;
    record.extend_from_slice(&payload);
    let mut hasher = crc32fast::Hasher::new_with_initial(crc32fast::hash(&[1; 16]) ^ (12288 / 16));
    hasher.update(&record[4..]);
    record[..4].copy_from_slice(&hasher.finalize().to_le_bytes());
    bytes[12288..12288 + record.len()].copy_from_slice(&record);
    bench.set_bytes(bytes);
    break_roots(&bench);
    let (container, _) = bench.salvage().unwrap();
    assert_eq!(dictionary_of(&container, 3), b"the one that was committed");
}

// D: whose memory it is.

/// A container on a disk whose locks hold.
fn locked() -> Bench {
    let bench = Bench::small();
    bench.disk.set_locks_ignored(false);
    bench
}

fn attach(bench: &Bench, words: &'static [AtomicU64], read_only: bool) -> Result<Open<'static>, Error> {
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    let options = Options { read_only, ..bench.options };
    Container::open(file, Alone, words, Recovery::Discard, options).map(|(container, _)| container)
}

#[test]
fn a_file_that_was_made_anew_is_not_taken_for_the_one_in_memory() {
    let bench = locked();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    write(&container, 0, 1);
    container.commit().unwrap();
    segment::unlink(&bench.disk).unwrap();
    let other = bench.create_in(2, bench.words());
    write(&other, 0, 7);
    other.close().unwrap();
    drop(other);
    let before = bench.bytes();
    let refused = attach(&bench, memory, false).map(drop).unwrap_err();
    assert_eq!(refused, Error::OtherContainer { expected: [1; 16], found: [2; 16] });
    assert!(refused.to_string().contains("it was replaced while it was open"), "{refused}");
    assert_eq!(attach(&bench, memory, true).map(drop).unwrap_err(), refused);
    assert_eq!(bench.bytes(), before);
    // The other way round: memory that was given to another container under an old handle.
    let theirs = Bench::small();
    let taken = theirs.create_in(3, memory);
    write(&taken, 0, 9);
    let late = container.write(0, 1, 0, b"late", &mut Scratch::new()).unwrap_err();
    assert!(matches!(late, Error::OtherContainer { .. }), "{late}");
    assert!(matches!(container.commit(), Err(Error::OtherContainer { .. })));
}

#[test]
fn a_writer_after_readers_goes_on_above_all_versions() {
    for opened_by_reader in [false, true] {
        let bench = locked();
        let container = bench.create(1);
        (0..5).for_each(|block| write(&container, block, 1));
        container.commit().unwrap();
        drop(container);
        let memory = bench.words();
        let reader = opened_by_reader.then(|| attach(&bench, memory, true).unwrap());
        let writer = attach(&bench, memory, false).unwrap();
        (0..4).for_each(|block| write(&writer, block, 2));
        writer.commit().unwrap();
        assert!(reader.is_none_or(|reader| read(&reader, 0).unwrap() == content(0, 2)));
        drop(writer);
        let (container, _) = bench.open().unwrap();
        (0..4).for_each(|block| assert_eq!(read(&container, block).unwrap(), content(block, 2)));
        assert_eq!(read(&container, 4).unwrap(), content(4, 1));
        // Versions alone decide here.
        container.close().unwrap();
        break_roots(&bench);
        let (salvaged, _) = bench.salvage().unwrap();
        (0..4).for_each(|block| assert_eq!(read(&salvaged, block).unwrap(), content(block, 2)));
    }
}

#[test]
fn a_container_that_is_open_cannot_be_opened_with_another_memory() {
    let bench = locked();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    write(&container, 0, 1);
    container.commit().unwrap();
    let refused = attach(&bench, bench.words(), false).map(drop).unwrap_err();
    assert_eq!(refused, Error::InUse);
    let beside = attach(&bench, memory, false).unwrap();
    assert_eq!(read(&beside, 0).unwrap(), content(0, 1));
    // Reading harms nobody.
    assert_eq!(read(&attach(&bench, bench.words(), true).unwrap(), 0).unwrap(), content(0, 1));
    drop((container, beside));
    let other = attach(&bench, bench.words(), false).unwrap();
    write(&other, 0, 2);
    other.close().unwrap();
    drop(other);
    let stale = attach(&bench, memory, false).map(drop).unwrap_err();
    assert!(matches!(stale, Error::ChangedElsewhere { expected, found } if expected < found), "{stale}");
}

#[test]
fn the_first_writer_after_readers_needs_the_file_to_itself() {
    let bench = locked();
    let container = bench.create(1);
    write(&container, 0, 1);
    container.commit().unwrap();
    // Another server has it open, and here somebody only reads.
    let memory = bench.words();
    let reader = attach(&bench, memory, true).unwrap();
    assert_eq!(attach(&bench, memory, false).map(drop), Err(Error::InUse));
    assert_eq!(read(&reader, 0).unwrap(), content(0, 1));
    drop(container);
    attach(&bench, memory, false).unwrap();
}

#[test]
fn a_record_whose_write_was_cut_off_is_not_rolled_forward() {
    let bench = Bench::small();
    let container = bench.create(1);
    (0..3).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    // 16 bytes of header and 101 of payload: the last grain is not full.
    container.write(0, 1, 0, &[5; 101], &mut Scratch::new()).unwrap();
    let mut bytes = bench.bytes();
    bytes.truncate(bytes.len() - 8);
    bench.set_bytes(bytes);
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    let opened = Container::open(file, Alone, bench.words(), Recovery::RollForward, bench.options);
    let (container, report) = opened.unwrap();
    assert_eq!(report.unwrap().rolled_forward, 0);
    assert_eq!(read(&container, 0).unwrap(), content(0, 1));
}

// E: versions.

fn version_limit(bench: &Bench) -> u64 {
    let bytes = bench.bytes();
    let limit = |sheet: &[u8]| u64::from_le_bytes(sheet[84..92].try_into().unwrap());
    bytes[..12288].chunks_exact(4096).map(limit).max().unwrap()
}

#[test]
fn openings_that_are_closed_cost_no_versions_and_others_few_and_an_odd_number() {
    let bench = Bench::small();
    bench.create(1).close().unwrap();
    let start = version_limit(&bench);
    for generation in 0..50 {
        let (container, _) = bench.open().unwrap();
        write(&container, 0, generation);
        container.close().unwrap();
    }
    // A sheet of the ring may still be an opening's.
    let steps_of_writes = version_limit(&bench) - start;
    assert!(steps_of_writes < 1000 + (1 << 23), "{steps_of_writes}");
    drop(bench.open().unwrap());
    let crashed = version_limit(&bench);
    drop(bench.open().unwrap());
    let step = version_limit(&bench) - crashed;
    assert!(step % 2 == 1 && (1 << 44) / step > 3_000_000, "{step}");
}

#[test]
fn a_container_is_written_to_after_it_was_closed() {
    let bench = Bench::small();
    let container = bench.create(1);
    write(&container, 0, 1);
    container.close().unwrap();
    write(&container, 0, 2);
    container.write_zeros(1).unwrap();
    container.extend(5).unwrap();
    container.close().unwrap();
    container.extend(7).unwrap();
    container.close().unwrap();
    container.write_zeros(2).unwrap();
    container.commit().unwrap();
    let (container, report) = bench.open().unwrap();
    assert!(!report.was_closed && container.pages() == 7);
    assert_eq!(read(&container, 0).unwrap(), content(0, 2));
}

// F: what is durable and what is being written share no sheet.

#[test]
fn a_writer_that_a_commit_has_given_up_writes_nothing_into_the_sheet_that_was_left() {
    type Work = Box<dyn FnOnce()>;
    let then: Rc<RefCell<Option<Work>>> = Rc::default();
    let next = then.clone();
    let mut bench = Bench::small();
    bench.disk = Disk::new(1, move || {
        let work = next.take();
        if let Some(work) = work {
            work();
        }
    });
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    (0..3).for_each(|block| write(&container, block, 1));
    let other = attach(&bench, memory, false).unwrap();
    let left: Rc<RefCell<Vec<u8>>> = Rc::default();
    let (disk, seen) = (bench.disk.clone(), left.clone());
    // The writer has its place, and stands still in front of its look at the sheet.
    then.replace(Some(Box::new(move || {
        other.commit().unwrap();
        seen.replace(disk.bytes(segment::FILE_NAME).unwrap());
    })));
    write(&container, 3, 1);
    let (before, after) = (left.borrow().clone(), bench.bytes());
    // Up to the end of the sheet in which the commit's last record lies.
    let end = before.len().next_multiple_of(4096).min(after.len());
    let mut durable = before.clone();
    durable.resize(end, 0);
    assert!(before.len() > 12288 && durable[12288..] == after[12288..end], "a durable sheet was written to");
    assert_eq!(read(&container, 3).unwrap(), content(3, 1));
}

/// Work that another process does in the midst of an operation: at the step of this number from when it is given.
#[derive(Clone, Default)]
struct Between(Rc<RefCell<Option<Work>>>, Rc<Cell<u32>>);

type Work = Box<dyn FnOnce()>;

impl Between {
    fn disk(&self) -> Disk {
        let Between(work, steps) = self.clone();
        let disk = Disk::new(1, move || {
            let left = steps.get();
            steps.set(left.saturating_sub(1));
            if left == 1 {
                let work = work.take();
                work.into_iter().for_each(|work| work());
            }
        });
        disk.set_locks_ignored(true);
        disk
    }

    fn give(&self, step: u32, work: impl FnOnce() + 'static) {
        self.0.replace(Some(Box::new(work)));
        self.1.set(step);
    }

    fn is_done(&self) -> bool {
        self.0.borrow().is_none()
    }
}

fn put(container: &Open<'_>, block: u32, bytes: &[u8]) {
    container.write(block, 1, 0, bytes, &mut Scratch::new()).unwrap();
}

#[test]
fn a_root_ends_behind_entries_that_are_newer_than_what_the_commit_took() {
    let between = Between::default();
    let mut bench = Bench::new(crate::plan::wide_options(Plant::None, 0));
    bench.disk = between.disk();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    let other = attach(&bench, memory, false).unwrap();
    // A zone for each page; then every other one is free, so that only short records fit.
    container.extend(700).unwrap();
    (0..60).for_each(|block| put(&container, block, &[1; 4080]));
    container.commit().unwrap();
    (0..30).for_each(|block| put(&container, 2 * block, b"short"));
    (0..3).for_each(|block| {
        put(&container, 650 + block, b"marks the second leaf");
        container.commit().unwrap();
    });
    let shared = Live::new(memory, bench.options.geometry).unwrap().shared();
    put(&container, 1, b"marks the first leaf");
    put(&container, 650, b"marks the second leaf");
    shared.fold_due.store(1, Ordering::SeqCst);
    // While the first leaf is being written, behind the map's end.
    between.give(2, move || put(&other, 600, &[6; 8160]));
    container.commit().unwrap();
    assert!(between.is_done());
    let end = bench.bytes().len();
    drop(container);
    bench.disk.lose_power();
    let (container, report) = bench.open().unwrap();
    assert_eq!(report.missing_bytes, 0, "the file ended at {end}");
    for block in [600, 601] {
        let page = read(&container, block).unwrap();
        assert!(page.is_empty() || (block == 600 && page == [6; 8160]), "{} bytes", page.len());
    }
}

#[test]
fn a_zone_that_was_being_filled_when_the_map_was_completed_is_not_freed_under_its_writer() {
    let between = Between::default();
    let mut bench = Bench::small();
    bench.disk = between.disk();
    // The last zone of an opening has room for what is written next.
    bench.options.geometry.zone_grains = 2048;
    let container = bench.create(1);
    for generation in 1..6 {
        (0..30).for_each(|block| write(&container, block, generation));
        container.commit().unwrap();
    }
    container.close().unwrap();
    drop(container);
    let memory = bench.words();
    let (container, _) = bench.open_in(memory).unwrap();
    assert!(!container.stats().map_is_complete, "all of the map was read");
    let other = attach(&bench, memory, false).unwrap();
    let shared = Live::new(memory, bench.options.geometry).unwrap().shared();
    let rest = || {
        let cursor = shared.cursor.load(Ordering::SeqCst);
        ((cursor >> 32) - (cursor & 0xffff_ffff)) as usize
    };
    while rest() > 500 {
        write(&container, 0, 9);
    }
    // As long as what is left of the zone, so that nobody else finishes anything there.
    let last = vec![7; rest() * 16 - 16];
    let rest_bytes = last.len();
    // The writer has written its record, and has not published it: everybody else leaves the zone, and fills what is free.
    between.give(2, move || {
        other.complete().unwrap();
        for generation in 10..40 {
            shared.fold_due.store(1, Ordering::SeqCst);
            (0..30).for_each(|block| write(&other, block, generation));
            other.commit().unwrap();
        }
    });
    // A new page, so that nothing else of it is in the zone.
    put(&container, 30, &last);
    assert!(between.is_done());
    assert_eq!(read(&container, 30).unwrap(), vec![7; rest_bytes]);
    (0..30).for_each(|block| assert_eq!(read(&container, block).unwrap(), content(block, 39)));
}

/// Stops for good when a root that it wrote is to be synced.
struct StopsAtRoot {
    file: DiskFile,
    has_root: Cell<bool>,
}

impl Device for StopsAtRoot {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        self.file.pread(buffer, offset)
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.has_root.set(self.has_root.get() || offset < 12288);
        self.file.pwrite(bytes, offset)
    }

    fn fdatasync(&self) -> Result<(), DeviceError> {
        assert!(!self.has_root.get(), "as planned");
        self.file.fdatasync()
    }

    fn size(&self) -> Result<u64, DeviceError> {
        self.file.size()
    }

    fn truncate(&self, size: u64) -> Result<(), DeviceError> {
        self.file.truncate(size)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.file.punch_hole(offset, length)
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        Device::sync_dir(&self.file)
    }

    fn try_lock(&self, _: LockMode) -> Result<bool, DeviceError> {
        Ok(true)
    }
}

#[test]
fn openings_that_are_killed_one_after_the_other_write_over_no_durable_root() {
    for seed in 0..200 {
        let mut bench = Bench::small();
        bench.disk = Disk::new(seed, || ());
        bench.disk.set_locks_ignored(true);
        let container = bench.create(1);
        for generation in 1..3 + seed as u32 % 3 {
            (0..10).for_each(|block| write(&container, block, generation));
            container.commit().unwrap();
        }
        drop(container);
        for _ in 0..3 {
            let file = bench.disk.open(segment::FILE_NAME).unwrap();
            let file = StopsAtRoot { file, has_root: Cell::new(false) };
            let opening =
                || Container::open(file, Alone, bench.words(), Recovery::Discard, bench.options).map(drop);
            assert!(catch_unwind(AssertUnwindSafe(opening)).is_err());
        }
        bench.disk.lose_power();
        let (container, _) = bench.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let generation = 2 + seed as u32 % 3;
        (0..10).for_each(|block| assert_eq!(read(&container, block).unwrap(), content(block, generation)));
    }
}

// G: what is left behind by a jump or a panic.

/// A device that panics at a call.
struct Panicking<'d> {
    file: &'d Memory,
    /// Calls of fdatasync and pwrite until then; 0: never.
    syncs: Cell<u32>,
    writes: Cell<u32>,
}

fn count_down(calls: &Cell<u32>) {
    let left = calls.get();
    calls.set(left.saturating_sub(1));
    assert_ne!(left, 1, "as planned");
}

impl Device for &Panicking<'_> {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        self.file.pread(buffer, offset)
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        count_down(&self.writes);
        self.file.pwrite(bytes, offset)
    }

    fn fdatasync(&self) -> Result<(), DeviceError> {
        count_down(&self.syncs);
        self.file.fdatasync()
    }

    fn size(&self) -> Result<u64, DeviceError> {
        self.file.size()
    }

    fn truncate(&self, size: u64) -> Result<(), DeviceError> {
        self.file.truncate(size)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.file.punch_hole(offset, length)
    }

    fn sync_dir(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn try_lock(&self, _: LockMode) -> Result<bool, DeviceError> {
        Ok(true)
    }
}

/// One of several processes, all alive but number 9.
#[derive(Clone, Copy)]
struct Named(u64);

impl Peers for Named {
    fn me(&self) -> u64 {
        self.0
    }

    fn is_alive(&self, peer: u64) -> bool {
        peer != 9
    }

    fn relax(&self) {
        panic!("waits for a lock that nobody will let go");
    }
}

#[test]
fn a_panic_in_a_commit_leaves_no_lock_behind() {
    for (writes, syncs) in [(1, 0), (2, 0), (3, 0), (0, 1), (0, 2)] {
        let memory = Memory::default();
        let file = Panicking { file: &memory, syncs: Cell::new(0), writes: Cell::new(0) };
        let options = Options::new(PAGES);
        let shared = words(options.geometry);
        let container = Container::create(&file, Named(1), shared, &birth(1), options).unwrap();
        let other = Container::open(&file, Named(2), shared, Recovery::Discard, options).unwrap().0;
        let mut scratch = Scratch::new();
        (0..PAGES).for_each(|block| container.write(block, 1, 0, b"before", &mut scratch).unwrap());
        file.writes.set(writes);
        file.syncs.set(syncs);
        let panicked = catch_unwind(AssertUnwindSafe(|| container.commit()));
        assert!(panicked.is_err());
        other.write(0, 1, 0, b"afterwards", &mut scratch).unwrap();
        for container in [&other, &container] {
            match container.commit() {
                Ok(_) => assert_eq!(syncs, 0),
                // Nobody knows what came of the fsync.
                Err(error) => assert_eq!((error, writes), (Error::Poisoned, 0)),
            }
            container.truncate(10).unwrap();
            container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
        }
    }
}

#[test]
fn a_process_that_jumped_out_of_the_engine_goes_on_and_so_do_others() {
    let memory = Memory::default();
    let options = Options::new(PAGES);
    let shared = words(options.geometry);
    let container = Container::create(&memory, Named(1), shared, &birth(1), options).unwrap();
    let other = Container::open(&memory, Named(2), shared, Recovery::Discard, options).unwrap().0;
    let live = Live::new(shared, options.geometry).unwrap();
    let locks = [&live.shared().commit_lock, &live.shared().collector_lock, &live.shared().loader_lock];
    let mut scratch = Scratch::new();
    // Nothing was dropped.
    locks.iter().for_each(|lock| lock.store(1, Ordering::SeqCst));
    container.write(0, 1, 0, b"one", &mut scratch).unwrap();
    container.commit().unwrap();
    container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
    locks.iter().for_each(|lock| lock.store(1, Ordering::SeqCst));
    container.release_held();
    other.write(0, 1, 0, b"two", &mut scratch).unwrap();
    other.commit().unwrap();
    // Another's is not let go.
    locks[0].store(2, Ordering::SeqCst);
    container.release_held();
    assert_eq!(locks[0].load(Ordering::SeqCst), 2);
    locks[0].store(0, Ordering::SeqCst);
}

/// Takes its victim for dead as soon as it is asked to.
struct Mistaken<'a>(u64, &'a Cell<bool>);

impl Peers for Mistaken<'_> {
    fn me(&self) -> u64 {
        self.0
    }

    fn is_alive(&self, _: u64) -> bool {
        !self.1.get()
    }

    fn relax(&self) {}
}

#[test]
fn a_lock_that_was_taken_from_a_live_process_is_not_let_go_by_it_and_ends_commits() {
    let memory = Memory::default();
    let options = Options::new(PAGES);
    let shared = words(options.geometry);
    let live = Live::new(shared, options.geometry).unwrap();
    let taken = Cell::new(false);
    let container = Container::create(&memory, Mistaken(1, &taken), shared, &birth(1), options).unwrap();
    container.write(0, 1, 0, b"one", &mut Scratch::new()).unwrap();
    // While it commits, another takes the lock, as if this one were dead.
    memory.at_sync.set(Some((&live.shared().commit_lock, 2)));
    let _ = container.commit();
    assert_eq!(live.shared().commit_lock.load(Ordering::SeqCst), 2, "the other's lock was let go");
    taken.set(true);
    assert_eq!(container.commit(), Err(Error::Poisoned));
}

// H: messages that say what was expected and what was found.

#[test]
fn a_record_of_another_page_or_length_is_named_as_that() {
    let bench = Bench::small();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    (0..3).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    let entry = |block| bench.entry(memory, block);
    // The entry of another page; one grain more than the record has.
    entry(1).store(entry(0).load(Ordering::SeqCst), Ordering::SeqCst);
    entry(0).store(entry(0).load(Ordering::SeqCst) + (1 << 32), Ordering::SeqCst);
    let message = |block| read(&container, block).unwrap_err().to_string();
    assert!(message(1).contains("expected block 1, found 0"), "{}", message(1));
    assert!(message(0).contains("expected a record of 144 bytes, found one of 128"), "{}", message(0));
}

// H: commits of what has not changed; roots that lie.

#[test]
fn committing_what_has_not_changed_costs_no_fdatasync() {
    let file = Memory::default();
    let mut filled = Filled::new(&file);
    (0..PAGES).for_each(|block| filled.write(block, 1));
    filled.container.commit().unwrap();
    let is_free = |container: &Container<'_, &Memory, Alone>| {
        file.syncs.set(0);
        let written = file.written();
        assert_eq!(container.commit().unwrap().sequence, None);
        assert_eq!((file.syncs.get(), file.written()), (0, written));
    };
    (0..3).for_each(|_| is_free(&filled.container));
    filled.write(7, 2);
    assert!(filled.container.commit().unwrap().sequence.is_some());
    is_free(&filled.container);
    filled.container.close().unwrap();
    file.syncs.set(0);
    assert_eq!(filled.container.close().unwrap().sequence, None);
    is_free(&filled.container);
    let Filled { generations, container } = filled;
    drop(container);
    let filled = Filled::open(&file, generations, Recovery::Discard);
    is_free(&filled.container);
    filled.container.truncate(100).unwrap();
    assert!(filled.container.commit().unwrap().sequence.is_some());
    is_free(&filled.container);
    filled.check();
}

#[test]
fn a_root_whose_numbers_lie_is_refused_or_read_and_never_panics() {
    let bench = Bench::small();
    let container = bench.create(1);
    (0..20).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    let whole = bench.bytes();
    for recovery in [Recovery::Discard, Recovery::RollForward] {
        // Version limit and epoch start.
        let last = (1u64 << 44) - 2;
        for (limit, start, sequence, epoch) in [
            (0u64, 0u64, 5, 5),
            (1, 0, 5, 5),
            (1, 1, 5, 5),
            (1 << 44, 0, 5, 5),
            (1 << 44, 1 << 44, 5, 5),
            (5, 5, 5, 5),
            (5000, 1, last, 5),
            (5000, 1, last - 1, 5),
            (5000, 1, 5, u32::MAX - 1),
            (5000, 1, 5, u32::MAX - 2),
        ] {
            let mut bytes = whole.clone();
            for sheet in bytes[..12288].chunks_exact_mut(4096) {
                sheet[40..48].copy_from_slice(&sequence.to_le_bytes());
                sheet[48..52].copy_from_slice(&epoch.to_le_bytes());
                sheet[84..92].copy_from_slice(&limit.to_le_bytes());
                sheet[92..100].copy_from_slice(&start.to_le_bytes());
                let crc = crc32fast::hash(&sheet[12..]);
                sheet[8..12].copy_from_slice(&crc.to_le_bytes());
            }
            bench.set_bytes(bytes);
            let file = bench.disk.open(segment::FILE_NAME).unwrap();
            match Container::open(file, Alone, bench.words(), recovery, bench.options) {
                Ok((container, _)) => {
                    (0..20).for_each(|block| drop(read(&container, block)));
                    let mut scratch = Scratch::new();
                    let written = container.write(0, 1, 0, b"more", &mut scratch);
                    let done = written.and_then(|()| container.commit().map(drop));
                    assert!(matches!(done, Ok(()) | Err(Error::Limit { .. })), "{done:?}");
                }
                Err(error) => assert!(matches!(error, Error::Limit { .. }), "{error}"),
            }
        }
    }
}

#[test]
fn a_container_cut_inside_its_first_root_is_refused() {
    let bench = Bench::small();
    bench.create(1).close().unwrap();
    let whole = bench.bytes();
    for length in [300, 1000, 4095] {
        bench.set_bytes(whole[..length].to_vec());
        let refused = bench.open().map(drop).unwrap_err();
        assert!(refused.is_damage(), "{length}: {refused}");
        assert!(refused.to_string().contains(&format!("expected 4096 bytes in the file, found {length}")));
    }
}

#[test]
fn the_files_end_is_cut_at_opening_between_sheets() {
    let bench = Bench::small();
    let container = bench.create(1);
    (0..20).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    let committed = bench.bytes().len();
    (0..40).for_each(|block| write(&container, block % 20, 2));
    let with_tail = bench.bytes().len();
    let (_, report) = bench.open().unwrap();
    let after = bench.bytes().len();
    assert!(report.discarded_bytes > 0 && after < with_tail, "{after} of {with_tail}");
    assert!(after.is_multiple_of(4096) && after >= committed - 4096, "{after}, {committed}");
}
