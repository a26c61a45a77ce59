//! What the protocol refuses, and what it leaves: on a kernel with nobody else there.

use std::cell::Cell;
use std::rc::Rc;

use pgshrink_cfs::Error;
use pgshrink_cfs::convert::{
    BASE_NAME, ConvertError, Exchanged, Flip, Flipped, Inode, Kind, Name, Phase, SETTLE_BARRIER_MS, Settling,
    Site, exchange_in, exchange_out, finish, flip, make_base, make_durable, remove_leftover,
};
use pgshrink_cfs::fault::Fault;

use super::kernel::{ABOVE, Kernel};
use super::site::{Place, SEGMENT};
use super::{Plan, World};
use crate::schedule::clock;

fn place(fault: Fault) -> Place {
    place_of(7, fault)
}

fn place_of(seed: u64, fault: Fault) -> Place {
    let plan = Plan { seed, turns: 0, fault, cuts: false, is_real: false, kills: 400 };
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

/// R is dropped and made again.
fn replace(kernel: &Kernel) {
    // In this order, so that the new file has a number of its own.
    kernel.make_plain(ABOVE, "new", &[77]).unwrap();
    kernel.exchange(ABOVE, SEGMENT, "new").unwrap();
    kernel.unlink(ABOVE, "new").unwrap();
}

#[test]
fn l5_a_name_made_again_at_any_moment_keeps_its_file() {
    for call in ["link segment", "exchange"] {
        clock::quietly(|| {
            let place = place(Fault::None);
            let file = segment(&place);
            *place.world.meddler.borrow_mut() = Some((call, Box::new(replace)));
            let error = exchange_in(&place, file).err().unwrap();
            assert!(matches!(error, ConvertError::OtherFile { expected, .. } if expected == file), "{error}");
            assert_eq!(names(&place), [SEGMENT]);
            let found = place.look(Name::Segment).unwrap().unwrap();
            assert!(
                found.kind == Kind::Plain && found.links == 1 && found.inode != file,
                "before {call}: {found}"
            );
        });
    }
}

#[test]
fn l5_another_base_than_the_one_with_all_pages_does_not_become_the_segment() {
    clock::quietly(|| {
        let place = place(Fault::None);
        let exchanged = exchange_in(&place, segment(&place)).unwrap();
        let (container, directory) = (exchanged.container, exchanged.directory.file);
        let replace = move |kernel: &Kernel| {
            kernel.make_plain(directory, "new", &[]).unwrap();
            kernel.exchange(directory, BASE_NAME, "new").unwrap();
            kernel.unlink(directory, "new").unwrap();
        };
        *place.world.meddler.borrow_mut() = Some(("link base", Box::new(replace)));
        let error = exchange_out(&place, exchanged, || panic!("it has not left")).err().unwrap();
        assert!(matches!(error, ConvertError::OtherFile { name: Name::New(_), .. }), "{error}");
        assert_eq!((segment(&place), names(&place)), (container, vec![SEGMENT.to_owned()]));
        // And one that was another beforehand.
        let stale = Exchanged::open(&place).unwrap();
        replace(&place.world.kernel);
        let error = exchange_out(&place, stale, || panic!("it has not left")).err().unwrap();
        assert!(matches!(error, ConvertError::Base { .. }), "{error}");
        assert_eq!((segment(&place), names(&place)), (container, vec![SEGMENT.to_owned()]));
    });
}

#[test]
fn l5_a_container_that_has_lost_its_name_is_neither_waited_for_nor_made_durable() {
    clock::quietly(|| {
        let place = place(Fault::None);
        let exchanged = exchange_in(&place, segment(&place)).unwrap();
        let opened = Exchanged::open(&place).unwrap();
        exchange_out(&place, opened, || ()).unwrap();
        let looked = Settling::default().look(&place, &exchanged, 0);
        assert!(matches!(looked, Err(ConvertError::OtherFile { .. })), "{looked:?}");
        assert!(matches!(make_durable(&place, &exchanged), Err(ConvertError::OtherFile { .. })));
    });
}

#[test]
fn what_a_return_of_before_has_left_is_removed_by_the_next() {
    clock::quietly(|| {
        let place = place(Fault::None);
        let file = segment(&place);
        let exchanged = exchange_in(&place, file).unwrap();
        place.link_base(&exchanged.directory).unwrap();
        assert_eq!(exchange_out(&place, exchanged, || ()), Ok(file));
        assert_eq!((segment(&place), names(&place)), (file, vec![SEGMENT.to_owned()]));
    });
}

#[test]
fn l4_a_base_that_is_made_for_a_return_is_there_after_a_loss_of_power() {
    clock::quietly(|| {
        for seed in 0..20 {
            let place = place_of(seed, Fault::None);
            let exchanged = exchange_in(&place, segment(&place)).unwrap();
            finish(&place, &exchanged.directory, || Ok(())).unwrap();
            place.sync_above().unwrap();
            make_base(&place, exchanged.directory).unwrap();
            place.world.kernel.lose_power();
            let directory = place.open_directory(Name::Segment).unwrap();
            assert!(place.look_at_base(&directory).unwrap().is_some());
        }
    });
}

#[test]
fn l4_a_base_whose_last_root_was_not_written_stays() {
    clock::quietly(|| {
        let place = place(Fault::None);
        let exchanged = exchange_in(&place, segment(&place)).unwrap();
        let done = finish(&place, &exchanged.directory, || Err(Error::Poisoned));
        assert_eq!(done, Err(ConvertError::Engine(Error::Poisoned)));
        assert_eq!(place.look_at_base(&exchanged.directory).unwrap().unwrap().inode, exchanged.base);
    });
}

#[test]
fn who_has_a_base_open_that_has_gone_is_asked_to_close_it() {
    clock::quietly(|| {
        let place = place(Fault::None);
        let exchanged = exchange_in(&place, segment(&place)).unwrap();
        finish(&place, &exchanged.directory, || Ok(())).unwrap();
        assert_eq!(place.world.barriers.get(), 1);
    });
}

/// A slot that others have pinned for so many looks.
struct Slot {
    is_frozen: Cell<bool>,
    looks: Cell<u32>,
    changed: Result<bool, Error>,
}

impl Flip for Slot {
    fn freeze(&self) -> bool {
        !self.is_frozen.replace(true)
    }

    fn is_quiet(&self) -> bool {
        self.looks.replace(self.looks.get().saturating_sub(1)) == 0
    }

    fn change(&self, _: Phase) -> Result<bool, Error> {
        assert!(self.is_frozen.get());
        self.is_frozen.set(!matches!(self.changed, Ok(true)));
        self.changed.clone()
    }

    fn thaw(&self) {
        self.is_frozen.set(false);
    }
}

#[test]
fn nothing_stays_frozen_after_a_flip_however_it_ends() {
    for (looks, changed, expected) in [
        (3, Ok(true), Ok(Flipped::Done)),
        (4, Ok(true), Ok(Flipped::Busy)),
        (0, Ok(false), Ok(Flipped::Busy)),
        (0, Err(Error::Poisoned), Err(Error::Poisoned)),
    ] {
        let slot = Slot { is_frozen: Cell::new(false), looks: Cell::new(looks), changed };
        let mut waits = 0;
        let wait = || {
            waits += 1;
            waits <= 3
        };
        assert_eq!(flip(&slot, Phase::Leaving, wait), expected);
        assert!(!slot.is_frozen.get(), "{expected:?}");
    }
}
