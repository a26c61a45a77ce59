//! Pages of real relations, encoded once.

use pgshrink_bench_report::Result;
use pgshrink_cfs::estimate::{DICTIONARY_BYTES, TRAINING_PAGES_MAX};
use pgshrink_cfs::page::{PAGE_SIZE, PageCodec, PageDictionary, Policy};
use pgshrink_testkit::Rng;

use crate::relations::Relations;

/// Pages of several relations, a run of each after the other, as the default mode encodes them.
pub struct Sample {
    /// Mode and payload, by block.
    pub payloads: Vec<(u8, Vec<u8>)>,
    /// Where each relation's run ends.
    ends: Vec<u32>,
}

impl Sample {
    /// `pages` of all relations, as many of each as its share in all their pages.
    pub fn of(relations: &Relations, pages: usize) -> Result<Sample> {
        let mut all = Vec::new();
        for relation in &relations.all {
            all.push(relation.pages()?);
        }
        let total: usize = all.iter().map(Vec::len).sum();
        let mut sample = Sample { payloads: Vec::new(), ends: Vec::new() };
        let policy = Policy::default();
        for relation in &all {
            let count = (relation.len() * pages / total).min(relation.len());
            let trained = PageDictionary::train(relation.iter().take(TRAINING_PAGES_MAX), DICTIONARY_BYTES);
            let dictionary = trained.map(|bytes| PageDictionary::new(bytes, &[policy.choice])).transpose()?;
            let mut codec = PageCodec::new();
            for (block, page) in (0..).zip(&relation[..count]) {
                let mut payload = Vec::new();
                let encoded = codec.encode(page, Some(block), &policy, dictionary.as_ref(), &mut payload)?;
                sample.payloads.push((encoded.mode.byte(), payload));
            }
            sample.ends.push(u32::try_from(sample.payloads.len())?);
        }
        Ok(sample)
    }

    /// Pages of the sample.
    pub fn pages(&self) -> u32 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Bytes of the pages themselves.
    pub fn plain_bytes(&self) -> u64 {
        u64::from(self.pages()) * PAGE_SIZE as u64
    }

    /// A page of the same relation as `block`: what an update may make of it, of another size.
    pub fn another(&self, block: u32, rng: &mut Rng) -> u32 {
        let run = self.ends.partition_point(|end| *end <= block);
        let start = run.checked_sub(1).map_or(0, |before| self.ends[before]);
        start + rng.below((self.ends[run] - start) as usize) as u32
    }

    /// Bytes of a page's payload.
    pub fn bytes(&self, at: u32) -> u64 {
        self.payloads[at as usize].1.len() as u64
    }
}
