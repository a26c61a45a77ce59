//! Values that are replaced without decoding their document: it is the one that decoding, changing and encoding gives.

use std::ops::ControlFlow;

use pgshrink_codec::Dictionary;
use pgshrink_testkit::seed::{Rng, Seed};
use pgshrink_zson::datum::Method;
use pgshrink_zson::training::Shapes;
use pgshrink_zson::{Codec, Earlier, Encoder, WritingDictionary};

use crate::fixtures::{
    choice, current, decode, encode, learned, reading, shaped, shaped_always, shaped_short, writing,
};
use crate::golden_shapes::{by_hand, everything, further};
use crate::jsonb::{Tree, nested, number, object, text};
use crate::records::{any_object, anything, letter, measurement, order, prose};

/// The datum of `doc || patch`, and whether it counts as strange; none if that needs the document.
fn patched(with: &WritingDictionary, datum: &[u8], patch: &[u8]) -> Option<(Vec<u8>, bool)> {
    let (mut encoder, mut out) = (Encoder::new(), b"earlier".to_vec());
    let done = encoder.patch(with, datum, patch, &mut out, &mut || ControlFlow::Continue(())).unwrap();
    assert_eq!(&out[..7], b"earlier");
    assert!(done || out.len() == 7, "something was appended");
    done.then(|| (out.split_off(7), encoder.was_strange()))
}

/// The same by the longer way.
fn encoded(with: &WritingDictionary, document: &[u8], earlier: Earlier<'_>) -> (Vec<u8>, bool) {
    let (mut encoder, mut out) = (Encoder::new(), Vec::new());
    let mut proceed = || ControlFlow::Continue(());
    let source = (document, Some(earlier));
    encoder.encode_after(with.choice(), Some(with), source, &mut out, &mut proceed).unwrap();
    (out, encoder.was_strange())
}

/// `||` of two objects.
fn concatenated(tree: &Tree, patch: &Tree) -> Tree {
    let (Tree::Object(pairs), Tree::Object(more)) = (tree, patch) else { panic!("two objects") };
    let kept = pairs.iter().filter(|(key, _)| more.iter().all(|(new, _)| new != key));
    object(kept.chain(more).cloned().collect::<Vec<_>>())
}

/// Values for some keys of a document, and sometimes for others; most have the kind that is there.
fn patch(rng: &mut Rng, tree: &Tree) -> Tree {
    let Tree::Object(pairs) = tree else { panic!("an object") };
    let mut new = Vec::new();
    for _ in 0..rng.between(1, 3) {
        let (key, old) = if pairs.is_empty() || rng.chance(10) {
            (rng.pick(&["touched", "a", "id", "no such key"]).as_bytes().to_vec(), Tree::Null)
        } else {
            rng.pick(pairs).clone()
        };
        let value = match (rng.below(8), &old) {
            (0, _) => anything(rng, 1),
            (1, _) => Tree::Null,
            (2, Tree::Text(old)) => {
                let more = old.len() + 4 * rng.below(3);
                text(format!("{:more$}", "x"))
            }
            (3, Tree::Text(old)) => text(old.iter().rev().map(|byte| byte & 0x7f).collect::<Vec<u8>>()),
            (_, Tree::Number(_)) => {
                let most = 10usize.pow(rng.below(9) as u32);
                number(rng.below(most))
            }
            (_, old) => old.clone(),
        };
        if new.iter().all(|(known, _)| *known != key) {
            new.push((key, value));
        }
    }
    object(new)
}

#[test]
fn a_patched_document_is_the_concatenation() {
    let mut rng = Seed::from_env_or_time().rng();
    let (mut counts, mut same) = ([0, 0], 0);
    let by_hand = by_hand();
    for dictionary in [shaped(), shaped_always(), shaped_short(), &by_hand] {
        let (with, reading) = (writing(7, dictionary, Codec::shapes()), reading(7, dictionary));
        for _ in 0..300 {
            let mut tree = match rng.below(6) {
                0 => measurement(&mut rng),
                1 => any_object(&mut rng, 3),
                2 => letter(&mut rng),
                3 => everything(),
                4 => further(),
                _ => order(&mut rng),
            };
            let mut datum = encode(with.choice(), Some(&with), &tree.document());
            for _ in 0..10 {
                let patch = patch(&mut rng, &tree);
                let after = concatenated(&tree, &patch);
                let (before, document) = (tree.document(), after.document());
                let general = encoded(&with, &document, Earlier { datum: &datum, document: &before });
                let quick = patched(&with, &datum, &patch.document());
                counts[usize::from(quick.is_some())] += 1;
                let (new, is_strange) = quick.unwrap_or_else(|| general.clone());
                assert!(decode(&new, Some(&reading)).unwrap() == document, "{tree:?} {patch:?}");
                if new == general.0 {
                    assert_eq!(is_strange, general.1, "{tree:?} {patch:?}");
                    same += 1;
                }
                (tree, datum) = (after, new);
            }
        }
    }
    let all = counts[0] + counts[1];
    assert!(counts[1] > all / 15 && same > all * 95 / 100, "{counts:?}, {same} the same");
}

#[test]
fn what_moves_other_values_by_less_than_four_bytes_needs_the_document() {
    let with = writing(7, shaped_always(), Codec::shapes());
    let back = reading(7, shaped_always());
    let numbers = ["0", "7", "9999", "10000", "99999999", "100000001", "1.5", "0.0001", "-3"];
    let values: Vec<Tree> = (0..14)
        .map(|length| text("x".repeat(length)))
        .chain(numbers.map(number))
        .chain([Tree::Null, Tree::Bool(true)])
        .collect();
    let size = |tree: &Tree| match tree {
        Tree::Text(text) => (false, text.len()),
        Tree::Number(number) => (true, crate::jsonb::numeric(number).len()),
        _ => (false, 0),
    };
    let Tree::Object(pairs) = order(&mut Seed(3).rng()) else { unreachable!() };
    let mut count = 0;
    // In the place of a text, a number and a key that no shape has, with what is aligned behind them.
    for key in ["id", "status", "reference", "z"] {
        for (old, new) in values.iter().flat_map(|old| values.iter().map(move |new| (old, new))) {
            let own = |value: &Tree| {
                let pairs = pairs.iter().filter(|(known, _)| known != key.as_bytes()).cloned();
                object(pairs.chain([(key.into(), value.clone())]).collect::<Vec<_>>())
            };
            let (before, after) = (own(old).document(), own(new).document());
            let datum = encode(with.choice(), Some(&with), &before);
            let quick = patched(&with, &datum, &object([(key, new.clone())]).document());
            let ((was_number, was), (is_number, is)) = (size(old), size(new));
            let moves_by_four = was_number == is_number && is.abs_diff(was) % 4 == 0;
            // The length may take a byte more.
            let is_as_long = (before.len() < 128) == (after.len() < 128);
            assert_eq!(quick.is_some(), moves_by_four && is_as_long, "{key}: {old:?} {new:?}");
            if let Some((new, _)) = quick {
                assert!(decode(&new, Some(&back)).unwrap() == after, "{key}");
                count += 1;
            }
        }
    }
    assert!(count > 400, "{count}");
}

#[test]
fn what_is_no_object_of_a_shape_or_not_there_needs_the_document() {
    let mut rng = Seed(23).rng();
    let dictionary = shaped_always();
    let with = writing(7, dictionary, Codec::shapes());
    let tree = order(&mut rng);
    let datum = encode(with.choice(), Some(&with), &tree.document());
    let one = object([("id", number(1_234_567))]);
    for patch in [
        Tree::Array(vec![one.clone()]),
        number(1),
        object([("id", nested(2, number(1)))]),
        object([("customer", object([("name", text("x"))]))]),
        object([("customer", Tree::Null)]),
        object([("id", number(1_234_567)), ("no such key", number(1))]),
        object((0..40).map(|at| (format!("key {at}"), number(at)))),
    ] {
        assert!(patched(&with, &datum, &patch.document()).is_none(), "{patch:?}");
    }
    let patch = object([("id", Tree::Bool(true))]).document();
    for (what, tree) in [("an array", Tree::Array(vec![tree.clone()])), ("a value", number(7))] {
        let datum = encode(with.choice(), Some(&with), &tree.document());
        assert!(patched(&with, &datum, &patch).is_none(), "{what}");
    }
    let zstd = encode(choice("zstd:3"), Some(&writing(7, dictionary, choice("zstd:3"))), &tree.document());
    let of_another = encode(with.choice(), Some(&writing(7, shaped(), Codec::shapes())), &tree.document());
    let of_another_id =
        encode(with.choice(), Some(&writing(8, dictionary, Codec::shapes())), &tree.document());
    for other in [&zstd, &of_another, &of_another_id, &vec![], &vec![0; 60]] {
        assert!(patched(&with, other, &one.document()).is_none());
    }
    for at in 0..datum.len() {
        let mut damaged = datum.clone();
        damaged[at] ^= 1 << rng.below(8);
        assert!(patched(&with, &damaged, &one.document()).is_none(), "byte {at}");
        assert!(patched(&with, &datum[..at], &one.document()).is_none(), "cut at {at}");
    }
    // Of a dictionary that writes by zstd alone.
    let plain = writing(7, dictionary, choice("zstd:3"));
    assert!(patched(&plain, &datum, &one.document()).is_none());
}

#[test]
fn zstd_is_tried_again_for_a_document_of_which_nothing_is_kept() {
    let tree = |at: i64, both: bool| {
        let pairs = [("id", number(1_000_000 + at * 7919)), ("other", number(at * 104_729))];
        object(pairs.into_iter().take(1 + usize::from(both)).collect::<Vec<_>>())
    };
    let samples: Vec<Vec<u8>> = (0..400).map(|at| tree(at, at % 2 > 0).document()).collect();
    // By whose rule zstd is always tried.
    let mut bytes = learned(&samples, Shapes::Only).winner.unwrap().bytes().to_vec();
    bytes[9..9 + 29].fill(0);
    let with = writing(7, &Dictionary::new(bytes).unwrap(), Codec::shapes());
    let patch = object([("id", number(1_234_567))]).document();
    for both in [false, true] {
        let datum = encode(with.choice(), Some(&with), &tree(17, both).document());
        assert_eq!(current(&datum).unwrap().method(), Method::Shapes);
        assert_eq!(patched(&with, &datum, &patch).is_some(), both);
    }
}

#[test]
fn a_value_may_become_a_long_text_and_one_that_is_long_is_kept() {
    let mut rng = Seed::from_env_or_time().rng();
    let (with, back) = (writing(7, shaped_always(), Codec::shapes()), reading(7, shaped_always()));
    let mut count = 0;
    for _ in 0..100 {
        let tree = letter(&mut rng);
        let datum = encode(with.choice(), Some(&with), &tree.document());
        if current(&datum).unwrap().method() != Method::Shapes {
            continue;
        }
        let mut body = prose(&mut rng, 900);
        body.truncate(body.len() / 4 * 4);
        for patch in [object([("is_gift", Tree::Bool(false))]), object([("is_gift", text(&body))])] {
            let after = concatenated(&tree, &patch).document();
            if let Some((new, _)) = patched(&with, &datum, &patch.document()) {
                assert!(decode(&new, Some(&back)).unwrap() == after);
                count += 1;
            }
        }
    }
    assert!(count > 80, "{count}");
}
