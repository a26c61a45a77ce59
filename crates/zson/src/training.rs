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
//! | shapes | keys, columns and phrases, and one of the others for what they do not pay for | records, and short documents |
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
mod shaped;
mod split;

use std::ops::ControlFlow;

use pgshrink_codec::{Algorithm, Choice, Dictionary};

use crate::codec::Codec;
use crate::dictionary::{DictionaryId, WritingDictionary};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::memory;
use shaped::Making;

pub(crate) use split::Split;

/// Dictionary sizes in bytes that are tried unless others are asked for.
pub const SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 112 << 10];

/// What to train for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The algorithm and level that will write with the dictionary. With none no dictionary is tried.
    pub choice: Choice,
    /// Whether dictionaries of shapes are tried.
    pub shapes: Shapes,
    /// Sizes to try in bytes. One that the samples cannot fill meaningfully is left out.
    pub sizes: Vec<usize>,
    /// Frequent strings of the samples, the most frequent first; may be empty.
    pub words: Vec<Vec<u8>>,
    /// The dictionary in use and what writes with it, to be measured on the same documents.
    pub incumbent: Option<(Dictionary, Codec)>,
}

/// Whether dictionaries of shapes are tried.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum Shapes {
    /// No.
    #[default]
    Never,
    /// Yes, and one wins if it is smaller than all others.
    IfBest,
    /// They, and no others; one wins even if documents are smaller without.
    Only,
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
    /// Shapes, with one of the others.
    Shapes,
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
    /// What is to write with it.
    pub codec: Codec,
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
    let mut work = Work::new(split, options, progress);
    work.plain()?;
    if options.shapes != Shapes::Never && options.choice.algorithm == Algorithm::Zstd {
        work.shaped()?;
    }
    work.finish()
}

/// Training as far as it has come.
struct Work<'w, 'd> {
    split: &'w Split<'d>,
    options: &'w Options,
    progress: &'w mut OnProgress<'w>,
    plans: Vec<candidates::Plan>,
    /// Candidates that are done or were not possible, and how many there are in all.
    done: usize,
    total: usize,
    encoder: Encoder,
    found: Vec<Candidate>,
    dictionaries: Vec<Option<Dictionary>>,
}

impl<'w, 'd> Work<'w, 'd> {
    fn new(split: &'w Split<'d>, options: &'w Options, progress: &'w mut OnProgress<'w>) -> Self {
        let mut plans = candidates::plan(split, options);
        if options.shapes == Shapes::Only {
            plans.truncate(1);
        }
        let shaped = if options.shapes == Shapes::Never { 0 } else { 2 * shaped::SIZES.len() };
        let total = plans.len() + shaped;
        Work {
            split,
            options,
            progress,
            plans,
            done: 0,
            total,
            encoder: Encoder::new(),
            found: Vec::new(),
            dictionaries: Vec::new(),
        }
    }

    fn report(&mut self, kind: Kind, size: usize) -> Result<(), Error> {
        let now = Progress { kind, size, done: self.done, total: self.total };
        if (self.progress)(now).is_break() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Bytes of the held-out documents as datums.
    fn measure(
        &mut self,
        (kind, size): (Kind, usize),
        codec: Codec,
        dictionary: Option<&Dictionary>,
    ) -> Result<u64, Error> {
        let mut encoder = std::mem::take(&mut self.encoder);
        let split = self.split;
        let report = &mut || self.report(kind, size);
        let lens = datum_lens(&mut encoder, codec, dictionary, &split.holdout, report);
        self.encoder = encoder;
        Ok(lens?.into_iter().map(|len| len as u64).sum())
    }

    /// Makes and measures the dictionaries that an algorithm uses alone, "none" first.
    fn plain(&mut self) -> Result<(), Error> {
        for plan in self.plans.clone() {
            self.report(plan.kind, plan.size)?;
            let dictionary = candidates::make(&plan, self.split, self.options)?;
            if plan.kind == Kind::None || dictionary.is_some() {
                let size = dictionary.as_ref().map_or(0, |dictionary| dictionary.bytes().len());
                let codec = self.options.choice.into();
                let holdout_bytes = self.measure((plan.kind, plan.size), codec, dictionary.as_ref())?;
                memory::push(&mut self.found, Candidate { kind: plan.kind, size, holdout_bytes })?;
                memory::push(&mut self.dictionaries, dictionary)?;
            }
            self.done += 1;
        }
        Ok(())
    }

    /// Makes and measures dictionaries of shapes.
    fn shaped(&mut self) -> Result<(), Error> {
        let base = self.base()?;
        let codec = Codec { is_shapes: true, choice: self.options.choice };
        let (split, options) = (self.split, self.options);
        for with_long in [false, true] {
            let plain = (base.clone(), with_long);
            let making = Making::of(split, options, plain, &mut || self.report(Kind::Shapes, 0))?;
            for size in shaped::SIZES {
                let made = making.dictionary(size, &mut || self.report(Kind::Shapes, size))?;
                let holdout_bytes = self.measure((Kind::Shapes, size), codec, Some(&made))?;
                let size = made.bytes().len();
                memory::push(&mut self.found, Candidate { kind: Kind::Shapes, size, holdout_bytes })?;
                memory::push(&mut self.dictionaries, Some(made))?;
                self.done += 1;
            }
            if !making.lacks_long() {
                break;
            }
        }
        Ok(())
    }

    /// The dictionary for documents that shapes do not pay for: the best so far, or where nothing was measured the largest
    /// that the samples make.
    fn base(&mut self) -> Result<Option<Dictionary>, Error> {
        let best = winner(&self.found, self.split.holdout.len(), Shapes::Never);
        if let Some(Some(dictionary)) = self.dictionaries.get(best) {
            return Ok(Some(dictionary.clone()));
        }
        if self.options.shapes != Shapes::Only {
            return Ok(None);
        }
        let mut plans = candidates::plan(self.split, self.options);
        plans.sort_by_key(|plan| (plan.kind == Kind::Trained, plan.size));
        for plan in plans.iter().rev().filter(|plan| plan.kind != Kind::None) {
            self.report(Kind::Shapes, 0)?;
            if let Some(dictionary) = candidates::make(plan, self.split, self.options)? {
                return Ok(Some(dictionary));
            }
        }
        Ok(None)
    }

    fn finish(mut self) -> Result<Report, Error> {
        self.done = self.total;
        let incumbent_bytes = match &self.options.incumbent {
            Some((known, codec)) => Some(self.measure((Kind::None, 0), *codec, Some(known))?),
            None => None,
        };
        let winner_index = winner(&self.found, self.split.holdout.len(), self.options.shapes);
        let is_shapes = self.found[winner_index].kind == Kind::Shapes;
        Ok(Report {
            winner: self.dictionaries.swap_remove(winner_index),
            codec: Codec { is_shapes, choice: self.options.choice },
            winner_index,
            candidates: self.found,
            training_documents: self.split.training.len(),
            holdout_documents: self.split.holdout.len(),
            holdout_raw_bytes: self.split.holdout_bytes(),
            incumbent_bytes,
        })
    }
}

impl Options {
    /// What a profile is trained with of which nobody has said how it is to be written: zstd:3, and shapes if they are best.
    pub fn usual() -> Self {
        Options { shapes: Shapes::IfBest, ..Options::new(Algorithm::Zstd.into()) }
    }

    /// The usual sizes, no shapes, no words, no incumbent.
    pub fn new(choice: Choice) -> Self {
        Options { choice, shapes: Shapes::Never, sizes: SIZES.to_vec(), words: Vec::new(), incumbent: None }
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
            Kind::Shapes => "shapes",
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

/// The smallest dictionary among those that come near the best on so many documents. One of shapes, of which a field is
/// read alone, is chosen among its own kind if the best of them is smaller than all others: where none of the documents
/// is stored by its shape, it is as large as they are.
fn winner(candidates: &[Candidate], documents: usize, wanted: Shapes) -> usize {
    let least = |is_shapes: bool| {
        let of_kind = candidates.iter().filter(|candidate| (candidate.kind == Kind::Shapes) == is_shapes);
        of_kind.map(|candidate| candidate.holdout_bytes).min()
    };
    let (shaped, plain) = (least(true), least(false).unwrap_or(0));
    let is_shapes = shaped.is_some_and(|bytes| bytes < plain || wanted == Shapes::Only);
    let best = shaped.filter(|_| is_shapes).unwrap_or(plain);
    let tie = (best / TIE).min(TIE_BYTES_OF_DOCUMENT * documents as u64);
    let near = |candidate: &Candidate| {
        (candidate.kind == Kind::Shapes) == is_shapes && candidate.holdout_bytes <= best + tie
    };
    let ranked = candidates.iter().enumerate().filter(|(_, candidate)| near(candidate));
    ranked
        .min_by_key(|(_, candidate)| (candidate.size, candidate.holdout_bytes))
        .map_or(0, |(index, _)| index)
}

/// Bytes of each document as a datum.
fn datum_lens(
    encoder: &mut Encoder,
    codec: Codec,
    dictionary: Option<&Dictionary>,
    documents: &[&[u8]],
    report: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<Vec<usize>, Error> {
    let writing = match dictionary {
        Some(dictionary) => Some(WritingDictionary::new(MEASURED_ID, dictionary, codec)?),
        None => None,
    };
    let mut datum = Vec::new();
    lens(documents, report, |document, report| {
        datum.clear();
        let mut proceed = asked(report);
        encoder.encode_while(codec.choice, writing.as_ref(), document, &mut datum, &mut proceed)?;
        Ok(datum.len())
    })
}

/// What a compressor asks.
fn asked(report: &mut dyn FnMut() -> Result<(), Error>) -> impl FnMut() -> ControlFlow<()> {
    || if report().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// What `len` says of each document; `report` is called before the first, and every so many bytes.
fn lens<L>(
    documents: &[&[u8]],
    report: &mut dyn FnMut() -> Result<(), Error>,
    mut len: impl FnMut(&[u8], &mut dyn FnMut() -> Result<(), Error>) -> Result<L, Error>,
) -> Result<Vec<L>, Error> {
    let (mut lens, mut unreported) = (Vec::new(), BYTES_PER_REPORT);
    for document in documents {
        if unreported >= BYTES_PER_REPORT {
            report()?;
            unreported = 0;
        }
        unreported += document.len();
        memory::push(&mut lens, len(document, report)?)?;
    }
    Ok(lens)
}
