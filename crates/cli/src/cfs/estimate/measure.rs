//! Encoding and decoding a relation's pages, with a clock.

use super::relations::Relation;
use crate::cfs::Failure;
use crate::cfs::output::Progress;
use pgshrink_cfs::estimate::{Allocation, BATCH_PAGES, DICTIONARY_BYTES, Estimate, Method};
use pgshrink_cfs::page::{self, PAGE_SIZE, PageCodec, PageDictionary, Policy};
use std::collections::BTreeMap;
use std::time::Instant;

/// Pages that a relation's dictionary is trained from.
pub(in crate::cfs) const TRAINING_PAGES: u64 = 100;
/// What a record takes in a container (`formats/cfs.md`).
const RECORD: Allocation = Allocation { header_bytes: 16, granule_bytes: 16 };
/// Bytes at the head of a container.
const HEAD_BYTES: u64 = 12 << 10;
/// Bytes at most of a page's entry in the map.
const ENTRY_BYTES: u64 = 8;
/// Pages of a container: 1 GB.
const SEGMENT_PAGES: u64 = 1 << 17;
/// Pages at most of relations that stay plain files.
const PLAIN_PAGES_MAX: u64 = pgshrink_cfs::segment::PLAIN_PAGES_MAX as u64;

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
    pub dictionary_bytes: u64,
    pub by_policy: Vec<OnePolicy>,
}

/// Of one algorithm.
#[derive(Clone)]
pub(super) struct OnePolicy {
    /// Of the records alone.
    pub records: Estimate,
    pub with_dictionary: bool,
}

impl OnePolicy {
    /// What containers of the whole relation take, from what its measured pages took.
    pub(super) fn container_bytes(&self, pages: u64, measured: u64, dictionary_bytes: u64) -> u64 {
        if pages <= PLAIN_PAGES_MAX || measured == 0 {
            return pages * PAGE_SIZE as u64;
        }
        let records =
            (u128::from(self.records.allocated_bytes) * u128::from(pages) / u128::from(measured)) as u64;
        let dictionary = if self.with_dictionary { dictionary_bytes + RECORD.header_bytes as u64 } else { 0 };
        records + pages * ENTRY_BYTES + pages.div_ceil(SEGMENT_PAGES) * (HEAD_BYTES + dictionary)
    }
}

/// Measures a sample of the relation's pages under every policy.
pub(super) fn relation(relation: &Relation, plan: &Plan, progress: &Progress) -> Result<Measured, Failure> {
    let dictionary = if plan.dictionary { trained(relation, plan)? } else { None };
    let (pages, sampled) = (relation.pages(), plan.sampled(relation.pages()));
    let size_max = if dictionary.is_some() { DICTIONARY_BYTES } else { 0 };
    let one = |policy: &Policy| OnePolicy {
        records: Estimate::new(Method { policy: *policy, dictionary_size_max: size_max }),
        with_dictionary: dictionary.is_some() && PageDictionary::usable_with(policy.choice),
    };
    let mut by_policy: Vec<_> = plan.policies.iter().map(one).collect();
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let mut codec = PageCodec::new();
    let start = Instant::now();
    let mut batch: Batch = Vec::new();
    let mut flush = |batch: &mut Batch| {
        let pages: Vec<_> = batch.iter().map(|(block, page)| (*block, page)).collect();
        for one in &mut by_policy {
            let measured =
                one.records.add(&mut codec, &pages, dictionary.as_ref(), RECORD, &mut || start.elapsed());
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
    let dictionary_bytes = dictionary.map_or(0, |dictionary| dictionary.bytes().len() as u64);
    Ok(Measured { pages: sampled, kind, dictionary_bytes, by_policy })
}

/// Pages with their blocks.
type Batch = Vec<(u32, [u8; PAGE_SIZE])>;

fn trained(relation: &Relation, plan: &Plan) -> Result<Option<PageDictionary>, Failure> {
    let mut pages = Vec::new();
    relation.read(0..relation.pages().min(TRAINING_PAGES), |_, page| {
        pages.push(*page);
        Ok(())
    })?;
    let choices: Vec<_> = plan.policies.iter().map(|policy| policy.choice).collect();
    let Some(bytes) = PageDictionary::train(&pages, DICTIONARY_BYTES) else { return Ok(None) };
    // Small relations would carry more dictionary than they gain.
    if relation.pages() < TRAINING_PAGES {
        return Ok(None);
    }
    PageDictionary::new(bytes, &choices).map(Some).map_err(|error| Failure::new(&relation.path, error))
}
