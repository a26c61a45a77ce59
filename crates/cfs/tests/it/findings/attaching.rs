//! D: whose memory it is: files made anew, readers that come first, a second server.

use std::sync::atomic::Ordering;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::entry::Entry;
use pgshrink_cfs::region::LOADING;
use pgshrink_cfs::sim::DiskFile;
use pgshrink_cfs::state::SharedState;
use pgshrink_cfs::units::{Block, Location, Span, Units, Version};
use pgshrink_cfs::word::Word;
use pgshrink_cfs::{Container, Error, Folder, Recovery, Scratch, Stored, segment};

use super::{attach, break_roots, locked};
use crate::coroutine::Coroutine;
use crate::fixture::{Bench, content, read, write};
use crate::schedule::clock;
use crate::schedule::word::{Memory, SimWord};

/// Puts another container in the place of the one that is there; returns its bytes.
fn made_anew(bench: &Bench) -> Vec<u8> {
    segment::unlink(&bench.disk).unwrap();
    let other = bench.create_in(2, bench.words());
    write(&other, 0, 7);
    other.close().unwrap();
    bench.bytes()
}

#[test]
fn a_file_that_was_made_anew_is_not_taken_for_the_one_in_memory() {
    let bench = locked();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    write(&container, 0, 1);
    container.commit().unwrap();
    let before = made_anew(&bench);
    let refused = attach(&bench, memory, false).map(drop).unwrap_err();
    assert_eq!(refused, Error::OtherContainer { expected: [1; 16], found: [2; 16] });
    assert!(refused.to_string().contains("the file was replaced while it was open"), "{refused}");
    assert_eq!(attach(&bench, memory, true).map(drop).unwrap_err(), refused);
    assert_eq!(bench.bytes(), before);
    // The other way round: memory that was given to another container under an old handle.
    let theirs = Bench::small();
    let taken = theirs.create_in(3, memory);
    write(&taken, 0, 9);
    let late = container.write(0, 1, 0, b"late", &mut Scratch::new()).unwrap_err();
    assert!(matches!(late, Error::OtherContainer { .. }), "{late}");
    assert!(matches!(container.commit(), Err(Error::OtherContainer { .. })));
}

#[test]
fn a_writer_after_readers_goes_on_above_all_versions() {
    for opened_by_reader in [false, true] {
        let bench = locked();
        let container = bench.create(1);
        (0..5).for_each(|block| write(&container, block, 1));
        container.commit().unwrap();
        drop(container);
        let memory = bench.words();
        let reader = opened_by_reader.then(|| attach(&bench, memory, true).unwrap());
        let writer = attach(&bench, memory, false).unwrap();
        (0..4).for_each(|block| write(&writer, block, 2));
        writer.commit().unwrap();
        assert!(reader.is_none_or(|reader| read(&reader, 0).unwrap() == content(0, 2)));
        drop(writer);
        let (container, _) = bench.open().unwrap();
        (0..4).for_each(|block| assert_eq!(read(&container, block).unwrap(), content(block, 2)));
        assert_eq!(read(&container, 4).unwrap(), content(4, 1));
        // Versions alone decide here.
        container.close().unwrap();
        break_roots(&bench);
        let (salvaged, _) = bench.salvage().unwrap();
        (0..4).for_each(|block| assert_eq!(read(&salvaged, block).unwrap(), content(block, 2)));
    }
}

#[test]
fn a_container_that_is_open_cannot_be_opened_with_another_memory() {
    let bench = locked();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    write(&container, 0, 1);
    container.commit().unwrap();
    let refused = attach(&bench, bench.words(), false).map(drop).unwrap_err();
    assert_eq!(refused, Error::InUse);
    let beside = attach(&bench, memory, false).unwrap();
    assert_eq!(read(&beside, 0).unwrap(), content(0, 1));
    // Reading harms nobody.
    assert_eq!(read(&attach(&bench, bench.words(), true).unwrap(), 0).unwrap(), content(0, 1));
    drop((container, beside));
    let other = attach(&bench, bench.words(), false).unwrap();
    write(&other, 0, 2);
    other.close().unwrap();
    drop(other);
    let stale = attach(&bench, memory, false).map(drop).unwrap_err();
    assert!(matches!(stale, Error::ChangedElsewhere { expected, found } if expected < found), "{stale}");
}

#[test]
fn the_first_writer_after_readers_does_not_go_on_in_a_file_made_anew() {
    let bench = locked();
    let container = bench.create(1);
    write(&container, 0, 1);
    container.close().unwrap();
    drop(container);
    let memory = bench.words();
    let reader = attach(&bench, memory, true).unwrap();
    let before = made_anew(&bench);
    let refused = attach(&bench, memory, false).map(drop).unwrap_err();
    assert_eq!(refused, Error::OtherContainer { expected: [1; 16], found: [2; 16] });
    assert_eq!(bench.bytes(), before, "the new file was written to");
    drop(reader);
}

#[test]
fn the_first_writer_after_readers_needs_the_file_to_itself() {
    let bench = locked();
    let container = bench.create(1);
    write(&container, 0, 1);
    container.commit().unwrap();
    // Another server has it open, and here somebody only reads.
    let memory = bench.words();
    let reader = attach(&bench, memory, true).unwrap();
    assert_eq!(attach(&bench, memory, false).map(drop), Err(Error::InUse));
    assert_eq!(read(&reader, 0).unwrap(), content(0, 1));
    drop(container);
    attach(&bench, memory, false).unwrap();
}

#[test]
fn a_record_whose_write_was_cut_off_is_not_rolled_forward() {
    let bench = Bench::small();
    let container = bench.create(1);
    (0..3).for_each(|block| write(&container, block, 1));
    container.commit().unwrap();
    // 16 bytes of header and 101 of payload: the last unit is not full.
    container.write(0, 1, 0, &[5; 101], &mut Scratch::new()).unwrap();
    let mut bytes = bench.bytes();
    bytes.truncate(bytes.len() - 8);
    bench.set_bytes(bytes);
    let (container, report) = bench.recover(Recovery::RollForward).unwrap();
    assert_eq!(report.rolled_forward, 0);
    assert_eq!(read(&container, 0).unwrap(), content(0, 1));
}

#[test]
fn a_commit_after_one_that_died_does_not_go_on_in_another_file() {
    let bench = Bench::small();
    let memory = bench.words();
    let container = bench.create_in(1, memory);
    write(&container, 0, 1);
    container.commit().unwrap();
    let theirs = Bench::small();
    theirs.create(2).close().unwrap();
    bench.set_bytes(theirs.bytes());
    // As a process leaves it that is killed in a commit.
    SharedState::new(memory, bench.options.geometry).unwrap().shared().unfinished.store(1, Ordering::SeqCst);
    assert_eq!(container.commit(), Err(Error::OtherContainer { expected: [1; 16], found: [2; 16] }));
    assert_eq!(bench.bytes(), theirs.bytes());
}

#[test]
fn a_root_that_was_cut_off_is_not_taken_for_that_of_another_server() {
    let bench = locked();
    let container = bench.create(1);
    container.commit().unwrap();
    drop(container);
    // A process was killed while it wrote the second root at the end of the file.
    let mut bytes = bench.bytes();
    bytes.truncate(4096 + 3000);
    bench.set_bytes(bytes);
    let memory = bench.words();
    let reader = attach(&bench, memory, true).unwrap();
    let writer = attach(&bench, memory, false).unwrap();
    write(&writer, 0, 1);
    writer.commit().unwrap();
    assert_eq!(read(&reader, 0), Ok(content(0, 1)));
}

/// Opens a container in memory in which a process has died while it opened it, after it had taken block 5 over from
/// behind the root.
fn open_after_dead(bench: &Bench, words: &'static [SimWord]) -> Container<'static, DiskFile, Alone, SimWord> {
    let file = bench.disk.open(segment::FILE_NAME).unwrap();
    Container::open(file, Alone, words, Recovery::Discard, bench.options).unwrap().0
}

#[test]
fn what_a_dead_opening_left_in_memory_is_cleared_though_the_next_one_dies_too() {
    let bench = Bench::small();
    let container = bench.create(1);
    write(&container, 0, 1);
    container.commit().unwrap();
    let memory = Memory::new(bench.options.geometry.words());
    let words: &'static [SimWord] = memory.words();
    for steps in 1.. {
        memory.clear();
        clock::quietly(|| {
            let state = SharedState::new(words, bench.options.geometry).unwrap();
            state.shared().state.store(LOADING);
            let span = Span { location: Location(4000), units: Units(2) };
            state.set_entry(Block(5), Entry::record(span, Version(9)).dirty());
        });
        let again = Bench { disk: bench.disk.clone(), options: bench.options };
        let mut dying = Coroutine::new(move || drop(open_after_dead(&again, words)));
        let has_ended = !clock::run(steps, false, || dying.resume()).0;
        clock::without_effect(|| drop(dying));
        clock::quietly(|| {
            let opened = open_after_dead(&bench, words);
            opened.extend(6).unwrap();
            let found = opened.read(5, &mut Scratch::new()).map(|stored| stored == Stored::Zeros);
            assert_eq!(found, Ok(true), "killed after {steps} steps");
        });
        if has_ended {
            break;
        }
    }
}
