//! E: versions last for a container's life.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::{Container, Options, ProcessTable, Recovery, Scratch};

use super::{PAGES, birth, words};
use crate::fixture::{Bench, content, read, write};
use crate::updates::Memory;

fn version_limit(bench: &Bench) -> u64 {
    let bytes = bench.bytes();
    let limit = |disk_block: &[u8]| u64::from_le_bytes(disk_block[84..92].try_into().unwrap());
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
    // A disk block of the ring may still be an opening's.
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

type Work = Box<dyn FnOnce()>;

/// A process that does other work while it waits for a lock.
#[derive(Clone)]
struct Waiting(u64, Rc<RefCell<Option<Work>>>);

impl ProcessTable for Waiting {
    fn me(&self) -> u64 {
        self.0
    }

    fn is_alive(&self, _: u64) -> bool {
        true
    }

    fn relax(&self) {
        let work = self.1.take().expect("waits although nobody holds the lock");
        work();
    }
}

#[test]
fn a_close_that_waited_for_a_commit_still_says_that_it_closed() {
    let file: &'static Memory = Box::leak(Box::default());
    let options = Options::new(PAGES);
    let memory = words(options.geometry);
    let while_waiting: Rc<RefCell<Option<Work>>> = Rc::default();
    let me = Waiting(1, while_waiting.clone());
    let container = Container::create(file, me, memory, &birth(1), options).unwrap();
    let other = Waiting(2, Rc::default());
    let other = Container::open(file, other, memory, Recovery::Discard, options).unwrap().0;
    let shared = SharedState::new(memory, options.geometry).unwrap().shared();
    container.write(0, 1, 0, b"one", &mut Scratch::new()).unwrap();
    shared.commit_lock.store(2, Ordering::SeqCst);
    while_waiting.replace(Some(Box::new(move || {
        shared.commit_lock.store(0, Ordering::SeqCst);
        assert!(other.commit().unwrap().sequence.is_some());
    })));
    assert!(container.close().unwrap().sequence.is_some());
    drop(container);
    let opened = Container::open(file, Alone, words(options.geometry), Recovery::Discard, options);
    assert!(opened.unwrap().1.unwrap().was_closed);
}
