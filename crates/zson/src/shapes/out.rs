//! A payload on its way: it grows only where there is room, so nothing is allocated for it.

use super::number::push_integer;

/// A payload on its way.
pub(super) struct Out<'o> {
    pub(super) bytes: &'o mut Vec<u8>,
    /// Bytes at most, for which there is memory.
    pub(super) most: usize,
}

impl Out<'_> {
    /// Whether so many bytes more fit.
    #[inline]
    pub(super) fn has_room(&self, more: usize) -> Option<()> {
        (self.bytes.len().checked_add(more)? <= self.most).then_some(())
    }

    pub(super) fn push(&mut self, byte: u8) -> Option<()> {
        self.has_room(1)?;
        self.bytes.push(byte);
        Some(())
    }

    /// Returns where they begin.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Option<usize> {
        self.has_room(bytes.len())?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        Some(start)
    }

    pub(super) fn varint(&mut self, value: usize) -> Option<()> {
        self.has_room(VARINT_MAX)?;
        push_varint(value, self.bytes);
        Some(())
    }

    pub(super) fn integer(&mut self, integer: i128) -> Option<()> {
        self.has_room(size_of::<i128>())?;
        push_integer(integer, self.bytes);
        Some(())
    }

    /// Room for tokens, all of them `token`. Returns where they begin.
    pub(super) fn tokens(&mut self, count: usize, token: u8) -> Option<usize> {
        self.has_room(count)?;
        let start = self.bytes.len();
        self.bytes.resize(start + count, token);
        Some(start)
    }

    /// Puts a number before what is behind `start`.
    pub(super) fn insert_varint(&mut self, start: usize, value: usize) -> Option<()> {
        let end = self.bytes.len();
        self.varint(value)?;
        let moved = self.bytes.len() - end;
        self.bytes.get_mut(start..)?.rotate_right(moved);
        Some(())
    }
}

/// LEB128 of a `u32`.
const VARINT_MAX: usize = 5;

/// LEB128.
pub(super) fn push_varint(mut value: usize, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
