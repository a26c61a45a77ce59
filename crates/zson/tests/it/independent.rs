//! A reader of datums of version 2 that was written from `formats/zson.md` alone, to prove the page: it shares no code with
//! the crate's reader. It makes a tree of a datum, and [`crate::jsonb`] makes a document of that.

use std::cell::Cell;

use pgshrink_codec::Dictionary;
use pgshrink_testkit::seed::Seed;
use pgshrink_zson::Codec;
use pgshrink_zson::datum::Method;
use twox_hash::XxHash3_64;

use crate::fixtures::{current, encode, shaped, shaped_always, writing};
use crate::jsonb::{CONTAINER, NUMERIC, Tree};
use crate::records::{any_object, anything, article, letter, measurement, order};

/// Bytes that are read one after the other; none is what the page calls corrupt or refused.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<usize> {
        let mut value = 0u64;
        for at in 0..5 {
            let byte = self.byte()?;
            value += u64::from(byte % 128) << (7 * at);
            if byte < 128 {
                return u32::try_from(value).ok().map(|value| value as usize);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = self.varint()?;
        self.take(length)
    }

    fn signed(&mut self) -> Option<i128> {
        integer(self.bytes()?)
    }

    fn list<T>(&mut self, most: usize, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.varint().filter(|count| *count <= most)?;
        (0..count).map(|_| item(self)).collect()
    }
}

fn integer(bytes: &[u8]) -> Option<i128> {
    if bytes.len() > 16 {
        return None;
    }
    let value = bytes.iter().rev().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
    Some(if value % 2 == 0 { (value / 2) as i128 } else { -1 - (value / 2) as i128 })
}

pub struct Schema {
    keys: Vec<Vec<u8>>,
    phrases: Vec<Vec<u8>>,
    columns: Vec<Column>,
    /// For zstd.
    plain: Vec<u8>,
    /// zstd has refused a text: what it notices of damage depends on how much room there is.
    pub has_refused: Cell<bool>,
}

struct Column {
    values: Vec<(u8, Vec<u8>)>,
    kind: Kind,
}

enum Kind {
    Any,
    Text,
    Form { base: i128, parts: Vec<Part> },
    Number { scale: u8, base: i128 },
    Decimal,
    Array(usize),
    Record { columns: Vec<(usize, usize)>, shapes: Vec<Vec<Member>> },
}

enum Part {
    Fixed(Vec<u8>),
    Digits { width: u8, low: u64, count: u64 },
    Hex { digits: u8, is_upper: bool },
}

enum Member {
    Slot { key: usize, column: usize },
    Object { key: usize, members: Vec<Member> },
}

impl Member {
    fn slots(&self) -> usize {
        match self {
            Member::Slot { .. } => 1,
            Member::Object { members, .. } => members.iter().map(Member::slots).sum(),
        }
    }
}

/// "Dictionary of shapes"
pub fn schema(dictionary: &[u8]) -> Option<Schema> {
    let mut bytes = Bytes(dictionary);
    (bytes.take(8)? == b"\xffzshape1").then_some(())?;
    bytes.take(59).filter(|rule| rule[0] >= 100)?;
    let (mut bytes, plain) = (Bytes(bytes.bytes()?), bytes.0.to_vec());
    let keys = bytes.list(16_384, |bytes| bytes.bytes().map(<[u8]>::to_vec))?;
    let phrase = |bytes: &mut Bytes<'_>| {
        bytes.bytes().filter(|phrase| (1..=250).contains(&phrase.len())).map(<[u8]>::to_vec)
    };
    let phrases = bytes.list(28_560, phrase)?;
    let columns = bytes.list(4096, column)?;
    bytes.0.is_empty().then_some(Schema { keys, phrases, columns, plain, has_refused: Cell::new(false) })
}

fn column(bytes: &mut Bytes<'_>) -> Option<Column> {
    let values =
        bytes.list(124, |bytes| Some((bytes.byte().filter(|what| *what < 3)?, bytes.bytes()?.to_vec())))?;
    let kind = match bytes.byte()? {
        0 => Kind::Any,
        1 => Kind::Text,
        2 => Kind::Form { base: bytes.signed()?, parts: bytes.list(32, part)? },
        3 => Kind::Number { scale: bytes.byte()?, base: bytes.signed()? },
        4 => Kind::Decimal,
        5 => Kind::Array(bytes.varint()?),
        6 => Kind::Record {
            columns: bytes.list(16_384, |bytes| Some((bytes.varint()?, bytes.varint()?)))?,
            shapes: bytes.list(120, members)?,
        },
        _ => return None,
    };
    Some(Column { values, kind })
}

fn part(bytes: &mut Bytes<'_>) -> Option<Part> {
    Some(match bytes.byte()? {
        0 => Part::Fixed(bytes.bytes()?.to_vec()),
        1 => Part::Digits {
            width: bytes.byte()?,
            low: bytes.signed()?.try_into().ok()?,
            count: bytes.signed()?.try_into().ok()?,
        },
        2 => Part::Hex { digits: bytes.byte()?, is_upper: false },
        3 => Part::Hex { digits: bytes.byte()?, is_upper: true },
        _ => return None,
    })
}

fn members(bytes: &mut Bytes<'_>) -> Option<Vec<Member>> {
    bytes.list(1024, |bytes| {
        let head = bytes.varint()?;
        Some(match head % 2 {
            0 => Member::Slot { key: head / 2, column: bytes.varint()? },
            _ => Member::Object { key: head / 2, members: members(bytes)? },
        })
    })
}

/// The header of a datum of version 2, and what is behind its check.
struct Header<'d> {
    id: u64,
    size: usize,
    check: u32,
    sums: &'d [u8],
    payload: &'d [u8],
}

fn header(datum: &[u8]) -> Option<Header<'_>> {
    let mut bytes = Bytes(datum);
    (bytes.byte()? == 0x2c).then_some(())?;
    let (id, size) = (bytes.varint()? as u64, bytes.varint().filter(|size| *size <= 16 << 20)?);
    let check = u32::from_le_bytes(bytes.take(4)?.try_into().unwrap());
    let stored = bytes.0.len();
    let blocks = (stored + 4).div_ceil(4100);
    let sums = bytes.take(4 * (blocks - 1))?;
    let is_possible = bytes.0.len() > 4096 * (blocks - 1);
    is_possible.then_some(Header { id, size, check, sums, payload: bytes.0 })
}

/// The check and the sums of a payload.
fn sums(dictionary: &Dictionary, id: u64, size: usize, payload: &[u8]) -> (u32, Vec<u8>) {
    let identity = u64::from_le_bytes(dictionary.hash()[..8].try_into().unwrap());
    let seed = (identity ^ (size as u64) << 28 ^ payload.len() as u64)
        .wrapping_add(id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let hash =
        |more: usize, bytes: &[u8]| XxHash3_64::oneshot_with_seed(seed.wrapping_add(more as u64), bytes);
    let blocks: Vec<&[u8]> = payload.chunks(4096).collect();
    let sums: Vec<u8> =
        (1..blocks.len()).flat_map(|at| (hash(at, blocks[at]) as u32).to_le_bytes()).collect();
    let of_sums = if sums.is_empty() { 0 } else { hash(0, &sums).rotate_left(1) };
    ((hash(0, blocks.first().unwrap_or(&&[][..])) ^ of_sums) as u32, sums)
}

/// The datum of a payload, whatever that is, with the right sums.
pub fn sealed(dictionary: &Dictionary, id: u32, size: usize, payload: &[u8]) -> Vec<u8> {
    let mut datum = vec![0x2c];
    for mut value in [id as usize, size] {
        while value > 127 {
            datum.push(value as u8 | 128);
            value >>= 7;
        }
        datum.push(value as u8);
    }
    let (check, sums) = sums(dictionary, id.into(), size, payload);
    datum.extend_from_slice(&check.to_le_bytes());
    [datum, sums, payload.to_vec()].concat()
}

/// The document of a datum.
pub fn document(dictionary: &Dictionary, datum: &[u8]) -> Option<Vec<u8>> {
    let Header { id, size, check, sums: stored, payload } = header(datum)?;
    let (right, of_blocks) = sums(dictionary, id, size, payload);
    (right == check && of_blocks == stored).then_some(())?;
    let document = schema(dictionary.bytes())?.tree(payload)?.document();
    (document.len() == size).then_some(document)
}

impl Schema {
    /// What a payload says.
    pub fn tree(&self, payload: &[u8]) -> Option<Tree> {
        let mut bytes = Bytes(payload);
        let token = bytes.byte()?;
        let tree = match (token, bytes.0) {
            (255, [head @ 0..=1, stored @ ..]) => {
                bytes.0 = &[];
                let kind = if *head == 1 { &Kind::Any } else { &self.columns.first()?.kind };
                self.of_kind(kind, stored, 64)?
            }
            _ => self.value(Some(0), token, &mut bytes, 64)?,
        };
        bytes.0.is_empty().then_some(tree)
    }

    fn value(&self, column: Option<usize>, token: u8, rest: &mut Bytes<'_>, depth: usize) -> Option<Tree> {
        let column = match column {
            Some(column) => Some(self.columns.get(column)?),
            None => None,
        };
        let kind = column.map_or(&Kind::Any, |column| &column.kind);
        match token {
            0..=123 => {
                let (what, bytes) = column?.values.get(usize::from(token))?;
                Some(match what {
                    0 => Tree::Text(bytes.clone()),
                    1 => Tree::Stored { entry: NUMERIC, bytes: bytes.clone() },
                    _ => Tree::Stored { entry: CONTAINER, bytes: bytes.clone() },
                })
            }
            124 => None,
            125 => Some(Tree::Null),
            126 | 127 => Some(Tree::Bool(token == 126)),
            128..=254 => self.of_kind(kind, rest.take(usize::from(token) - 128)?, depth),
            255 => {
                let head = rest.varint()?;
                let kind = if head % 2 == 1 { &Kind::Any } else { kind };
                self.of_kind(kind, rest.take(head / 2)?, depth)
            }
        }
    }

    fn of_kind(&self, kind: &Kind, stored: &[u8], depth: usize) -> Option<Tree> {
        let mut rest = Bytes(stored);
        let tree = match kind {
            Kind::Any => match rest.byte()? {
                1 => Tree::Text(self.codes(rest.take(rest.0.len())?)?),
                2 => Tree::Text(rest.take(rest.0.len())?.to_vec()),
                3 => decimal(&mut rest)?,
                4 => numeric(rest.take(rest.0.len())?)?,
                5 => self.array(None, &mut rest, depth)?,
                6 => self.other(&[], &mut rest, depth)?,
                what @ 7..=8 => Tree::Text(self.by_zstd(what, rest.take(rest.0.len())?)?),
                _ => return None,
            },
            Kind::Text => Tree::Text(self.codes(rest.take(stored.len())?)?),
            Kind::Form { base, parts } => Tree::Text(form(*base, parts, &mut rest)?),
            Kind::Number { scale, base } => {
                number(integer(rest.take(stored.len())?)?.checked_add(*base)?, *scale)?
            }
            Kind::Decimal => decimal(&mut rest)?,
            Kind::Array(elements) => self.array(Some(*elements), &mut rest, depth)?,
            Kind::Record { columns, shapes } => match rest.varint()? {
                0 => self.other(columns, &mut rest, depth)?,
                number => {
                    let members = shapes.get((number - 1) % 120).filter(|_| number <= 240)?;
                    let mut tokens = rest.take(members.iter().map(Member::slots).sum())?;
                    let own = self.members(members, &mut tokens, &mut rest, depth)?;
                    if number <= 120 { own } else { merged(own, self.other(columns, &mut rest, depth)?)? }
                }
            },
        };
        rest.0.is_empty().then_some(tree)
    }

    /// One block without its header, or blocks: a frame without what comes before them.
    fn by_zstd(&self, what: u8, payload: &[u8]) -> Option<Vec<u8>> {
        let head = (payload.len() << 3 | 5).to_le_bytes();
        let head = if what == 7 { &head[..3] } else { &[] };
        let frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0x88][..], head, payload].concat();
        let mut text = Vec::with_capacity(if what == 7 { 128 << 10 } else { 16 << 20 });
        let is_whole = zstd_safe::find_frame_compressed_size(&frame) == Ok(frame.len());
        let mut context = zstd_safe::DCtx::create();
        let done = context.decompress_using_dict(&mut text, &frame, &self.plain);
        let is_right = is_whole && done.is_ok();
        self.has_refused.set(self.has_refused.get() || !is_right);
        is_right.then_some(text)
    }

    fn codes(&self, codes: &[u8]) -> Option<Vec<u8>> {
        let (mut text, mut codes) = (Vec::new(), Bytes(codes));
        while let Some(code) = codes.byte() {
            match usize::from(code) {
                255 => text.push(codes.byte()?),
                code @ 0..=143 => text.extend_from_slice(self.phrases.get(code)?),
                code => {
                    let phrase = 144 + (code - 144) * 256 + usize::from(codes.byte()?);
                    text.extend_from_slice(self.phrases.get(phrase)?);
                }
            }
        }
        Some(text)
    }

    fn array(&self, elements: Option<usize>, rest: &mut Bytes<'_>, depth: usize) -> Option<Tree> {
        let depth = depth.checked_sub(1)?;
        let count = rest.varint()?;
        let tokens = rest.take(count)?;
        let values: Option<Vec<Tree>> =
            tokens.iter().map(|token| self.value(elements, *token, rest, depth)).collect();
        Some(Tree::Array(values?))
    }

    /// An object with its keys.
    fn other(&self, columns: &[(usize, usize)], rest: &mut Bytes<'_>, depth: usize) -> Option<Tree> {
        let depth = depth.checked_sub(1)?;
        let keys = rest.list(usize::MAX, |rest| match rest.varint()? {
            0 => Some((rest.bytes()?.to_vec(), None)),
            known => {
                let column = columns.iter().find(|(key, _)| *key == known - 1).map(|(_, column)| *column);
                Some((self.keys.get(known - 1)?.clone(), column))
            }
        })?;
        let tokens = rest.take(keys.len())?;
        let pair = |((key, column), token): ((Vec<u8>, Option<usize>), &u8)| {
            Some((key, self.value(column, *token, rest, depth)?))
        };
        keys.into_iter().zip(tokens).map(pair).collect::<Option<Vec<_>>>().map(Tree::Object)
    }

    /// An object of a shape.
    fn members(
        &self,
        members: &[Member],
        tokens: &mut &[u8],
        rest: &mut Bytes<'_>,
        depth: usize,
    ) -> Option<Tree> {
        let depth = depth.checked_sub(1)?;
        let mut pairs = Vec::new();
        for member in members {
            let (mut own, behind) = tokens.split_at_checked(member.slots())?;
            *tokens = behind;
            if own.iter().all(|token| *token == 124) {
                continue;
            }
            let (key, value) = match member {
                Member::Slot { key, column } => (key, self.value(Some(*column), own[0], rest, depth)?),
                Member::Object { key, members } => (key, self.members(members, &mut own, rest, depth)?),
            };
            pairs.push((self.keys.get(*key)?.clone(), value));
        }
        Some(Tree::Object(pairs))
    }
}

/// An object of a shape with its further keys.
fn merged(own: Tree, further: Tree) -> Option<Tree> {
    let (Tree::Object(own), Tree::Object(further)) = (own, further) else { return None };
    let (mut pairs, mut further) = (Vec::new(), further.into_iter().peekable());
    for pair in own {
        while let Some(before) = further.next_if(|(key, _)| (key.len(), key) < (pair.0.len(), &pair.0)) {
            pairs.push(before);
        }
        pairs.push(pair);
    }
    pairs.extend(further);
    Some(Tree::Object(pairs))
}

/// A numeric that is as long as its varlena header says, with two bytes of its own header, or four in the long form.
fn numeric(bytes: &[u8]) -> Option<Tree> {
    let varlena = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let own = if *bytes.get(5)? >= 0x80 { 2 } else { 4 };
    let is_whole = varlena == 4 * bytes.len() && bytes.len() >= 4 + own;
    is_whole.then(|| Tree::Stored { entry: NUMERIC, bytes: bytes.to_vec() })
}

fn decimal(rest: &mut Bytes<'_>) -> Option<Tree> {
    let scale = rest.byte().filter(|scale| *scale <= 40)?;
    number(integer(rest.take(rest.0.len())?)?, scale)
}

fn number(integer: i128, scale: u8) -> Option<Tree> {
    let scale = usize::from(scale);
    let filled = 10u128.pow((scale.next_multiple_of(4) - scale) as u32);
    integer.unsigned_abs().checked_mul(filled)?;
    let digits = format!("{:0>1$}", integer.unsigned_abs(), scale + 1);
    let (whole, decimals) = digits.split_at(digits.len() - scale);
    let sign = if integer < 0 { "-" } else { "" };
    let point = if scale > 0 { "." } else { "" };
    Some(Tree::Number(format!("{sign}{whole}{point}{decimals}")))
}

fn form(base: i128, parts: &[Part], rest: &mut Bytes<'_>) -> Option<Vec<u8>> {
    let mut runs = Vec::new();
    for part in parts {
        if let Part::Hex { digits, .. } = part {
            runs.push(rest.take(usize::from(*digits).div_ceil(2))?);
        }
    }
    let mut integer = integer(rest.take(rest.0.len())?)?.checked_add(base)?;
    let mut numbers = Vec::new();
    for part in parts.iter().rev() {
        if let Part::Digits { low, count, .. } = part {
            let number = if *count == 0 { integer } else { integer.rem_euclid((*count).into()) };
            integer = if *count == 0 { 0 } else { integer.div_euclid((*count).into()) };
            numbers.push(u64::try_from(number).ok()?.checked_add(*low)?);
        }
    }
    let (mut runs, mut text) = (runs.into_iter(), Vec::new());
    for part in parts {
        match part {
            Part::Fixed(fixed) => text.extend_from_slice(fixed),
            Part::Digits { width, .. } => {
                let (number, width) = (numbers.pop()?, usize::from(*width));
                let digits = format!("{number:0>width$}");
                (width == 0 || digits.len() == width).then_some(())?;
                text.extend_from_slice(digits.as_bytes());
            }
            Part::Hex { digits, is_upper } => {
                let run: String = runs.next()?.iter().map(|byte| format!("{byte:02x}")).collect();
                let (run, behind) = run.split_at((*digits).into());
                (behind.is_empty() || behind == "0").then_some(())?;
                let run = if *is_upper { run.to_uppercase() } else { run.to_owned() };
                text.extend_from_slice(run.as_bytes());
            }
        }
    }
    (integer == 0).then_some(text)
}

#[test]
fn the_page_is_enough_to_read_datums() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut seen = 0;
    for (number, dictionary) in [(7, shaped()), (70_000, shaped_always())] {
        let with = writing(number, dictionary, Codec::shapes());
        for turn in 0..2000 {
            let tree = match turn % 8 {
                0 | 1 => order(&mut rng),
                2 => measurement(&mut rng),
                3 => anything(&mut rng, 3),
                4 => any_object(&mut rng, 3),
                5 => Tree::Array((0..rng.below(90)).map(|_| order(&mut rng)).collect()),
                6 => letter(&mut rng),
                _ => article(&mut rng, 900),
            };
            let written = tree.document();
            let datum = encode(with.choice(), Some(&with), &written);
            let found = current(&datum).unwrap();
            if found.method() == Method::Shapes {
                assert!(document(dictionary, &datum).unwrap() == written, "{tree:?}");
                assert_eq!(sealed(dictionary, number, written.len(), found.payload()), datum);
                seen += 1;
            }
        }
    }
    assert!(seen > 2000, "{seen} documents");
}
