//! One page's damage is not another's.

use super::*;

fn filled(how: impl Fn(u32, &Store) -> Writing) -> (Bench, Vec<u64>) {
    let bench = Bench::small();
    let store = PageStore::new(bench.create(1)).unwrap();
    for block in 0..32 {
        fill(&store, block..block + 1, 0, &how(block, &store));
    }
    let offsets = (0..32).map(|block| store.location(block).map_or(0, |range| range.offset)).collect();
    store.container().close().unwrap();
    (bench, offsets)
}

/// Reads blocks 4 to 27 at once; all but those that failed have to be right.
fn survey<D: Device>(store: &Store<D>) -> Vec<(u32, Error)> {
    let (pages, faults) = read_range(store, 4..28, &mut workspace());
    for (block, found) in (4..).zip(pages) {
        let failed = faults.iter().any(|(failed, _)| *failed == block);
        assert!(failed || found == page(block, 0), "block {block}");
    }
    faults
}

#[test]
fn p2_a_damaged_page_fails_alone_wherever_it_is_damaged() {
    let (bench, offsets) = filled(|_, _| Writing::default());
    let whole = bench.bytes();
    for block in (4..28).filter(|block| page(*block, 0) != [0; 8192]) {
        for at in [0, 5, 15, 16, 60] {
            let mut bytes = whole.clone();
            bytes[offsets[block as usize] as usize + at] ^= 4;
            bench.set_bytes(bytes);
            let store = PageStore::new(bench.open().unwrap().0).unwrap();
            let faults = survey(&store);
            let [(failed, error)] = &faults[..] else { panic!("{faults:?}") };
            assert_eq!(*failed, block);
            assert!(error.is_damage() && error.to_string().contains(&format!("block {block}")), "{error}");
            assert_eq!(read(&store, block, &mut workspace()).unwrap_err(), *error, "as if read alone");
        }
    }
}

#[test]
fn p2_a_sector_that_cannot_be_read_fails_the_pages_that_are_in_it() {
    let (bench, offsets) = filled(|_, _| Writing::default());
    let store = watched(&bench);
    store.container().device().bad_byte.set(Some(offsets[9] + 20));
    let faults = survey(&store);
    store.container().device().bad_byte.set(None);
    assert_eq!(faults.iter().map(|(block, _)| *block).collect::<Vec<_>>(), [9]);
    let is_io = |error: &Error| {
        matches!(error, Error::Container(pgshrink_cfs::Error::Device { source: DeviceError::Io(5), .. }))
    };
    assert!(is_io(&faults[0].1) && !faults[0].1.is_damage(), "{}", faults[0].1);
    assert!(survey(&store).is_empty());
}

#[test]
fn p2_a_file_that_ends_early_fails_the_pages_behind_its_end() {
    let (bench, offsets) = filled(|_, _| Writing::default());
    let store = watched(&bench);
    let mut bytes = bench.bytes();
    bytes.truncate(offsets[20] as usize + 10);
    bench.set_bytes(bytes);
    let faults = survey(&store);
    let behind: Vec<u32> = (20..28).filter(|block| page(*block, 0) != [0; 8192]).collect();
    assert_eq!(faults.iter().map(|(block, _)| *block).collect::<Vec<_>>(), behind);
    assert!(faults.iter().all(|(_, error)| error.is_damage()));
}

#[test]
fn p2_a_damaged_dictionary_fails_the_pages_that_need_it() {
    let (bench, _) = filled(|block, store| {
        let number = store.add_dictionary(&dictionary((block % 2) as u8)).unwrap();
        Writing { dictionary: Some(number), ..Writing::default() }
    });
    let needs: Vec<u32> = {
        let store = PageStore::new(bench.open().unwrap().0).unwrap();
        let (mut found, mut workspace) = ([0; 8192], workspace());
        assert!(survey(&store).is_empty());
        (4..28).filter(|b| store.read(*b, &mut found, &mut workspace).unwrap().dictionary == 2).collect()
    };
    assert!(needs.len() > 5);
    let mut bytes = bench.bytes();
    let at = bytes.windows(12).position(|window| window == b"dictionary 1").unwrap();
    bytes[at] ^= 1;
    bench.set_bytes(bytes);
    let store = PageStore::new(bench.open().unwrap().0).unwrap();
    let faults = survey(&store);
    assert_eq!(faults.iter().map(|(block, _)| *block).collect::<Vec<_>>(), needs);
    for (block, error) in &faults {
        assert!(error.is_damage());
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("block {block}: needs dictionary 2: damaged dictionary")),
            "{text}"
        );
    }
    // A writer does without it.
    let how = Writing { dictionary: Some(2), ..Writing::default() };
    let written = store.write(needs[0], &page(needs[0], 3), &how, &mut workspace()).unwrap();
    assert_eq!(written.dictionary, 0);
    assert!(read(&store, needs[0], &mut workspace()).unwrap() == page(needs[0], 3));
}

#[test]
fn a_record_whose_payload_is_no_page_is_damage_of_that_page() {
    let bench = Bench::small();
    let container = bench.create(1);
    for (block, mode) in [(0, 0), (1, 4), (2, 0x1c), (3, 200)] {
        let scratch = &mut pgshrink_cfs::Scratch::new();
        container.write(block, mode, 0, b"no payload of any codec", scratch).unwrap();
    }
    let store = PageStore::new(container).unwrap();
    let (_, faults) = read_range(&store, 0..4, &mut workspace());
    let of = |block: usize| faults[block].1.clone();
    assert_eq!(faults.len(), 4);
    // A mode that nobody knows may be a newer writer's.
    assert!(!of(0).is_damage() && of(1).is_damage() && of(2).is_damage() && !of(3).is_damage());
    assert_eq!(of(2).to_string(), "block 2: needs dictionary 0: dictionary 0 is not in the container");
}
