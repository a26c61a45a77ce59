//! A model of jsonb: a tree, and the bytes that the server would write for it.
//!
//! Written from `src/include/utils/jsonb.h`, `jsonb_util.c` (`convertToJsonb`) and `numeric.c` alone, to have an opinion of
//! its own. PostgreSQL 15 gave the same bytes (a cast of jsonb to bytea WITHOUT FUNCTION) for 2,913 documents of
//! [`crate::records`] that are valid JSON.

use pgshrink_zson::shapes::{Step, Type};

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tree {
    Null,
    Bool(bool),
    /// As the server prints it: `-12.50`, `NaN`.
    Number(String),
    Text(Vec<u8>),
    Array(Vec<Tree>),
    /// In the order of jsonb, without two of one key; see [`object`].
    Object(Vec<(Vec<u8>, Tree)>),
    /// A numeric or a container as it is, and the type in its entry.
    Stored {
        entry: u32,
        bytes: Vec<u8>,
    },
}

pub fn text(text: impl AsRef<[u8]>) -> Tree {
    Tree::Text(text.as_ref().to_vec())
}

pub fn number(number: impl ToString) -> Tree {
    Tree::Number(number.to_string())
}

/// Keys in the order of jsonb: by their length, then by their bytes. Of two of one key the last one stays.
pub fn object<K: AsRef<[u8]>>(pairs: impl IntoIterator<Item = (K, Tree)>) -> Tree {
    let mut pairs: Vec<(Vec<u8>, Tree)> =
        pairs.into_iter().map(|(key, value)| (key.as_ref().to_vec(), value)).collect();
    pairs.reverse();
    pairs.sort_by(|(left, _), (right, _)| (left.len(), left).cmp(&(right.len(), right)));
    pairs.dedup_by(|(later, _), (first, _)| later == first);
    Tree::Object(pairs)
}

/// `depth` arrays, each the only element of the one around it.
pub fn nested(depth: usize, inside: Tree) -> Tree {
    (0..depth).fold(inside, |inside, _| Tree::Array(vec![inside]))
}

impl Tree {
    pub fn is_container(&self) -> bool {
        matches!(self, Tree::Array(_) | Tree::Object(_) | Tree::Stored { entry: CONTAINER, .. })
    }

    pub fn kind(&self) -> Type {
        match self {
            Tree::Null => Type::Null,
            Tree::Bool(value) => Type::Bool(*value),
            Tree::Number(_) => Type::Number,
            Tree::Text(_) => Type::Text,
            Tree::Array(_) => Type::Array,
            Tree::Object(_) => Type::Object,
            Tree::Stored { .. } => panic!("only a reader makes it"),
        }
    }

    /// The bytes of jsonb behind the varlena header.
    pub fn document(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.is_container() {
            self.convert(&mut out);
        } else {
            container(IS_ARRAY | IS_SCALAR, 1, std::slice::from_ref(self), &mut out);
        }
        out
    }

    /// The value of a key, or the element of a place.
    pub fn step(&self, step: Step<'_>) -> Option<&Tree> {
        match (self, step) {
            (Tree::Object(pairs), Step::Key(key)) => {
                pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value)
            }
            (Tree::Array(elements), Step::Index(at)) => {
                let at = if at < 0 { at.checked_add(elements.len() as i64)? } else { at };
                elements.get(usize::try_from(at).ok()?)
            }
            _ => None,
        }
    }

    /// Whether the `?` operator finds this text.
    pub fn has(&self, text: &[u8]) -> bool {
        match self {
            Tree::Object(pairs) => pairs.iter().any(|(key, _)| key == text),
            Tree::Array(elements) => elements.iter().any(|element| *element == Tree::Text(text.to_vec())),
            scalar => *scalar == Tree::Text(text.to_vec()),
        }
    }

    /// Appends it to a document in the making. Returns the bits of its entry.
    fn convert(&self, out: &mut Vec<u8>) -> u32 {
        match self {
            Tree::Null => 0x4000_0000,
            Tree::Bool(false) => 0x2000_0000,
            Tree::Bool(true) => 0x3000_0000,
            Tree::Text(text) => {
                out.extend_from_slice(text);
                0
            }
            Tree::Number(text) => {
                align(out);
                out.extend_from_slice(&numeric(text));
                NUMERIC
            }
            Tree::Stored { entry, bytes } => {
                align(out);
                out.extend_from_slice(bytes);
                *entry
            }
            Tree::Array(elements) => {
                container(IS_ARRAY, elements.len(), elements, out);
                CONTAINER
            }
            Tree::Object(pairs) => {
                let keys = pairs.iter().map(|(key, _)| Tree::Text(key.clone()));
                let all: Vec<Tree> = keys.chain(pairs.iter().map(|(_, value)| value.clone())).collect();
                container(IS_OBJECT, pairs.len(), &all, out);
                CONTAINER
            }
        }
    }
}

/// The types of an entry that [`Tree::Stored`] may have.
pub const NUMERIC: u32 = 0x1000_0000;
pub const CONTAINER: u32 = 0x5000_0000;

const IS_SCALAR: u32 = 0x1000_0000;
const IS_OBJECT: u32 = 0x2000_0000;
const IS_ARRAY: u32 = 0x4000_0000;

fn align(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

fn container(flags: u32, count: usize, entries: &[Tree], out: &mut Vec<u8>) {
    align(out);
    out.extend_from_slice(&(flags | count as u32).to_le_bytes());
    let first = out.len();
    out.resize(first + 4 * entries.len(), 0);
    let data = out.len();
    for (at, value) in entries.iter().enumerate() {
        let start = out.len();
        let kind = value.convert(out);
        let entry = match at % 32 {
            0 => 0x8000_0000 | kind | (out.len() - data) as u32,
            _ => kind | (out.len() - start) as u32,
        };
        out[first + 4 * at..][..4].copy_from_slice(&entry.to_le_bytes());
    }
}

/// A numeric with its four-byte header.
pub fn numeric(text: &str) -> Vec<u8> {
    let special = match text {
        "NaN" => Some(0xc000),
        "Infinity" => Some(0xd000),
        "-Infinity" => Some(0xf000),
        _ => None,
    };
    let words = special.map_or_else(|| words_of(text), |word| vec![word]);
    let mut out = (((4 + 2 * words.len()) as u32) << 2).to_le_bytes().to_vec();
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    out
}

/// Header, weight if it is long, and digits of base 10,000.
fn words_of(text: &str) -> Vec<u16> {
    let (is_negative, magnitude) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, decimals) = magnitude.split_once('.').unwrap_or((magnitude, ""));
    let whole_digits = whole.len().div_ceil(4);
    let padded = format!("{whole:0>0$}{decimals:0<1$}", 4 * whole_digits, decimals.len().next_multiple_of(4));
    let digits: Vec<u16> =
        padded.as_bytes().chunks(4).map(|four| std::str::from_utf8(four).unwrap().parse().unwrap()).collect();
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    let end = digits.iter().rposition(|digit| *digit != 0).map_or(zeros, |last| last + 1);
    let digits = &digits[zeros.min(end)..end];
    let weight = if digits.is_empty() { 0 } else { whole_digits as i32 - 1 - zeros as i32 };
    let (scale, is_negative) = (decimals.len() as u16, is_negative && !digits.is_empty());
    let mut words = if scale <= 63 && (-64..64).contains(&weight) {
        vec![0x8000 | u16::from(is_negative) << 13 | scale << 7 | (weight as u16 & 0x7f)]
    } else {
        vec![u16::from(is_negative) << 14 | scale, weight as u16]
    };
    words.extend_from_slice(digits);
    words
}

#[test]
fn the_model_writes_what_the_server_writes() {
    // By hand, from the sources named above.
    let cases: [(&str, &[u8]); 7] = [
        ("0", &[0x18, 0, 0, 0, 0x00, 0x80]),
        ("-7", &[0x20, 0, 0, 0, 0x00, 0xa0, 7, 0]),
        ("10000", &[0x20, 0, 0, 0, 0x01, 0x80, 1, 0]),
        ("1.5", &[0x28, 0, 0, 0, 0x80, 0x80, 1, 0, 0x88, 0x13]),
        ("0.010", &[0x20, 0, 0, 0, 0xff, 0x81, 100, 0]),
        ("0.00", &[0x18, 0, 0, 0, 0x00, 0x81]),
        ("NaN", &[0x18, 0, 0, 0, 0x00, 0xc0]),
    ];
    for (text, bytes) in cases {
        assert_eq!(numeric(text), bytes, "{text}");
    }
    let tree = object([("b", number(7)), ("aa", Tree::Null), ("a", text("xyz"))]);
    let expected = [
        &[3, 0, 0, 0x20][..],
        &[1, 0, 0, 0x80, 1, 0, 0, 0, 2, 0, 0, 0],
        &[3, 0, 0, 0, 9, 0, 0, 0x10, 0, 0, 0, 0x40],
        b"abaaxyz\0",
        &[0x20, 0, 0, 0, 0, 0x80, 7, 0],
    ];
    assert_eq!(tree.document(), expected.concat());
}
