//! Columns whose low bits have no pattern, as bits that no codec has to look at.
//!
//! Gaps between sorted keys, or between the rows of one key, are about geometric: many small, few large.
//! Rice's code (the low bits as they are, the rest in unary) is within a few hundredths of a bit of what such
//! numbers need. Numbers that are all equally likely take as many bits as their range says: several of them,
//! as digits of one number of up to 56 bits, waste less than each alone would.

use super::Error;
use super::streams::{Sink, Source, pack};
use super::unpack;

/// Low bits that Rice's code may have.
pub(super) const LOW_BITS_MAX: u32 = 23;
/// Bits of a group of digits: at any bit of a byte, it still is within eight bytes.
const GROUP_BITS_MAX: u32 = 56;

/// The number of low bits that makes `count` numbers of this sum shortest, and how many bits that are, at
/// most.
pub(super) fn best(sum: u64, count: u64) -> (u32, u64) {
    // The mean times ln 2 is where one bit more or less is as good.
    let low = (sum / count * 11 / 16).checked_ilog2().unwrap_or(0).min(LOW_BITS_MAX);
    (low, count * u64::from(low + 1) + (sum >> low))
}

/// Appends numbers: all low bits, then the rest of each as that many zeros and a one.
pub(super) fn write(low: u32, values: impl Iterator<Item = u32> + Clone, sink: &mut Sink) {
    if low > 0 {
        pack(&mut sink.loose, low, values.clone().map(|value| value & ((1 << low) - 1)));
    }
    let (mut pending, mut count) = (0u64, 0);
    for value in values {
        count += value >> low;
        while count >= 32 {
            sink.loose.extend_from_slice(&(pending as u32).to_le_bytes());
            pending >>= 32;
            count -= 32;
        }
        pending |= 1 << count;
        count += 1;
    }
    let rest = count.div_ceil(8) as usize;
    sink.loose.extend_from_slice(&pending.to_le_bytes()[..rest]);
}

/// The inverse of [`write()`].
pub(super) fn read(low: u32, source: &mut Source<'_>, values: &mut [u32]) -> Result<(), Error> {
    values.fill(0);
    if low > 0 {
        let bytes = source.loose((values.len() * low as usize).div_ceil(8))?;
        unpack::by_width(low, bytes, values);
    }
    let bytes = source.loose_rest();
    // Ones are counted from where the last one was; zeros of words without any add up.
    let (mut at, mut word, mut left, mut zeros) = (0, 0u64, 0u32, 0u32);
    for slot in values {
        while word == 0 {
            zeros += left;
            let rest = bytes.get(at..).filter(|rest| !rest.is_empty());
            let rest = rest.ok_or(Error::Corrupt { what: "shorter than what it describes" })?;
            let len = rest.len().min(8);
            let mut next = [0; 8];
            next[..len].copy_from_slice(&rest[..len]);
            (word, left, at) = (u64::from_le_bytes(next), 8 * len as u32, at + len);
        }
        let run = word.trailing_zeros();
        *slot |= (zeros + run) << low;
        word = word >> run >> 1;
        (left, zeros) = (left - run - 1, 0);
    }
    // Whole bytes behind the last one belong to others.
    source.loose(at - (left / 8) as usize)?;
    Ok(())
}

/// How many digits to base `range` make a group.
fn digits(range: u64) -> u32 {
    let mut digits = 1;
    let mut product = range;
    while let Some(next) = product.checked_mul(range).filter(|next| *next <= 1 << GROUP_BITS_MAX) {
        (product, digits) = (next, digits + 1);
    }
    digits
}

/// Bits of a group of so many digits.
fn group_bits(range: u64, digits: u32) -> u32 {
    64 - (range.pow(digits) - 1).leading_zeros()
}

/// Bits of `count` numbers below `range`, about.
pub(super) fn radix_bits(range: u64, count: u64) -> u64 {
    let digits = digits(range);
    count * u64::from(group_bits(range, digits)) / u64::from(digits)
}

/// Appends numbers below `range` as digits of larger ones.
pub(super) fn write_radix(range: u64, values: impl Iterator<Item = u32>, sink: &mut Sink) {
    let digits = digits(range);
    let (mut pending, mut count) = (0u128, 0);
    let (mut group, mut have, mut weight) = (0u64, 0, 1u64);
    let mut put = |group: u64, have: u32, loose: &mut Vec<u8>| {
        pending |= u128::from(group) << count;
        count += group_bits(range, have);
        while count >= 8 {
            loose.push(pending as u8);
            pending >>= 8;
            count -= 8;
        }
        count
    };
    for value in values {
        group += u64::from(value) * weight;
        weight = weight.saturating_mul(range);
        have += 1;
        if have == digits {
            put(group, have, &mut sink.loose);
            (group, have, weight) = (0, 0, 1);
        }
    }
    if have > 0 {
        put(group, have, &mut sink.loose);
    }
    // Up to a byte of what is left.
    if put(0, 0, &mut sink.loose) > 0 {
        sink.loose.push(pending as u8);
    }
}

/// The inverse of [`write_radix`]. The range must be above 1.
pub(super) fn read_radix(range: u64, source: &mut Source<'_>, values: &mut [u32]) -> Result<(), Error> {
    let digits = digits(range);
    let width = group_bits(range, digits);
    let (whole, rest) = (values.len() / digits as usize, (values.len() % digits as usize) as u32);
    let last = if rest > 0 { group_bits(range, rest) } else { 0 };
    let bytes = source.loose((whole * width as usize + last as usize).div_ceil(8))?;
    let mut bit = 0;
    for (group, width) in values.chunks_mut(digits as usize).zip((0..whole).map(|_| width).chain([last])) {
        let from = &bytes[bit / 8..];
        let len = from.len().min(8);
        let mut word = [0; 8];
        word[..len].copy_from_slice(&from[..len]);
        let mut number = u64::from_le_bytes(word) >> (bit % 8) & ((1 << width) - 1);
        for slot in group {
            let rest = number / range;
            *slot = (number - rest * range) as u32;
            number = rest;
        }
        bit += width as usize;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pgshrink_testkit::Seed;

    use super::*;

    fn source(loose: &[u8]) -> Source<'_> {
        Source::split(&[0; 5], loose).unwrap()
    }

    #[test]
    fn numbers_come_back_by_any_number_of_low_bits() {
        let mut rng = Seed::from_env_or_time().rng();
        for round in 0..400 {
            let low = rng.below(LOW_BITS_MAX as usize + 1) as u32;
            let most = [1, 2, 40, 900][round % 4] << low;
            let values: Vec<u32> = (0..rng.below(300) + 1).map(|_| rng.below(most) as u32).collect();
            let mut sink = Sink::default();
            write(low, values.iter().copied(), &mut sink);
            write(low, values.iter().copied(), &mut sink);
            let mut source = source(&sink.loose);
            let mut back = vec![7; values.len()];
            for _ in 0..2 {
                read(low, &mut source, &mut back).unwrap();
                assert_eq!(back, values, "{low} bits");
            }
            source.finish().unwrap();
            for len in 0..sink.loose.len() / 2 {
                assert!(read(low, &mut self::source(&sink.loose[..len]), &mut back).is_err());
            }
        }
    }

    #[test]
    fn digits_come_back_for_any_range() {
        let mut rng = Seed::from_env_or_time().rng();
        let fixed = [2, 3, 255, 256, 257, 1 << 14, (1 << 14) + 1, 1 << 28, (1 << 28) + 1, 1 << 32];
        let random = (0..300).map(|_| 2 + (rng.bits() >> (32 + rng.below(31))));
        let ranges: Vec<u64> = fixed.into_iter().chain(random).collect();
        for range in ranges {
            let mut values: Vec<u32> = (0..rng.below(90) + 1).map(|_| (rng.bits() % range) as u32).collect();
            values[0] = (range - 1) as u32;
            let mut sink = Sink::default();
            write_radix(range, values.iter().copied(), &mut sink);
            let bits = radix_bits(range, values.len() as u64);
            assert!(sink.loose.len() as u64 * 8 <= bits + 64, "{range}: {} bytes", sink.loose.len());
            let mut source = source(&sink.loose);
            let mut back = vec![7; values.len()];
            read_radix(range, &mut source, &mut back).unwrap();
            assert_eq!(back, values, "{range}");
            source.finish().unwrap();
            let short = &sink.loose[..sink.loose.len() - 1];
            assert!(read_radix(range, &mut self::source(short), &mut back).is_err());
        }
    }

    #[test]
    fn the_best_number_of_low_bits_is_within_half_a_bit_of_all_others() {
        for mean in [1, 5, 100, 4584, 1 << 20] {
            let count = 200;
            let (low, bits) = best(mean * count, count);
            let least =
                (0..=LOW_BITS_MAX).map(|low| count * u64::from(low + 1) + ((mean * count) >> low)).min();
            assert!(bits <= least.unwrap() + count / 2, "{mean}: {low}");
        }
    }
}
