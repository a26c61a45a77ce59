//! Encoding and decoding a relation's pages, with a clock.

use super::relations::Relation;
use crate::cfs::Failure;
use crate::cfs::dictionary::{self, Sample};
use crate::cfs::output::Progress;
use pgshrink_cfs::dictionary_policy::first_blocks;
use pgshrink_cfs::estimate::{Allocation, BATCH_PAGES, Estimate, Method, container_bytes, extrapolated};
use pgshrink_cfs::page::{self, PAGE_SIZE, PageCodec, PageDictionary, Policy};
use std::collections::BTreeMap;
use std::time::Instant;

/// Pages of a container: 1 GB.
const SEGMENT_PAGES: u64 = pgshrink_cfs::PAGES_MAX as u64;

/// What to do with each relation.
pub(super) struct Plan {
    pub policies: Vec<Policy>,
    /// Pages at most of a relation that are measured.
    pub sample_max: u64,
    pub dictionary: bool,
}

impl Plan {
    pub(super) fn sampled(&self, pages: u64) -> u64 {
        pages.min(self.sample_max)
    }
}

/// A relation's measurements.
pub(super) struct Measured {
    pub pages: u64,
    pub kind: String,
    pub by_policy: Vec<OnePolicy>,
}

/// Of one algorithm.
#[derive(Clone)]
pub(super) struct OnePolicy {
    /// Of the records alone.
    pub records: Estimate,
    /// Of the dictionary, 0 for none.
    pub dictionary_bytes: u64,
}

impl OnePolicy {
    /// What containers of the whole relation take, from what its measured pages took.
    pub(super) fn container_bytes(&self, pages: u64, measured: u64) -> u64 {
        if measured == 0 {
            return pages * PAGE_SIZE as u64;
        }
        let records = extrapolated(self.records.allocated_bytes, measured, pages);
        container_bytes(pages, records, self.dictionary_bytes)
    }
}

/// Measures a sample of the relation's pages under every policy.
pub(super) fn relation(relation: &Relation, plan: &Plan, progress: &Progress) -> Result<Measured, Failure> {
    let dictionaries = trained(relation, plan)?;
    let (pages, sampled) = (relation.pages(), plan.sampled(relation.pages()));
    let one = |(policy, dictionary): (&Policy, &Option<PageDictionary>)| {
        let bytes = dictionary.as_ref().map_or(0, |dictionary| dictionary.bytes().len());
        OnePolicy {
            records: Estimate::new(Method { policy: *policy, dictionary_size_max: bytes }),
            dictionary_bytes: bytes as u64,
        }
    };
    let mut by_policy: Vec<_> = plan.policies.iter().zip(&dictionaries).map(one).collect();
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let mut codec = PageCodec::new();
    let start = Instant::now();
    let mut batch: Batch = Vec::new();
    let mut flush = |batch: &mut Batch| {
        let pages: Vec<_> = batch.iter().map(|(block, page)| (*block, page)).collect();
        for (one, dictionary) in by_policy.iter_mut().zip(&dictionaries) {
            let dictionary = dictionary.as_ref();
            let measured =
                one.records.add(&mut codec, &pages, dictionary, Allocation::RECORD, &mut || start.elapsed());
            measured.map_err(|error| Failure::new(&relation.path, error))?;
        }
        progress.add((batch.len() * PAGE_SIZE) as u64);
        batch.clear();
        Ok(())
    };
    let blocks =
        (0..sampled).map(|index| (u128::from(index) * u128::from(pages) / u128::from(sampled)) as u64);
    relation.read(blocks, |block, page| {
        *kinds.entry(format!("{:?}", page::looks_like(page)).to_lowercase()).or_default() += 1;
        batch.push((block as u32, *page));
        if batch.len() == BATCH_PAGES { flush(&mut batch) } else { Ok(()) }
    })?;
    flush(&mut batch)?;
    let kind = kinds.into_iter().max_by_key(|(_, count)| *count).map(|(kind, _)| kind).unwrap_or_default();
    Ok(Measured { pages: sampled, kind, by_policy })
}

/// Pages with their blocks.
type Batch = Vec<(u32, [u8; PAGE_SIZE])>;

/// For each policy its dictionary, if one pays.
fn trained(relation: &Relation, plan: &Plan) -> Result<Vec<Option<PageDictionary>>, Failure> {
    let mut samples: Vec<Sample> = Vec::new();
    let blocks = first_blocks(if plan.dictionary { relation.pages() } else { 0 });
    for block in blocks {
        relation.read(block..block + 1, |block, page| {
            samples.push((block as u32, *page));
            Ok(())
        })?;
    }
    let in_segment = relation.pages().min(SEGMENT_PAGES) as u32;
    let first =
        |policy| dictionary::first(&samples, in_segment, policy, &relation.path).map(|(_, found)| found);
    plan.policies.iter().map(first).collect()
}
