//! Columns of 32-bit values as the shortest of a few forms, chosen by one pass of statistics.
//!
//! A column is what a page's tuples have at one place: a transaction id, an offset, four bytes of an
//! attribute. Its *description* goes into the head, its bulk into the body. How many values there are is
//! known to both sides from elsewhere. The layout is in `formats/cfs-page.md`.
//!
//! The choice is made from the number of bits that values and differences need, not by trying: compressing
//! twice would cost more than everything else. It can only cost size, never correctness.

mod loose;
mod nested;

use super::Error;
use super::streams::{Sink, Source};
use loose::Loose;

/// The most values a column may have: six-byte row pointers of the posting lists of one page.
pub(super) const VALUES_MAX: usize = 1400;

/// All values by arithmetic: `first + i * step`.
pub(super) const STEP: u8 = 0;
/// Differences, zigzag, as byte planes.
pub(super) const DELTA_PLANES: u8 = 1;
/// Differences above the smallest one, packed in bits.
const DELTA_BITS: u8 = 2;
/// Values above the smallest one, as byte planes.
pub(super) const PLANES: u8 = 3;
/// Values above the smallest one, packed in bits.
const BITS: u8 = 4;
/// A short list of values, and a byte per row that names one.
const PALETTE: u8 = 5;
/// Not here: the rows carry them. With an argument: all values have that many low bits in common, and follow
/// without.
pub(super) const ROWS: u8 = 6;
/// Fewer bits in common are not worth a second description.
const COMMON_BITS_MIN: u32 = 4;

const PALETTE_MAX: usize = 32;

/// What follows a column's bytes: whether something will code frequent bytes shorter.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Backend {
    /// An entropy coder: uneven byte planes are cheap.
    Entropy,
    /// Only repetition is found: bits have to be packed.
    Matches,
}

/// What leaving the values in the rows costs, in sixteenths of a bit per value; [`NEVER`] where there are no
/// rows.
pub(super) type RowCost = u64;
pub(super) const NEVER: RowCost = u64::MAX >> 16;

pub(super) struct Stats {
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) delta_min: i32,
    pub(super) delta_max: i32,
    delta_bits_sum: u64,
    value_bits_sum: u64,
    /// Of what values are above the smallest one, and differences above theirs.
    pub(super) value_sum: u64,
    pub(super) delta_sum: u64,
}

impl Stats {
    fn of(values: &[u32]) -> Stats {
        let first = values[0];
        let mut s = Stats {
            min: first,
            max: first,
            delta_min: i32::MAX,
            delta_max: i32::MIN,
            delta_bits_sum: 0,
            value_bits_sum: 0,
            value_sum: first.into(),
            delta_sum: 0,
        };
        let (mut previous, mut delta_bits, mut value_bits, mut delta_sum) = (first, 0, 0, 0i64);
        for &value in &values[1..] {
            let delta = value.wrapping_sub(previous) as i32;
            previous = value;
            s.min = s.min.min(value);
            s.max = s.max.max(value);
            s.value_sum += u64::from(value);
            delta_sum += i64::from(delta);
            s.delta_min = s.delta_min.min(delta);
            s.delta_max = s.delta_max.max(delta);
            delta_bits += bits(zigzag(delta));
            value_bits += bits(zigzag(value.wrapping_sub(first) as i32));
        }
        s.delta_bits_sum = delta_bits.into();
        s.value_bits_sum = value_bits.into();
        s.value_sum -= values.len() as u64 * u64::from(s.min);
        s.delta_sum = (delta_sum - (values.len() as i64 - 1) * i64::from(s.delta_min)) as u64;
        s
    }
}

/// Appends `values`, of which there must be at least one. Says whether it did; otherwise the rows have to
/// carry them, which needs no more than the description that was written.
pub(super) fn write(values: &[u32], backend: Backend, rows: RowCost, sink: &mut Sink) -> bool {
    if nested::ascends_swapped(values) {
        return nested::write_swapped(values, backend, rows, sink);
    }
    write_unswapped(values, backend, rows, true, sink)
}

/// As [`write()`], not swapped. Only if `whole`, values may be written in halves.
pub(super) fn write_unswapped(
    values: &[u32],
    backend: Backend,
    rows: RowCost,
    whole: bool,
    sink: &mut Sink,
) -> bool {
    let first = values[0];
    if values.len() == 1 {
        write_step(first, 0, sink);
        return true;
    }
    let s = Stats::of(values);
    if s.delta_min == s.delta_max {
        write_step(first, s.delta_min, sink);
        return true;
    }
    sink.values += values.len() as u32;
    let different = values.iter().fold(0, |all, value| all | value ^ first);
    if different.trailing_zeros() >= COMMON_BITS_MIN && values.len() <= VALUES_MAX {
        return nested::write_shifted(values, different.trailing_zeros(), backend, rows, sink);
    }
    let n = values.len() as u64;
    let (form, cost) = cheapest(&s, n, backend);
    let loose = Loose::cheapest(&s, values, cost, backend);
    let cost = loose.map_or(cost, |(_, cost)| cost);
    if whole && backend == Backend::Entropy && nested::write_halves(values, cost, rows, sink) {
        return true;
    }
    if cost > 6 * 16 * n
        && let Some((palette, palette_cost)) = Palette::of(values, cost.min(rows * n), backend)
        && palette_cost < cost.min(rows * n)
    {
        palette.write(values, sink);
        return true;
    }
    if cost >= rows.saturating_mul(n) {
        if backend == Backend::Entropy && loose::is_noise(values) {
            Loose::Radix.write(&s, values, sink);
            return true;
        }
        sink.head.push(ROWS);
        return false;
    }
    match loose {
        Some((loose, _)) => loose.write(&s, values, sink),
        None => write_form(form, &s, values, sink),
    }
    true
}

fn write_form(form: u8, s: &Stats, values: &[u32], sink: &mut Sink) {
    match form {
        DELTA_PLANES => {
            let widest = zigzag(s.delta_min).max(zigzag(s.delta_max));
            write_planes(
                DELTA_PLANES,
                bytes(widest),
                values[0],
                sink,
                values.len() - 1,
                deltas(values).map(zigzag),
            );
        }
        DELTA_BITS => {
            let (min, width) = (s.delta_min, bits(s.delta_max.wrapping_sub(s.delta_min) as u32));
            sink.head.push(DELTA_BITS | (width as u8 - 1) << 3);
            sink.head_varint(values[0]);
            sink.head_varint(zigzag(min));
            sink.bits(width, deltas(values).map(|delta| delta.wrapping_sub(min) as u32));
        }
        PLANES => {
            let above = values.iter().map(|value| value - s.min);
            write_planes(PLANES, bytes(s.max - s.min), s.min, sink, values.len(), above);
        }
        _ => {
            let width = bits(s.max - s.min);
            sink.head.push(BITS | (width as u8 - 1) << 3);
            sink.head_varint(s.min);
            sink.bits(width, values.iter().map(|value| value - s.min));
        }
    }
}

/// What values cost in the form they would be written in.
pub(super) fn estimate(values: &[u32], backend: Backend) -> u64 {
    let n = values.len() as u64;
    if n < 2 {
        return 0;
    }
    let s = Stats::of(values);
    if s.delta_min == s.delta_max {
        return 0;
    }
    let (_, cost) = cheapest(&s, n, backend);
    let cost =
        Loose::cheapest(&s, values, cost, backend).map_or(cost + loose::PLANES_LOSS * n, |(_, cost)| cost);
    Palette::of(values, cost, backend).map_or(cost, |(_, palette)| cost.min(palette))
}

/// Fills `values` from the source. `false`: the rows carry them.
pub(super) fn read(source: &mut Source<'_>, values: &mut [u32]) -> Result<bool, Error> {
    let description = source.head_byte()?;
    let argument = description >> 3;
    match description & 7 {
        STEP if argument < 4 => {
            let mut value = if argument & 1 != 0 { source.head_varint()? } else { 0 };
            let step = if argument & 2 != 0 { unzigzag(source.head_varint()?) as u32 } else { 0 };
            for slot in values {
                *slot = value;
                value = value.wrapping_add(step);
            }
        }
        STEP if argument == nested::SWAPPED => nested::read_swapped(source, values)?,
        STEP if argument == nested::HALVES => nested::read_halves(source, values)?,
        STEP => loose::read_radix(argument, source, values)?,
        DELTA_PLANES if argument >= loose::RICE => {
            let (first, rest) = split(source, values)?;
            let min = unzigzag(source.head_varint()?) as u32;
            loose::read_rice(argument, source, rest)?;
            sum(first, rest, |delta| delta.wrapping_add(min));
        }
        PLANES if argument >= loose::RICE => {
            let min = source.head_varint()?;
            loose::read_rice(argument, source, values)?;
            values.iter_mut().for_each(|value| *value = value.wrapping_add(min));
        }
        DELTA_PLANES => {
            let (first, rest) = split(source, values)?;
            read_planes(argument, source, rest)?;
            sum(first, rest, |delta| unzigzag(delta) as u32);
        }
        DELTA_BITS => {
            let (first, rest) = split(source, values)?;
            let min = unzigzag(source.head_varint()?) as u32;
            source.bits(u32::from(argument) + 1, rest)?;
            sum(first, rest, |delta| delta.wrapping_add(min));
        }
        PLANES => {
            let min = source.head_varint()?;
            read_planes(argument, source, values)?;
            values.iter_mut().for_each(|value| *value = value.wrapping_add(min));
        }
        BITS => {
            let min = source.head_varint()?;
            source.bits(u32::from(argument) + 1, values)?;
            values.iter_mut().for_each(|value| *value = value.wrapping_add(min));
        }
        PALETTE => read_palette(usize::from(argument) + 1, source, values)?,
        ROWS if argument == 0 => return Ok(false),
        ROWS => nested::read_shifted(argument, source, values)?,
        _ => return Err(UNKNOWN),
    }
    Ok(true)
}

/// Fills `values` where there are no rows that could carry them.
pub(super) fn read_all(source: &mut Source<'_>, values: &mut [u32]) -> Result<(), Error> {
    if read(source, values)? {
        Ok(())
    } else {
        Err(Error::Corrupt { what: "a column of kind rows outside of rows" })
    }
}

/// The value of a column that is the same throughout, if the next one is written as that; else nothing is
/// taken.
pub(super) fn constant(source: &mut Source<'_>) -> Result<Option<u32>, Error> {
    match source.head_next(|byte| byte & 7 == STEP && byte >> 3 < 2) {
        None => Ok(None),
        Some(STEP) => Ok(Some(0)),
        Some(_) => source.head_varint().map(Some),
    }
}

pub(super) const UNKNOWN: Error = Error::Corrupt { what: "unknown form of a column" };

/// The form of the smallest estimated cost, in sixteenths of a bit for all values.
fn cheapest(s: &Stats, n: u64, backend: Backend) -> (u8, u64) {
    let value_width = u64::from(bits(s.max - s.min));
    let delta_width =
        u64::from(bits((i64::from(s.delta_max) - i64::from(s.delta_min)).min(u32::MAX.into()) as u32));
    // i32 differences may span more than 32 bits; then they do not pack.
    let packs = i64::from(s.delta_max) - i64::from(s.delta_min) <= i64::from(u32::MAX);
    let widest_delta = zigzag(s.delta_min).max(zigzag(s.delta_max));
    let (planes, delta_planes) = match backend {
        // Half a bit each: what telling the lengths apart costs an entropy coder, about.
        Backend::Entropy => (16 * s.value_bits_sum + 8 * n, 16 * s.delta_bits_sum + 8 * n),
        Backend::Matches => {
            (16 * 8 * n * u64::from(bytes(s.max - s.min)), 16 * 8 * n * u64::from(bytes(widest_delta)))
        }
    };
    let candidates = [
        (DELTA_PLANES, delta_planes),
        (DELTA_BITS, if packs { 16 * n * delta_width + 64 } else { u64::MAX }),
        (PLANES, planes),
        (BITS, 16 * n * value_width),
    ];
    candidates.into_iter().min_by_key(|&(_, cost)| cost).unwrap_or((BITS, u64::MAX))
}

fn write_step(first: u32, step: i32, sink: &mut Sink) {
    sink.head.push(STEP | u8::from(first != 0) << 3 | u8::from(step != 0) << 4);
    if first != 0 {
        sink.head_varint(first);
    }
    if step != 0 {
        sink.head_varint(zigzag(step));
    }
}

/// `count` values as `planes` planes: first all lowest bytes, then all second ones.
fn write_planes(
    form: u8,
    planes: u32,
    base: u32,
    sink: &mut Sink,
    count: usize,
    values: impl Iterator<Item = u32>,
) {
    sink.head.push(form | (planes as u8) << 3);
    sink.head_varint(base);
    let start = sink.body.len();
    sink.body.resize(start + planes as usize * count, 0);
    let room = &mut sink.body[start..];
    match planes {
        1 => room.iter_mut().zip(values).for_each(|(slot, value)| *slot = value as u8),
        2 => {
            let (a, b) = room.split_at_mut(count);
            for ((a, b), value) in a.iter_mut().zip(b).zip(values) {
                (*a, *b) = (value as u8, (value >> 8) as u8);
            }
        }
        _ => {
            for (i, value) in values.enumerate() {
                for plane in 0..planes as usize {
                    room[plane * count + i] = (value >> (8 * plane)) as u8;
                }
            }
        }
    }
}

fn read_planes(planes: u8, source: &mut Source<'_>, values: &mut [u32]) -> Result<(), Error> {
    if !(1..=4).contains(&planes) {
        return Err(Error::Corrupt { what: "number of byte planes" });
    }
    let n = values.len();
    let bytes = source.body(n * usize::from(planes))?;
    let (low, mut rest) = bytes.split_at(n);
    values.iter_mut().zip(low).for_each(|(value, byte)| *value = u32::from(*byte));
    for plane in 1..u32::from(planes) {
        let (bytes, after) = rest.split_at(n);
        values.iter_mut().zip(bytes).for_each(|(value, byte)| *value |= u32::from(*byte) << (8 * plane));
        rest = after;
    }
    Ok(())
}

fn split<'v>(source: &mut Source<'_>, values: &'v mut [u32]) -> Result<(u32, &'v mut [u32]), Error> {
    let first = source.head_varint()?;
    let (slot, rest) = values.split_first_mut().ok_or(Error::Corrupt { what: "an empty column" })?;
    *slot = first;
    Ok((first, rest))
}

fn sum(mut value: u32, deltas: &mut [u32], decode: impl Fn(u32) -> u32) {
    for slot in deltas {
        value = value.wrapping_add(decode(*slot));
        *slot = value;
    }
}

pub(super) fn deltas(values: &[u32]) -> impl Iterator<Item = i32> + Clone {
    values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) as i32)
}

/// Few distinct values. Found with a small hash table that is given up as soon as it would not pay.
struct Palette {
    values: [u32; PALETTE_MAX],
    count: usize,
    slots: [u8; 64],
}

impl Palette {
    /// With its cost, unless there are too many values for `cost_max`.
    fn of(values: &[u32], cost_max: u64, backend: Backend) -> Option<(Palette, u64)> {
        let n = values.len() as u64;
        let mut p = Palette { values: [0; PALETTE_MAX], count: 0, slots: [0; 64] };
        let cost = |count: usize| match backend {
            Backend::Entropy => 16 * n * u64::from(bits(count as u32 - 1)) + 16 * 32 * count as u64,
            Backend::Matches => 16 * 8 * n + 16 * 32 * count as u64,
        };
        for &value in values {
            let slot = p.slot(value);
            if p.slots[slot] == 0 {
                if p.count == PALETTE_MAX || cost(p.count + 1) > cost_max {
                    return None;
                }
                p.values[p.count] = value;
                p.count += 1;
                p.slots[slot] = p.count as u8;
            }
        }
        Some((cost(p.count), p)).map(|(cost, p)| (p, cost))
    }

    /// Where `value` is or belongs. The table has twice the room it needs.
    fn slot(&self, value: u32) -> usize {
        let mut slot = (value.wrapping_mul(0x9e37_79b1) >> 26) as usize;
        while let Some(index) = usize::from(self.slots[slot]).checked_sub(1) {
            if self.values[index] == value {
                break;
            }
            slot = (slot + 1) % self.slots.len();
        }
        slot
    }

    fn write(&self, values: &[u32], sink: &mut Sink) {
        sink.head.push(PALETTE | (self.count as u8 - 1) << 3);
        for value in &self.values[..self.count] {
            sink.body.extend_from_slice(&value.to_le_bytes());
        }
        sink.body.extend(values.iter().map(|&value| self.slots[self.slot(value)] - 1));
    }
}

fn read_palette(count: usize, source: &mut Source<'_>, values: &mut [u32]) -> Result<(), Error> {
    let mut palette = [0; PALETTE_MAX];
    for (slot, bytes) in palette.iter_mut().zip(source.body(4 * count)?.chunks_exact(4)) {
        *slot = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    let indexes = source.body(values.len())?;
    for (slot, &index) in values.iter_mut().zip(indexes) {
        let index = usize::from(index);
        if index >= count {
            return Err(Error::Corrupt { what: "an index beyond its palette" });
        }
        *slot = palette[index];
    }
    Ok(())
}

pub(super) fn zigzag(value: i32) -> u32 {
    (value << 1 ^ value >> 31) as u32
}

pub(super) fn unzigzag(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

fn bits(value: u32) -> u32 {
    32 - value.leading_zeros()
}

fn bytes(value: u32) -> u32 {
    bits(value).div_ceil(8).max(1)
}
