//! Dictionaries for the files of a running server: trained on pages that are there, used by all processes from then
//! on, and given to older pages too.
//!
//! A collector has a [`Trainer`] and shows it its files, one after the other, again and again. What is known of a file
//! is in that process's memory alone: after a restart of the server a look at some pages tells whether the rest of an
//! interrupted work is worth to be done. A dictionary stays in its file for good, so there are sixteen at most; then
//! none is trained any more.

use std::collections::HashMap;

use pgshrink_cfs::dictionaries::DICTIONARIES_MAX;
use pgshrink_cfs::dictionary_policy::{DictionaryPolicy, Thresholds, first_blocks, later_blocks};
use pgshrink_cfs::page::{Mode, PAGE_SIZE, PageCodec, PageDictionary};
use pgshrink_cfs::slots::{Access, SegmentKey};
use pgshrink_cfs::store::{Error as StoreError, Pages, StoreName, Writing};
use pgshrink_cfs::{ContainerId, DictionaryNumber, Error, Stored, Workspace};
use pgshrink_interpose::Errno;

use crate::error::Problem;
use crate::file::ServerOpener;
use crate::front::{BRIEF, writing};
use crate::process::{OpenFile, Process, Using, with};
use crate::reserve;
use crate::work::absent_is_none;

/// Files at most of which something is remembered.
const FILES_MAX: usize = 16 << 10;
/// Another one is tried when the file has this many times the pages of the last trial, in vain or not, ...
const GROWTH: [u32; 2] = [2, 3];
/// ... or this many bytes were written since; twice as many after each trial in vain.
const WRITTEN_BYTES: u64 = 64 << 20;
/// Pages at least that a trial needs.
const NOTED_MIN: usize = 96;
/// A trial in vain counts only where at most one in so many of the pages looked at was empty: the rest may still be in
/// the server's buffers.
const EMPTY_ONE_IN: usize = 8;
/// A file of so many pages at most that is still being filled is not worth a trial yet: it is soon full.
const SOON_FULL_PAGES: u32 = (64 << 20) / PAGE_SIZE as u32;
/// Of the pages that are looked at, one in so many without the dictionary lets all be looked at.
const LACKING_ONE_IN: usize = 8;
/// Pages at most that are stored anew in one piece, with the file open for that time.
const PIECE_PAGES: u32 = 128;
/// Pages after which what was stored anew is made durable, so that the former space is free.
const COMMIT_PAGES: u32 = 4096;

/// What a collector knows of dictionaries of its files.
#[derive(Default)]
pub struct Trainer {
    files: HashMap<SegmentKey, Known>,
}

/// What a call of [`Trainer::piece`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trained {
    /// A dictionary was trained and is in the file.
    pub is_new: bool,
    /// Pages that were looked at for being stored anew.
    pub looked_at: u32,
    /// Pages that were stored anew.
    pub stored: u32,
    /// There is more to do at once.
    pub goes_on: bool,
}

/// How a trial went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trial {
    /// The file has a new dictionary.
    Won,
    /// None pays.
    InVain,
    /// None pays, but many pages were empty.
    InVainEarly,
}

/// When a dictionary is tried for a file.
struct Schedule {
    /// The last trial: of so many pages, when so many bytes had been written since the file was opened.
    pages: u32,
    written: u64,
    /// The next one is due at so many pages, or bytes.
    pages_due: u32,
    written_due: u64,
    patience: u64,
    /// Many pages were empty at the last trial.
    was_early: bool,
}

/// Of one file.
struct Known {
    id: ContainerId,
    schedule: Schedule,
    /// What the process keeps its dictionaries by.
    name: StoreName,
    /// The next block to be stored anew.
    next: Option<u32>,
    /// Since the last commit.
    stored: u32,
}

impl Known {
    fn new(id: ContainerId, name: StoreName) -> Known {
        Known { id, schedule: Schedule::new(), name, next: None, stored: 0 }
    }
}

impl Schedule {
    fn new() -> Schedule {
        let pages_due = Thresholds::default().first_pages;
        Schedule {
            pages: 0,
            written: 0,
            pages_due,
            written_due: WRITTEN_BYTES,
            patience: 1,
            was_early: false,
        }
    }

    /// Is to be tried again later.
    fn tried(&mut self, pages: u32, written: u64, has_won: bool) {
        self.patience = if has_won { 1 } else { (self.patience * 2).min(64) };
        (self.pages, self.written) = (pages, written);
        self.pages_due = pages.saturating_mul(GROWTH[usize::from(has_won)]);
        self.written_due = written.saturating_add(WRITTEN_BYTES * self.patience);
        self.was_early = false;
    }

    /// Says little, as most of the file may be still to come.
    fn tried_early(&mut self, pages: u32, written: u64) {
        self.tried(pages, written, true);
        self.written_due = written.saturating_add(WRITTEN_BYTES / 8);
        self.was_early = true;
    }

    /// Too much of it is empty: it is looked at again once a part of that may have come, or nobody writes to it.
    fn put_off(&mut self, pages: u32, written: u64) {
        self.pages_due = pages.saturating_add(pages / 16 + 1);
        self.written_due = written.saturating_add(u64::from(pages) * PAGE_SIZE as u64 / 64);
    }

    /// Whether a trial is due. A file that rests is what it will be for a while, so that less has to be new in it.
    fn is_due(&self, pages: u32, written: u64, rests: bool) -> bool {
        let has_grown = pages > self.pages.saturating_add(self.pages / 4);
        let enough = if self.was_early { 0 } else { WRITTEN_BYTES / 8 };
        let is_other = written > self.written.saturating_add(enough);
        pages >= self.pages_due || written >= self.written_due || rests && (has_grown || is_other)
    }
}

impl Trainer {
    /// Looks at a file: trains its first or another dictionary if that is due and pays, and stores a piece of the
    /// older pages anew. `None`: there is no such container, or nothing is to be done for it.
    ///
    /// `may_train`: otherwise only what was written in recovery is stored anew. `rests`: nobody has written to the file
    /// for a while. Takes a tenth of a second where a dictionary is trained.
    ///
    /// # Errors
    /// As of the container, which the caller may skip: nothing is lost by pages that stay as they are.
    pub fn piece(
        &mut self,
        key: &SegmentKey,
        may_train: bool,
        rests: bool,
    ) -> Result<Option<Trained>, Problem> {
        // Maps of free space and visibility are a few pages, all alike.
        if key.fork != 0 {
            return Ok(None);
        }
        let mut done = Ok(None);
        let entered = with(|process: &mut Process| {
            done = self.piece_in(process, key, may_train, rests);
            Ok(())
        });
        match entered {
            Ok(()) => absent_is_none(done).map(Option::flatten),
            Err(Errno(errno)) => Err(Problem::System { call: "joining the server's shared memory", errno }),
        }
    }

    fn piece_in(
        &mut self,
        process: &mut Process,
        key: &SegmentKey,
        may_train: bool,
        rests: bool,
    ) -> Result<Option<Trained>, Problem> {
        let shared = process.shared;
        let opener = ServerOpener { shared, descriptor: None };
        let mut file = OpenFile::new(process.member, *key, false)?;
        let pinned = file.pin(Access::Write, &opener)?;
        let how = writing(shared, key, pinned.policy());
        if !PageDictionary::usable_with(how.policy.choice) {
            return Ok(None);
        }
        if pinned.pages() < Thresholds::default().first_pages {
            return Ok(None);
        }
        if self.files.len() >= FILES_MAX {
            self.files.clear();
        }
        let workspace = &mut process.workspace;
        if self.files.get(key).is_none_or(|known| known.id != pinned.id()) {
            let name = StoreName::of(&pinned).map_err(problem)?;
            self.files.insert(*key, first_look((&pinned, name), &how, may_train, workspace));
        }
        let Some(known) = self.files.get_mut(key) else { return Ok(None) };
        let work = Work { pinned: &pinned, name: known.name, how, workspace };
        if known.next.is_some() {
            // The filesystem's last space is the users'.
            let has_space = reserve::allows_growth(shared, key.tablespace);
            return if has_space { work.store_anew(known).map(Some) } else { Ok(None) };
        }
        let (pages, written) = (pinned.pages(), pinned.stats().written_bytes);
        if !may_train || !known.schedule.is_due(pages, written, rests) {
            return Ok(None);
        }
        let Some(trial) = work.train(pages, rests)? else {
            known.schedule.put_off(pages, written);
            return Ok(None);
        };
        let is_new = trial == Trial::Won;
        match trial {
            Trial::InVainEarly => known.schedule.tried_early(pages, written),
            Trial::Won | Trial::InVain => known.schedule.tried(pages, written, is_new),
        }
        known.next = is_new.then_some(0);
        Ok(is_new.then_some(Trained { is_new, goes_on: true, ..Trained::default() }))
    }
}

/// A file that this process has not met: pages may have been written before its dictionary was there, or in recovery.
fn first_look(
    (pinned, name): (&Using<'_>, StoreName),
    how: &Writing,
    may_train: bool,
    workspace: &mut Workspace,
) -> Known {
    let (mut known, store) = (Known::new(pinned.id(), name), Pages::over(pinned, name));
    let newest = pinned.newest_dictionary().filter(|_| may_train);
    let pages = pinned.pages();
    if newest.is_some() {
        known.schedule.tried(pages, pinned.stats().written_bytes, true);
    }
    let algorithm = how.policy.choice.algorithm;
    let mut lacking = 0;
    let mut looked_at = 0;
    for block in later_blocks(pages.into()) {
        if let Ok(Stored::Record { mode, dictionary, .. }) = store.stored(block as u32, workspace) {
            let is_brief =
                Mode::from_byte(mode).is_ok_and(|mode| mode.algorithm() == BRIEF) && BRIEF != algorithm;
            looked_at += 1;
            lacking += usize::from(is_brief || newest.is_some_and(|newest| newest != dictionary));
        }
    }
    known.next = (lacking * LACKING_ONE_IN > looked_at).then_some(0);
    known
}

/// A file at work.
struct Work<'w, 'a> {
    pinned: &'w Using<'a>,
    name: StoreName,
    how: Writing,
    workspace: &'w mut Workspace,
}

impl Work<'_, '_> {
    /// Stores a piece of the pages anew with the newest dictionary.
    fn store_anew(self, known: &mut Known) -> Result<Trained, Problem> {
        let Work { pinned, name, how, workspace } = self;
        let store = Pages::over(pinned, name);
        let dictionary = store.ready_dictionary(&how, workspace);
        let how = Writing { dictionary, ..how };
        let first = known.next.unwrap_or(0);
        let pages = pinned.pages();
        let end = pages.min(first.saturating_add(PIECE_PAGES));
        let mut done = Trained::default();
        for block in first..end {
            done.looked_at += 1;
            match store.store_anew(block, &how, workspace) {
                Ok(is_stored) => done.stored += u32::from(is_stored),
                // Whoever reads the page is told of it, as always.
                Err(error) if error.is_damage() => {}
                Err(error) => {
                    known.next = None;
                    return Err(problem(error));
                }
            }
        }
        known.stored += done.stored;
        known.next = (end < pages).then_some(end);
        done.goes_on = known.next.is_some();
        if known.stored > 0 && (known.stored >= COMMIT_PAGES || !done.goes_on) {
            known.stored = 0;
            pinned.commit()?;
        }
        Ok(done)
    }

    /// Trains a dictionary and puts it into the file, if it pays. `None`: too many pages are empty, as those that the
    /// server has just made and not written yet.
    fn train(self, pages: u32, rests: bool) -> Result<Option<Trial>, Problem> {
        let Work { pinned, name, how, workspace } = self;
        let store = Pages::over(pinned, name);
        if pinned.dictionary_ids()?.len() >= DICTIONARIES_MAX {
            return Ok(Some(Trial::InVain));
        }
        let newest = pinned.newest_dictionary();
        let blocks: Vec<u64> = match newest {
            None => first_blocks(pages.into()).collect(),
            Some(_) => later_blocks(pages.into()).collect(),
        };
        let looked_at = blocks.len();
        let mut policy = DictionaryPolicy::new(Thresholds::default());
        let (mut page, mut noted) = ([0; PAGE_SIZE], 0);
        for block in blocks {
            let block = block as u32;
            match store.read(block, &mut page, workspace) {
                // A file that is being converted has zeros for pages that are still in the server's buffers.
                Ok(stored) if stored.payload_len > 0 && page != [0; PAGE_SIZE] => {
                    policy.note(store.in_relation(block), &page, stored.payload_len);
                    noted += 1;
                }
                Ok(_) | Err(StoreError::Container(Error::PastEnd { .. })) => {}
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(problem(error)),
            }
        }
        let is_early = (looked_at - noted) * EMPTY_ONE_IN > looked_at;
        if noted < NOTED_MIN || is_early && !rests && pages <= SOON_FULL_PAGES {
            return Ok(None);
        }
        let present = newest.map(|number| self::present(pinned, number, &how)).transpose()?;
        let codec = &mut PageCodec::new();
        let found = policy
            .trial(codec, &how.policy, present.as_ref(), pages)
            .map_err(|source| problem(StoreError::Page { block: 0, source }))?;
        match found {
            Some(better) => store.add_dictionary(&better).map(|_| Some(Trial::Won)).map_err(problem),
            None if is_early => Ok(Some(Trial::InVainEarly)),
            None => Ok(Some(Trial::InVain)),
        }
    }
}

fn present(pinned: &Using<'_>, number: DictionaryNumber, how: &Writing) -> Result<PageDictionary, Problem> {
    let (_, content) = pinned.dictionary(number)?;
    PageDictionary::new(content, &[how.policy.choice])
        .map_err(|source| problem(StoreError::Page { block: 0, source }))
}

fn problem(error: StoreError) -> Problem {
    match error {
        StoreError::Container(error) => Problem::Engine(error),
        error => Problem::Page(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_many_empty_pages_is_looked_at_again_when_it_has_more_or_rests() {
        let mut schedule = Schedule::new();
        assert!(schedule.is_due(1000, 0, false));
        schedule.put_off(1000, 5);
        assert!(!schedule.is_due(1000, 100, false), "nothing has come");
        assert!(schedule.is_due(1000, 5 + 1000 * 8192 / 64, false));
        assert!(schedule.is_due(1063, 5, false));
        assert!(schedule.is_due(1000, 5, true), "nobody writes to it");
        schedule.tried(1000, 5, false);
        assert!(!schedule.is_due(1000, 5, true));
    }
}
