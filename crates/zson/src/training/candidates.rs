//! Making the dictionaries that training compares.

use std::collections::HashSet;

use pgshrink_codec::limits::{DICTIONARY_BYTES_MAX, LZ4_HISTORY_BYTES};
use pgshrink_codec::{self as codec, Algorithm, Dictionary};

use super::split::evenly;
use super::{Kind, Options, Split};
use crate::error::Error;
use crate::limits::{SAMPLE_BYTES_PER_DICTIONARY_BYTE_MAX, SAMPLE_BYTES_PER_DICTIONARY_BYTE_MIN};
use crate::memory;

/// A dictionary to be made.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    /// Bytes at most.
    pub(super) size: usize,
}

/// What to try, "none" first.
pub(super) fn plan(split: &Split<'_>, options: &Options) -> Vec<Plan> {
    let mut plans = vec![Plan { kind: Kind::None, size: 0 }];
    if !matches!(options.choice.algorithm, Algorithm::Zstd | Algorithm::Lz4) {
        return plans;
    }
    let useful =
        if options.choice.algorithm == Algorithm::Lz4 { LZ4_HISTORY_BYTES } else { DICTIONARY_BYTES_MAX };
    let mut sizes: Vec<usize> =
        options.sizes.iter().map(|size| (*size).min(useful)).filter(|size| *size >= SIZE_MIN).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let samples = split.training_bytes();
    let words: usize = options.words.iter().map(Vec::len).sum();
    for (index, size) in sizes.iter().copied().enumerate() {
        let mut add = |kind| plans.push(Plan { kind, size });
        if samples / SAMPLE_BYTES_PER_DICTIONARY_BYTE_MIN >= size {
            add(Kind::Trained);
        }
        // The first size that holds everything there is shall be the last.
        let smaller = if index == 0 { 0 } else { sizes[index - 1] };
        if samples > smaller {
            add(Kind::Documents);
        }
        if words > smaller {
            add(Kind::Words);
        }
    }
    plans
}

/// Makes it; none if the samples do not suffice.
pub(super) fn make(plan: &Plan, split: &Split<'_>, options: &Options) -> Result<Option<Dictionary>, Error> {
    let bytes = match plan.kind {
        Kind::None | Kind::Shapes => return Ok(None),
        Kind::Trained => {
            let enough = plan.size.saturating_mul(SAMPLE_BYTES_PER_DICTIONARY_BYTE_MAX);
            return found(Dictionary::train(&evenly(&split.training, enough)?, plan.size));
        }
        Kind::Documents => documents(&split.training, plan.size)?,
        Kind::Words => words(&options.words, plan.size)?,
    };
    found(Dictionary::new(bytes))
}

/// None where these samples make no dictionary; for want of memory there might be one.
fn found(made: Result<Dictionary, codec::Error>) -> Result<Option<Dictionary>, Error> {
    match made {
        Ok(dictionary) => Ok(Some(dictionary)),
        Err(error @ codec::Error::Memory { .. }) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Distinct documents from the whole length of the samples, as many as fit.
fn documents(training: &[&[u8]], size: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let mut seen = HashSet::new();
    for document in evenly(training, size)? {
        seen.try_reserve(1).map_err(|_| memory::lacking::<&[u8]>(seen.len() + 1))?;
        if bytes.len() + document.len() <= size && seen.insert(document) {
            memory::append(&mut bytes, document)?;
        }
    }
    Ok(bytes)
}

/// The most frequent words that fit, the most frequent at the end.
fn words(words: &[Vec<u8>], size: usize) -> Result<Vec<u8>, Error> {
    let mut room = size;
    let fitting = words
        .iter()
        .take_while(|word| match room.checked_sub(word.len()) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        })
        .count();
    let mut bytes = Vec::new();
    for word in words[..fitting].iter().rev() {
        memory::append(&mut bytes, word)?;
    }
    Ok(bytes)
}

/// zstd's trainer makes none below (`ZDICT_DICTSIZE_MIN` of zdict.h).
const SIZE_MIN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_words_come_last() {
        let list = [b"aaa".to_vec(), b"bb".to_vec(), b"cccc".to_vec()];
        assert_eq!(words(&list, 100).unwrap(), b"ccccbbaaa");
        assert_eq!(words(&list, 6).unwrap(), b"bbaaa");
        assert!(words(&list, 2).unwrap().is_empty());
    }

    #[test]
    fn only_sizes_that_the_samples_can_fill_are_tried() {
        let samples: Vec<Vec<u8>> = (0..100u8).map(|i| vec![i; 200]).collect();
        let split = Split::of(&samples).unwrap();
        let sizes = |algorithm: Algorithm, kind| -> Vec<usize> {
            let plans = plan(&split, &Options::new(algorithm.into()));
            plans.iter().filter(|plan| plan.kind == kind).map(|plan| plan.size).collect()
        };
        assert_eq!(sizes(Algorithm::Zstd, Kind::Trained), []);
        assert_eq!(sizes(Algorithm::Zstd, Kind::Documents), [4 << 10, 16 << 10]);
        assert_eq!(sizes(Algorithm::Zstd, Kind::None), [0]);
        assert_eq!(plan(&split, &Options::new(Algorithm::None.into())).len(), 1);
    }
}
