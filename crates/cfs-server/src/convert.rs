//! A live relation's file changes its form: what a process that is connected to its database begins, and what workers
//! do. The protocol is [`pgshrink_cfs::convert`]; why it is safe: `docs/decisions/2026-11-25-cfs-live-conversion.md`.
//!
//! Which way a file goes is in its container's root, beside its algorithm and level ([`Policy`]), so that a crash
//! changes nothing about it. Nothing here waits: a worker calls [`Converter::step`] again and again, and sleeps in
//! between as it likes.

mod flights;
mod holders;
mod site;
mod step;

pub use flights::FLIGHTS_MAX;
pub(crate) use flights::{FLIGHT_WORDS, Flights};
pub use step::Converter;

use std::time::SystemTime;

use pgshrink_cfs::convert::{ConvertError, Exchanged as Place, exchange_in, exchange_out, make_base};
use pgshrink_cfs::relation::RelationName;
use pgshrink_cfs::segment::PLAIN_PAGES_MAX;
use pgshrink_cfs::slots::{Access, SegmentKey};
use pgshrink_cfs::{Base, DeviceError, Error};
use pgshrink_codec::{Algorithm, Choice, Level};
use pgshrink_interpose::PAGE_BYTES;

use crate::collecting;
use crate::convert::site::ServerSite;
use crate::error::Problem;
use crate::front::enter;
use crate::names::{GUARD_NAME, PathBuffer, relation_name};
use crate::process::with;
use crate::server::{Shared, shared};
use crate::work::using_engine;

/// Files of so many pages or fewer stay plain.
pub const SMALL_PAGES: u64 = PLAIN_PAGES_MAX as u64;
/// Files that may be on their way at the same time: what is exchanged and waits costs a slot and some system calls. With so
/// many no other begins, but all go on and end.
pub const IN_FLIGHT_MAX: usize = 64;
const _: () = assert!(IN_FLIGHT_MAX < FLIGHTS_MAX);

/// What came of an exchange of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exchanged {
    /// The conversion has begun.
    Done,
    /// It is a container by now.
    IsContainer,
    /// [`SMALL_PAGES`] or fewer.
    TooSmall,
    /// There is no such file.
    Missing,
    /// Not now, and why.
    Busy(&'static str),
}

/// What a conversion waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// For nothing.
    Nothing,
    /// A process has writable descriptors of before the exchange.
    Descriptors {
        /// The process.
        pid: u32,
        /// How many, of all processes.
        count: u32,
    },
    /// Descriptors of a process cannot be looked at.
    Unreadable {
        /// The process.
        pid: u32,
    },
    /// The filesystem has no room for another segment.
    FreeSpace,
    /// `cfs.convert` is off.
    Paused,
    /// Another process has the file in hand, or its relation locked.
    Lock,
}

/// What a step has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing: it has to wait.
    Waits(Waits),
    /// Pages were moved.
    Copied {
        /// How many.
        pages: u32,
        /// Bytes written for them.
        bytes: u64,
    },
    /// The file has its new form.
    Done,
    /// It was dropped.
    Gone,
}

/// Bytes that have to be free before a file of so many pages begins its conversion, in either direction.
pub fn bytes_needed(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_BYTES as u64).saturating_add(crate::reserve::CONVERSION_BYTES)
}

/// Where a conversion leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To a container.
    Compress,
    /// To a plain file.
    Decompress,
}

/// The form of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FormNow {
    /// A file of the server.
    Plain,
    /// On its way to a container.
    Compressing,
    /// A container.
    Compressed,
    /// On its way back.
    Decompressing,
    /// On its way back, and only who has a lock of the relation can go on ([`begin_return`]).
    Returned,
}

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileForm {
    /// Its form.
    pub form: FormNow,
    /// A container's own algorithm and level; `None`: its tablespace's.
    pub choice: Option<Choice>,
    /// Pages that a reader finds.
    pub pages: u64,
    /// Whether it is encrypted: it does not become plain then.
    pub is_encrypted: bool,
}

/// A conversion under way.
#[derive(Clone, PartialEq, Debug)]
pub struct FileProgress {
    /// The file.
    pub key: SegmentKey,
    /// Where it leads.
    pub direction: Direction,
    /// Which part of it: some words for a view.
    pub state: &'static str,
    /// Whether [`begin_return`] is to be called once more: only who has a lock of the relation can go on.
    pub is_leaving: bool,
    /// Pages of the file.
    pub pages: u64,
    /// Pages that have their new form.
    pub pages_done: u64,
    /// Bytes written for them.
    pub bytes_written: u64,
    /// When it began, or was taken up after a restart.
    pub started: SystemTime,
    /// When its pages began to move in this direction; `None`: not yet.
    pub copying_since: Option<SystemTime>,
    /// What it waits for.
    pub waits: Waits,
    /// The worker that has it in hand; 0: none.
    pub pid: u32,
}

/// What a container's root keeps about how pages are written: algorithm and level, and which way the file goes.
///
/// ```text
///  bits 0-7: algorithm's place + 1, 0: the tablespace's | 8-30: level, signed | 31: it becomes a plain file
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
struct Policy(u32);

const RETURNS: u32 = 1 << 31;
const LEVEL_BITS: u32 = 23;
const LEVEL_MASK: u32 = (1 << LEVEL_BITS) - 1;

impl Policy {
    fn new(choice: Option<Choice>, returns: bool) -> Policy {
        let choice = choice.and_then(|Choice { algorithm, level: Level(level) }| {
            let place = Algorithm::ALL.iter().position(|each| *each == algorithm)? as u32;
            Some((place + 1) | ((level as u32 & LEVEL_MASK) << 8))
        });
        Policy(choice.unwrap_or(0) | if returns { RETURNS } else { 0 })
    }

    fn choice(self) -> Option<Choice> {
        let algorithm = *Algorithm::ALL.get(((self.0 & 0xff) as usize).checked_sub(1)?)?;
        let level = ((self.0 >> 8 & LEVEL_MASK) << (32 - LEVEL_BITS)) as i32 >> (32 - LEVEL_BITS);
        Some(Choice { algorithm, level: Level(level) })
    }

    fn returns(self) -> bool {
        self.0 & RETURNS != 0
    }

    fn with_returns(self, returns: bool) -> Policy {
        Policy(self.0 & !RETURNS | if returns { RETURNS } else { 0 })
    }
}

/// A container's own algorithm and level, of what its root keeps.
pub(crate) fn choice_of(policy: u32) -> Option<Choice> {
    Policy(policy).choice()
}

/// What the protocol ended with.
fn problem(error: ConvertError) -> Problem {
    match error {
        ConvertError::Engine(error) => Problem::Engine(error),
        error => Problem::Conversion(error),
    }
}

fn of_system(call: &'static str) -> impl Fn(DeviceError) -> Problem {
    move |source| Problem::Engine(Error::Device { operation: call, offset: 0, length: 0, source })
}

/// What the container says, if there is one.
fn looked(key: &SegmentKey) -> Result<Option<(Base, Policy, u32)>, Problem> {
    let looked = using_engine(key, Access::Read, |pinned| {
        Ok((pinned.base(), Policy(pinned.policy()), pinned.page_count()?))
    });
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(Error::SegmentGone { .. } | Error::Device { source: DeviceError::NotFound, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn plain_pages(key: &SegmentKey, shared: &Shared) -> Option<u64> {
    let found = PathBuffer::segment(key, shared.version()).as_path().symlink_metadata().ok()?;
    found.is_file().then_some(found.len() / PAGE_BYTES as u64)
}

/// A plain file becomes a container's directory whose base has all pages; a container that is on its way to a plain
/// file is turned round. The caller is connected to the database and holds AccessShareLock on the relation whose
/// file this is, and has looked up in the catalog under that lock that it is. Interrupts are held.
///
/// # Errors
/// [`Problem::NotStarted`]; [`Problem::Conversion`], after which the file is what it was, unless it says otherwise.
pub fn exchange(key: &SegmentKey, choice: Option<Choice>) -> Result<Exchanged, Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    let flights = Flights::over(shared.region.flights());
    let Some(pages) = plain_pages(key, shared) else {
        let Some((base, policy, pages)) = looked(key)? else { return Ok(Exchanged::Missing) };
        if policy.returns() {
            let policy = policy.with_returns(false);
            using_engine(key, Access::Write, |pinned| pinned.set_policy(policy.0))?;
        }
        if base != Base::None {
            flights.add(key, Direction::Compress, pages);
        }
        return Ok(Exchanged::IsContainer);
    };
    if pages <= SMALL_PAGES {
        return Ok(Exchanged::TooSmall);
    }
    if flights.count() >= IN_FLIGHT_MAX {
        return Ok(Exchanged::Busy("too many files are being converted"));
    }
    let is_open = with(|process| {
        Ok(match process.member.look(key) {
            Ok(None) => false,
            // The container of a file of before, whose name went with its database's directory.
            Ok(Some(look)) if !look.has_left => process.member.invalidate(key).is_err(),
            _ => true,
        })
    });
    if is_open.unwrap_or(true) {
        return Ok(Exchanged::Busy("its former container is still in use"));
    }
    enter(shared, key.tablespace, key.database)
        .map_err(|errno| Problem::System { call: "making the guard file", errno: errno.0 })?;
    // The launcher tries again, and fills more where the tablespace has a setting.
    let _ = crate::reserve::fill_beside_others(shared, key.tablespace);
    let policy = Policy::new(choice, false);
    let site = ServerSite::open(shared, key, policy.0);
    let site = site.map_err(of_system("open of the database's directory"))?;
    let found = pgshrink_cfs::convert::Site::look(&site, pgshrink_cfs::convert::Name::Segment);
    let Some(found) = found.map_err(of_system("look at the file"))? else { return Ok(Exchanged::Missing) };
    match exchange_in(&site, found.inode) {
        Ok(_) => {
            flights.add(key, Direction::Compress, pages as u32);
            Ok(Exchanged::Done)
        }
        Err(ConvertError::OtherFile { .. }) => Ok(Exchanged::Busy("the file was replaced")),
        Err(ConvertError::OtherNames { .. }) => Ok(Exchanged::Busy("the file has more than one link")),
        Err(error) => Err(problem(error)),
    }
}

/// A file was found on its way: workers go on with it, if they do not know of it. They look for such files themselves,
/// but seldom, and find none that cannot be opened at that moment.
pub fn take_up(key: &SegmentKey, file: &FileForm) {
    let direction = match file.form {
        FormNow::Compressing => Direction::Compress,
        FormNow::Decompressing => Direction::Decompress,
        FormNow::Plain | FormNow::Compressed | FormNow::Returned => return,
    };
    let Some(shared) = shared() else { return };
    let flights = Flights::over(shared.region.flights());
    if flights.find(key).is_none() {
        flights.add(key, direction, file.pages as u32);
    }
}

/// A conversion that no worker has in hand meanwhile.
struct InHand(flights::Flight);

impl InHand {
    /// Waits for a worker's last step, which takes some milliseconds; `None`: it takes longer.
    fn take(flight: flights::Flight) -> Option<InHand> {
        let is_taken = (0..HAND_LOOKS).any(|_| {
            flight.claim() || {
                std::thread::sleep(HAND_PERIOD);
                false
            }
        });
        is_taken.then_some(InHand(flight))
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.0.release();
    }
}

const HAND_LOOKS: u32 = 100;
const HAND_PERIOD: std::time::Duration = std::time::Duration::from_millis(5);

/// A container is to become a plain file again, or a conversion is turned round; false: it is plain already. To be called
/// again until that is so: the last step needs the lock. The caller has what [`exchange`] asks for.
///
/// # Errors
/// [`Problem::NotStarted`], [`Problem::Conversion`]; [`Problem::Engine`], of an encrypted container and of a full
/// filesystem too.
pub fn begin_return(key: &SegmentKey) -> Result<bool, Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    let flights = Flights::over(shared.region.flights());
    let Some((base, policy, pages)) = looked(key)? else { return Ok(false) };
    // A worker may be about to remove the base of before, by its name.
    let _hand = match (base, flights.find(key)) {
        (Base::None, Some(flight)) => match InHand::take(flight) {
            Some(hand) => Some(hand),
            None => return Ok(true),
        },
        _ => None,
    };
    let site = ServerSite::open(shared, key, 0);
    let site = site.map_err(of_system("open of the database's directory"))?;
    if base == Base::None {
        // The root may still need the base of before: memory is ahead of it where a commit has failed.
        if !using_engine(key, Access::Write, |pinned| pinned.finish_leaving())? {
            return Ok(true);
        }
        if let Err(problem) = crate::reserve::check_space(shared, key, u64::from(pages) * PAGE_BYTES as u64) {
            // It waits where everybody sees it, unless so many wait that nothing else could begin.
            if flights.count() >= IN_FLIGHT_MAX / 2 {
                return Err(problem);
            }
            let policy = policy.with_returns(true);
            using_engine(key, Access::Write, |pinned| pinned.set_policy(policy.0))?;
            flights.add(key, Direction::Decompress, pages);
            return Ok(true);
        }
        let directory =
            pgshrink_cfs::convert::Site::open_directory(&site, pgshrink_cfs::convert::Name::Segment);
        let made = make_base(&site, directory.map_err(of_system("open of the container's directory"))?);
        made.map_err(problem)?;
    }
    if !policy.returns() {
        let policy = policy.with_returns(true);
        using_engine(key, Access::Write, |pinned| pinned.set_policy(policy.0))?;
    }
    if matches!(base, Base::None | Base::Leaving) {
        using_engine(key, Access::Write, |pinned| pinned.begin_returning())?;
    }
    flights.add(key, Direction::Decompress, pages);
    if base != Base::Whole {
        return Ok(true);
    }
    // Whatever the root says, the base has all pages: it may be the segment.
    using_engine(key, Access::Write, |pinned| pinned.commit())?;
    let place = Place::open(&site).map_err(problem)?;
    shared.region.note_returned();
    let leave = || {
        let _ = using_engine(key, Access::Write, |pinned| Ok(pinned.leave()));
    };
    exchange_out(&site, place, leave).map_err(problem)?;
    with(|process| process.member.invalidate(key).map(drop).map_err(|error| crate::report::errno_of(&error)))
        .map_err(|errno| Problem::System { call: "closing the container", errno: errno.0 })?;
    if let Some(flight) = flights.find(key) {
        flight.end(flight.began());
    }
    Ok(true)
}

/// Gives a container an algorithm and a level of its own, or its tablespace's; false: it is no container.
///
/// # Errors
/// [`Problem::NotStarted`]; [`Problem::Engine`].
pub fn set_choice(key: &SegmentKey, choice: Option<Choice>) -> Result<bool, Problem> {
    let Some((_, policy, _)) = looked(key)? else { return Ok(false) };
    let new = Policy::new(choice, policy.returns());
    if new != policy {
        using_engine(key, Access::Write, |pinned| pinned.set_policy(new.0))?;
    }
    Ok(true)
}

/// All conversions under way.
pub fn progress() -> Vec<FileProgress> {
    shared().map(|shared| Flights::over(shared.region.flights()).progress()).unwrap_or_default()
}

/// How many they are.
pub fn in_flight() -> usize {
    shared().map_or(0, |shared| Flights::over(shared.region.flights()).count())
}

/// What a file is; `None`: there is no such file.
///
/// # Errors
/// [`Problem::NotStarted`]; [`Problem::Engine`] of a container that does not open.
pub fn form(key: &SegmentKey) -> Result<Option<FileForm>, Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    if let Some(pages) = plain_pages(key, shared) {
        return Ok(Some(FileForm { form: FormNow::Plain, choice: None, pages, is_encrypted: false }));
    }
    let Some((base, policy, pages)) = looked(key)? else {
        let pages = plain_pages(key, shared);
        let plain = |pages| FileForm { form: FormNow::Plain, choice: None, pages, is_encrypted: false };
        return Ok(pages.map(plain));
    };
    let form = match (base, policy.returns()) {
        (Base::None | Base::Whole, true) => FormNow::Returned,
        (_, true) => FormNow::Decompressing,
        (Base::None, false) => FormNow::Compressed,
        (_, false) => FormNow::Compressing,
    };
    let key_id = crate::work::info(key)?.and_then(|info| info.key_id);
    let (choice, pages) = (policy.choice(), u64::from(pages));
    Ok(Some(FileForm { form, choice, pages, is_encrypted: key_id.is_some() }))
}

/// Forgets a conversion whose file is no relation's, as what a loss of power has brought back: no one can take the lock
/// that its last step needs.
pub fn forget(key: &SegmentKey) {
    if let Some(shared) = shared()
        && let Some(flight) = Flights::over(shared.region.flights()).find(key)
        && flight.claim()
    {
        flight.end(flight.began());
    }
}

/// Databases in which [`begin_return`] is to be called for a file.
pub fn databases_due() -> Vec<u32> {
    let mut due: Vec<u32> =
        progress().iter().filter(|found| found.is_leaving).map(|found| found.key.database).collect();
    due.sort_unstable();
    due.dedup();
    due
}

/// Whether the worker is to emit `PROCSIGNAL_BARRIER_SMGRRELEASE` now; asked once.
pub fn wants_barrier() -> bool {
    site::take_barrier()
}

/// Where a segment is, relative to the data directory.
pub fn path_of(key: &SegmentKey) -> String {
    collecting::path_of(key)
}

/// Relations of a database that have a container in a tablespace, by the number of their file: those of which no
/// catalog says so. Cheap where there is none.
pub fn container_files(tablespace: u32, database: u32) -> Vec<u32> {
    let Some(shared) = shared() else { return Vec::new() };
    let directory = PathBuffer::database(tablespace, database, shared.version());
    let directory = directory.as_path();
    if directory.join(GUARD_NAME).symlink_metadata().is_err() {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let containers = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found: Vec<u32> = containers
        .filter_map(|entry| {
            let RelationName { number, .. } = relation_name(entry.file_name().as_encoded_bytes())?;
            Some(number)
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_keeps_algorithm_level_and_direction() {
        for algorithm in Algorithm::ALL {
            let levels = algorithm.levels();
            for level in [levels.min, levels.default, levels.max] {
                let choice = Some(Choice { algorithm: *algorithm, level });
                for returns in [false, true] {
                    let policy = Policy::new(choice, returns);
                    assert!(policy.choice() == choice && policy.returns() == returns, "{algorithm:?}");
                    assert!(policy.with_returns(!returns).choice() == choice);
                }
            }
        }
        assert!(Policy::new(None, false).0 == 0 && Policy::new(None, true).choice().is_none());
    }
}
