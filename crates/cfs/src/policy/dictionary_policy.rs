//! When a relation's dictionary is trained, and when again: a decision, without I/O, clocks or chance.
//!
//! Whoever writes a relation's pages tells of each ([`DictionaryPolicy::note`]); now and then the answer is
//! that a trial is due, which may be run at leisure and elsewhere ([`DictionaryPolicy::trial`]). What comes
//! of it is a better dictionary or none:
//!
//! * **First** after [`Thresholds::first_pages`] pages.
//! * **Again** when pages of late take more bytes than they did when the dictionary was new
//!   ([`Thresholds::worse_percent`]), and every [`Thresholds::windows_max`] windows in any case: what is
//!   written may be better served by another dictionary without being served worse than before.
//! * **Adopted** is a dictionary that makes pages it was not trained on smaller than the present one does, by
//!   [`Thresholds::gain_percent`] and by more than its own bytes over the pages to come. Three of four
//!   samples train, the fourth judges.
//! * A trial in vain doubles the time to the next one, up to 64 windows.
//!
//! Samples are spread over a window evenly: every page at first, every second when there are too many, and so
//! on. They are a megabyte at most, and gone after a trial.
//!
//! What becomes of a dictionary that was replaced: [`crate::engine::dictionaries`].

use pgshrink_codec::Choice;

use crate::format::record::HEADER_BYTES;
use crate::format::units::UNIT_BYTES;
use crate::page::{Error, PAGE_SIZE, PageCodec, PageDictionary, Policy};

/// The figures of a [`DictionaryPolicy`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Pages before the first trial.
    pub first_pages: u32,
    /// Pages of a window, over which means are taken.
    pub window_pages: u32,
    /// By how much a window's mean is to exceed the first one's for a trial.
    pub worse_percent: u32,
    /// Windows at most between trials.
    pub windows_max: u32,
    /// What a dictionary must gain on pages it was not trained on.
    pub gain_percent: u32,
    /// Bytes at most of a dictionary.
    pub dictionary_bytes: usize,
}

impl Default for Thresholds {
    /// 16 KB after the first megabyte, and again when pages take 5 % more or 256 MB were written.
    fn default() -> Thresholds {
        Thresholds {
            first_pages: SAMPLES_MAX as u32,
            window_pages: 4096,
            worse_percent: 5,
            windows_max: 8,
            gain_percent: 1,
            dictionary_bytes: crate::policy::estimate::DICTIONARY_BYTES,
        }
    }
}

/// Pages at most that are kept for a trial.
pub const SAMPLES_MAX: usize = 128;
/// Every so many-th sample judges.
const JUDGES: usize = 4;
/// Pages at least that judge.
const JUDGING_MIN: usize = 8;
/// Windows at most between trials in vain.
const PATIENCE_MAX: u32 = 64;

/// A relation's.
pub struct DictionaryPolicy {
    thresholds: Thresholds,
    samples: Vec<(u32, [u8; PAGE_SIZE])>,
    /// Every so many-th page of the window is kept.
    stride: u32,
    /// Pages of the window, and what they take.
    noted: u32,
    noted_bytes: u64,
    /// What a page took in the first window with the present dictionary.
    mean_at_first: Option<u64>,
    /// Windows since the last trial, and before the next one at the least; None: no trial yet.
    windows: u32,
    patience: Option<u32>,
    is_due: bool,
}

impl DictionaryPolicy {
    /// For a relation without pages, or of which nothing is known.
    pub fn new(thresholds: Thresholds) -> DictionaryPolicy {
        DictionaryPolicy {
            thresholds,
            samples: Vec::new(),
            stride: 1,
            noted: 0,
            noted_bytes: 0,
            mean_at_first: None,
            windows: 0,
            patience: None,
            is_due: false,
        }
    }

    /// For a relation that has a dictionary already.
    pub fn with_dictionary(thresholds: Thresholds) -> DictionaryPolicy {
        DictionaryPolicy { patience: Some(1), ..DictionaryPolicy::new(thresholds) }
    }

    /// A page was written, with the present dictionary, in so many bytes of payload; its number in the
    /// relation counts for its check sum. True: a trial is due, until it is run. Pages of zeros are not reported
    /// of.
    pub fn note(&mut self, block: u32, page: &[u8; PAGE_SIZE], payload_len: usize) -> bool {
        if self.noted.is_multiple_of(self.stride) {
            if self.samples.len() == SAMPLES_MAX {
                let mut index = 0;
                self.samples.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            if self.noted.is_multiple_of(self.stride) {
                self.samples.push((block, *page));
            }
        }
        self.noted += 1;
        self.noted_bytes += allocated(payload_len);
        self.is_due |= match self.patience {
            None => self.noted >= self.thresholds.first_pages,
            Some(patience) => self.noted >= self.thresholds.window_pages && self.ends_window(patience),
        };
        self.is_due
    }

    fn ends_window(&mut self, patience: u32) -> bool {
        let mean = self.noted_bytes / u64::from(self.noted.max(1));
        self.windows += 1;
        let first = *self.mean_at_first.get_or_insert(mean);
        let limit = first * u64::from(100 + self.thresholds.worse_percent) / 100;
        let due = self.windows >= patience
            && (mean > limit || self.windows >= self.thresholds.windows_max.max(patience));
        if !due {
            self.begin_window();
        }
        due
    }

    fn begin_window(&mut self) {
        self.samples.clear();
        (self.stride, self.noted, self.noted_bytes) = (1, 0, 0);
    }

    /// Trains on the pages noted of late. A dictionary, if it serves them better than `present` does, in each
    /// container for which so many pages are still to come.
    ///
    /// # Errors
    /// [`Error::Codec`] of encoding a page or preparing a dictionary.
    pub fn trial(
        &mut self,
        codec: &mut PageCodec,
        how: &Policy,
        present: Option<&PageDictionary>,
        pages_to_come: u32,
    ) -> Result<Option<PageDictionary>, Error> {
        let found = self.better(codec, how, present, pages_to_come);
        let won = matches!(found, Ok(Some(_)));
        self.patience = Some(if won { 1 } else { (self.patience.unwrap_or(1) * 2).min(PATIENCE_MAX) });
        // What follows is compared with what follows now: worse pages are no news twice.
        self.mean_at_first = None;
        (self.windows, self.is_due) = (0, false);
        self.begin_window();
        found
    }

    /// A dictionary of the pages noted of late, which is the same for every algorithm. None: they are too few, or have nothing in
    /// common.
    pub fn train(&self) -> Option<Vec<u8>> {
        if self.part(true).count() < JUDGING_MIN {
            return None;
        }
        PageDictionary::train(self.part(false).map(|(_, page)| page), self.thresholds.dictionary_bytes)
    }

    /// The dictionary of these bytes, if it serves the pages that [`train`](Self::train) left out better than `present` does;
    /// otherwise as [`trial`](Self::trial).
    ///
    /// # Errors
    /// As [`trial`](Self::trial).
    pub fn judge(
        &self,
        codec: &mut PageCodec,
        how: &Policy,
        present: Option<&PageDictionary>,
        bytes: Vec<u8>,
        pages_to_come: u32,
    ) -> Result<Option<PageDictionary>, Error> {
        let judging = self.part(true).count();
        if judging == 0 || !PageDictionary::usable_with(how.choice) {
            return Ok(None);
        }
        let choices: [Choice; 1] = [how.choice];
        let candidate = PageDictionary::new(bytes, &choices)?;
        let mut payload = Vec::new();
        // An encoder learns the schema from the first pages it sees. One that has seen none may take another schema for these few
        // than the dictionary's samples were rearranged by, and find the dictionary useless.
        for (block, page) in self.part(false) {
            payload.clear();
            codec.encode(page, Some(*block), how, None, &mut payload)?;
        }
        let mut taken = |dictionary: Option<&PageDictionary>| {
            self.part(true).try_fold(0, |sum, (block, page)| {
                payload.clear();
                codec.encode(page, Some(*block), how, dictionary, &mut payload)?;
                Ok::<u64, Error>(sum + allocated(payload.len()))
            })
        };
        let (before, after) = (taken(present)?, taken(Some(&candidate))?);
        let gain = before.saturating_sub(after);
        let in_all = u128::from(gain) * u128::from(pages_to_come) / judging as u128;
        let wins = gain * 100 >= before * u64::from(self.thresholds.gain_percent)
            && in_all > (candidate.bytes().len() + HEADER_BYTES) as u128;
        Ok(wins.then_some(candidate))
    }

    /// Samples that judge, or that train.
    fn part(&self, judging: bool) -> impl Iterator<Item = &(u32, [u8; PAGE_SIZE])> {
        let samples = self.samples.iter().enumerate();
        samples.filter(move |(index, _)| is_judge(*index) == judging).map(|(_, sample)| sample)
    }

    fn better(
        &self,
        codec: &mut PageCodec,
        how: &Policy,
        present: Option<&PageDictionary>,
        pages_to_come: u32,
    ) -> Result<Option<PageDictionary>, Error> {
        if !PageDictionary::usable_with(how.choice) {
            return Ok(None);
        }
        match self.train() {
            Some(bytes) => self.judge(codec, how, present, bytes, pages_to_come),
            None => Ok(None),
        }
    }
}

/// Whether the sample with this index judges a dictionary instead of training it.
pub fn is_judge(index: usize) -> bool {
    index % JUDGES == JUDGES - 1
}

/// The blocks to sample for the first dictionary of a relation of so many pages, from anywhere: what its first pages have in common may
/// be found in no other one, as in a log that was loaded source by source. None of a relation too small for a dictionary.
pub fn first_blocks(pages: u64) -> impl Iterator<Item = u64> {
    later_blocks(if pages < SAMPLES_MAX as u64 { 0 } else { pages })
}

/// The blocks to sample for another dictionary: from anywhere.
pub fn later_blocks(pages: u64) -> impl Iterator<Item = u64> {
    let samples = (SAMPLES_MAX as u64).min(pages);
    (0..samples).map(move |index| index * pages / samples)
}

fn allocated(payload_len: usize) -> u64 {
    (HEADER_BYTES + payload_len).next_multiple_of(UNIT_BYTES) as u64
}
