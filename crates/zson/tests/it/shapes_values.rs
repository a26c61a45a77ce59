//! Values that are read in place are those of the document.

use std::collections::HashSet;

use pgshrink_testkit::seed::Seed;
use pgshrink_zson::datum::Method;
use pgshrink_zson::shapes::{Known, Scratch, Step, Text, Value, View};
use pgshrink_zson::training::Shapes;
use pgshrink_zson::{Codec, ReadingDictionary, WritingDictionary};

use crate::fixtures::{current, encode, learned, reading, shaped_always, shaped_short, writing};
use crate::golden_shapes::{by_hand, everything, further};
use crate::jsonb::{Tree, number, numeric, object, text};
use crate::records::{any_object, anything, letter, measurement, order};

fn both() -> (WritingDictionary, ReadingDictionary) {
    (writing(1, shaped_always(), Codec::shapes()), reading(1, shaped_always()))
}

/// Calls `look` with the document's datum as a view, if it is stored by its shape.
fn viewed(with: &(WritingDictionary, ReadingDictionary), tree: &Tree, look: impl FnOnce(&View<'_>)) -> bool {
    let datum = encode(with.0.choice(), Some(&with.0), &tree.document());
    let header = current(&datum).unwrap();
    let view = with.1.view(&header).unwrap();
    assert_eq!(view.is_some(), header.method() == Method::Shapes);
    view.as_ref().inspect(|view| look(view)).is_some()
}

/// Compares a value, and all that is in it, with the model.
fn compare(view: &View<'_>, value: Value<'_>, tree: &Tree, scratch: &mut Scratch) {
    assert_eq!(view.type_of(value).unwrap(), tree.kind());
    let mut out = b"earlier".to_vec();
    let written = view.text(value, &mut out, scratch).unwrap();
    assert_eq!(&out[..7], b"earlier");
    match (tree, &out[7..]) {
        (Tree::Null, found) => assert_eq!((written, found), (Text::Null, &b""[..])),
        (Tree::Bool(value), found) => {
            assert_eq!((written, found), (Text::Written, value.to_string().as_bytes()));
        }
        (Tree::Text(text), found) => assert_eq!((written, found), (Text::Written, &text[..])),
        (Tree::Number(number), found) if written == Text::Numeric => assert_eq!(found, numeric(number)),
        (Tree::Number(number), found) => assert_eq!((written, found), (Text::Written, number.as_bytes())),
        (Tree::Array(_) | Tree::Object(_) | Tree::Stored { .. }, found) => {
            assert_eq!((written, found), (Text::Container, &b""[..]))
        }
    }
    let mut target = vec![0x5a; view.raw_len()];
    let length = view.document(value, &mut target, scratch).unwrap();
    assert_eq!(&target[..length], tree.document());
    match tree {
        Tree::Object(pairs) => {
            for (key, inside) in pairs {
                let found = view.next(value, Step::Key(key)).unwrap().unwrap();
                compare(view, found, inside, scratch);
            }
        }
        Tree::Array(elements) => {
            let count = elements.len() as i64;
            for (at, inside) in elements.iter().enumerate() {
                let found = view.next(value, Step::Index(at as i64)).unwrap().unwrap();
                compare(view, found, inside, scratch);
                let from_the_end = view.next(value, Step::Index(at as i64 - count)).unwrap().unwrap();
                assert_eq!(view.type_of(from_the_end).unwrap(), view.type_of(found).unwrap());
                if elements.len() < 9 {
                    compare(view, from_the_end, inside, scratch);
                }
            }
        }
        _ => {}
    }
    compare_steps(view, value, tree);
}

/// What is there, and what is not.
fn compare_steps(view: &View<'_>, value: Value<'_>, tree: &Tree) {
    let steps = [
        Step::Key(b"id"),
        Step::Key(b""),
        Step::Key(b"items"),
        Step::Key(b"no such key"),
        Step::Index(0),
        Step::Index(-1),
        Step::Index(1000),
        Step::Index(-1000),
        Step::Index(i64::MAX),
        Step::Index(i64::MIN),
    ];
    for step in steps {
        assert_eq!(
            view.next(value, step).unwrap().is_some(),
            tree.step(step).is_some(),
            "{step:?} of {tree:?}"
        );
    }
}

/// Keys of the outermost object in fewer steps, if at all: what the view tells. Returns how many.
fn direct(with: &(WritingDictionary, ReadingDictionary), tree: &Tree, known: &mut Known) -> usize {
    let datum = encode(with.0.choice(), Some(&with.0), &tree.document());
    let header = current(&datum).unwrap();
    let Some(view) = with.1.view(&header).unwrap() else { return 0 };
    let mut keys: Vec<&[u8]> = vec![b"id", b"", b"no such key", b"items", &[b'k'; 33]];
    if let Tree::Object(pairs) = tree {
        keys.extend(pairs.iter().map(|(key, _)| &key[..]));
    }
    let (mut count, root) = (0, view.root().unwrap());
    for key in keys {
        let found = view.next(root, Step::Key(key)).unwrap();
        let mut targets = [vec![0; tree.document().len()], vec![0xff; tree.document().len()]];
        let documents =
            [found, view.key(known, key).unwrap()].into_iter().zip(&mut targets).map(|(found, target)| {
                found.map(|value| {
                    let length = view.document(value, target, &mut Scratch::default()).unwrap();
                    target[..length].to_vec()
                })
            });
        let documents: Vec<_> = documents.collect();
        assert_eq!(documents[0], documents[1], "{key:?} of {tree:?}");
        let mut out = vec![b'x'; view.raw_len() + 64];
        if let Some((text, length)) = with.1.text_of_key(known, &header, key, &mut out) {
            let mut expected = Vec::new();
            let told = found.map_or(Text::Null, |value| {
                view.text(value, &mut expected, &mut Scratch::default()).unwrap()
            });
            assert_eq!((text, &out[..length]), (told, &expected[..]), "{key:?} of {tree:?}");
            count += 1;
            // With less room: the same, or nothing if there is too little.
            for room in [0, length.saturating_sub(1), length, length + 15, length + 16] {
                out.fill(0xa5);
                let found = with.1.text_of_key(known, &header, key, &mut out[..room]);
                let is_right = found == Some((text, length)) && out[..length] == expected[..];
                assert!(is_right || found.is_none(), "{key:?} of {tree:?}");
                assert!(found.is_none() || room >= length, "{key:?} of {tree:?}");
                assert!(found.is_some() || room < length + 16, "{key:?} of {tree:?}");
            }
        }
    }
    count
}

fn has(view: &View<'_>, tree: &Tree) {
    let mut texts: Vec<Vec<u8>> = ["id", "open", "new", "", "status", "7", "true"].map(Vec::from).into();
    if let Tree::Array(elements) = tree {
        texts.extend(elements.iter().filter_map(|element| match element {
            Tree::Text(text) => Some(text.clone()),
            _ => None,
        }));
    }
    if let Tree::Text(text) = tree {
        texts.push(text.clone());
    }
    let (mut buffer, mut scratch) = (b"earlier".to_vec(), Scratch::default());
    for text in texts {
        assert_eq!(
            view.has(&text, &mut buffer, &mut scratch).unwrap(),
            tree.has(&text),
            "{text:?} in {tree:?}"
        );
    }
}

#[test]
fn every_value_is_the_models() {
    let mut rng = Seed::from_env_or_time().rng();
    let with = both();
    let mut scratch = Scratch::default();
    let mut seen = 0;
    for turn in 0..900 {
        let tree = match turn % 6 {
            5 => letter(&mut rng),
            0 => measurement(&mut rng),
            1 => any_object(&mut rng, 3),
            2 => anything(&mut rng, 3),
            3 => Tree::Array((0..rng.below(12)).map(|_| anything(&mut rng, 1)).collect()),
            _ => order(&mut rng),
        };
        seen += usize::from(viewed(&with, &tree, |view| {
            compare(view, view.root().unwrap(), &tree, &mut scratch);
            has(view, &tree);
        }));
    }
    assert!(seen > 500, "{seen} documents");
}

#[test]
fn keys_that_are_known_are_those_of_their_dictionary() {
    let mut rng = Seed::from_env_or_time().rng();
    // The same id and other shapes.
    let others = (writing(1, shaped_short(), Codec::shapes()), reading(1, shaped_short()));
    let both = [both(), others];
    let mut known = Known::default();
    let mut count = 0;
    for turn in 0..900 {
        let tree = match turn % 4 {
            0 => measurement(&mut rng),
            1 => any_object(&mut rng, 3),
            2 => letter(&mut rng),
            _ => order(&mut rng),
        };
        count += both.iter().map(|with| direct(with, &tree, &mut known)).sum::<usize>();
    }
    assert!(count > 3000, "{count} keys");
}

#[test]
fn further_keys_are_found_like_those_of_the_shape() {
    let mut rng = Seed::from_env_or_time().rng();
    let dictionary = by_hand();
    let with = (writing(1, &dictionary, Codec::shapes()), reading(1, &dictionary));
    let (mut known, mut scratch, mut counts) = (Known::default(), Scratch::default(), [0, 0]);
    for turn in 0..200 {
        let all = if turn % 2 > 0 { further() } else { everything() };
        let Tree::Object(mut pairs) = all else { unreachable!() };
        pairs.retain(|_| rng.chance(80));
        if rng.chance(50) {
            let inside = [("lat", number("1.00000")), ("lon", anything(&mut rng, 1))];
            pairs.push((b"where".to_vec(), object(inside.into_iter().filter(|_| rng.chance(70)))));
        }
        let tree = object(pairs);
        let is_seen = viewed(&with, &tree, |view| compare(view, view.root().unwrap(), &tree, &mut scratch));
        assert!(is_seen);
        counts[turn % 2] += direct(&with, &tree, &mut known);
    }
    assert!(counts[0] > 300 && counts[1] > 300, "{counts:?} keys");
}

#[test]
fn a_key_that_is_too_long_to_be_noted_takes_nothing_from_another() {
    let with = both();
    let tree = order(&mut Seed(19).rng());
    // At least one of these lengths has the place of the other key.
    for length in 33..49 {
        let mut known = Known::default();
        let is_seen = viewed(&with, &tree, |view| {
            let long = vec![b'k'; length];
            for (key, is_there) in [(&b"id"[..], true), (&long, false), (b"id", true)] {
                assert_eq!(view.key(&mut known, key).unwrap().is_some(), is_there, "{length}");
            }
        });
        assert!(is_seen);
    }
}

/// The number in front of a document that is an object.
fn number_of(datum: &[u8]) -> usize {
    let payload = current(datum).unwrap().payload();
    // Behind a token, and a length if that says so.
    let behind =
        if payload[0] < 255 { 1 } else { 1 + 1 + payload[1..].iter().position(|byte| *byte < 128).unwrap() };
    match payload[behind] {
        byte @ ..128 => byte.into(),
        byte => usize::from(byte - 128) + 128 * usize::from(payload[behind + 1]),
    }
}

#[test]
fn keys_are_found_in_documents_of_many_shapes() {
    let mut rng = Seed(14).rng();
    let keys_of = |kind: usize| (0..6).map(move |at| format!("kind {kind} key {at}"));
    let mut tree = |kind: usize, further: &str| {
        let keys = keys_of(kind).chain([further.to_owned()]).filter(|key| !key.is_empty());
        object(keys.map(|key| (key, number(rng.below(1_000_000)))).collect::<Vec<_>>())
    };
    let samples: Vec<Vec<u8>> = (0..1000).map(|at| tree(at % 20, "").document()).collect();
    let dictionary = learned(&samples, Shapes::Only).winner.unwrap();
    let with = (writing(1, &dictionary, Codec::shapes()), reading(1, &dictionary));
    let (mut known, mut numbers, mut count) = (Known::default(), HashSet::new(), 0);
    for at in 0..200 {
        let tree = tree(at % 20, ["", "z", "kind 7 key 3"][at % 3]);
        numbers.insert(number_of(&encode(with.0.choice(), Some(&with.0), &tree.document())));
        count += direct(&with, &tree, &mut known);
    }
    assert!(count > 300, "{count} keys");
    // Of one byte and of two, without further keys and with.
    for range in [1..21, 121..128, 128..141] {
        assert!(numbers.iter().any(|number| range.contains(number)), "{range:?}: {numbers:?}");
    }
}

#[test]
fn values_of_long_documents_are_the_models() {
    let mut rng = Seed::from_env_or_time().rng();
    let with = both();
    let tree = Tree::Array((0..60).map(|_| order(&mut rng)).collect());
    let is_seen =
        viewed(&with, &tree, |view| compare(view, view.root().unwrap(), &tree, &mut Scratch::default()));
    assert!(is_seen);
}

#[test]
fn objects_with_many_keys_are_read_by_each_of_them() {
    let with = both();
    for count in [31, 32, 33, 300] {
        let tree = object((0..count).map(|at| (format!("key{at}"), text(format!("value {at}")))));
        let is_seen =
            viewed(&with, &tree, |view| compare(view, view.root().unwrap(), &tree, &mut Scratch::default()));
        assert!(is_seen, "{count} keys");
    }
}

#[test]
fn a_target_that_is_too_short_is_an_error() {
    let mut rng = Seed(4).rng();
    let tree = order(&mut rng);
    let length = tree.document().len();
    viewed(&both(), &tree, |view| {
        let root = view.root().unwrap();
        assert_eq!(view.raw_len(), length);
        for short in [0, 1, length / 2, length - 1] {
            assert!(view.document(root, &mut vec![0; short], &mut Scratch::default()).is_err());
        }
    });
}

#[test]
fn a_text_is_looked_for_in_one_pass_of_a_long_array() {
    let mut elements: Vec<Tree> = (0..400_000).map(|_| Tree::Null).collect();
    elements.push(text("the last"));
    let mut begin = None;
    let is_seen = viewed(&both(), &Tree::Array(elements), |view| {
        begin = Some(std::time::Instant::now());
        assert!(view.has(b"the last", &mut Vec::new(), &mut Scratch::default()).unwrap());
        assert!(!view.has(b"another", &mut Vec::new(), &mut Scratch::default()).unwrap());
    });
    // Milliseconds; minutes if each element is looked for from the beginning.
    assert!(is_seen && begin.unwrap().elapsed().as_secs() < 10);
}
