//! Rows into pages.

/// `BLCKSZ`.
pub const PAGE_BYTES: usize = 8192;
/// `SizeOfPageHeaderData`.
const PAGE_HEADER_BYTES: usize = 24;
/// `sizeof(ItemIdData)`: what points to a row in its page.
const ITEM_BYTES: usize = 4;
/// `MAXIMUM_ALIGNOF`.
const MAXALIGN: usize = 8;
/// `MaxHeapTuplesPerPage`.
const ROWS_MAX: usize = (PAGE_BYTES - PAGE_HEADER_BYTES) / (24 + ITEM_BYTES);

/// Fills pages one after the other, as `VACUUM FULL` does. Since PostgreSQL 16, `CREATE TABLE AS` and COPY may leave some empty
/// pages at the end of a table, by which they extended it in advance.
///
/// Source: `raw_heap_insert` in `src/backend/access/heap/rewriteheap.c`, `RelationGetBufferForTuple` in `hio.c`.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    full: usize,
    /// Rows and bytes of the page that is being filled.
    rows: usize,
    used: usize,
    /// Left for updates, by the fillfactor.
    spared: usize,
}

impl Pages {
    /// No pages yet. `fillfactor` is that of the table: 10 to 100 per cent.
    pub fn new(fillfactor: u8) -> Pages {
        let spared = PAGE_BYTES * usize::from(100 - fillfactor.clamp(10, 100)) / 100;
        Pages { full: 0, rows: 0, used: 0, spared }
    }

    /// Adds a row of so many bytes, before it is aligned.
    pub fn add(&mut self, row_bytes: usize) {
        let bytes = row_bytes.next_multiple_of(MAXALIGN) + ITEM_BYTES;
        let room = PAGE_BYTES - PAGE_HEADER_BYTES;
        // A row that is larger than the rest of the fillfactor gets an empty page.
        if self.rows > 0 && (self.used + bytes + self.spared > room || self.rows == ROWS_MAX) {
            self.full += 1;
            (self.rows, self.used) = (0, 0);
        }
        self.rows += 1;
        self.used += bytes;
    }

    /// How many there are, the last one included.
    pub fn count(&self) -> usize {
        self.full + usize::from(self.rows > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(fillfactor: u8, rows: usize, row_bytes: usize) -> usize {
        let mut pages = Pages::new(fillfactor);
        (0..rows).for_each(|_| pages.add(row_bytes));
        pages.count()
    }

    #[test]
    fn a_page_takes_what_fits_and_no_more() {
        assert_eq!(pages(100, 0, 32), 0);
        // floor(8168 / (32 + 4)) = 226
        assert_eq!((pages(100, 226, 32), pages(100, 227, 32), pages(100, 226, 25)), (1, 2, 1));
        // floor((8168 - 819) / 36) = 204
        assert_eq!((pages(90, 204, 32), pages(90, 205, 32)), (1, 2));
        // Rows without a byte of data: 291 fit.
        assert_eq!((pages(100, 291, 24), pages(100, 292, 24)), (1, 2));
        assert_eq!(pages(10, 3, 7000), 3, "each row has a page");
    }
}
