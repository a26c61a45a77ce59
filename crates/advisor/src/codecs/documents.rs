//! Columns of documents as zson: encoded with dictionaries that have not seen them.

use std::ops::ControlFlow;
use std::time::Duration;

use pgshrink_codec::Algorithm;
use pgshrink_zson::estimate::{self, Line};
use pgshrink_zson::training::{self, Kind};
use pgshrink_zson::{DictionaryId, Encoder, WritingDictionary};

use super::{Budget, Means, rows};
use crate::finding::{CodecFigure, DocumentFigure};
use crate::heap_page::varlena;
use crate::layout::heap::PAGE_BYTES;
use crate::snapshot::Table;
use crate::snapshot::sample::{Place, RowPlace};

/// Documents below which nothing is said.
const DOCUMENTS_MIN: usize = 100;
/// One document in so many may be lacking: it was too long for the sample.
const LACKING_ONE_IN: usize = 20;
/// What a datum calls its dictionary: any small number takes as many bytes.
const ID: DictionaryId = match DictionaryId::new(1) {
    Some(id) => id,
    None => unreachable!(),
};

/// The documents of a column, by sampled row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Documents {
    /// With the rows of the sample that they are of: jsonb without a header.
    pub images: Vec<(usize, Vec<u8>)>,
    /// Rows whose document could not be read, with its bytes as jsonb, as far as they are known.
    pub lacking: Vec<(usize, usize)>,
}

/// Whether a column has documents: `json`, `jsonb`, and domains over them.
pub fn is_documents(table: &Table, column: usize) -> bool {
    let found = table.columns.get(column).filter(|column| !column.is_dropped);
    found.is_some_and(|column| matches!(column.base_type_id.as_str(), "json" | "jsonb"))
}

impl Documents {
    /// Of a column: from its text by `means`, else from raw pages, which have those that are in their row.
    pub fn of(table: &Table, column: usize, means: &Means<'_>) -> Option<Documents> {
        let sample = table.sample.as_ref()?;
        let (of, sampled) = (table.columns.get(column)?, sample.columns.get(column)?);
        let stored = if of.base_type_id == "jsonb" { rows::of(table, usize::MAX) } else { None };
        let stored = stored.filter(|stored| !stored.is_estimate);
        let mut by_row: Vec<Option<&[u8]>> = vec![None; sample.rows.len()];
        for row in stored.iter().flat_map(|stored| &stored.rows) {
            if let (Some(slot), Some(Some(value))) = (by_row.get_mut(row.index), row.values.get(column)) {
                *slot = Some(value);
            }
        }
        let mut found = Documents::default();
        for (row, value) in by_row.into_iter().enumerate() {
            if sampled.places.get(row).is_none_or(|place| *place == Place::Null) {
                continue;
            }
            let text = sampled.values.as_ref().and_then(|values| values.get(row)?.as_deref());
            let image = value.and_then(|value| varlena::raw(value, DOCUMENT_BYTES_MAX));
            match image.or_else(|| means.jsonb?(text?)) {
                Some(image) => found.images.push((row, image)),
                None => found.lacking.push((row, raw_bytes(value, sampled.sizes.get(row).copied()))),
            }
        }
        let count = found.images.len() + found.lacking.len();
        let enough = found.images.len() >= DOCUMENTS_MIN && found.lacking.len() <= count / LACKING_ONE_IN;
        enough.then_some(found)
    }

    /// Bytes of all of them as jsonb.
    fn raw_bytes(&self) -> u64 {
        let images = self.images.iter().map(|(_, image)| image.len() as u64).sum::<u64>();
        images + self.lacking.iter().map(|(_, bytes)| *bytes as u64).sum::<u64>()
    }

    /// Every sampled row's document as a zson datum with its header, as a Retype wants it, written as `zson_learn` would have
    /// it written. Each half is encoded with a dictionary that was trained on the other one. `rows`: where the sampled rows are. None: training failed.
    pub fn encoded(&self, rows: &[RowPlace]) -> Option<Vec<Option<Vec<u8>>>> {
        let options = training::Options::usual();
        let halves = halves(rows);
        let half = |row: usize| halves.get(row).copied().unwrap_or(false);
        let mut out: Vec<Option<Vec<u8>>> = vec![None; rows.len()];
        let (mut raw, mut stored) = (0u64, 0u64);
        for trained_half in [false, true] {
            let images = self.images.iter().filter(|(row, _)| half(*row) == trained_half);
            let samples: Vec<&[u8]> = images.map(|(_, image)| &image[..]).collect();
            let report = training::train(&samples, &options, &mut |_| ControlFlow::Continue(())).ok()?;
            let codec = report.codec;
            let writing =
                report.winner.map(|won| WritingDictionary::new(ID, &won, codec)).transpose().ok()?;
            let mut encoder = Encoder::new();
            for (row, image) in self.images.iter().filter(|(row, _)| half(*row) != trained_half) {
                let mut datum = Vec::new();
                encoder.encode(codec.choice, writing.as_ref(), image, &mut datum).ok()?;
                (raw, stored) = (raw + image.len() as u64, stored + datum.len() as u64);
                *out.get_mut(*row)? = Some(varlena::plain(&datum, true));
            }
        }
        for (row, bytes) in &self.lacking {
            let bytes = u128::from(stored) * *bytes as u128 / u128::from(raw.max(1));
            *out.get_mut(*row)? = Some(varlena::plain(&noise(bytes as usize, *row as u64), true));
        }
        Some(out)
    }
}

/// Documents are no longer than this here.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// Bytes of a document that is not here: its pointer says so, else what is stored of it is the least.
fn raw_bytes(value: Option<&[u8]>, stored: Option<u32>) -> usize {
    let pointer = value.filter(|value| value.first() == Some(&1)).and_then(|value| value.get(2..6));
    let raw = pointer.map(|raw| u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]) as usize);
    raw.unwrap_or(stored.unwrap_or(0) as usize).clamp(4, DOCUMENT_BYTES_MAX) - 4
}

/// Which half each row is in. Neighbours are alike, and a column's own dictionary has not seen a document's neighbours as often as it
/// would if every second document were trained on: so what is split are runs of sampled blocks, into pieces.
fn halves(rows: &[RowPlace]) -> Vec<bool> {
    const PIECE_BLOCKS_MAX: u32 = 16;
    let mut halves = Vec::with_capacity(rows.len());
    for run in rows.chunk_by(|RowPlace(one, _), RowPlace(next, _)| next.wrapping_sub(*one) <= 1) {
        let (first, last) = (run.first().map_or(0, |row| row.0), run.last().map_or(0, |row| row.0));
        let piece = ((last - first).div_ceil(2)).min(PIECE_BLOCKS_MAX);
        halves.extend(run.iter().enumerate().map(|(number, RowPlace(block, _))| {
            match (block - first).checked_div(piece) {
                Some(piece) => piece % 2 == 1,
                // One block.
                None => number % 2 == 1,
            }
        }));
    }
    halves
}

/// Bytes that no codec makes less of, as those of a compressed document are.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// What every codec of zson makes of each column of documents. What becomes of the table is
/// simulated by the caller.
pub fn measure(table: &Table, budget: &mut Budget, means: &Means<'_>) -> Vec<DocumentFigure> {
    let columns = (0..table.columns.len()).filter(|column| is_documents(table, *column));
    columns.filter_map(|column| one(table, column, budget, means)).collect()
}

fn one(table: &Table, column: usize, budget: &mut Budget, means: &Means<'_>) -> Option<DocumentFigure> {
    if budget.document_bytes_total == 0 {
        return None;
    }
    let documents = Documents::of(table, column, means)?;
    let sample = table.sample.as_ref()?;
    let samples: Vec<&[u8]> = documents.images.iter().map(|(_, image)| &image[..]).collect();
    let mean = samples.iter().map(|image| image.len()).sum::<usize>() / samples.len().max(1);
    let bytes_max =
        budget.document_bytes.min(usize::try_from(budget.document_bytes_total).unwrap_or(usize::MAX));
    let samples = super::pages::evenly(&samples, (bytes_max / mean.max(1)).max(DOCUMENTS_MIN));
    let taken: u64 = samples.iter().map(|image| image.len() as u64).sum();
    budget.document_bytes_total = budget.document_bytes_total.saturating_sub(taken);

    let still = || Duration::ZERO;
    let clock = means.clock.unwrap_or(&still);
    let options = estimate::Options::usual();
    let lines = estimate::measure(&samples, &options, clock, &mut |_| ControlFlow::Continue(())).ok()?;
    let blocks = (table.bytes.main / PAGE_BYTES as u64).max(sample.blocks.len() as u64);
    let of_all = |bytes: u64| {
        let scaled = u128::from(bytes) * u128::from(blocks) / sample.blocks.len().max(1) as u128;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    };
    let stored = sample.columns.get(column)?.sizes.iter().map(|size| u64::from(*size)).sum();
    let raw = of_all(documents.raw_bytes());
    let figure = |line: &Line| CodecFigure {
        codec: name(line),
        bytes: (u128::from(raw) * u128::from(line.bytes) / u128::from(line.raw_bytes.max(1))) as u64,
        compress_mb_s: means.clock.and_then(|_| speed(line, line.encode_ns)),
        decompress_mb_s: means.clock.and_then(|_| speed(line, line.decode_ns)),
    };
    Some(DocumentFigure {
        column: table.columns.get(column)?.name.clone(),
        documents: lines.first().map_or(0, |line| line.documents),
        bytes: of_all(stored),
        codecs: lines.iter().map(figure).collect(),
        ..DocumentFigure::default()
    })
}

fn name(line: &Line) -> String {
    match (line.codec.choice.algorithm, line.dictionary_kind) {
        (Algorithm::None, _) => "jsonb".to_owned(),
        (_, Kind::None) => line.codec.to_string(),
        (_, _) => format!("{}, dictionary of {} bytes", line.codec, line.dictionary_size),
    }
}

fn speed(line: &Line, ns: f64) -> Option<f64> {
    let bytes = line.raw_bytes as f64 / line.documents.max(1) as f64;
    (ns > 0.0).then(|| bytes * 1e3 / ns)
}

#[test]
fn runs_of_blocks_are_halved_in_pieces() {
    let blocks = |blocks: &[u32]| halves(&blocks.iter().map(|block| RowPlace(*block, 1)).collect::<Vec<_>>());
    assert_eq!(blocks(&[7, 7, 7]), [false, true, false], "one block");
    assert_eq!(blocks(&[3, 3, 4, 4]), [false, false, true, true]);
    assert_eq!(blocks(&[0, 1, 2, 3, 9, 10]), [false, false, true, true, false, true], "two runs");
    let long: Vec<u32> = (0..100).collect();
    let expected: Vec<bool> = long.iter().map(|block| block / 16 % 2 == 1).collect();
    assert_eq!(blocks(&long), expected);
    assert!(blocks(&[]).is_empty());
}
