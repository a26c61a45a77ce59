//! `numeric`: groups of four decimal digits.
//!
//! Sources: `set_var_from_str` and `make_result` in `src/backend/utils/adt/numeric.c`.

/// Decimal digits of a group.
const GROUP_DIGITS: i64 = 4;
/// `NUMERIC_SHORT_DSCALE_MAX`
const SHORT_SCALE_MAX: i64 = 63;
/// `NUMERIC_DSCALE_MAX`
const SCALE_MAX: i64 = 0x3fff;
/// `NUMERIC_SHORT_WEIGHT_MIN` to `NUMERIC_SHORT_WEIGHT_MAX`
const SHORT_WEIGHTS: std::ops::RangeInclusive<i64> = -64..=63;
/// `NUMERIC_WEIGHT_MAX`
const WEIGHT_MAX: i64 = 0x7fff;

/// Whether the server would print the number like that: no exponent, no plus, no leading zeros, no sign of zero.
pub fn is_canonical(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_zero = digits.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    are_digits(whole)
        && are_digits(fraction)
        && (whole == "0" || !whole.starts_with('0'))
        && !(is_zero && text.starts_with('-'))
}

/// The data of a `numeric` without a header of `varlena`. Takes an exponent, as numbers in documents may have one. None: no
/// number, or not in the server's range.
pub fn data(text: &str) -> Option<Vec<u8>> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    if digits.is_empty() || digits.iter().any(|digit| !digit.is_ascii_digit()) {
        return None;
    }
    // Far outside of the server's range, and small enough to compute with.
    if exponent.abs() > 1 << 20 || digits.len() > 1 << 20 {
        return None;
    }
    let scale = (i64::try_from(fraction.len()).ok()? - exponent).max(0);
    // Of the first digit, in powers of ten.
    let power = i64::try_from(whole.len()).ok()? - 1 + exponent;
    let (weight, groups) = groups(&digits, power);
    if scale > SCALE_MAX || weight.abs() > WEIGHT_MAX {
        return None;
    }
    let is_negative = is_negative && !groups.is_empty();
    let mut data = match scale <= SHORT_SCALE_MAX && SHORT_WEIGHTS.contains(&weight) {
        true => {
            let sign = if is_negative { 0x2000 } else { 0 };
            let word = 0x8000 | sign | scale << 7 | (weight & 0x7f);
            u16::try_from(word).ok()?.to_le_bytes().to_vec()
        }
        false => {
            let sign = if is_negative { 0x4000 } else { 0 };
            let word = u16::try_from(sign | scale).ok()?;
            [word.to_le_bytes(), i16::try_from(weight).ok()?.to_le_bytes()].concat()
        }
    };
    data.extend(groups.iter().flat_map(|group| group.to_le_bytes()));
    Some(data)
}

/// Groups without zeros at the ends, and the weight of the first one, in powers of 10,000.
fn groups(digits: &[u8], power: i64) -> (i64, Vec<i16>) {
    let mut weight = power.div_euclid(GROUP_DIGITS);
    // Zeros before the first digit that fill its group.
    let lead = usize::try_from(GROUP_DIGITS - 1 - power.rem_euclid(GROUP_DIGITS)).unwrap_or(0);
    let mut padded = vec![b'0'; lead];
    padded.extend_from_slice(digits);
    padded.resize(padded.len().next_multiple_of(4), b'0');
    let group = |four: &[u8]| four.iter().fold(0, |sum: i16, digit| sum * 10 + i16::from(digit - b'0'));
    let all: Vec<i16> = padded.chunks_exact(4).map(group).collect();
    let first = all.iter().position(|group| *group != 0);
    let last = all.iter().rposition(|group| *group != 0);
    match (first, last) {
        (Some(first), Some(last)) => {
            weight -= i64::try_from(first).unwrap_or(0);
            (weight, all[first..=last].to_vec())
        }
        _ => (0, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_would_come_back_differently_are_not_canonical() {
        for text in ["0", "0.00", "-1.50", "12345678901234567890123.4", "0.05"] {
            assert!(is_canonical(text), "{text}");
        }
        for text in ["00", "01.5", "-0", "-0.0", "+1", "1.", ".5", "1e3", "NaN", "", "-", "1.2.3", " 1"] {
            assert!(!is_canonical(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_has_no_image() {
        for text in
            ["", "-", "NaN", "1e", "1e99999999", "1e999999999999999999999", "a", "1e-20000", "1e200000"]
        {
            assert_eq!(data(text), None, "{text}");
        }
        assert_eq!(data("1"), Some(vec![0x00, 0x80, 1, 0]));
        assert_eq!(data("-0.00"), Some(vec![0x00, 0x81]));
    }
}
