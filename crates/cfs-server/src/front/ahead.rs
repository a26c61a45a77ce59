//! Reading ahead of a process: which parts of a container's file the kernel is asked for.
//!
//! The server asks for one page at a time, and tens of records may be in 4 KB of the file. Asking for these once is enough;
//! each time costs a call.

use pgshrink_cfs::FileRange;

/// The kernel reads pages of this size.
const KERNEL_PAGE_BYTES: u64 = 4096;

/// What one open file was asked for last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// In pages of the kernel: the first, and the one behind the last.
    last: (u64, u64),
}

impl Ahead {
    /// The bytes to ask for so that a record is read ahead; `None` if the last request had them all.
    pub(crate) fn take(&mut self, record: FileRange) -> Option<FileRange> {
        let first = record.offset / KERNEL_PAGE_BYTES;
        let end = (record.offset + record.length).div_ceil(KERNEL_PAGE_BYTES);
        if self.last.0 <= first && end <= self.last.1 {
            return None;
        }
        self.last = (first, end);
        Some(FileRange { offset: first * KERNEL_PAGE_BYTES, length: (end - first) * KERNEL_PAGE_BYTES })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_one_page_of_the_kernel_are_asked_for_once() {
        let mut ahead = Ahead::default();
        let asked = (0..100).filter_map(|n| ahead.take(FileRange { offset: 8192 + n * 128, length: 128 }));
        let asked: Vec<u64> = asked.map(|range| range.offset).collect();
        assert_eq!(asked, [8192, 12288, 16384, 20480]);
    }

    #[test]
    fn a_record_over_a_boundary_is_asked_for_whole_and_so_is_one_elsewhere() {
        let mut ahead = Ahead::default();
        let over = FileRange { offset: 4000, length: 200 };
        assert_eq!(ahead.take(over), Some(FileRange { offset: 0, length: 8192 }));
        assert_eq!(ahead.take(over), None);
        let elsewhere = FileRange { offset: 40960, length: 16 };
        assert_eq!(ahead.take(elsewhere), Some(FileRange { offset: 40960, length: 4096 }));
        assert!(ahead.take(over).is_some());
    }
}
