//! Documents as zson 1.1 wrote them, byte by byte.
//!
//! ```text
//! u8 0 | u32 dictionary | u32 size of the jsonb | 32 zero bytes | tokens      (little-endian)
//! token: u8 n | n bytes as they are | u16 code, big-endian, 0: no word        (the last one ends before its code)
//! ```

use std::fmt::Write;

/// The words of one dictionary with their codes.
pub type Words<'a> = [(u16, &'a str)];

/// The datum, without its varlena header, of these bytes of a jsonb.
pub fn encoded(dictionary: u32, words: &Words<'_>, jsonb: &[u8]) -> Vec<u8> {
    let mut datum = vec![0];
    datum.extend_from_slice(&dictionary.to_le_bytes());
    datum.extend_from_slice(&u32::try_from(jsonb.len()).unwrap().to_le_bytes());
    datum.extend_from_slice(&[0; 32]);
    let mut literals: Vec<u8> = Vec::new();
    let mut rest = jsonb;
    while !rest.is_empty() {
        let matching = words.iter().filter(|(_, word)| word.len() >= 2 && rest.starts_with(word.as_bytes()));
        match matching.max_by_key(|(_, word)| word.len()) {
            Some((code, word)) => {
                token(&mut datum, &mut literals, *code);
                rest = &rest[word.len()..];
            }
            None => {
                literals.push(rest[0]);
                rest = &rest[1..];
                if literals.len() == 255 {
                    token(&mut datum, &mut literals, 0);
                }
            }
        }
    }
    datum.push(u8::try_from(literals.len()).unwrap());
    datum.extend_from_slice(&literals);
    datum
}

fn token(datum: &mut Vec<u8>, literals: &mut Vec<u8>, code: u16) {
    datum.push(u8::try_from(literals.len()).unwrap());
    datum.append(literals);
    datum.extend_from_slice(&code.to_be_bytes());
}

/// The bytes as the server writes and reads a bytea.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("\\x".to_owned(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The bytes of a bytea as the server writes it.
pub fn unhex(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("\\x").unwrap();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn a_datum_is_what_the_format_says() {
    let datum = encoded(7, &[(0x102, "ab"), (3, "abc")], b"xabcab");
    assert_eq!(datum[..9], [0, 7, 0, 0, 0, 6, 0, 0, 0]);
    assert_eq!(datum[9..41], [0; 32]);
    assert_eq!(datum[41..], [1, b'x', 0, 3, 0, 1, 2, 0]);
    let long = encoded(0, &[], &[b'z'; 256]);
    assert_eq!(long[41], 255);
    assert_eq!(long[41 + 256..], [0, 0, 1, b'z']);
    assert_eq!(unhex(&hex(&long)), long);
}
