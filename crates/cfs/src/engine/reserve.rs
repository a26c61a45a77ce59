//! A tablespace's reserve: space of the filesystem that is held back for what must not fail when it is full.
//!
//! A commit, the rewriting of a page that is already there, a truncation and a clean close have no one to
//! tell that there is no space: a server that cannot write a page at a checkpoint stops. So a file of the
//! tablespace holds allocated blocks that nobody reads.
//! [`Device::release_reserve`](crate::Device::release_reserve) gives them to the filesystem from the file's
//! end, and whoever has time fills it again when there is space.
//!
//! * The file's length is all there is to know; a crash at any moment leaves a reserve of some size.
//! * Part of it is for commits alone: they free what updates have left behind, so that updates can go on on a
//!   full filesystem.
//! * Giving back is a truncation, which needs no space itself. It gives at least a step, as each costs a
//!   transaction of the filesystem.
//! * Several processes may give back at the same time: what one gives another may take, which is why a writer
//!   asks again until there is nothing left.
//! * Filling takes the commits' part first. Beyond that it leaves [`Rules::margin`] to others, so that a full
//!   filesystem does not swing between the reserve and its users.
//!
//! How large it has to be is computed by [`bytes_for_pages`] and [`bytes_for_commits`]; what it promises by
//! `formats/cfs.md`.

use crate::device::{DeviceError, Need};
use crate::format::record::RECORD_BYTES_MAX;

/// What a reserve needs of its file.
pub trait ReserveFile {
    /// Bytes of the file, all of them allocated.
    fn size(&self) -> Result<u64, DeviceError>;

    /// Cuts the file to `size` bytes; what was behind is the filesystem's.
    fn shrink(&self, size: u64) -> Result<(), DeviceError>;

    /// Allocates blocks up to `size` bytes, and makes the file as long. After an error any part may be there.
    fn grow(&self, size: u64) -> Result<(), DeviceError>;

    /// Bytes that the filesystem could give to others now.
    fn free_bytes(&self) -> Result<u64, DeviceError>;
}

/// How large a reserve is and how it moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Bytes for rewriting pages: [`bytes_for_pages`].
    pub pages: u64,
    /// Bytes for commits: [`bytes_for_commits`].
    pub commits: u64,
    /// Bytes given back at once, at least; for commits, a sixteenth of it.
    pub step: u64,
    /// Bytes of the filesystem that filling leaves free, beyond the commits' part.
    pub margin: u64,
}

impl Rules {
    /// Bytes for pages and for commits, in steps of a megabyte.
    pub fn new(pages: u64, commits: u64) -> Rules {
        Rules { pages, commits, step: 1 << 20, margin: 16 << 20 }
    }

    /// Bytes that it should hold.
    pub fn bytes(&self) -> u64 {
        self.pages + self.commits
    }
}

/// A reserve over its file, one for all containers of a filesystem.
#[derive(Debug)]
pub struct Reserve<F> {
    file: F,
    rules: Rules,
}

impl<F: ReserveFile> Reserve<F> {
    /// Over a file, which may be empty.
    pub fn new(file: F, rules: Rules) -> Reserve<F> {
        Reserve { file, rules }
    }

    /// Its file.
    pub fn file(&self) -> &F {
        &self.file
    }

    /// Bytes that it holds.
    ///
    /// # Errors
    /// What the file says instead.
    pub fn held(&self) -> Result<u64, DeviceError> {
        self.file.size()
    }

    /// Gives at least `bytes` to the filesystem, or what is left for this need. False: nothing was left, or
    /// it could not be given.
    pub fn release(&self, bytes: u64, need: Need) -> bool {
        let Ok(held) = self.file.size() else { return false };
        let (floor, step) = match need {
            Need::Page => (self.rules.commits, self.rules.step),
            // Little by little: what a commit does not take at once, somebody's page will.
            Need::Commit => (0, self.rules.step / 16),
        };
        let left = held.saturating_sub(bytes.max(step)).max(floor);
        left < held && self.file.shrink(left).is_ok()
    }

    /// Takes back from the filesystem what it can spare; returns how much is held then. Call it now and then
    /// from one process, and on a full filesystem after each collection that follows a commit: that is when
    /// there is something.
    ///
    /// # Errors
    /// What the file says to the questions for its size and for free space, and to growing; but not
    /// [`DeviceError::NoSpace`], after which it keeps what it got.
    pub fn fill(&self) -> Result<u64, DeviceError> {
        self.fill_by(u64::MAX)
    }

    /// The same, but takes at most so many bytes this time.
    ///
    /// # Errors
    /// As [`Reserve::fill`].
    pub fn fill_by(&self, most: u64) -> Result<u64, DeviceError> {
        let held = self.file.size()?;
        let free = self.file.free_bytes()?;
        let for_commits = self.rules.commits.min(held.saturating_add(free));
        let for_all = self.rules.bytes().min(held.saturating_add(free.saturating_sub(self.rules.margin)));
        let wanted = for_commits.max(for_all).min(held.saturating_add(most));
        if wanted <= held {
            return Ok(held);
        }
        match self.file.grow(wanted) {
            // Others were quicker. What was got is kept.
            Ok(()) | Err(DeviceError::NoSpace) => self.file.size(),
            Err(error) => Err(error),
        }
    }
}

/// Bytes with which a checkpoint of `dirty_pages` pages ends on a full filesystem, each as large as a record
/// can be. In a server that is all of its shared buffers.
pub fn bytes_for_pages(dirty_pages: u64) -> u64 {
    dirty_pages * RECORD_BYTES_MAX as u64
}

/// Bytes with which `segments` segments can each make the largest commit there is:
/// [`Container::commit_bytes_max`](crate::Container::commit_bytes_max) of full ones.
pub fn bytes_for_commits(segments: u64, commit_bytes_max: u64) -> u64 {
    // The filesystem's blocks at the two ends of a run are shared with nobody.
    const SLACK: u64 = 2 * 4096;
    segments * (commit_bytes_max + SLACK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A filesystem of some bytes, a reserve's file in it.
    struct Tank {
        free: Cell<u64>,
        file: Cell<u64>,
        /// Bytes that somebody else takes the moment that filling begins.
        thief: Cell<u64>,
    }

    impl Tank {
        fn of(free: u64) -> Tank {
            Tank { free: Cell::new(free), file: Cell::new(0), thief: Cell::new(0) }
        }
    }

    impl ReserveFile for &Tank {
        fn size(&self) -> Result<u64, DeviceError> {
            Ok(self.file.get())
        }

        fn shrink(&self, size: u64) -> Result<(), DeviceError> {
            self.free.set(self.free.get() + self.file.get() - size);
            self.file.set(size);
            Ok(())
        }

        fn grow(&self, size: u64) -> Result<(), DeviceError> {
            self.free.set(self.free.get() - self.thief.take());
            let got = (size - self.file.get()).min(self.free.get());
            self.free.set(self.free.get() - got);
            self.file.set(self.file.get() + got);
            if self.file.get() < size { Err(DeviceError::NoSpace) } else { Ok(()) }
        }

        fn free_bytes(&self) -> Result<u64, DeviceError> {
            Ok(self.free.get())
        }
    }

    const RULES: Rules = Rules { pages: 800, commits: 200, step: 100, margin: 300 };

    #[test]
    fn it_takes_what_it_should_hold_and_gives_a_step_or_more_until_nothing_is_left() {
        let tank = Tank::of(5000);
        let reserve = Reserve::new(&tank, RULES);
        assert!(!reserve.release(1, Need::Commit));
        assert_eq!((reserve.fill(), reserve.fill(), tank.free.get()), (Ok(1000), Ok(1000), 4000));
        assert!(reserve.release(1, Need::Page) && reserve.release(450, Need::Commit));
        assert_eq!((reserve.held(), tank.free.get()), (Ok(450), 4550));
        assert!(reserve.release(10_000, Need::Page) && !reserve.release(1, Need::Page));
        assert_eq!(reserve.held(), Ok(200));
        assert!(reserve.release(10_000, Need::Commit) && !reserve.release(1, Need::Commit));
        assert_eq!((reserve.held(), tank.free.get()), (Ok(0), 5000));
        assert_eq!(reserve.fill(), Ok(1000));
    }

    #[test]
    fn filling_leaves_a_margin_and_keeps_what_it_got_when_others_were_quicker() {
        let tank = Tank::of(700);
        let reserve = Reserve::new(&tank, RULES);
        assert_eq!((reserve.fill(), reserve.fill(), tank.free.get()), (Ok(400), Ok(400), 300));
        tank.free.set(800);
        tank.thief.set(600);
        assert_eq!((reserve.fill(), tank.free.get()), (Ok(600), 0));
        assert!(reserve.release(1, Need::Page));
    }

    #[test]
    fn filling_takes_no_more_than_it_may_at_once() {
        let tank = Tank::of(5000);
        let reserve = Reserve::new(&tank, RULES);
        assert_eq!(
            (reserve.fill_by(150), reserve.fill_by(700), reserve.fill_by(700)),
            (Ok(150), Ok(850), Ok(1000))
        );
        assert_eq!((reserve.fill_by(0), tank.free.get()), (Ok(1000), 4000));
    }

    #[test]
    fn the_commits_part_comes_first_and_goes_little_by_little() {
        let tank = Tank::of(150);
        let reserve = Reserve::new(&tank, RULES);
        assert_eq!((reserve.fill(), tank.free.get()), (Ok(150), 0));
        assert!(!reserve.release(1, Need::Page) && reserve.release(1, Need::Commit));
        assert_eq!((reserve.held(), reserve.fill()), (Ok(144), Ok(150)));
    }
}
