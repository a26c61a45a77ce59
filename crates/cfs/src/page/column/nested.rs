//! Columns that are written as other columns: by values with their bytes turned around, without low bits that
//! all have, or by halves.
//!
//! Invariant: a description leads to at most three others. Turned columns are not turned again, shifted ones
//! not shifted, turned or halved, and halves are neither turned nor halved.

use super::loose::PLANES_LOSS;
use super::{Backend, NEVER, ROWS, RowCost, STEP, UNKNOWN, VALUES_MAX, estimate, read, write_unswapped};
use crate::page::Error;
use crate::page::streams::{Sink, Source};

/// Argument of [`STEP`]: another column follows, of values with their bytes turned around.
pub(super) const SWAPPED: u8 = 5;
/// Argument of [`STEP`]: two columns follow, lower and upper halves.
pub(super) const HALVES: u8 = 6;
/// Cheaper values are not looked at in halves.
const HALVES_COST_MIN: u64 = 15 * 16;
/// Fewer values than this may ascend by chance.
const SWAPPED_VALUES_MIN: usize = 8;

/// Whether values ascend only with their bytes turned around, as whatever is compared byte by byte does.
pub(super) fn ascends_swapped(values: &[u32]) -> bool {
    (SWAPPED_VALUES_MIN..=VALUES_MAX).contains(&values.len())
        && !values.is_sorted()
        && values.is_sorted_by_key(|value| value.swap_bytes())
}

/// Writes values with their bytes turned around.
pub(super) fn write_swapped(values: &[u32], backend: Backend, rows: RowCost, sink: &mut Sink) -> bool {
    let mut swapped = [0; VALUES_MAX];
    swapped.iter_mut().zip(values).for_each(|(slot, value)| *slot = value.swap_bytes());
    let mark = sink.head.len();
    sink.head.push(STEP | SWAPPED << 3);
    let done = write_unswapped(&swapped[..values.len()], backend, rows, true, sink);
    if !done {
        sink.head.truncate(mark);
        sink.head.push(ROWS);
    }
    done
}

/// The inverse of [`write_swapped`], behind the description.
pub(super) fn read_swapped(source: &mut Source<'_>, values: &mut [u32]) -> Result<(), Error> {
    if source.head_next(|byte| byte == STEP | SWAPPED << 3).is_some() || !read(source, values)? {
        return Err(UNKNOWN);
    }
    values.iter_mut().for_each(|value| *value = value.swap_bytes());
    Ok(())
}

/// Writes lower and upper halves as columns of their own, if that is clearly cheaper: a block's lower half
/// beside an offset.
pub(super) fn write_halves(values: &[u32], cost: u64, rows: RowCost, sink: &mut Sink) -> bool {
    let (n, backend) = (values.len(), Backend::Entropy);
    if cost <= HALVES_COST_MIN * n as u64 || n > VALUES_MAX {
        return false;
    }
    let (mut low, mut high) = ([0; VALUES_MAX], [0; VALUES_MAX]);
    for (i, value) in values.iter().enumerate() {
        (low[i], high[i]) = (value & 0xffff, value >> 16);
    }
    let (low, high) = (&low[..n], &high[..n]);
    let upper = estimate(high, backend);
    let most = (cost + PLANES_LOSS * n as u64).min(rows.saturating_mul(n as u64)) / 8 * 7;
    if 2 * upper >= most || upper + estimate(low, backend) >= most {
        return false;
    }
    sink.head.push(STEP | HALVES << 3);
    write_unswapped(low, backend, NEVER, false, sink);
    write_unswapped(high, backend, NEVER, false, sink);
    true
}

/// Writes values that have so many low bits in common without them.
pub(super) fn write_shifted(
    values: &[u32],
    common: u32,
    backend: Backend,
    rows: RowCost,
    sink: &mut Sink,
) -> bool {
    let mut shifted = [0; VALUES_MAX];
    shifted.iter_mut().zip(values).for_each(|(slot, value)| *slot = value >> common);
    let mark = sink.head.len();
    sink.head.push(ROWS | (common as u8) << 3);
    sink.head_varint(values[0] & ((1 << common) - 1));
    let done = write_unswapped(&shifted[..values.len()], backend, rows, false, sink);
    if !done {
        sink.head.truncate(mark);
        sink.head.push(ROWS);
    }
    done
}

/// The inverse of [`write_shifted`], behind the description, whose argument is how many bits.
pub(super) fn read_shifted(bits: u8, source: &mut Source<'_>, values: &mut [u32]) -> Result<(), Error> {
    let low = source.head_varint()?;
    let again = source.head_next(|byte| byte & 7 == ROWS || is_nested(byte)).is_some();
    if again || !read(source, values)? {
        return Err(UNKNOWN);
    }
    values.iter_mut().for_each(|value| *value = *value << bits | low);
    Ok(())
}

/// Whether a column is written as others.
fn is_nested(description: u8) -> bool {
    [STEP | SWAPPED << 3, STEP | HALVES << 3].contains(&description)
}

/// The inverse of [`write_halves`], behind the description.
pub(super) fn read_halves(source: &mut Source<'_>, values: &mut [u32]) -> Result<(), Error> {
    let mut low = [0; VALUES_MAX];
    let low = low.get_mut(..values.len()).ok_or(UNKNOWN)?;
    for half in [&mut *low, &mut *values] {
        // Halves have none of their own, so this cannot go on.
        if source.head_next(is_nested).is_some() || !read(source, half)? {
            return Err(UNKNOWN);
        }
    }
    values.iter_mut().zip(low).for_each(|(value, low)| *value = *value << 16 | *low & 0xffff);
    Ok(())
}
