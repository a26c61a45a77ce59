//! A row in the image of a page: which of its values are where. Pure.
//!
//! The page is taken apart by `pgshrink_advisor::heap_page`; here is what the collector asks of it.

use pgshrink_advisor::heap_page::varlena::is_external;
use pgshrink_advisor::heap_page::{Attribute, HeapPage, Shape};

/// A server's page.
pub(super) const PAGE_BYTES: usize = 8192;
/// `SizeOfPageHeaderData`.
const PAGE_HEADER: usize = 24;
/// Page size and layout version 4.
const SIZE_AND_VERSION: u16 = 0x2004;

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
/// `item` counts from 1, `shapes` are of all columns.
pub(super) fn values(page: &[u8], item: u16, xmin: u32, shapes: &[Shape]) -> Option<Vec<Stored>> {
    if !is_page(page) {
        return None;
    }
    let row = HeapPage::parse(page).ok()?.tuple(item).ok()?.filter(|row| row.xmin() == xmin)?;
    let attributes = row.attributes(shapes).ok()?;
    attributes.iter().zip(shapes).map(|(attribute, shape)| stored(attribute, shape)).collect()
}

fn stored(attribute: &Attribute<'_>, shape: &Shape) -> Option<Stored> {
    Some(match attribute {
        Attribute::Null => Stored::Null,
        Attribute::Absent => Stored::Absent,
        Attribute::Stored(bytes) if shape.is_varlena() && is_external(bytes) => Stored::External,
        Attribute::Stored(bytes) => Stored::Inline(u32::try_from(bytes.len()).ok()?),
    })
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_advisor::snapshot::Column;

    /// `LP_NORMAL`
    const NORMAL: u32 = 1;
    /// `VARTAG_ONDISK`
    const ON_DISK: u8 = 18;

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
        let shapes = Shape::of(&columns).unwrap();
        let found = values(&page, 1, 7, &shapes).unwrap();
        let inline = Stored::Inline;
        let expected = [inline(1), inline(3), Stored::External, inline(200), Stored::Null, Stored::Absent];
        assert_eq!(found, expected);
        assert_eq!(values(&page, 1, 8, &shapes), None, "a row of another transaction");
        assert_eq!(values(&page, 2, 7, &shapes), None, "no such item");
        assert_eq!(values(&page, 0, 7, &shapes), None);
    }

    #[test]
    fn no_damaged_page_is_a_panic() {
        let columns = [column(-1, 'i'), column(4, 'i'), column(-1, 'd'), column(-2, 'c'), column(3, 'c')];
        assert!(Shape::of(&[column(3, 'x')]).is_err());
        let shapes = Shape::of(&columns).unwrap();
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
            values(&bad, (random() % 3) as u16, 7, &shapes[..1 + random() % 5]);
            values(&bad[..random() % PAGE_BYTES], 1, 7, &shapes);
        }
    }
}
