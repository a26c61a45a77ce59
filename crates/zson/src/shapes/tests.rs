//! Documents of every form, and payloads and schemas that nobody wrote.

use std::ops::ControlFlow;

use pgshrink_codec::Algorithm;
use pgshrink_codec::bare::Compressor;
use pgshrink_testkit::{Rng, Seed};

use crate::error::Error;

use super::finding::{Place, Step, find};
use super::jsonb::{Node, Root, Stack, Writer, copy, root};
use super::long::Long;
use super::number::{Buffer, Number};
use super::reading::{self, Scratch, With};
use super::schema::{Column, Kind, Schema, Value, What};
use super::writing::{Remembered, Source, Tables, Written, write};
use super::{Fallback, bytes, learning};

const WORDS: [&str; 12] = [
    "",
    "a",
    "id",
    "name",
    "größe",
    "created_at",
    "a rather long key with spaces",
    "\u{1f600}",
    "x1",
    "x2",
    "x3",
    "type",
];

fn text(rng: &mut Rng) -> String {
    match rng.below(7) {
        0 => WORDS[rng.below(WORDS.len())].to_owned(),
        1 => format!(
            "2026-{:02}-{:02}T{:02}:00:{:02}Z",
            1 + rng.below(12),
            1 + rng.below(28),
            rng.below(24),
            rng.below(60)
        ),
        2 => format!("user-{}", rng.below(100_000)),
        3 => "\u{0}\u{7f}ÿ".repeat(rng.below(9)),
        4 => format!("the {} fox jumps over the {} dog", WORDS[rng.below(8)], rng.below(9)),
        5 => format!("{:032x}", u128::from(rng.bits()) << 50),
        _ => "lorem ipsum ".repeat(rng.below(60)),
    }
}

fn value(rng: &mut Rng, writer: &mut Writer<'_>, depth: usize) {
    match rng.below(if depth == 0 { 6 } else { 9 }) {
        0 => writer.null().unwrap(),
        1 => writer.bool(rng.below(2) == 0).unwrap(),
        2 | 3 => writer.text(text(rng).as_bytes()).unwrap(),
        4 | 5 => {
            let mut buffer = Buffer::default();
            let integer = i128::from(rng.bits()) >> rng.below(64);
            let number = Number {
                integer: if rng.below(3) == 0 { -integer } else { integer },
                scale: rng.below(6) as u16,
            };
            number.write(&mut buffer).unwrap();
            writer.number(buffer.bytes()).unwrap();
        }
        6 => {
            let count = rng.below(40) / (1 + rng.below(9));
            writer.begin_array(count).unwrap();
            (0..count).for_each(|_| value(rng, writer, depth - 1));
            writer.end().unwrap();
        }
        _ => object(rng, writer, depth),
    }
}

fn object(rng: &mut Rng, writer: &mut Writer<'_>, depth: usize) {
    let mut keys: Vec<String> =
        WORDS.iter().filter(|_| rng.below(3) > 0).map(|key| (*key).to_owned()).collect();
    if rng.below(9) == 0 {
        keys.extend((0..rng.below(60)).map(|n| format!("rare{}", n * rng.below(1000))));
    }
    keys.sort_by(|left, right| (left.len(), left.as_bytes()).cmp(&(right.len(), right.as_bytes())));
    keys.dedup();
    writer.begin_object(keys.len()).unwrap();
    keys.iter().for_each(|key| writer.text(key.as_bytes()).unwrap());
    keys.iter().for_each(|_| value(rng, writer, depth.saturating_sub(1)));
    writer.end().unwrap();
}

fn document(rng: &mut Rng) -> Vec<u8> {
    written(|writer| match rng.below(12) {
        0 => {
            writer.begin_scalar().unwrap();
            value(rng, writer, 0);
            writer.end().unwrap();
        }
        1 => {
            writer.begin_array(3).unwrap();
            (0..3).for_each(|_| value(rng, writer, 2));
            writer.end().unwrap();
        }
        _ => object(rng, writer, 4),
    })
}

pub(super) fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let (mut target, mut open) = (vec![0xaa; 1 << 20], Stack::default());
    let mut writer = Writer::new(&mut target, &mut open);
    write(&mut writer);
    let len = writer.len();
    target[..len].to_vec()
}

/// Documents, and a schema that knows a half of them.
fn given(seed: u64) -> (Vec<Vec<u8>>, Schema) {
    let mut rng = Seed(seed).rng();
    let documents: Vec<Vec<u8>> = (0..400).map(|_| document(&mut rng)).collect();
    let samples: Vec<&[u8]> = documents.iter().step_by(2).map(Vec::as_slice).collect();
    let go_on = &mut || Ok(());
    let schema = learning::learned(&samples, false, go_on).unwrap().schema(32 << 10, go_on).unwrap();
    let stored = bytes::of(&schema);
    (documents, bytes::schema(&stored).unwrap().unwrap())
}

fn alone(jsonb: &[u8]) -> Source<'_> {
    Source { jsonb, earlier: None }
}

/// A schema with what it takes to write, and to read.
struct Both {
    schema: Schema,
    tables: Tables,
    remembered: Remembered,
    scratch: Scratch,
    compressor: Compressor,
    target: Vec<u8>,
}

impl Both {
    fn new(mut schema: Schema) -> Both {
        schema.prepare().unwrap();
        let tables = Tables::new(&schema).unwrap();
        let (remembered, scratch) = (Remembered::default(), Scratch::default());
        Both { schema, tables, remembered, scratch, compressor: Compressor::new(), target: Vec::new() }
    }

    fn write(&mut self, document: &[u8]) -> Option<(Vec<u8>, Written)> {
        let mut payload = Vec::new();
        let written = self.write_within(2 * document.len() + 1024, document, &mut payload)?;
        Some((payload, written))
    }

    fn write_within(&mut self, room: usize, document: &[u8], payload: &mut Vec<u8>) -> Option<Written> {
        let Both { schema, tables, remembered, compressor, .. } = self;
        let choice = Algorithm::Zstd.into();
        let proceed = &mut || ControlFlow::Continue(());
        let long = Long { compressor, choice, dictionary: None, proceed };
        write(schema, tables, (remembered, long), alone(document), room, payload).unwrap()
    }

    fn payload(&mut self, document: &[u8]) -> Vec<u8> {
        self.write(document).unwrap().0
    }

    fn read(&mut self, payload: &[u8], bytes_max: usize) -> Option<&[u8]> {
        self.target.clear();
        self.target.resize(bytes_max, 0xaa);
        let with = With { schema: &self.schema, zstd: None };
        let len = reading::document(with, payload, &mut self.target, &mut self.scratch).unwrap()?;
        Some(&self.target[..len])
    }
}

/// The value at a place.
fn value_at(schema: &Schema, place: Place<'_>, bytes_max: usize) -> Option<Vec<u8>> {
    let mut target = vec![0xaa; bytes_max];
    let with = With { schema, zstd: None };
    let len = reading::at(with, place, &mut target, &mut Scratch::default()).unwrap()?;
    target.truncate(len);
    Some(target)
}

#[test]
fn every_document_comes_back_byte_for_byte() {
    for seed in 0..8 {
        let (documents, schema) = given(seed);
        let untrained = Schema { columns: vec![super::schema::Column::ANY], ..Schema::default() };
        for mut both in [Both::new(schema), Both::new(untrained)] {
            for document in &documents {
                let stored = both.payload(document);
                assert_eq!(both.read(&stored, document.len()), Some(document.as_slice()), "{seed}");
                assert_eq!(
                    both.read(&stored, document.len() - 1),
                    None,
                    "it is longer than it is said to be"
                );
            }
        }
    }
}

fn each_path<'d>(node: Node<'d>, path: &mut Vec<Step<'d>>, found: &mut dyn FnMut(&[Step<'d>], Node<'d>)) {
    found(path, node);
    match node {
        Node::Object(object) => {
            for (key, value) in object.keys().zip(object.values()) {
                path.push(Step::Key(key.unwrap()));
                each_path(value.unwrap(), path, found);
                path.pop();
            }
        }
        Node::Array(array) => {
            for (at, value) in (0..).zip(array.values()) {
                path.push(Step::Index(if at % 2 == 0 { at } else { at - array.count() as i64 }));
                each_path(value.unwrap(), path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

#[test]
fn every_value_is_found_by_its_path_and_nothing_else_is() {
    for seed in 0..4 {
        let (documents, schema) = given(seed);
        let mut both = Both::new(schema);
        for document in &documents {
            let stored = both.payload(document);
            let (Root::Container(node) | Root::Scalar(node)) = root(document).unwrap();
            each_path(node, &mut Vec::new(), &mut |path, node| {
                let place = find(&both.schema, &stored, path).unwrap().unwrap();
                let is_container = matches!(node, Node::Array(_) | Node::Object(_));
                let alone = written(|writer| {
                    if !is_container {
                        writer.begin_scalar().unwrap();
                    }
                    copy(node, writer).unwrap();
                    if !is_container {
                        writer.end().unwrap();
                    }
                });
                assert_eq!(value_at(&both.schema, place, alone.len()), Some(alone), "{path:?}");
                for step in [Step::Key(b"not there"), Step::Index(1 << 40), Step::Index(-(1 << 40))] {
                    let longer = [path, &[step]].concat();
                    assert!(find(&both.schema, &stored, &longer).unwrap().is_none(), "{path:?}");
                }
            });
        }
    }
}

/// One of the ways in which bytes are damaged.
fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let at = rng.below(bytes.len());
    match rng.below(4) {
        0 => bytes[at] = rng.below(256) as u8,
        1 => bytes[at] ^= 1 << rng.below(8),
        2 => bytes.insert(at, rng.below(256) as u8),
        _ => bytes.truncate(at.max(1)),
    }
}

#[test]
fn payloads_that_nobody_wrote_are_damage_or_a_document_and_nothing_else() {
    let mut rng = Seed(7).rng();
    let (documents, schema) = given(1);
    let mut both = Both::new(schema);
    for document in &documents {
        let mut stored = both.payload(document);
        for _ in 0..20 {
            damage(&mut rng, &mut stored);
            if let Some(read) = both.read(&stored, document.len()) {
                assert!(root(read).is_some());
            }
            for key in WORDS {
                let path = [Step::Key(key.as_bytes()), Step::Index(0)];
                if let Ok(Some(place)) = find(&both.schema, &stored, &path) {
                    let _ = value_at(&both.schema, place, document.len());
                }
            }
        }
    }
}

#[test]
fn a_jsonb_that_the_server_would_not_write_so_is_not_written_or_comes_back() {
    let mut rng = Seed(8).rng();
    let (documents, schema) = given(3);
    let mut both = Both::new(schema);
    let mut written = 0;
    for document in &documents {
        for _ in 0..40 {
            let mut other = document.clone();
            damage(&mut rng, &mut other);
            if let Some((payload, _)) = both.write(&other) {
                written += 1;
                assert_eq!(both.read(&payload, other.len()), Some(other.as_slice()));
            }
        }
    }
    assert!(written > 1000, "{written}");
}

#[test]
fn a_payload_has_no_more_bytes_than_there_is_room_for() {
    let (documents, schema) = given(4);
    let mut both = Both::new(schema);
    for document in documents.iter().step_by(20) {
        let whole = both.payload(document);
        for room in (0..whole.len()).step_by(1 + whole.len() / 100) {
            let mut payload = b"before".to_vec();
            let written = both.write_within(room, document, &mut payload);
            assert!(written.is_none() && payload.len() <= 6 + room && payload.starts_with(b"before"));
        }
    }
}

#[test]
fn schemas_that_nobody_wrote_are_none_or_one_that_can_be_used() {
    let mut rng = Seed(9).rng();
    let (documents, schema) = given(2);
    let stored = bytes::of(&schema);
    for end in 0..stored.len() {
        assert!(bytes::schema(&stored[..end]).unwrap().is_none(), "cut off at {end}");
    }
    let mut used = 0;
    for _ in 0..2000 {
        let mut stored = stored.clone();
        damage(&mut rng, &mut stored);
        let Some(mut schema) = bytes::schema(&stored).unwrap() else { continue };
        if let Err(error) = schema.prepare() {
            assert_eq!(error, Error::Dictionary { what: "list of keys" });
            continue;
        }
        used += 1;
        let mut both = Both::new(schema);
        for document in documents.iter().step_by(40) {
            if let Some((payload, _)) = both.write(document) {
                let _ = both.read(&payload, document.len());
            }
        }
    }
    assert!(used > 100, "{used}");
}

/// An object with these keys, each with this number.
fn with_keys(keys: &[&str], integer: i128) -> Vec<u8> {
    let mut keys = keys.to_vec();
    keys.sort_by(|left, right| (left.len(), left.as_bytes()).cmp(&(right.len(), right.as_bytes())));
    let mut buffer = Buffer::default();
    Number { integer, scale: 0 }.write(&mut buffer).unwrap();
    written(|writer| {
        writer.begin_object(keys.len()).unwrap();
        keys.iter().for_each(|key| writer.text(key.as_bytes()).unwrap());
        keys.iter().for_each(|_| writer.number(buffer.bytes()).unwrap());
        writer.end().unwrap();
    })
}

/// What documents of these keys are learned as, and the number in front of an object with further keys.
fn learned_from(keys: &[&str]) -> (Both, u8) {
    let documents: Vec<Vec<u8>> = (0..200).map(|at| with_keys(keys, 1000 + at)).collect();
    let samples: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
    let go_on = &mut || Ok(());
    let schema = learning::learned(&samples, false, go_on).unwrap().schema(32 << 10, go_on).unwrap();
    (Both::new(schema), 1 + super::schema::SHAPES_MAX as u8)
}

#[test]
fn further_keys_leave_the_others_in_their_shape() {
    let known = ["aa", "bb", "ccc", "ddd", "eeeee", "fffff", "ggggg", "hhhhh"];
    let (mut both, number) = learned_from(&known);
    let whole = both.payload(&with_keys(&known, 1001));
    for further in [&["a"][..], &["dd"], &["zzzzzzzz"], &["a", "cc", "dddd", "fffgg", "iiiiii", "jjjjjjj"]] {
        let document = with_keys(&[&known, further].concat(), 1001);
        let (payload, written) = both.write(&document).unwrap();
        assert!(written.is_strange && payload[1] == number, "{further:?}: {payload:?}");
        let most = further.iter().map(|key| key.len() + 7).sum::<usize>();
        assert!(payload.len() <= whole.len() + 2 + most, "{further:?}: {payload:?}");
        assert_eq!(both.read(&payload, document.len()), Some(document.as_slice()), "{further:?}");
    }
    // Some of the shape's are absent, too.
    let document = with_keys(&[&known[1..7], &["dd", "other"]].concat(), 1001);
    let payload = both.payload(&document);
    assert_eq!((payload[1], both.read(&payload, document.len())), (number, Some(document.as_slice())));
}

#[test]
fn an_object_with_too_many_further_keys_is_written_with_its_keys() {
    let known: Vec<String> = (0..60).map(|at| format!("known{at:02}")).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let further: Vec<String> = (0..33).map(|at| format!("further{at:02}")).collect();
    let further: Vec<&str> = further.iter().map(String::as_str).collect();
    let (mut both, number) = learned_from(&known);
    for (count, expected) in [(32, number), (33, 0)] {
        let document = with_keys(&[&known, &further[..count]].concat(), 1001);
        let payload = both.payload(&document);
        // Behind a token, and the byte that says that all is of it.
        assert_eq!((payload[0], payload[2]), (255, expected), "{count}");
        assert_eq!(both.read(&payload, document.len()), Some(document.as_slice()));
    }
    // What has little of the shape takes less so.
    let document = with_keys(&[&known[..3], &["x"]].concat(), 1001);
    assert_eq!(both.payload(&document)[1], 0);
}

#[test]
fn an_object_that_lacks_some_of_many_keys_has_the_others() {
    // Longer and shorter than what is copied as one, and more than have a length each.
    let known: Vec<String> = (0..70).map(|at| format!("{}{at:02}", "k".repeat(1 + at * 7 % 40))).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let (mut both, _) = learned_from(&known);
    let mut without = learned_from(&known).0;
    without.schema.forget_keys();
    let mut rng = Seed(5).rng();
    for round in 0..200 {
        let absent = if round < 70 {
            vec![known[round]]
        } else {
            vec![*rng.pick(&known), *rng.pick(&known), *rng.pick(&known)]
        };
        let present: Vec<&str> = known.iter().copied().filter(|key| !absent.contains(key)).collect();
        let document = with_keys(&present, 1001);
        let payload = both.payload(&document);
        // Behind a token, and the byte that says that all is of it: the only shape.
        assert_eq!((payload[0], payload[2]), (255, 1), "{absent:?}");
        for both in [&mut both, &mut without] {
            assert_eq!(both.read(&payload, document.len()), Some(document.as_slice()), "{absent:?}");
        }
    }
}

#[test]
fn a_form_at_the_end_of_a_document_needs_no_more_room_than_its_text() {
    let document = |digits: usize| {
        written(|writer| {
            writer.begin_object(1).unwrap();
            writer.text(b"hash").unwrap();
            writer.text(format!("{:05x}", digits * 7919 % 0xfffff).as_bytes()).unwrap();
            writer.end().unwrap();
        })
    };
    let documents: Vec<Vec<u8>> = (0..300).map(document).collect();
    let samples: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
    let go_on = &mut || Ok(());
    let schema = learning::learned(&samples, false, go_on).unwrap().schema(32 << 10, go_on).unwrap();
    let mut both = Both::new(schema);
    for document in &documents {
        let payload = both.payload(document);
        // A token and the number of a shape, and the same of three bytes.
        assert_eq!(payload.len(), 6, "{payload:?}");
        assert_eq!(both.read(&payload, document.len()), Some(document.as_slice()));
        assert_eq!(both.read(&payload, document.len() - 1), None);
    }
}

#[test]
fn frequent_containers_that_the_server_would_not_write_are_refused() {
    let is_taken = |container: &[u8]| {
        let value = Value::new(What::Container, container.to_vec());
        let column = Column { values: vec![value], kind: Kind::Any };
        let schema = Schema { columns: vec![column], ..Schema::default() };
        bytes::schema(&bytes::of(&schema)).unwrap().is_some()
    };
    let seven: &[u8] = &[0x20, 0, 0, 0, 0x00, 0x80, 7, 0];
    let array_of = |numeric: &[u8]| {
        written(|writer| {
            writer.begin_array(1).unwrap();
            writer.number(numeric).unwrap();
            writer.end().unwrap();
        })
    };
    let object_of = |keys: [&str; 2], numeric: &[u8]| {
        written(|writer| {
            writer.begin_array(2).unwrap();
            writer.null().unwrap();
            writer.begin_object(2).unwrap();
            keys.iter().for_each(|key| writer.text(key.as_bytes()).unwrap());
            keys.iter().for_each(|_| writer.number(numeric).unwrap());
            writer.end().unwrap();
            writer.end().unwrap();
        })
    };
    assert!(is_taken(&array_of(seven)) && is_taken(&object_of(["b", "aa"], seven)));
    // It says that it has a gigabyte, a byte more than it has, or fewer; or it has no header.
    for numeric in [
        &[0xfc, 0xff, 0xff, 0x3f, 0, 0x80, 7, 0][..],
        &[0x24, 0, 0, 0, 0, 0x80, 7, 0],
        &[0x18, 0, 0, 0, 0, 0x80, 7, 0],
        &[7],
    ] {
        assert!(!is_taken(&array_of(numeric)), "{numeric:?}");
        assert!(!is_taken(&object_of(["a", "b"], numeric)), "{numeric:?}");
    }
    for keys in [["b", "a"], ["a", "a"], ["aa", "b"]] {
        assert!(!is_taken(&object_of(keys, seven)), "{keys:?}");
    }
    // A key that is a number, and a number of no bytes.
    let mut of_number = written(|writer| {
        writer.begin_object(1).unwrap();
        writer.text(seven).unwrap();
        writer.null().unwrap();
        writer.end().unwrap();
    });
    assert!(is_taken(&of_number));
    of_number[7] |= 0x10;
    assert!(!is_taken(&of_number));
    assert!(!is_taken(&[2, 0, 0, 0x40, 1, 0, 0, 0x80, 3, 0, 0, 0x10, 0x61, 0, 0, 0]));
}

#[test]
fn zstd_is_not_tried_again_for_what_is_nearly_all_one_long_text() {
    let mut rng = Seed(5).rng();
    let mut hex =
        |length: usize| -> String { (0..length).map(|_| ['0', '1', '7', 'e'][rng.below(4)]).collect() };
    let (huge, long, other, least, short) = (hex(60_000), hex(9000), hex(9000), hex(2500), hex(1500));
    let schema = Schema { columns: vec![Column::ANY], ..Schema::default() };
    let mut with = super::Writer::of(&schema).unwrap();
    // No document was learned from, so zstd is tried for all but those.
    with.fallback = Fallback::learned(100, &[]);
    for (texts, is_doubtful) in [
        (vec![&long], false),
        (vec![&long, &other], true),
        (vec![&huge, &least], false),
        (vec![&least, &huge], false),
        (vec![&short], true),
        (vec![&long, &short], true),
        (vec![], true),
    ] {
        let document = written(|writer| {
            writer.begin_array(texts.len()).unwrap();
            texts.iter().for_each(|text| writer.text(text.as_bytes()).unwrap());
            writer.end().unwrap();
        });
        let (mut compressor, mut remembered) = (Compressor::new(), Remembered::default());
        let (choice, proceed) = (Algorithm::Zstd.into(), &mut || ControlFlow::Continue(()));
        let long = Long { compressor: &mut compressor, choice, dictionary: None, proceed };
        let written = with.encode(&document, None, &mut remembered, long, &mut Vec::new()).unwrap().unwrap();
        assert_eq!(written.is_doubtful, is_doubtful, "{} texts: {written:?}", texts.len());
    }
}
