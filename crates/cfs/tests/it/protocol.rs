//! The protocol on shared memory, model-checked: the interleavings of a few threads, with the memory model's freedom.
//!
//! loom stands in for the processors, and records are words of its memory instead of bytes in a file. What is checked is the engine's own
//! code on the words that threads contend for. A record's word is stored and loaded with order, as a pread
//! that sees a pwrite comes after it.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use pgshrink_cfs::Geometry;
use pgshrink_cfs::device::Peers;
use pgshrink_cfs::entry::Entry;
use pgshrink_cfs::leaves::Installing;
use pgshrink_cfs::live::{self, Live, Word};
use pgshrink_cfs::plant::Plant;
use pgshrink_cfs::space::{Zone, ZoneState};

const ZONE: u32 = 256;
/// Two records fill a zone.
const RECORD: u32 = ZONE / 2;

/// loom's word where threads meet, a plain one where they do not.
enum Checked {
    Model(AtomicU64),
    Plain(std::sync::atomic::AtomicU64),
}

impl Word for Checked {
    fn load(&self) -> u64 {
        match self {
            Checked::Model(word) => word.load(Ordering::Acquire),
            Checked::Plain(word) => Word::load(word),
        }
    }

    fn store(&self, value: u64) {
        match self {
            Checked::Model(word) => word.store(value, Ordering::Release),
            Checked::Plain(word) => Word::store(word, value),
        }
    }

    fn swap_if(&self, current: u64, new: u64) -> Result<(), u64> {
        match self {
            Checked::Model(word) => {
                word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
            }
            Checked::Plain(word) => word.swap_if(current, new),
        }
    }

    fn add(&self, value: u64) -> u64 {
        match self {
            Checked::Model(word) => word.fetch_add(value, Ordering::AcqRel),
            Checked::Plain(word) => word.add(value),
        }
    }
}

/// Shared memory for two pages and three zones, and a file of six records.
struct Shared {
    words: Vec<Checked>,
    file: Vec<AtomicU64>,
}

fn geometry() -> Geometry {
    Geometry { pages_max: 2, zone_grains: ZONE, zones_max: 4 }
}

impl Shared {
    /// Page 0 is in zone 1, which is full; zone 2 is being filled; zone 0 is the head's.
    fn new() -> Arc<Shared> {
        Shared::of(&[
            live::LOCK,
            live::CURSOR,
            live::ZONES_END,
            live::FREE_ZONES,
            live::SHEETS_LEFT,
            live::DICTIONARIES + 1,
        ])
    }

    /// The same, with both entries in a leaf that is not loaded.
    fn unloaded() -> Arc<Shared> {
        let words = [live::CURSOR, live::LOADER, live::LOAD_LIMIT, live::LEAVES_LOADED, live::LEAVES_TOUCHED];
        let shared = Shared::of(&words);
        let live = shared.live();
        live.set_entry(0, Entry::MISSING);
        live.set_entry(1, Entry::MISSING);
        live.set(live::LEAVES_TOUCHED, 0);
        live.set(live::LOAD_LIMIT, 2);
        shared
    }

    fn of(fixed: &[usize]) -> Arc<Shared> {
        let contended = |index: usize| fixed.contains(&index) || index >= live::ENTRIES;
        let words = (0..geometry().words())
            .map(|index| match contended(index) {
                true => Checked::Model(AtomicU64::new(0)),
                false => Checked::Plain(0.into()),
            })
            .collect();
        let shared = Arc::new(Shared { words, file: (0..8).map(|_| AtomicU64::new(0)).collect() });
        let live = shared.live();
        let used = |finished| Zone { finished, live: 0, state: ZoneState::Used };
        live.set_zone(0, used(ZONE));
        live.set_zone(1, used(ZONE));
        live.set_zone(2, used(0));
        live.set(live::ZONES_END, 3);
        live.set(live::PAGES, 2);
        live.set_cursor(2 * ZONE, 3 * ZONE);
        shared.put(ZONE, 0, 1);
        live.set_entry(0, Entry::record(ZONE, RECORD, 1));
        live.set_entry(1, Entry::zeros(1));
        shared
    }

    fn live(&self) -> Live<'_, Checked> {
        Live::new(&self.words, geometry()).unwrap()
    }

    fn put(&self, location: u32, block: u32, version: u64) {
        self.file[(location / RECORD) as usize].store(version << 8 | u64::from(block), Ordering::Release);
    }

    /// As `Container::write`.
    fn write(&self, block: u32, version: u64) {
        let live = self.live();
        let location = live.reserve(RECORD).unwrap();
        self.put(location, block, version);
        live.publish(block, Entry::record(location, RECORD, version));
        live.finish(location, RECORD);
    }

    /// As `Container::read`: the version found, 0 for zeros.
    fn read(&self, block: u32) -> u64 {
        let live = self.live();
        let mut entry = live.entry(block);
        loop {
            if entry.is_zeros() {
                return 0;
            }
            let record = self.file[(entry.location() / RECORD) as usize].load(Ordering::Acquire);
            let version = record >> 8;
            if record & 255 == u64::from(block) && entry.has_tag_of(version) {
                return version;
            }
            let now = live.entry(block);
            assert_ne!(
                now.clean(),
                entry.clean(),
                "a record is not what its entry says, and nobody changed it"
            );
            entry = now;
        }
    }

    /// As `Container::load_leaf`, the leaf's record read.
    fn load(&self, me: u64) {
        if !self.live().is_loaded(0) {
            let entries = [Entry::record(ZONE, RECORD, 1), Entry::zeros(1)];
            let how = Installing { pause: || (), plant: Plant::None, limit: None };
            self.live().install(0, &entries, &Survivor(me), how);
        }
    }

    /// As a commit: zones first, then entries, then what is free.
    fn commit(&self) {
        let live = self.live();
        let closed: Vec<u32> = (1..3).filter(|zone| live.is_closed(*zone)).collect();
        let mut used = [false; 4];
        for block in 0..2 {
            let (entry, _) = live.take_dirty(block);
            if entry.is_record() {
                used[(entry.location() / ZONE) as usize] = true;
            }
        }
        closed.into_iter().filter(|zone| !used[*zone as usize]).for_each(|zone| live.free_zone(zone));
    }
}

type Threads = fn(&Arc<Shared>) -> Vec<thread::JoinHandle<()>>;

fn check(threads: Threads, after: fn(&Shared)) {
    check_from(Shared::new, threads, after);
}

fn check_from(start: fn() -> Arc<Shared>, threads: Threads, after: fn(&Shared)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = start();
        for thread in threads(&shared) {
            thread.join().unwrap();
        }
        after(&shared);
    });
}

fn spawn(shared: &Arc<Shared>, work: fn(&Shared)) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || work(&shared))
}

#[test]
fn a_reader_finds_its_page_while_its_place_is_freed_and_written_again() {
    check(
        |shared| {
            vec![
                spawn(shared, |shared| {
                    // Page 0 leaves zone 1, which becomes free, is filled again, and page 0 comes back.
                    shared.write(0, 2);
                    shared.commit();
                    shared.write(1, 3);
                    shared.write(0, 4);
                }),
                spawn(shared, |shared| assert!(matches!(shared.read(0), 1 | 2 | 4))),
            ]
        },
        |shared| assert_eq!((shared.read(0), shared.read(1)), (4, 3)),
    );
}

#[test]
fn a_zone_is_not_freed_under_a_writer() {
    check(
        |shared| {
            vec![
                spawn(shared, |shared| shared.write(0, 2)),
                spawn(shared, |shared| shared.write(1, 3)),
                spawn(shared, |shared| {
                    shared.commit();
                    shared.commit();
                }),
            ]
        },
        |shared| assert_eq!((shared.read(0), shared.read(1)), (2, 3)),
    );
}

#[test]
fn a_version_that_a_commit_missed_is_still_marked() {
    check(
        |shared| {
            vec![
                spawn(shared, |shared| {
                    shared.write(0, 2);
                    shared.live().publish(0, Entry::zeros(3));
                }),
                spawn(shared, |shared| {
                    let (taken, _) = shared.live().take_dirty(0);
                    let now = shared.live().entry(0);
                    assert!(now == taken || now.is_dirty());
                }),
            ]
        },
        |shared| {
            let entry = shared.live().entry(0);
            assert_eq!(entry.clean(), Entry::zeros(3));
        },
    );
}

#[test]
fn a_collectors_copy_never_hides_a_write() {
    check(
        |shared| {
            vec![
                spawn(shared, |shared| shared.write(0, 2)),
                spawn(shared, |shared| {
                    let live = shared.live();
                    let original = live.entry(0);
                    let location = live.reserve(RECORD).unwrap();
                    shared.put(location, 0, if original.has_tag_of(2) { 2 } else { 1 });
                    let copy = Entry::record(location, RECORD, original.tag());
                    live.replace(0, original, copy);
                    live.finish(location, RECORD);
                }),
            ]
        },
        |shared| assert_eq!(shared.read(0), 2),
    );
}

#[test]
fn growing_segments_keep_what_others_wrote_in_between() {
    check(
        |shared| {
            let live = shared.live();
            live.set_entry(1, Entry::MISSING);
            live.set(live::PAGES, 0);
            vec![
                spawn(shared, |shared| {
                    shared.write(0, 2);
                    shared.live().grow(1, 2);
                }),
                spawn(shared, |shared| shared.live().grow(2, 3)),
            ]
        },
        |shared| assert_eq!((shared.live().pages(), shared.read(0), shared.read(1)), (2, 2, 0)),
    );
}

/// As `Container::write` with dictionary 1; the version says that it was.
fn write_with_dictionary(shared: &Shared) {
    let live = shared.live();
    if live.enter_dictionary(1).is_ok() {
        shared.write(0, 2);
        live.leave_dictionary(1);
    }
}

/// As `Container::drop_dictionary`: in word 0 of the file, whether it was dropped.
fn drop_dictionary(shared: &Shared) {
    let live = shared.live();
    live.retire_dictionary(1);
    if !live.has_writers(1) && shared.read(0) != 2 {
        shared.file[0].store(1, Ordering::Release);
    }
}

#[test]
fn a_dictionary_is_not_dropped_under_its_writers() {
    check(
        |shared| {
            shared.live().open_dictionary(1);
            vec![
                spawn(shared, write_with_dictionary),
                spawn(shared, write_with_dictionary),
                spawn(shared, drop_dictionary),
            ]
        },
        |shared| {
            let dropped = shared.file[0].load(Ordering::Acquire) == 1;
            assert!(!(dropped && shared.read(0) == 2), "the page has lost its dictionary");
            assert!(!shared.live().has_writers(1));
        },
    );
}

#[test]
fn loaders_hide_no_write_and_bring_back_nothing_that_was_cut_off() {
    check_from(
        Shared::unloaded,
        |shared| {
            vec![
                spawn(shared, |shared| shared.write(0, 2)),
                spawn(shared, |shared| {
                    shared.load(2);
                    assert!(matches!(shared.read(0), 1 | 2));
                }),
                spawn(shared, |shared| {
                    // A truncation, and growth after it.
                    shared.live().set(live::PAGES, 1);
                    shared.live().cut(1, 2, &Survivor(3));
                    shared.live().grow(2, 3);
                }),
            ]
        },
        |shared| {
            let second = shared.live().entry(1);
            assert_eq!((shared.read(0), second), (2, Entry::zeros(3).dirty()));
        },
    );
}

#[test]
fn a_leaf_that_is_written_anew_has_what_was_not_loaded_when_it_began() {
    check_from(
        Shared::unloaded,
        |shared| {
            vec![
                spawn(shared, |shared| shared.write(0, 2)),
                spawn(shared, |shared| {
                    shared.load(2);
                    assert_eq!(shared.read(1), 0);
                }),
                spawn(shared, |shared| {
                    // As a fold: a leaf that nobody touched keeps its record.
                    if shared.live().is_loaded(0) || shared.live().is_touched(0) {
                        shared.load(3);
                        let stored = [0, 1].map(|block| shared.live().entry(block).clean());
                        assert!(stored[0].has_tag_of(1) || stored[0].has_tag_of(2), "{stored:?}");
                        assert_eq!(stored[1], Entry::zeros(1));
                    }
                }),
            ]
        },
        |shared| assert_eq!(shared.read(0), 2),
    );
}

#[test]
fn a_loader_that_was_killed_is_followed_by_another() {
    check_from(
        || {
            let shared = Shared::unloaded();
            // It had come to the second entry, and a writer after it.
            shared.live().set(live::LOADER, 9);
            shared.live().set(live::LEAVES_TOUCHED, 1);
            shared.live().set_entry(0, Entry::record(ZONE, RECORD, 1));
            shared
        },
        |shared| {
            vec![
                spawn(shared, |shared| shared.load(1)),
                spawn(shared, |shared| {
                    shared.write(0, 2);
                    shared.load(2);
                }),
            ]
        },
        |shared| {
            assert_eq!((shared.read(0), shared.read(1)), (2, 0));
            assert!(shared.live().is_loaded(0));
        },
    );
}

/// One of two processes; the other, 9, is dead.
struct Survivor(u64);

impl Peers for Survivor {
    fn me(&self) -> u64 {
        self.0
    }

    fn is_alive(&self, peer: u64) -> bool {
        peer != 9
    }

    fn relax(&self) {
        thread::yield_now();
    }
}

#[test]
fn a_dead_holders_lock_is_taken_by_one() {
    check(
        |shared| {
            shared.live().set(live::LOCK, 9);
            vec![spawn(shared, |shared| hold(shared, 1)), spawn(shared, |shared| hold(shared, 2))]
        },
        |shared| assert_ne!(shared.live().get(live::LOCK), 9),
    );
}

fn hold(shared: &Shared, me: u64) {
    let live = shared.live();
    if live.try_lock(live::LOCK, &Survivor(me)) {
        shared.file[0].store(me, Ordering::Relaxed);
        assert_eq!(live.get(live::LOCK), me);
        assert_eq!(shared.file[0].load(Ordering::Relaxed), me, "another is inside");
        live.unlock(live::LOCK);
    }
}
