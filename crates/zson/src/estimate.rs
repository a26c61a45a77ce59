//! What each codec would give on somebody's own documents, before anything is stored.
//!
//! Dictionaries are made and measured as by [`training`](crate::training), on documents they have not seen. Sizes
//! are of whole datums and exact; times are the best of several rounds on one warm core and vary with the machine.

use std::time::Duration;

use pgshrink_codec::{Algorithm, Choice};

use crate::codec::Codec;
use crate::datum::{Stored, parse};
use crate::decoder::Decoder;
use crate::dictionary::{ReadingDictionary, WritingDictionary};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::memory;
use crate::training::{self, Kind, MEASURED_ID, OnProgress, SIZES, Shapes, Split, train_on};

/// What to estimate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Algorithms and levels, each alone and, where it can use one, with the best dictionary. Shapes have always one.
    pub codecs: Vec<Codec>,
    /// As in [`training::Options`].
    pub sizes: Vec<usize>,
    /// As in [`training::Options`].
    pub words: Vec<Vec<u8>>,
}

/// One codec on the held-out documents.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Line {
    /// What wrote the documents.
    pub codec: Codec,
    /// Where the dictionary came from.
    pub dictionary_kind: Kind,
    /// Its bytes; zero without one.
    pub dictionary_size: usize,
    /// Documents measured.
    pub documents: usize,
    /// Their bytes as jsonb, without varlena headers.
    pub raw_bytes: u64,
    /// Their bytes as datums, without varlena headers.
    pub bytes: u64,
    /// Nanoseconds for encoding one document, on average.
    pub encode_ns: f64,
    /// Nanoseconds for decoding and verifying one document, on average.
    pub decode_ns: f64,
}

/// The time since some moment in the past, as the caller measures it.
pub type Clock<'a> = &'a dyn Fn() -> Duration;

/// Measures every choice on a held-out part of `samples` (jsonb), with times by `clock`.
pub fn measure<S: AsRef<[u8]>>(
    samples: &[S],
    options: &Options,
    clock: Clock<'_>,
    progress: &mut OnProgress<'_>,
) -> Result<Vec<Line>, Error> {
    let split = Split::of(samples)?;
    let mut lines = Vec::new();
    for codec in options.codecs.iter().copied() {
        let training = training::Options {
            choice: codec.choice,
            shapes: if codec.is_shapes { Shapes::Only } else { Shapes::Never },
            sizes: options.sizes.clone(),
            words: options.words.clone(),
            incumbent: None,
        };
        let report = train_on(&split, &training, progress)?;
        if !codec.is_shapes {
            lines.push(line(&split, codec, None, Kind::None, clock)?);
        }
        if let Some(dictionary) = &report.winner {
            let kind = report.candidates[report.winner_index].kind;
            let writing = WritingDictionary::new(MEASURED_ID, dictionary, codec)?;
            let reading = ReadingDictionary::new(MEASURED_ID, dictionary)?;
            let mut line = line(&split, codec, Some((&writing, &reading)), kind, clock)?;
            line.dictionary_size = dictionary.bytes().len();
            lines.push(line);
        }
    }
    Ok(lines)
}

impl Options {
    /// Raw, LZ4, zstd at levels 1, 3 and 9, shapes, and the usual sizes of dictionaries.
    pub fn usual() -> Self {
        let zstd = [1, 3, 9].into_iter().filter_map(|level| Choice::new(Algorithm::Zstd, level).ok());
        let mut codecs: Vec<Codec> = vec![Algorithm::None.into(), Algorithm::Lz4.into()];
        codecs.extend(zstd.map(Codec::from));
        codecs.push(Codec::shapes());
        Options { codecs, sizes: SIZES.to_vec(), words: Vec::new() }
    }
}

impl Line {
    /// How many times smaller than jsonb; 1 when nothing was measured.
    pub fn ratio(&self) -> f64 {
        if self.bytes == 0 { 1.0 } else { self.raw_bytes as f64 / self.bytes as f64 }
    }
}

/// Rounds at most; the quickest counts.
const ROUNDS_MAX: usize = 5;
/// No further round begins after this long.
const ROUNDS_TIME_MAX: Duration = Duration::from_millis(200);

fn line(
    split: &Split<'_>,
    codec: Codec,
    dictionary: Option<(&WritingDictionary, &ReadingDictionary)>,
    dictionary_kind: Kind,
    clock: Clock<'_>,
) -> Result<Line, Error> {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let (writing, reading) = dictionary.unzip();
    let (mut datums, mut ends) = (Vec::new(), Vec::new());
    memory::reserve(&mut ends, split.holdout.len())?;
    let encoding = quickest(clock, || {
        datums.clear();
        ends.clear();
        for document in &split.holdout {
            encoder.encode(codec.choice, writing, document, &mut datums)?;
            ends.push(datums.len());
        }
        Ok(())
    })?;
    let longest = split.holdout.iter().map(|document| document.len()).max().unwrap_or(0);
    let mut target = memory::zeroed(longest)?;
    let decoding = quickest(clock, || {
        let mut start = 0;
        for end in &ends {
            if let Stored::Current(header) = parse(&datums[start..*end])? {
                decoder.decode(&header, reading, &mut target[..header.raw_len()])?;
            }
            start = *end;
        }
        Ok(())
    })?;
    let documents = split.holdout.len();
    let average = |time: Duration| time.as_nanos() as f64 / documents.max(1) as f64;
    Ok(Line {
        codec,
        dictionary_kind,
        dictionary_size: 0,
        documents,
        raw_bytes: split.holdout_bytes(),
        bytes: datums.len() as u64,
        encode_ns: average(encoding),
        decode_ns: average(decoding),
    })
}

/// The shortest time of several rounds, the first of which also warms up.
fn quickest(clock: Clock<'_>, mut round: impl FnMut() -> Result<(), Error>) -> Result<Duration, Error> {
    let begin = clock();
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS_MAX {
        let start = clock();
        round()?;
        let end = clock();
        best = best.min(end.saturating_sub(start));
        if end.saturating_sub(begin) > ROUNDS_TIME_MAX {
            break;
        }
    }
    Ok(best)
}
