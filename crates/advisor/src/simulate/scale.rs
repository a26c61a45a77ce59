//! From the sampled blocks to the whole table.

use super::place::Relation;
use super::rows::Rows;
use super::{Way, add_chunks, passes};
use crate::arrangement::Arrangement;
use crate::layout::heap::PAGE_BYTES;
use crate::snapshot::{Sample, Server, Table};

/// What the figures of a sample are multiplied by.
pub(super) struct Scales {
    /// Pages that its rows need.
    pub pages: f64,
    /// Its rows.
    pub rows: f64,
    /// Pages of the TOAST table that its values outside need, and their chunks.
    pub toast: f64,
}

/// What is known of one block.
#[derive(Clone, Copy, Default)]
struct Block {
    rows: f64,
    /// Bytes of its rows as they are stored when the table is built anew.
    bytes: f64,
    /// Bytes outside.
    outside: f64,
}

/// Standard errors by which a sample may differ from a known figure before that counts as wrong.
const ERRORS: f64 = 3.0;
/// Rows that changed since the server counted them, as a part of all, up to which the count is taken.
const STALE: f64 = 0.002;

/// `scale`: real pages for one that was read.
///
/// The number of pages is a regression on the number of rows, where the server has counted those of late. In a table without bloat pages are
/// full, however many rows they have: then it is pages to pages read. Where rows were deleted, blocks differ in what is left, and
/// the server's count corrects what chance brought into the sample.
///
/// Rows with values outside are few and differ much, so what some blocks say about the TOAST table is less certain than what
/// its size says, as long as the two do not contradict each other: then it has no bloat.
pub(super) fn of(server: &Server, table: &Table, sample: &Sample, scale: f64) -> Scales {
    let arrangement = Arrangement::of(table, &[]);
    let mut rows = Rows::of(server, table, &arrangement);
    let mut toast = Relation::new(100, Way::Insert);
    let mut outside = Vec::new();
    let mut blocks = vec![Block::default(); sample.blocks.len().max(1)];
    for row in 0..rows.count() {
        let Some(place) = sample.rows.get(row) else { break };
        let Ok(index) = sample.blocks.binary_search(&place.0) else { continue };
        let stored = rows.row(row);
        blocks[index].rows += 1.0;
        blocks[index].bytes += (stored.bytes.next_multiple_of(8) + 4) as f64;
        for bytes in stored.external {
            outside.push(*bytes);
            blocks[index].outside += f64::from(*bytes);
        }
    }
    // As often as when the table is built anew.
    for bytes in (0..passes(sample)).flat_map(|_| &outside) {
        add_chunks(&mut toast, *bytes);
    }
    let found = toast.pages_begun() / passes(sample) as f64;
    let by = |figure: fn(&Block) -> f64| scale * correction(table, &blocks, scale, figure);
    Scales {
        pages: by(|block| block.bytes),
        rows: by(|block| block.rows),
        toast: toast_scale(table, &blocks, found, by(|block| block.outside)),
    }
}

/// By what the sum of a figure of all blocks is multiplied, as the server knows how many rows there are.
fn correction(table: &Table, blocks: &[Block], scale: f64, figure: fn(&Block) -> f64) -> f64 {
    let rows = Series::of(blocks.iter().map(|block| block.rows));
    let figures = Series::of(blocks.iter().map(figure));
    let expected = table.row_estimate / (blocks.len() as f64 * scale);
    let is_plausible = (expected - rows.mean).abs() <= ERRORS * rows.error();
    if !is_counted(table) || !is_plausible || rows.variance == 0.0 || figures.mean == 0.0 {
        return 1.0;
    }
    let products = blocks.iter().map(|block| (block.rows - rows.mean) * (figure(block) - figures.mean));
    let slope = products.sum::<f64>() / rows.count / rows.variance;
    let correction = (figures.mean + slope * (expected - rows.mean)) / figures.mean;
    if (0.5..=2.0).contains(&correction) { correction } else { 1.0 }
}

/// Whether VACUUM or ANALYZE has counted the rows, and hardly any changed since.
fn is_counted(table: &Table) -> bool {
    let activity = &table.activity;
    let vacuum =
        activity.last_vacuum_s.map(|_| activity.inserted_since_vacuum.saturating_add(activity.dead_rows));
    let analyze = activity.last_analyze_s.map(|_| activity.modified_since_analyze);
    let changed = vacuum.into_iter().chain(analyze).min();
    table.row_estimate > 0.0 && changed.is_some_and(|changed| changed as f64 <= table.row_estimate * STALE)
}

/// `found`: pages of the TOAST table that the sampled rows need.
fn toast_scale(table: &Table, blocks: &[Block], found: f64, scale: f64) -> f64 {
    let now = table.toast.map_or(0, |toast| toast.bytes.main / PAGE_BYTES as u64) as f64;
    let outside = Series::of(blocks.iter().map(|block| block.outside));
    let error = outside.error() / outside.mean;
    let is_consistent = found > 0.0 && found * scale * (1.0 + ERRORS * error) >= now;
    if now > 0.0 && is_consistent { now / found } else { scale }
}

/// Mean and variance of figures by block.
struct Series {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Series {
    fn of(figures: impl Iterator<Item = f64> + Clone) -> Series {
        let count = figures.clone().count() as f64;
        let mean = figures.clone().sum::<f64>() / count;
        let variance = figures.map(|figure| (figure - mean).powi(2)).sum::<f64>() / count;
        Series { count, mean, variance }
    }

    /// The standard error of the mean.
    fn error(&self) -> f64 {
        (self.variance / self.count).sqrt()
    }
}
