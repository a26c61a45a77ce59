//! Whole numbers that a shorter type holds.
//!
//! A maximum of today says little about tomorrow. So keys, columns filled by a sequence, and numbers that grow with the table are
//! left alone, as is what uses more than a quarter of the smaller range.

use super::{COLUMN, Conversion, Form, Values};
use crate::datum::number;
use crate::layout::Alignment;

/// Names of numbers that count up, whole or as the last part.
const COUNTING_NAMES: [&str; 14] = [
    "id", "no", "nr", "num", "number", "seq", "sequence", "serial", "version", "xid", "lsn", "position",
    "offset", "epoch",
];

/// An integer type.
pub(super) struct Width {
    pub(super) type_name: &'static str,
    pub(super) bytes: u16,
    alignment: Alignment,
    /// The largest number.
    pub(super) max: i64,
}

/// From the smallest on.
pub(super) const WIDTHS: [Width; 3] = [
    Width { type_name: "smallint", bytes: 2, alignment: Alignment::Short, max: i16::MAX as i64 },
    Width { type_name: "integer", bytes: 4, alignment: Alignment::Int, max: i32::MAX as i64 },
    Width { type_name: "bigint", bytes: 8, alignment: Alignment::Double, max: i64::MAX },
];

impl Width {
    pub(super) fn form(&self) -> Form {
        Form::Fixed(self.bytes, self.alignment)
    }

    /// The largest number that a column may have for this type to be proposed.
    pub(super) fn limit(&self) -> i64 {
        self.max / 4
    }

    pub(super) fn image(&self, number: i64) -> Vec<u8> {
        number.to_le_bytes().into_iter().take(usize::from(self.bytes)).collect()
    }
}

pub(super) fn convert(values: &Values<'_>) -> Option<Conversion> {
    let bytes = if values.column.base_type_id == "int8" { 8 } else { 4 };
    let numbers: Vec<i64> = values.sampled().map(number::integer).collect::<Option<_>>()?;
    let largest =
        values.all().map(|text| number::integer(text).map(i64::unsigned_abs)).collect::<Option<Vec<_>>>()?;
    let largest = largest.into_iter().max()?;
    if counts_up(values) || is_growing(&numbers) {
        return None;
    }
    let fits = |width: &&Width| width.bytes < bytes && largest <= width.limit().unsigned_abs();
    let width = WIDTHS.iter().find(fits)?;
    let images = values.images(|text| Some(width.image(number::integer(text)?)))?;
    // Not where a column of a few hundred may well grow a hundredfold, nor where a query may fail that has worked: it may
    // multiply two values.
    let is_safe = width.bytes > 2 && largest <= width.max.unsigned_abs().isqrt();
    let limit = width.limit();
    Some(Conversion {
        type_name: width.type_name.to_owned(),
        prepare: Vec::new(),
        form: width.form(),
        images,
        using: format!("{COLUMN}::{}", width.type_name),
        misfit: format!("{COLUMN} NOT BETWEEN -{limit} AND {limit}"),
        title: format!("{} instead of {}", width.type_name, values.column.type_name),
        reason: format!(
            "The {} sampled values are {largest} at most (without the sign), of the {} that {} takes; they do not grow with the table. \
             The column takes {} bytes instead of {bytes}.",
            values.count(),
            width.max,
            width.type_name,
            width.bytes
        ),
        risks: vec![
            format!(
                "A number above {} fails with \"out of range\". So do sums and products of two such columns.",
                width.max
            ),
            "Drivers return a shorter integer; functions that take the old type still accept it.".to_owned(),
        ],
        is_recommended: is_safe,
        depends_on_range: true,
    })
}

/// Whether something counts the column up: a key, a sequence, a name that says so.
pub(super) fn counts_up(values: &Values<'_>) -> bool {
    let column = values.column;
    let has_sequence = column.identity.is_alphabetic()
        || column.default.as_deref().is_some_and(|text| text.contains("nextval"));
    let name = column.name.to_lowercase();
    let last = name.rsplit(['_', '-', ' ', '.']).next().unwrap_or_default();
    // `orderId`: the last capital letter begins the last word.
    let is_camel = column.name.ends_with("Id") || column.name.ends_with("ID");
    values.is_key || has_sequence || is_camel || COUNTING_NAMES.contains(&last)
}

/// Whether later rows have larger numbers, mostly different ones: a counter, whatever it is called.
pub(in crate::rules) fn is_growing(numbers: &[i64]) -> bool {
    let quarter = numbers.len() / 4;
    let sorted = |numbers: &[i64]| {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        sorted
    };
    let (first, last) = (sorted(&numbers[..quarter]), sorted(&numbers[numbers.len() - quarter..]));
    let mut all = sorted(numbers);
    all.dedup();
    // A part of them may be rows that were updated, and moved.
    let moved = quarter / 4;
    let is_above = quarter > 0 && last[moved] > first[quarter - 1 - moved];
    is_above && all.len() * 2 > numbers.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_grow_and_amounts_do_not() {
        let counter: Vec<i64> = (0..400).map(|n| n * 3 + n % 7).collect();
        assert!(is_growing(&counter));
        let mut moved = counter.clone();
        moved.rotate_left(20);
        assert!(is_growing(&moved));
        let saw: Vec<i64> = (0..400).map(|n| n * 7919 % 100_003).collect();
        assert!(!is_growing(&saw));
        let years: Vec<i64> = (0..400).map(|n| 2000 + n / 20).collect();
        assert!(!is_growing(&years));
        assert!(!is_growing(&[]) && !is_growing(&[1, 2, 3]));
    }
}
