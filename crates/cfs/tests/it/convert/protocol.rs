//! What the protocol refuses, and what it leaves: on a kernel with nobody else there.

use std::rc::Rc;

use pgshrink_cfs::convert::{
    BASE_NAME, ConvertError, Exchanged, Inode, Name, SETTLE_BARRIER_MS, Settling, Site, exchange_in,
    exchange_out, finish, make_base, remove_leftover,
};
use pgshrink_cfs::fault::Fault;

use super::kernel::ABOVE;
use super::site::{Place, SEGMENT};
use super::{Plan, World};
use crate::schedule::clock;

fn place(fault: Fault) -> Place {
    let plan = Plan { seed: 7, turns: 0, fault, cuts: false, is_real: false, kills: 400 };
    let world = Rc::new(World::new(plan));
    world.make_relation();
    Place { world, pid: 103 }
}

fn segment(place: &Place) -> Inode {
    place.look(Name::Segment).unwrap().unwrap().inode
}

fn names(place: &Place) -> Vec<String> {
    place.world.kernel.names_in(ABOVE)
}

#[test]
fn a_segment_becomes_a_container_and_the_same_file_again() {
    clock::quietly(|| {
        let place = place(Fault::None);
        let file = segment(&place);
        let exchanged = exchange_in(&place, file).unwrap();
        assert_eq!(exchanged.base, file);
        assert_eq!(names(&place), [SEGMENT]);
        let opened = Exchanged::open(&place).unwrap();
        assert_eq!((opened.base, opened.container), (file, segment(&place)));
        let mut left = false;
        assert_eq!(exchange_out(&place, opened, || left = true), Ok(file));
        assert!(left && segment(&place) == file && names(&place) == [SEGMENT]);
        assert_eq!(place.look(Name::Segment).unwrap().unwrap().links, 1);
    });
}

#[test]
fn another_file_than_the_one_looked_at_is_not_exchanged() {
    clock::quietly(|| {
        let place = place(Fault::None);
        let other = Inode(segment(&place).0 + 50);
        let error = exchange_in(&place, other).err().unwrap();
        let ConvertError::OtherFile { name, expected, .. } = error else { panic!("{error}") };
        assert_eq!((name, expected), (Name::Segment, other));
        assert_eq!(names(&place), [SEGMENT]);
    });
}

#[test]
fn a_file_of_two_names_and_a_container_are_not_exchanged() {
    clock::quietly(|| {
        let place = place(Fault::None);
        place.world.kernel.link((ABOVE, SEGMENT), (ABOVE, "other")).unwrap();
        let error = exchange_in(&place, segment(&place)).err().unwrap();
        assert_eq!(error, ConvertError::OtherNames { name: Name::Segment, found: 2 });
        place.world.kernel.unlink(ABOVE, "other").unwrap();
        exchange_in(&place, segment(&place)).unwrap();
        let error = exchange_in(&place, segment(&place)).err().unwrap();
        assert!(matches!(error, ConvertError::OtherFile { .. }), "{error}");
    });
}

#[test]
fn a_container_without_its_base_is_not_taken_for_one_that_has_it() {
    clock::quietly(|| {
        let place = place(Fault::None);
        let exchanged = exchange_in(&place, segment(&place)).unwrap();
        finish(&place, &exchanged.directory, || Ok(())).unwrap();
        assert!(matches!(Exchanged::open(&place), Err(ConvertError::Base { found: None, .. })));
        let directory = place.open_directory(Name::Segment).unwrap();
        let made = make_base(&place, directory).unwrap();
        assert_eq!(place.world.kernel.names_in(made.directory.file), [BASE_NAME, super::site::CONTAINER]);
    });
}

/// R has gone and R.new is there: as an exchange that is not atomic on the medium leaves it.
fn sweep_without_segment(fault: Fault) -> (Result<bool, ConvertError>, Vec<String>) {
    clock::quietly(|| {
        let place = place(fault);
        place.world.kernel.link((ABOVE, SEGMENT), (ABOVE, "R.new.9")).unwrap();
        place.world.kernel.unlink(ABOVE, SEGMENT).unwrap();
        let done = remove_leftover(&place, Name::New(9));
        (done, names(&place))
    })
}

#[test]
fn l3_what_lies_beside_a_segment_that_is_not_there_is_kept() {
    let (done, left) = sweep_without_segment(Fault::None);
    assert_eq!(done, Err(ConvertError::NoSegment { name: Name::New(9) }));
    assert_eq!(left, ["R.new.9"]);
    let (done, left) = sweep_without_segment(Fault::SweptWithoutSegment);
    assert!(done == Ok(true) && left.is_empty(), "the fault is seen");
}

#[test]
fn a_leftover_is_removed_whatever_it_is() {
    clock::quietly(|| {
        let place = place(Fault::None);
        assert_eq!(remove_leftover(&place, Name::New(103)), Ok(false));
        let directory = place.make_directory().unwrap();
        place.make_container(&directory).unwrap();
        place.link_segment(&directory).unwrap();
        drop(directory);
        assert_eq!(remove_leftover(&place, Name::New(103)), Ok(true));
        assert_eq!(names(&place), [SEGMENT]);
    });
}

#[test]
fn barriers_are_asked_for_at_first_and_every_five_seconds() {
    clock::quietly(|| {
        let place = place(Fault::None);
        let exchanged = exchange_in(&place, segment(&place)).unwrap();
        let mut settling = Settling::default();
        let barriers =
            [0, 1, SETTLE_BARRIER_MS - 1, SETTLE_BARRIER_MS, SETTLE_BARRIER_MS + 1].map(|now_ms| {
                settling.look(&place, &exchanged, 1000 + now_ms).unwrap();
                place.world.barriers.get()
            });
        assert_eq!(barriers, [1, 1, 1, 2, 2]);
    });
}

#[test]
fn errors_say_what_was_expected_and_what_was_found() {
    clock::quietly(|| {
        let place = place(Fault::None);
        let error = exchange_in(&place, Inode(77)).err().unwrap().to_string();
        assert!(error.contains("expected inode 77, found plain file, inode"), "{error}");
    });
}
