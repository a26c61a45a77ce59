//! The streams a transformed page consists of: the head with all that describes, the body with columns, the
//! rows with bytes that stay as they were, and loose bits. They are kept apart because bytes of one kind
//! compress better together; the first three are joined for the codec, loose bits pass it by.

use super::{Error, unpack};

/// Where an encoder writes.
#[derive(Default)]
pub(super) struct Sink {
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
    pub(super) rows: Vec<u8>,
    /// Values of columns, as a measure of what the way back takes.
    pub(super) values: u32,
    /// Pieces of rows, likewise.
    pub(super) pieces: u32,
    /// Bits without a pattern: a codec would gain nothing, and code all others worse.
    pub(super) loose: Vec<u8>,
    /// Where in the rows the values of another attribute begin.
    pub(super) turns: Vec<usize>,
}

/// Row streams at most that many pages have together, [by attributes](Source::turn).
pub(super) const ROW_STREAMS_MAX: usize = 16;

/// Where a decoder reads. Whatever is not there is an error.
pub(super) struct Source<'a> {
    head: &'a [u8],
    body: &'a [u8],
    /// Of the row streams, the current one; its place in `streams` is stale.
    rows: &'a [u8],
    loose: &'a [u8],
    streams: [&'a [u8]; ROW_STREAMS_MAX],
    current: usize,
    /// The last row stream that is in use; the attributes that follow share it.
    last: usize,
}

impl Sink {
    pub(super) fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
        self.rows.clear();
        self.loose.clear();
        self.turns.clear();
        (self.values, self.pieces) = (0, 0);
    }

    /// Whether it can be joined: streams of a page never come near what lengths can say, but for damage.
    pub(super) fn fits(&self) -> bool {
        self.size() <= u16::MAX.into()
    }

    /// Bytes of all streams.
    pub(super) fn size(&self) -> usize {
        self.head.len() + self.body.len() + self.rows.len() + self.loose.len()
    }

    /// From here on, the rows are those of another attribute.
    pub(super) fn turn(&mut self) {
        self.turns.push(self.rows.len());
    }

    /// Where all streams end, for [`Sink::rewind`].
    pub(super) fn mark(&self) -> [usize; 5] {
        [self.head.len(), self.body.len(), self.rows.len(), self.loose.len(), self.turns.len()]
    }

    /// Takes back what was written since.
    pub(super) fn rewind(&mut self, mark: [usize; 5]) {
        self.turns.truncate(mark[4]);
        let streams = [&mut self.head, &mut self.body, &mut self.rows, &mut self.loose];
        streams.into_iter().zip(mark).for_each(|(stream, len)| stream.truncate(len));
    }

    /// Appends those for the codec as one: the first byte of the head, lengths, and the streams.
    pub(super) fn join(&self, out: &mut Vec<u8>) {
        out.push(self.head[0]);
        out.extend_from_slice(&(self.head.len() as u16 - 1).to_le_bytes());
        out.extend_from_slice(&(self.body.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.head[1..]);
        out.extend_from_slice(&self.rows);
        out.extend_from_slice(&self.body);
    }

    /// Seven bits a byte, lowest first.
    pub(super) fn head_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.head.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.head.push(value as u8);
    }

    /// Values of `width` bits (1 to 32), the lowest bit first, padded to a byte.
    pub(super) fn bits(&mut self, width: u32, values: impl Iterator<Item = u32>) {
        pack(&mut self.body, width, values);
    }
}

impl<'a> Source<'a> {
    pub(super) fn split(joined: &'a [u8], loose: &'a [u8]) -> Result<Self, Error> {
        let [_, a, b, c, d, rest @ ..] = joined else { return Err(SHORT) };
        let head_len = usize::from(u16::from_le_bytes([*a, *b]));
        let body_len = usize::from(u16::from_le_bytes([*c, *d]));
        let rows_len = rest.len().checked_sub(head_len + body_len).ok_or(SHORT)?;
        let (head, rest) = rest.split_at(head_len);
        let (rows, body) = rest.split_at(rows_len);
        Ok(Source::new(head, &[rows], body, loose))
    }

    /// What one page or many have left in streams. There must be at least one of rows, and at most
    /// [`ROW_STREAMS_MAX`].
    pub(super) fn new(head: &'a [u8], rows: &[&'a [u8]], body: &'a [u8], loose: &'a [u8]) -> Self {
        let mut streams = [&[][..]; ROW_STREAMS_MAX];
        streams.iter_mut().zip(rows).for_each(|(slot, stream)| *slot = stream);
        let last = rows.len().clamp(1, ROW_STREAMS_MAX) - 1;
        Source { head, body, rows: streams[0], loose, streams, current: 0, last }
    }

    /// Goes back to the first row stream, as each page does.
    pub(super) fn begin_page(&mut self) {
        self.go_to(0);
    }

    /// Goes on to the next row stream, as each attribute with rows of its own does, unless it is the last.
    pub(super) fn turn(&mut self) {
        if self.current < self.last {
            self.go_to(self.current + 1);
        }
    }

    fn go_to(&mut self, stream: usize) {
        self.streams[self.current] = self.rows;
        self.current = stream;
        self.rows = self.streams[stream];
    }

    /// Everything must have been used: what is left over was not written by us.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        self.go_to(0);
        let rest = [self.head, self.body, self.loose];
        if rest.iter().chain(&self.streams).all(|stream| stream.is_empty()) {
            Ok(())
        } else {
            Err(Error::Corrupt { what: "bytes left over" })
        }
    }

    pub(super) fn head_byte(&mut self) -> Result<u8, Error> {
        let (&byte, rest) = self.head.split_first().ok_or(SHORT)?;
        self.head = rest;
        Ok(byte)
    }

    /// Takes the next byte of the head if it is as wanted.
    pub(super) fn head_next(&mut self, wanted: impl Fn(u8) -> bool) -> Option<u8> {
        let (&byte, rest) = self.head.split_first().filter(|(byte, _)| wanted(**byte))?;
        self.head = rest;
        Some(byte)
    }

    pub(super) fn head(&mut self, len: usize) -> Result<&'a [u8], Error> {
        take(&mut self.head, len)
    }

    pub(super) fn body(&mut self, len: usize) -> Result<&'a [u8], Error> {
        take(&mut self.body, len)
    }

    pub(super) fn rows(&mut self, len: usize) -> Result<&'a [u8], Error> {
        take(&mut self.rows, len)
    }

    pub(super) fn head_varint(&mut self) -> Result<u32, Error> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.head_byte()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::Corrupt { what: "a number of more than five bytes" })
    }

    /// The inverse of [`Sink::bits`].
    pub(super) fn bits(&mut self, width: u32, values: &mut [u32]) -> Result<(), Error> {
        let bytes = self.body((values.len() * width as usize).div_ceil(8))?;
        unpack::by_width(width, bytes, values);
        Ok(())
    }

    /// Fills `target` from the rows.
    pub(super) fn rows_into(&mut self, target: &mut [u8]) -> Result<(), Error> {
        copy(target, self.rows(target.len())?);
        Ok(())
    }

    pub(super) fn loose(&mut self, len: usize) -> Result<&'a [u8], Error> {
        take(&mut self.loose, len)
    }

    /// All that is left of the loose bits.
    pub(super) fn loose_rest(&self) -> &'a [u8] {
        self.loose
    }
}

/// Appends values of `width` bits (1 to 32), the lowest bit first, padded to a byte. The inverse is
/// [`unpack::by_width`].
pub(super) fn pack(stream: &mut Vec<u8>, width: u32, values: impl Iterator<Item = u32>) {
    let (mut pending, mut count) = (0u64, 0);
    for value in values {
        pending |= u64::from(value) << count;
        count += width;
        if count >= 32 {
            stream.extend_from_slice(&(pending as u32).to_le_bytes());
            pending >>= 32;
            count -= 32;
        }
    }
    let rest = count.div_ceil(8) as usize;
    stream.extend_from_slice(&pending.to_le_bytes()[..rest]);
}

/// Copies what mostly is a few bytes, for which a call would cost more than the copying. Both are of one
/// length.
fn copy(to: &mut [u8], from: &[u8]) {
    match to.len() {
        17.. => to.copy_from_slice(from),
        8..=16 => ends::<8>(to, from),
        4..=7 => ends::<4>(to, from),
        2 | 3 => ends::<2>(to, from),
        _ => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
    }
}

/// Copies the first and the last `N` bytes, which may overlap.
fn ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<N>(), from.last_chunk()) {
        *to = *from;
    }
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], Error> {
    let (taken, rest) = bytes.split_at_checked(len).ok_or(SHORT)?;
    *bytes = rest;
    Ok(taken)
}

const SHORT: Error = Error::Corrupt { what: "shorter than what it describes" };
