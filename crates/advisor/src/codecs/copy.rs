//! Sampled rows as the text that `COPY … TO STDOUT` sends.
//!
//! Source: `CopyOneRowTo` and `CopyAttributeOutText` in `src/backend/commands/copyto.c`.

use std::ops::Range;

use crate::simulate::Simulation;
use crate::snapshot::sample::{Place, SampledColumn};
use crate::snapshot::{Column, Sample, Server, Table};

/// A column that is copied, with its values.
type Live<'t> = (&'t Column, &'t SampledColumn);

/// COPY text of sampled rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyText {
    /// Lines, one behind the other, each with its end.
    pub text: Vec<u8>,
    /// Where each line ends.
    pub ends: Vec<usize>,
    /// The first line of each run: of rows of blocks that follow each other in the table.
    run_starts: Vec<usize>,
    /// The lines are all that the table has.
    pub is_whole: bool,
    /// Lines of the whole table for each of these, times [`CopyText::SHARE`].
    share: u64,
}

impl CopyText {
    /// Parts that a share is counted in.
    const SHARE: u64 = 1 << 20;

    /// Of a table's sampled rows, evenly over them, at most about so many bytes, or one run. None: values are not here.
    ///
    /// Rows with a value that is too long for the sample are left out, and the others stand for them by the length of their text, as far as
    /// what is stored tells it: a compressed value is longer than it looks.
    pub fn of(table: &Table, bytes_max: usize) -> Option<CopyText> {
        let sample = table.sample.as_ref()?;
        // Generated columns are not copied (`CopyGetAttnums`).
        let live = table.columns.iter().zip(&sample.columns);
        let live: Vec<_> =
            live.filter(|(column, _)| !column.is_dropped && !matches!(column.generated, 's' | 'v')).collect();
        let lacks_values = |(_, sampled): &Live<'_>| sampled.values.is_none();
        if live.is_empty() || sample.rows.is_empty() || live.iter().any(lacks_values) {
            return None;
        }
        let lengths: Vec<Lengths> = live.iter().map(|(_, sampled)| Lengths::of(sampled)).collect();
        let usual = Server::default();
        let (row_scale, toast_scale) = Simulation::of(&usual, table)?.scales();
        // Of a row's text, what is stored in the row and outside.
        let length = |row: usize| -> (f64, f64) {
            let values = live.iter().zip(&lengths).map(|((_, sampled), lengths)| lengths.value(sampled, row));
            values.fold((live.len() as f64, 0.0), |(inside, outside), (bytes, is_outside)| match is_outside {
                true => (inside, outside + bytes),
                false => (inside + bytes, outside),
            })
        };
        let mut copy = CopyText::default();
        let all_bytes = (0..sample.rows.len())
            .map(length)
            .fold(0.0, |sum, (inside, outside)| sum + inside * row_scale + outside * toast_scale);
        let mut taken_bytes = 0.0;
        let pieces = pieces(sample);
        let text_bytes = mean_bytes(&live, sample.rows.len()).saturating_mul(sample.rows.len());
        let fitting = pieces.len() as u128 * bytes_max as u128 / text_bytes.max(1) as u128;
        let fitting = usize::try_from(fitting).unwrap_or(usize::MAX).max(1);
        let mut after = None;
        for piece in super::pages::evenly(&pieces, fitting) {
            if piece.follows.is_none() || piece.follows != after {
                copy.run_starts.push(copy.ends.len());
            }
            after = Some(piece.rows.end);
            for row in piece.rows {
                let start = copy.text.len();
                if line(&live, row, &mut copy.text) {
                    taken_bytes += length(row).0 + length(row).1;
                    copy.ends.push(copy.text.len());
                } else {
                    copy.text.truncate(start);
                }
            }
        }
        copy.is_whole = sample.is_whole && copy.ends.len() == sample.rows.len();
        if copy.ends.is_empty() {
            return None;
        }
        let share = all_bytes / f64::max(taken_bytes, 1.0);
        // Exactly 1 where all rows are here. Saturates.
        copy.share = (Self::SHARE as f64 * share).round() as u64;
        Some(copy)
    }

    /// What so many bytes of these lines come to for the whole table.
    pub fn of_all(&self, bytes: u64) -> u64 {
        u64::try_from(u128::from(bytes) * u128::from(self.share) / u128::from(Self::SHARE))
            .unwrap_or(u64::MAX)
    }

    /// The lines.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let begins = [0].into_iter().chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.text[begin..*end])
    }

    /// Numbers of the lines of each run.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let ends = self.run_starts.iter().skip(1).copied().chain([self.ends.len()]);
        self.run_starts.iter().copied().zip(ends).map(|(start, end)| start..end)
    }
}

/// Bytes of text for each byte that is stored, of a column: a value that is not here is as long as others that are stored alike.
struct Lengths {
    plain: f64,
    compressed: f64,
}

impl Lengths {
    fn of(sampled: &SampledColumn) -> Lengths {
        let (mut plain, mut compressed) = ((0.0, 0.0), (0.0, 0.0));
        let stored = sampled.sizes.iter().zip(&sampled.places);
        for ((size, place), text) in stored.zip(sampled.values.iter().flatten()) {
            let Some(text) = text else { continue };
            let (stored, long) = if place.is_compressed() { &mut compressed } else { &mut plain };
            *stored += f64::from(*size);
            *long += text.len() as f64;
        }
        let ratio = |(stored, long): (f64, f64)| if stored > 0.0 { long / stored } else { 1.0 };
        Lengths { plain: ratio(plain), compressed: ratio(compressed).max(ratio(plain)) }
    }

    /// Bytes of a value's text, and whether the value is in the TOAST table.
    fn value(&self, sampled: &SampledColumn, row: usize) -> (f64, bool) {
        let place = sampled.places.get(row).copied().unwrap_or_default();
        let text = sampled.values.as_ref().and_then(|values| values.get(row)?.as_deref());
        let stored = f64::from(sampled.sizes.get(row).copied().unwrap_or(0));
        let bytes = match text {
            Some(text) => text.len() as f64,
            None if place == Place::Null => 2.0,
            None if place.is_compressed() => stored * self.compressed,
            None => stored * self.plain,
        };
        (bytes, place.is_external())
    }
}

/// Rows of some blocks that follow each other in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// Numbers in the sample.
    rows: Range<usize>,
    /// The end of the piece before it, if its blocks follow those.
    follows: Option<usize>,
}

/// All sampled rows in pieces of so many blocks at most: as many as are read together.
fn pieces(sample: &Sample) -> Vec<Piece> {
    const BLOCKS_MAX: usize = 16;
    let mut pieces: Vec<Piece> = Vec::new();
    let adjacent = sample.blocks.chunk_by(|before, block| before.checked_add(1) == Some(*block));
    for run in adjacent {
        let mut follows = None;
        for blocks in run.chunks(BLOCKS_MAX) {
            let [first, last] = [blocks.first(), blocks.last()].map(|block| block.copied().unwrap_or(0));
            let start = sample.rows.partition_point(|place| place.0 < first);
            let end = sample.rows.partition_point(|place| place.0 <= last);
            if start < end {
                pieces.push(Piece { rows: start..end, follows });
                follows = Some(end);
            }
        }
    }
    pieces
}

/// Bytes of a line, about.
fn mean_bytes(live: &[Live<'_>], rows: usize) -> usize {
    let text = |(_, sampled): &Live<'_>| -> usize {
        let values = sampled.values.iter().flatten().flatten();
        values.map(|text| text.len()).sum()
    };
    live.iter().map(text).sum::<usize>() / rows.max(1) + live.len()
}

/// Appends a line. False: a value is not here.
fn line(live: &[Live<'_>], row: usize, out: &mut Vec<u8>) -> bool {
    for (index, (column, sampled)) in live.iter().enumerate() {
        if index > 0 {
            out.push(b'\t');
        }
        let is_null = sampled.places.get(row) == Some(&Place::Null);
        match sampled.values.as_ref().and_then(|values| values.get(row)?.as_deref()) {
            Some(text) => value(column, text, out),
            None if is_null => out.extend_from_slice(b"\\N"),
            None => return false,
        }
    }
    out.push(b'\n');
    true
}

/// A value as its output function prints it, where a cast to text does not.
fn value(column: &Column, text: &str, out: &mut Vec<u8>) {
    match column.base_type_id.as_str() {
        // `true::text` is longer than what is sent.
        "bool" => out.extend(text.bytes().take(1)),
        // A cast takes the blanks off (`rtrim1`).
        "bpchar" => {
            escape(text.as_bytes(), out);
            let width = usize::try_from(column.type_modifier).unwrap_or(0).saturating_sub(4).min(1 << 20);
            out.extend(std::iter::repeat_n(b' ', width.saturating_sub(text.chars().count())));
        }
        _ => escape(text.as_bytes(), out),
    }
}

fn escape(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        let letter = match byte {
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            8 => b'b',
            12 => b'f',
            11 => b'v',
            other => {
                out.push(*other);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_escaped_as_copy_does_it() {
        let column = |values: &[Option<&str>]| SampledColumn {
            places: values.iter().map(|v| if v.is_some() { Place::Inline } else { Place::Null }).collect(),
            sizes: vec![1; values.len()],
            values: Some(values.iter().map(|v| v.map(str::to_owned)).collect()),
        };
        let columns = [
            column(&[Some("a\tb\\c\n\r\u{8}\u{b}\u{c}é"), None]),
            column(&[Some("true"), Some("f")]),
            column(&[Some("x"), Some("")]),
        ];
        let kinds = [("text", -1), ("bool", -1), ("bpchar", 7)].map(|(kind, type_modifier)| Column {
            base_type_id: kind.to_owned(),
            type_modifier,
            ..Column::default()
        });
        let live: Vec<Live<'_>> = kinds.iter().zip(&columns).collect();
        let mut out = Vec::new();
        assert!(line(&live, 0, &mut out) && line(&live, 1, &mut out));
        assert_eq!(String::from_utf8(out).unwrap(), "a\\tb\\\\c\\n\\r\\b\\v\\fé\tt\tx  \n\\N\tf\t   \n");
    }
}
