//! Which samples are trained on and which are held out.

use std::collections::HashSet;

use twox_hash::XxHash3_64;

use crate::limits::{HOLDOUT_BYTES_MAX, RAW_BYTES_MAX};

/// Samples, divided.
pub(crate) struct Split<'a> {
    /// What dictionaries may be made of.
    pub(crate) training: Vec<&'a [u8]>,
    /// What they are measured on; at most [`HOLDOUT_BYTES_MAX`], but at least one document if there is any.
    pub(crate) holdout: Vec<&'a [u8]>,
}

impl<'a> Split<'a> {
    /// Holds about one document in four out, by its content, so that its copies go with it. Among few distinct
    /// documents repetition is all there is, and every fourth is held out.
    pub(crate) fn of<S: AsRef<[u8]>>(samples: &'a [S]) -> Self {
        let usable = |sample: &&[u8]| !sample.is_empty() && sample.len() <= RAW_BYTES_MAX;
        let documents: Vec<&[u8]> = samples.iter().map(AsRef::as_ref).filter(usable).collect();
        let hashes: Vec<u64> = documents.iter().map(|document| XxHash3_64::oneshot(document)).collect();
        let distinct = hashes.iter().collect::<HashSet<_>>().len();
        let held_out = |index: usize| match distinct {
            ..DISTINCT_MIN => index % HOLDOUT_ONE_IN as usize == HOLDOUT_ONE_IN as usize / 2,
            _ => hashes[index].is_multiple_of(HOLDOUT_ONE_IN),
        };
        let (mut training, mut holdout) = (Vec::new(), Vec::new());
        for (index, document) in documents.into_iter().enumerate() {
            if held_out(index) { holdout.push(document) } else { training.push(document) }
        }
        // One document alone, or two.
        if holdout.is_empty() {
            holdout.extend(training.last().copied());
        }
        Split { training, holdout: evenly(&holdout, HOLDOUT_BYTES_MAX) }
    }

    pub(crate) fn training_bytes(&self) -> usize {
        self.training.iter().map(|document| document.len()).fold(0, usize::saturating_add)
    }

    pub(crate) fn holdout_bytes(&self) -> u64 {
        self.holdout.iter().map(|document| document.len() as u64).sum()
    }
}

/// Documents of about `bytes_max` in all, from the whole length of `documents`, in their order; at least the first.
pub(super) fn evenly<'a>(documents: &[&'a [u8]], bytes_max: usize) -> Vec<&'a [u8]> {
    let total = documents.iter().map(|document| document.len()).fold(0, usize::saturating_add);
    if total <= bytes_max {
        return documents.to_vec();
    }
    let (mut seen, mut taken) = (0u128, 0u128);
    let mut chosen = Vec::new();
    for document in documents {
        seen += document.len() as u128;
        // Takes one whenever what is taken lags behind its share of what was seen.
        if taken * total as u128 <= (seen - document.len() as u128) * bytes_max as u128 {
            taken += document.len() as u128;
            chosen.push(*document);
        }
    }
    chosen
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
        let split = Split::of(&samples);
        let training: HashSet<_> = split.training.iter().collect();
        assert!(split.holdout.iter().all(|document| !training.contains(document)));
        assert!((800..1200).contains(&split.holdout.len()), "{} held out", split.holdout.len());
        assert_eq!(split.training.len() + split.holdout.len(), samples.len());
    }

    #[test]
    fn few_documents_are_divided_too() {
        for n in 1..DISTINCT_MIN {
            let samples: Vec<Vec<u8>> = (0..n).map(|i| vec![i as u8; 10]).collect();
            let split = Split::of(&samples);
            assert!(!split.holdout.is_empty() && !split.training.is_empty(), "{n}");
        }
        assert!(Split::of::<Vec<u8>>(&[]).holdout.is_empty());
    }

    #[test]
    fn a_share_is_taken_from_the_whole_length() {
        let samples: Vec<Vec<u8>> = (0..1000).map(|i| vec![(i / 100) as u8; 50 + i % 7]).collect();
        let documents: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        let chosen = evenly(&documents, 10_000);
        let bytes: usize = chosen.iter().map(|document| document.len()).sum();
        assert!((9_900..10_200).contains(&bytes), "{bytes}");
        assert!((0..10).all(|part| chosen.iter().any(|document| document[0] == part)));
    }
}
