//! Which records behind the last root a crash left are taken over, and which are not.

use pgshrink_cfs::{Error, Recovery, Scratch};

use crate::fixture::{Bench, Open, content, read, write};

/// Opens what a crash left; how many records were rolled forward.
fn roll_forward(bench: &Bench) -> (Open<'static>, u32) {
    let (container, report) = bench.recover(Recovery::RollForward).unwrap();
    (container, report.rolled_forward)
}

/// A container with three committed pages and the roots of that commit.
fn committed() -> (Bench, Open<'static>, Vec<u8>) {
    let bench = Bench::small();
    let container = bench.create(1);
    (0..3).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    let roots = bench.bytes()[..12288].to_vec();
    (bench, container, roots)
}

#[test]
fn records_newer_than_the_root_are_rolled_forward() {
    let (bench, container, _) = committed();
    write(&container, 1, 2);
    write(&container, 3, 2);
    let (container, rolled) = roll_forward(&bench);
    assert_eq!((rolled, container.pages()), (2, 4));
    for (block, generation) in [(0, 1), (1, 2), (2, 1), (3, 2)] {
        assert_eq!(read(&container, block).unwrap(), content(block, generation));
    }
}

#[test]
fn a_record_of_an_earlier_epoch_is_not_rolled_forward() {
    let (bench, container, _) = committed();
    for generation in 2..40 {
        (0..3).for_each(|block| write(&container, block, generation));
    }
    let with_tail = bench.bytes();
    let (container, report) = bench.open().unwrap();
    assert!(report.discarded_bytes > 0);
    write(&container, 0, 50);
    container.commit().unwrap();
    // The tail's end was cut off; a power failure brings it back.
    let mut bytes = bench.bytes();
    assert!(bytes.len() + 4096 < with_tail.len());
    bytes.extend_from_slice(&with_tail[bytes.len()..]);
    bench.set_bytes(bytes);
    let (container, rolled) = roll_forward(&bench);
    assert_eq!(rolled, 0);
    for (block, generation) in [(0, 50), (1, 1), (2, 1)] {
        assert_eq!(read(&container, block).unwrap(), content(block, generation));
    }
}

#[test]
fn a_record_above_the_roots_versions_is_not_rolled_forward() {
    let (bench, container, _) = committed();
    write(&container, 1, 2);
    let mut bytes = bench.bytes();
    for disk_block in bytes[..12288].chunks_exact_mut(4096) {
        // The limit is where the epoch begins: no version was given out.
        disk_block.copy_within(92..100, 84);
        let crc = crc32fast::hash(&disk_block[12..]);
        disk_block[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    bench.set_bytes(bytes);
    let (container, rolled) = roll_forward(&bench);
    assert_eq!(rolled, 0);
    assert_eq!(read(&container, 1).unwrap(), content(1, 1));
}

#[test]
fn a_record_whose_dictionary_the_root_does_not_know_is_not_rolled_forward() {
    let (bench, container, roots) = committed();
    let dictionary = container.add_dictionary([1; 16], b"lost with its root").unwrap();
    container.write(1, 9, dictionary, b"needs it", &mut Scratch::new()).unwrap();
    let mut bytes = bench.bytes();
    bytes[..12288].copy_from_slice(&roots);
    bench.set_bytes(bytes);
    let (container, rolled) = roll_forward(&bench);
    assert_eq!((rolled, container.dictionary_ids().unwrap().len()), (0, 0));
    assert_eq!(read(&container, 1).unwrap(), content(1, 1));
}

#[test]
fn a_page_that_was_cut_off_before_the_root_is_not_rolled_forward() {
    let (bench, container, _) = committed();
    container.truncate(2).unwrap();
    container.commit().unwrap();
    write(&container, 0, 2);
    let (container, rolled) = roll_forward(&bench);
    assert_eq!((rolled, container.pages()), (1, 2));
    assert!(matches!(read(&container, 2), Err(Error::PastEnd { .. })));
    container.extend(3).unwrap();
    assert_eq!(read(&container, 2).unwrap(), Vec::<u8>::new());
}

/// As long as before, and nothing is marked as changed.
#[test]
fn a_page_that_came_and_went_between_two_commits_is_not_rolled_forward() {
    for pages in [0, 3] {
        let bench = Bench::small();
        let container = bench.create(1);
        (0..pages).for_each(|block| write(&container, block, 1));
        container.commit().unwrap();
        (pages..pages + 4).for_each(|block| write(&container, block, 2));
        container.truncate(pages).unwrap();
        assert!(container.commit().unwrap().sequence.is_some());
        assert_eq!(container.commit().unwrap().sequence, None);
        let (container, rolled) = roll_forward(&bench);
        assert_eq!((rolled, container.pages()), (0, pages));
    }
}
