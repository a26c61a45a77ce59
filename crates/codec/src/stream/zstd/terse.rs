//! A zstd encoder for chunks of a few hundred bytes: messages of a dialogue, each flushed alone.
//!
//! zstd itself spends most of a small flush on building entropy tables. This one uses the predefined tables and
//! writes literals as they are, which for so few bytes costs little or nothing in size, and takes a tenth of the
//! time and memory. It can also take a chunk back exactly, without losing its context.
//!
//! A chunk is one block: compressed, or raw where that is not longer (RFC 8878, 3.1.1.2).

use super::sequence::{self, Sequence};

/// How far back it refers.
const WINDOW_LOG_MAX: u32 = 16;
/// The longest chunk it takes, if the window is not shorter.
const CHUNK_MAX: usize = 2 << 10;
const HASH_LOG: u32 = 13;
/// Each position of a chunk is entered once, and a few before it.
const DISPLACED_MAX: usize = 2 * CHUNK_MAX;
/// A match that takes a new offset pays from here on.
const MATCH_MIN: usize = 5;
/// A match at a repeated offset pays from here on.
const REPEAT_MATCH_MIN: usize = 3;
const MATCH_MASK: u64 = (1 << (8 * MATCH_MIN)) - 1;
const REPEAT_MASK: u64 = (1 << (8 * REPEAT_MATCH_MIN)) - 1;
/// What a repeated offset saves over a new one, in bytes.
const REPEAT_GAIN: usize = 2;
/// History and room for chunks.
const BUFFER_BYTES: usize = 2 << WINDOW_LOG_MAX;
/// Reads of eight bytes may begin at any byte.
const READ_BYTES: usize = 8;
/// The offsets each frame begins with.
const FIRST_OFFSETS: [u32; 3] = [1, 4, 8];

pub(super) struct Terse {
    window: usize,
    /// What the decoder has, then room for chunks until the last `window` bytes move to the front.
    buffer: Box<[u8; BUFFER_BYTES + READ_BYTES]>,
    /// Latest position of each hash; zero in an unused entry.
    table: Box<[u32; 1 << HASH_LOG]>,
    place: Place,
    /// The place before the pending chunk, and the entries it displaced.
    before: Place,
    displaced: Box<[Displaced; DISPLACED_MAX]>,
    displaced_count: usize,
    sequences: Vec<Sequence>,
}

#[derive(Copy, Clone, Default)]
struct Displaced {
    slot: u32,
    position: u32,
}

/// Positions count from the buffer's begin.
#[derive(Copy, Clone)]
struct Place {
    /// Where the frame's bytes begin.
    frame: usize,
    /// Where the next chunk goes.
    end: usize,
    /// The first position not in the table yet.
    unknown: usize,
    offsets: [u32; 3],
}

impl Terse {
    pub(super) fn new(window_log: u32) -> Self {
        let window = 1 << window_log.min(WINDOW_LOG_MAX);
        let place = Place { frame: 0, end: 0, unknown: 0, offsets: FIRST_OFFSETS };
        Terse {
            window,
            buffer: Box::new([0; BUFFER_BYTES + READ_BYTES]),
            table: Box::new([0; 1 << HASH_LOG]),
            place,
            before: place,
            displaced: Box::new([Displaced::default(); DISPLACED_MAX]),
            displaced_count: 0,
            sequences: Vec::new(),
        }
    }

    /// The window that its frames must declare, as a power of two.
    pub(super) fn window_log(&self) -> u32 {
        self.window.ilog2()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buffer.len()
            + size_of_val(&*self.table)
            + size_of_val(&*self.displaced)
            + self.sequences.capacity() * size_of::<Sequence>()
    }

    /// The longest chunk it takes: a block must not be longer than the window.
    pub(super) fn chunk_max(&self) -> usize {
        CHUNK_MAX.min(self.window)
    }

    /// Appends `input`, at most `chunk_max` bytes and not none, as a block. `new_frame`: it refers to nothing
    /// earlier.
    pub(super) fn encode(&mut self, input: &[u8], new_frame: bool, last_block: bool, out: &mut Vec<u8>) {
        self.make_room(input.len());
        self.before = self.place;
        self.displaced_count = 0;
        let start = self.place.end;
        self.buffer[start..start + input.len()].copy_from_slice(input);
        self.place.end += input.len();
        if new_frame {
            (self.place.frame, self.place.unknown, self.place.offsets) = (start, start, FIRST_OFFSETS);
        }
        let (offsets, header) = (self.place.offsets, out.len());
        let literals_end = self.find_sequences(start);
        out.extend_from_slice(&[0; 3]);
        self.write_block(start, literals_end, out);
        let mut size = out.len() - header - 3;
        let mut kind = 2;
        if size >= input.len() {
            // A raw block leaves the decoder's offsets alone.
            self.place.offsets = offsets;
            out.truncate(header + 3);
            out.extend_from_slice(input);
            (size, kind) = (input.len(), 0);
        }
        let block = (size as u32) << 3 | kind << 1 | u32::from(last_block);
        out[header..header + 3].copy_from_slice(&block.to_le_bytes()[..3]);
    }

    /// As if the last chunk had never been.
    pub(super) fn take_back(&mut self) {
        for entry in self.displaced[..self.displaced_count].iter().rev() {
            self.table[entry.slot as usize] = entry.position;
        }
        self.displaced_count = 0;
        self.place = self.before;
    }

    fn make_room(&mut self, len: usize) {
        if self.place.end + len <= BUFFER_BYTES {
            return;
        }
        let shift = self.place.end.saturating_sub(self.window);
        self.buffer.copy_within(shift..self.place.end, 0);
        for position in self.table.iter_mut() {
            *position = position.saturating_sub(shift as u32);
        }
        self.place.frame = self.place.frame.saturating_sub(shift);
        self.place.unknown -= shift;
        self.place.end -= shift;
    }

    /// Fills `sequences` for what stands from `start` on; returns where the last one ends.
    fn find_sequences(&mut self, start: usize) -> usize {
        self.sequences.clear();
        let end = self.place.end;
        // The last positions' hashes would take in bytes that are not there yet.
        let hashable = (end + 1).saturating_sub(MATCH_MIN);
        let mut unknown = self.place.unknown;
        while unknown < hashable.min(start) {
            self.enter(unknown, self.read(unknown));
            unknown += 1;
        }
        let (mut at, mut anchor) = (start, start);
        while at < hashable {
            let here = self.read(at);
            let candidate = self.enter(at, here);
            let (offset, length) = self.find_match(at, here, candidate);
            if length == 0 {
                at += 1;
                continue;
            }
            let match_end = at + length;
            self.enter_some(at + 1, match_end.min(hashable));
            while at > anchor
                && at - offset > self.place.frame
                && self.byte(at - offset - 1) == self.byte(at - 1)
            {
                at -= 1;
            }
            self.push(at - anchor, match_end - at, offset);
            at = match_end;
            anchor = at;
        }
        self.place.unknown = unknown.max(hashable);
        anchor
    }

    /// Offset and length of a match for `here`, what stands at `at`; length 0 if there is none. `candidate` is the
    /// last position of the same hash.
    #[inline]
    fn find_match(&self, at: usize, here: u64, candidate: usize) -> (usize, usize) {
        let end = self.place.end;
        let low = self.place.frame.max(at.saturating_sub(self.window));
        let (mut best, mut length) = (0, 0);
        for offset in [self.place.offsets[0], self.place.offsets[1]] {
            let offset = offset as usize;
            if offset > at - low || (self.read(at - offset) ^ here) & REPEAT_MASK != 0 {
                continue;
            }
            let found = self.common(at - offset, at, end);
            if found > length {
                (best, length) = (offset, found);
            }
        }
        if candidate >= low && candidate > 0 && (self.read(candidate) ^ here) & MATCH_MASK == 0 {
            let found = self.common(candidate, at, end);
            if found > length + REPEAT_GAIN || length == 0 {
                (best, length) = (at - candidate, found);
            }
        }
        (best, length)
    }

    /// Enters the first positions of a match and then each eighth: most of it is known from where it was found, and
    /// its begin is where the next copy will be noticed.
    #[inline]
    fn enter_some(&mut self, mut at: usize, end: usize) {
        let near = end.min(at + 4);
        while at < end {
            self.enter(at, self.read(at));
            at += if at < near { 1 } else { 8 };
        }
    }

    fn push(&mut self, literals: usize, length: usize, offset: usize) {
        let offset = offset as u32;
        let [first, second, third] = self.place.offsets;
        // Directly after a match the first offset makes no sense, so the others move up (RFC 8878, 3.1.1.5).
        let repeats = if literals > 0 { [first, second, third] } else { [second, third, first - 1] };
        let repeat = repeats.iter().position(|&repeat| repeat == offset);
        self.place.offsets = match repeat.map(|index| index + usize::from(literals == 0)) {
            Some(0) => [first, second, third],
            Some(1) => [second, first, third],
            _ => [offset, first, second],
        };
        let offset_value = repeat.map_or(offset + 3, |index| index as u32 + 1);
        self.sequences.push(Sequence { literals: literals as u32, length: length as u32, offset_value });
    }

    /// Writes a compressed block's content.
    fn write_block(&self, start: usize, literals_end: usize, out: &mut Vec<u8>) {
        let last_literals = self.place.end - literals_end;
        let literals: usize =
            self.sequences.iter().map(|s| s.literals as usize).sum::<usize>() + last_literals;
        // Raw literals with a size of 5, 12 or 20 bits.
        match literals {
            0..32 => out.push((literals << 3) as u8),
            32..4096 => out.extend_from_slice(&((literals << 4 | 1 << 2) as u16).to_le_bytes()),
            _ => out.extend_from_slice(&((literals << 4 | 3 << 2) as u32).to_le_bytes()[..3]),
        }
        let mut at = start;
        for sequence in &self.sequences {
            out.extend_from_slice(&self.buffer[at..at + sequence.literals as usize]);
            at += (sequence.literals + sequence.length) as usize;
        }
        out.extend_from_slice(&self.buffer[at..self.place.end]);
        sequence::write(&self.sequences, out);
    }

    /// Enters a position, at which `here` stands, into the table; returns the one it displaces.
    #[inline]
    fn enter(&mut self, at: usize, here: u64) -> usize {
        const PRIME: u64 = 889_523_592_379;
        let bytes = here << (64 - 8 * MATCH_MIN as u32);
        let slot = (bytes.wrapping_mul(PRIME) >> (64 - HASH_LOG)) as usize;
        let position = std::mem::replace(&mut self.table[slot], at as u32);
        self.displaced[self.displaced_count % DISPLACED_MAX] = Displaced { slot: slot as u32, position };
        self.displaced_count += 1;
        position as usize
    }

    /// How many bytes at both positions agree, up to `end`.
    #[inline]
    fn common(&self, from: usize, at: usize, end: usize) -> usize {
        let most = end - at;
        let mut length = 0;
        while length < most {
            let difference = self.read(from + length) ^ self.read(at + length);
            if difference != 0 {
                return most.min(length + difference.trailing_zeros() as usize / 8);
            }
            length += READ_BYTES;
        }
        most
    }

    #[inline]
    fn byte(&self, at: usize) -> u8 {
        self.buffer[at & (BUFFER_BYTES - 1)]
    }

    #[inline]
    fn read(&self, at: usize) -> u64 {
        let at = at & (BUFFER_BYTES - 1);
        let bytes = self.buffer[at..at + READ_BYTES].try_into();
        bytes.map_or(0, u64::from_le_bytes)
    }
}
