//! The checksums of pages, as a server verifies them while it sends a base backup.
//!
//! The rules are those of `sendFile` in `src/backend/backup/basebackup.c`: a page that was never filled has no checksum, and
//! one that was changed since the backup's start is in the WAL as a whole and may be half written in its file. Any other page
//! whose checksum is wrong was either being written when it was read, which a second look shows, or is damaged.

use pgshrink_cfs::page::{PAGE_SIZE, checksum};

use crate::wal::Lsn;

/// `pd_checksum` and `pd_upper` of `PageHeaderData` (`src/include/storage/bufpage.h`); `pd_lsn` is the first field.
const CHECKSUM_AT: usize = 8;
const UPPER_AT: usize = 14;

/// A page whose checksum is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongPage {
    /// Its number in the relation.
    pub block: u32,
    /// What it says.
    pub stored: u16,
    /// What its content gives.
    pub computed: u16,
}

/// The pages of a piece of a relation's file whose checksums are wrong, in order.
///
/// The piece begins with the page `first_block` of its relation. Bytes behind the last whole page are not looked at. Pages
/// changed at or after `start`, the backup's start, are not either.
pub fn wrong_pages(piece: &[u8], first_block: u32, start: Lsn) -> Vec<WrongPage> {
    let pages = piece.as_chunks::<PAGE_SIZE>().0.iter().zip(0..);
    let wrong = pages.filter_map(|(page, index)| wrong(page, first_block.wrapping_add(index), start));
    wrong.collect()
}

fn wrong(page: &[u8; PAGE_SIZE], block: u32, start: Lsn) -> Option<WrongPage> {
    let is_new = page[UPPER_AT..UPPER_AT + 2] == [0; 2];
    if is_new || lsn(page) >= start {
        return None;
    }
    let stored = u16::from_le_bytes([page[CHECKSUM_AT], page[CHECKSUM_AT + 1]]);
    let computed = checksum(page, block);
    (stored != computed).then_some(WrongPage { block, stored, computed })
}

/// The high half of an LSN comes first.
fn lsn(page: &[u8; PAGE_SIZE]) -> Lsn {
    let half = |at: usize| {
        let bytes = [page[at], page[at + 1], page[at + 2], page[at + 3]];
        u64::from(u32::from_le_bytes(bytes))
    };
    Lsn(half(0) << 32 | half(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with that LSN, and the checksum that it should have at `block`.
    fn page(lsn: u64, block: u32) -> [u8; PAGE_SIZE] {
        let mut page = [7; PAGE_SIZE];
        page[..4].copy_from_slice(&((lsn >> 32) as u32).to_le_bytes());
        page[4..8].copy_from_slice(&(lsn as u32).to_le_bytes());
        let sum = checksum(&page, block);
        page[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_le_bytes());
        page
    }

    #[test]
    fn a_wrong_page_is_found_unless_it_is_new_or_newer_than_the_start() {
        let start = Lsn(0x5_0000_0010);
        let mut pages: Vec<_> = (0..6).map(|index| page(0x5_0000_000f, 1000 + index)).collect();
        pages[2][5000] ^= 1;
        // Newer, and torn.
        pages[3] = page(0x5_0000_0010, 1003);
        pages[3][5000] ^= 1;
        pages[4] = [0; PAGE_SIZE];
        // The right page in the wrong place.
        pages[5] = page(1, 1004);
        let mut piece = pages.concat();
        piece.extend_from_slice(&[9; 100]);
        let found = wrong_pages(&piece, 1000, start);
        assert_eq!(found.iter().map(|page| page.block).collect::<Vec<_>>(), [1002, 1005]);
        assert_eq!(found[0].stored, checksum(&page(0x5_0000_000f, 1002), 1002));
        assert_ne!(found[0].stored, found[0].computed);
        assert_eq!(wrong_pages(&piece, 1000, Lsn(0)), []);
    }
}
