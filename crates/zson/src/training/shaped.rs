//! Making dictionaries of shapes.
//!
//! Most of the training documents are learned from. The others tell for which documents zstd is to be tried as well; they
//! are not held out, since what is judged must have no part in what it is judged by.

use pgshrink_codec::bare::Compressor;
use pgshrink_codec::prepared::CompressorDictionary;
use pgshrink_codec::{Choice, Dictionary};

use super::split::evenly;
use super::{Options, Shapes, Split, asked, datum_lens, lens};
use crate::datum::sums_of;
use crate::encoder::Encoder;
use crate::error::Error;
use crate::limits::{SHAPES_DICTIONARY_BYTES_MAX, SHAPES_SAMPLE_BYTES_MAX, SHAPES_TUNING_BYTES_MAX};
use crate::memory;
use crate::shapes::{
    Fallback, Learned, Long, Measured, Payload, Remembered, Schema, Writer, Written, dictionary, learned,
};

/// Bytes of schemas that are tried.
pub(super) const SIZES: [usize; 3] = [20 << 10, 64 << 10, 140 << 10];
/// One training document in so many is tuned with.
const TUNED_ONE_IN: usize = 8;
/// zstd is taken where shapes take more than so many hundredths of it: of these the first with which documents take at most so
/// many hundredths of what they take by zstd alone.
const FACTORS: [(u8, usize); 2] = [(120, 98), (102, 100)];
/// And otherwise.
const FACTOR_WITHOUT_GAIN: u8 = 100;
/// The same for who wants shapes even where they are longer.
const FACTOR_OF_SHAPES_ONLY: u8 = 150;

/// What dictionaries of any size are made of.
pub(super) struct Making<'d> {
    learned: Learned<'d>,
    tuning: Vec<&'d [u8]>,
    /// Bytes of the datums of those by zstd.
    by_zstd: Vec<usize>,
    /// For zstd.
    plain: Option<Dictionary>,
    choice: Choice,
    wanted: Shapes,
}

/// What may end the work.
type Proceed<'p> = &'p mut dyn FnMut() -> Result<(), Error>;

impl<'d> Making<'d> {
    /// Learns from `split`, and from long texts as well if that is wanted; `plain` is the dictionary for these, and for what shapes
    /// do not pay for.
    pub(super) fn of(
        split: &Split<'d>,
        options: &Options,
        (plain, with_long): (Option<Dictionary>, bool),
        proceed: Proceed<'_>,
    ) -> Result<Self, Error> {
        let (mut learning, mut tuning) = (Vec::new(), Vec::new());
        for (at, document) in split.training.iter().enumerate() {
            let is_tuned = at % TUNED_ONE_IN == TUNED_ONE_IN / 2;
            memory::push(if is_tuned { &mut tuning } else { &mut learning }, *document)?;
        }
        let learning = evenly(&learning, SHAPES_SAMPLE_BYTES_MAX)?;
        let tuning = evenly(&tuning, SHAPES_TUNING_BYTES_MAX)?;
        let (choice, wanted) = (options.choice, options.shapes);
        let by_zstd = datum_lens(&mut Encoder::new(), choice.into(), plain.as_ref(), &tuning, proceed)?;
        let learned = learned(&learning, with_long, proceed)?;
        Ok(Making { learned, tuning, by_zstd, plain, choice, wanted })
    }

    /// Whether learning from long texts as well may give something else.
    pub(super) fn lacks_long(&self) -> bool {
        self.learned.lacks_long()
    }

    /// A dictionary whose schema has at most `size` bytes.
    pub(super) fn dictionary(&self, size: usize, proceed: Proceed<'_>) -> Result<Dictionary, Error> {
        let plain = self.plain.as_ref().map_or(&[][..], Dictionary::bytes);
        let room = SHAPES_DICTIONARY_BYTES_MAX.saturating_sub(plain.len() + HEAD_BYTES_MAX);
        let schema = self.learned.schema(size.min(room), proceed)?;
        let fallback = self.fallback(&schema, proceed)?;
        dictionary(&schema, &fallback, plain)
    }

    /// The rule by which documents are told that zstd is tried for.
    fn fallback(&self, schema: &Schema, proceed: Proceed<'_>) -> Result<Fallback, Error> {
        let by_shapes = self.by_shapes(schema, proceed)?;
        let documents = memory::collect(
            self.tuning.iter().zip(by_shapes).zip(&self.by_zstd).map(|((document, shapes), zstd)| Measured {
                raw: document.len(),
                shapes,
                zstd: *zstd,
            }),
        )?;
        if self.wanted == Shapes::Only {
            return Ok(Fallback::learned(FACTOR_OF_SHAPES_ONLY, &documents));
        }
        let total: usize = self.by_zstd.iter().sum();
        for (factor, share) in FACTORS {
            let rule = Fallback::learned(factor, &documents);
            if rule.bytes_of(&documents) * 100 <= total * share {
                return Ok(rule);
            }
        }
        Ok(Fallback::learned(FACTOR_WITHOUT_GAIN, &documents))
    }

    /// Bytes of the datums of what is tuned with, by shapes.
    fn by_shapes(&self, schema: &Schema, proceed: Proceed<'_>) -> Result<Vec<Payload>, Error> {
        let (writer, choice) = (Writer::of(schema)?, self.choice);
        let prepared = match &self.plain {
            Some(dictionary) => Some(CompressorDictionary::new(dictionary, choice)?),
            None => None,
        };
        let mut compressor = Compressor::new();
        let (mut remembered, mut payload) = (Remembered::default(), Vec::new());
        lens(&self.tuning, proceed, |document, report| {
            payload.clear();
            let (compressor, proceed) = (&mut compressor, &mut asked(report));
            let long = Long { compressor, choice, dictionary: prepared.as_ref(), proceed };
            // What cannot be written by its shape is for zstd.
            let written = writer.encode(document, None, &mut remembered, long, &mut payload)?;
            Ok(match written {
                Some(Written { payload: Payload { len, longest }, .. }) => {
                    Payload { len: len + sums_of(len) + HEADER_BYTES, longest }
                }
                None => Payload { len: document.len(), longest: 0 },
            })
        })
    }
}

/// Name, rule and length of a dictionary.
const HEAD_BYTES_MAX: usize = 80;
/// What a datum has before its payload, about: zstd's is measured with it.
const HEADER_BYTES: usize = 8;
