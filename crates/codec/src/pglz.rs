//! PostgreSQL's own LZ format, pglz (`src/common/pg_lzcompress.c`).
//!
//! A sequence of groups: a control byte, whose bits from the lowest on say of each of eight items whether it is a
//! literal byte (0) or a reference (1). A reference is 12 bits of distance (1 to 4095) and a length: two bytes
//! `dddd llll  dddddddd` for lengths 3 to 17, the high bits of the distance first, and with `llll` = 15 a third
//! byte for 18 to 273. There is no header and no end mark; the raw size is kept elsewhere (in a datum, in the
//! four bytes before).
//!
//! [`compress`] finds the same matches as the server on x86-64, so its output is the server's byte for byte:
//! the hash takes the server's signed `char`.

use crate::Error;
use crate::algorithm::Algorithm;

const MATCH_MAX: usize = 273;
const DISTANCE_MAX: usize = 0x0fff;
const HISTORY_ENTRIES: usize = 4096;
const LISTS_MAX: usize = 8192;
/// Index 0 of the history is no entry.
const NONE: u16 = 0;

/// When compression is worth it and how hard to look (`PGLZ_Strategy`).
#[derive(Copy, Clone, Debug)]
pub struct Strategy {
    /// Shorter inputs are left alone.
    pub input_size_min: usize,
    /// Of what must be saved, in percent of the input. None: the result may even be larger.
    pub saving_percent_min: Option<u8>,
    /// Give up when so many bytes were written without one reference.
    pub first_success_by: usize,
    /// A match this long ends the search.
    pub match_size_good: usize,
    /// By how many percent that lowers at each further candidate.
    pub match_size_drop: usize,
}

impl Strategy {
    /// What the server uses for TOAST (`PGLZ_strategy_default`).
    pub const DEFAULT: Strategy = Strategy {
        input_size_min: 32,
        saving_percent_min: Some(25),
        first_success_by: 1024,
        match_size_good: 128,
        match_size_drop: 10,
    };
    /// Whatever becomes smaller (`PGLZ_strategy_always`).
    pub const ALWAYS: Strategy = Strategy {
        input_size_min: 0,
        saving_percent_min: Some(0),
        first_success_by: usize::MAX,
        match_size_good: 128,
        match_size_drop: 6,
    };
    /// Whatever the result's size: for callers that need some result for each input.
    pub const UNCONDITIONAL: Strategy = Strategy { saving_percent_min: None, ..Strategy::ALWAYS };
}

/// The most bytes that `raw_len` bytes can become: one control byte for eight literals.
pub const fn bound(raw_len: usize) -> usize {
    raw_len + raw_len.div_ceil(8)
}

/// Reusable memory of [`compress`], 72 KiB.
pub struct Workspace {
    /// First entry of each hash's list.
    heads: Box<[u16; LISTS_MAX]>,
    entries: Box<[Entry; HISTORY_ENTRIES + 1]>,
}

/// A position in the history, linked with those of the same hash, latest first.
#[derive(Copy, Clone, Default)]
struct Entry {
    next: u16,
    previous: u16,
    list: u16,
    position: u32,
}

impl Workspace {
    /// Empty memory.
    pub fn new() -> Self {
        Workspace {
            heads: Box::new([NONE; LISTS_MAX]),
            entries: Box::new([Entry::default(); HISTORY_ENTRIES + 1]),
        }
    }
}

impl Default for Workspace {
    fn default() -> Self {
        Self::new()
    }
}

/// Appends `input` compressed to `out`. False, and nothing appended: the strategy says it does not pay, as the
/// server's function returns -1.
pub fn compress(workspace: &mut Workspace, strategy: &Strategy, input: &[u8], out: &mut Vec<u8>) -> bool {
    if input.len() < strategy.input_size_min || u32::try_from(input.len()).is_err() {
        return false;
    }
    let size_max = match strategy.saving_percent_min {
        Some(percent) => result_size_max(input.len(), percent),
        None => usize::MAX,
    };
    let start = out.len();
    let paid = History::new(workspace, input).run(strategy, size_max, out);
    if !paid {
        out.truncate(start);
    }
    paid
}

/// Decompresses into exactly `raw_len` bytes, appended to `out`.
///
/// The server tolerates a last reference that is longer than what is missing; no compressor writes one, and here
/// it is [`Error::Corrupt`] like everything else that does not fit.
pub fn decompress(input: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    let (start, end) = (out.len(), out.len() + raw_len);
    // One control byte and eight longest references are 25 bytes.
    if raw_len as u64 > input.len() as u64 * 8 * MATCH_MAX as u64 / 25 + MATCH_MAX as u64 {
        return Err(corrupt(0, "too short for the promised size"));
    }
    out.reserve(raw_len);
    let mut rest = input.iter();
    let at = |rest: &std::slice::Iter<'_, u8>| input.len() - rest.len();
    let failed = 'groups: loop {
        let Some(&control) = rest.next() else { break None };
        for bit in 0..8 {
            if out.len() == end {
                // Unused bits of the last control byte.
                break;
            }
            let Some(&first) = rest.next() else { break 'groups None };
            if control & (1 << bit) == 0 {
                out.push(first);
                continue;
            }
            let Some((distance, length)) = reference(first, &mut rest) else {
                break 'groups Some("truncated reference");
            };
            if distance == 0 || distance > out.len() - start {
                break 'groups Some("reference to before the begin");
            }
            if length > end - out.len() {
                break 'groups Some("longer than the promised size");
            }
            repeat(out, distance, length);
        }
        if out.len() == end {
            break None;
        }
    };
    let failed = failed.or(match (out.len() == end, rest.len()) {
        (true, 0) => None,
        (true, _) => Some("bytes after the promised size"),
        (false, _) => Some("shorter than the promised size"),
    });
    match failed {
        None => Ok(()),
        Some(detail) => {
            out.truncate(start);
            Err(corrupt(at(&rest), detail))
        }
    }
}

/// The rest of a reference: distance and length.
fn reference(first: u8, rest: &mut std::slice::Iter<'_, u8>) -> Option<(usize, usize)> {
    let low = *rest.next()?;
    let distance = usize::from(first & 0xf0) << 4 | usize::from(low);
    let length = usize::from(first & 0x0f) + 3;
    let more = if length == 18 { usize::from(*rest.next()?) } else { 0 };
    Some((distance, length + more))
}

/// Appends `length` bytes from `distance` before the end; the ranges may overlap.
fn repeat(out: &mut Vec<u8>, distance: usize, length: usize) {
    let mut left = length;
    let from = out.len() - distance;
    while left > 0 {
        // Each turn doubles what there is to copy.
        let step = left.min(out.len() - from);
        out.extend_from_within(from..from + step);
        left -= step;
    }
}

fn corrupt(offset: usize, detail: &'static str) -> Error {
    Error::Corrupt { algorithm: Algorithm::Pglz, offset: offset as u64, detail }
}

fn result_size_max(raw_len: usize, saving_percent: u8) -> usize {
    let percent = 100 - usize::from(saving_percent.min(99));
    if raw_len > i32::MAX as usize / 100 { raw_len / 100 * percent } else { raw_len * percent / 100 }
}

struct History<'a> {
    workspace: &'a mut Workspace,
    input: &'a [u8],
    mask: usize,
    /// The entry to be used next.
    next: usize,
    /// All entries were used once.
    recycling: bool,
}

impl<'a> History<'a> {
    fn new(workspace: &'a mut Workspace, input: &'a [u8]) -> Self {
        // Clearing fewer lists makes short inputs cheaper.
        let lists = match input.len() {
            0..128 => 512,
            128..256 => 1024,
            256..512 => 2048,
            512..1024 => 4096,
            _ => LISTS_MAX,
        };
        workspace.heads[..lists].fill(NONE);
        History { workspace, input, mask: lists - 1, next: 1, recycling: false }
    }

    fn run(mut self, strategy: &Strategy, size_max: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let mut output = Output { out, control_at: start, bits: 8 };
        let match_size_good = strategy.match_size_good.clamp(17, MATCH_MAX);
        let mut found_match = false;
        let mut at = 0;
        while at < self.input.len() {
            let written = output.out.len() - start;
            if written >= size_max || (!found_match && written >= strategy.first_success_by) {
                return false;
            }
            let length = match self.find(at, match_size_good, strategy.match_size_drop.min(100)) {
                Some((distance, length)) => {
                    output.reference(distance, length);
                    found_match = true;
                    length
                }
                None => {
                    output.literal(self.input[at]);
                    1
                }
            };
            for _ in 0..length {
                self.add(at);
                at += 1;
            }
        }
        // An empty input is an empty result.
        output.out.len() - start < size_max || self.input.is_empty()
    }

    /// Distance and length of the best match for what stands at `at`.
    fn find(&self, at: usize, match_size_good: usize, drop: usize) -> Option<(usize, usize)> {
        let (mut length, mut distance, mut good) = (0, 0, match_size_good);
        let ahead = &self.input[at..self.input.len().min(at + MATCH_MAX)];
        let mut entry = self.workspace.heads[self.hash(at)];
        while entry != NONE {
            let Entry { next, position, .. } = self.workspace.entries[usize::from(entry)];
            let position = position as usize;
            if at - position >= DISTANCE_MAX {
                break;
            }
            let common = common_prefix(ahead, &self.input[position..]);
            if common > length {
                (length, distance) = (common, at - position);
            }
            entry = next;
            if entry != NONE {
                if length >= good {
                    break;
                }
                good -= good * drop / 100;
            }
        }
        (length > 2).then_some((distance, length))
    }

    fn add(&mut self, at: usize) {
        let list = self.hash(at);
        let Workspace { heads, entries } = &mut *self.workspace;
        let new = self.next;
        if self.recycling {
            let Entry { next, previous, list, .. } = entries[new];
            if previous == NONE {
                heads[usize::from(list)] = next;
            } else {
                entries[usize::from(previous)].next = next;
            }
            entries[usize::from(next)].previous = previous;
        }
        let next = heads[list];
        entries[new] = Entry { next, previous: NONE, list: list as u16, position: at as u32 };
        // Entry 0 is no entry and may be written to.
        entries[usize::from(next)].previous = new as u16;
        heads[list] = new as u16;
        self.next += 1;
        if self.next > HISTORY_ENTRIES {
            self.next = 1;
            self.recycling = true;
        }
    }

    fn hash(&self, at: usize) -> usize {
        // The server's `char` is signed on x86.
        let byte = |i: usize| i32::from(self.input[at + i] as i8);
        let hash = if self.input.len() - at < 4 {
            byte(0)
        } else {
            (byte(0) << 6) ^ (byte(1) << 4) ^ (byte(2) << 2) ^ byte(3)
        };
        hash as usize & self.mask
    }
}

struct Output<'a> {
    out: &'a mut Vec<u8>,
    /// Where the control byte stands whose bits are being filled.
    control_at: usize,
    /// How many of them are.
    bits: u8,
}

impl Output<'_> {
    fn literal(&mut self, byte: u8) {
        self.item(0);
        self.out.push(byte);
    }

    fn reference(&mut self, distance: usize, length: usize) {
        self.item(1);
        let high = ((distance & 0xf00) >> 4) as u8;
        let low = distance as u8;
        if length > 17 {
            self.out.extend_from_slice(&[high | 0x0f, low, (length - 18) as u8]);
        } else {
            self.out.extend_from_slice(&[high | (length - 3) as u8, low]);
        }
    }

    fn item(&mut self, bit: u8) {
        if self.bits == 8 {
            self.control_at = self.out.len();
            self.out.push(0);
            self.bits = 0;
        }
        self.out[self.control_at] |= bit << self.bits;
        self.bits += 1;
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
