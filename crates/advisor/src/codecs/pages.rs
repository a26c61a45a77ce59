//! What pages of a relation take in containers of cfs.
//!
//! A sample is encoded by the codec that the server would use, and the records are counted as containers do. Three things keep a
//! sample from lying about the whole:
//!
//! * A dictionary serves the pages that it was trained on better than others. So what it gains is measured on the others, and
//!   applied to all; only as many pages as the server trains on are taken for trained ones.
//! * A second algorithm is measured on few pages, beside the first one on the same pages: their ratio varies less between pages
//!   than their sizes do.
//! * A relation of which every page is there is measured as packing does it, without any of this.

use pgshrink_cfs::PAGES_MAX;
use pgshrink_cfs::dictionary_policy::{DictionaryPolicy, SAMPLES_MAX, Thresholds, first_blocks, is_judge};
use pgshrink_cfs::estimate::{Allocation, Estimate, Method, extrapolated, packed_bytes};
use pgshrink_cfs::page::{PAGE_SIZE, PageCodec, PageDictionary, Policy};

use super::Clock;
use crate::heap_page::PageBytes;
use crate::snapshot::sample::Page;

/// Pages of a relation.
#[derive(Clone, Debug)]
pub struct PageSet<'p> {
    /// With their numbers, ascending.
    pages: Vec<(u32, &'p PageBytes)>,
    /// Pages that the relation has.
    total: u64,
}

impl<'p> PageSet<'p> {
    /// Of a snapshot; images that are no pages are left out. At most `pages_max` of them, evenly over what is there. `total`
    /// is what the relation has.
    pub fn of(pages: &'p [Page], total: u64, pages_max: usize) -> PageSet<'p> {
        let whole = |page: &'p Page| Some((page.block, page.image.as_slice().try_into().ok()?));
        let pages: Vec<_> = pages.iter().filter_map(whole).collect();
        PageSet { pages: evenly(&pages, pages_max), total: total.max(1) }
    }

    /// Of pages that were made, the first one with number 0.
    pub fn made(pages: &'p [Box<PageBytes>], total: u64, pages_max: usize) -> PageSet<'p> {
        let pages: Vec<_> = (0..).zip(pages.iter().map(|page| &**page)).collect();
        PageSet { pages: evenly(&pages, pages_max), total: total.max(1) }
    }

    /// With further pages.
    pub fn with(mut self, more: &'p [Page]) -> PageSet<'p> {
        self.pages.extend(PageSet::of(more, self.total, more.len()).pages);
        self.pages.sort_by_key(|(block, _)| *block);
        self.pages.dedup_by_key(|(block, _)| *block);
        self
    }

    /// At most so many of them, evenly.
    pub fn at_most(&self, pages_max: usize) -> PageSet<'p> {
        PageSet { pages: evenly(&self.pages, pages_max), total: self.total }
    }

    /// How many are here.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// None is here.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Pages that the relation has.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The pages with their numbers.
    pub fn pages(&self) -> &[(u32, &'p PageBytes)] {
        &self.pages
    }

    fn is_whole(&self) -> bool {
        self.pages.len() as u64 >= self.total
    }
}

/// At most so many, evenly over all of them, in their order.
pub(super) fn evenly<T: Clone>(all: &[T], count_max: usize) -> Vec<T> {
    if all.len() <= count_max {
        return all.to_vec();
    }
    (0..count_max).map(|index| all[index * all.len() / count_max].clone()).collect()
}

/// A relation's pages, with what a dictionary of theirs was trained on.
pub struct Trained<'s, 'p> {
    set: &'s PageSet<'p>,
    policy: DictionaryPolicy,
    /// None: too few pages, or too unlike.
    bytes: Option<Vec<u8>>,
    /// Indexes in the set, ascending, of pages that trained.
    trained_on: Vec<usize>,
}

/// What records and dictionary of a whole relation take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Records {
    /// Of all pages.
    bytes: u64,
    /// 0 for none.
    dictionary_bytes: u64,
}

impl<'s, 'p> Trained<'s, 'p> {
    /// Trains as the server does, if the pages on which it trains are there, else on as many others, evenly.
    pub fn of(set: &'s PageSet<'p>) -> Trained<'s, 'p> {
        let mut policy = DictionaryPolicy::new(Thresholds::default());
        let mut samples: Vec<usize> = Vec::new();
        let at = |block: u64| set.pages.binary_search_by_key(&block, |(block, _)| u64::from(*block)).ok();
        samples.extend(first_blocks(set.total).filter_map(at));
        if samples.len() * 8 < SAMPLES_MAX * 7 && set.total >= SAMPLES_MAX as u64 {
            let indexes: Vec<usize> = (0..set.len()).collect();
            samples = evenly(&indexes, SAMPLES_MAX);
        }
        for index in &samples {
            let (block, page) = set.pages[*index];
            policy.note(block, page, PAGE_SIZE);
        }
        let training = samples.iter().enumerate().filter(|(rank, _)| !is_judge(*rank));
        let mut trained_on: Vec<usize> = training.map(|(_, index)| *index).collect();
        trained_on.sort_unstable();
        let bytes = policy.train();
        Trained { set, policy, bytes, trained_on }
    }

    /// The dictionary, if it pays for pages that are written so.
    pub fn dictionary(&self, codec: &mut PageCodec, how: &Policy) -> Option<PageDictionary> {
        let pages = u32::try_from(self.set.total.min(u64::from(PAGES_MAX))).unwrap_or(u32::MAX);
        self.policy.judge(codec, how, None, self.bytes.clone()?, pages).ok().flatten()
    }

    /// All pages, by this policy. None: the codec failed.
    pub fn records(&self, codec: &mut PageCodec, how: &Policy) -> Option<(Records, Option<PageDictionary>)> {
        let dictionary = self.dictionary(codec, how);
        let mut sizes = |dictionary| sizes(codec, how, dictionary, &self.set.pages);
        let Some(dictionary) = dictionary else {
            let bytes = extrapolated(sizes(None)?.iter().sum(), self.set.len() as u64, self.set.total);
            return Some((Records { bytes, dictionary_bytes: 0 }, None));
        };
        let dictionary_bytes = dictionary.bytes().len() as u64;
        let bytes = match self.set.is_whole() {
            true => sizes(Some(&dictionary))?.iter().sum(),
            false => self.extrapolated(&sizes(None)?, &sizes(Some(&dictionary))?),
        };
        Some((Records { bytes, dictionary_bytes }, Some(dictionary)))
    }

    /// Bytes of the whole relation, from those of sampled pages without and with a dictionary.
    fn extrapolated(&self, plain: &[u64], with: &[u64]) -> u64 {
        let total = self.set.total;
        let is_trained = |index: &usize| self.trained_on.binary_search(index).is_ok();
        let sum = |sizes: &[u64], trained: bool| -> u64 {
            (0..sizes.len()).filter(|index| is_trained(index) == trained).map(|index| sizes[index]).sum()
        };
        // In a relation of many pages, few are trained on.
        let trained = (SAMPLES_MAX - SAMPLES_MAX / 4) as u64;
        let on_trained = extrapolated(sum(with, true), self.trained_on.len() as u64, trained.min(total));
        let (plain_others, with_others) = (sum(plain, false), sum(with, false));
        let all = extrapolated(plain.iter().sum(), plain.len() as u64, total - trained.min(total));
        let others = u128::from(all) * u128::from(with_others) / u128::from(plain_others.max(1));
        on_trained + others as u64
    }

    /// At most so many pages on which methods are compared: none that a dictionary was trained on, if there are others.
    pub fn compared(&self, pages_max: usize) -> PageSet<'p> {
        let is_trained = |index: &usize| self.trained_on.binary_search(index).is_ok();
        let others: Vec<_> = (0..self.set.len())
            .filter(|index| !is_trained(index))
            .map(|index| self.set.pages[index])
            .collect();
        let from = if self.set.is_whole() || others.is_empty() { &self.set.pages } else { &others };
        PageSet { pages: evenly(from, pages_max), total: self.set.total }
    }
}

impl Records {
    /// With all that the container has besides them, in a server that has packed it because nobody writes to it.
    pub fn container_bytes(self, pages: u64) -> u64 {
        packed_bytes(pages, self.bytes, self.dictionary_bytes)
    }

    /// Those of pages that take `other` where these take `this`.
    pub fn scaled(self, this: u64, other: u64) -> Records {
        let bytes = u128::from(self.bytes) * u128::from(other) / u128::from(this.max(1));
        Records { bytes: bytes as u64, ..self }
    }

    /// With another dictionary.
    pub fn with_dictionary(self, dictionary_bytes: u64) -> Records {
        Records { dictionary_bytes, ..self }
    }
}

/// Bytes of the record of each page.
fn sizes(
    codec: &mut PageCodec,
    how: &Policy,
    dictionary: Option<&PageDictionary>,
    pages: &[(u32, &PageBytes)],
) -> Option<Vec<u64>> {
    let mut estimate = Estimate::new(Method { policy: *how, dictionary_size_max: 0 });
    let mut before = 0;
    let one = |page: &(u32, &PageBytes)| {
        estimate.add_sizes(codec, std::slice::from_ref(page), dictionary, Allocation::RECORD).ok()?;
        let size = estimate.allocated_bytes - before;
        before = estimate.allocated_bytes;
        Some(size)
    };
    pages.iter().map(one).collect()
}

/// Bytes of the records of these pages by the default policy. None: the codec failed.
pub(super) fn compared_bytes(set: &PageSet<'_>, dictionary: Option<&PageDictionary>) -> Option<u64> {
    Some(sizes(&mut PageCodec::new(), &Policy::default(), dictionary, &set.pages)?.iter().sum())
}

/// What some pages take by a policy, and how fast.
pub(super) struct Compared {
    pub bytes: u64,
    pub compress_mb_s: Option<f64>,
    pub decompress_mb_s: Option<f64>,
}

/// Encodes pages by a policy; with a clock decodes them as well.
pub(super) fn compare(
    codec: &mut PageCodec,
    how: &Policy,
    dictionary: Option<&PageDictionary>,
    set: &PageSet<'_>,
    clock: Clock<'_>,
) -> Option<Compared> {
    let mut estimate = Estimate::new(Method { policy: *how, dictionary_size_max: 0 });
    let Some(clock) = clock else {
        estimate.add_sizes(codec, &set.pages, dictionary, Allocation::RECORD).ok()?;
        return Some(Compared {
            bytes: estimate.allocated_bytes,
            compress_mb_s: None,
            decompress_mb_s: None,
        });
    };
    estimate.add(codec, &set.pages, dictionary, Allocation::RECORD, &mut || clock()).ok()?;
    let speed = |seconds: f64| {
        let megabytes = (set.len() * PAGE_SIZE) as f64 / 1e6;
        (seconds > 0.0).then(|| megabytes / seconds)
    };
    Some(Compared {
        bytes: estimate.allocated_bytes,
        compress_mb_s: speed(estimate.encode.as_secs_f64()),
        decompress_mb_s: speed(estimate.decode.as_secs_f64()),
    })
}
