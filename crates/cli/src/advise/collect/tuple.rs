//! A row in the image of a page: which of its values are where. Pure.
//!
//! Sources: `src/include/access/htup_details.h`, `src/include/storage/bufpage.h`, `src/include/varatt.h`, for servers that store the
//! lowest byte first; pages of others are not recognized.

use pgshrink_advisor::snapshot::Column;

/// A server's page.
pub(super) const PAGE_BYTES: usize = 8192;
/// `SizeOfPageHeaderData`.
const PAGE_HEADER: usize = 24;
/// Page size and layout version 4.
const SIZE_AND_VERSION: u16 = 0x2004;
/// `LP_NORMAL`
const NORMAL: u32 = 1;
const HEADER: usize = 23;
const HAS_NULL: u16 = 0x0001;
const ATTRIBUTES: u16 = 0x07FF;
/// `VARTAG_ONDISK`
const ON_DISK: u8 = 18;
/// A header of one byte with a tag, and `varatt_external`.
const POINTER: usize = 18;

/// A value in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stored {
    Null,
    /// Bytes with the header.
    Inline(u32),
    External,
    /// The row is older than the column.
    Absent,
}

/// Whether these are a page with something on it.
pub(super) fn is_page(page: &[u8]) -> bool {
    let word = |at: usize| short(page, at).map(usize::from);
    page.len() == PAGE_BYTES
        && short(page, 18) == Some(SIZE_AND_VERSION)
        && match (word(12), word(14), word(16)) {
            (Some(lower), Some(upper), Some(special)) => {
                PAGE_HEADER <= lower && lower <= upper && upper <= special && special <= PAGE_BYTES
            }
            _ => false,
        }
}

/// The values of one row. None: it is not on this page, as the page is older or newer than the row, or something is damaged.
/// `item` counts from 1.
pub(super) fn values(page: &[u8], item: u16, xmin: u32, columns: &[Column]) -> Option<Vec<Stored>> {
    let pointer = PAGE_HEADER + 4 * usize::from(item.checked_sub(1)?);
    if !is_page(page) || pointer + 4 > usize::from(short(page, 12)?) {
        return None;
    }
    let pointer = long(page, pointer)?;
    let (offset, flags, length) = (pointer & 0x7FFF, pointer >> 15 & 3, pointer >> 17);
    let row = page.get(offset as usize..)?.get(..length as usize)?;
    if flags != NORMAL || long(row, 0)? != xmin {
        return None;
    }
    let count = usize::from(short(row, 18)? & ATTRIBUTES);
    let has_null = short(row, 20)? & HAS_NULL != 0;
    let mut at = usize::from(*row.get(22)?);
    let mut found = Vec::with_capacity(columns.len());
    for (index, column) in columns.iter().enumerate() {
        if index >= count {
            found.push(Stored::Absent);
        } else if has_null && row.get(HEADER + index / 8)? >> (index % 8) & 1 == 0 {
            found.push(Stored::Null);
        } else {
            let (start, bytes, stored) = value(row, at, column)?;
            at = start + bytes;
            (at <= row.len()).then_some(())?;
            found.push(stored);
        }
    }
    Some(found)
}

/// Where the value begins that is stored behind this byte, its bytes, and what it is.
fn value(row: &[u8], at: usize, column: &Column) -> Option<(usize, usize, Stored)> {
    let alignment = match column.alignment {
        'c' => 1,
        's' => 2,
        'i' => 4,
        'd' => 8,
        _ => return None,
    };
    let aligned = at.next_multiple_of(alignment);
    if let Ok(bytes) = usize::try_from(column.length) {
        return Some((aligned, bytes, Stored::Inline(u32::try_from(bytes).ok()?)));
    }
    if column.length != -1 {
        return None;
    }
    // Padding is zero, and no header of one byte is.
    let start = if *row.get(at)? == 0 { aligned } else { at };
    let first = *row.get(start)?;
    if first == 1 {
        return (*row.get(start + 1)? == ON_DISK).then_some((start, POINTER, Stored::External));
    }
    let bytes = if first & 1 == 1 { u32::from(first >> 1) } else { long(row, start)? >> 2 };
    Some((start, bytes as usize, Stored::Inline(bytes)))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(length: i16, alignment: char) -> Column {
        Column { length, alignment, ..Column::default() }
    }

    /// A page with one row of these data and this bitmap.
    fn page(count: u16, bitmap: Option<u8>, data: &[u8]) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        let at = 7000;
        let length = 24 + data.len();
        page[12..18].copy_from_slice(&[28, 0, 0x58, 0x1B, 0, 0x20]);
        page[18..20].copy_from_slice(&SIZE_AND_VERSION.to_le_bytes());
        page[24..28].copy_from_slice(&(at as u32 | NORMAL << 15 | (length as u32) << 17).to_le_bytes());
        let row = &mut page[at..at + length];
        row[..4].copy_from_slice(&7u32.to_le_bytes());
        row[18..20].copy_from_slice(&count.to_le_bytes());
        row[20] = u8::from(bitmap.is_some());
        row[22] = 24;
        row[23] = bitmap.unwrap_or(0);
        row[24..].copy_from_slice(data);
        page
    }

    #[test]
    fn values_of_every_form_are_told_apart() {
        let columns = [
            column(1, 'c'),
            column(-1, 'i'),
            column(-1, 'i'),
            column(-1, 'i'),
            column(8, 'd'),
            column(4, 'i'),
        ];
        let mut data = vec![1, 3 << 1 | 1, b'a', b'b', 1, ON_DISK];
        data.extend([9; 16]);
        data.extend([0; 2]);
        data.extend((200u32 << 2 | 2).to_le_bytes());
        data.extend([8; 196]);
        let page = page(5, Some(0b0_1111), &data);
        let found = values(&page, 1, 7, &columns).unwrap();
        let inline = Stored::Inline;
        let expected = [inline(1), inline(3), Stored::External, inline(200), Stored::Null, Stored::Absent];
        assert_eq!(found, expected);
        assert_eq!(values(&page, 1, 8, &columns), None, "a row of another transaction");
        assert_eq!(values(&page, 2, 7, &columns), None, "no such item");
        assert_eq!(values(&page, 0, 7, &columns), None);
    }

    #[test]
    fn no_damaged_page_is_a_panic() {
        let columns = [column(-1, 'i'), column(4, 'i'), column(-1, 'd'), column(-2, 'c'), column(3, 'x')];
        let good = page(5, None, &[7; 60]);
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize
        };
        for _ in 0..20_000 {
            let mut bad = good.clone();
            for _ in 0..3 {
                let at = if random() % 2 == 0 { random() % 64 } else { 7000 + random() % 84 };
                bad[at] = random() as u8;
            }
            values(&bad, (random() % 3) as u16, 7, &columns[..1 + random() % 5]);
            values(&bad[..random() % PAGE_BYTES], 1, 7, &columns);
        }
    }
}
