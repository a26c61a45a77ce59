//! Making a dictionary from samples, and finding out whether it is worth having.
//!
//! A trained dictionary can lose to a smaller one, to plain documents laid end to end, or to none at all; which one
//! wins depends on the documents and nothing but measuring tells. So every candidate encodes documents that it was
//! not made of, and the sum of real datum bytes, headers included, decides:
//!
//! | kind | what it is | when it wins |
//! |---|---|---|
//! | none | | documents that are long, or have nothing in common |
//! | trained | zstd's trainer, at several sizes | almost always |
//! | documents | whole samples | few or near-identical ones, and LZ4, which cannot use entropy tables |
//! | words | the most frequent strings of the original's `zson_learn` | short ones with a small vocabulary |
//!
//! Within 1 % of the best, and 2 bytes a document, the smaller dictionary wins: it costs every session memory and time to load. The same
//! samples in the same order give the same dictionary. Documents of equal bytes are either all trained on or all
//! held out, so that repetition does not pass for foresight.
//!
//! ```
//! use pgshrink_codec::Algorithm;
//! use pgshrink_zson::training::{Options, train};
//! let documents: Vec<String> = (0..2000).map(|id| format!("{{\"identifier\":{id},\"colour\":\"red\"}}")).collect();
//! let report = train(&documents, &Options::new(Algorithm::Zstd.into()), &mut |_| std::ops::ControlFlow::Continue(()))?;
//! assert!(report.winner.is_some() && report.winner_bytes() < report.none_bytes());
//! # Ok::<(), pgshrink_zson::Error>(())
//! ```

mod candidates;
mod split;

use std::ops::ControlFlow;

use pgshrink_codec::{Choice, Dictionary};

use crate::dictionary::{DictionaryId, WritingDictionary};
use crate::encoder::Encoder;
use crate::error::Error;

pub(crate) use split::Split;

/// Dictionary sizes in bytes that are tried unless others are asked for.
pub const SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 112 << 10];

/// What to train for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The algorithm and level that will write with the dictionary. With none no dictionary is tried.
    pub choice: Choice,
    /// Sizes to try in bytes. One that the samples cannot fill meaningfully is left out.
    pub sizes: Vec<usize>,
    /// Frequent strings of the samples, the most frequent first; may be empty.
    pub words: Vec<Vec<u8>>,
    /// The dictionary in use, to be measured on the same documents.
    pub incumbent: Option<Dictionary>,
}

/// Where a dictionary came from.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// No dictionary.
    None,
    /// zstd's trainer.
    Trained,
    /// Whole samples, end to end.
    Documents,
    /// [`Options::words`], the most frequent last, where references to them are shortest.
    Words,
}

/// A dictionary that was measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Where it came from.
    pub kind: Kind,
    /// Its bytes.
    pub size: usize,
    /// Bytes of all held-out documents as datums.
    pub holdout_bytes: u64,
}

/// What training found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The dictionary to use; none is a legal outcome.
    pub winner: Option<Dictionary>,
    /// Where it is in `candidates`.
    pub winner_index: usize,
    /// Everything measured, "none" first.
    pub candidates: Vec<Candidate>,
    /// Documents that candidates were made of.
    pub training_documents: usize,
    /// Documents they were measured on.
    pub holdout_documents: usize,
    /// Bytes of those, as jsonb.
    pub holdout_raw_bytes: u64,
    /// Bytes of those as datums with the incumbent, if there is one.
    pub incumbent_bytes: Option<u64>,
}

/// How far training is. Between two reports lie at most 128 KiB of documents or one longer document's piece, which
/// take up to a second, or one run of zstd's trainer, which takes up to a few seconds and cannot be interrupted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What is being made or measured.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: usize,
    /// Candidates done.
    pub done: usize,
    /// Candidates there are, at most.
    pub total: usize,
}

/// Called now and then with the progress; [`ControlFlow::Break`] ends the work with [`Error::Interrupted`].
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Makes dictionaries of a part of `samples` (jsonb) and measures them on the rest.
pub fn train<S: AsRef<[u8]>>(
    samples: &[S],
    options: &Options,
    progress: &mut OnProgress<'_>,
) -> Result<Report, Error> {
    train_on(&Split::of(samples)?, options, progress)
}

/// The same for samples that have been divided already.
pub(crate) fn train_on(
    split: &Split<'_>,
    options: &Options,
    progress: &mut OnProgress<'_>,
) -> Result<Report, Error> {
    let plans = candidates::plan(split, options);
    let mut encoder = Encoder::new();
    let (mut found, mut dictionaries) = (Vec::new(), Vec::new());
    for (done, plan) in plans.iter().enumerate() {
        let mut report = || {
            let now = Progress { kind: plan.kind, size: plan.size, done, total: plans.len() };
            if progress(now).is_break() { Err(Error::Interrupted) } else { Ok(()) }
        };
        report()?;
        let dictionary = candidates::make(plan, split, options)?;
        if plan.kind != Kind::None && dictionary.is_none() {
            continue;
        }
        let size = dictionary.as_ref().map_or(0, |dictionary| dictionary.bytes().len());
        let holdout_bytes =
            datum_bytes(&mut encoder, options.choice, dictionary.as_ref(), split, &mut report)?;
        found.push(Candidate { kind: plan.kind, size, holdout_bytes });
        dictionaries.push(dictionary);
    }
    let mut report = || {
        let now = Progress { kind: Kind::None, size: 0, done: plans.len(), total: plans.len() };
        if progress(now).is_break() { Err(Error::Interrupted) } else { Ok(()) }
    };
    let incumbent_bytes = match &options.incumbent {
        Some(known) => Some(datum_bytes(&mut encoder, options.choice, Some(known), split, &mut report)?),
        None => None,
    };
    let winner_index = winner(&found, split.holdout.len());
    Ok(Report {
        winner: dictionaries.swap_remove(winner_index),
        winner_index,
        candidates: found,
        training_documents: split.training.len(),
        holdout_documents: split.holdout.len(),
        holdout_raw_bytes: split.holdout_bytes(),
        incumbent_bytes,
    })
}

impl Options {
    /// The usual sizes, no words, no incumbent.
    pub fn new(choice: Choice) -> Self {
        Options { choice, sizes: SIZES.to_vec(), words: Vec::new(), incumbent: None }
    }
}

impl Report {
    /// Bytes of the held-out documents as datums with the winner.
    pub fn winner_bytes(&self) -> u64 {
        self.candidates[self.winner_index].holdout_bytes
    }

    /// Bytes of the held-out documents as datums without any dictionary.
    pub fn none_bytes(&self) -> u64 {
        self.candidates[0].holdout_bytes
    }
}

impl Kind {
    /// The name that messages use.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::None => "none",
            Kind::Trained => "trained",
            Kind::Documents => "documents",
            Kind::Words => "words",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Gains below one part in so many do not pay for a larger dictionary.
const TIE: u64 = 100;
/// And no more than so many bytes a document: one per cent of a long one is a lot.
const TIE_BYTES_OF_DOCUMENT: u64 = 2;
/// Bytes of documents between two reports of progress.
const BYTES_PER_REPORT: usize = 128 << 10;
/// What datums call a dictionary while it is measured; ids below 128 take one byte.
pub(crate) const MEASURED_ID: DictionaryId = match DictionaryId::new(1) {
    Some(id) => id,
    None => unreachable!(),
};

/// The smallest dictionary among those that come near the best on so many documents.
fn winner(candidates: &[Candidate], documents: usize) -> usize {
    let best = candidates.iter().map(|candidate| candidate.holdout_bytes).min().unwrap_or(0);
    let tie = (best / TIE).min(TIE_BYTES_OF_DOCUMENT * documents as u64);
    let near = |candidate: &Candidate| candidate.holdout_bytes <= best + tie;
    let ranked = candidates.iter().enumerate().filter(|(_, candidate)| near(candidate));
    ranked
        .min_by_key(|(_, candidate)| (candidate.size, candidate.holdout_bytes))
        .map_or(0, |(index, _)| index)
}

/// Bytes of all held-out documents as datums.
fn datum_bytes(
    encoder: &mut Encoder,
    choice: Choice,
    dictionary: Option<&Dictionary>,
    split: &Split<'_>,
    report: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<u64, Error> {
    let writing = match dictionary {
        Some(dictionary) => Some(WritingDictionary::new(MEASURED_ID, dictionary, choice)?),
        None => None,
    };
    let (mut datum, mut total) = (Vec::new(), 0);
    let mut unreported = BYTES_PER_REPORT;
    for document in &split.holdout {
        if unreported >= BYTES_PER_REPORT {
            report()?;
            unreported = 0;
        }
        unreported += document.len();
        datum.clear();
        let mut proceed =
            || if report().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        encoder.encode_while(choice, writing.as_ref(), document, &mut datum, &mut proceed)?;
        total += datum.len() as u64;
    }
    Ok(total)
}
