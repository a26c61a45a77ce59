//! Which samples are trained on and which are held out.

use std::collections::HashSet;

use twox_hash::XxHash3_64;

use crate::error::Error;
use crate::limits::{HOLDOUT_BYTES_MAX, RAW_BYTES_MAX};
use crate::memory;

/// Samples, divided.
pub(crate) struct Split<'a> {
    /// What dictionaries may be made of.
    pub(crate) training: Vec<&'a [u8]>,
    /// What they are measured on, none of it trained on; at most [`HOLDOUT_BYTES_MAX`]. At least one document if
    /// there are two that differ.
    pub(crate) holdout: Vec<&'a [u8]>,
}

impl<'a> Split<'a> {
    /// Holds about one document in four out, by its content, so that its copies go with it: nothing is judged by
    /// what it was made of. Among few distinct documents every fourth of them is held out; of one alone, none.
    pub(crate) fn of<S: AsRef<[u8]>>(samples: &'a [S]) -> Result<Self, Error> {
        let usable = |sample: &&[u8]| !sample.is_empty() && sample.len() <= RAW_BYTES_MAX;
        let documents: Vec<&[u8]> = memory::collect(samples.iter().map(AsRef::as_ref).filter(usable))?;
        let hashes: Vec<u64> =
            memory::collect(documents.iter().map(|document| XxHash3_64::oneshot(document)))?;
        let mut seen: HashSet<&u64> = HashSet::new();
        seen.try_reserve(hashes.len()).map_err(|_| memory::lacking::<u64>(hashes.len()))?;
        seen.extend(&hashes);
        let distinct = seen.len();
        // In the order of their first copies.
        let mut ranks = Vec::new();
        if distinct < DISTINCT_MIN {
            let mut first = HashSet::new();
            first.try_reserve(distinct).map_err(|_| memory::lacking::<u64>(distinct))?;
            ranks = memory::collect(hashes.iter().copied().filter(|hash| first.insert(*hash)))?;
        }
        let chosen = (HOLDOUT_ONE_IN as usize / 2).min(distinct.saturating_sub(1));
        let held_out = |index: usize| match ranks.iter().position(|hash| *hash == hashes[index]) {
            Some(rank) => distinct > 1 && rank % HOLDOUT_ONE_IN as usize == chosen,
            None => hashes[index].is_multiple_of(HOLDOUT_ONE_IN),
        };
        let (mut training, mut holdout) = (Vec::new(), Vec::new());
        for (index, document) in documents.into_iter().enumerate() {
            memory::push(if held_out(index) { &mut holdout } else { &mut training }, document)?;
        }
        Ok(Split { training, holdout: evenly(&holdout, HOLDOUT_BYTES_MAX)? })
    }

    pub(crate) fn training_bytes(&self) -> usize {
        self.training.iter().map(|document| document.len()).fold(0, usize::saturating_add)
    }

    pub(crate) fn holdout_bytes(&self) -> u64 {
        self.holdout.iter().map(|document| document.len() as u64).sum()
    }
}

/// Documents of about `bytes_max` in all, from the whole length of `documents`, in their order; at least the first.
pub(super) fn evenly<'a>(documents: &[&'a [u8]], bytes_max: usize) -> Result<Vec<&'a [u8]>, Error> {
    let total = documents.iter().map(|document| document.len()).fold(0, usize::saturating_add);
    if total <= bytes_max {
        return memory::collect(documents.iter().copied());
    }
    let (mut seen, mut taken) = (0u128, 0u128);
    let mut chosen = Vec::new();
    for document in documents {
        seen += document.len() as u128;
        // Takes one whenever what is taken lags behind its share of what was seen.
        if taken * total as u128 <= (seen - document.len() as u128) * bytes_max as u128 {
            taken += document.len() as u128;
            memory::push(&mut chosen, *document)?;
        }
    }
    Ok(chosen)
}

/// One document in so many is held out.
const HOLDOUT_ONE_IN: u64 = 4;
/// Below so many distinct documents content does not decide: too few might be held out, or all.
const DISTINCT_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_document_stay_on_one_side() {
        let samples: Vec<Vec<u8>> = (0..4000u32).map(|i| (i % 500).to_le_bytes().to_vec()).collect();
        let split = Split::of(&samples).unwrap();
        let training: HashSet<_> = split.training.iter().collect();
        assert!(split.holdout.iter().all(|document| !training.contains(document)));
        assert!((800..1200).contains(&split.holdout.len()), "{} held out", split.holdout.len());
        assert_eq!(split.training.len() + split.holdout.len(), samples.len());
    }

    #[test]
    fn few_documents_are_divided_too() {
        for n in 2..DISTINCT_MIN {
            // Each of them several times.
            let samples: Vec<Vec<u8>> = (0..3 * n).map(|i| vec![(i % n) as u8; 10]).collect();
            let split = Split::of(&samples).unwrap();
            assert!(!split.holdout.is_empty() && !split.training.is_empty(), "{n}");
            assert!(split.holdout.iter().all(|document| !split.training.contains(document)), "{n}");
        }
        let copies = vec![vec![7u8; 10]; 100];
        let alike = Split::of(&copies).unwrap();
        assert!(alike.holdout.is_empty() && alike.training.len() == 100);
        assert!(Split::of::<Vec<u8>>(&[]).unwrap().holdout.is_empty());
    }

    #[test]
    fn a_share_is_taken_from_the_whole_length() {
        let samples: Vec<Vec<u8>> = (0..1000).map(|i| vec![(i / 100) as u8; 50 + i % 7]).collect();
        let documents: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        let chosen = evenly(&documents, 10_000).unwrap();
        let bytes: usize = chosen.iter().map(|document| document.len()).sum();
        assert!((9_900..10_200).contains(&bytes), "{bytes}");
        assert!((0..10).all(|part| chosen.iter().any(|document| document[0] == part)));
    }
}
