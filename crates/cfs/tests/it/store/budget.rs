//! Memory of a workspace.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::shell::FileFolder;
use pgshrink_cfs::{Birth, Identity, KEY_BYTES};
use pgshrink_testkit::TempDir;
use pgshrink_testkit::allocations::{count, held_bytes};

fn expect_budget(error: Error, budget: usize) {
    let Error::Budget { needed, held, budget: named, .. } = error else { panic!("{error}") };
    assert_eq!(named, budget as u64);
    assert!(needed + held > named, "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("the budget of {budget} bytes")), "{text}");
    assert!(!error.is_damage());
}

#[test]
fn p5_a_budget_that_is_not_enough_for_one_page_is_refused() {
    for budget in [0, 1, 100 << 10] {
        expect_budget(Workspace::new(budget).err().unwrap(), budget);
    }
    let least = (0..).map(|step| step << 10).find(|budget| Workspace::new(*budget).is_ok()).unwrap();
    assert!(least < 400 << 10, "{least}");
    // Raw pages need nothing more.
    let bench = Bench::small();
    let store = PageStore::new(bench.create(1)).unwrap();
    let mut workspace = Workspace::new(least).unwrap();
    store.write(0, &page(0, 0), &by(Algorithm::None, 0), &mut workspace).unwrap();
    assert!(read(&store, 0, &mut workspace).unwrap() == page(0, 0));
    assert!(workspace.memory_size() <= least);
}

#[test]
fn p5_what_does_not_fit_fails_by_name_and_what_fits_goes_on() {
    let bench = Bench::small();
    let store = PageStore::new(bench.create(1)).unwrap();
    let budget = 1000 << 10;
    let mut workspace = Workspace::new(budget).unwrap();
    let fast = by(Algorithm::Zstd, 1);
    store.write(0, &page(0, 0), &fast, &mut workspace).unwrap();
    let slow = by(Algorithm::Zstd, 22);
    expect_budget(store.write(0, &page(0, 1), &slow, &mut workspace).unwrap_err(), budget);
    assert!(read(&store, 0, &mut workspace).unwrap() == page(0, 0), "the page is what it was");
    store.write(1, &page(1, 0), &fast, &mut workspace).unwrap();
    assert!(workspace.memory_size() <= budget);
    // Reading what somebody else wrote, by an algorithm for which there is no room.
    let mut other = super::workspace();
    store.write(2, &page(2, 0), &by(Algorithm::Lzfse, 0), &mut other).unwrap();
    let (pages, faults) = read_range(&store, 0..3, &mut workspace);
    assert_eq!(faults.len(), 1);
    expect_budget(faults[0].1.clone(), budget);
    assert!(pages[0] == page(0, 0) && pages[1] == page(1, 0));
}

#[test]
fn p5_dictionaries_that_were_not_used_for_longest_make_room() {
    let mut other = workspace();
    let bench = Bench::small();
    let store = PageStore::new(bench.create(1)).unwrap();
    for of in 0..8u8 {
        // Of 100 KB each.
        let bytes: Vec<u8> = dictionary(of).bytes().iter().copied().cycle().take(100_000).collect();
        let made = PageDictionary::new(bytes, &[]).unwrap();
        let number = store.add_dictionary(&made).unwrap();
        let how = Writing { dictionary: Some(number), ..Writing::default() };
        let mut page = [0; 8192];
        page[..6000].copy_from_slice(&made.bytes()[..6000]);
        assert_eq!(store.write(of.into(), &page, &how, &mut other).unwrap().dictionary, number);
    }
    store.container().close().unwrap();
    let store = watched(&bench);
    let budget = 1400 << 10;
    let mut workspace = Workspace::new(budget).unwrap();
    let mut rng = Seed::from_env_or_time().rng();
    for round in 0..300 {
        // One of them all the time.
        let block = if round % 2 == 0 { 3 } else { rng.below(8) as u32 };
        let mut found = [0; 8192];
        let preads = preads_of(&store, || found = read(&store, block, &mut workspace).unwrap());
        assert!(block != 3 || round == 0 || preads == 1, "the one that is used most is loaded again");
        assert_eq!(found[..12], dictionary(block as u8).bytes()[..12]);
        assert!(workspace.memory_size() <= budget);
        assert!(workspace.dictionaries() <= 5, "{}", workspace.dictionaries());
    }
    assert!(workspace.dictionaries() >= 2);
    // One after the other, until the first has to go.
    let mut workspace = Workspace::new(budget).unwrap();
    let mut newest = 0;
    while workspace.dictionaries() == newest as usize {
        read(&store, newest, &mut workspace).unwrap();
        newest += 1;
    }
    for block in 1..newest {
        let preads = preads_of(&store, || assert!(read(&store, block, &mut workspace).is_ok()));
        assert_eq!(preads, 1, "of {newest} not the first one was given up, but {block}");
    }
    // One that is larger than all of it.
    let mut least = Workspace::new(600 << 10).unwrap();
    let error = read(&store, 0, &mut least).unwrap_err();
    expect_budget(error, 600 << 10);
}

#[test]
fn p5_a_warm_workspace_holds_all_that_writing_and_reading_back_needs() {
    let bench = Bench::small();
    let store = PageStore::new(bench.create(1)).unwrap();
    let number = store.add_dictionary(&dictionary(1)).unwrap();
    let how = Writing { dictionary: Some(number), ..by(Algorithm::Zstd, 9) };
    let mut workspace = workspace();
    store.warm(&how, &mut workspace).unwrap();
    let held = workspace.memory_size();
    for block in 0..30 {
        store.write(block, &page(block, 0), &how, &mut workspace).unwrap();
        assert!(read(&store, block, &mut workspace).unwrap() == page(block, 0));
    }
    assert_eq!(workspace.memory_size(), held);
    assert_eq!(store.container().pages(), 30, "warming writes nothing");
}

#[test]
fn p5_a_workspace_takes_no_more_from_the_allocator_than_it_says() {
    // Memory of its own, but for a file's name now and then: the disk is a real one.
    let folder = TempDir::new().unwrap();
    let options = crate::plan::options(Fault::None, 0);
    let words: Vec<AtomicU64> = (0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect();
    let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
    let file_folder = FileFolder(folder.path().to_owned());
    let store =
        PageStore::new(segment::create(&file_folder, Alone, &words, &birth, options).unwrap()).unwrap();
    let number = store.add_dictionary(&dictionary(1)).unwrap();
    let golden = golden_pages();
    let mut page = [0; 8192];
    let before = held_bytes();
    let mut workspace = workspace();
    let none = held_bytes() - before;
    for (algorithm, level) in [
        (Algorithm::Snappy, 0),
        (Algorithm::Pglz, 0),
        (Algorithm::Zstd, 1),
        (Algorithm::Lz4, 1),
        (Algorithm::Zlib, 9),
        (Algorithm::Lzfse, 0),
    ] {
        let how = Writing { dictionary: Some(number), verify: true, ..by(algorithm, level) };
        for (index, golden) in golden.iter().enumerate() {
            let block = index as u32 % crate::plan::PAGES_MAX;
            store.write(block, golden, &how, &mut workspace).unwrap();
            store.read(block, &mut page, &mut workspace).unwrap();
            assert!(page == *golden);
        }
        store.container().commit().unwrap();
        let (held, said) = (held_bytes() - before, workspace.memory_size() as isize);
        println!("{algorithm}: {held} of {said}, {none} to begin with");
        assert!(held <= said, "{algorithm}: {held} of {said}");
    }
}

fn golden_pages() -> Vec<Page> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/cfs-page/golden");
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = all.filter(|path| path.extension().is_some_and(|e| e == "page")).collect();
    pages.sort();
    pages.iter().map(|path| std::fs::read(path).unwrap().try_into().unwrap()).collect()
}

#[test]
fn a_warm_workspace_allocates_nothing_for_pages_like_those_before() {
    let folder = TempDir::new().unwrap();
    let options = Options::new(1024);
    let words: Vec<AtomicU64> = (0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect();
    let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
    let file_folder = FileFolder(folder.path().to_owned());
    let store =
        PageStore::new(segment::create(&file_folder, Alone, &words, &birth, options).unwrap()).unwrap();
    let number = store.add_dictionary(&dictionary(1)).unwrap();
    let golden = golden_pages();
    let all = [
        (Algorithm::None, 0),
        (Algorithm::Zstd, 1),
        (Algorithm::Zstd, 9),
        (Algorithm::Lz4, 1),
        (Algorithm::Lz4, 9),
        (Algorithm::Zlib, 6),
        (Algorithm::Snappy, 0),
        (Algorithm::Pglz, 0),
        (Algorithm::Lzfse, 0),
    ];
    for (algorithm, level) in all {
        for dictionary in [None, Some(number)] {
            let how = Writing { dictionary, verify: true, ..by(algorithm, level) };
            let mut workspace = workspace();
            store.warm(&how, &mut workspace).unwrap();
            let mut page = [0; 8192];
            for (index, golden) in golden.iter().enumerate() {
                let block = index as u32;
                store.write(block, golden, &how, &mut workspace).unwrap();
                store.read(block, &mut page, &mut workspace).unwrap();
                let before = count();
                store.write(block, golden, &how, &mut workspace).unwrap();
                store.read(block, &mut page, &mut workspace).unwrap();
                assert_eq!(count() - before, 0, "{algorithm}, {dictionary:?}, page {index}");
                assert!(page == *golden);
            }
        }
    }
}

#[test]
fn p5_what_a_dictionary_grows_by_when_it_is_prepared_counts() {
    let bench = Bench::small();
    let store = PageStore::new(bench.create(1)).unwrap();
    let mut known = dictionary(1);
    let number = store.add_dictionary(&known).unwrap();
    let mut workspace = workspace();
    // Of one algorithm there is one context, and of one size.
    let sizes = [1, 9].map(|level| {
        let how = Writing { dictionary: Some(number), ..by(Algorithm::Lz4, level) };
        store.warm(&how, &mut workspace).unwrap();
        known.prepare(how.policy.choice).unwrap();
        (workspace.memory_size(), known.memory_size())
    });
    let [(one, known_one), (both, known_both)] = sizes;
    assert!(known_both > known_one);
    assert_eq!(both - one, known_both - known_one);
}

#[test]
fn p5_stores_that_come_and_go_leave_no_more_than_so_many_names() {
    let bench = Bench::small();
    let (words, mut workspace) = (bench.words(), workspace());
    let made = PageStore::new(bench.create_in(1, words)).unwrap();
    let how =
        Writing { dictionary: Some(made.add_dictionary(&dictionary(1)).unwrap()), ..Writing::default() };
    made.write(6, &page(6, 0), &how, &mut workspace).unwrap();
    let mut sizes = Vec::new();
    for _ in 0..4200 {
        let file = bench.disk.open(segment::FILE_NAME).unwrap();
        let opened = Container::open(file, Alone, words, Recovery::Discard, bench.options);
        let store = PageStore::new(opened.unwrap().0).unwrap();
        store.warm(&how, &mut workspace).unwrap();
        sizes.push(workspace.memory_size());
    }
    assert!(sizes[100] > sizes[0] && sizes[4100] == sizes[4199], "{} bytes", sizes[4199] - sizes[4100]);
    assert_eq!(workspace.dictionaries(), 1);
}

#[test]
fn p5_a_page_is_written_with_its_dictionary_or_not_at_all_whatever_the_budget() {
    let bench = Bench::small();
    let store = PageStore::new(bench.create(1)).unwrap();
    let known = dictionary(1);
    let mut given = [0; 8192];
    given[..6000].copy_from_slice(&known.bytes()[..6000]);
    let number = store.add_dictionary(&known).unwrap();
    let (mut refused, mut written) = (0, 0);
    for (algorithm, level) in [(Algorithm::Zstd, 1), (Algorithm::Zstd, 9), (Algorithm::Lz4, 1)] {
        let how = Writing { dictionary: Some(number), ..by(algorithm, level) };
        for budget in (380 << 10..1600 << 10).step_by(2 << 10) {
            let Ok(mut workspace) = Workspace::new(budget) else { continue };
            match store.write(0, &given, &how, &mut workspace) {
                Ok(stored) => {
                    assert_eq!(stored.dictionary, number, "{algorithm}:{level} within {budget} bytes");
                    written += 1;
                }
                Err(error) => {
                    expect_budget(error, budget);
                    refused += 1;
                }
            }
            let held = workspace.memory_size();
            assert!(held <= budget, "{algorithm}:{level}: {held} bytes of {budget}");
        }
    }
    assert!(refused > 50 && written > 50, "{refused} refused, {written} written");
}
