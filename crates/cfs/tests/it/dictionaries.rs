//! Dictionaries: durable before they are used, there as long as a page needs them, gone when none does.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::sim::Disk;
use pgshrink_cfs::{
    Birth, Container, Error, Folder, Identity, KEY_BYTES, Recovery, Scratch, Stored, segment,
};

use crate::fixture::{Bench, Open, content, read, write};

fn write_with(container: &Open<'_>, block: u32, dictionary: u16) -> Result<(), Error> {
    container.write(block, 9, dictionary, &content(block, 1), &mut Scratch::new())
}

#[test]
fn a_dictionary_is_retired_outlived_by_its_pages_and_dropped_with_the_last() {
    let bench = Bench::small();
    let container = bench.create(1);
    let first = container.add_dictionary([1; 16], b"the first").unwrap();
    assert_eq!(container.add_dictionary([1; 16], b"the first").unwrap(), first, "known by its name");
    (0..4).for_each(|block| write_with(&container, block, first).unwrap());
    container.retire_dictionary(first).unwrap();
    let late = write_with(&container, 4, first).unwrap_err();
    assert_eq!(late, Error::DictionaryRetired(1));
    assert_eq!(late.to_string(), "dictionary 1 is retired: encode the page with another one, or without one");
    assert_eq!(container.pages(), 4, "what was refused left nothing");
    assert_eq!(read(&container, 3).unwrap(), content(3, 1));
    let second = container.add_dictionary([2; 16], b"the second").unwrap();
    for block in 0..4 {
        assert_eq!(container.dictionary_uses(first).unwrap(), 4 - block);
        assert!(!container.drop_dictionary(first).unwrap());
        write_with(&container, block, second).unwrap();
    }
    assert!(container.drop_dictionary(first).unwrap());
    assert_eq!(container.dictionary_ids().unwrap(), [second]);
    assert_eq!(container.dictionary(first).unwrap_err(), Error::DictionaryMissing(first));
    assert_eq!(container.drop_dictionary(first).unwrap_err(), Error::DictionaryMissing(first));
    assert!(write_with(&container, 0, first).is_err());
    assert_eq!(write_with(&container, 0, 99), Err(Error::DictionaryMissing(99)));
    let (container, _) = bench.open().unwrap();
    assert_eq!(container.dictionary_uses(second).unwrap(), 4);
    assert_eq!(container.dictionary(second).unwrap(), ([2; 16], b"the second".to_vec()));
}

#[test]
fn a_retired_dictionary_can_be_written_with_again_after_the_next_opening() {
    let bench = Bench::small();
    let container = bench.create(1);
    let number = container.add_dictionary([1; 16], b"content").unwrap();
    write_with(&container, 0, number).unwrap();
    container.retire_dictionary(number).unwrap();
    // The same content under a number that nobody has met.
    let again = container.add_dictionary([1; 16], b"content").unwrap();
    assert_ne!(again, number);
    container.close().unwrap();
    let (container, _) = bench.open().unwrap();
    write_with(&container, 1, number).unwrap();
    write_with(&container, 2, again).unwrap();
}

#[test]
fn no_number_is_given_out_twice_in_a_containers_life() {
    let bench = Bench::small();
    let container = bench.create(1);
    let mut numbers = Vec::new();
    let failure = loop {
        let name = (numbers.len() as u128).to_le_bytes();
        match container.add_dictionary(name, b"short") {
            Ok(number) => {
                numbers.push(number);
                // Up to three at a time, the oldest goes.
                if numbers.len() > 3 {
                    assert!(container.drop_dictionary(numbers[numbers.len() - 4]).unwrap());
                }
            }
            Err(error) => break error,
        }
    };
    assert!(
        matches!(failure, Error::Limit { what: "dictionaries of the container's life", .. }),
        "{failure}"
    );
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((numbers.len(), count), (4095, 4095));
    // Not after an opening either.
    container.close().unwrap();
    let (container, _) = bench.open().unwrap();
    assert!(container.add_dictionary([77; 16], b"short").is_err());
    write(&container, 1, 1);
    container.commit().unwrap();
}

#[test]
fn there_are_sixteen_dictionaries_at_most() {
    let bench = Bench::small();
    let container = bench.create(1);
    for number in 1..=16 {
        assert_eq!(container.add_dictionary([number; 16], &[number; 40]).unwrap(), u16::from(number));
        write_with(&container, number.into(), number.into()).unwrap();
    }
    let full = container.add_dictionary([17; 16], b"one more").unwrap_err();
    assert_eq!(full, Error::Limit { what: "dictionaries", found: 17, allowed: 16 });
    write(&container, 5, 2);
    assert!(container.drop_dictionary(5).unwrap());
    let number = container.add_dictionary([17; 16], b"one more").unwrap();
    write_with(&container, 17, number).unwrap();
    container.commit().unwrap();
    let (container, _) = bench.open().unwrap();
    (1..=17).for_each(|block| drop(read(&container, block).unwrap()));
    assert_eq!(container.dictionary(number).unwrap().1, b"one more");
}

#[test]
fn a_damaged_page_keeps_every_dictionary() {
    let bench = Bench::small();
    let container = bench.create(1);
    let number = container.add_dictionary([1; 16], b"content").unwrap();
    (0..20).for_each(|block| write(&container, block, 1));
    container.close().unwrap();
    let mut bytes = bench.bytes();
    let at = bytes.windows(8).position(|window| window == b"block 7 ").unwrap();
    bytes[at] ^= 1;
    bench.set_bytes(bytes);
    let (container, _) = bench.open().unwrap();
    assert_eq!(container.dictionary_uses(number).unwrap(), 1);
    assert!(!container.drop_dictionary(number).unwrap());
    write(&container, 7, 2);
    assert!(container.drop_dictionary(number).unwrap());
}

type Hook = Box<dyn Fn()>;

/// A process drops the dictionary at every step of another's write, in turn. Returns at how many steps it was
/// let.
fn dropped_in_the_midst(fault: Fault) -> Result<u32, String> {
    let mut dropped = 0;
    for step in 0.. {
        let hook: Rc<RefCell<Option<Hook>>> = Rc::default();
        let (called, left) = (hook.clone(), Rc::new(RefCell::new(0)));
        let disk = Disk::new(1, move || {
            let call = called.borrow_mut().take();
            if let Some(call) = call {
                call();
                called.borrow_mut().get_or_insert(call);
            }
        });
        let options = crate::plan::options(fault, 0);
        let words: &'static [AtomicU64] =
            Vec::leak((0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect());
        let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
        let container = segment::create(&disk, Alone, words, &birth, options).unwrap();
        let number = container.add_dictionary([1; 16], b"content").unwrap();
        let file = disk.open(segment::FILE_NAME).unwrap();
        let (other, _) = Container::open(file, Alone, words, Recovery::Discard, options).unwrap();
        let (seen, outcome) = (left.clone(), Rc::new(RefCell::new(None)));
        let result = outcome.clone();
        *hook.borrow_mut() = Some(Box::new(move || {
            if *seen.borrow() == step {
                *result.borrow_mut() = Some(other.drop_dictionary(number).unwrap());
            }
            *seen.borrow_mut() += 1;
        }));
        let written = container.write(0, 9, number, &content(0, 1), &mut Scratch::new());
        hook.borrow_mut().take();
        if outcome.borrow().is_none() {
            return Ok(dropped);
        }
        dropped += u32::from(*outcome.borrow() == Some(true));
        if written.is_ok() && container.dictionary(number).is_err() {
            return Err(format!("dropped at step {step} of a write that went on"));
        }
        let mut scratch = Scratch::new();
        let stored = container.read(0, &mut scratch);
        assert_eq!(
            written.is_ok(),
            matches!(stored, Ok(Stored::Record { dictionary, .. }) if dictionary == number)
        );
    }
    Ok(dropped)
}

#[test]
fn i13_a_writer_in_the_midst_keeps_its_dictionary() {
    assert_eq!(dropped_in_the_midst(Fault::None), Ok(0));
    println!("{}", dropped_in_the_midst(Fault::DictionaryDroppedUnderWriter).unwrap_err());
}
