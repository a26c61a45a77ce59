//! Slots, model-checked: the interleavings of two or three processes, with the memory model's freedom. The
//! functions are the engine's own; words on which processes meet without the lock are loom's, all others
//! plain memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Plain, Ordering as PlainOrdering};

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use pgshrink_cfs::region::Shared;
use pgshrink_cfs::slots::{Acquired, Member, Peer, Slots};
use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::word::Word;
use pgshrink_cfs::{Geometry, ProcessTable};

use super::*;

/// Which words of the header are met on: the lock, and whether it was lost.
const LOCK: usize = 4;
const UNFINISHED: usize = 6;
const ENTRIES_END: usize = 9;
const DEAD: u64 = 99;

enum Met {
    Plain(Plain),
    Model(AtomicU64),
}

impl Word for Met {
    fn load(&self) -> u64 {
        match self {
            Met::Plain(word) => word.load(PlainOrdering::Acquire),
            Met::Model(word) => word.load(Ordering::Acquire),
        }
    }

    fn store(&self, value: u64) {
        match self {
            Met::Plain(word) => word.store(value, PlainOrdering::Release),
            Met::Model(word) => word.store(value, Ordering::Release),
        }
    }

    fn swap_if(&self, current: u64, new: u64) -> Result<(), u64> {
        match self {
            Met::Plain(word) => Word::swap_if(word, current, new),
            Met::Model(word) => {
                word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
            }
        }
    }

    fn add(&self, value: u64) -> u64 {
        match self {
            Met::Plain(word) => Word::add(word, value),
            Met::Model(word) => word.fetch_add(value, Ordering::AcqRel),
        }
    }
}

#[derive(Clone, Copy)]
struct Modelled(u64);

impl Host for Modelled {
    fn me(&self) -> ProcessName {
        name(self.0)
    }

    fn is_running(&self, process: ProcessName) -> bool {
        process.pid() != DEAD as u32
    }

    fn relax(&self) {
        thread::yield_now();
    }
}

fn small(segments_max: u32) -> Capacity {
    let geometry = Geometry { pages_max: 3, extent_units: 256, extents_max: 41 };
    Capacity { geometry, segments_max, processes_max: 3 }
}

/// Where the words are that a process of the test meets others on.
struct Places {
    /// Of each slot: its state, and a word of its container that is whoever's has the slot pinned.
    slots: Vec<(usize, usize)>,
    met: Vec<usize>,
}

fn places(capacity: Capacity) -> Places {
    let words: Vec<Plain> = (0..capacity.words()).map(|_| Plain::new(0)).collect();
    let slots = Slots::over(&words, capacity).unwrap();
    let index = |word: &Plain| (std::ptr::from_ref(word).addr() - words.as_ptr().addr()) / 8;
    let per_slot = (0..capacity.segments_max).map(|slot| {
        let shared: &Shared<Plain> =
            SharedState::new(slots.segment_words(slot), capacity.geometry).unwrap().shared();
        (index(slots.state_word(slot)), index(&shared.disk_blocks_left))
    });
    let slots_met: Vec<(usize, usize)> = per_slot.collect();
    let mut met = vec![LOCK];
    met.extend(slots_met.iter().flat_map(|(state, marker)| [*state, *marker]));
    met.extend(
        (0..capacity.processes_max).flat_map(|entry| slots.process_words(entry).iter().take(2)).map(index),
    );
    Places { slots: slots_met, met }
}

struct Region {
    words: Vec<Met>,
    capacity: Capacity,
}

impl Region {
    fn new(capacity: Capacity, places: &Places, preset: &[(usize, u64)]) -> Region {
        let word = |index: usize| {
            let value = preset.iter().find(|(at, _)| *at == index).map_or(0, |(_, value)| *value);
            if places.met.contains(&index) {
                Met::Model(AtomicU64::new(value))
            } else {
                Met::Plain(Plain::new(value))
            }
        };
        Region { words: (0..capacity.words()).map(word).collect(), capacity }
    }

    fn slots(&self) -> Slots<'_, Met> {
        Slots::over(&self.words, self.capacity).unwrap()
    }

    fn join(&self, pid: u64) -> Member<'_, Modelled, Met> {
        Member::enter(self.slots(), Modelled(pid)).unwrap()
    }

    fn marker(&self, slot: u32) -> &Met {
        let words = self.slots().segment_words(slot);
        &SharedState::new(words, self.capacity.geometry).unwrap().shared().disk_blocks_left
    }

    /// What who has pinned a slot may rely on: nobody wipes it, and nobody else's segment is there.
    fn use_slot(&self, slot: u32, mine: u64) {
        let found = self.marker(slot).load();
        assert!(found == 0 || found == mine, "the slot is of {found}, pinned for {mine}");
        self.marker(slot).store(mine);
        assert_eq!(self.marker(slot).load(), mine, "wiped, or another's, while it was pinned");
    }

    /// Finds or takes a slot and uses it, then once more by what it has kept.
    fn pin_twice(&self, pid: u64, relation: u32, mine: u64) {
        let member = self.join(pid);
        let (slot, generation) = loop {
            match member.acquire(&key(relation)).unwrap() {
                Acquired::Slot(pin, generation) => {
                    self.use_slot(pin.slot, mine);
                    break (pin.slot, generation);
                }
                Acquired::Full(_) => thread::yield_now(),
            }
        };
        if let Some(pin) = member.try_pin(slot, generation).unwrap() {
            self.use_slot(pin.slot, mine);
        }
    }
}

type Act = fn(&Region);

fn check(
    segments_max: u32,
    preset: fn(&Places) -> Vec<(usize, u64)>,
    preemptions: usize,
    acts: &'static [Act],
) {
    let capacity = small(segments_max);
    let places = Arc::new(places(capacity));
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 50_000;
    let executions = Arc::new(Plain::new(0));
    let counted = executions.clone();
    model.check(move || {
        let region = Arc::new(Region::new(capacity, &places, &preset(&places)));
        let threads: Vec<_> = acts
            .iter()
            .map(|act| {
                let (region, act) = (region.clone(), *act);
                thread::Builder::new().stack_size(1 << 15).spawn(move || act(&region)).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        counted.fetch_add(1, PlainOrdering::Relaxed);
    });
    println!("{} executions", executions.load(PlainOrdering::Relaxed));
}

#[test]
fn a_slot_is_not_taken_from_who_has_pinned_it() {
    check(1, |_| Vec::new(), 3, &[|region| region.pin_twice(1, 7, 1), |region| region.pin_twice(2, 8, 2)]);
}

#[test]
fn a_slot_is_not_evicted_under_a_pin() {
    check(
        1,
        |_| Vec::new(),
        3,
        &[
            |region| region.pin_twice(1, 7, 1),
            |region| {
                let member = region.join(2);
                member.evict(&key(7)).unwrap();
                member.evict(&key(7)).unwrap();
            },
        ],
    );
}

#[test]
fn a_segment_made_anew_gets_no_slot_while_the_old_one_is_in_use() {
    check(
        2,
        |_| Vec::new(),
        3,
        &[
            |region| region.pin_twice(1, 7, 1),
            |region| {
                let member = region.join(2);
                if !member.invalidate(&key(7)).unwrap() {
                    return;
                }
                // The other had the old one's slot, and has no way to the new one's.
                if let Acquired::Slot(pin, _) = member.acquire(&key(7)).unwrap() {
                    region.use_slot(pin.slot, 2);
                    assert_eq!(member.usage().segments, 1, "the old one is still there");
                }
            },
        ],
    );
}

#[test]
fn what_a_dead_holder_of_the_lock_left_is_repaired_by_one() {
    // It died while it was wiping slot 0, with half of the container's words gone.
    check(
        1,
        |places| {
            let dead = ProcessTable::me(&Peer::of(&Modelled(DEAD)));
            let [(state, marker), ..] = places.slots[..] else { return Vec::new() };
            vec![(LOCK, dead), (UNFINISHED, 1), (state, 4 | 3 << 8), (marker, 55)]
        },
        2,
        &[|region| region.pin_twice(1, 7, 1), |region| region.pin_twice(2, 8, 2)],
    );
}

#[test]
fn pins_of_the_dead_keep_nothing() {
    check(
        1,
        |places| {
            let dead = ProcessTable::me(&Peer::of(&Modelled(DEAD)));
            // Entry 2: its name and a pin of slot 0.
            let [.., entry, pins] = places.met[..] else { return Vec::new() };
            vec![(entry, dead), (pins, 1), (ENTRIES_END, 3)]
        },
        2,
        &[|region| region.pin_twice(1, 7, 1), |region| region.pin_twice(2, 8, 2)],
    );
}
