//! Forms of columns for values without a pattern, whose bits pass the codec by.
//!
//! Row pointers in the order of keys, gaps between sorted keys, hashes: for a codec they are literals of
//! eight bits whatever it does, and since it has one table for all literals of a page, everything else gets
//! longer codes because of them.

use super::{Backend, DELTA_PLANES, PLANES, STEP, Stats, UNKNOWN, deltas, zigzag};
use crate::page::streams::{Sink, Source};
use crate::page::{Error, rice};

/// Argument of [`STEP`]: digits of larger numbers.
const RADIX: u8 = 4;
/// Argument of planes: Rice's code with this less low bits.
pub(super) const RICE: u8 = 8;
/// What planes cost more than their bits say, in sixteenths of a bit per value: as literals beside others'.
pub(super) const PLANES_LOSS: u64 = 28;
/// Values of fewer bits often have a pattern.
const BITS_MIN: u64 = 6;
/// Neighbours that are looked at.
const SAMPLES: usize = 32;
/// Fewer values than this cannot be distinguished from text.
const NOISE_VALUES_MIN: usize = 12;

/// One of the forms.
#[derive(Copy, Clone)]
pub(super) enum Loose {
    /// Differences above the smallest one by Rice's code of so many low bits.
    RiceDeltas(u32),
    /// Values above the smallest one, likewise.
    Rice(u32),
    /// Values above the smallest one, all as likely.
    Radix,
}

impl Loose {
    /// The cheapest and its cost, if it is to be preferred to another form of cost `cost`.
    pub(super) fn cheapest(s: &Stats, values: &[u32], cost: u64, backend: Backend) -> Option<(Loose, u64)> {
        let n = values.len() as u64;
        if backend != Backend::Entropy || cost + PLANES_LOSS * n <= 16 * BITS_MIN * n {
            return None;
        }
        let packs = i64::from(s.delta_max) - i64::from(s.delta_min) <= i64::from(u32::MAX);
        let (low, bits) = rice::best(s.value_sum, n);
        let above = (Loose::Rice(low), 16 * bits);
        let radix = (Loose::Radix, 16 * rice::radix_bits(u64::from(s.max - s.min) + 1, n));
        let (low, bits) = rice::best(s.delta_sum, n - 1);
        let deltas = (Loose::RiceDeltas(low), if packs { 16 * bits + 64 } else { u64::MAX });
        let best = [deltas, above, radix].into_iter().min_by_key(|&(_, cost)| cost)?;
        let pays = best.1 > 16 * BITS_MIN * n && best.1 < cost + PLANES_LOSS * n;
        (pays && !repeats(values)).then_some(best)
    }

    /// Appends values that are not all the same.
    pub(super) fn write(self, s: &Stats, values: &[u32], sink: &mut Sink) {
        match self {
            Loose::RiceDeltas(low) => {
                sink.head.push(DELTA_PLANES | (RICE + low as u8) << 3);
                sink.head_varint(values[0]);
                sink.head_varint(zigzag(s.delta_min));
                rice::write(low, deltas(values).map(|delta| delta.wrapping_sub(s.delta_min) as u32), sink);
            }
            Loose::Rice(low) => {
                sink.head.push(PLANES | (RICE + low as u8) << 3);
                sink.head_varint(s.min);
                rice::write(low, values.iter().map(|value| value - s.min), sink);
            }
            Loose::Radix => {
                sink.head.push(STEP | RADIX << 3);
                sink.head_varint(s.min);
                sink.head_varint(s.max - s.min);
                let range = u64::from(s.max - s.min) + 1;
                rice::write_radix(range, values.iter().map(|value| value - s.min), sink);
            }
        }
    }
}

/// The inverse of [`Loose::Radix`], behind the description, whose argument must be that.
pub(super) fn read_radix(argument: u8, source: &mut Source<'_>, values: &mut [u32]) -> Result<(), Error> {
    if argument != RADIX {
        return Err(UNKNOWN);
    }
    let (min, range) = (source.head_varint()?, u64::from(source.head_varint()?) + 1);
    if range < 2 {
        return Err(Error::Corrupt { what: "range of a column" });
    }
    rice::read_radix(range, source, values)?;
    values.iter_mut().for_each(|value| *value = value.wrapping_add(min));
    Ok(())
}

/// Reads what [`rice::write`] wrote, by the argument of a description, which is at least [`RICE`].
pub(super) fn read_rice(argument: u8, source: &mut Source<'_>, values: &mut [u32]) -> Result<(), Error> {
    rice::read((argument - RICE).into(), source, values)
}

/// Whether neighbours often have the same difference, which a codec sees.
fn repeats(values: &[u32]) -> bool {
    let mut samples = [0; SAMPLES];
    let mut count = 0;
    for (slot, delta) in samples.iter_mut().zip(deltas(&values[values.len() / 4..])) {
        *slot = delta;
        count += 1;
    }
    let samples = &mut samples[..count];
    samples.sort_unstable();
    let same = samples.windows(2).filter(|pair| pair[0] == pair[1]).count();
    4 * same > count
}

/// Whether the values have about as many different bytes as hashes would. Text has far fewer.
pub(super) fn is_noise(values: &[u32]) -> bool {
    let mut seen = [0u64; 4];
    for byte in values.iter().flat_map(|value| value.to_le_bytes()) {
        seen[usize::from(byte / 64)] |= 1 << (byte % 64);
    }
    let distinct: u32 = seen.iter().map(|word| word.count_ones()).sum();
    let expected = 256.0 * (1.0 - (-4.0 * values.len() as f32 / 256.0).exp());
    let same = values.windows(2).filter(|pair| pair[0] == pair[1]).count();
    values.len() >= NOISE_VALUES_MIN && distinct as f32 > 0.88 * expected && 16 * same < values.len()
}
