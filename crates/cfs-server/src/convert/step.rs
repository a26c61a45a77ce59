//! A worker's steps: each does a small part of one file's conversion, and waits for nobody.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use pgshrink_cfs::convert::{
    ConvertError, Exchanged as Place, Flipped, Phase as To, Settling, finish, flip, make_durable,
};
use pgshrink_cfs::segment::BASE_NAME;
use pgshrink_cfs::slots::{Access, SegmentKey};
use pgshrink_cfs::store::{Error as StoreError, Pages, StoreName};
use pgshrink_cfs::{Base, Error, Moved};
use pgshrink_interpose::{Errno, PAGE_BYTES};

use crate::collecting::segments_on_disk;
use crate::convert::flights::{Flight, Flights, Phase};
use crate::convert::site::ServerSite;
use crate::convert::{Direction, Step, Waits, looked, of_system, problem};
use crate::error::Problem;
use crate::file::ServerOpener;
use crate::front::writing;
use crate::names::PathBuffer;
use crate::process::{OpenFile, Process, with};
use crate::report::failure;
use crate::reserve::check_space;
use crate::server::{Shared, shared};
use crate::training::Trainer;
use crate::work::{WRITEBACK_BYTES, using_engine};

/// Pauses while others let go, so that a flip takes no longer than a process waits.
const FLIP_PAUSE: Duration = Duration::from_micros(50);
const FLIP_TIME: Duration = Duration::from_millis(15);
/// Pages moved before a commit: 128 MB of the file.
const COMMIT_PAGES: u32 = 16_384;

/// What a worker knows of a file between two steps.
struct Local {
    /// Of which conversion of the file: what was seen of one is nothing for another.
    began: u64,
    settling: Settling,
    /// Where the next page to be moved is looked for.
    next: u32,
    /// Pages moved since the last commit.
    moved: u32,
    /// Pages that are to be moved, about.
    left: u32,
    trained: bool,
    failed: bool,
}

/// A worker that converts. It has one file in hand at a time.
pub struct Converter {
    shared: &'static Shared,
    files: HashMap<SegmentKey, Local>,
    trainer: Trainer,
    /// When it last looked for files that a crash has left on their way.
    looked: Option<Instant>,
}

/// Between two looks at all files.
const LOOK_PERIOD: Duration = Duration::from_secs(600);

impl Converter {
    /// This process.
    ///
    /// # Errors
    /// [`Problem::NotStarted`].
    pub fn new() -> Result<Converter, Problem> {
        let shared = shared().ok_or(Problem::NotStarted)?;
        Ok(Converter { shared, files: HashMap::new(), trainer: Trainer::default(), looked: None })
    }

    /// Files that are being converted, those first that were begun first; after the server's start those that it found
    /// on their way.
    pub fn due(&mut self) -> Vec<SegmentKey> {
        let flights = Flights::over(self.shared.region.flights());
        if self.looked.is_none_or(|looked| looked.elapsed() > LOOK_PERIOD) {
            self.looked = Some(Instant::now());
            for key in segments_on_disk() {
                let base = PathBuffer::segment(&key, self.shared.version()).with(BASE_NAME);
                if base.as_path().exists() && flights.find(&key).is_none() {
                    let found = looked(&key).ok().flatten();
                    let (returns, pages) =
                        found.map_or((false, 0), |(_, policy, pages)| (policy.returns(), pages));
                    let direction = if returns { Direction::Decompress } else { Direction::Compress };
                    flights.add(&key, direction, pages);
                }
            }
        }
        let keys = flights.keys();
        self.files.retain(|key, _| keys.contains(key));
        keys
    }

    /// While conversions are paused: lists files that it finds on their way, and takes those off the list that were dropped.
    pub fn watch(&mut self) {
        for key in self.due() {
            let place = PathBuffer::segment(&key, self.shared.version());
            if place.as_path().symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                let _ = self.step(&key, 1, Duration::ZERO);
            }
        }
    }

    /// Does a part of a file's conversion: moves at most `pages_max` pages.
    ///
    /// # Errors
    /// As of the file. The conversion goes on with the next call, unless the error says what has to be done first.
    pub fn step(&mut self, key: &SegmentKey, pages_max: u32, now: Duration) -> Result<Step, Problem> {
        let Some(flight) = Flights::over(self.shared.region.flights()).find(key) else {
            return Ok(Step::Done);
        };
        if !flight.claim() {
            return Ok(Step::Waits(Waits::Lock));
        }
        let began = flight.began();
        if self.files.get(key).is_some_and(|local| local.began != began) {
            self.files.remove(key);
        }
        let new = || Local {
            began,
            settling: Settling::default(),
            next: 0,
            moved: 0,
            left: 0,
            trained: false,
            failed: false,
        };
        self.files.entry(*key).or_insert_with(new);
        let done = match self.step_of(key, flight, pages_max, now) {
            // Its relation, or all of its database, was dropped in the midst of it.
            Err(_) if matches!(looked(key), Ok(None)) => Ok(Step::Gone),
            done => done,
        };
        match &done {
            Ok(Step::Done | Step::Gone) => {
                self.files.remove(key);
                flight.end(began);
            }
            Ok(Step::Waits(waits)) => {
                flight.waits(*waits);
                flight.release();
            }
            Ok(Step::Copied { .. }) => flight.waits(Waits::Nothing),
            Err(problem) => {
                if let Some(local) = self.files.get_mut(key)
                    && !local.failed
                {
                    local.failed = true;
                    failure(Some(key), None, problem);
                }
                flight.release();
            }
        }
        done
    }

    fn step_of(
        &mut self,
        key: &SegmentKey,
        flight: Flight,
        pages_max: u32,
        now: Duration,
    ) -> Result<Step, Problem> {
        let Some((base, policy, pages)) = looked(key)? else { return Ok(Step::Gone) };
        match (base, policy.returns()) {
            (Base::None, false) => self.finish(key, flight),
            (Base::None, true) if check_space(self.shared, key, bytes_of(pages)).is_err() => {
                flight.phase(Phase::Queued);
                flight.pages(pages, 0);
                Ok(Step::Waits(Waits::FreeSpace))
            }
            // What was begun is to be begun again, by who has a lock.
            (Base::None, true) | (Base::Whole, true) => {
                flight.phase(Phase::Leaving);
                flight.pages(pages, if base == Base::Whole { pages } else { 0 });
                Ok(Step::Waits(Waits::Lock))
            }
            (Base::Whole, false) => self.settle(key, flight, now),
            (Base::Leaving, false) | (Base::Returning, true) => {
                flight.phase(Phase::Copying);
                self.move_pages(key, flight, pages_max)
            }
            (Base::Leaving, true) => {
                using_engine(key, Access::Write, |pinned| pinned.begin_returning())?;
                Ok(Step::Copied { pages: 0, bytes: 0 })
            }
            (Base::Returning, false) => flip_to(key, To::Leaving),
        }
    }

    fn local(&mut self, key: &SegmentKey) -> Option<&mut Local> {
        self.files.get_mut(key)
    }

    /// Waits for descriptors of before; then the base never changes again.
    fn settle(&mut self, key: &SegmentKey, flight: Flight, now: Duration) -> Result<Step, Problem> {
        flight.phase(Phase::Settling);
        let shared = self.shared;
        let Some(local) = self.local(key) else { return Ok(Step::Gone) };
        let site = ServerSite::open(shared, key, 0);
        let site = site.map_err(of_system("open of the database's directory"))?;
        let place = match Place::open(&site) {
            Ok(place) => place,
            Err(ConvertError::System { source: pgshrink_cfs::DeviceError::NotFound, .. }) => {
                return Ok(Step::Gone);
            }
            Err(error) => return Err(problem(error)),
        };
        let now_ms = now.as_millis() as u64;
        let holders = match local.settling.look(&site, &place, now_ms) {
            Err(ConvertError::OtherFile { .. }) => return Ok(Step::Gone),
            holders => holders.map_err(problem)?,
        };
        if holders.writable > 0 {
            let (pid, count) = (holders.process, holders.writable);
            return Ok(Step::Waits(Waits::Descriptors { pid, count }));
        }
        if holders.unreadable > 0 {
            return Ok(Step::Waits(Waits::Unreadable { pid: holders.process }));
        }
        let Some((_, _, pages)) = looked(key)? else { return Ok(Step::Gone) };
        if check_space(shared, key, bytes_of(pages)).is_err() {
            return Ok(Step::Waits(Waits::FreeSpace));
        }
        match make_durable(&site, &place) {
            // It became a plain file again meanwhile, or was dropped.
            Err(ConvertError::OtherFile { .. }) => return Ok(Step::Gone),
            done => done.map_err(problem)?,
        }
        flip_to(key, To::Leaving)
    }

    /// Moves pages, commits now and then, and ends when none is left.
    fn move_pages(&mut self, key: &SegmentKey, flight: Flight, pages_max: u32) -> Result<Step, Problem> {
        let Some(local) = self.local(key) else { return Ok(Step::Gone) };
        if !local.trained {
            local.trained = true;
            // What is copied afterwards has a dictionary at once. Without one it goes as well.
            let _ = self.trainer.piece(key, true, true);
        }
        let Some(local) = self.files.get_mut(key) else { return Ok(Step::Gone) };
        let mut done = Err(Error::SegmentGone { key: *key }.into());
        let entered = with(|process| {
            done = move_in(process, key, local, pages_max);
            Ok(())
        });
        entered
            .map_err(|Errno(errno)| Problem::System { call: "joining the server's shared memory", errno })?;
        let found = match done {
            Err(Problem::Engine(error) | Problem::Page(StoreError::Container(error)))
                if error.is_no_space() =>
            {
                return Ok(Step::Waits(Waits::FreeSpace));
            }
            Err(Problem::Engine(Error::SegmentGone { .. })) => return Ok(Step::Gone),
            done => done?,
        };
        flight.pages(found.pages, found.pages - found.left.min(found.pages));
        flight.wrote(found.bytes);
        if found.left > 0 {
            return Ok(Step::Copied { pages: found.moved, bytes: found.bytes });
        }
        match found.base {
            Base::Leaving => self.finish(key, flight),
            _ => {
                using_engine(key, Access::Write, |pinned| pinned.commit())?;
                flip_to(key, To::Whole)
            }
        }
    }

    /// Nothing is in the base any more: it goes.
    fn finish(&mut self, key: &SegmentKey, flight: Flight) -> Result<Step, Problem> {
        flight.phase(Phase::Finishing);
        let site = ServerSite::open(self.shared, key, 0);
        let site = site.map_err(of_system("open of the database's directory"))?;
        let directory =
            pgshrink_cfs::convert::Site::open_directory(&site, pgshrink_cfs::convert::Name::Segment);
        let directory = directory.map_err(of_system("open of the container's directory"))?;
        let mut is_left = false;
        let commit = || {
            is_left = !using_engine(key, Access::Write, |pinned| pinned.finish_leaving())?;
            // A page is left in the base, or the conversion was turned round: it stays.
            if is_left { Err(Error::SegmentGone { key: *key }) } else { Ok(()) }
        };
        match finish(&site, &directory, commit) {
            _ if is_left => Ok(Step::Copied { pages: 0, bytes: 0 }),
            done => done.map(|()| Step::Done).map_err(problem),
        }
    }
}

fn bytes_of(pages: u32) -> u64 {
    u64::from(pages) * PAGE_BYTES as u64
}

/// What moving pages came to.
struct Found {
    base: Base,
    pages: u32,
    left: u32,
    moved: u32,
    bytes: u64,
}

fn move_in(
    process: &mut Process,
    key: &SegmentKey,
    local: &mut Local,
    pages_max: u32,
) -> Result<Found, Problem> {
    let shared = process.shared;
    let opener = ServerOpener { shared, descriptor: None };
    let mut file = OpenFile::new(process.member, *key, false)?;
    let pinned = file.pin(Access::Write, &opener)?;
    let name = StoreName::of(&pinned).map_err(page_problem)?;
    let (base, pages) = (pinned.base(), pinned.pages());
    let store = Pages::over(&pinned, name);
    let mut how = writing(shared, key, pinned.policy());
    how.dictionary = store.ready_dictionary(&how, &mut process.workspace);
    let mut found = Found { base, pages, left: 0, moved: 0, bytes: 0 };
    let mut block = if local.next < pages { local.next } else { 0 };
    let mut looked = 0;
    while looked < pages && found.moved < pages_max {
        let moved = match base {
            Base::Leaving => store.move_from_base(block, &how, &mut process.workspace),
            _ => store.move_to_base(block, &mut process.workspace),
        };
        match moved.map_err(page_problem)? {
            Moved::Done { bytes } => {
                found.moved += 1;
                found.bytes += if base == Base::Leaving { u64::from(bytes) } else { PAGE_BYTES as u64 };
                local.moved += 1;
            }
            Moved::NotThere => {}
            // A collector has the lock: the rest is for the next step.
            Moved::Busy => break,
        }
        looked += 1;
        block = if block + 1 < pages { block + 1 } else { 0 };
    }
    local.next = block;
    // Writers move pages too, and growth adds some: it is counted anew when nothing seems to be left.
    local.left = local.left.saturating_sub(found.moved);
    if local.left == 0 || looked >= pages {
        let (there, _) = pinned.in_base(0, pages)?;
        local.left = if base == Base::Leaving { there } else { pages - there };
    }
    found.left = local.left;
    if local.moved >= COMMIT_PAGES {
        local.moved = 0;
        pinned.commit()?;
    } else {
        pinned.begin_writeback(WRITEBACK_BYTES)?;
    }
    Ok(found)
}

fn page_problem(error: StoreError) -> Problem {
    match error {
        StoreError::Container(error) => Problem::Engine(error),
        error => Problem::Page(error),
    }
}

fn flip_to(key: &SegmentKey, to: To) -> Result<Step, Problem> {
    let flipped = using_engine(key, Access::Write, |pinned| {
        let begun = Instant::now();
        let wait = || {
            std::thread::sleep(FLIP_PAUSE);
            begun.elapsed() < FLIP_TIME
        };
        let flipped = flip(pinned, to, wait)?;
        if flipped == Flipped::Done {
            // From now on a crash leaves what memory says.
            pinned.commit()?;
        }
        Ok(flipped)
    })?;
    Ok(match flipped {
        Flipped::Done => Step::Copied { pages: 0, bytes: 0 },
        Flipped::Busy => Step::Waits(Waits::Lock),
    })
}
