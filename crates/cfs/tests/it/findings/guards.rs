//! G: what a jump or a panic leaves behind.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::{Budget, Container, Error, Options, ProcessTable, Recovery, Scratch};

use super::{Hooked, PAGES, birth, words};
use crate::updates::Memory;

fn count_down(calls: &Cell<u32>) {
    let left = calls.get();
    calls.set(left.saturating_sub(1));
    assert_ne!(left, 1, "as planned");
}

/// One of several processes, all alive but number 9.
#[derive(Clone, Copy)]
struct Named(u64);

impl ProcessTable for Named {
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
        // Calls until one panics; 0: none does.
        let (writes_left, syncs_left) = (Cell::new(0), Cell::new(0));
        let file = || Hooked {
            device: &memory,
            before_write: |_| count_down(&writes_left),
            before_sync: || count_down(&syncs_left),
        };
        let options = Options::new(PAGES);
        let shared = words(options.geometry);
        let container = Container::create(file(), Named(1), shared, &birth(1), options).unwrap();
        let other = Container::open(file(), Named(2), shared, Recovery::Discard, options).unwrap().0;
        let mut scratch = Scratch::new();
        (0..PAGES).for_each(|block| container.write(block, 1, 0, b"before", &mut scratch).unwrap());
        writes_left.set(writes);
        syncs_left.set(syncs);
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
    let state = SharedState::new(shared, options.geometry).unwrap();
    let locks = [&state.shared().commit_lock, &state.shared().collector_lock, &state.shared().loader_lock];
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

impl ProcessTable for Mistaken<'_> {
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
    let state = SharedState::new(shared, options.geometry).unwrap();
    let taken = Cell::new(false);
    let container = Container::create(&memory, Mistaken(1, &taken), shared, &birth(1), options).unwrap();
    container.write(0, 1, 0, b"one", &mut Scratch::new()).unwrap();
    // While it commits, another takes the lock, as if this one were dead.
    memory.at_sync.set(Some((&state.shared().commit_lock, 2)));
    let _ = container.commit();
    assert_eq!(state.shared().commit_lock.load(Ordering::SeqCst), 2, "the other's lock was let go");
    taken.set(true);
    assert_eq!(container.commit(), Err(Error::Poisoned));
}
