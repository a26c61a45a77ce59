//! Making dictionaries of shapes.
//!
//! Most of the training documents are learned from. The others tell for which documents zstd is to be tried as well; they
//! are not held out, since what is judged must have no part in what it is judged by.

use pgshrink_codec::{Choice, Dictionary};

use super::split::evenly;
use super::{Options, Shapes, Split, datum_lens, lens};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::limits::{SHAPES_DICTIONARY_BYTES_MAX, SHAPES_SAMPLE_BYTES_MAX, SHAPES_TUNING_BYTES_MAX};
use crate::memory;
use crate::shapes::{Fallback, Learned, Measured, Remembered, Schema, dictionary, learned};

/// Bytes of schemas that are tried.
pub(super) const SIZES: [usize; 3] = [20 << 10, 64 << 10, 140 << 10];
/// One training document in so many is tuned with.
const TUNED_ONE_IN: usize = 8;
/// zstd is taken where shapes take more than so many hundredths of it: of these the first with which documents are no longer
/// than by zstd alone.
const FACTORS: [u8; 2] = [120, 100];
/// The same for who wants shapes even where they are longer.
const FACTOR_OF_SHAPES_ONLY: u8 = 150;

/// What dictionaries of any size are made of.
pub(super) struct Making<'d> {
    learned: Learned<'d>,
    tuning: Vec<&'d [u8]>,
    /// Bytes of the payloads of those by zstd.
    by_zstd: Vec<usize>,
    wanted: Shapes,
}

/// What may end the work.
type Proceed<'p> = &'p mut dyn FnMut() -> Result<(), Error>;

impl<'d> Making<'d> {
    /// Learns from `split`; `zstd` is the dictionary for what shapes do not pay for.
    pub(super) fn of(
        split: &Split<'d>,
        options: &Options,
        zstd: &[u8],
        proceed: Proceed<'_>,
    ) -> Result<Self, Error> {
        let (mut learning, mut tuning) = (Vec::new(), Vec::new());
        for (at, document) in split.training.iter().enumerate() {
            let is_tuned = at % TUNED_ONE_IN == TUNED_ONE_IN / 2;
            memory::push(if is_tuned { &mut tuning } else { &mut learning }, *document)?;
        }
        let learning = evenly(&learning, SHAPES_SAMPLE_BYTES_MAX)?;
        let tuning = evenly(&tuning, SHAPES_TUNING_BYTES_MAX)?;
        let by_zstd = by_zstd(&tuning, options.choice, zstd, proceed)?;
        let wanted = options.shapes;
        Ok(Making { learned: learned(&learning, proceed)?, tuning, by_zstd, wanted })
    }

    /// A dictionary whose schema has at most `size` bytes.
    pub(super) fn dictionary(
        &self,
        size: usize,
        zstd: &[u8],
        proceed: Proceed<'_>,
    ) -> Result<Dictionary, Error> {
        let room = SHAPES_DICTIONARY_BYTES_MAX.saturating_sub(zstd.len() + HEAD_BYTES_MAX);
        let schema = self.learned.schema(size.min(room), proceed)?;
        let fallback = self.fallback(&schema, proceed)?;
        dictionary(&schema, &fallback, zstd)
    }

    /// The rule by which documents are told that zstd is tried for.
    fn fallback(&self, schema: &Schema, proceed: Proceed<'_>) -> Result<Fallback, Error> {
        let by_shapes = by_shapes(&self.tuning, schema, proceed)?;
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
        let rules = FACTORS.map(|factor| Fallback::learned(factor, &documents));
        let [first, second] = rules;
        Ok(if first.bytes_of(&documents) <= total { first } else { second })
    }
}

/// Name, rule and length of a dictionary.
const HEAD_BYTES_MAX: usize = 80;
fn by_zstd(
    documents: &[&[u8]],
    choice: Choice,
    zstd: &[u8],
    proceed: Proceed<'_>,
) -> Result<Vec<usize>, Error> {
    let dictionary = match zstd {
        [] => None,
        zstd => Some(Dictionary::new(memory::copy(zstd)?)?),
    };
    datum_lens(&mut Encoder::new(), choice.into(), dictionary.as_ref(), documents, proceed)
}

fn by_shapes(documents: &[&[u8]], schema: &Schema, proceed: Proceed<'_>) -> Result<Vec<usize>, Error> {
    let writer = crate::shapes::Writer::of(schema)?;
    let (mut remembered, mut payload) = (Remembered::default(), Vec::new());
    lens(documents, proceed, |document, _| {
        payload.clear();
        // What cannot be written by its shape is for zstd.
        let is_written = writer.encode(document, None, &mut remembered, &mut payload)?.is_some();
        Ok(if is_written { payload.len() + HEADER_BYTES } else { document.len() })
    })
}

/// What a datum has before its payload, about: zstd's is measured with it.
const HEADER_BYTES: usize = 8;
