//! C: which dictionary a number means, after openings, crashes and salvage.

use std::sync::atomic::Ordering;

use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::{Error, Part, Scratch, Stored};

use super::break_roots;
use crate::fixture::{Bench, Open, content, read, write};

fn write_with(container: &Open<'_>, block: u32, dictionary: u16) {
    container.write(block, 9, dictionary, &content(block, 1), &mut Scratch::new()).unwrap();
}

fn dictionary_of(container: &Open<'_>, block: u32) -> Vec<u8> {
    let mut scratch = Scratch::new();
    match container.read(block, &mut scratch).unwrap() {
        Stored::Record { dictionary, .. } => container.dictionary(dictionary).unwrap().1,
        Stored::Zeros => panic!("block {block} is empty"),
        Stored::Base(_) => unreachable!("no test of these has a base"),
    }
}

#[test]
fn a_dictionarys_number_is_not_used_again_after_an_opening_and_salvage_finds_the_right_one() {
    let bench = Bench::small();
    let container = bench.create(1);
    let first = container.add_dictionary([1; 16], b"the first").unwrap();
    write_with(&container, 0, first);
    container.commit().unwrap();
    write(&container, 0, 2);
    assert!(container.drop_dictionary(first).unwrap());
    container.close().unwrap();
    drop(container);
    let (container, _) = bench.open().unwrap();
    let second = container.add_dictionary([2; 16], b"the second").unwrap();
    assert_ne!(first, second);
    (0..40).for_each(|block| write_with(&container, block, second));
    container.close().unwrap();
    break_roots(&bench);
    assert!(bench.open().is_err());
    let (container, report) = bench.salvage().unwrap();
    assert!(!report.map_is_whole);
    (0..40).for_each(|block| assert_eq!(dictionary_of(&container, block), b"the second"));
}

#[test]
fn a_number_whose_commit_a_crash_undid_means_the_later_dictionary() {
    let bench = Bench::small();
    let container = bench.create(1);
    write(&container, 0, 1);
    container.commit().unwrap();
    let before = bench.bytes();
    let lost = container.add_dictionary([1; 16], b"the lost one").unwrap();
    // The root did not reach the medium; the dictionary's record did.
    let mut bytes = bench.bytes();
    bytes[..12288].copy_from_slice(&before[..12288]);
    bench.set_bytes(bytes);
    drop(container);
    let (container, _) = bench.open().unwrap();
    let number = container.add_dictionary([2; 16], b"the second").unwrap();
    assert_eq!(number, lost);
    write_with(&container, 3, number);
    container.close().unwrap();
    break_roots(&bench);
    assert_eq!(dictionary_of(&bench.salvage().unwrap().0, 3), b"the second");
}

#[test]
fn salvage_keeps_all_dictionaries_however_many_there_were() {
    let mut bench = Bench::small();
    // Extents of several disk blocks, as each commit begins a disk block.
    bench.options.geometry.extent_units = 4096;
    let container = bench.create(1);
    let mut live = Vec::new();
    for block in 0..24 {
        let name = [block as u8 + 1; 16];
        let number = container.add_dictionary(name, &name).unwrap();
        // Pages that live in the extents of those that are dropped, so that they stay in the file.
        write(&container, block + 24, 1);
        if block < 8 {
            assert!(container.drop_dictionary(number).unwrap());
        } else {
            write_with(&container, block, number);
            live.push(block);
        }
    }
    container.close().unwrap();
    assert_eq!(container.dictionary_ids().unwrap().len(), 16);
    break_roots(&bench);
    let (container, _) = bench.salvage().unwrap();
    let found = container.dictionary_ids().unwrap();
    assert!(found.len() > 16, "{found:?}");
    for block in live {
        assert_eq!(read(&container, block).unwrap(), content(block, 1));
        assert_eq!(dictionary_of(&container, block), [block as u8 + 1; 16]);
    }
}

#[test]
fn a_dictionary_whose_adder_died_before_it_opened_its_gate_is_retired_all_the_same() {
    let bench = Bench::small();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    let shared = SharedState::new(memory, bench.options.geometry).unwrap().shared();
    let number = container.add_dictionary([1; 16], b"content").unwrap();
    // As it is when a process is killed between its commit and the gate.
    shared.gates.iter().for_each(|gate| gate.store(0, Ordering::SeqCst));
    let late = container.write(0, 9, number, b"x", &mut Scratch::new());
    assert_eq!(late, Err(Error::DictionaryMissing(number)));
    container.retire_dictionary(number).unwrap();
    // Now it cannot be opened any more: who counts its pages must not be overtaken.
    assert_ne!(container.add_dictionary([1; 16], b"content").unwrap(), number);
    let late = container.write(0, 9, number, b"x", &mut Scratch::new());
    assert_eq!(late, Err(Error::DictionaryRetired(number)));
    // Gates of dictionaries that are gone are given to others.
    shared.gates.iter().for_each(|gate| gate.store(3000 << 32, Ordering::SeqCst));
    let second = container.add_dictionary([2; 16], b"more").unwrap();
    write_with(&container, 1, second);
    assert!(container.drop_dictionary(number).unwrap());
}

#[test]
fn of_two_dictionaries_with_a_number_the_later_one_is_salvaged() {
    let bench = Bench::small();
    let container = bench.create(1);
    // Its place is for the dictionary that a crash undid.
    container.write(0, 1, 0, &[1; 300], &mut Scratch::new()).unwrap();
    write(&container, 1, 1);
    let number = container.add_dictionary([2; 16], b"the one that was committed").unwrap();
    write_with(&container, 3, number);
    container.close().unwrap();
    let mut bytes = bench.bytes();
    let payload = [&number.to_le_bytes()[..], &[1; 16], b"the lost one"].concat();
    let mut record = vec![0; 16];
    record[4..8].copy_from_slice(&(payload.len() as u32 | 1 << 31).to_le_bytes());
    // Of an earlier commit, kind 4.
    record[15] = 4;
    record.extend_from_slice(&payload);
    let mut hasher = crc32fast::Hasher::new_with_initial(crc32fast::hash(&[1; 16]) ^ (12288 / 16));
    hasher.update(&record[4..]);
    record[..4].copy_from_slice(&hasher.finalize().to_le_bytes());
    bytes[12288..12288 + record.len()].copy_from_slice(&record);
    bench.set_bytes(bytes);
    break_roots(&bench);
    let (container, _) = bench.salvage().unwrap();
    assert_eq!(dictionary_of(&container, 3), b"the one that was committed");
}

#[test]
fn a_dictionary_is_added_to_what_a_commit_that_died_had_made_durable() {
    let bench = Bench::small();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    let shared = SharedState::new(memory, bench.options.geometry).unwrap().shared();
    let before: Vec<u64> = shared.image.iter().map(|word| word.load(Ordering::SeqCst)).collect();
    let first = container.add_dictionary([1; 16], b"the first").unwrap();
    // As a process leaves it that is killed between its root's fsync and its taking the root into memory.
    shared.image.iter().zip(before).for_each(|(word, value)| word.store(value, Ordering::SeqCst));
    shared.unfinished.store(1, Ordering::SeqCst);
    let second = container.add_dictionary([2; 16], b"the second").unwrap();
    container.close().unwrap();
    drop(container);
    let (container, _) = bench.open().unwrap();
    assert_eq!(container.dictionary(first).unwrap().1, b"the first");
    assert_eq!(container.dictionary(second).unwrap().1, b"the second");
}

#[test]
fn a_dictionary_that_is_found_where_another_should_be_is_damage() {
    let bench = Bench::small();
    let container = bench.create(1);
    let numbers = [1, 2].map(|name| container.add_dictionary([name; 16], &[name; 50]).unwrap());
    container.close().unwrap();
    let mut bytes = bench.bytes();
    let mut swapped = 0;
    for disk_block in bytes[..12288].chunks_exact_mut(4096) {
        // Two numbers, each in front of its dictionary's place.
        let [first, second] = numbers.map(u16::to_le_bytes);
        let is_it = |bytes: &[u8]| bytes[..2] == first && bytes[10..12] == second && bytes[2..10] != [0; 8];
        if let Some(at) = disk_block[256..].windows(20).position(is_it) {
            let (one, other) = disk_block[256 + at..][..20].split_at_mut(10);
            one[2..].swap_with_slice(&mut other[2..]);
            let crc = crc32fast::hash(&disk_block[12..]);
            disk_block[8..12].copy_from_slice(&crc.to_le_bytes());
            swapped += 1;
        }
    }
    assert!(swapped > 0, "no root has both");
    bench.set_bytes(bytes);
    let (container, _) = bench.open().unwrap();
    for number in numbers {
        let refused = container.dictionary(number).unwrap_err();
        assert!(matches!(&refused, Error::Damaged(damage) if damage.part == Part::Dictionary), "{refused}");
    }
}
