//! Numbers: between the server's numeric and an integer with a count of decimals.
//!
//! A numeric has digits of base 10,000, without zeros at either end, a weight, a sign, and the count of decimals that it
//! shows. The integer with that count says the same. Only numerics in the form that the server writes are taken: whatever
//! else there is stays as it is.
//!
//! Source: `src/backend/utils/adt/numeric.c`, `make_result_opt_error`.

use super::schema::Few;

/// Bytes of a varlena header.
const VARLENA_BYTES: usize = 4;
/// `NUMERIC_SHORT` and its parts.
const IS_SHORT: u16 = 0x8000;
const IS_SPECIAL: u16 = 0xc000;
const SHORT_NEGATIVE: u16 = 0x2000;
const SHORT_SCALE_SHIFT: u16 = 7;
const SHORT_SCALE_MAX: u16 = 0x3f;
const SHORT_WEIGHT_NEGATIVE: u16 = 0x40;
const SHORT_WEIGHT_MASK: u16 = 0x3f;
/// The long form's sign, `NUMERIC_NEG`, and `NUMERIC_DSCALE_MASK`.
const LONG_NEGATIVE: u16 = 0x4000;
const LONG_SCALE_MASK: u16 = 0x3fff;
/// Digits of base 10,000 that an integer of 127 bits may need.
const DIGITS_MAX: usize = 11;
/// Decimals that are taken.
pub(super) const SCALE_MAX: u16 = 40;
/// A sign, the digits of an `i128`, as many as there may be zeros before them, and a point.
const TEXT_BYTES_MAX: usize = 1 + 39 + SCALE_MAX as usize + 1 + 1;
const BASE: i128 = 10_000;
const BASE_DECIMALS: i32 = 4;
/// Of an integer of 128 bits, with up to three decimals more.
const DIGITS_OF_NUMERIC_MAX: usize = 12;
/// With up to three decimals more, it has five digits at most, which fit into few bytes.
const SHORT_INTEGER_MAX: u64 = 10u64.pow(16) - 1;
const _: () = assert!(SHORT_INTEGER_MAX < u64::MAX / POWERS[3]);
/// Of ten, below the base.
const POWERS: [u64; 4] = [1, 10, 100, 1000];

/// Whether bytes are as long as their varlena header says, and have the numeric's own header: more than that must not be read
/// of them.
pub(super) fn is_numeric(bytes: &[u8]) -> bool {
    let Some((varlena, [low, high, ..])) = bytes.split_first_chunk() else { return false };
    // The long form has its weight in two bytes more.
    let own = if u16::from_le_bytes([*low, *high]) & IS_SHORT != 0 { 2 } else { 4 };
    u32::from_le_bytes(*varlena) as usize == bytes.len() << 2 && bytes.len() >= VARLENA_BYTES + own
}

/// A number: `integer` / 10^`scale`, which shows `scale` decimals.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Number {
    pub(super) integer: i128,
    pub(super) scale: u16,
}

impl Number {
    /// Of a numeric with its four-byte header. None: it has more digits than fit, is none, or not in the usual form.
    pub(super) fn of(numeric: &[u8]) -> Option<Number> {
        let body = numeric.get(VARLENA_BYTES..)?;
        let (head, rest) = body.split_first_chunk().map(|(head, rest)| (u16::from_le_bytes(*head), rest))?;
        let (scale, weight, is_negative, digits) = if head & IS_SPECIAL == IS_SPECIAL {
            return None;
        } else if head & IS_SHORT != 0 {
            let low = i32::from(head & SHORT_WEIGHT_MASK);
            let weight = if head & SHORT_WEIGHT_NEGATIVE != 0 { low - 64 } else { low };
            (head >> SHORT_SCALE_SHIFT & SHORT_SCALE_MAX, weight, head & SHORT_NEGATIVE != 0, rest)
        } else {
            let (weight, digits) = rest.split_first_chunk()?;
            (head & LONG_SCALE_MASK, i16::from_le_bytes(*weight).into(), head & LONG_NEGATIVE != 0, digits)
        };
        if scale > SCALE_MAX || digits.len() > 2 * DIGITS_MAX || digits.len() % 2 != 0 {
            return None;
        }
        // The last digit's place, in decimals.
        let count = digits.len() as i32 / 2;
        let place = (weight - count + 1) * BASE_DECIMALS + i32::from(scale);
        let digits = digits.as_chunks::<2>().0;
        let of = |integer: i128| {
            let integer = if is_negative { integer.checked_neg()? } else { integer };
            Some(Number { integer, scale })
        };
        if let Some(integer) = small(digits, place) {
            let is_usual = head & IS_SHORT != 0
                && u32::from_le_bytes(*numeric.first_chunk()?) as usize == numeric.len() << 2
                && are_usual(digits, weight, is_negative);
            return of(integer.into()).filter(|_| is_usual);
        }
        let number = of(large(digits, place)?)?;
        let mut buffer = Buffer::default();
        number.write(&mut buffer)?;
        (buffer.bytes() == numeric).then_some(number)
    }

    /// As [`write`](Self::write), of one whose digits behind the point, rounded up to whole digits, fit with it into 64 bits:
    /// divisions of 128 bits take long.
    fn digits_of_small(self, shift: usize, digits: &mut [u16; DIGITS_OF_NUMERIC_MAX]) -> Option<usize> {
        let rest = u64::try_from(self.integer.unsigned_abs()).ok()?;
        let (mut rest, mut count) = (rest.checked_mul(POWERS[shift])?, 0);
        while rest > 0 {
            digits[count] = (rest % BASE as u64) as u16;
            rest /= BASE as u64;
            count += 1;
        }
        Some(count)
    }

    fn digits_of_large(self, shift: usize, digits: &mut [u16; DIGITS_OF_NUMERIC_MAX]) -> Option<usize> {
        let mut rest = self.integer.unsigned_abs().checked_mul(POWERS[shift].into())?;
        let mut count = 0;
        while rest > 0 {
            *digits.get_mut(count)? = (rest % BASE as u128) as u16;
            rest /= BASE as u128;
            count += 1;
        }
        Some(count)
    }

    /// The text that the server prints for it.
    #[inline]
    pub(super) fn text(self, digits: &mut Digits) -> &[u8] {
        let (digits, mut from, mut rest) = (&mut digits.0, TEXT_BYTES_MAX, self.integer.unsigned_abs());
        while rest > u64::MAX.into() {
            from -= 1;
            digits[from] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        // A division of 128 bits takes long.
        let mut rest = rest as u64;
        while rest > 0 {
            from -= 1;
            digits[from] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let point = TEXT_BYTES_MAX - usize::from(self.scale);
        from = from.min(point - 1);
        if self.scale > 0 {
            digits.copy_within(from..point, from - 1);
            digits[point - 1] = b'.';
            from -= 1;
        }
        if self.integer < 0 {
            from -= 1;
            digits[from] = b'-';
        }
        &digits[from..]
    }

    /// The numeric with its header, if it has few bytes: made in registers, since what was stored in pieces takes
    /// long to be loaded as one.
    #[inline]
    pub(super) fn few(self) -> Option<Few> {
        let is_fit = self.scale <= SHORT_SCALE_MAX && self.integer.unsigned_abs() <= SHORT_INTEGER_MAX.into();
        if !is_fit {
            return None;
        }
        // Whole digits behind the point.
        let behind = usize::from(self.scale).div_ceil(BASE_DECIMALS as usize);
        let shift = behind * BASE_DECIMALS as usize - usize::from(self.scale);
        let (mut rest, mut count) = (self.integer.unsigned_abs() as u64 * POWERS[shift], 0);
        let (mut digits, mut used) = (0u128, 0u32);
        while rest > 0 {
            let digit = rest % BASE as u64;
            rest /= BASE as u64;
            count += 1;
            // No zeros at the end.
            if digit != 0 || used > 0 {
                digits = digits << u16::BITS | u128::from(digit);
                used += 1;
            }
        }
        let weight = if used == 0 { 0 } else { count - behind as i32 - 1 };
        let sign = if self.integer < 0 { SHORT_NEGATIVE } else { 0 };
        let low = weight as u16 & (SHORT_WEIGHT_NEGATIVE | SHORT_WEIGHT_MASK);
        let head = IS_SHORT | sign | self.scale << SHORT_SCALE_SHIFT | low;
        let len = VARLENA_BYTES + 2 + 2 * used as usize;
        // As `SET_VARSIZE` on a little-endian machine.
        let word = digits << 48 | u128::from(head) << 32 | (len as u128) << 2;
        Some(Few { bytes: word.to_le_bytes(), len: len as u8 })
    }

    /// The numeric with its header.
    pub(super) fn write(self, buffer: &mut Buffer) -> Option<()> {
        buffer.len = VARLENA_BYTES;
        let scale = i32::from(self.scale);
        // Whole digits behind the point.
        let decimals = i32::from(self.scale.next_multiple_of(BASE_DECIMALS as u16));
        let (mut digits, shift) = ([0u16; DIGITS_OF_NUMERIC_MAX], (decimals - scale) as usize);
        let count = match self.digits_of_small(shift, &mut digits) {
            Some(count) => count,
            None => self.digits_of_large(shift, &mut digits)?,
        };
        let mut weight = count as i32 - decimals / BASE_DECIMALS - 1;
        let digits = digits.get(..count)?;
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        let digits = digits.get(zeros..)?;
        if digits.is_empty() {
            weight = 0;
        }
        let is_negative = self.integer < 0;
        if self.scale <= SHORT_SCALE_MAX && (-64..64).contains(&weight) {
            let sign = if is_negative { SHORT_NEGATIVE } else { 0 };
            let low = weight as u16 & (SHORT_WEIGHT_NEGATIVE | SHORT_WEIGHT_MASK);
            buffer.push(IS_SHORT | sign | self.scale << SHORT_SCALE_SHIFT | low)?;
        } else {
            buffer.push(if is_negative { LONG_NEGATIVE } else { 0 } | self.scale)?;
            buffer.push(weight as u16)?;
        }
        digits.iter().rev().try_for_each(|digit| buffer.push(*digit))?;
        // As `SET_VARSIZE` on a little-endian machine.
        let header = (buffer.len as u32) << 2;
        buffer.bytes[..VARLENA_BYTES].copy_from_slice(&header.to_le_bytes());
        Some(())
    }
}

/// Whether these are the digits of a number as the server writes them: below the base, without zeros at either end.
fn are_usual(digits: &[[u8; 2]], weight: i32, is_negative: bool) -> bool {
    match (digits.first(), digits.last()) {
        (Some(first), Some(last)) => {
            let all = digits.iter().all(|digit| u16::from_le_bytes(*digit) < BASE as u16);
            all && *first != [0; 2] && *last != [0; 2]
        }
        _ => weight == 0 && !is_negative,
    }
}

/// The integer of digits whose last one is at a place, if it and they fit into 64 bits: divisions of 128 bits take long.
fn small(digits: &[[u8; 2]], place: i32) -> Option<i64> {
    const DIGITS_MAX: usize = 3;
    const PLACE_MAX: i32 = 6;
    if digits.len() > DIGITS_MAX || !(-3..=PLACE_MAX).contains(&place) {
        return None;
    }
    let mut integer = 0i64;
    for digit in digits {
        integer = integer * BASE as i64 + i64::from(i16::from_le_bytes(*digit));
    }
    if place >= 0 {
        return Some(integer * 10i64.pow(place as u32));
    }
    let divisor = POWERS[place.unsigned_abs() as usize] as i64;
    // What is left over is told by who takes any.
    (integer % divisor == 0).then(|| integer / divisor)
}

/// The same of any that fit into 128 bits.
fn large(digits: &[[u8; 2]], place: i32) -> Option<i128> {
    let mut integer = 0i128;
    for digit in digits {
        integer = integer.checked_mul(BASE)?.checked_add(i16::from_le_bytes(*digit).into())?;
    }
    match place {
        0.. => integer.checked_mul(10i128.checked_pow(place as u32)?),
        _ => {
            let divisor = 10i128.checked_pow(place.unsigned_abs())?;
            (integer % divisor == 0).then(|| integer / divisor)
        }
    }
}

/// Room for the text of a number; zeros.
pub(super) struct Digits([u8; TEXT_BYTES_MAX]);

impl Default for Digits {
    #[inline]
    fn default() -> Digits {
        Digits([b'0'; TEXT_BYTES_MAX])
    }
}

/// Room for a numeric.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    bytes: [u8; 40],
    len: usize,
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer { bytes: [0; 40], len: 0 }
    }
}

impl Buffer {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, word: u16) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + 2)?.copy_from_slice(&word.to_le_bytes());
        self.len += 2;
        Some(())
    }
}

/// Appends the shortest form of a signed integer: as many bytes as it needs, none for zero. Small ones of either sign are
/// short.
pub(super) fn push_integer(value: i128, out: &mut Vec<u8>) {
    let folded = (value << 1 ^ value >> 127) as u128;
    let used = (128 - folded.leading_zeros() as usize).div_ceil(8);
    out.extend_from_slice(&folded.to_le_bytes()[..used]);
}

/// The integer of all these bytes.
#[inline]
pub(super) fn integer(bytes: &[u8]) -> Option<i128> {
    if let Some(folded) = word(bytes) {
        return Some(((folded >> 1) as i64 ^ -((folded & 1) as i64)).into());
    }
    let mut folded = [0; 16];
    folded.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let folded = u128::from_le_bytes(folded);
    Some((folded >> 1) as i128 ^ -((folded & 1) as i128))
}

/// At most eight bytes as a number, the first one lowest.
#[inline]
fn word(bytes: &[u8]) -> Option<u64> {
    match *bytes {
        [] => Some(0),
        [byte] => Some(byte.into()),
        [low, high] => Some(u16::from_le_bytes([low, high]).into()),
        [low, middle, high] => Some(u32::from_le_bytes([low, middle, high, 0]).into()),
        _ if bytes.len() <= size_of::<u64>() => {
            // The two may have bytes in common.
            let (low, high) =
                (u32::from_le_bytes(*bytes.first_chunk()?), u32::from_le_bytes(*bytes.last_chunk()?));
            Some(u64::from(low) | u64::from(high) << (8 * (bytes.len() - size_of::<u32>())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use pgshrink_testkit::{Rng, Seed};

    use super::*;

    #[test]
    fn integers_of_every_size_are_as_short_as_they_can_be() {
        for (value, bytes) in
            [(0, 0), (1, 1), (-1, 1), (63, 1), (-128, 1), (128, 2), (i128::MAX, 16), (i128::MIN, 16)]
        {
            let mut out = Vec::new();
            push_integer(value, &mut out);
            assert_eq!((out.len(), integer(&out)), (bytes, Some(value)), "{value}");
        }
        for value in
            (0..127).flat_map(|bit| [1i128 << bit, -(1i128 << bit), (0x5a << bit) | 0x35 << (bit / 2)])
        {
            let mut out = Vec::new();
            push_integer(value, &mut out);
            assert_eq!(integer(&out), Some(value), "{value}");
        }
        assert_eq!(integer(&[0; 17]), None);
    }

    #[test]
    fn numbers_are_written_as_the_server_writes_them() {
        // select '…'::numeric, through numeric_send's digits and the layout of numeric.h.
        let cases: [(i128, u16, &[u8]); 6] = [
            (0, 0, &[0x18, 0, 0, 0, 0x00, 0x80]),
            (7, 0, &[0x20, 0, 0, 0, 0x00, 0x80, 7, 0]),
            (-7, 0, &[0x20, 0, 0, 0, 0x00, 0xa0, 7, 0]),
            (10_000, 0, &[0x20, 0, 0, 0, 0x01, 0x80, 1, 0]),
            (15, 1, &[0x28, 0, 0, 0, 0x80, 0x80, 1, 0, 0x88, 0x13]),
            (1, 3, &[0x20, 0, 0, 0, 0xff, 0x81, 10, 0]),
        ];
        for (integer, scale, numeric) in cases {
            let number = Number { integer, scale };
            let mut buffer = Buffer::default();
            number.write(&mut buffer).unwrap();
            assert_eq!(buffer.bytes(), numeric, "{number:?}");
            assert_eq!(Number::of(numeric), Some(number));
        }
    }

    #[test]
    fn numerics_of_few_bytes_are_those_of_the_general_way() {
        let mut rng = Seed::from_env_or_time().rng();
        for round in 0..200_000u32 {
            // Of every length; every other one with zeros at its end or in its middle.
            let digits = rng.bits() >> rng.below(64);
            let integer = if round % 2 == 0 {
                digits.into()
            } else {
                i128::from(digits >> 40) * 10i128.pow(rng.below(18) as u32)
            };
            let integer = if rng.chance(50) { -integer } else { integer };
            let number = Number { integer, scale: rng.below(usize::from(SCALE_MAX) + 1) as u16 };
            let mut buffer = Buffer::default();
            number.write(&mut buffer).unwrap();
            // A zero of very many decimals is left as it is.
            let is_left = integer == 0 && number.scale > 30;
            assert!(Number::of(buffer.bytes()) == Some(number) || is_left, "{number:?}");
            match number.few() {
                Some(few) => assert_eq!(&few.bytes[..few.len.into()], buffer.bytes(), "{number:?}"),
                None => assert!(integer.unsigned_abs() >= 10u128.pow(16), "{number:?}"),
            }
        }
        assert!(Number { integer: 10i128.pow(16), scale: 0 }.few().is_none());
    }

    #[test]
    fn numerics_that_the_server_does_not_write_are_none() {
        let mut rng = Seed::from_env_or_time().rng();
        let mut usual = 0;
        for _ in 0..400_000 {
            let count = rng.below(5);
            let digit = |rng: &mut Rng| *rng.pick(&[0, 0, 1, 10, 5000, 9990, 9999, 10_000, 0x8001]);
            let digits: Vec<u16> = (0..count).map(|_| digit(&mut rng)).collect();
            let scale = rng.below(9) as u16;
            let is_negative = rng.chance(30);
            let head = if rng.chance(80) {
                let sign = if is_negative { SHORT_NEGATIVE } else { 0 };
                vec![IS_SHORT | sign | scale << SHORT_SCALE_SHIFT | rng.pick(&[0, 1, 2, 0x7f, 0x7e, 0x40])]
            } else {
                let sign = if is_negative { LONG_NEGATIVE } else { 0 };
                vec![sign | scale, *rng.pick(&[0, 1, 2, u16::MAX])]
            };
            let words: Vec<u16> = head.into_iter().chain(digits).collect();
            let mut numeric = vec![0; VARLENA_BYTES];
            numeric.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            let length = numeric.len() + usize::from(rng.chance(5));
            numeric[..VARLENA_BYTES].copy_from_slice(&((length as u32) << 2).to_le_bytes());
            if let Some(number) = Number::of(&numeric) {
                let mut buffer = Buffer::default();
                number.write(&mut buffer).unwrap();
                assert_eq!(buffer.bytes(), numeric, "{number:?}");
                usual += 1;
            }
        }
        assert!(usual > 10_000, "{usual}");
    }

    #[test]
    fn the_lowest_integer_has_no_negative() {
        let digits: [u16; 10] = [170, 1411, 8346, 469, 2317, 3168, 7303, 7158, 8410, 5728];
        let numeric = |varlena: u32, sign: u16, first: u16| {
            let words = [&[IS_SHORT | sign | 9, first][..], &digits[1..]].concat();
            let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            [&varlena.to_le_bytes()[..], &body].concat()
        };
        let lowest = numeric(26 << 2, SHORT_NEGATIVE, 170);
        let number = Number { integer: i128::MIN, scale: 0 };
        let mut buffer = Buffer::default();
        number.write(&mut buffer).unwrap();
        assert_eq!(buffer.bytes(), lowest);
        // It is left as it is, and so is one whose digits are those of a negative number.
        assert_eq!(Number::of(&lowest), None);
        let words: [u16; 11] =
            [0xa009, 0xff56, 0xfa7d, 0xdf66, 0xfe2b, 0xf6f3, 0xf3a0, 0xe379, 0xe40a, 0xdf26, 0xe9a0];
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(Number::of(&[&[0x68, 0, 0, 0][..], &body].concat()), None);
    }

    #[test]
    fn numbers_are_printed_as_the_server_prints_them() {
        for (integer, scale, text) in [
            (0, 0, "0"),
            (0, 3, "0.000"),
            (-5, 1, "-0.5"),
            (12_345, 2, "123.45"),
            (-12_345, 5, "-0.12345"),
            (1, 40, "0.0000000000000000000000000000000000000001"),
            (i128::MIN, 0, "-170141183460469231731687303715884105728"),
            (i64::MAX.into(), 0, "9223372036854775807"),
            (10_i128.pow(30), 10, "100000000000000000000.0000000000"),
        ] {
            let mut printed = Digits::default();
            assert_eq!(Number { integer, scale }.text(&mut printed), text.as_bytes());
        }
    }

    #[test]
    fn every_number_that_fits_comes_back() {
        let mut integer = 1i128;
        for power in 0..37 {
            for scale in 0..=SCALE_MAX {
                for integer in [integer, -integer, integer + 1, integer * 3 - 1] {
                    let (number, mut buffer) = (Number { integer, scale }, Buffer::default());
                    if number.write(&mut buffer).is_some() && power < 33 {
                        assert_eq!(Number::of(buffer.bytes()), Some(number), "{power}");
                    }
                }
            }
            integer *= 10;
        }
    }

    #[test]
    fn other_forms_are_left_alone() {
        assert_eq!(Number::of(&[0x18, 0, 0, 0, 0x00, 0xc0]), None, "NaN");
        assert_eq!(Number::of(&[0x28, 0, 0, 0, 0x01, 0x80, 1, 0, 0, 0]), None, "a zero at the end");
        assert_eq!(Number::of(&[0x18, 0, 0, 0]), None);
        assert_eq!(Number::of(&[]), None);
    }
}
