//! Golden files of shapes: a dictionary that was trained, one that was made by hand of all that a schema can have, datums of
//! both, and such as must be refused.

use pgshrink_codec::{Algorithm, Dictionary};
use pgshrink_testkit::seed::Seed;
use pgshrink_zson::datum::Method;
use pgshrink_zson::training::Shapes;
use pgshrink_zson::{Codec, Encoder};

use crate::fixtures::{current, learned, writing};
use crate::golden::{File, existing};
use crate::independent::{document, sealed};
use crate::jsonb::{Tree, nested, number, object, text};
use crate::records::{article, measurement, order, paragraphs};

/// What datums call the trained one and the one by hand.
pub const TRAINED_ID: u32 = 9;
pub const BY_HAND_ID: u32 = 70_000;

/// The stored one: a later training makes others.
fn trained() -> Dictionary {
    let bytes = existing("golden", "shapes.dictionary").unwrap_or_else(|| {
        let mut rng = Seed(78).rng();
        let samples: Vec<Vec<u8>> = (0..250)
            .map(|at| if at % 5 == 0 { measurement(&mut rng) } else { order(&mut rng) }.document())
            .collect();
        learned(&samples, Shapes::Only).winner.unwrap().bytes().to_vec()
    });
    Dictionary::new(bytes).unwrap()
}

pub fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&varint(bytes.len()), bytes].concat()
}

fn signed(value: i64) -> Vec<u8> {
    let folded = ((value << 1) ^ (value >> 63)) as u64;
    let used = (64 - folded.leading_zeros() as usize).div_ceil(8);
    sized(&folded.to_le_bytes()[..used])
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [varint(items.len()), items.concat()].concat()
}

const KEYS: [&str; 11] =
    ["at", "id", "any", "lat", "lon", "hash", "name", "tags", "price", "where", "amount"];

/// Every kind of column, part and frequent value, phrases with codes of both lengths, and nothing for zstd.
pub fn by_hand() -> Dictionary {
    let digits = |width: u8, low: i64, count: i64| [&[1, width][..], &signed(low), &signed(count)].concat();
    let fixed = |text: &str| [vec![0], sized(text.as_bytes())].concat();
    let form = |base: i64, parts: &[Vec<u8>]| [vec![2], signed(base), list(parts)].concat();
    let fixed_scale = |scale: u8, base: i64| [vec![3, scale], signed(base)].concat();
    let moment = [digits(4, 0, 0), fixed("-"), digits(2, 1, 12), fixed("-"), digits(2, 1, 31)];
    let hash = [fixed("0x"), vec![3, 7], fixed(":"), vec![2, 4], fixed("/"), digits(0, 0, 0)];
    let value = |what: u8, bytes: &[u8]| [vec![what], sized(bytes)].concat();
    let slot = |key: usize, column: usize| [varint(2 * key), varint(column)].concat();
    let inner = [varint(2 * 9 + 1), list(&[slot(3, 9), slot(4, 9)])].concat();
    let members = [slot(0, 1), slot(1, 2), slot(2, 8), slot(5, 4), slot(6, 3), slot(7, 5), slot(8, 6), inner];
    let shape = list(&[&members[..], &[slot(10, 10)]].concat());
    let child = |key: usize, column: usize| [varint(key), varint(column)].concat();
    let record = [vec![6], list(&[child(1, 2), child(6, 3), child(9, 0)]), list(&[shape])].concat();
    let column = |values: &[Vec<u8>], kind: Vec<u8>| [list(values), kind].concat();
    let empty = Tree::Array(vec![]).document();
    let columns = [
        column(&[], record),
        column(&[], form(2026 * 12 * 31, &moment)),
        column(&[], fixed_scale(0, 1000)),
        column(&[value(0, b"open"), value(0, b"")], vec![1]),
        column(&[], form(0, &hash)),
        column(&[value(2, &empty)], [vec![5], varint(7)].concat()),
        column(&[value(1, &crate::jsonb::numeric("9.99"))], vec![4]),
        column(&[], vec![1]),
        column(&[], vec![0]),
        column(&[], fixed_scale(5, 0)),
        column(&[], fixed_scale(2, -500)),
    ];
    let phrases: Vec<Vec<u8>> = (0..160).map(|at| sized(format!("phrase {at:03} ").as_bytes())).collect();
    let keys = KEYS.map(|key| sized(key.as_bytes()));
    let schema = [list(&keys), list(&phrases), list(&columns)].concat();
    // zstd is never tried.
    let rule = [&[100][..], &[255; 58]].concat();
    Dictionary::new([&b"\xffzshape1"[..], &rule, &sized(&schema)].concat()).unwrap()
}

/// A document that has something of everything.
pub fn everything() -> Tree {
    object([
        ("at", text("2026-11-28")),
        ("id", number(1003)),
        (
            "any",
            Tree::Array(vec![
                Tree::Null,
                Tree::Bool(true),
                number("-12.345"),
                number("9".repeat(40)),
                text("phrase 007 phrase 151 !"),
                text(b"\x00\xff\x01\xfe"),
                object([("id", number(-5)), ("unknown", Tree::Bool(false))]),
            ]),
        ),
        ("hash", text("0xABC1230:00ff/12345678901")),
        ("name", text("open")),
        ("tags", Tree::Array(vec![text("phrase 159 "), text("phrase 000 phrase 143 phrase 144 ")])),
        ("price", number("0.10")),
        ("where", object([("lat", number("52.52000")), ("lon", number("-13.40500"))])),
        ("amount", number("-7.25")),
    ])
}

/// Without some keys, with others, with frequent values, and with values of other kinds.
pub fn strange() -> Tree {
    Tree::Array(vec![
        object([("id", number("1000")), ("tags", Tree::Array(vec![])), ("price", number("9.99"))]),
        object([("at", text("yesterday")), ("id", text("7")), ("amount", number("3"))]),
        object([("name", text("")), ("where", object::<&str>([]))]),
        object([("new", text("x".repeat(300))), ("name", text("phrase 003 "))]),
    ])
}

/// With keys that the shape lacks, in front of its keys, between them and behind them, and with a value that a key of the
/// shape cannot have.
pub fn further() -> Tree {
    let Tree::Object(mut pairs) = everything() else { unreachable!() };
    pairs.retain(|(key, _)| key != b"where" && key != b"tags");
    for (at, key) in
        ["!", "lot", "notes", "phrase 001", "a key that is behind all others"].into_iter().enumerate()
    {
        pairs.push((key.into(), object([("id", number(1000 + at as i64)), (key, text("phrase 002 "))])));
    }
    pairs.push(("where".into(), text("nowhere")));
    pairs.push(("lat".into(), Tree::Array(vec![Tree::Null])));
    pairs.sort_by(|(left, _), (right, _)| (left.len(), left).cmp(&(right.len(), right)));
    Tree::Object(pairs)
}

fn encoded(id: u32, dictionary: &Dictionary, tree: &Tree, method: Method) -> Vec<u8> {
    let with = writing(id, dictionary, Codec::shapes());
    let mut datum = Vec::new();
    Encoder::new().encode(Algorithm::Zstd.into(), Some(&with), &tree.document(), &mut datum).unwrap();
    assert_eq!(current(&datum).unwrap().method(), method);
    datum
}

pub fn golden() -> Vec<File> {
    let (trained, by_hand) = (trained(), by_hand());
    let mut rng = Seed(79).rng();
    let record = order(&mut rng);
    let blocks = Tree::Array((0..25).map(|_| order(&mut rng)).collect());
    let long = article(&mut rng, 900);
    let paragraphs = paragraphs(&mut rng, 12);
    let measurement = measurement(&mut rng);
    let mut files = vec![
        ("shapes.dictionary", trained.bytes().to_vec()),
        ("shapes-by-hand.dictionary", by_hand.bytes().to_vec()),
        ("shapes-record.datum", encoded(TRAINED_ID, &trained, &record, Method::Shapes)),
        ("shapes-record.jsonb", record.document()),
        ("shapes-array.datum", encoded(TRAINED_ID, &trained, &measurement, Method::Shapes)),
        ("shapes-array.jsonb", measurement.document()),
        ("shapes-zstd.datum", encoded(TRAINED_ID, &trained, &paragraphs, Method::Zstd)),
        ("shapes-zstd.jsonb", paragraphs.document()),
        ("shapes-long.datum", encoded(TRAINED_ID, &trained, &long, Method::Shapes)),
        ("shapes-long.jsonb", long.document()),
    ];
    for (datum, jsonb, tree) in [
        ("shapes-everything.datum", "shapes-everything.jsonb", everything()),
        ("shapes-strange.datum", "shapes-strange.jsonb", strange()),
        ("shapes-nested.datum", "shapes-nested.jsonb", nested(64, Tree::Null)),
        ("shapes-scalar.datum", "shapes-scalar.jsonb", text("phrase 001 phrase 150 ")),
        ("shapes-blocks.datum", "shapes-blocks.jsonb", blocks),
        ("shapes-further.datum", "shapes-further.jsonb", further()),
        (
            "shapes-long-blocks.datum",
            "shapes-long-blocks.jsonb",
            Tree::Array(vec![text("x".repeat(5000)), Tree::Null]),
        ),
    ] {
        let encoded = encoded(BY_HAND_ID, &by_hand, &tree, Method::Shapes);
        assert!(document(&by_hand, &encoded).unwrap() == tree.document());
        files.extend([(datum, encoded), (jsonb, tree.document())]);
    }
    let Tree::Object(mut pairs) = order(&mut Seed(81).rng()) else { unreachable!() };
    pairs.insert(0, ("id2".into(), Tree::Bool(true)));
    pairs.sort_by(|(left, _), (right, _)| (left.len(), left).cmp(&(right.len(), right)));
    let changed = Tree::Object(pairs);
    files.push(("shapes-further-inside.datum", encoded(TRAINED_ID, &trained, &changed, Method::Shapes)));
    files.push(("shapes-further-inside.jsonb", changed.document()));
    files.into_iter().map(|(name, bytes)| ("golden", name, bytes)).collect()
}

pub fn errors() -> Vec<File> {
    let (trained, by_hand) = (trained(), by_hand());
    let record = order(&mut Seed(79).rng());
    let good = encoded(TRAINED_ID, &trained, &record, Method::Shapes);
    let changed = |at: usize, byte: u8| {
        let mut datum = good.clone();
        datum[at] = byte;
        datum
    };
    let bytes = |id: u32, dictionary: &Dictionary, tree: &Tree| sealed_as(id, dictionary, tree, 0);
    let crafted = |size: usize, payload: &[u8]| sealed(&by_hand, BY_HAND_ID, size, payload);
    // 65 arrays, each the only element of the one around it, as values of any kind.
    let deep = (0..65).fold(vec![], |inside: Vec<u8>, _| match inside.len() {
        0 => vec![5, 0],
        length => [&[5, 1, 255][..], &varint(length << 1), &inside].concat(),
    });
    let deep = [&[255][..], &varint(deep.len() << 1 | 1), &deep].concat();
    let behind = |count: usize| [&good[..8], &vec![0; count]].concat();
    [
        ("version-3.datum", vec![0x30, 1, 2, 3, 4]),
        ("shapes-form-3.datum", changed(0, 0x2b)),
        ("shapes-without-dictionary.datum", [&[0x24], &good[2..]].concat()),
        ("shapes-check.datum", changed(4, !good[4])),
        ("shapes-truncated.datum", good[..good.len() - 1].to_vec()),
        ("shapes-without-payload.datum", behind(0)),
        ("shapes-between-blocks.datum", behind(4098)),
        ("shapes-other-dictionary.datum", bytes(TRAINED_ID, &by_hand, &record)),
        ("shapes-size.datum", sealed_as(BY_HAND_ID, &by_hand, &record, 1)),
        ("shapes-size-over-limit.datum", crafted((16 << 20) + 1, &[125])),
        ("shapes-too-deep.datum", crafted(65 * 8 - 4, &deep)),
        ("shapes-absent.datum", crafted(12, &[124])),
        ("shapes-unknown-value.datum", crafted(12, &[0])),
        ("shapes-unknown-shape.datum", crafted(4, &[129, 2])),
        ("shapes-unknown-phrase.datum", crafted(20, &[255, 7, 1, 145, 0])),
        ("shapes-further-absent.datum", crafted(100, &with_further(121, &[1, 1, 124]))),
        ("shapes-further-unknown-shape.datum", crafted(4, &with_further(122, &[0, 0]))),
        ("shapes-further-behind.datum", crafted(4, &with_further(121, &[0, 125]))),
        ("shapes-behind.datum", crafted(8, &[125, 125])),
        ("shapes-long-damaged.datum", crafted(3008, &[255, 1, 7, 1, 2, 3, 4])),
        // A block of 3,000 times the same byte, and something behind it.
        ("shapes-long-behind.datum", crafted(3008, &[255, 1, 8, 0xc3, 0x5d, 0, b'x', 0])),
        // The same where there is room for less.
        ("shapes-long-room.datum", crafted(2999, &[255, 1, 8, 0xc3, 0x5d, 0, b'x'])),
        // A numeric that is longer by its own header than it is.
        ("shapes-numeric-length.datum", crafted(14, &[255, 15, 4, 0x28, 0, 0, 0x93, 0, 0x80])),
        ("shapes-unknown-column.dictionary", with_column_of_elements(&by_hand, 11)),
    ]
    .map(|(name, bytes)| ("golden-errors", name, bytes))
    .into()
}

/// An object of nothing but what is behind the values of a shape.
fn with_further(number: u8, further: &[u8]) -> Vec<u8> {
    let bytes = [&[number][..], &[124; 10], further].concat();
    [&[128 + bytes.len() as u8][..], &bytes].concat()
}

/// A datum with the right sums whose size is so many bytes too large.
fn sealed_as(id: u32, dictionary: &Dictionary, tree: &Tree, more: usize) -> Vec<u8> {
    let datum = encoded(id, dictionary, tree, Method::Shapes);
    sealed(dictionary, id, tree.document().len() + more, current(&datum).unwrap().payload())
}

/// The dictionary by hand with another column for the elements of its array.
fn with_column_of_elements(by_hand: &Dictionary, column: u8) -> Vec<u8> {
    let mut bytes = by_hand.bytes().to_vec();
    let empty = Tree::Array(vec![]).document();
    let array = [&[1, 2, 4][..], &empty, &[5, 7]].concat();
    let at = bytes.windows(array.len()).position(|window| window == array).unwrap();
    bytes[at + array.len() - 1] = column;
    bytes
}
