//! Updates: what a document has in common with the one before is taken over, and nothing of it is wrong.

use std::ops::ControlFlow;

use pgshrink_codec::Dictionary;
use pgshrink_testkit::seed::{Rng, Seed};
use pgshrink_zson::datum::Method;
use pgshrink_zson::training::Shapes;
use pgshrink_zson::{Codec, Earlier, Encoder, WritingDictionary};

use crate::fixtures::{
    current, decode, encode, learned, reading, shaped, shaped_always, shaped_short, writing,
};
use crate::golden_shapes::{by_hand, everything};
use crate::jsonb::{Tree, nested, number, object, text};
use crate::records::{any_object, anything, letter, measurement, order};

/// The datum of a document after another one.
fn encode_after(with: &WritingDictionary, document: &[u8], datum: &[u8], earlier: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let earlier = Earlier { datum, document: earlier };
    let mut proceed = || ControlFlow::Continue(());
    Encoder::new()
        .encode_after(with.choice(), Some(with), (document, Some(earlier)), &mut out, &mut proceed)
        .unwrap();
    out
}

/// The same document with some members changed, removed, or new, at some depth.
fn updated(rng: &mut Rng, tree: &Tree) -> Tree {
    let Tree::Object(pairs) = tree else { return anything(rng, 2) };
    let mut pairs = pairs.clone();
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(pairs.len().max(1));
        match rng.below(5) {
            _ if pairs.is_empty() => pairs.push((b"first".to_vec(), anything(rng, 1))),
            0 => pairs[at].1 = anything(rng, 2),
            1 => drop(pairs.remove(at)),
            2 => pairs[at].1 = updated(rng, &pairs[at].1.clone()),
            3 => pairs.push((rng.pick(&["id2", "z", "touched", ""]).as_bytes().to_vec(), anything(rng, 1))),
            // The value of another one.
            _ => pairs[at].1 = pairs[rng.below(pairs.len())].1.clone(),
        }
    }
    pairs.sort_by(|left, right| left.0.cmp(&right.0));
    pairs.dedup_by(|left, right| left.0 == right.0);
    object(pairs)
}

#[test]
fn an_update_is_the_document_that_was_given() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut same = 0;
    for dictionary in [shaped(), shaped_always(), shaped_short()] {
        let (with, reading) = (writing(7, dictionary, Codec::shapes()), reading(7, dictionary));
        for _ in 0..300 {
            let mut tree = match rng.below(5) {
                0 => measurement(&mut rng),
                2 => letter(&mut rng),
                1 => any_object(&mut rng, 3),
                _ => order(&mut rng),
            };
            let mut datum = encode(with.choice(), Some(&with), &tree.document());
            for _ in 0..6 {
                let changed = updated(&mut rng, &tree);
                let (before, after) = (tree.document(), changed.document());
                let new = encode_after(&with, &after, &datum, &before);
                assert!(decode(&new, Some(&reading)).unwrap() == after, "{before:?} {after:?}");
                // As if there had been none before, if zstd was not tried again.
                let alone = encode(with.choice(), Some(&with), &after);
                let is_decided = current(&new).unwrap().method() != current(&alone).unwrap().method();
                assert!(new == alone || is_decided, "{before:?} {after:?}");
                same += usize::from(new == alone);
                (tree, datum) = (changed, new);
            }
        }
    }
    assert!(same > 5000, "{same}");
}

#[test]
fn an_earlier_document_of_another_dictionary_or_form_is_not_used() {
    let mut rng = Seed::from_env_or_time().rng();
    let (ours, theirs) = (shaped_always(), shaped());
    let (with, reading) = (writing(7, ours, Codec::shapes()), reading(7, ours));
    for _ in 0..200 {
        let tree = order(&mut rng);
        let (before, after) = (tree.document(), updated(&mut rng, &tree).document());
        let alone = encode(with.choice(), Some(&with), &after);
        let datums = |dictionary: &Dictionary, number: u32| {
            let other = writing(number, dictionary, Codec::shapes());
            encode(other.choice(), Some(&other), &before)
        };
        let raw = encode(pgshrink_codec::Algorithm::None.into(), None, &before);
        let mut damaged = datums(ours, 7);
        let at = rng.between(8, damaged.len() - 1);
        damaged[at] ^= 1 << rng.below(8);
        // Of the same id, of another, in another form, damaged, nothing at all, and of the original.
        for datum in [datums(theirs, 7), datums(ours, 8), raw, damaged, vec![], vec![0; 60]] {
            let new = encode_after(&with, &after, &datum, &before);
            assert!(new == alone && decode(&new, Some(&reading)).unwrap() == after);
        }
    }
}

#[test]
fn zstd_is_tried_again_once_a_document_takes_more() {
    let (mut rng, mut kept, mut tried) = (Seed(11).rng(), 0, 0);
    let with = writing(7, shaped(), Codec::shapes());
    for _ in 0..300 {
        let Tree::Object(mut pairs) = order(&mut rng) else { unreachable!() };
        let before = object(pairs.clone()).document();
        let datum = encode(with.choice(), Some(&with), &before);
        if current(&datum).unwrap().method() != Method::Shapes {
            continue;
        }
        // What shapes cannot shorten, and zstd can.
        let more = "Lorem ipsum dolor sit amet. ".repeat(rng.between(1, 60));
        pairs.push((b"zz".to_vec(), text(more)));
        let after = object(pairs).document();
        let alone = encode(with.choice(), Some(&with), &after);
        let new = encode_after(&with, &after, &datum, &before);
        let part = |datum: &[u8], of: &[u8]| current(datum).unwrap().payload().len() * 128 / of.len();
        match (current(&alone).unwrap().method(), current(&new).unwrap().method()) {
            (Method::Zstd, Method::Shapes) => {
                assert!(part(&new, &after) <= part(&datum, &before));
                kept += 1;
            }
            (alone, new) => {
                assert_eq!(alone, new);
                tried += usize::from(alone == Method::Zstd);
            }
        }
    }
    assert!(tried > 50, "{tried} by zstd, {kept} kept");
}

/// The same, but zstd is tried for documents of any size from so many parts on.
fn tried_from(dictionary: &Dictionary, parts: u8) -> Dictionary {
    let mut bytes = dictionary.bytes().to_vec();
    bytes[9..9 + 29].fill(parts);
    Dictionary::new(bytes).unwrap()
}

/// By whose rule zstd is always tried.
fn always_tried() -> Dictionary {
    tried_from(shaped(), 0)
}

/// What an encoder has allocated, which tells whether it tried zstd, and how it stored the document.
fn memory(with: &WritingDictionary, document: &[u8], earlier: Option<Earlier<'_>>) -> (usize, Method) {
    let (mut encoder, mut out) = (Encoder::new(), Vec::new());
    let mut proceed = || ControlFlow::Continue(());
    encoder.encode_after(with.choice(), Some(with), (document, earlier), &mut out, &mut proceed).unwrap();
    (encoder.memory_size(), current(&out).unwrap().method())
}

#[test]
fn zstd_is_not_tried_again_while_a_document_takes_no_more() {
    let (mut rng, mut spared) = (Seed(12).rng(), 0);
    let with = writing(7, &always_tried(), Codec::shapes());
    for _ in 0..300 {
        let document = order(&mut rng).document();
        let datum = encode(with.choice(), Some(&with), &document);
        let earlier = Earlier { datum: &datum, document: &document };
        let ((alone, method), (after, _)) =
            (memory(&with, &document, None), memory(&with, &document, Some(earlier)));
        match method {
            Method::Shapes => {
                assert!(after < alone);
                spared += 1;
            }
            _ => assert_eq!(after, alone, "it was not stored by its shape"),
        }
    }
    assert!(spared > 200, "{spared}");
}

#[test]
fn an_earlier_document_of_another_length_than_its_datum_says_is_not_used() {
    let mut rng = Seed::from_env_or_time().rng();
    let (with, reading) = (writing(7, shaped_always(), Codec::shapes()), reading(7, shaped_always()));
    let mut others = 0;
    for _ in 0..50 {
        let (document, other) = (order(&mut rng).document(), order(&mut rng).document());
        if document.len() != other.len() {
            let datum = encode(with.choice(), Some(&with), &other);
            let new = encode_after(&with, &document, &datum, &document);
            assert!(decode(&new, Some(&reading)).unwrap() == document);
            others += 1;
        }
    }
    assert!(others > 30, "{others}");
}

#[test]
fn a_value_that_its_member_cannot_have_is_counted_with_the_further_keys() {
    let mut rng = Seed(18).rng();
    let mut tree = || {
        let mut number = || number(rng.below(1_000_000));
        let own: Vec<_> = (0..24).map(|at| (format!("known{at:02}"), number())).collect();
        let inside = object([("lat", number()), ("lon", number())]);
        object(own.into_iter().chain([("where".to_owned(), inside)]))
    };
    let samples: Vec<Vec<u8>> = (0..300).map(|_| tree().document()).collect();
    // zstd is never tried.
    let dictionary = tried_from(&learned(&samples, Shapes::Only).winner.unwrap(), 255);
    let (with, reading) = (writing(7, &dictionary, Codec::shapes()), reading(7, &dictionary));
    let Tree::Object(known) = tree() else { unreachable!() };
    let before = object(known.clone()).document();
    let datum = encode(with.choice(), Some(&with), &before);
    assert_eq!(current(&datum).unwrap().method(), Method::Shapes);
    // In front of all keys of the shape, behind the one that does not fit, behind all.
    for name in ["", "known", "further key "] {
        for count in 29..=34 {
            let further = (0..count).map(|at| {
                let key = format!("{name}{}", char::from(b'A' + at));
                (key.into_bytes(), number(at))
            });
            let fitting: Vec<(Vec<u8>, Tree)> = known.clone().into_iter().chain(further).collect();
            let other = fitting.clone().into_iter().chain([(b"where".to_vec(), text("nowhere"))]);
            for tree in [object(other), object(fitting)] {
                let after = tree.document();
                let alone = encode(with.choice(), Some(&with), &after);
                let new = encode_after(&with, &after, &datum, &before);
                assert_eq!(current(&new).unwrap().method(), Method::Shapes);
                assert!(new == alone && decode(&new, Some(&reading)).unwrap() == after, "{name}: {count}");
            }
        }
    }
}

#[test]
fn what_is_taken_over_is_not_nested_deeper_than_it_was() {
    let dictionary = by_hand();
    let (with, reading) = (writing(7, &dictionary, Codec::shapes()), reading(7, &dictionary));
    for depth in 55..64 {
        let Tree::Object(pairs) = everything() else { unreachable!() };
        let all = |where_is: Tree| {
            let own = [(b"any".to_vec(), nested(depth, number(5))), (b"where".to_vec(), where_is)];
            object(pairs.clone().into_iter().chain(own))
        };
        let (before, after) = (all(Tree::Null), all(all(Tree::Null)));
        let (before, after) = (before.document(), after.document());
        let datum = encode(with.choice(), Some(&with), &before);
        let new = encode_after(&with, &after, &datum, &before);
        assert_eq!(current(&datum).unwrap().method(), Method::Shapes);
        assert!(decode(&new, Some(&reading)).unwrap() == after, "{depth}");
    }
}

#[test]
fn zstd_is_not_tried_again_for_a_document_with_further_keys() {
    let (mut rng, mut spared) = (Seed(13).rng(), 0);
    let with = writing(7, &always_tried(), Codec::shapes());
    for _ in 0..100 {
        let Tree::Object(pairs) = order(&mut rng) else { unreachable!() };
        // In front of all keys of its shape.
        let tree = object(pairs.into_iter().chain([(b"a".to_vec(), number(rng.below(9)))]));
        let document = tree.document();
        let datum = encode(with.choice(), Some(&with), &document);
        if current(&datum).unwrap().method() == Method::Shapes {
            let earlier = Earlier { datum: &datum, document: &document };
            let ((alone, _), (after, _)) =
                (memory(&with, &document, None), memory(&with, &document, Some(earlier)));
            assert!(after < alone);
            spared += 1;
        }
    }
    assert!(spared > 50, "{spared}");
}

#[test]
fn values_of_a_key_that_several_shapes_have_are_taken_over_from_its_own_place() {
    let mut rng = Seed(14).rng();
    // As many slots in each shape, and a key that all have: at another place, as keys are ordered by their length.
    let tree = |rng: &mut Rng, kind: usize, shared: usize| {
        let own = (0..6).map(|at| ("x".repeat(1 + (kind + 1) * at), number(rng.below(1_000_000))));
        object(own.chain([("a shared key".to_owned(), number(shared))]).collect::<Vec<_>>())
    };
    let samples: Vec<Vec<u8>> = (0..600).map(|at| tree(&mut rng, at % 6, at * 7919).document()).collect();
    let dictionary = learned(&samples, Shapes::Only).winner.unwrap();
    let (with, reading) = (writing(7, &dictionary, Codec::shapes()), reading(7, &dictionary));
    for kinds in 0..36 {
        let (before, after) = (tree(&mut rng, kinds / 6, 12_345), tree(&mut rng, kinds % 6, 12_345));
        let (before, after) = (before.document(), after.document());
        let datum = encode(with.choice(), Some(&with), &before);
        assert_eq!(current(&datum).unwrap().method(), Method::Shapes);
        let new = encode_after(&with, &after, &datum, &before);
        assert!(decode(&new, Some(&reading)).unwrap() == after, "{kinds}");
    }
}

#[test]
fn zstd_is_tried_again_by_what_a_payload_takes_of_its_own_document() {
    let (mut rng, mut counts) = (Seed(20).rng(), [0, 0]);
    let with = writing(7, &always_tried(), Codec::shapes());
    let shaped = |datum: &[u8]| current(datum).unwrap().method() == Method::Shapes;
    let part = |datum: &[u8], of: &[u8]| current(datum).unwrap().payload().len() * 128 / of.len();
    for turn in 0..200 {
        let Tree::Object(mut pairs) = order(&mut rng) else { unreachable!() };
        let short = object(pairs.clone()).document();
        // More of the same, or less.
        for (key, value) in &mut pairs {
            if let (b"items", Tree::Array(items)) = (&key[..], value) {
                items.extend_from_within(..);
                items.extend_from_within(..);
            }
        }
        let long = object(pairs).document();
        let (before, after) = if turn % 2 > 0 { (&short, &long) } else { (&long, &short) };
        let datum = encode(with.choice(), Some(&with), before);
        let new = encode(with.choice(), Some(&with), after);
        if shaped(&datum) && shaped(&new) {
            let is_decided = part(&new, after) <= part(&datum, before);
            let earlier = Earlier { datum: &datum, document: before };
            let ((alone, _), (again, _)) = (memory(&with, after, None), memory(&with, after, Some(earlier)));
            assert_eq!(again < alone, is_decided, "{before:?} {after:?}");
            counts[usize::from(is_decided)] += 1;
        }
    }
    assert!(counts[0] > 20 && counts[1] > 20, "{counts:?}");
}

#[test]
fn zstd_is_tried_for_a_document_that_has_nothing_of_the_earlier_one() {
    let (mut rng, mut tried) = (Seed(21).rng(), 0);
    let with = writing(7, &always_tried(), Codec::shapes());
    for turn in 0..100 {
        let mut documents = [order(&mut rng).document(), measurement(&mut rng).document()];
        documents.rotate_left(turn % 2);
        let [before, after] = &documents;
        let datum = encode(with.choice(), Some(&with), before);
        if current(&datum).unwrap().method() == Method::Shapes {
            let earlier = Earlier { datum: &datum, document: before };
            assert_eq!(memory(&with, after, Some(earlier)), memory(&with, after, None));
            tried += 1;
        }
    }
    assert!(tried > 50, "{tried}");
}
