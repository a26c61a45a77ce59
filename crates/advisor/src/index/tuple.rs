//! How an index stores a key: `index_form_tuple` in `src/backend/access/common/indextuple.c`.

use crate::layout::{Column, Value};

/// `sizeof(IndexTupleData)`.
const HEADER_BYTES: usize = 8;
/// The same with a NULL bitmap for `INDEX_MAX_KEYS` columns, aligned.
const HEADER_WITH_BITMAP: usize = 16;
/// `MAXIMUM_ALIGNOF`.
const MAXALIGN: usize = 8;
/// `TOAST_INDEX_TARGET`: longer values are compressed where their storage allows it.
pub const COMPRESSED_ABOVE: usize = (8192 - 32) / 16;

/// Bytes of a tuple with these values, aligned, without a line pointer.
pub fn bytes<'v>(values: impl Iterator<Item = (&'v Column, Value)> + Clone) -> usize {
    data_bytes(values).next_multiple_of(MAXALIGN)
}

/// The same, not aligned: what is missing to a multiple of eight is padding.
pub fn data_bytes<'v>(values: impl Iterator<Item = (&'v Column, Value)> + Clone) -> usize {
    let has_null = values.clone().any(|(_, value)| value == Value::Null);
    let start = if has_null { HEADER_WITH_BITMAP } else { HEADER_BYTES };
    values.fold(start, |at, (column, value)| column.place(at, value).end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Alignment;

    fn column(length: Option<u16>, letter: u8) -> Column {
        Column {
            name: String::new(),
            length,
            alignment: Alignment::of_letter(letter).unwrap(),
            is_packable: true,
            is_not_null: false,
            is_dropped: false,
        }
    }

    fn of(columns: &[Column], values: &[Value]) -> usize {
        bytes(columns.iter().zip(values.iter().copied()))
    }

    #[test]
    fn keys_of_up_to_eight_bytes_all_take_sixteen() {
        let (int4, int8) = (column(Some(4), b'i'), column(Some(8), b'd'));
        let two = [int4.clone(), int4.clone()];
        assert_eq!(of(std::slice::from_ref(&int4), &[Value::Fixed]), 16);
        assert_eq!(of(std::slice::from_ref(&int8), &[Value::Fixed]), 16);
        assert_eq!(of(&two, &[Value::Fixed, Value::Fixed]), 16);
        assert_eq!(of(&two, &[Value::Fixed, Value::Null]), 24, "a bitmap takes eight bytes");
        assert_eq!(of(&[int4, int8], &[Value::Fixed, Value::Fixed]), 24);
        assert_eq!(of(&[column(Some(16), b'c')], &[Value::Fixed]), 24, "uuid");
        assert_eq!(of(&[column(None, b'i')], &[Value::Inline(37)]), 48, "uuid as text");
        assert_eq!(of(&[column(None, b'i')], &[Value::Null]), 16);
    }
}
