//! Documents by their shapes: whatever is written comes back, and what does not pay is written in another way.

use std::ops::ControlFlow;

use pgshrink_codec::Dictionary;
use pgshrink_testkit::seed::{Rng, Seed};
use pgshrink_zson::datum::{Method, OVERHEAD_BYTES_MAX};
use pgshrink_zson::limits::SHAPES_RAW_BYTES_MAX;
use pgshrink_zson::training::{Kind, Shapes};
use pgshrink_zson::{Codec, Decoder, Encoder, Error, ReadingDictionary, WritingDictionary};

use crate::fixtures::{
    choice, current, decode, documents, encode, learned, object as flat, raw_content, reading, shaped,
    shaped_always, shaped_short, trained, writing,
};
use crate::jsonb::{Tree, nested, number, object, text};
use crate::records::{any_object, anything, article, letter, measurement, order, paragraphs, prose};

/// Writes with a dictionary of shapes, and reads.
struct Both {
    writing: WritingDictionary,
    reading: ReadingDictionary,
    encoder: Encoder,
    decoder: Decoder,
}

impl Both {
    fn new(number: u32, dictionary: &Dictionary) -> Both {
        let writing = writing(number, dictionary, Codec::shapes());
        let reading = reading(number, dictionary);
        Both { writing, reading, encoder: Encoder::new(), decoder: Decoder::new() }
    }

    /// The datum of a document, which was read again.
    fn datum(&mut self, document: &[u8]) -> Vec<u8> {
        let mut datum = Vec::new();
        self.encoder.encode(self.writing.choice(), Some(&self.writing), document, &mut datum).unwrap();
        assert!(datum.len() <= document.len() + OVERHEAD_BYTES_MAX);
        let header = current(&datum).unwrap();
        assert_eq!(header.raw_len(), document.len());
        // What was there before must not show.
        let mut back = vec![0x5a; header.raw_len()];
        self.decoder.decode(&header, Some(&self.reading), &mut back).unwrap();
        assert!(back == document, "{:?}: another document", header.method());
        datum
    }

    fn method(&mut self, document: &[u8]) -> Method {
        let datum = self.datum(document);
        current(&datum).unwrap().method()
    }
}

#[test]
fn documents_come_back_whether_they_were_learned_from_or_not() {
    let mut rng = Seed::from_env_or_time().rng();
    let samples: Vec<Vec<u8>> = (0..1200).map(|_| order(&mut rng).document()).collect();
    for shapes in [Shapes::Only, Shapes::IfBest] {
        let report = learned(&samples, shapes);
        assert_eq!(report.candidates[report.winner_index].kind, Kind::Shapes);
        assert!(report.codec.is_shapes);
        let mut both = Both::new(1, &report.winner.unwrap());
        let unseen: Vec<Vec<u8>> = (0..600).map(|_| order(&mut rng).document()).collect();
        let (mut shaped, mut by_zstd) = (0, 0);
        let zstd = learned(&samples, Shapes::Never).winner.unwrap();
        let zstd = writing(1, &zstd, choice("zstd:3"));
        for document in samples.iter().chain(&unseen) {
            let datum = both.datum(document);
            shaped += datum.len();
            by_zstd += encode(choice("zstd:3"), Some(&zstd), document).len();
        }
        assert!(shaped < by_zstd, "{shaped} bytes by shapes, {by_zstd} by zstd");
    }
}

#[test]
fn a_profile_without_anything_in_common_gets_no_shapes() {
    let mut rng = Seed::from_env_or_time().rng();
    let samples: Vec<Vec<u8>> = (0..300).map(|_| rng.bytes(700)).collect();
    let report = learned(&samples, Shapes::IfBest);
    assert_ne!(report.candidates[report.winner_index].kind, Kind::Shapes);
    assert!(!report.codec.is_shapes);
}

#[test]
fn documents_of_every_other_kind_come_back() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut all = [shaped(), shaped_always(), shaped_short()].map(|dictionary| Both::new(300, dictionary));
    let mut methods = std::collections::HashMap::<Method, usize>::new();
    for turn in 0..6000 {
        let both = &mut all[turn % 3];
        let tree = match rng.below(7) {
            0 => anything(&mut rng, 4),
            5 => letter(&mut rng),
            6 => {
                let count = rng.below(40);
                paragraphs(&mut rng, count)
            }
            1 => measurement(&mut rng),
            2 => {
                let words = rng.below(3000);
                article(&mut rng, words)
            }
            3 => strange_order(&mut rng),
            _ => any_object(&mut rng, 3),
        };
        *methods.entry(both.method(&tree.document())).or_default() += 1;
    }
    assert!(methods[&Method::Shapes] > 1000 && methods[&Method::Zstd] > 100, "{methods:?}");
}

/// An order in which any value may be of another kind, absent, or new.
fn strange_order(rng: &mut Rng) -> Tree {
    let Tree::Object(mut pairs) = order(rng) else { panic!() };
    for _ in 0..rng.below(4) {
        let at = rng.below(pairs.len());
        match rng.below(3) {
            0 => pairs[at].1 = anything(rng, 2),
            1 => drop(pairs.remove(at)),
            _ => {
                pairs.push((rng.pick(&["id2", "status_code", "x", ""]).as_bytes().to_vec(), anything(rng, 1)))
            }
        }
    }
    object(pairs)
}

/// A tree whose texts are nearly what they were.
fn nearly(rng: &mut Rng, tree: &Tree) -> Tree {
    match tree {
        Tree::Text(known) => {
            let mut text = known.clone();
            let at = rng.below(text.len().max(1));
            match rng.below(7) {
                0 => text.insert(at, b'0'),
                1 => text.insert(at, b'9'),
                2 if !text.is_empty() => drop(text.remove(at)),
                3 if !text.is_empty() => text[at] = *rng.pick(b"09afAFgG-:"),
                4 => text.make_ascii_uppercase(),
                5 => {
                    // Before the first digit, where a number of any length may begin.
                    let at = text.iter().position(u8::is_ascii_digit).unwrap_or(0);
                    text.splice(at..at, vec![b'0'; rng.between(1, 20)]).for_each(drop);
                }
                _ => text.extend_from_within(at.min(text.len())..),
            }
            Tree::Text(text)
        }
        Tree::Array(elements) => Tree::Array(elements.iter().map(|element| nearly(rng, element)).collect()),
        Tree::Object(pairs) => {
            Tree::Object(pairs.iter().map(|(key, value)| (key.clone(), nearly(rng, value))).collect())
        }
        other => other.clone(),
    }
}

#[test]
fn texts_that_nearly_have_the_form_of_others_come_back() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut all =
        [shaped_always(), &crate::golden_shapes::by_hand()].map(|dictionary| Both::new(1, dictionary));
    for _ in 0..2000 {
        let tree = match rng.below(3) {
            0 => crate::golden_shapes::everything(),
            1 => measurement(&mut rng),
            _ => order(&mut rng),
        };
        let document = nearly(&mut rng, &tree).document();
        all.iter_mut().for_each(|both| drop(both.datum(&document)));
    }
}

#[test]
fn bytes_that_are_no_jsonb_come_back() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut both = Both::new(1, shaped());
    for document in documents(&mut rng) {
        assert_ne!(both.method(&document), Method::Shapes, "{} bytes", document.len());
    }
    // Those of orders, broken: the server would not have written them, or they say another document.
    for _ in 0..3000 {
        let mut document = order(&mut rng).document();
        for _ in 0..rng.between(1, 3) {
            let at = rng.below(document.len());
            match rng.below(4) {
                0 => document[at] ^= 1 << rng.below(8),
                1 => document[at] = rng.bits() as u8,
                2 => document.truncate(at.max(1)),
                _ => document.insert(at, rng.bits() as u8),
            }
        }
        both.datum(&document);
    }
}

#[test]
fn what_a_reader_of_jsonb_would_not_miss_is_not_lost() {
    let mut both = Both::new(1, shaped_always());
    let plain = object([("id", number(7)), ("name", text("x"))]).document();
    assert_eq!(both.method(&plain), Method::Shapes);
    // A length where there is an end, bits of padding, data behind the last value, keys in another order, a flag.
    let mut length = plain.clone();
    length[7] &= 0x7f;
    let mut padding = plain.clone();
    let gap = padding.iter().rposition(|byte| *byte == b'e').unwrap() + 1;
    assert_eq!(padding[gap], 0);
    padding[gap] = 1;
    let behind = [&plain[..], b"\0"].concat();
    let mut flag = plain.clone();
    flag[3] |= 0x80;
    for document in [length, padding, behind, flag] {
        assert_ne!(both.method(&document), Method::Shapes);
    }
    let mut twice = object([("aa", number(1)), ("ab", number(2))]).document();
    let second = twice.iter().rposition(|byte| *byte == b'b').unwrap();
    twice[second] = b'a';
    both.datum(&twice);
    let mut swapped = object([("aa", number(1)), ("ab", number(2))]).document();
    swapped[second] = b'A';
    both.datum(&swapped);
}

#[test]
fn nesting_of_every_depth_comes_back() {
    let mut both = Both::new(1, shaped_always());
    for depth in (0..=70).chain([100, 200, 3000]) {
        for inside in [Tree::Null, number(5), text("open"), object::<&str>([])] {
            let containers = depth + usize::from(inside.is_container());
            let in_arrays = nested(depth, inside.clone()).document();
            let in_objects = (0..depth).fold(inside, |inside, _| object([("items", inside)])).document();
            for document in [in_arrays, in_objects] {
                let method = both.method(&document);
                assert!(
                    method == Method::Shapes || containers > 64 || document.len() < 24,
                    "{containers} deep"
                );
                assert!(method != Method::Shapes || containers <= 64, "{containers} deep");
            }
        }
    }
}

#[test]
fn scalar_roots_and_empty_containers_come_back() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut both = Both::new(1, shaped_always());
    let mut trees = vec![
        Tree::Null,
        Tree::Bool(true),
        Tree::Bool(false),
        text(""),
        text("open"),
        text("a text that nobody has seen before"),
        number(0),
        Tree::Array(vec![]),
        object::<&str>([]),
        Tree::Array(vec![Tree::Array(vec![]), object::<&str>([])]),
        object([("", Tree::Null)]),
        object([("customer", object::<&str>([])), ("items", Tree::Array(vec![]))]),
        Tree::Array(vec![Tree::Null; 1000]),
    ];
    trees.extend((0..500).map(|_| anything(&mut rng, 0)));
    for tree in trees {
        both.datum(&tree.document());
    }
    assert_eq!(both.method(&text("a text that nobody has seen before").document()), Method::Shapes);
}

#[test]
fn numbers_come_back_with_their_scale_and_whatever_they_are() {
    let mut both = Both::new(1, shaped_always());
    let mut numbers: Vec<String> =
        ["NaN", "Infinity", "-Infinity", "0.000", "-0.5", "100.00"].map(String::from).into();
    for digits in 1..=60 {
        numbers.push("9".repeat(digits));
        numbers.push(format!("-{}", "1234567890".repeat(6).get(..digits).unwrap()));
        numbers.push(format!("1{}", "0".repeat(digits)));
        numbers.push(format!("0.{}7", "0".repeat(digits)));
        numbers.push(format!("{0}.{0}", "35".repeat(digits)));
    }
    // Around the ends of an `i128` and of what a short header says.
    numbers.push(i128::MAX.to_string());
    numbers.push(i128::MIN.to_string());
    numbers.push(format!("1{}", "0".repeat(300)));
    numbers.push(format!("0.{}1", "0".repeat(300)));
    for key in ["id", "total", "new"] {
        for text in &numbers {
            both.datum(&object([(key, number(text))]).document());
        }
    }
    both.datum(&Tree::Array(numbers.iter().map(number).collect()).document());
    both.datum(&object([("items", Tree::Array(numbers.iter().map(number).collect()))]).document());
}

#[test]
fn numerics_that_the_server_would_not_write_come_back() {
    let mut both = Both::new(1, shaped_always());
    let good = object([("id", number("1234567.50"))]).document();
    let numeric = good.len() - crate::jsonb::numeric("1234567.50").len();
    for at in numeric..good.len() {
        for bit in 0..8 {
            let mut document = good.clone();
            document[at] ^= 1 << bit;
            both.datum(&document);
        }
    }
}

#[test]
fn large_documents_are_written_in_another_way() {
    let mut both = Both::new(1, shaped_always());
    let mut rng = Seed(9).rng();
    let orders: Vec<Tree> = (0..400).map(|_| order(&mut rng)).collect();
    let part = Tree::Array(orders.clone()).document();
    assert_eq!(both.method(&part), Method::Shapes);
    let mut many = orders;
    while Tree::Array(many.clone()).document().len() <= SHAPES_RAW_BYTES_MAX {
        many = [many.clone(), many].concat();
    }
    let whole = Tree::Array(many).document();
    assert_eq!(both.method(&whole), Method::Zstd, "{} bytes", whole.len());
}

#[test]
fn documents_for_which_zstd_is_shorter_are_stored_by_it_one_by_one() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut both = Both::new(1, shaped_short());
    for _ in 0..60 {
        let count = rng.between(30, 80);
        assert_eq!(both.method(&paragraphs(&mut rng, count).document()), Method::Zstd);
        assert!(both.encoder.was_strange());
        let record = measurement(&mut rng).document();
        assert_eq!(both.method(&record), Method::Shapes);
    }
    let strange = (0..300).filter(|_| {
        both.datum(&measurement(&mut rng).document());
        both.encoder.was_strange()
    });
    let strange = strange.count();
    assert!(strange < 60, "{strange} of 300 measurements are strange");
}

#[test]
fn a_document_with_further_keys_is_strange_and_one_that_has_them_inside_is_not() {
    let mut rng = Seed(15).rng();
    let mut both = Both::new(1, shaped_always());
    let mut strange = |change: fn(&mut Tree)| {
        let is_strange = |_: &usize| {
            let mut tree = order(&mut rng);
            change(&mut tree);
            both.datum(&tree.document());
            both.encoder.was_strange()
        };
        (0..100).filter(is_strange).count()
    };
    let with = |tree: &mut Tree| {
        let Tree::Object(pairs) = tree else { panic!() };
        *tree = object(pairs.drain(..).chain([(b"x".to_vec(), number(1))]));
    };
    let inside: fn(&mut Tree) = |tree| {
        let Tree::Object(pairs) = tree else { panic!() };
        let items = pairs.iter_mut().filter(|(key, _)| key == b"items");
        for (_, items) in items {
            let Tree::Array(items) = items else { panic!() };
            for item in items {
                let Tree::Object(pairs) = item else { panic!() };
                *item = object(pairs.drain(..).chain([(b"x".to_vec(), number(1))]));
            }
        }
    };
    assert_eq!(strange(with), 100);
    let inside = strange(inside);
    assert!(inside < 50, "{inside}");
}

#[test]
fn what_an_encoder_says_of_a_document_is_not_of_the_one_before() {
    let mut rng = Seed(16).rng();
    let mut both = Both::new(1, shaped_always());
    let strange = object([("no", number(1)), ("such", number(2)), ("key", text("at all"))]).document();
    both.datum(&strange);
    assert!(both.encoder.was_strange());
    let document = order(&mut rng).document();
    both.encoder.encode(choice("none"), None, &document, &mut Vec::new()).unwrap();
    assert!(!both.encoder.was_strange());
    // What shapes cannot store at all.
    both.datum(&nested(70, number(5)).document());
    assert!(both.encoder.was_strange());
}

#[test]
fn a_datum_that_zstd_wrote_is_decoded_with_the_same_dictionary() {
    let mut rng = Seed(12).rng();
    let document = paragraphs(&mut rng, 60).document();
    let datum = encode(choice("zstd:3"), Some(&writing(5, shaped_short(), Codec::shapes())), &document);
    let header = current(&datum).unwrap();
    assert_eq!((header.method(), header.dictionary().unwrap().get()), (Method::Zstd, 5));
    assert_eq!(decode(&datum, Some(&reading(5, shaped_short()))).unwrap(), document);
    assert!(reading(5, shaped_short()).view(&header).unwrap().is_none());
}

#[test]
fn one_encoder_serves_several_dictionaries_in_turn() {
    let mut rng = Seed::from_env_or_time().rng();
    let kinds: [fn(&mut Rng) -> Tree; 2] = [order, measurement];
    let dictionaries: Vec<Dictionary> = kinds
        .iter()
        .map(|kind| {
            let samples: Vec<Vec<u8>> = (0..500).map(|_| kind(&mut rng).document()).collect();
            learned(&samples, Shapes::Only).winner.unwrap()
        })
        .chain([shaped().clone(), trained().clone()])
        .collect();
    let codecs = [Codec::shapes(), choice("zstd:3").into()];
    let with: Vec<(WritingDictionary, ReadingDictionary)> = (1..)
        .zip(&dictionaries)
        .flat_map(|(number, dictionary)| {
            codecs.map(|codec| (writing(number, dictionary, codec), reading(number, dictionary)))
        })
        .collect();
    let (mut encoder, mut decoder, mut datum) = (Encoder::new(), Decoder::new(), Vec::new());
    for _ in 0..1500 {
        let document = match rng.below(4) {
            0 => order(&mut rng),
            1 => measurement(&mut rng),
            2 => strange_order(&mut rng),
            _ => article(&mut rng, 300),
        };
        let document = document.document();
        let (writing, reading) = rng.pick(&with);
        datum.clear();
        encoder.encode(writing.choice(), Some(writing), &document, &mut datum).unwrap();
        assert_eq!(datum, encode(writing.choice(), Some(writing), &document), "an earlier document shows");
        let header = current(&datum).unwrap();
        let mut back = vec![0x5a; document.len()];
        decoder.decode(&header, Some(reading), &mut back).unwrap();
        assert!(back == document);
    }
}

#[test]
fn other_codecs_use_what_a_dictionary_of_shapes_has_for_zstd() {
    let mut rng = Seed(13).rng();
    let document = order(&mut rng).document();
    for (text, method) in [("zstd:1", Method::Zstd), ("zstd:19", Method::Zstd), ("lz4", Method::Lz4)] {
        let datum = encode(choice(text), Some(&writing(8, shaped(), choice(text))), &document);
        let header = current(&datum).unwrap();
        assert_eq!((header.method(), header.dictionary().unwrap().get()), (method, 8));
        assert_eq!(decode(&datum, Some(&reading(8, shaped()))).unwrap(), document);
        let alone = encode(choice(text), None, &document);
        assert!(datum.len() < alone.len(), "{text}: {} with, {} without", datum.len(), alone.len());
    }
}

#[test]
fn the_codec_of_shapes_with_another_dictionary_is_zstd() {
    let document = flat(&mut Seed(14).rng(), 20);
    for dictionary in [trained(), &raw_content()] {
        let shapes = encode(choice("zstd:3"), Some(&writing(8, dictionary, Codec::shapes())), &document);
        let zstd = encode(choice("zstd:3"), Some(&writing(8, dictionary, choice("zstd:3"))), &document);
        assert_eq!(shapes, zstd);
        assert_eq!(decode(&shapes, Some(&reading(8, dictionary))).unwrap(), document);
    }
    let none = encode(choice("zstd:3"), None, &document);
    assert_eq!(decode(&none, Some(&reading(8, shaped()))).unwrap(), document);
}

#[test]
fn a_document_of_shapes_that_would_be_longer_than_raw_is_raw() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut both = Both::new(i32::MAX as u32, shaped_always());
    for length in 0..40 {
        let tree = text(rng.bytes(length));
        both.datum(&tree.document());
        both.datum(&Tree::Array(vec![tree]).document());
    }
    // Each null is three bytes shorter than in jsonb: near the limit the sums of blocks decide.
    let noise = text(rng.bytes(40_000));
    for nulls in 0..60 {
        let tree = Tree::Array([vec![noise.clone()], vec![Tree::Null; nulls]].concat());
        both.datum(&tree.document());
    }
}

#[test]
fn a_choice_other_than_the_dictionarys_is_refused_and_nothing_appended() {
    // Its fallback is prepared for one level only, which is not known before: so is all of it.
    let mut rng = Seed(15).rng();
    let with = writing(1, shaped(), Codec::parse("shapes:9").unwrap());
    let mut datum = b"earlier".to_vec();
    for document in [article(&mut rng, 3000), order(&mut rng)].map(|tree| tree.document()) {
        for text in ["zstd:3", "lz4"] {
            let refused = Encoder::new().encode(choice(text), Some(&with), &document, &mut datum);
            assert!(matches!(refused, Err(Error::Codec(_))), "{text}");
        }
        let raw = encode(choice("none"), Some(&with), &document);
        assert_eq!(current(&raw).unwrap().method(), Method::Raw);
    }
    let document = order(&mut rng).document();
    Encoder::new().encode(with.choice(), Some(&with), &document, &mut datum).unwrap();
    assert_eq!(decode(&datum[7..], Some(&reading(1, shaped()))).unwrap(), document);
}

#[test]
fn interrupted_while_zstd_is_tried_it_appends_nothing() {
    let mut rng = Seed(16).rng();
    let document = Tree::Array((0..40).map(|_| article(&mut rng, 4000)).collect()).document();
    let with = writing(1, shaped(), Codec::parse("shapes:19").unwrap());
    let (mut encoder, mut datum) = (Encoder::new(), b"earlier".to_vec());
    let stopped = encoder.encode_while(with.choice(), Some(&with), &document, &mut datum, &mut || {
        std::ops::ControlFlow::Break(())
    });
    assert_eq!((stopped, &datum[..]), (Err(Error::Interrupted), &b"earlier"[..]));
    encoder.encode(with.choice(), Some(&with), &document, &mut datum).unwrap();
    assert_eq!(decode(&datum[7..], Some(&reading(1, shaped()))).unwrap(), document);
}

#[test]
fn values_beside_long_texts_are_stored_by_their_shape() {
    let mut rng = Seed::from_env_or_time().rng();
    let samples: Vec<Vec<u8>> = (0..400).map(|_| letter(&mut rng).document()).collect();
    let report = learned(&samples, Shapes::IfBest);
    assert!(report.codec.is_shapes, "{:?}", report.candidates);
    let mut both = Both::new(1, &report.winner.unwrap());
    let shapes = samples.iter().filter(|document| both.method(document) == Method::Shapes).count();
    assert!(shapes > 380, "{shapes} of 400");
}

#[test]
fn a_long_text_is_as_short_as_by_zstd_alone() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut both = Both::new(1, shaped_always());
    let prepared = writing(1, shaped_always(), choice("zstd:3"));
    for words in [400, 3000, 20_000, 60_000] {
        let document = article(&mut rng, words).document();
        let (shapes, zstd) =
            (both.datum(&document).len(), encode(choice("zstd:3"), Some(&prepared), &document).len());
        assert!(shapes <= zstd + zstd / 200 + 80, "{shapes} bytes by shapes, {zstd} by zstd");
        // What neither makes shorter costs nothing more.
        let noise = object([("body", text(rng.bytes(words)))]).document();
        assert!(both.datum(&noise).len() <= noise.len() + OVERHEAD_BYTES_MAX);
    }
}

#[test]
fn a_long_text_that_hardly_gets_shorter_does_not_keep_its_document_from_its_shape() {
    const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut rng = Seed::from_env_or_time().rng();
    let mut both = Both::new(1, shaped_always());
    for length in [2048, 2500, 5000, 70_000, 300_000] {
        for letters in [&BASE64[..], &BASE64[..16], &BASE64[..40]] {
            let letter = |_| BASE64[rng.below(letters.len())];
            let body: Vec<u8> = (0..length).map(letter).collect();
            let document = object([("id", number(7)), ("body", text(body))]).document();
            assert_eq!(both.method(&document), Method::Shapes, "{length} {}", letters.len());
        }
    }
}

#[test]
fn a_long_text_can_be_interrupted_and_leaves_nothing() {
    let mut rng = Seed(17).rng();
    let document = article(&mut rng, 400_000).document();
    let with = writing(1, shaped_always(), Codec::shapes());
    let (mut encoder, mut datum) = (Encoder::new(), b"earlier".to_vec());
    for after in [0, 1] {
        let mut left = after;
        let mut proceed = || match left {
            0 => ControlFlow::Break(()),
            _ => {
                left -= 1;
                ControlFlow::Continue(())
            }
        };
        let done = encoder.encode_while(with.choice(), Some(&with), &document, &mut datum, &mut proceed);
        assert_eq!((done, &datum[..]), (Err(Error::Interrupted), &b"earlier"[..]));
    }
    // Between texts of which none is long enough to be asked for alone.
    let texts = Tree::Array((0..20).map(|_| text(prose(&mut rng, 1000))).collect()).document();
    let mut left = 15;
    let mut proceed = || {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let done = encoder.encode_while(with.choice(), Some(&with), &texts, &mut datum, &mut proceed);
    assert_eq!((done, &datum[..]), (Err(Error::Interrupted), &b"earlier"[..]));
    encoder.encode(with.choice(), Some(&with), &document, &mut datum).unwrap();
    assert_eq!(current(&datum[7..]).unwrap().method(), Method::Shapes);
    assert!(decode(&datum[7..], Some(&reading(1, shaped_always()))).unwrap() == document);
}
