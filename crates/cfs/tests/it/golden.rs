//! Containers that must be read for ever, and damaged ones that must be refused with the reason.

mod made;

use std::path::PathBuf;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::page::{Mode, PAGE_SIZE, PageCodec, PageDictionary};
use pgshrink_cfs::seal::Keyring;
use pgshrink_cfs::sim::Disk;
use pgshrink_cfs::{
    Base, Budget, Container, Device, Folder, Geometry, Options, Recovery, Scratch, Seal, Stored, segment,
};

use crate::fixture::{Bench, content, read, write};
use crate::seal::{Kernel, key, passphrase};

fn folder(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../formats/cfs").join(kind)
}

type Open = Container<'static, pgshrink_cfs::sim::DiskFile, Alone>;

/// Opens a container for reading, a sealed one with the keys of the golden files.
fn open(bytes: &[u8]) -> Result<Open, String> {
    open_beside(bytes, None)
}

/// The same beside a base.
fn open_beside(bytes: &[u8], base: Option<&[u8]>) -> Result<Open, String> {
    let disk = Disk::new(1, || ());
    if let Some(base) = base {
        disk.create(segment::BASE_NAME).unwrap().pwrite(base, 0).unwrap();
    }
    let file = disk.create(segment::FILE_NAME).unwrap();
    file.pwrite(bytes, 0).unwrap();
    let head = segment::clear(&file);
    let pages_max = head.map(|head| head.pages_max).filter(|pages| (1..=1500).contains(pages)).unwrap_or(64);
    let geometry = Geometry { pages_max, ..crate::plan::options(Fault::None, 0).geometry };
    let mut options = Options { geometry, read_only: true, ..crate::plan::options(Fault::None, 0) };
    if let Some(head) = head.filter(|head| head.is_whole && head.key_id != [0; 16]) {
        let mut keyring = Keyring::new(vec![key(1), passphrase("correct horse")]);
        let found = keyring.data_key(&head.id, &head.key_id, &head.key).map_err(|error| error.to_string())?;
        let seal: &'static dyn Seal = Box::leak(Box::new(found.into_seal(head.key_id, Kernel)));
        options.seal = Some(seal);
    }
    let words = Vec::leak((0..geometry.words()).map(|_| 0.into()).collect());
    let opened = Container::open(file, Alone, words, Recovery::Discard, options);
    opened.map(|(container, _)| container).map_err(|error| error.to_string())
}

/// Everything that there is to be read.
fn survey(bytes: &[u8], base: Option<&[u8]>) -> Result<(), String> {
    let container = open_beside(bytes, base)?;
    let pages = (0..container.page_count().unwrap()).try_for_each(|block| read(&container, block).map(drop));
    let numbers = container.dictionary_ids().unwrap();
    let all = pages.and_then(|()| numbers.into_iter().try_for_each(|id| container.dictionary(id).map(drop)));
    all.map_err(|error| error.to_string())
}

fn golden(kind: &str, name: &str) -> Vec<u8> {
    std::fs::read(folder(kind).join(name)).unwrap()
}

/// The base that lies beside a golden container.
fn base(kind: &str, stem: &str) -> Option<Vec<u8>> {
    std::fs::read(folder(kind).join(format!("{stem}.base"))).ok()
}

fn golden_page(name: &str) -> Vec<u8> {
    golden("../cfs-page/golden", name)
}

fn is_closed(bytes: &[u8]) -> bool {
    let disk = Disk::new(1, || ());
    let file = disk.create(segment::FILE_NAME).unwrap();
    file.pwrite(bytes, 0).unwrap();
    segment::clear(&file).unwrap().is_closed
}

#[test]
fn a_golden_container_with_its_map_in_the_root_is_read() {
    let bytes = golden("golden", "inline.cfs");
    let container = open(&bytes).unwrap();
    assert!(is_closed(&bytes));
    assert_eq!(container.pages(), 12);
    for block in 0..12 {
        let expected = if block == 4 { Vec::new() } else { content(block, block + 1) };
        assert_eq!(read(&container, block).unwrap(), expected);
    }
}

#[test]
fn a_golden_container_with_leaves_deltas_and_a_dictionary_is_read() {
    let bytes = golden("golden", "folded.cfs");
    let container = open(&bytes).unwrap();
    assert!(!is_closed(&bytes));
    assert_eq!(container.pages(), 30);
    for block in (0..30).filter(|block| *block != 20) {
        assert_eq!(read(&container, block).unwrap(), content(block, if block < 10 { 8 } else { 7 }));
    }
    let mut scratch = Scratch::new();
    let expected = content(20, 77);
    let stored = container.read(20, &mut scratch).unwrap();
    assert_eq!(stored, Stored::Record { mode: 9, dictionary: 1, payload: &expected });
    assert_eq!(container.dictionary(1).unwrap(), ([3; 16], b"what pages have in common".to_vec()));
}

#[test]
fn a_golden_container_with_a_page_by_every_algorithm_is_read() {
    let container = open(&golden("golden", "algorithms.cfs")).unwrap();
    let content = container.dictionary(1).unwrap().1;
    assert_eq!(content, golden_page("pages.dictionary"));
    let dictionary = PageDictionary::new(content, &[]).unwrap();
    let prices = golden_page("heap-prices.page");
    let (mut codec, mut scratch) = (PageCodec::new(), Scratch::new());
    let mut modes = Vec::new();
    for block in 0..container.pages() {
        let mut page = [0x55; PAGE_SIZE];
        match container.read(block, &mut scratch).unwrap() {
            Stored::Zeros => page.fill(0),
            Stored::Base(_) => unreachable!("no test of these has a base"),
            Stored::Record { mode, dictionary: number, payload } => {
                assert_eq!(number, u16::from(Mode::from_byte(mode).unwrap().has_dictionary()));
                codec.decode(mode, payload, Some(block), Some(&dictionary), &mut page).unwrap();
                modes.push(mode);
            }
        }
        let expected = match block {
            made::ZEROS => vec![0; PAGE_SIZE],
            made::CHECKSUM => golden_page("heap-checksum.page"),
            block if block < made::ZEROS => prices.clone(),
            _ => vec![0; PAGE_SIZE],
        };
        assert_eq!(page, &expected[..], "block {block}");
    }
    assert_eq!(modes, made::MODES.iter().copied().chain([0x07, 0x4c]).collect::<Vec<_>>());
}

#[test]
fn a_golden_container_that_grew_after_a_truncation_is_read() {
    let container = open(&golden("golden", "grown.cfs")).unwrap();
    assert_eq!(container.pages(), 40);
    for block in 0..40 {
        let expected = match block {
            0..10 => content(block, 1),
            39 => content(39, 2),
            _ => Vec::new(),
        };
        assert_eq!(read(&container, block).unwrap(), expected, "block {block}");
    }
}

#[test]
fn a_golden_container_with_leaves_of_both_forms_written_by_the_reference_is_read() {
    let container = open(&golden("golden", "leaves.cfs")).unwrap();
    assert_eq!(container.pages(), 1000);
    for block in 0..1000 {
        // Leaf 0 is in form 0, leaf 1 in form 1; a delta has block 5 anew, the root block 700.
        let expected = match block {
            5 => b"delta 5".to_vec(),
            700 => b"root 700".to_vec(),
            701 => b"root 701".to_vec(),
            block if block % 100 == 0 => format!("leaf {block}").into_bytes(),
            _ => Vec::new(),
        };
        assert_eq!(read(&container, block).unwrap(), expected, "block {block}");
    }
    let mut scratch = Scratch::new();
    let stored = container.read(701, &mut scratch).unwrap();
    assert_eq!(stored, Stored::Record { mode: 9, dictionary: 3000, payload: b"root 701" });
    assert_eq!(container.dictionary(3000).unwrap(), ([9; 16], b"a dictionary of the reference".to_vec()));
    let whole = golden("golden", "leaves.cfs");
    assert!(is_closed(&whole));
}

#[test]
fn a_golden_container_of_several_leaves_is_read_leaf_by_leaf() {
    let container = open(&golden("golden", "wide.cfs")).unwrap();
    assert_eq!((container.pages(), container.stats().touched_leaves), (1200, 2));
    for block in 0..1200 {
        assert_eq!(read(&container, block).unwrap(), wide_page(block), "block {block}");
    }
    assert_eq!(container.stats().touched_leaves, 3);
    container.complete().unwrap();
}

fn wide_page(block: u32) -> Vec<u8> {
    match block {
        600 => b"replaced".to_vec(),
        1100 => Vec::new(),
        _ => format!("page {block}").into_bytes(),
    }
}

#[test]
fn a_golden_container_that_gave_out_many_dictionary_numbers_gives_out_the_next() {
    let bench = Bench::small();
    drop(bench.create(1));
    bench.set_bytes(golden("golden", "numbers.cfs"));
    let (container, _) = bench.open().unwrap();
    assert_eq!(container.dictionary_ids().unwrap(), [made::NUMBERS]);
    assert_eq!(container.dictionary(made::NUMBERS).unwrap().1, b"dictionary 300");
    let (mut scratch, expected) = (Scratch::new(), content(0, 1));
    let stored = container.read(0, &mut scratch).unwrap();
    assert_eq!(stored, Stored::Record { mode: 9, dictionary: made::NUMBERS, payload: &expected });
    assert_eq!(container.add_dictionary([1; 16], b"one more").unwrap(), made::NUMBERS + 1);
}

#[test]
fn golden_damage_of_a_part_of_the_map_fails_its_pages_and_no_others() {
    type Expected = fn(u32) -> Vec<u8>;
    let inline: Expected = |block| if block == 4 { Vec::new() } else { content(block, block + 1) };
    type Case = (&'static str, Expected, fn(u32) -> bool);
    let cases: [Case; 3] = [
        ("leaf-flipped", wide_page, |block| (512..1024).contains(&block) && block != 600),
        ("entries-overlap", inline, |block| block == 6),
        ("entry-past-end", inline, |block| block == 9),
    ];
    for (name, expected, is_concerned) in cases {
        let container = open(&golden("golden-errors", &format!("{name}.cfs"))).unwrap();
        for block in 0..container.pages() {
            match read(&container, block) {
                Ok(page) => assert!(page == expected(block) && !is_concerned(block), "{name}, block {block}"),
                Err(error) => {
                    assert!(error.is_damage() && is_concerned(block), "{name}, block {block}: {error}");
                }
            }
        }
    }
}

#[test]
fn golden_containers_with_damaged_entries_are_written_and_collected() {
    for (name, damaged) in [("entries-overlap", 6), ("entry-past-end", 9)] {
        let bench = Bench::small();
        drop(bench.create(1));
        bench.set_bytes(golden("golden-errors", &format!("{name}.cfs")));
        let (container, _) = bench.open().unwrap();
        for generation in 50..60 {
            (0..3).for_each(|block| write(&container, block, generation));
            container.commit().unwrap();
            container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
        }
        container.close().unwrap();
        let (container, _) = bench.open().unwrap();
        for block in (0..12).filter(|block| ![4, damaged].contains(block)) {
            let generation = if block < 3 { 59 } else { block + 1 };
            assert_eq!(read(&container, block).unwrap(), content(block, generation), "{name}, block {block}");
        }
        assert!(read(&container, damaged).unwrap_err().is_damage(), "{name}");
        write(&container, damaged, 60);
        assert_eq!(read(&container, damaged).unwrap(), content(damaged, 60));
        container.commit().unwrap();
    }
}

#[test]
fn golden_sealed_containers_are_read_with_their_keys() {
    for name in ["sealed-key.cfs", "sealed-passphrase.cfs"] {
        let bytes = golden("golden", name);
        assert!(!bytes.windows(10).any(|window| window == b"generation"), "{name} has a page in the clear");
        let container = open(&bytes).unwrap();
        assert_eq!(container.pages(), 20);
        for block in 0..20 {
            assert_eq!(read(&container, block).unwrap(), content(block, block % 3));
        }
        assert_eq!(container.dictionary(1).unwrap(), ([3; 16], b"what pages have in common".to_vec()));
    }
}

#[test]
fn a_golden_container_that_keeps_a_policy_is_read() {
    let container = open(&golden("golden", "policy.cfs")).unwrap();
    assert_eq!((container.policy(), container.base(), container.pages()), (made::POLICY, Base::None, 6));
    for block in 0..6 {
        assert_eq!(read(&container, block).unwrap(), content(block, block));
    }
}

#[test]
fn golden_containers_beside_a_base_are_read_from_both() {
    let in_base = |number: u8| vec![number; PAGE_SIZE];
    let whole: Vec<_> = (1..=made::BASE_PAGES).map(in_base).collect();
    // Blocks 4 and 5 of the base were cut off before the segment grew again.
    let left = [in_base(1), content(1, 1), in_base(3), in_base(4), vec![], vec![], content(6, 1)];
    let cases: [(&str, Base, u32, &[Vec<u8>]); 3] = [
        ("base-whole", Base::Whole, 0, &whole),
        ("base-leaving", Base::Leaving, made::POLICY, &left),
        ("base-returning", Base::Returning, made::POLICY | 1 << 31, &left),
    ];
    for (name, state, policy, expected) in cases {
        let container =
            open_beside(&golden("golden", &format!("{name}.cfs")), base("golden", name).as_deref()).unwrap();
        assert_eq!((container.base(), container.policy()), (state, policy), "{name}");
        assert_eq!(container.page_count().unwrap() as usize, expected.len(), "{name}");
        for (block, expected) in (0..).zip(expected) {
            assert!(read(&container, block).unwrap() == *expected, "{name}, block {block}");
        }
    }
}

/// A reason without what this reader knows: later ones know more.
fn of_file(reason: &str) -> &str {
    reason.split_once(", but this version supports").map_or(reason, |(of_file, _)| of_file)
}

#[test]
fn golden_damage_is_refused_with_its_reason() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder("golden-errors")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(stem) = name.strip_suffix(".cfs") else { continue };
        let reason = String::from_utf8(golden("golden-errors", &format!("{stem}.txt"))).unwrap();
        let outcome = survey(&golden("golden-errors", &name), base("golden-errors", stem).as_deref());
        assert_eq!(of_file(&outcome.unwrap_err()), of_file(reason.trim_end()), "{name}");
        names.push(name);
    }
    assert_eq!(names.len(), made::DAMAGED.len(), "{names:?}");
}

#[test]
#[ignore = "writes golden files that are not there yet"]
fn write_goldens() {
    let fresh = |kind: &str, name: String, bytes: &[u8]| {
        std::fs::create_dir_all(folder(kind)).unwrap();
        let path = folder(kind).join(name);
        if !path.exists() {
            std::fs::write(path, bytes).unwrap();
        }
    };
    for (name, make) in made::GOLDEN {
        fresh("golden", format!("{name}.cfs"), &make());
    }
    for (kind, name, pages) in made::BASES {
        fresh(kind, format!("{name}.base"), &made::base(pages));
    }
    for (name, of, damage) in made::DAMAGED {
        let mut bytes = golden("golden", &format!("{of}.cfs"));
        damage(&mut bytes);
        fresh("golden-errors", format!("{name}.cfs"), &bytes);
        fresh(
            "golden-errors",
            format!("{name}.txt"),
            format!("{}\n", survey(&bytes, base("golden-errors", name).as_deref()).unwrap_err()).as_bytes(),
        );
    }
}
