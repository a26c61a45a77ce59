//! The original zson, version 1.1, as it is published: which strings become words, and what documents become.
//!
//! ```text
//! u8 0 | u32 dictionary | u32 size of the jsonb | 32 zero bytes | tokens      (little-endian)
//! token: u8 n | n bytes as they are | u16 code, big-endian, 0: no word        (the last one ends before its code)
//! ```
//!
//! At each byte the longest word that stands there is taken. Here words are looked up byte by byte in a sorted list,
//! which finds what the original finds; how long either takes is no part of this.

use std::collections::HashMap;
use std::ops::Range;

/// The most words that codes of 16 bits can name, as in the original.
pub const WORDS_MAX: usize = 65_534;
/// The original leaves shorter words out when reading.
const WORD_BYTES_MIN: usize = 2;
/// Literal bytes of a token at most.
const LITERALS_MAX: usize = 255;
const HINT: [u8; 32] = [0; 32];

/// The words of one dictionary, the most frequent first, with the codes 1, 2, 3 and so on.
#[derive(Debug)]
pub struct Words {
    sorted: Vec<(Vec<u8>, u16)>,
    by_start: HashMap<[u8; 2], Range<usize>>,
}

impl Words {
    /// As `zson_learn` numbers them.
    pub fn new(words: Vec<Vec<u8>>) -> Words {
        let numbered = words.into_iter().take(WORDS_MAX).zip(1u16..);
        let mut sorted: Vec<(Vec<u8>, u16)> =
            numbered.filter(|(word, _)| word.len() >= WORD_BYTES_MIN).collect();
        sorted.sort();
        let mut by_start: HashMap<[u8; 2], Range<usize>> = HashMap::new();
        for (at, (word, _)) in sorted.iter().enumerate() {
            by_start.entry([word[0], word[1]]).or_insert(at..at).end = at + 1;
        }
        Words { sorted, by_start }
    }

    /// What is stored for the bytes of a jsonb: everything behind the varlena header.
    pub fn encode(&self, dictionary: u32, jsonb: &[u8], out: &mut Vec<u8>) {
        out.push(0);
        out.extend_from_slice(&dictionary.to_le_bytes());
        out.extend_from_slice(&(jsonb.len() as u32).to_le_bytes());
        out.extend_from_slice(&HINT);
        let (mut at, mut literals) = (0, 0..0);
        while at < jsonb.len() {
            if let Some((length, code)) = self.longest(&jsonb[at..]) {
                token(out, &jsonb[literals], code);
                at += length;
                literals = at..at;
                continue;
            }
            at += 1;
            literals.end = at;
            if literals.len() == LITERALS_MAX {
                token(out, &jsonb[literals], 0);
                literals = at..at;
            }
        }
        out.push(literals.len() as u8);
        out.extend_from_slice(&jsonb[literals]);
    }

    /// The longest word that `text` begins with.
    fn longest(&self, text: &[u8]) -> Option<(usize, u16)> {
        let start = text.first_chunk()?;
        let mut words = &self.sorted[self.by_start.get(start)?.clone()];
        let (mut length, mut found) = (start.len(), None);
        // All of `words` begin with the first `length` bytes of the text.
        while let Some((word, code)) = words.first() {
            if word.len() == length {
                found = Some((length, *code));
                words = &words[1..];
            }
            let Some(next) = text.get(length) else { break };
            let low = words.partition_point(|(word, _)| word[length] < *next);
            let high = words.partition_point(|(word, _)| word[length] <= *next);
            words = &words[low..high];
            length += 1;
        }
        found
    }
}

fn token(out: &mut Vec<u8>, literals: &[u8], code: u16) {
    out.push(literals.len() as u8);
    out.extend_from_slice(literals);
    out.extend_from_slice(&code.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(words: &[&str], jsonb: &[u8]) -> Vec<u8> {
        let words = Words::new(words.iter().map(|word| word.as_bytes().to_vec()).collect());
        let mut out = Vec::new();
        words.encode(7, jsonb, &mut out);
        let mut head = vec![0, 7, 0, 0, 0];
        head.extend_from_slice(&(jsonb.len() as u32).to_le_bytes());
        head.extend_from_slice(&[0; 32]);
        assert_eq!(out[..41], head);
        out.split_off(41)
    }

    #[test]
    fn the_longest_word_wins_and_short_ones_do_not_exist() {
        assert_eq!(tokens(&["ab", "abc", "x"], b"xabcab"), [1, b'x', 0, 2, 0, 0, 1, 0]);
        assert_eq!(tokens(&["ab", "abcd"], b"abc"), [0, 0, 1, 1, b'c']);
        assert_eq!(tokens(&["abcde", "ab", "abce"], b"abcd"), [0, 0, 2, 2, b'c', b'd']);
        assert_eq!(tokens(&[], b""), [0]);
    }

    #[test]
    fn long_literals_are_closed_with_code_zero() {
        let long = tokens(&[], &[b'z'; 256]);
        assert_eq!(long[0], 255);
        assert_eq!(long[256..], [0, 0, 1, b'z']);
    }
}
