//! Texts of one form, as moments, identifiers and hashes are: fixed text between runs of digits.
//!
//! Decimal runs of a text become one integer in mixed radix, hexadecimal ones become bytes; the text between them is the
//! template's and takes nothing. A text of another form, or with a run outside of what the template was learned for, does not
//! fit, and is stored in another way.

use super::number::{integer, push_integer};
use super::pace::Pace;
use crate::error::Error;
use crate::memory;

/// A text's form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Template {
    parts: Vec<Part>,
    /// From which the integer is counted.
    base: i128,
    /// Bytes of all hexadecimal runs.
    hex_bytes: usize,
    /// Bytes of a text of this form at most.
    text_len_max: usize,
}

/// A piece of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Fixed(Vec<u8>),
    /// A decimal number.
    Digits {
        /// Digits, with zeros in front. 0: as many as it needs, without any.
        width: u8,
        low: u64,
        /// Numbers from `low` on. 0: any number; only the first such run.
        count: u64,
    },
    /// So many hexadecimal digits.
    Hex {
        digits: u8,
        is_upper: bool,
    },
}

/// Digits of a decimal run at most: a `u64` holds them.
const WIDTH_MAX: usize = 18;
/// The integer of all runs stays below; its distance from the base fits as well.
const INTEGER_MAX: i128 = 1 << 120;
/// Parts at most.
pub(super) const PARTS_MAX: usize = 32;

impl Template {
    /// None: the integer could be too large, or a part is none that this module would make.
    pub(super) fn new(parts: Vec<Part>, base: i128) -> Option<Template> {
        let (mut range, mut hex_bytes, mut is_first) = (1i128, 0, true);
        for part in &parts {
            match part {
                Part::Fixed(_) => {}
                Part::Hex { digits, .. } if *digits > 0 => hex_bytes += usize::from(*digits).div_ceil(2),
                Part::Digits { width, low, count } if usize::from(*width) <= WIDTH_MAX => {
                    let count = match count {
                        0 if is_first => 10u64.pow(WIDTH_MAX as u32),
                        0 => return None,
                        count => *count,
                    };
                    low.checked_add(count).filter(|end| *end <= 10u64.pow(WIDTH_MAX as u32))?;
                    range = range.checked_mul(count.into()).filter(|range| *range < INTEGER_MAX)?;
                    is_first = false;
                }
                Part::Hex { .. } | Part::Digits { .. } => return None,
            }
        }
        let is_fit = parts.len() <= PARTS_MAX && (-INTEGER_MAX..INTEGER_MAX).contains(&base);
        let length = |part: &Part| match part {
            Part::Fixed(bytes) => bytes.len(),
            Part::Digits { .. } => 20,
            // The last byte of an odd run is written as two digits and cut.
            Part::Hex { digits, .. } => usize::from(*digits) + 1,
        };
        let text_len_max = parts.iter().map(length).sum();
        is_fit.then_some(Template { parts, base, hex_bytes, text_len_max })
    }

    /// Bytes of a text of this form at most.
    #[inline]
    pub(super) fn text_len_max(&self) -> usize {
        self.text_len_max
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) fn base(&self) -> i128 {
        self.base
    }

    /// The same, counting from another number.
    pub(super) fn counted_from(self, base: i128) -> Option<Template> {
        Template::new(self.parts, base)
    }

    /// Another one.
    pub(super) fn copied(&self) -> Result<Template, Error> {
        let mut parts = Vec::new();
        for part in &self.parts {
            let own = match part {
                Part::Fixed(bytes) => Part::Fixed(memory::copy(bytes)?),
                Part::Digits { width, low, count } => {
                    Part::Digits { width: *width, low: *low, count: *count }
                }
                Part::Hex { digits, is_upper } => Part::Hex { digits: *digits, is_upper: *is_upper },
            };
            memory::push(&mut parts, own)?;
        }
        Ok(Template { parts, ..*self })
    }

    /// Appends what is left of a text; false, and nothing is appended, if it does not fit.
    pub(super) fn encode(&self, text: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        match self.runs(text, out) {
            Some(integer) => {
                push_integer(integer - self.base, out);
                true
            }
            None => {
                out.truncate(start);
                false
            }
        }
    }

    /// The integer of a text that fits; its hexadecimal runs are appended.
    pub(super) fn runs(&self, text: &[u8], out: &mut Vec<u8>) -> Option<i128> {
        // Most integers fit into 64 bits; one that does not goes on in `large`.
        let (mut rest, mut integer, mut large) = (text, 0u64, None);
        for part in &self.parts {
            match part {
                Part::Fixed(fixed) => rest = rest.strip_prefix(fixed.as_slice())?,
                Part::Hex { digits, is_upper } => {
                    let (run, after) = rest.split_at_checked((*digits).into())?;
                    push_hex(run, *is_upper, out)?;
                    rest = after;
                }
                Part::Digits { width, low, count } => {
                    let length = match width {
                        0 => rest.iter().take_while(|byte| byte.is_ascii_digit()).count(),
                        width => (*width).into(),
                    };
                    let (run, after) = rest.split_at_checked(length)?;
                    let number = decimal(run)?;
                    if *width == 0 && run.len() > 1 && run[0] == b'0' {
                        return None;
                    }
                    let number = number.checked_sub(*low).filter(|number| *count == 0 || number < count)?;
                    match (large, integer.checked_mul(*count).and_then(|all| all.checked_add(number))) {
                        (None, Some(all)) => integer = all,
                        (None, None) => {
                            large = Some(i128::from(integer) * i128::from(*count) + i128::from(number))
                        }
                        (Some(all), _) => large = Some(all * i128::from(*count) + i128::from(number)),
                    }
                    rest = after;
                }
            }
        }
        rest.is_empty().then_some(large.unwrap_or(integer.into()))
    }

    /// Writes the text of which this is left to the beginning of `target`, and tells its length; bytes behind it mean
    /// nothing. None: nothing that [`encode`](Self::encode) makes, or there is less room than
    /// [`text_len_max`](Self::text_len_max).
    pub(super) fn decode_into(&self, payload: &[u8], target: &mut [u8]) -> Option<usize> {
        // Zeros take time.
        if self.parts.len() <= PARTS_MAX / 2 {
            self.decode_parts::<{ PARTS_MAX / 2 }>(payload, target)
        } else {
            self.decode_parts::<PARTS_MAX>(payload, target)
        }
    }

    #[inline]
    fn decode_parts<const N: usize>(&self, payload: &[u8], target: &mut [u8]) -> Option<usize> {
        let (mut hex, rest) = payload.split_at_checked(self.hex_bytes)?;
        let mut numbers = [0u64; N];
        self.numbers(integer(rest)?.checked_add(self.base)?, &mut numbers)?;
        let mut at = 0;
        for (part, number) in self.parts.iter().zip(numbers) {
            let room = target.get_mut(at..)?;
            at += match part {
                Part::Fixed(fixed) => {
                    match (fixed.as_slice(), room.first_mut()) {
                        // What is between numbers is mostly one byte.
                        ([byte], Some(first)) => *first = *byte,
                        (fixed, _) => room.get_mut(..fixed.len())?.copy_from_slice(fixed),
                    }
                    fixed.len()
                }
                Part::Digits { width, .. } => put_decimal(number, (*width).into(), room)?,
                Part::Hex { digits, is_upper } => {
                    let (run, after) = hex.split_at_checked(usize::from(*digits).div_ceil(2))?;
                    put_digits(run, (*digits).into(), *is_upper, room)?;
                    hex = after;
                    (*digits).into()
                }
            };
        }
        Some(at)
    }

    /// The numbers of decimal runs, of their integer.
    #[inline]
    fn numbers(&self, mut integer: i128, numbers: &mut [u64]) -> Option<()> {
        for (part, number) in self.parts.iter().zip(numbers).rev() {
            if let Part::Digits { low, count, .. } = part {
                // A division of 128 bits takes long, and few integers need it.
                let here = match (*count, u64::try_from(integer)) {
                    (0, _) => u64::try_from(std::mem::take(&mut integer)).ok()?,
                    (count, Ok(small)) => {
                        integer = (small / count).into();
                        small % count
                    }
                    (count, Err(_)) => {
                        let here = integer.rem_euclid(count.into());
                        integer = integer.div_euclid(count.into());
                        here as u64
                    }
                };
                *number = here.checked_add(*low)?;
            }
        }
        (integer == 0).then_some(())
    }
}

/// Appends the bytes of hexadecimal digits; of an odd count, the last byte has one.
fn push_hex(run: &[u8], is_upper: bool, out: &mut Vec<u8>) -> Option<()> {
    let values = if is_upper { &UPPER } else { &LOWER };
    let (pairs, last) = run.as_chunks::<2>();
    // Whether any was no digit: jumps for each would be guesses.
    let mut any = 0;
    out.extend(pairs.iter().map(|[high, low]| {
        let (high, low) = (values[usize::from(*high)], values[usize::from(*low)]);
        any |= high | low;
        high << 4 | low
    }));
    if let [last] = last {
        let high = values[usize::from(*last)];
        any |= high;
        out.push(high << 4);
    }
    (any & NO_DIGIT == 0).then_some(())
}

/// Writes so many hexadecimal digits of bytes. None: what is left of an odd count's last byte is not zero, or there is no
/// room for one digit more.
fn put_digits(run: &[u8], digits: usize, is_upper: bool, room: &mut [u8]) -> Option<()> {
    let alphabet = if is_upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    let pairs = room.get_mut(..2 * run.len())?.as_chunks_mut::<2>().0;
    for (pair, byte) in pairs.iter_mut().zip(run) {
        *pair = [alphabet[usize::from(byte >> 4)], alphabet[usize::from(byte & 15)]];
    }
    (digits == 2 * run.len() || run.last()? & 15 == 0).then_some(())
}

/// Of each byte, what it is worth as a hexadecimal digit, or this.
const NO_DIGIT: u8 = 0x80;
static LOWER: [u8; 256] = hex_values(false);
static UPPER: [u8; 256] = hex_values(true);

const fn hex_values(is_upper: bool) -> [u8; 256] {
    let (mut values, mut byte) = ([NO_DIGIT; 256], 0u8);
    while byte < u8::MAX {
        if let Some(value) = hex_value(byte, is_upper) {
            values[byte as usize] = value;
        }
        byte += 1;
    }
    values
}

const fn hex_value(digit: u8, is_upper: bool) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' if !is_upper => Some(digit - b'a' + 10),
        b'A'..=b'F' if is_upper => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn decimal(run: &[u8]) -> Option<u64> {
    if run.is_empty() || run.len() > WIDTH_MAX {
        return None;
    }
    run.iter()
        .try_fold(0u64, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0')))
}

/// Writes a number of so many digits, or as many as it has for 0. Returns how many. None: it has more, or there is no room.
#[inline]
fn put_decimal(number: u64, width: usize, room: &mut [u8]) -> Option<usize> {
    let width = match width {
        0 => number.checked_ilog10().map_or(1, |log| log as usize + 1),
        width => width,
    };
    let (first, pairs) = room.get_mut(..width)?.as_rchunks_mut::<2>();
    let mut rest = number;
    for pair in pairs.iter_mut().rev() {
        *pair = PAIRS[(rest % 100) as usize];
        rest /= 100;
    }
    if let [digit] = first {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    (rest == 0).then_some(width)
}

/// Two decimal digits.
static PAIRS: [[u8; 2]; 100] = {
    let (mut pairs, mut number) = ([[0; 2]; 100], 0u8);
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

/// How texts are cut into runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Cut {
    Decimal,
    Hex { is_upper: bool },
}

impl Cut {
    fn is_run(self, byte: u8) -> bool {
        match self {
            Cut::Decimal => byte.is_ascii_digit(),
            Cut::Hex { is_upper } => hex_value(byte, is_upper).is_some(),
        }
    }

    /// Makes `form` the text with each run as one byte that no text has, which is the same for texts of one form.
    /// Hexadecimal runs are of one form if they are of one length.
    fn form(self, text: &[u8], form: &mut Vec<u8>) -> Result<(), Error> {
        form.clear();
        // A hexadecimal run of one byte takes two.
        memory::reserve(form, 2 * text.len())?;
        for run in text.chunk_by(|left, right| self.is_run(*left) == self.is_run(*right)) {
            match self {
                _ if !self.is_run(run[0]) => form.extend_from_slice(run),
                Cut::Decimal => form.push(RUN),
                Cut::Hex { .. } => form.extend_from_slice(&[RUN, run.len().min(255) as u8]),
            }
        }
        Ok(())
    }
}

/// In no UTF-8.
const RUN: u8 = 0xff;
/// Texts of which so many in a hundred have the form, or more, have a template.
const SHARE_MIN: usize = 80;
/// Texts that are needed to learn from.
const TEXTS_MIN: usize = 8;
/// What a look at a text is as work, beside its bytes.
const TEXT_WORK: usize = 16;

/// The form that most of these texts have. None: there is none, or a template would not save anything.
pub(super) fn learn(texts: &[&[u8]], pace: &mut Pace<'_>) -> Result<Option<Template>, Error> {
    if texts.len() < TEXTS_MIN {
        return Ok(None);
    }
    for cut in [Cut::Decimal, Cut::Hex { is_upper: false }, Cut::Hex { is_upper: true }] {
        if let Some(template) = of_cut(texts, cut, pace)? {
            return Ok(Some(template));
        }
    }
    Ok(None)
}

fn of_cut(texts: &[&[u8]], cut: Cut, pace: &mut Pace<'_>) -> Result<Option<Template>, Error> {
    let Some(form) = candidate(texts, cut, pace)? else { return Ok(None) };
    let (mut own, mut alike) = (Vec::new(), Vec::new());
    for text in texts {
        pace.work(TEXT_WORK + text.len())?;
        cut.form(text, &mut own)?;
        if own == form {
            memory::push(&mut alike, *text)?;
        }
    }
    if alike.len() * 100 < texts.len() * SHARE_MIN {
        return Ok(None);
    }
    let mut runs: Vec<Vec<&[u8]>> = Vec::new();
    for text in &alike {
        pace.work(TEXT_WORK + text.len())?;
        let pieces = text.chunk_by(|left, right| cut.is_run(*left) == cut.is_run(*right));
        for (at, piece) in pieces.enumerate() {
            if at == PARTS_MAX {
                return Ok(None);
            }
            if at == runs.len() {
                memory::push(&mut runs, Vec::new())?;
            }
            memory::push(&mut runs[at], piece)?;
        }
    }
    let (mut is_first, mut parts) = (true, Vec::new());
    for pieces in &runs {
        pace.work(TEXT_WORK * pieces.len())?;
        let Some(part) = part(pieces, cut, &mut is_first)? else { return Ok(None) };
        memory::push(&mut parts, part)?;
    }
    let Some(template) = Template::new(parts, 0) else { return Ok(None) };
    let (mut spare, mut integers) = (Vec::new(), Vec::new());
    memory::reserve(&mut spare, template.hex_bytes)?;
    for text in &alike {
        pace.work(TEXT_WORK + text.len())?;
        spare.clear();
        if let Some(integer) = template.runs(text, &mut spare) {
            memory::push(&mut integers, integer)?;
        }
    }
    if integers.len() * 100 < texts.len() * SHARE_MIN {
        return Ok(None);
    }
    integers.sort_unstable();
    Ok(template.counted_from(best_base(&integers)))
}

/// The only form that can be that of most of these texts, if it has runs.
fn candidate(texts: &[&[u8]], cut: Cut, pace: &mut Pace<'_>) -> Result<Option<Vec<u8>>, Error> {
    // Boyer and Moore's vote: of forms that more than a half of the texts have, one is left.
    let (mut form, mut own, mut votes) = (Vec::new(), Vec::new(), 0);
    for text in texts {
        pace.work(TEXT_WORK + text.len())?;
        cut.form(text, &mut own)?;
        match votes {
            0 => {
                std::mem::swap(&mut form, &mut own);
                votes = 1;
            }
            _ if form == own => votes += 1,
            _ => votes -= 1,
        }
    }
    Ok(form.contains(&RUN).then_some(form))
}

fn part(pieces: &[&[u8]], cut: Cut, is_first: &mut bool) -> Result<Option<Part>, Error> {
    let (first, length) = (pieces[0][0], pieces[0].len());
    let is_one_length = pieces.iter().all(|piece| piece.len() == length);
    Ok(match cut {
        _ if !cut.is_run(first) => Some(Part::Fixed(memory::copy(pieces[0])?)),
        Cut::Hex { is_upper } => u8::try_from(length).ok().map(|digits| Part::Hex { digits, is_upper }),
        Cut::Decimal => {
            // Numbers without zeros in front may grow.
            let has_zeros = pieces.iter().any(|piece| piece.len() > 1 && piece[0] == b'0');
            let width = match (has_zeros, u8::try_from(length)) {
                (false, _) => 0,
                (true, Ok(width)) if is_one_length => width,
                _ => return Ok(None),
            };
            let numbers = pieces.iter().filter_map(|piece| decimal(piece));
            let (low, high) = numbers.fold((u64::MAX, 0), |(low, high), n| (low.min(n), high.max(n)));
            if low > high {
                return Ok(None);
            }
            if std::mem::take(is_first) {
                return Ok(Some(Part::Digits { width, low: 0, count: 0 }));
            }
            let (low, count) = range(low, high, length.min(WIDTH_MAX) as u32, width == 2);
            Some(Part::Digits { width, low, count })
        }
    })
}

/// From where, and how many numbers, are to be expected where these were seen: two digits are likely months, hours, days or
/// minutes; others may grow.
fn range(low: u64, high: u64, digits: u32, are_two: bool) -> (u64, u64) {
    let all = 10u64.pow(digits);
    if are_two {
        return (0, [13, 24, 32, 60, 100].into_iter().find(|count| high < *count).unwrap_or(all));
    }
    let seen = high - low + 1;
    if seen >= all / 4 {
        return (0, all);
    }
    let low = low.saturating_sub(seen / 4);
    (low, (high + seen / 2 + 1).min(10u64.pow(WIDTH_MAX as u32)) - low)
}

/// From which number these, ascending, take the fewest bytes.
pub(super) fn best_base(integers: &[i128]) -> i128 {
    let (Some(first), Some(last)) = (integers.first(), integers.last()) else { return 0 };
    let candidates = [0, *first, integers[integers.len() / 2], first.midpoint(*last)];
    let cost = |base: &i128| {
        let step = integers.len().div_ceil(1000);
        integers.iter().step_by(step).map(|integer| integer_bytes(integer.wrapping_sub(*base))).sum::<usize>()
    };
    candidates.into_iter().min_by_key(|base| cost(base)).unwrap_or(0)
}

/// Bytes that an integer takes.
pub(super) fn integer_bytes(value: i128) -> usize {
    let folded = value << 1 ^ value >> 127;
    (128 - folded.leading_zeros() as usize).div_ceil(8)
}

#[cfg(test)]
mod tests;
