//! Lanes of eight bytes as 32-bit columns: decimal fractions stored as doubles, timestamps, large integers.
//!
//! A price of 12.34 is a double whose low bytes look random. As `1234 / 10^2` it is a small integer: dividing an
//! integer below 2^53 by a power of ten that is exact gives the very double that the literal was read as (ALP,
//! Afroozeh et al., SIGMOD 2023, does the same with multiplication). Values for which that does not give back the
//! same bits are exceptions and follow one by one.

use super::Error;
use super::column::{self, Backend, RowCost};
use super::streams::{Sink, Source};

/// The form's number in a column's description; its argument is the exponent, or [`INTEGER`] and [`SECONDS`].
pub(super) const WIDE: u8 = 7;
const EXPONENT_MAX: u8 = 12;
const INTEGER: u8 = 16;
/// Multiples of a million: timestamps without a fraction.
const SECONDS: u8 = 17;
const MICROSECONDS: u64 = 1_000_000;
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
}

impl Wide {
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
        if let Some(exponent) = self.exponent_of_samples()
            && self.decimals(exponent)
            && self.write_integers(exponent, 1, backend, rows, sink)
        {
            self.exponent = exponent;
            return true;
        }
        self.exceptions.clear();
        self.integers.clear();
        self.integers.extend(self.values.iter().map(|&value| value as i64));
        let seconds = self.values.iter().all(|value| value.wrapping_sub(first) as i64 % MICROSECONDS as i64 == 0);
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
        let fits = |exponent: u8| {
            samples.iter().filter(|bits| decimal(**bits, POWERS[usize::from(exponent)]).is_some()).count() >= 3
        };
        let start = self.exponent;
        (start > 0 && fits(start) && !fits(start - 1))
            .then_some(start)
            .or_else(|| (0..=EXPONENT_MAX).find(|&exponent| fits(exponent)))
    }

    /// Fills in integers and exceptions; `false` if too many are exceptions.
    fn decimals(&mut self, exponent: u8) -> bool {
        let power = POWERS[usize::from(exponent)];
        self.integers.clear();
        self.exceptions.clear();
        let mut before = None;
        let allowed = self.values.len() / 8;
        for (i, &bits) in self.values.iter().enumerate() {
            match decimal(bits, power) {
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
            && let Some(regular) = (0..self.integers.len()).find(|i| self.exceptions.get(*i) != Some(&(*i as u16)))
        {
            let value = self.integers[regular];
            self.integers[..regular].fill(value);
        }
        true
    }

    fn write_integers(&mut self, form: u8, unit: u64, backend: Backend, rows: RowCost, sink: &mut Sink) -> bool {
        let (mut min, mut max) = (i64::MAX, i64::MIN);
        for &value in &self.integers {
            (min, max) = (min.min(value), max.max(value));
        }
        let range = max.wrapping_sub(min) as u64 / unit;
        if range > u32::MAX.into() {
            return false;
        }
        self.column.clear();
        match unit {
            1 => self.column.extend(self.integers.iter().map(|value| value.wrapping_sub(min) as u32)),
            _ => self.column.extend(self.integers.iter().map(|value| (value.wrapping_sub(min) as u64 / unit) as u32)),
        }
        let mark = (sink.head.len(), sink.body.len());
        sink.head.push(WIDE | form << 3);
        sink.head.extend_from_slice(&min.to_le_bytes());
        if form <= EXPONENT_MAX {
            sink.head.push(self.exceptions.len() as u8);
            for &i in &self.exceptions {
                sink.head.extend_from_slice(&i.to_le_bytes());
                sink.body.extend_from_slice(&self.values[usize::from(i)].to_le_bytes());
            }
        }
        let done = column::write(&self.column, backend, 2 * rows, sink);
        if !done {
            sink.head.truncate(mark.0);
            sink.body.truncate(mark.1);
        }
        done
    }

    /// The inverse of [`Wide::write`], for `count` values, after the byte of description, which is `form`.
    pub(super) fn read(&mut self, form: u8, count: usize, source: &mut Source<'_>) -> Result<(), Error> {
        let mut base = [0; 8];
        base.copy_from_slice(source.head(8)?);
        let base = i64::from_le_bytes(base);
        let exceptions = if form <= EXPONENT_MAX {
            let count = usize::from(source.head_byte()?);
            Some((source.head(2 * count)?, source.body(8 * count)?))
        } else {
            None
        };
        super::layout::resize(&mut self.column, count);
        if !column::read(source, &mut self.column)? {
            return Err(Error::Corrupt { what: "a wide column in the rows" });
        }
        self.values.clear();
        let column = self.column.iter().map(|&value| u64::from(value));
        match (form, POWERS.get(usize::from(form))) {
            (_, Some(power)) => self.values.extend(
                column.map(|value| (base.wrapping_add(value as i64) as f64 / power).to_bits()),
            ),
            (INTEGER, _) => self.values.extend(column.map(|value| value.wrapping_add(base as u64))),
            (SECONDS, _) => self.values.extend(column.map(|value| (value * MICROSECONDS).wrapping_add(base as u64))),
            _ => return Err(Error::Corrupt { what: "unknown form of a wide column" }),
        }
        if let Some((places, bytes)) = exceptions {
            for (place, bytes) in places.as_chunks::<2>().0.iter().zip(bytes.as_chunks::<8>().0) {
                let slot = self.values.get_mut(usize::from(u16::from_le_bytes(*place)));
                *slot.ok_or(Error::Corrupt { what: "an exception of no row" })? = u64::from_le_bytes(*bytes);
            }
        }
        Ok(())
    }
}

/// The integer that divided by `power` is the double of these bits, to the bit.
fn decimal(bits: u64, power: f64) -> Option<i64> {
    let scaled = f64::from_bits(bits) * power;
    // Written so that NaN fails.
    if !(scaled.abs() < EXACT_MAX) {
        return None;
    }
    // The nearest integer, by adding half away from zero: cheaper than round() without SSE4.1.
    let integer = (scaled + 0.5f64.copysign(scaled)) as i64;
    ((integer as f64 / power).to_bits() == bits).then_some(integer)
}
