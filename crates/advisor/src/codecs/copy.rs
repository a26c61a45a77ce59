//! Sampled rows as the text that `COPY … TO STDOUT` sends.
//!
//! Source: `CopyOneRowTo` and `CopyAttributeOutText` in `src/backend/commands/copyto.c`.

use crate::snapshot::sample::{Place, SampledColumn};
use crate::snapshot::{Column, Table};

/// A column that is copied, with its values.
type Live<'t> = (&'t Column, &'t SampledColumn);

/// COPY text of sampled rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyText {
    /// Lines, one behind the other, each with its end.
    pub text: Vec<u8>,
    /// Where each line ends.
    pub ends: Vec<usize>,
    /// Lines of the whole table for each of these, times [`CopyText::SHARE`].
    share: u64,
}

impl CopyText {
    /// Parts that a share is counted in.
    const SHARE: u64 = 1 << 20;

    /// Of a table's sampled rows, evenly over them, at most about so many bytes. None: values are not here.
    ///
    /// Rows with a value that is too long for the sample are left out, and the others stand for them by the bytes that they
    /// take in the table.
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
        let size = |row: usize| -> u64 {
            // A row has a header whatever its values are.
            28 + live
                .iter()
                .map(|(_, sampled)| sampled.sizes.get(row).map_or(0, |size| u64::from(*size)))
                .sum::<u64>()
        };
        let mut copy = CopyText::default();
        let all_bytes: u64 = (0..sample.rows.len()).map(size).sum();
        let mut taken_bytes = 0;
        let rows: Vec<usize> = (0..sample.rows.len()).collect();
        let mean = mean_bytes(&live, sample.rows.len());
        let count_max = bytes_max / mean.max(1) + 1;
        for row in runs(&rows, count_max) {
            let start = copy.text.len();
            if line(&live, row, &mut copy.text) {
                taken_bytes += size(row);
                copy.ends.push(copy.text.len());
            } else {
                copy.text.truncate(start);
            }
        }
        if copy.ends.is_empty() {
            return None;
        }
        // Sampled blocks stand for all blocks, and lines for all sampled rows.
        let blocks = (table.bytes.main / 8192).max(sample.blocks.len() as u64).max(1);
        let share = u128::from(Self::SHARE) * u128::from(all_bytes) * u128::from(blocks)
            / u128::from(taken_bytes.max(1))
            / sample.blocks.len().max(1) as u128;
        copy.share = u64::try_from(share).unwrap_or(u64::MAX);
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
}

/// Bytes of a line, about.
fn mean_bytes(live: &[Live<'_>], rows: usize) -> usize {
    let text = |(_, sampled): &Live<'_>| -> usize {
        let values = sampled.values.iter().flatten().flatten();
        values.map(|text| text.len()).sum()
    };
    live.iter().map(text).sum::<usize>() / rows.max(1) + live.len()
}

/// At most about so many of them, in runs of neighbours, evenly over all: rows are like their neighbours, and a codec sees that.
fn runs(rows: &[usize], count_max: usize) -> Vec<usize> {
    const RUN: usize = 64;
    if rows.len() <= count_max {
        return rows.to_vec();
    }
    let chunks: Vec<&[usize]> = rows.chunks(RUN).collect();
    super::pages::evenly(&chunks, count_max.div_ceil(RUN)).concat()
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
