//! A container beside a plain file that has its pages: from state to state, with the power lost anywhere.

use std::sync::atomic::AtomicU64;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::sim::{Disk, DiskFile, FaultRates};
use pgshrink_cfs::store::{PageStore, Writing};
use pgshrink_cfs::{
    Base, Birth, Container, Device, Error, Folder, Identity, KEY_BYTES, Moved, Options, Recovery, Workspace,
    segment,
};
use pgshrink_testkit::seed::Seed;

use crate::fixture::{Bench, TestSeal};

type Store = PageStore<'static, DiskFile, Alone>;

fn page(block: u32, generation: u32) -> [u8; 8192] {
    let mut page = [generation as u8; 8192];
    page[..8].copy_from_slice(&(u64::from(block) << 32 | u64::from(generation)).to_le_bytes());
    page
}

fn options(fault: Fault) -> Options<'static> {
    Options { fault, ..Options::new(64) }
}

/// A plain file of so many pages, durable, and a container beside it.
fn over_base(bench: &Bench, pages: u32) -> Store {
    let base = bench.disk.create(segment::BASE_NAME).unwrap();
    for block in 0..pages {
        base.pwrite(&page(block, 1), u64::from(block) * 8192).unwrap();
    }
    base.fdatasync().unwrap();
    let birth = Birth { id: [3; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
    let file = bench.disk.create(segment::FILE_NAME).unwrap();
    let made = Container::create_over_base(file, Alone, bench.words(), (&birth, 0), bench.options).unwrap();
    Folder::sync_dir(&bench.disk).unwrap();
    PageStore::new(made).unwrap()
}

fn reopen(bench: &Bench) -> Result<Store, Error> {
    let words: &'static [AtomicU64] = bench.words();
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    let (container, _) = Container::open(file, Alone, words, Recovery::Discard, bench.options)?;
    Ok(PageStore::new(container).unwrap())
}

fn leave(store: &Store) {
    assert!(store.container().freeze() && store.container().begin_leaving().unwrap());
}

fn move_all(store: &Store, workspace: &mut Workspace) {
    for block in 0..store.container().pages() {
        let done = match store.container().base() {
            Base::Leaving => store.pages().move_from_base(block, &Writing::default(), workspace).unwrap(),
            _ => store.pages().move_to_base(block, workspace).unwrap(),
        };
        assert_ne!(done, Moved::Busy);
    }
}

fn check(store: &Store, expected: &[u32], workspace: &mut Workspace) {
    assert_eq!(store.container().page_count().unwrap(), expected.len() as u32);
    let mut found = [0; 8192];
    for (block, generation) in (0..).zip(expected) {
        store.read(block, &mut found, workspace).unwrap();
        let wanted = if *generation == 0 { [0; 8192] } else { page(block, *generation) };
        assert!(found == wanted, "block {block} should be generation {generation}, is {:?}", &found[..8]);
    }
}

fn workspace() -> Workspace {
    Workspace::new(Workspace::BUDGET_BYTES).unwrap()
}

#[test]
fn pages_leave_the_base_while_they_are_read_written_cut_and_added() {
    let (bench, mut w) = (Bench::new(options(Fault::None)), workspace());
    let store = over_base(&bench, 10);
    check(&store, &[1; 10], &mut w);
    let write = |store: &Store, block, generation, w: &mut Workspace| {
        store.write(block, &page(block, generation), &Writing::default(), w).map(drop).unwrap();
    };
    // While it is whole, everything goes there.
    write(&store, 3, 2, &mut w);
    write(&store, 10, 2, &mut w);
    store.container().extend(13).unwrap();
    store.container().truncate(12).unwrap();
    check(&store, &[1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 0], &mut w);
    store.container().commit().unwrap();
    leave(&store);
    check(&store, &[1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 0], &mut w);
    write(&store, 5, 3, &mut w);
    // What is cut off does not come back with growth.
    store.container().truncate(8).unwrap();
    store.container().extend(10).unwrap();
    check(&store, &[1, 1, 1, 2, 1, 3, 1, 1, 0, 0], &mut w);
    assert!(!store.container().finish_leaving().unwrap());
    move_all(&store, &mut w);
    assert_eq!(store.container().in_base(0, 64).unwrap(), (0, None));
    assert!(store.container().finish_leaving().unwrap());
    bench.disk.unlink(segment::BASE_NAME).unwrap();
    check(&store, &[1, 1, 1, 2, 1, 3, 1, 1, 0, 0], &mut w);
    bench.disk.lose_power();
    check(&reopen(&bench).unwrap(), &[1, 1, 1, 2, 1, 3, 1, 1, 0, 0], &mut w);
}

#[test]
fn pages_return_to_the_base_while_they_are_read_written_cut_and_added() {
    let (bench, mut w) = (Bench::new(options(Fault::None)), workspace());
    let store = over_base(&bench, 8);
    leave(&store);
    move_all(&store, &mut w);
    assert!(store.container().finish_leaving().unwrap());
    bench.disk.unlink(segment::BASE_NAME).unwrap();
    assert!(matches!(store.container().begin_returning(), Err(Error::Device { .. })), "there is no base");
    bench.disk.create(segment::BASE_NAME).unwrap();
    Folder::sync_dir(&bench.disk).unwrap();
    assert!(store.container().begin_returning().unwrap());
    move_all(&store, &mut w);
    // In place from now on, and what is new follows.
    store.write(2, &page(2, 5), &Writing::default(), &mut w).unwrap();
    store.container().truncate(6).unwrap();
    store.container().extend(7).unwrap();
    store.write(7, &page(7, 5), &Writing::default(), &mut w).unwrap();
    assert!(store.container().freeze() && !store.container().become_whole().unwrap());
    store.container().thaw();
    move_all(&store, &mut w);
    store.container().commit().unwrap();
    assert!(store.container().freeze() && store.container().become_whole().unwrap());
    check(&store, &[1, 1, 5, 1, 1, 1, 0, 5], &mut w);
    store.container().commit().unwrap();
    assert_eq!(bench.disk.bytes(segment::BASE_NAME).unwrap().len(), 8 * 8192);
    bench.disk.lose_power();
    let store = reopen(&bench).unwrap();
    assert_eq!(store.container().base(), Base::Whole);
    check(&store, &[1, 1, 5, 1, 1, 1, 0, 5], &mut w);
    // And again.
    leave(&store);
    check(&store, &[1, 1, 5, 1, 1, 1, 0, 5], &mut w);
    store.container().commit().unwrap();
    bench.disk.lose_power();
    check(&reopen(&bench).unwrap(), &[1, 1, 5, 1, 1, 1, 0, 5], &mut w);
}

#[test]
fn a_root_whose_base_is_missing_does_not_open() {
    let bench = Bench::new(options(Fault::None));
    let store = over_base(&bench, 4);
    leave(&store);
    store.container().commit().unwrap();
    bench.disk.unlink(segment::BASE_NAME).unwrap();
    assert!(matches!(reopen(&bench).map(drop), Err(Error::BaseMissing { base: Base::Leaving })));
}

#[test]
fn who_has_waited_thaws_and_the_change_does_not_happen() {
    let (bench, mut w) = (Bench::new(options(Fault::None)), workspace());
    let store = over_base(&bench, 4);
    assert!(store.container().freeze() && !store.container().freeze());
    store.container().thaw();
    assert!(!store.container().begin_leaving().unwrap() && store.container().base() == Base::Whole);
    store.write(1, &page(1, 9), &Writing::default(), &mut w).unwrap();
    check(&store, &[1, 9, 1, 1], &mut w);
    leave(&store);
    check(&store, &[1, 9, 1, 1], &mut w);
}

/// Random operations and power failures against a model: what an fsync has acknowledged is there, or something newer.
// tidy: long, an arm for each operation of the model
fn run(seed: u64, fault: Fault) -> Result<(), String> {
    let mut rng = Seed(seed).rng();
    let bench = Bench::new(options(fault));
    let mut w = workspace();
    let mut store = over_base(&bench, 6);
    // By block: generations that it may have after a crash, the newest last. 0: zeros.
    let mut may_be: Vec<Vec<u32>> = vec![vec![1]; 6];
    // Sizes that it may have after a crash.
    let mut sizes = vec![6_usize];
    let mut generation = 1;
    for _ in 0..120 {
        let base = store.container().base();
        let pages = store.container().page_count().map_err(|error| error.to_string())? as usize;
        let operation = rng.below(14);
        if std::env::var_os("TRACE").is_some() {
            eprintln!("{operation} {base:?} pages {pages} may be {may_be:?} sizes {sizes:?}");
        }
        match operation {
            0..=4 => {
                generation += 1;
                let block = rng.below(pages + 1).min(40);
                let content = page(block as u32, generation);
                store
                    .write(block as u32, &content, &Writing::default(), &mut w)
                    .map_err(|e| e.to_string())?;
                if may_be.len() <= block {
                    may_be.resize(block + 1, vec![0]);
                }
                may_be[block].push(generation);
                if block >= pages {
                    sizes.push(block + 1);
                }
            }
            5 => {
                let to = rng.below(pages + 1) as u32;
                let c = store.container();
                c.truncate(to).map_err(|e| e.to_string())?;
                sizes.push(to as usize);
                // What comes back there is zeros, or what was there if the cut is lost.
                may_be.iter_mut().skip(to as usize).for_each(|page| page.push(0));
            }
            6 => {
                let to = (pages as u32 + rng.below(3) as u32).min(40);
                let c = store.container();
                c.extend(to).map_err(|e| e.to_string())?;
                may_be.resize(may_be.len().max(to as usize), vec![0]);
                may_be[pages..to as usize].iter_mut().for_each(|page| page.push(0));
                // A base grows page by page.
                sizes.extend(pages + 1..=to as usize);
            }
            7 | 8 => {
                store.container().commit().map_err(|error| error.to_string())?;
                may_be.iter_mut().for_each(|page| drop(page.drain(..page.len() - 1)));
                sizes.drain(..sizes.len() - 1);
            }
            9 => match base {
                Base::Whole => {
                    assert!(store.container().freeze() && store.container().begin_leaving().unwrap())
                }
                Base::Leaving if rng.below(2) == 0 => assert!(store.container().begin_returning().unwrap()),
                Base::Returning if rng.below(2) == 0 => {
                    assert!(store.container().freeze() && store.container().turn_round().unwrap());
                }
                Base::None => {
                    // A loss of power may have brought the name of the one before back.
                    let _ = bench.disk.unlink(segment::BASE_NAME);
                    bench.disk.create(segment::BASE_NAME).unwrap();
                    Folder::sync_dir(&bench.disk).unwrap();
                    assert!(store.container().begin_returning().unwrap());
                }
                _ => {}
            },
            10 | 11 => {
                for _ in 0..4 {
                    let block = rng.below(pages.max(1)) as u32;
                    let moved = match base {
                        Base::Leaving => store.pages().move_from_base(block, &Writing::default(), &mut w),
                        Base::Returning => store.pages().move_to_base(block, &mut w),
                        _ => break,
                    };
                    moved.map_err(|error| error.to_string())?;
                }
            }
            12 => {
                if matches!(base, Base::Leaving | Base::Returning) && rng.below(2) == 0 {
                    move_all(&store, &mut w);
                }
                if base == Base::Leaving && store.container().finish_leaving().unwrap() {
                    let unlinked = bench.disk.unlink(segment::BASE_NAME);
                    unlinked.map_err(|error| error.to_string())?;
                }
                if base == Base::Returning {
                    store.container().commit().map_err(|error| error.to_string())?;
                    may_be.iter_mut().for_each(|page| drop(page.drain(..page.len() - 1)));
                    sizes.drain(..sizes.len() - 1);
                    assert!(store.container().freeze());
                    if !store.container().become_whole().unwrap() {
                        store.container().thaw();
                    }
                }
            }
            _ => {
                bench.disk.lose_power();
                store = reopen(&bench).map_err(|error| error.to_string())?;
                let pages = store.container().page_count().unwrap() as usize;
                if !sizes.contains(&pages) {
                    return Err(format!("{pages} pages after a crash, may be {sizes:?}"));
                }
                sizes = vec![pages];
                may_be.truncate(pages);
                let mut found = [0; 8192];
                for (block, may_be) in (0..).zip(&mut may_be) {
                    store.read(block, &mut found, &mut w).map_err(|error| error.to_string())?;
                    let is = may_be.iter().find(|generation| match **generation {
                        0 => found == [0; 8192],
                        generation => found == page(block, generation),
                    });
                    let Some(is) = is.copied() else {
                        // A base is written in place: what was not synced may be torn, as in every plain file.
                        if matches!(store.container().base(), Base::Whole | Base::Returning)
                            && may_be.len() > 1
                        {
                            generation += 1;
                            let healed = page(block, generation);
                            store.write(block, &healed, &Writing::default(), &mut w).unwrap();
                            *may_be = vec![generation];
                            continue;
                        }
                        return Err(format!("block {block} is {:?}, may be {may_be:?}", &found[..8]));
                    };
                    *may_be = vec![is];
                }
                // What was found, and healed, is what another loss of power leaves.
                store.container().commit().map_err(|error| error.to_string())?;
            }
        }
        // What is there now is the newest of all.
        let mut found = [0; 8192];
        for (block, may_be) in (0..store.container().page_count().unwrap()).zip(&may_be) {
            store.read(block, &mut found, &mut w).map_err(|error| error.to_string())?;
            let newest = *may_be.last().unwrap();
            if !(newest == 0 && found == [0; 8192] || found == page(block, newest)) {
                return Err(format!("block {block} is {:?}, should be {newest}", &found[..8]));
            }
        }
    }
    Ok(())
}

#[test]
fn nothing_acknowledged_is_lost_whatever_state_the_base_is_in() {
    let seed = Seed::from_env_or_time();
    for round in 0..400 {
        let seed = seed.0.wrapping_add(round);
        run(seed, Fault::None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn a_base_that_is_not_synced_is_noticed() {
    assert!((0..400).any(|seed| run(seed, Fault::BaseNotSynced).is_err()));
}

#[test]
fn what_others_wrote_to_a_whole_base_is_synced_too() {
    for leaves in [false, true] {
        let (bench, mut w) = (Bench::new(options(Fault::None)), workspace());
        let store = over_base(&bench, 12);
        store.container().commit().unwrap();
        // By a descriptor of the plain file that the segment was: nothing counts it.
        let plain = bench.disk.open(segment::BASE_NAME).unwrap();
        for block in 0..12 {
            plain.pwrite(&page(block, 2), u64::from(block) * 8192).unwrap();
        }
        if leaves {
            leave(&store);
        }
        store.container().commit().unwrap();
        bench.disk.lose_power();
        check(&reopen(&bench).unwrap(), &[2; 12], &mut w);
    }
}

/// A container whose pages have all returned, durably, and a page that was written in place since.
fn written_in_place(bench: &Bench, w: &mut Workspace) {
    let store = over_base(bench, 12);
    leave(&store);
    store.container().commit().unwrap();
    assert!(store.container().begin_returning().unwrap());
    store.container().commit().unwrap();
    for block in 0..12 {
        store.write(block, &page(block, 7), &Writing::default(), w).unwrap();
    }
}

#[test]
fn what_a_server_that_was_killed_wrote_in_place_is_synced_when_the_segment_is() {
    for turns_round in [false, true] {
        let (bench, mut w) = (Bench::new(options(Fault::None)), workspace());
        written_in_place(&bench, &mut w);
        // The server is killed, and starts: it syncs all files, as redo takes what only the cache has for durable.
        let store = reopen(&bench).unwrap();
        check(&store, &[7; 12], &mut w);
        if turns_round {
            assert!(store.container().freeze() && store.container().turn_round().unwrap());
        }
        store.container().commit().unwrap();
        bench.disk.lose_power();
        check(&reopen(&bench).unwrap(), &[7; 12], &mut w);
    }
}

#[test]
fn a_page_that_is_written_while_others_commit_is_synced_by_the_next_commit() {
    thread_local! {
        static OTHER: std::cell::Cell<Option<&'static Store>> = const { std::cell::Cell::new(None) };
    }
    let disk = Disk::new(1, || {
        if let Some(store) = OTHER.take() {
            store.container().commit().unwrap();
        }
    });
    disk.set_locks_ignored(true);
    let (bench, mut w) = (Bench { disk, options: options(Fault::None) }, workspace());
    let store: &'static Store = Box::leak(Box::new(over_base(&bench, 12)));
    leave(store);
    assert!(store.container().begin_returning().unwrap());
    for block in 0..12 {
        OTHER.set(Some(store));
        store.write(block, &page(block, 2), &Writing::default(), &mut w).unwrap();
    }
    store.container().commit().unwrap();
    bench.disk.lose_power();
    check(&reopen(&bench).unwrap(), &[2; 12], &mut w);
}

#[test]
fn a_part_of_a_page_is_no_page_of_a_whole_base_and_damage_of_any_other() {
    let (bench, mut w) = (Bench::new(options(Fault::None)), workspace());
    let store = over_base(&bench, 4);
    let base = bench.disk.open(segment::BASE_NAME).unwrap();
    base.truncate(3 * 8192 + 100).unwrap();
    check(&store, &[1; 3], &mut w);
    leave(&store);
    base.truncate(2 * 8192 + 100).unwrap();
    let read = store.read(2, &mut [0; 8192], &mut w).unwrap_err().to_string();
    assert!(read.contains("damaged page in the base"), "{read}");
}

#[test]
fn the_space_of_a_base_is_given_back_only_when_the_segment_has_no_pages() {
    let (bench, mut w) = (Bench::new(options(Fault::None)), workspace());
    let store = over_base(&bench, 4);
    leave(&store);
    store.container().drop_base().unwrap();
    check(&store, &[1; 4], &mut w);
    store.container().truncate(0).unwrap();
    store.container().commit().unwrap();
    store.container().drop_base().unwrap();
    assert_eq!(bench.disk.bytes(segment::BASE_NAME).unwrap().len(), 0);
}

#[test]
fn a_base_is_not_whole_before_pages_and_size_are_durable() {
    let (bench, mut w) = (Bench::new(options(Fault::None)), workspace());
    let store = over_base(&bench, 6);
    leave(&store);
    move_all(&store, &mut w);
    assert!(store.container().begin_returning().unwrap());
    let becomes_whole = || store.container().freeze() && store.container().become_whole().unwrap();
    move_all(&store, &mut w);
    assert!(!becomes_whole(), "pages are not durable");
    store.container().thaw();
    store.container().commit().unwrap();
    store.container().truncate(4).unwrap();
    assert!(!becomes_whole(), "the size is not durable");
    store.container().thaw();
    store.container().commit().unwrap();
    assert!(becomes_whole());
    check(&store, &[1; 4], &mut w);
}

#[test]
fn a_base_that_lacks_pages_while_others_never_were_in_it_is_damaged() {
    let (bench, mut w) = (Bench::new(options(Fault::None)), workspace());
    let store = over_base(&bench, 6);
    leave(&store);
    store.pages().move_from_base(0, &Writing::default(), &mut w).unwrap();
    assert!(store.container().begin_returning().unwrap());
    store.container().commit().unwrap();
    bench.disk.open(segment::BASE_NAME).unwrap().truncate(3 * 8192).unwrap();
    assert!(matches!(reopen(&bench).map(drop), Err(Error::Damaged(_))));
}

#[test]
fn a_page_that_is_written_during_the_sync_of_a_base_is_synced_by_the_next_commit() {
    thread_local! {
        /// Where a page is written, and before how many more of the disk's operations.
        static OTHER: std::cell::Cell<Option<(&'static Store, u32)>> = const { std::cell::Cell::new(None) };
    }
    for operations in 0..6 {
        let disk = Disk::new(1, || ()).with_begin(|| match OTHER.take() {
            Some((store, 0)) => {
                for block in 0..12 {
                    let done = store.write(block, &page(block, 3), &Writing::default(), &mut workspace());
                    done.map(drop).unwrap();
                }
            }
            Some((store, more)) => OTHER.set(Some((store, more - 1))),
            None => {}
        });
        disk.set_locks_ignored(true);
        let (bench, mut w) = (Bench { disk, options: options(Fault::None) }, workspace());
        let store: &'static Store = Box::leak(Box::new(over_base(&bench, 12)));
        leave(store);
        assert!(store.container().begin_returning().unwrap());
        store.write(0, &page(0, 2), &Writing::default(), &mut w).unwrap();
        OTHER.set(Some((store, operations)));
        store.container().commit().unwrap();
        let is_written = OTHER.take().is_none();
        store.container().commit().unwrap();
        bench.disk.lose_power();
        if is_written {
            check(&reopen(&bench).unwrap(), &[3; 12], &mut w);
        }
    }
}

#[test]
fn a_base_is_not_done_with_when_the_commit_that_says_so_fails() {
    let (bench, mut w) = (Bench::new(options(Fault::None)), workspace());
    let store = over_base(&bench, 4);
    leave(&store);
    move_all(&store, &mut w);
    bench.disk.set_faults(FaultRates { sync: 1_000_000, ..FaultRates::default() });
    assert!(store.container().finish_leaving().is_err());
}

#[test]
fn an_encrypted_container_does_not_return() {
    let seal: &'static TestSeal = Box::leak(Box::new(TestSeal::new(5, || 1000)));
    let bench = Bench::new(Options { seal: Some(seal), ..options(Fault::None) });
    let store = over_base(&bench, 4);
    leave(&store);
    assert!(matches!(store.container().begin_returning(), Err(Error::Unsupported { .. })));
    assert_eq!(store.container().base(), Base::Leaving);
}

#[test]
fn a_base_whose_map_is_not_in_memory_is_not_done_with() {
    let bench = Bench::new(Options { fault: Fault::None, ..Options::new(4096) });
    let store = over_base(&bench, 3000);
    leave(&store);
    store.container().commit().unwrap();
    let store = reopen(&bench).unwrap();
    assert!(!store.container().finish_leaving().unwrap());
    assert_eq!(store.container().in_base(0, 4096).unwrap(), (3000, Some(0)));
}
