//! Encoding and decoding a relation's pages, with a clock.

use super::relations::Relation;
use crate::cfs::Failure;
use crate::cfs::output::Progress;
use pgshrink_cfs::page::{self, PAGE_SIZE, PageCodec, PageDictionary, Policy};
use std::collections::BTreeMap;
use std::time::Instant;

/// Pages that a relation's dictionary is trained from.
pub(in crate::cfs) const TRAINING_PAGES: u64 = 100;
/// Bytes at most of a dictionary.
pub(in crate::cfs) const DICTIONARY_BYTES: usize = 16 << 10;
/// Bytes in front of a payload, and the unit in which records are placed (`formats/cfs.md`).
const RECORD_HEADER_BYTES: u64 = 16;
const GRAIN_BYTES: u64 = 16;
/// Bytes at the head of a container.
const HEAD_BYTES: u64 = 12 << 10;
/// Bytes at most of a page's entry in the map.
const ENTRY_BYTES: u64 = 8;
/// Pages of a container: 1 GB.
const SEGMENT_PAGES: u64 = 1 << 17;
/// Pages at most of relations that stay plain files.
const PLAIN_PAGES_MAX: u64 = pgshrink_cfs::segment::PLAIN_PAGES_MAX as u64;

/// Pages that are encoded before they are decoded: they fit into no near cache, as in a server.
const BATCH_PAGES: usize = 1024;

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
#[derive(Clone, Default)]
pub(super) struct OnePolicy {
    record_bytes: u64,
    pub compress_seconds: f64,
    pub decompress_seconds: f64,
    pub with_dictionary: bool,
}

impl OnePolicy {
    /// What containers of the whole relation take, from what its measured pages took.
    pub(super) fn container_bytes(&self, pages: u64, measured: u64, dictionary_bytes: u64) -> u64 {
        if pages <= PLAIN_PAGES_MAX || measured == 0 {
            return pages * PAGE_SIZE as u64;
        }
        let records = (u128::from(self.record_bytes) * u128::from(pages) / u128::from(measured)) as u64;
        let dictionary = if self.with_dictionary { dictionary_bytes + RECORD_HEADER_BYTES } else { 0 };
        records + pages * ENTRY_BYTES + pages.div_ceil(SEGMENT_PAGES) * (HEAD_BYTES + dictionary)
    }
}

/// Measures a sample of the relation's pages under every policy.
pub(super) fn relation(relation: &Relation, plan: &Plan, progress: &Progress) -> Result<Measured, Failure> {
    let dictionary = if plan.dictionary { trained(relation, plan)? } else { None };
    let (pages, sampled) = (relation.pages(), plan.sampled(relation.pages()));
    let mut by_policy = vec![OnePolicy::default(); plan.policies.len()];
    for (policy, one) in plan.policies.iter().zip(&mut by_policy) {
        one.with_dictionary = dictionary.is_some() && PageDictionary::usable_with(policy.choice);
    }
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let mut codec = PageCodec::new();
    let mut batch: Batch = Vec::new();
    let mut flush = |batch: &mut Batch| {
        for (policy, one) in plan.policies.iter().zip(&mut by_policy) {
            let measured = one.measure(&mut codec, batch, policy, dictionary.as_ref());
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

impl OnePolicy {
    fn measure(
        &mut self,
        codec: &mut PageCodec,
        batch: &Batch,
        policy: &Policy,
        dictionary: Option<&PageDictionary>,
    ) -> Result<(), page::Error> {
        let (mut payloads, mut stored) = (Vec::new(), Vec::with_capacity(batch.len()));
        let begun = Instant::now();
        for (block, page) in batch {
            let start = payloads.len();
            let encoded = codec.encode(page, Some(*block), policy, dictionary, &mut payloads)?;
            stored.push((encoded.mode.byte(), start..payloads.len()));
        }
        self.compress_seconds += begun.elapsed().as_secs_f64();
        let mut back = [0; PAGE_SIZE];
        for (check, decoding) in [(false, Instant::now()), (true, Instant::now())] {
            for ((block, page), (mode, payload)) in batch.iter().zip(&stored) {
                codec.decode(*mode, &payloads[payload.clone()], Some(*block), dictionary, &mut back)?;
                if check && back != *page {
                    return Err(page::Error::Corrupt { what: "another page than was encoded" });
                }
            }
            if !check {
                self.decompress_seconds += decoding.elapsed().as_secs_f64();
            }
        }
        let records = stored.iter().filter(|(_, payload)| !payload.is_empty());
        let sizes = records
            .map(|(_, payload)| (RECORD_HEADER_BYTES + payload.len() as u64).next_multiple_of(GRAIN_BYTES));
        self.record_bytes += sizes.sum::<u64>();
        Ok(())
    }
}

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
