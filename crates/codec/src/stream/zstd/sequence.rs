//! The sequences section of a zstd block with the predefined distributions (RFC 8878, 3.1.1.3.2 and 3.1.1.3.2.2).
//!
//! zstd's encoder builds these three tables anew for each block, which is most of what a small block costs; here
//! they are constants.

/// What a sequence is: literals, then a match.
#[derive(Copy, Clone, Debug)]
pub(super) struct Sequence {
    pub(super) literals: u32,
    /// At least 3.
    pub(super) length: u32,
    /// 1 to 3: a repeated offset, else the offset plus 3.
    pub(super) offset_value: u32,
}

/// Appends the section. Longer counts than 0x7eff have another form and do not occur here.
pub(super) fn write(sequences: &[Sequence], out: &mut Vec<u8>) {
    let count = sequences.len();
    debug_assert!(count < 0x7f00);
    match count {
        0..128 => out.push(count as u8),
        _ => out.extend_from_slice(&[(count >> 8) as u8 | 0x80, count as u8]),
    }
    let Some((last, rest)) = sequences.split_last() else { return };
    // Predefined mode for all three.
    out.push(0);
    let mut bits = BitWriter { out, word: 0, count: 0 };
    let codes = Codes::of(last);
    let mut length_state = LENGTHS.begin(codes.length);
    let mut offset_state = OFFSETS.begin(codes.offset);
    let mut literals_state = LITERALS.begin(codes.literals);
    codes.write_extra(last, &mut bits);
    // The decoder reads backwards.
    for sequence in rest.iter().rev() {
        let codes = Codes::of(sequence);
        OFFSETS.encode(&mut offset_state, codes.offset, &mut bits);
        LENGTHS.encode(&mut length_state, codes.length, &mut bits);
        LITERALS.encode(&mut literals_state, codes.literals, &mut bits);
        codes.write_extra(sequence, &mut bits);
    }
    bits.add(length_state, LENGTH_LOG);
    bits.add(offset_state, OFFSET_LOG);
    bits.add(literals_state, LITERALS_LOG);
    bits.end();
}

/// The codes of a sequence's three numbers.
struct Codes {
    literals: u8,
    length: u8,
    offset: u8,
}

impl Codes {
    fn of(sequence: &Sequence) -> Self {
        Codes {
            literals: literals_code(sequence.literals),
            length: length_code(sequence.length),
            offset: sequence.offset_value.ilog2() as u8,
        }
    }

    fn write_extra(&self, sequence: &Sequence, bits: &mut BitWriter<'_>) {
        bits.add(sequence.literals, LITERALS_EXTRA[usize::from(self.literals)].into());
        bits.add(sequence.length - 3, LENGTH_EXTRA[usize::from(self.length)].into());
        bits.flush();
        bits.add(sequence.offset_value, self.offset.into());
        bits.flush();
    }
}

/// Bits from the lowest on into little-endian bytes.
struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    word: u64,
    count: u32,
}

impl BitWriter<'_> {
    /// Adds the lowest `count` bits of `value`.
    #[inline]
    fn add(&mut self, value: u32, count: u32) {
        self.word |= (u64::from(value) & ((1 << count) - 1)) << self.count;
        self.count += count;
        debug_assert!(self.count <= 64);
    }

    #[inline]
    fn flush(&mut self) {
        let bytes = (self.count / 8) as usize;
        // Eight bytes and back is one store instead of a copy of unknown length.
        let len = self.out.len() + bytes;
        self.out.extend_from_slice(&self.word.to_le_bytes());
        self.out.truncate(len);
        // At most 56 bits are ever waiting, so this shifts by less than 64.
        self.word >>= bytes * 8;
        self.count %= 8;
    }

    /// A one bit marks the end.
    fn end(mut self) {
        self.add(1, 1);
        let bytes = self.count.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.word.to_le_bytes()[..bytes]);
    }
}

/// An FSE encoding table (RFC 8878, 4.1; laid out as in zstd's fse_compress.c).
struct Table<const SYMBOLS: usize, const STATES: usize> {
    /// For each symbol what turns a state into a number of bits, and into an index of `next`.
    transitions: [(u32, i32); SYMBOLS],
    next: [u16; STATES],
}

impl<const SYMBOLS: usize, const STATES: usize> Table<SYMBOLS, STATES> {
    const fn new(distribution: &[i16; SYMBOLS]) -> Self {
        let log = STATES.ilog2();
        let symbols = spread::<SYMBOLS, STATES>(distribution);
        let mut transitions = [(0, 0); SYMBOLS];
        // Where each symbol's states begin in `next`.
        let mut places = [0usize; SYMBOLS];
        let (mut symbol, mut total) = (0, 0i32);
        while symbol < SYMBOLS {
            places[symbol] = total as usize;
            let (bits, states) = match distribution[symbol] {
                -1 | 1 => (log, 1),
                count => (log - (count as u32 - 1).ilog2(), count as u32),
            };
            let threshold = if states == 1 { 1 << log } else { states << bits };
            transitions[symbol] = ((bits << 16).wrapping_sub(threshold), total - states as i32);
            total += states as i32;
            symbol += 1;
        }
        let mut next = [0; STATES];
        let mut state = 0;
        while state < STATES {
            let symbol = symbols[state] as usize;
            next[places[symbol]] = (STATES + state) as u16;
            places[symbol] += 1;
            state += 1;
        }
        Table { transitions, next }
    }

    #[inline]
    fn begin(&self, symbol: u8) -> u32 {
        let (delta_bits, delta_state) = self.transitions[usize::from(symbol)];
        let bits = delta_bits.wrapping_add(1 << 15) >> 16;
        let value = (bits << 16).wrapping_sub(delta_bits);
        self.state(value >> bits, delta_state)
    }

    #[inline]
    fn encode(&self, state: &mut u32, symbol: u8, bits: &mut BitWriter<'_>) {
        let (delta_bits, delta_state) = self.transitions[usize::from(symbol)];
        let count = state.wrapping_add(delta_bits) >> 16;
        bits.add(*state, count);
        *state = self.state(*state >> count, delta_state);
    }

    #[inline]
    fn state(&self, value: u32, delta: i32) -> u32 {
        self.next[(value as i32 + delta) as usize & (STATES - 1)].into()
    }
}

/// Which symbol each state stands for.
const fn spread<const SYMBOLS: usize, const STATES: usize>(distribution: &[i16; SYMBOLS]) -> [u8; STATES] {
    let mut symbols = [0; STATES];
    let (mut last, mut symbol) = (STATES, 0);
    while symbol < SYMBOLS {
        if distribution[symbol] == -1 {
            last -= 1;
            symbols[last] = symbol as u8;
        }
        symbol += 1;
    }
    let step = (STATES >> 1) + (STATES >> 3) + 3;
    let (mut position, mut symbol) = (0, 0);
    while symbol < SYMBOLS {
        let mut left = distribution[symbol];
        while left > 0 {
            symbols[position] = symbol as u8;
            left -= 1;
            position = (position + step) % STATES;
            while position >= last {
                position = (position + step) % STATES;
            }
        }
        symbol += 1;
    }
    symbols
}

const LITERALS_LOG: u32 = 6;
const LENGTH_LOG: u32 = 6;
const OFFSET_LOG: u32 = 5;

static LITERALS: Table<36, 64> = Table::new(&[
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1,
    -1, -1,
]);
static LENGTHS: Table<53, 64> = Table::new(&[
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
]);
static OFFSETS: Table<29, 32> =
    Table::new(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1]);

const LITERALS_EXTRA: [u8; 36] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13,
    14, 15, 16,
];
const LENGTH_EXTRA: [u8; 53] = [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,
    1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
];

static LITERALS_CODES: [u8; 64] = codes(&LITERALS_EXTRA);
static LENGTH_CODES: [u8; 128] = codes(&LENGTH_EXTRA);

/// The code of each small value: the codes' ranges follow each other, each as long as its extra bits allow.
const fn codes<const CODES: usize, const VALUES: usize>(extra: &[u8; CODES]) -> [u8; VALUES] {
    let mut codes = [0; VALUES];
    let (mut code, mut value) = (0, 0);
    while code < CODES {
        let mut left = 1usize << extra[code];
        while left > 0 && value < VALUES {
            codes[value] = code as u8;
            value += 1;
            left -= 1;
        }
        code += 1;
    }
    codes
}

/// Beyond the small values each code has one more bit than the one before.
#[inline]
fn literals_code(literals: u32) -> u8 {
    match LITERALS_CODES.get(literals as usize) {
        Some(&code) => code,
        None => literals.ilog2() as u8 + 19,
    }
}

#[inline]
fn length_code(length: u32) -> u8 {
    match LENGTH_CODES.get(length as usize - 3) {
        Some(&code) => code,
        None => (length - 3).ilog2() as u8 + 36,
    }
}
