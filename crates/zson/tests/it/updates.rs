//! Updates: what a document has in common with the one before is taken over, and nothing of it is wrong.

use std::ops::ControlFlow;

use pgshrink_codec::Dictionary;
use pgshrink_testkit::seed::{Rng, Seed};
use pgshrink_zson::datum::Method;
use pgshrink_zson::{Codec, Earlier, Encoder, WritingDictionary};

use crate::fixtures::{current, decode, encode, reading, shaped, shaped_always, shaped_short, writing};
use crate::jsonb::{Tree, object, text};
use crate::records::{any_object, anything, measurement, order};

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
            let mut tree = match rng.below(4) {
                0 => measurement(&mut rng),
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

#[test]
fn zstd_is_not_tried_again_while_a_document_takes_no_more() {
    let (mut rng, mut spared) = (Seed(12).rng(), 0);
    // By whose rule zstd is always tried.
    let mut bytes = shaped().bytes().to_vec();
    bytes[9..9 + 29].fill(0);
    let with = writing(7, &Dictionary::new(bytes).unwrap(), Codec::shapes());
    // What an encoder has allocated tells whether it tried zstd.
    let memory = |document: &[u8], earlier: Option<Earlier<'_>>| {
        let (mut encoder, mut out) = (Encoder::new(), Vec::new());
        let mut proceed = || ControlFlow::Continue(());
        encoder
            .encode_after(with.choice(), Some(&with), (document, earlier), &mut out, &mut proceed)
            .unwrap();
        (encoder.memory_size(), current(&out).unwrap().method())
    };
    for _ in 0..300 {
        let document = order(&mut rng).document();
        let datum = encode(with.choice(), Some(&with), &document);
        let earlier = Earlier { datum: &datum, document: &document };
        let ((alone, method), (after, _)) = (memory(&document, None), memory(&document, Some(earlier)));
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
