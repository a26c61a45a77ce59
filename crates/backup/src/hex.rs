//! Bytes in hexadecimal digits.

use std::fmt;

/// The bytes; digits may be of either case. None: an odd count of digits, or one that is none.
pub fn decode(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

/// So many bytes. None: another count of digits, or one that is none.
pub(crate) fn decode_array<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    // Nobody needs memory for text of another length.
    let digits = Some(digits).filter(|digits| digits.len() == 2 * N)?;
    decode(digits)?.try_into().ok()
}

/// In lower case.
pub(crate) fn write(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}
