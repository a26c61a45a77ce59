//! The protocol on shared memory, model-checked: the interleavings of a few processes, with the memory
//! model's freedom.
//!
//! The models run the engine's own `write`, `read`, `commit`, `collect`, `truncate` and the rest. loom stands
//! in for the processors and orders the file's bytes ([`world`]). Each model names the words on which its
//! threads meet: these, entries, extents and records are loom's, everything else is plain memory on which at
//! most one of the threads works.

mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use loom::thread;
use pgshrink_cfs::allocator::Purpose;
use pgshrink_cfs::device::ProcessTable;
use pgshrink_cfs::entry::Entry;
use pgshrink_cfs::lock::CommitGuard;
use pgshrink_cfs::region::Shared;
use pgshrink_cfs::units::{Block, Units, Version};
use pgshrink_cfs::word::Word;
use pgshrink_cfs::{Budget, Scratch};

use world::{Checked, DEAD, EXTENT, Process, Start, World, payload, write};

/// What a thread of a model does.
type Act = fn(&World);

fn check(start: Start, acts: &'static [Act], after: Act) {
    check_bounded(start, 2, acts, after);
}

fn check_bounded(start: Start, preemptions: usize, acts: &'static [Act], after: Act) {
    let world = World::new(start);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    let executions: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    model.check(move || {
        world.reset();
        let threads: Vec<_> = acts.iter().map(|act| spawn(world, *act)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        spawn(world, after).join().unwrap();
        executions.fetch_add(1, Ordering::Relaxed);
    });
    println!("{} executions", executions.load(Ordering::Relaxed));
}

fn spawn(world: &'static World, act: Act) -> thread::JoinHandle<()> {
    // Words of stack: the engine keeps disk blocks on it.
    thread::Builder::new().stack_size(1 << 15).spawn(move || act(world)).unwrap()
}

/// Where writers and a commit meet.
fn appenders(shared: &Shared<Checked>) -> Vec<&Checked> {
    let [even, odd] = &shared.appending;
    vec![&shared.cursor, &shared.size, &shared.disk_blocks_left, even, odd]
}

fn cursor_and_size(shared: &Shared<Checked>) -> Vec<&Checked> {
    vec![&shared.cursor, &shared.size]
}

/// One page in extent 3, which is full.
const ONE_PAGE: Start = Start {
    meeting: cursor_and_size,
    before: |container| write(container, 0, 1),
    since: |_| (),
    has_leaves: false,
    keeps_disk_blocks: false,
    words: |_| (),
    fault: pgshrink_cfs::fault::Fault::None,
};

#[test]
fn a_page_that_a_write_appends_is_not_lost_to_a_commit() {
    let start = Start {
        meeting: cursor_and_size,
        // The new page's record fills extent 3, in which nothing else is alive.
        since: World::waste,
        ..Start::default()
    };
    check(
        start,
        &[
            |world| world.write(1, 0, 5),
            |world| {
                world.process(2).commit().unwrap();
            },
        ],
        |world| {
            world.assert_sound();
            // Into space that the commit may have freed.
            world.write(1, 1, 6);
            world.write(1, 2, 7);
            assert_eq!(world.commit_and_open_anew(), [5, 6, 7]);
        },
    );
}

#[test]
fn a_reader_finds_its_page_while_its_place_is_freed_and_written_again() {
    // Extent 4 is dead, and half of extent 5.
    let since = |world: &World| (0..3).for_each(|_| world.waste());
    check(
        Start { since, ..ONE_PAGE },
        &[
            |world| {
                // Page 0 leaves extent 3, which becomes free and is filled again; another page comes to its
                // place.
                world.write(1, 0, 2);
                world.process(1).commit().unwrap();
                world.write(1, 1, 3);
                world.write(1, 0, 4);
                let first = world.state().entry(Block(1)).span().location;
                assert_eq!(first.0, 3 * EXTENT, "the place was not used again");
            },
            |world| assert!(matches!(world.read(2, 0), 1 | 2 | 4)),
        ],
        |world| assert_eq!(world.commit_and_open_anew(), [4, 3]),
    );
}

#[test]
fn an_extent_is_not_freed_under_a_writer() {
    check(
        Start { since: |world| world.process(1).extend(2).unwrap(), ..ONE_PAGE },
        &[
            |world| world.write(1, 0, 2),
            |world| {
                world.write(2, 1, 3);
                // The first leaves the extent behind, the second might free it.
                world.process(2).commit().unwrap();
                world.process(2).commit().unwrap();
            },
        ],
        |world| {
            world.assert_sound();
            (0..3).for_each(|generation| world.write(1, 2, 7 + generation));
            assert_eq!(world.commit_and_open_anew(), [2, 3, 9]);
        },
    );
}

#[test]
fn a_version_that_a_commit_missed_is_in_the_next_one() {
    check(
        ONE_PAGE,
        &[
            |world| {
                world.write(1, 0, 2);
                world.process(1).write_zeros(0).unwrap();
            },
            |world| {
                world.process(2).commit().unwrap();
            },
        ],
        |world| assert_eq!(world.commit_and_open_anew(), [0]),
    );
}

#[test]
fn a_collectors_copy_never_hides_a_write() {
    check(
        ONE_PAGE,
        &[
            |world| world.write(1, 0, 2),
            |world| {
                world.process(2).collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
            },
            |world| assert!(matches!(world.read(3, 0), 1 | 2)),
        ],
        |world| assert_eq!(world.commit_and_open_anew(), [2]),
    );
}

#[test]
fn growing_segments_keep_what_others_wrote_in_between() {
    let meeting: world::Meeting = |shared| vec![&shared.cursor, &shared.size, &shared.loader_lock];
    check_bounded(
        Start { meeting, ..Start::default() },
        1,
        &[
            |world| world.write(1, 0, 2),
            |world| world.process(2).extend(2).unwrap(),
            |world| world.process(3).extend(3).unwrap(),
        ],
        |world| assert_eq!(world.commit_and_open_anew(), [2, 0, 0]),
    );
}

fn write_with_dictionary(world: &World, process: usize) {
    let page = payload(0, 2);
    // The one who comes too late is refused.
    let _ = world.process(process).write(0, 1, 1, &page, &mut Scratch::new());
}

#[test]
fn a_dictionary_is_not_dropped_under_its_writers() {
    let start = Start {
        meeting: |shared| shared.gates.iter().take(1).collect(),
        before: |container| {
            write(container, 0, 1);
            assert_eq!(container.add_dictionary([1; 16], &[7; 100]).unwrap(), 1);
        },
        ..ONE_PAGE
    };
    check(
        start,
        &[
            |world| write_with_dictionary(world, 1),
            |world| write_with_dictionary(world, 2),
            |world| {
                world.process(3).drop_dictionary(1).unwrap();
            },
        ],
        |world| {
            let is_there = world.process(1).dictionary(1).is_ok();
            let is_used = world.read(1, 0) == 2;
            assert!(is_there || !is_used, "the page has lost its dictionary");
            assert!(!world.state().has_writers(1));
            assert_eq!(world.process(1).drop_dictionary(1).ok(), is_there.then_some(!is_used));
        },
    );
}

/// Two pages, with both entries in a leaf that is not loaded.
fn unloaded() -> Start {
    Start {
        meeting: |shared| {
            let [leaves, ..] = &shared.leaves_loaded;
            let [touched, ..] = &shared.leaves_touched;
            vec![&shared.size, &shared.loader_lock, &shared.load_limit, leaves, touched]
        },
        before: |container| {
            write(container, 0, 1);
            write(container, 1, 1);
        },
        has_leaves: true,
        ..Start::default()
    }
}

#[test]
fn loaders_hide_no_write_and_bring_back_nothing_that_was_cut_off() {
    check_bounded(
        unloaded(),
        1,
        &[
            |world| world.write(1, 0, 2),
            |world| assert!(matches!(world.read(2, 0), 1 | 2)),
            |world| {
                world.process(3).truncate(1).unwrap();
                world.process(3).extend(2).unwrap();
                assert_eq!(world.read(3, 1), 0);
            },
        ],
        |world| {
            assert_eq!((world.read(1, 0), world.read(1, 1)), (2, 0));
            assert_eq!(world.commit_and_open_anew(), [2, 0]);
        },
    );
}

/// Three pages, of which somebody read some time ago.
fn idle() -> Start {
    Start {
        meeting: |shared| {
            let mut met = (unloaded().meeting)(shared);
            met.push(&shared.unloads);
            met
        },
        before: |container| (0..3).for_each(|block| write(container, block, 1)),
        since: |world| {
            world.read(1, 0);
            assert_eq!(world.unload(1), 0);
        },
        ..unloaded()
    }
}

#[test]
fn a_page_that_is_written_while_its_leaf_is_unloaded_is_not_lost() {
    let after: Act = |world| {
        assert_eq!((world.read(1, 0), world.read(3, 1)), (2, 1));
        assert_eq!(world.commit_and_open_anew(), [2, 1, 1]);
    };
    let unload: Act = |world| {
        world.unload(2);
    };
    let write: Act = |world| world.write(1, 0, 2);
    check(idle(), Vec::leak(vec![write, unload]), after);
}

#[test]
fn a_page_is_found_while_its_leaf_is_unloaded_and_loaded_and_unloaded_again() {
    check(
        idle(),
        &[
            |world| assert_eq!((world.read(1, 0), world.read(1, 2)), (1, 1)),
            |world| {
                let unloaded: u32 = (0..3).map(|_| world.unload(2)).sum();
                assert!(unloaded <= 3);
            },
        ],
        |world| assert_eq!(world.commit_and_open_anew(), [1, 1, 1]),
    );
}

#[test]
fn a_process_that_died_while_it_unloaded_a_leaf_takes_no_page_along() {
    let since = |world: &World| {
        (idle().since)(world);
        world.unload(1);
        // It had come to the second entry.
        world.shared().unloads.store(world.shared().unloads.load() + 1);
        world.shared().loader_lock.store(DEAD);
    };
    check(
        Start { since, ..idle() },
        &[|world| world.write(1, 0, 2), |world| assert_eq!(world.read(2, 1), 1)],
        |world| assert_eq!(world.commit_and_open_anew(), [2, 1, 1]),
    );
}

#[test]
fn a_leaf_that_is_written_anew_has_what_was_not_loaded_when_it_began() {
    let start = Start {
        meeting: |shared| {
            let mut met = (unloaded().meeting)(shared);
            met.push(&shared.leaf_places[0]);
            met
        },
        ..unloaded()
    };
    let commit: Act = |world| {
        world.process(3).commit().unwrap();
    };
    let after: Act = |world| assert_eq!(world.commit_and_open_anew(), [2, 1]);
    let write_and_read: Act = |world| {
        world.write(1, 0, 2);
        assert_eq!(world.read(1, 1), 1);
    };
    check(start, Vec::leak(vec![write_and_read, commit]), after);
    let (write, read): (Act, Act) = (|world| world.write(1, 0, 2), |world| assert_eq!(world.read(2, 1), 1));
    check_bounded(start, 1, Vec::leak(vec![write, read, commit]), after);
}

#[test]
fn a_loader_that_was_killed_is_followed_by_another() {
    let since = |world: &World| {
        // It had come to the second entry.
        world.process(1).read(0, &mut Scratch::new()).unwrap();
        world.state().set_entry(Block(1), Entry::MISSING);
        world.shared().leaves_loaded[0].store(0);
        world.shared().loader_lock.store(DEAD);
    };
    check(
        Start { since, ..unloaded() },
        &[
            |world| assert_eq!(world.read(1, 1), 1),
            |world| {
                world.write(2, 0, 2);
                assert_eq!(world.read(2, 1), 1);
            },
        ],
        |world| {
            assert!(world.state().is_loaded(Block(0).leaf()));
            assert_eq!(world.shared().loader_lock.load(), 0);
            assert_eq!(world.commit_and_open_anew(), [2, 1]);
        },
    );
}

/// The words of the commit lock, and two that are nobody's else in these models.
fn locks(shared: &Shared<Checked>) -> Vec<&Checked> {
    vec![&shared.commit_lock, &shared.poisoned, &shared.ring]
}

const NOBODY: u64 = 99;

/// Whether nobody else was inside. The word is one that only the lock's holder may write.
fn is_alone_inside(shared: &Shared<Checked>, me: u64) -> bool {
    let found = shared.ring.load();
    shared.ring.store(me);
    let is_alone = found == NOBODY && shared.ring.load() == me;
    shared.ring.store(NOBODY);
    is_alone
}

fn hold(world: &World, me: u64) {
    let guard = CommitGuard::lock(world.shared(), &Process(me));
    assert!(is_alone_inside(world.shared(), me), "another is inside");
    drop(guard);
}

fn locking(since: fn(&World)) -> Start {
    Start { meeting: locks, since, words: |shared| shared.ring.store(NOBODY), ..Start::default() }
}

#[test]
fn a_dead_holders_lock_is_taken_by_one() {
    let since = |world: &World| world.shared().commit_lock.store(DEAD);
    check(
        locking(since),
        &[
            |world| hold(world, 1),
            |world| hold(world, 2),
            |world| {
                if let Some(_guard) = CommitGuard::try_lock(world.shared(), &Process(3)) {
                    assert!(is_alone_inside(world.shared(), 3), "another is inside");
                }
            },
        ],
        |world| {
            let shared = world.shared();
            assert_eq!((shared.commit_lock.load(), shared.poisoned.load()), (0, 0));
        },
    );
}

#[test]
fn a_process_that_left_a_lock_behind_takes_it_again_alone() {
    // As a longjmp: nothing is dropped.
    let forget = |world: &World| std::mem::forget(CommitGuard::lock(world.shared(), &Process(1)));
    let after: Act = |world| {
        let shared = world.shared();
        assert_eq!((shared.commit_lock.load(), shared.poisoned.load()), (0, 0));
    };
    check(locking(forget), &[|world| hold(world, 1), |world| hold(world, 2)], after);
    check(
        locking(forget),
        &[
            |world| {
                world.process(1).release_held();
                // Nothing of others.
                world.process(1).release_held();
            },
            |world| hold(world, 2),
        ],
        after,
    );
}

/// Takes everybody for dead.
struct Mistaken(u64);

impl ProcessTable for Mistaken {
    fn me(&self) -> u64 {
        self.0
    }

    fn is_alive(&self, _: u64) -> bool {
        false
    }

    fn relax(&self) {
        thread::yield_now();
    }
}

#[test]
fn a_lock_that_was_taken_from_the_living_poisons_and_stays_with_its_new_holder() {
    check(
        locking(|_| ()),
        &[
            |world| {
                let guard = CommitGuard::lock(world.shared(), &Process(1));
                let is_alone = is_alone_inside(world.shared(), 1);
                drop(guard);
                assert!(
                    is_alone || world.shared().poisoned.load() == 1,
                    "nobody learns that two were inside"
                );
            },
            |world| {
                let guard = CommitGuard::lock(world.shared(), &Mistaken(2));
                assert_eq!(world.shared().commit_lock.load(), 2);
                thread::yield_now();
                assert_eq!(world.shared().commit_lock.load(), 2, "let go by another");
                drop(guard);
                assert_ne!(world.shared().commit_lock.load(), 2);
            },
        ],
        |world| assert_eq!(world.shared().commit_lock.load(), 0),
    );
}

#[test]
fn no_writer_is_in_a_disk_block_that_a_commit_makes_durable() {
    let start = Start {
        meeting: appenders,
        since: |world| {
            world.process(1).extend(3).unwrap();
            // Half of a disk block, not durable yet.
            world.write(1, 0, 1);
        },
        keeps_disk_blocks: true,
        ..Start::default()
    };
    check(
        start,
        &[
            |world| world.write(1, 1, 2),
            |world| {
                world.process(2).commit().unwrap();
                // Not page 0: nothing becomes free here.
                world.write(2, 2, 3);
                world.process(2).commit().unwrap();
            },
        ],
        |world| assert_eq!(world.commit_and_open_anew(), [1, 2, 3]),
    );
}

/// A writer that does not look whether the disk block was left.
fn append_blindly(world: &World) {
    let state = world.state();
    let appending = state.enter_append();
    // A disk block is not filled by these.
    let reserved = state.reserve(Units(16), Purpose::Page).unwrap();
    let extent = reserved.span().location.0 / EXTENT;
    assert!(world.shared().ring.load() <= u64::from(extent), "a disk block that was left is being written");
    drop((appending, reserved));
}

/// Leaves the disk block, waits, and says in a word that is nobody's else below which extent nobody writes
/// any more.
fn leave(world: &World) {
    let state = world.state();
    state.leave_disk_block();
    while state.has_writers_left() {
        thread::yield_now();
    }
    world.shared().ring.store(u64::from(world.shared().cursor.load() as u32 / EXTENT));
}

fn leaving(since: Act) -> Start {
    let meeting: world::Meeting = |shared| {
        let mut met = appenders(shared);
        met.push(&shared.ring);
        met
    };
    Start { meeting, since, words: |shared| shared.ring.store(0), ..Start::default() }
}

#[test]
fn who_waits_for_the_writers_of_a_disk_block_misses_none() {
    check_bounded(
        leaving(World::waste),
        3,
        &[append_blindly, |world| {
            leave(world);
            world.waste();
            leave(world);
        }],
        |world| assert!(!world.state().has_writers_left()),
    );
}

#[test]
fn a_writer_that_was_killed_is_given_up_alone() {
    let since = |world: &World| {
        let state = world.state();
        std::mem::forget(state.enter_append());
        world.waste();
        state.leave_disk_block();
        assert!(state.has_writers_left());
        state.give_writers_up();
        assert!(!state.has_writers_left());
        world.waste();
        state.leave_disk_block();
        world.waste();
    };
    check_bounded(leaving(since), 3, &[append_blindly, leave], |world| {
        assert!(!world.state().has_writers_left())
    });
}

#[test]
fn no_version_is_given_out_above_what_a_closing_root_says() {
    let start =
        Start { meeting: |shared| vec![&shared.next_version, &shared.version_limit], ..Start::default() };
    fn draw(world: &World) {
        for _ in 0..2 {
            let Some(Version(drawn)) = world.state().draw_version() else { continue };
            // The most that any draw was given.
            let most = world.shared().ring.load();
            world.shared().ring.store(most.max(drawn));
        }
    }
    check(
        Start { words: |shared| shared.ring.store(0), ..start },
        &[draw, draw, |world| {
            let guard = CommitGuard::lock(world.shared(), &Process(3));
            let Version(end) = world.state().end_versions(&guard);
            world.shared().known_end.store(end);
        }],
        |world| {
            let (most, end) = (world.shared().ring.load(), world.shared().known_end.load());
            assert!(most < end, "version {most} was given out, the root says none from {end} on");
            assert_eq!(world.state().draw_version(), None);
        },
    );
    check(
        start,
        &[
            |world| {
                let drawn = world.state().draw_version().map_or(0, |version| version.0);
                world.shared().known_free.store(drawn);
            },
            |world| {
                world.process(2).close().unwrap();
            },
        ],
        |world| {
            let drawn = world.shared().known_free.load();
            assert!(drawn < world.shared().version_limit.load());
            // Commits go on where the closed root ended.
            world.write(1, 0, 2);
            assert_eq!(world.commit_and_open_anew(), [2]);
        },
    );
}
