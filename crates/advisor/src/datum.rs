//! Values as they are stored in a row, built from their text.
//!
//! Only canonical texts are taken: those that the server prints for the value (with `DateStyle` ISO). So a text that
//! has an image here comes back as the same text when it is stored in the new type.
//!
//! Invariant: an image equals the bytes of a heap row of a server on x86-64, without the alignment before it.

pub mod datetime;
pub mod json;
pub mod jsonb;
pub mod network;
pub mod number;
pub mod numeric;
pub mod stored;

/// `VARATT_SHORT_MAX` less its header: most bytes of data behind a header of one byte.
const SHORT_DATA_MAX: usize = 126;

/// The data of a `varlena` with its header: of one byte where it can be, else of four. Not for columns with storage `PLAIN`.
pub fn varlena(data: &[u8]) -> Vec<u8> {
    let mut image = match u8::try_from(data.len()) {
        Ok(length) if data.len() <= SHORT_DATA_MAX => vec![(length + 1) << 1 | 1],
        _ => header(data.len()).to_vec(),
    };
    image.extend_from_slice(data);
    image
}

/// A header of four bytes for so many bytes of data. Lengths above the server's limit of 1 GiB saturate.
pub(crate) fn header(data_bytes: usize) -> [u8; 4] {
    let length = u32::try_from(data_bytes + 4).unwrap_or(u32::MAX).min(u32::MAX >> 2);
    (length << 2).to_le_bytes()
}

/// `uuid`: 16 bytes of `01234567-89ab-cdef-0123-456789abcdef`, in small letters.
pub fn uuid(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    let hyphens = [8, 13, 18, 23];
    if bytes.len() != 36 || hyphens.iter().any(|at| bytes[*at] != b'-') {
        return None;
    }
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let digits = hex(&digits).filter(|_| digits.len() == 32)?;
    // In capital letters it would come back in small ones.
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    digits.try_into().ok()
}

/// Bytes of hexadecimal digits, of either case.
pub fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if text.len() % 2 == 1 {
        return None;
    }
    text.as_bytes().chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// Bytes of base64 with padding, without line breaks, and with nothing in the unused bits.
pub fn base64(text: &str) -> Option<Vec<u8>> {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_of_one_byte_up_to_126_bytes() {
        assert_eq!(varlena(b"ab"), [7, b'a', b'b']);
        assert_eq!(varlena(&[0; 126])[0], 255);
        assert_eq!(varlena(&[0; 127])[..4], (131u32 << 2).to_le_bytes());
        assert_eq!(varlena(b""), [3]);
    }

    #[test]
    fn only_texts_that_come_back_have_images() {
        assert!(uuid("01234567-89ab-cdef-0123-456789abcdef").is_some());
        for text in [
            "01234567-89AB-cdef-0123-456789abcdef",
            "{01234567-89ab-cdef-0123-456789abcde}",
            "0123456789abcdef0123456789abcdef",
            "01234567-89ab-cdef-0123-456789abcdeg",
            "01234567-89ab-cdef-0123-456789abcd-e",
            "01234567-89ab-cdef-0123-456789abcdé",
            "",
        ] {
            assert_eq!(uuid(text), None, "{text}");
        }
        assert_eq!((hex("0aF0"), hex("abc"), hex("ag"), hex("é")), (Some(vec![10, 240]), None, None, None));
        assert_eq!(
            (base64("aGk="), base64("aGk"), base64("aGl="), base64("aG\nk=")),
            (Some(vec![b'h', b'i']), None, None, None)
        );
    }
}
