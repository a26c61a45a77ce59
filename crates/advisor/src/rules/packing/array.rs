//! Arrays as the server stores them: `construct_md_array` in `src/backend/utils/adt/arrayfuncs.c`.

use crate::datum::header;
use crate::datum::stored::Stored;
use crate::layout::Alignment;

/// `ARR_OVERHEAD_NONULLS(1)` less the header of `varlena`: dimensions, offset, element type, length, lower bound.
const FIELDS_BYTES: usize = 20;
/// `MAXIMUM_ALIGNOF`: where the elements begin, counted from the header of `varlena` on.
const MAXALIGN: usize = 8;

/// The data of an array of one dimension, without its header of `varlena`. `type_oid` is that of the elements. None: NULL.
pub(super) fn data(type_oid: u32, elements: &[Option<&Stored>]) -> Vec<u8> {
    let has_nulls = elements.iter().any(Option::is_none);
    let count = u32::try_from(elements.len()).unwrap_or(u32::MAX);
    let bitmap_bytes = if has_nulls { elements.len().div_ceil(8) } else { 0 };
    let begin = (4 + FIELDS_BYTES + bitmap_bytes).next_multiple_of(MAXALIGN);
    let offset = if has_nulls { u32::try_from(begin).unwrap_or(u32::MAX) } else { 0 };
    // With the header, so that places count from where the server counts them.
    let mut array = vec![0; 4];
    for word in [1, offset, type_oid, count, 1] {
        array.extend(word.to_le_bytes());
    }
    let mut bitmap = vec![0u8; bitmap_bytes];
    for (at, _) in elements.iter().enumerate().filter(|(_, element)| has_nulls && element.is_some()) {
        bitmap[at / 8] |= 1 << (at % 8);
    }
    array.extend(bitmap);
    array.resize(begin, 0);
    for element in elements.iter().flatten() {
        let (alignment, bytes) = match element {
            Stored::Fixed(bytes, alignment) => (*alignment, bytes.clone()),
            Stored::Varlena(data) => (Alignment::Int, [&header(data.len())[..], data].concat()),
        };
        array.extend(bytes);
        array.resize(alignment.align(array.len()), 0);
    }
    array.split_off(4)
}
