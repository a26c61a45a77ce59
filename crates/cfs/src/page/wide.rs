//! Lanes of eight bytes as 32-bit columns: decimal fractions stored as doubles, timestamps, large integers.
//!
//! A price of 12.34 is a double whose low bytes look random. As `1234 / 10^2` it is a small integer: dividing
//! an integer below 2^53 by a power of ten that is exact gives the very double that the literal was read as
//! (ALP, Afroozeh et al., SIGMOD 2023, does the same with multiplication). Values for which that does not
//! give back the same bits are exceptions and follow one by one.
//!
//! Many such columns were single-precision once and went through `printf("%f")`: 40.38 became 40.380001. Then
//! the integer is 4038, and the way back repeats what happened to it. And a column may be written as its
//! distances from the one before in the same row: opening and closing prices, times of creation and change.

use super::Error;
use super::column::{self, Backend, RowCost};
use super::streams::{Sink, Source};

/// The form's number in a column's description; its argument is the exponent, or [`INTEGER`] and [`SECONDS`].
pub(super) const WIDE: u8 = 7;
const EXPONENT_MAX: u8 = 12;
const INTEGER: u8 = 16;
/// Multiples of a million: timestamps without a fraction.
const SECONDS: u8 = 17;
/// Integers over a range of more than 32 bits, by their distances from row to row.
const DISTANCES: u8 = 23;
/// Decimals of this number of digits, less this, printed from single precision with [`PRINTED`] digits.
const SINGLE: u8 = 18;
const SINGLE_DIGITS_MAX: u8 = 4;
/// What `%f` prints.
const PRINTED: u8 = 6;
const MICROSECONDS: i64 = 1_000_000;
/// Integers beyond this are not exact as doubles.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
const POWERS: [f64; EXPONENT_MAX as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12];

/// Memory for one column.
#[derive(Default)]
pub(super) struct Wide {
    pub(super) values: Vec<u64>,
    integers: Vec<i64>,
    column: Vec<u32>,
    exceptions: Vec<u16>,
    /// The exponent that fitted last: the next column often has the same.
    exponent: u8,
    /// The integers of the page's two wide columns before, the latest first, and their forms.
    before: [Vec<i64>; 2],
    before_forms: [Option<u8>; 2],
}

impl Wide {
    /// To be called for each page: nothing of the one before may be referred to.
    pub(super) fn begin_page(&mut self) {
        self.before_forms = [None; 2];
    }

    /// Writes `self.values` if it is cheaper than two lanes would be. `false`: nothing was written.
    pub(super) fn write(&mut self, backend: Backend, rows: RowCost, sink: &mut Sink) -> bool {
        let first = self.values[0];
        if self.values.len() < 2 || self.values.iter().all(|value| *value == first) {
            return false;
        }
        let high = |value: u64| (value >> 32) as u32;
        let small = self.values.iter().all(|&value| high(value) == 0 || high(value) == u32::MAX);
        if small {
            return false;
        }
        if let Some(exponent) = self.exponent_of_samples() {
            self.exponent = exponent;
            // The fewest digits that fit may have been luck with the samples.
            let printed = SINGLE + 2..=SINGLE + SINGLE_DIGITS_MAX;
            let longer = (exponent <= PRINTED).then(|| printed.chain([PRINTED])).into_iter().flatten();
            let shortest = (exponent != PRINTED).then_some(exponent);
            for form in shortest.into_iter().chain(longer) {
                if self.decimals(form) && self.write_integers(form, 1, backend, rows, sink) {
                    return true;
                }
            }
        }
        self.exceptions.clear();
        self.integers.clear();
        self.integers.extend(self.values.iter().map(|&value| value as i64));
        let seconds = self.values.iter().all(|value| value.wrapping_sub(first) as i64 % MICROSECONDS == 0);
        if seconds {
            return self.write_integers(SECONDS, MICROSECONDS, backend, rows, sink);
        }
        let high_changes = self.values.iter().any(|&value| high(value) != high(first));
        high_changes && self.write_integers(INTEGER, 1, backend, rows, sink)
    }

    /// The smallest exponent for which a few values are decimals.
    fn exponent_of_samples(&self) -> Option<u8> {
        let n = self.values.len();
        let samples = [0, n / 3, n / 2, n - 1].map(|i| self.values[i]);
        // Exponents of doubles between 2^-40 and 2^52; zero is any of them.
        let plausible = |bits: u64| bits == 0 || (983..1076).contains(&((bits >> 52) & 0x7ff));
        if !samples.iter().all(|bits| plausible(*bits)) || samples == [0; 4] {
            return None;
        }
        let fits =
            |exponent: u8| samples.iter().filter(|bits| integer(**bits, exponent).is_some()).count() >= 3;
        let start = self.exponent;
        (start > 0 && fits(start) && !fits(start - 1))
            .then_some(start)
            .or_else(|| (0..=EXPONENT_MAX).find(|&exponent| fits(exponent)))
    }

    /// Fills in integers and exceptions; `false` if too many are exceptions.
    fn decimals(&mut self, form: u8) -> bool {
        self.integers.clear();
        self.exceptions.clear();
        let mut before = None;
        let allowed = self.values.len() / 8;
        for (i, &bits) in self.values.iter().enumerate() {
            match integer(bits, form) {
                Some(integer) => {
                    self.integers.push(integer);
                    before = Some(integer);
                }
                None => {
                    self.exceptions.push(i as u16);
                    if self.exceptions.len() > allowed {
                        return false;
                    }
                    self.integers.push(before.unwrap_or(0));
                }
            }
        }
        // A leading exception must not widen the range.
        if self.exceptions.first() == Some(&0)
            && let Some(regular) =
                (0..self.integers.len()).find(|i| self.exceptions.get(*i) != Some(&(*i as u16)))
        {
            let value = self.integers[regular];
            self.integers[..regular].fill(value);
        }
        true
    }

    fn write_integers(
        &mut self,
        form: u8,
        unit: i64,
        backend: Backend,
        rows: RowCost,
        sink: &mut Sink,
    ) -> bool {
        let refers = self.reference(form, unit);
        let Wide { integers, before, column, .. } = self;
        let before = refers.checked_sub(1).map(|which| &before[which]);
        let value = |i: usize| integers[i].wrapping_sub(before.map_or(0, |before| before[i]));
        let (mut min, mut max) = (i64::MAX, i64::MIN);
        for i in 0..integers.len() {
            (min, max) = (min.min(value(i)), max.max(value(i)));
        }
        let range = max.wrapping_sub(min) as u64 / unit as u64;
        if range > u32::MAX.into() {
            return form == INTEGER && refers == 0 && self.write_distances(backend, rows, sink);
        }
        column.clear();
        match unit {
            1 => column.extend((0..integers.len()).map(|i| value(i).wrapping_sub(min) as u32)),
            _ => column.extend((0..integers.len()).map(|i| (value(i).wrapping_sub(min) / unit) as u32)),
        }
        let mark = sink.mark();
        sink.head.push(WIDE | form << 3);
        sink.head.push(refers as u8);
        sink.head.extend_from_slice(&min.to_le_bytes());
        if is_decimal(form) {
            sink.head.push(self.exceptions.len() as u8);
            for &i in &self.exceptions {
                sink.head.extend_from_slice(&i.to_le_bytes());
                sink.body.extend_from_slice(&self.values[usize::from(i)].to_le_bytes());
            }
        }
        if !column::write(&self.column, backend, 2 * rows, sink) {
            sink.rewind(mark);
            return false;
        }
        self.remember(form);
        true
    }

    /// Writes integers by their distances, the first of which is none.
    fn write_distances(&mut self, backend: Backend, rows: RowCost, sink: &mut Sink) -> bool {
        let Wide { integers, column, .. } = self;
        column.clear();
        column.push(0);
        for pair in integers.windows(2) {
            match u32::try_from(pair[1].wrapping_sub(pair[0])) {
                Ok(distance) => column.push(distance),
                Err(_) => return false,
            }
        }
        let mark = sink.mark();
        sink.head.push(WIDE | DISTANCES << 3);
        sink.head.push(0);
        sink.head.extend_from_slice(&integers[0].to_le_bytes());
        if !column::write(&self.column, backend, 2 * rows, sink) {
            sink.rewind(mark);
            return false;
        }
        self.remember(INTEGER);
        true
    }

    /// Makes the integers the latest column before.
    fn remember(&mut self, form: u8) {
        self.before.swap(0, 1);
        self.before_forms = [Some(form), self.before_forms[0]];
        std::mem::swap(&mut self.before[0], &mut self.integers);
    }

    /// Which column before, counted from 1, has distances that are clearly smaller than those from the row
    /// before; 0 if none. The low corner of a box is two columns before the high one.
    fn reference(&self, form: u8, unit: i64) -> usize {
        let bits = |value: i64| u64::from(64 - (value << 1 ^ value >> 63).leading_zeros());
        let mut down = 0;
        for pair in self.integers.windows(2) {
            down += bits(pair[1].wrapping_sub(pair[0]) / unit);
        }
        let mut best = (0, down);
        for (which, before) in (1..).zip(&self.before) {
            let comparable = self.before_forms[which - 1]
                .is_some_and(|before| before == form || !is_decimal(before) && !is_decimal(form));
            if !comparable || before.len() != self.integers.len() {
                continue;
            }
            let mut across = 0;
            let mut whole = true;
            for (value, before) in self.integers.iter().zip(before) {
                let distance = value.wrapping_sub(*before);
                whole &= unit == 1 || distance % unit == 0;
                across += bits(distance / unit);
            }
            if whole && across + (across >> 3) < best.1 {
                best = (which, across);
            }
        }
        best.0
    }

    /// The inverse of [`Wide::write`], for `count` values, after the byte of description, which is `form`.
    pub(super) fn read(&mut self, form: u8, count: usize, source: &mut Source<'_>) -> Result<(), Error> {
        if !is_decimal(form) && ![INTEGER, SECONDS, DISTANCES].contains(&form) {
            return Err(Error::Corrupt { what: "unknown form of a wide column" });
        }
        let refers = usize::from(source.head_byte()?);
        if refers > 2
            || refers > 0
                && (self.before_forms[refers - 1].is_none() || self.before[refers - 1].len() != count)
        {
            return Err(Error::Corrupt { what: "a column that refers to no other column" });
        }
        let mut base = [0; 8];
        base.copy_from_slice(source.head(8)?);
        let base = i64::from_le_bytes(base);
        let exceptions = if is_decimal(form) { usize::from(source.head_byte()?) } else { 0 };
        let (places, bytes) = (source.head(2 * exceptions)?, source.body(8 * exceptions)?);
        super::layout::resize(&mut self.column, count);
        if !column::read(source, &mut self.column)? {
            return Err(Error::Corrupt { what: "a wide column in the rows" });
        }
        let unit = if form == SECONDS { MICROSECONDS } else { 1 };
        self.integers.clear();
        self.integers.extend(self.column.iter().map(|&value| base.wrapping_add(i64::from(value) * unit)));
        if form == DISTANCES {
            let mut value = base;
            for (slot, &distance) in self.integers.iter_mut().zip(&self.column) {
                value = value.wrapping_add(distance.into());
                *slot = value;
            }
        }
        if refers > 0 {
            self.integers
                .iter_mut()
                .zip(&self.before[refers - 1])
                .for_each(|(value, before)| *value = value.wrapping_add(*before));
        }
        self.values.resize(count, 0);
        restored(form, &self.integers, &mut self.values);
        for (place, bytes) in places.as_chunks::<2>().0.iter().zip(bytes.as_chunks::<8>().0) {
            let slot = self.values.get_mut(usize::from(u16::from_le_bytes(*place)));
            let slot = slot.ok_or(Error::Corrupt { what: "an exception for a row that does not exist" })?;
            *slot = u64::from_le_bytes(*bytes);
        }
        self.remember(if form == DISTANCES { INTEGER } else { form });
        Ok(())
    }
}

fn is_decimal(form: u8) -> bool {
    form <= EXPONENT_MAX || (SINGLE..=SINGLE + SINGLE_DIGITS_MAX).contains(&form)
}

/// The integer that gives back the double of these bits, to the bit.
fn integer(bits: u64, form: u8) -> Option<i64> {
    match form.checked_sub(SINGLE) {
        None => decimal(bits, POWERS[usize::from(form)]),
        Some(digits) => {
            let value = nearest(f64::from_bits(bits) * POWERS[usize::from(digits)])?;
            (printed(value, digits) == bits).then_some(value)
        }
    }
}

/// What becomes of `value / 10^digits` in single precision that is printed by `%f` and read back.
fn printed(value: i64, digits: u8) -> u64 {
    let single = (value as f64 / POWERS[usize::from(digits)]) as f32;
    let power = POWERS[usize::from(PRINTED)];
    let scaled = f64::from(single) * power;
    ((scaled + 0.5f64.copysign(scaled)) as i64 as f64 / power).to_bits()
}

/// The bits that integers stand for.
fn restored(form: u8, integers: &[i64], values: &mut [u64]) {
    let single = form.checked_sub(SINGLE).filter(|digits| *digits <= SINGLE_DIGITS_MAX);
    let power = POWERS.get(usize::from(form));
    let small = integers.iter().all(|value| value.unsigned_abs() < SMALL);
    match (single, power) {
        (Some(digits), _) if small => {
            let power = POWERS[usize::from(digits)];
            fill(values, integers, |value| printed_small(value, power));
        }
        (Some(digits), _) => fill(values, integers, |value| printed(value, digits)),
        (None, Some(&power)) if small => fill(values, integers, |value| (double(value) / power).to_bits()),
        (None, Some(power)) => fill(values, integers, |value| (value as f64 / power).to_bits()),
        (None, None) => fill(values, integers, |value| value as u64),
    }
}

fn fill(values: &mut [u64], integers: &[i64], bits: impl Fn(i64) -> u64) {
    values.iter_mut().zip(integers).for_each(|(slot, &value)| *slot = bits(value));
}

/// Integers below this, and what [`printed`] makes of them, are far from where doubles become inexact. For
/// them the way back takes additions instead of conversions, which the processor can only do one by one.
const SMALL: u64 = 1 << 40;
/// 1.5 * 2^52: as bits, adding an integer to it adds the integer to the number.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// `value as f64`, if it is small.
fn double(value: i64) -> f64 {
    f64::from_bits(MAGIC.to_bits().wrapping_add(value as u64)) - MAGIC
}

/// [`printed`], if the value is small.
fn printed_small(value: i64, power: f64) -> u64 {
    let single = (double(value) / power) as f32;
    let scaled = (f64::from(single) * POWERS[usize::from(PRINTED)]).abs() + 0.5;
    // Cut off behind the point: rounded, and back if that went up.
    let rounded = (scaled + MAGIC) - MAGIC;
    let cut = rounded - if rounded > scaled { 1.0 } else { 0.0 };
    (cut / POWERS[usize::from(PRINTED)]).to_bits() | value as u64 & 1 << 63
}

fn nearest(scaled: f64) -> Option<i64> {
    // By adding half away from zero: cheaper than round() without SSE4.1. NaN is not below anything.
    (scaled.abs() < EXACT_MAX).then(|| (scaled + 0.5f64.copysign(scaled)) as i64)
}

fn decimal(bits: u64, power: f64) -> Option<i64> {
    let integer = nearest(f64::from_bits(bits) * power)?;
    ((integer as f64 / power).to_bits() == bits).then_some(integer)
}
