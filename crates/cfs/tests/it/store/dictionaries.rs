//! Dictionaries kept by a workspace: each container's own.

use super::*;
use pgshrink_cfs::{Anew, Scratch};

/// A container whose dictionary 1 is this one, and a page that needs it.
fn with(id: u8, fault: Fault, of: u8) -> (Bench, Store) {
    let bench = Bench::new(crate::plan::options(fault, 0));
    let store = PageStore::new(bench.create(id)).unwrap();
    let number = store.add_dictionary(&dictionary(of)).unwrap();
    assert_eq!(number, 1);
    let how = Writing { dictionary: Some(number), ..Writing::default() };
    let mut workspace = workspace();
    for block in 0..4 {
        let written = store.write(block, &mentioning(of, block), &how, &mut workspace).unwrap();
        assert_eq!(written.dictionary, number);
    }
    store.container().commit().unwrap();
    (bench, store)
}

/// A page of lines of the dictionary, so that it cannot be decoded by another.
fn mentioning(of: u8, block: u32) -> Page {
    let mut page = [0; 8192];
    let dictionary = dictionary(of);
    let lines = &dictionary.bytes()[64 * block as usize..];
    page[100..5000].copy_from_slice(&lines[..4900]);
    page
}

fn reads_right(fault: Fault) -> bool {
    let (_one, first) = with(1, fault, 3);
    let (_other, second) = with(2, fault, 4);
    let mut workspace = workspace();
    (0..4).all(|block| {
        read(&first, block, &mut workspace).ok() == Some(mentioning(3, block))
            && read(&second, block, &mut workspace).ok() == Some(mentioning(4, block))
    })
}

#[test]
fn p4_the_same_number_in_two_containers_is_two_dictionaries() {
    assert!(reads_right(Fault::None));
    assert!(!reads_right(Fault::CacheIgnoresContainer), "this test can see it");
}

#[test]
fn p4_a_container_that_takes_anothers_place_does_not_get_its_dictionaries() {
    let (bench, store) = with(1, Fault::None, 3);
    let mut workspace = workspace();
    assert!(read(&store, 0, &mut workspace).unwrap() == mentioning(3, 0));
    drop(store);
    segment::unlink(&bench.disk).unwrap();
    let store = PageStore::new(bench.create(9)).unwrap();
    let number = store.add_dictionary(&dictionary(5)).unwrap();
    let how = Writing { dictionary: Some(number), ..Writing::default() };
    store.write(0, &mentioning(5, 0), &how, &mut workspace).unwrap();
    assert!(read(&store, 0, &mut workspace).unwrap() == mentioning(5, 0));
    assert_eq!(workspace.dictionaries(), 2);
    workspace.forget([1; 16]);
    assert_eq!(workspace.dictionaries(), 1);
    assert!(read(&store, 0, &mut workspace).unwrap() == mentioning(5, 0));
}

#[test]
fn segments_of_a_relation_share_one_dictionary_in_memory() {
    let mut workspace = workspace();
    let all: Vec<_> = (1..6).map(|id| with(id, Fault::None, 3)).collect();
    for (_, store) in &all {
        assert!(read(store, 2, &mut workspace).unwrap() == mentioning(3, 2));
    }
    assert_eq!(workspace.dictionaries(), 1);
    for id in 1..6 {
        assert_eq!(workspace.dictionaries(), 1);
        workspace.forget([id; 16]);
    }
    assert_eq!(workspace.dictionaries(), 0);
}

#[test]
fn a_page_is_written_without_a_dictionary_that_is_retired_or_gone() {
    let (_bench, store) = with(1, Fault::None, 3);
    let mut workspace = workspace();
    let how = Writing { dictionary: Some(1), verify: true, ..Writing::default() };
    assert_eq!(store.write(9, &mentioning(3, 9), &how, &mut workspace).unwrap().dictionary, 1);
    store.container().retire_dictionary(1).unwrap();
    let written = store.write(9, &mentioning(3, 9), &how, &mut workspace).unwrap();
    assert_eq!((written.dictionary, written.mode.has_dictionary()), (0, false));
    assert!(read(&store, 9, &mut workspace).unwrap() == mentioning(3, 9));
    for (number, fresh) in [(1, false), (7, true)] {
        if !fresh {
            (0..4).for_each(|block| store.container().write_zeros(block).unwrap());
            assert!(store.container().drop_dictionary(number).unwrap());
        }
        let how = Writing { dictionary: Some(number), ..Writing::default() };
        assert_eq!(store.write(9, &mentioning(3, 9), &how, &mut workspace).unwrap().dictionary, 0);
    }
}

#[test]
fn an_algorithm_without_dictionaries_leaves_the_dictionary_alone() {
    let (_bench, store) = with(1, Fault::None, 3);
    let mut workspace = workspace();
    let how = Writing { dictionary: Some(1), verify: true, ..by(Algorithm::Zlib, 6) };
    assert_eq!(store.write(9, &mentioning(3, 9), &how, &mut workspace).unwrap().dictionary, 0);
    assert_eq!(workspace.dictionaries(), 0);
    // And one that was prepared for another level is prepared for this one, too.
    for level in [1, 5, 1] {
        let how = Writing { dictionary: Some(1), verify: true, ..by(Algorithm::Zstd, level) };
        assert_eq!(store.write(9, &mentioning(3, 9), &how, &mut workspace).unwrap().dictionary, 1);
    }
    assert_eq!(workspace.dictionaries(), 1);
}

#[test]
fn a_page_whose_dictionary_never_was_there_is_damaged_and_is_not_read_for_ever() {
    let bench = Bench::small();
    let container = bench.create(1);
    let number = container.add_dictionary([1; 16], b"content").unwrap();
    container.write(0, 0x14, number, b"a payload", &mut Scratch::new()).unwrap();
    container.close().unwrap();
    // A root without it: that of before, as what was appended is.
    let store = PageStore::new(bench.open().unwrap().0).unwrap();
    let error = read(&store, 0, &mut workspace()).unwrap_err();
    assert!(matches!(error, Error::Page { block: 0, .. }) && error.is_damage(), "{error}");
}

#[test]
fn p4_copies_of_one_container_that_went_on_apart_have_dictionaries_of_their_own() {
    // A file that was copied (CREATE DATABASE by files, a backup that was restored) has the id of its
    // original, and both give their next dictionary the same number.
    let bench = Bench::small();
    let store = PageStore::new(bench.create(1)).unwrap();
    store.container().close().unwrap();
    let copy = Bench::small();
    drop(copy.create(2));
    copy.set_bytes(bench.bytes());
    let mut workspace = workspace();
    let stores = [(&bench, 3), (&copy, 4)].map(|(bench, of)| {
        let store = PageStore::new(bench.open().unwrap().0).unwrap();
        assert_eq!(store.add_dictionary(&dictionary(of)).unwrap(), 1);
        for (block, algorithm) in [(0, Algorithm::Zstd), (1, Algorithm::Lz4)] {
            let how = Writing { dictionary: Some(1), ..by(algorithm, 1) };
            let written = store.write(block, &mentioning(of, block), &how, &mut super::workspace()).unwrap();
            assert_eq!(written.dictionary, 1);
        }
        store.container().commit().unwrap();
        (store, of)
    });
    assert_eq!(stores[0].0.container().id(), stores[1].0.container().id());
    for (store, of) in &stores {
        for block in 0..2 {
            let found = read(store, block, &mut workspace);
            assert!(found == Ok(mentioning(*of, block)), "block {block} of {of}: {:?}", found.err());
        }
    }
    let how = Writing { dictionary: Some(1), ..Writing::default() };
    stores[1].0.write(2, &mentioning(4, 2), &how, &mut workspace).unwrap();
    assert!(read(&stores[1].0, 2, &mut super::workspace()).unwrap() == mentioning(4, 2));
}

#[test]
fn warming_for_an_algorithm_without_dictionaries_leaves_the_dictionary_alone() {
    let (_bench, store) = with(1, Fault::None, 3);
    let mut workspace = workspace();
    for number in [1, 7] {
        let how = Writing { dictionary: Some(number), ..by(Algorithm::Zlib, 6) };
        store.warm(&how, &mut workspace).unwrap();
        assert_eq!(workspace.dictionaries(), 0);
    }
}

/// Pages that a dictionary would serve, written without one.
fn without() -> (Bench, Store, Workspace) {
    let bench = Bench::new(crate::plan::options(Fault::None, 0));
    let store = PageStore::new(bench.create(1)).unwrap();
    let mut workspace = workspace();
    for block in 0..4 {
        store.write(block, &mentioning(3, block), &Writing::default(), &mut workspace).unwrap();
    }
    store.write(4, &[0; 8192], &Writing::default(), &mut workspace).unwrap();
    let mut noise = [0; 8192];
    let mut rng = Seed(5).rng();
    noise.fill_with(|| rng.below(256) as u8);
    store.write(5, &noise, &Writing::default(), &mut workspace).unwrap();
    store.container().commit().unwrap();
    (bench, store, workspace)
}

#[test]
fn pages_are_stored_anew_with_a_dictionary_and_stay_what_they_are() {
    let (bench, store, mut workspace) = without();
    let how = Writing { verify: true, ..Writing::default() };
    assert_eq!(store.pages().ready_dictionary(&how, &mut workspace), None);
    let number = store.add_dictionary(&dictionary(3)).unwrap();
    assert_eq!(store.pages().ready_dictionary(&how, &mut workspace), Some(number));
    let how = Writing { dictionary: Some(number), ..how };
    let before: Vec<Page> = (0..6).map(|block| read(&store, block, &mut workspace).unwrap()).collect();
    let anew = |workspace: &mut Workspace| -> Vec<bool> {
        (0..7).map(|block| store.pages().store_anew(block, &how, workspace).unwrap()).collect()
    };
    // Neither a page of zeros, nor one that becomes no smaller, nor one that is not there.
    assert_eq!(anew(&mut workspace), [true, true, true, true, false, false, false]);
    assert_eq!(anew(&mut workspace), [false; 7], "once");
    assert_eq!(store.container().dictionary_uses(number).unwrap(), 4);
    for beyond in [6, pgshrink_cfs::PAGES_MAX, u32::MAX] {
        assert_eq!(store.pages().store_anew(beyond, &how, &mut workspace), Ok(false), "{beyond}");
    }
    store.container().commit().unwrap();
    let (container, _) = bench.open().unwrap();
    for store in [&store, &PageStore::new(container).unwrap()] {
        for (block, page) in (0..).zip(&before) {
            assert!(read(store, block, &mut workspace).unwrap() == *page, "block {block}");
        }
    }
}

#[test]
fn pages_of_another_algorithm_are_stored_anew_without_a_dictionary_too() {
    let (_bench, store, mut workspace) = without();
    let page = mentioning(3, 2);
    store.write(2, &page, &by(Algorithm::Lz4, 1), &mut workspace).unwrap();
    let how = by(Algorithm::Zstd, 9);
    let mut anew = |block| store.pages().store_anew(block, &how, &mut workspace);
    assert_eq!([anew(2), anew(2), anew(1)], [Ok(true), Ok(false), Ok(false)]);
    assert!(read(&store, 2, &mut workspace).unwrap() == page);
}

#[test]
fn who_writes_a_page_while_it_is_stored_anew_wins() {
    let (_bench, store, mut workspace) = without();
    let number = store.add_dictionary(&dictionary(3)).unwrap();
    let how = Writing { dictionary: Some(number), ..Writing::default() };
    let newer = mentioning(3, 40);
    let done = store.container().store_anew(1, &mut Scratch::new(), |_| {
        store.write(1, &newer, &how, &mut workspace).unwrap();
        Ok::<_, pgshrink_cfs::Error>(Some(Anew { mode: 1, dictionary: 0, payload: vec![1; 50] }))
    });
    assert_eq!(done, Ok(false));
    assert!(read(&store, 1, &mut workspace).unwrap() == newer);
    // Cut off meanwhile.
    let done = store.container().store_anew(5, &mut Scratch::new(), |_| {
        store.container().truncate(3).unwrap();
        Ok::<_, pgshrink_cfs::Error>(Some(Anew { mode: 1, dictionary: 0, payload: vec![1; 50] }))
    });
    assert_eq!(done, Ok(false));
    store.container().extend(6).unwrap();
    assert!(read(&store, 5, &mut workspace).unwrap() == [0; 8192]);
}

#[test]
fn a_dictionary_that_is_retired_or_too_large_for_the_workspace_is_not_ready() {
    let (_bench, store, mut workspace) = without();
    let first = store.add_dictionary(&dictionary(3)).unwrap();
    let second = store.add_dictionary(&dictionary(4)).unwrap();
    let how = Writing::default();
    assert_eq!(store.pages().ready_dictionary(&how, &mut workspace), Some(second));
    store.container().retire_dictionary(second).unwrap();
    assert_eq!(store.pages().ready_dictionary(&how, &mut workspace), Some(first));
    assert_eq!(store.pages().ready_dictionary(&by(Algorithm::Zlib, 1), &mut workspace), None);
    // With room for pages alone.
    let (page, how) = (mentioning(3, 9), Writing { verify: true, ..how });
    let mut narrow = (64..)
        .filter_map(|kilobytes| Workspace::new(kilobytes << 12).ok())
        .find_map(|mut narrow| store.write(0, &page, &how, &mut narrow).is_ok().then_some(narrow))
        .unwrap();
    assert_eq!(store.pages().ready_dictionary(&how, &mut narrow), None);
    store.write(0, &page, &Writing { verify: true, ..how }, &mut narrow).unwrap();
    assert_eq!(store.pages().ready_dictionary(&how, &mut narrow), None);
}
