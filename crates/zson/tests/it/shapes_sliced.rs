//! Documents of shapes that are read slice by slice: the same values, of few slices, and each slice checked.

use pgshrink_testkit::seed::{Rng, Seed};
use pgshrink_zson::datum::Method;
use pgshrink_zson::shapes::{Scratch, Step, Text, Type, View};
use pgshrink_zson::{Codec, Error, ReadingDictionary, Sliced};

use crate::fixtures::{choice, current, encode, reading, shaped_always, trained, writing};
use crate::jsonb::{Tree, number, numeric, object, text};
use crate::records::{any_object, anything, measurement, order, prose};

fn datum_of(tree: &Tree) -> Vec<u8> {
    by_shape(tree).expect("a document that zstd does not make much shorter")
}

/// None: it is stored as zstd.
fn by_shape(tree: &Tree) -> Option<Vec<u8>> {
    let with = writing(4, shaped_always(), Codec::shapes());
    let datum = encode(with.choice(), Some(&with), &tree.document());
    (current(&datum).unwrap().method() == Method::Shapes).then_some(datum)
}

/// A large document with its datum, which is one of shapes: few documents repeat themselves so much that zstd is preferred.
fn large_with_datum(rng: &mut Rng) -> (Tree, Vec<u8>) {
    let mut stored = (0..9).map(|_| large(rng)).filter_map(|tree| by_shape(&tree).map(|datum| (tree, datum)));
    stored.next().expect("a document stored by its shape")
}

/// What `look` finds in a datum of which only what it asks for is read, and the bytes that were read.
fn found<T>(
    datum: &[u8],
    back: &ReadingDictionary,
    mut look: impl FnMut(&View<'_>) -> Result<T, Error>,
) -> Result<(T, usize), Error> {
    let head = &datum[..Sliced::head_len(datum.len())];
    let mut sliced = Sliced::new(head, datum.len(), back)?.expect("a datum of shapes");
    let mut bytes = head.len();
    for _ in 0..datum.len() / 4096 + 2 {
        match look(&sliced.view(back)?) {
            Err(Error::Missing) => {
                let needed = sliced.needed().expect("something is missing");
                bytes += needed.len();
                sliced.fill(&datum[needed])?;
            }
            other => return other.map(|found| (found, bytes)),
        }
    }
    panic!("a slice is asked for again and again");
}

/// A path that exists, mostly.
fn path<'t>(rng: &mut Rng, tree: &'t Tree) -> Vec<Step<'t>> {
    let (mut path, mut at) = (Vec::new(), tree);
    while rng.chance(85) {
        let step = match at {
            Tree::Object(pairs) if !pairs.is_empty() => Step::Key(&rng.pick(pairs).0),
            Tree::Array(elements) if !elements.is_empty() => {
                let count = elements.len() as i64;
                Step::Index(rng.below(elements.len()) as i64 - if rng.chance(50) { count } else { 0 })
            }
            _ => break,
        };
        path.push(step);
        at = at.step(step).unwrap();
    }
    if rng.chance(10) {
        path.push(*rng.pick(&[
            Step::Key(b"no such key"),
            Step::Index(0),
            Step::Index(-9999),
            Step::Key(b"id"),
        ]));
    }
    path
}

/// What is at a path: its type, its text, and its document.
type Found = Option<(Type, Text, Vec<u8>, Vec<u8>)>;

fn at_path(view: &View<'_>, path: &[Step<'_>], whole: bool) -> Result<Found, Error> {
    let mut value = view.root()?;
    for step in path {
        match view.next(value, *step)? {
            Some(inside) => value = inside,
            None => return Ok(None),
        }
    }
    // Nothing else may have been read before.
    let kind = view.type_of(value)?;
    let (mut text, mut document) = (Vec::new(), Vec::new());
    let written = view.text(value, &mut text, &mut Scratch::default())?;
    if whole {
        document.resize(view.raw_len(), 0x5a);
        let length = view.document(value, &mut document, &mut Scratch::default())?;
        document.truncate(length);
    }
    Ok(Some((kind, written, text, document)))
}

fn expected(tree: &Tree, path: &[Step<'_>]) -> Option<(Tree, Vec<u8>)> {
    let tree = path.iter().try_fold(tree, |tree, step| tree.step(*step))?;
    let text = match tree {
        Tree::Bool(value) => value.to_string().into_bytes(),
        Tree::Text(text) => text.clone(),
        Tree::Number(number) => number.clone().into_bytes(),
        _ => Vec::new(),
    };
    Some((tree.clone(), text))
}

fn compare(tree: &Tree, datum: &[u8], back: &ReadingDictionary, path: &[Step<'_>], whole: bool) -> usize {
    let (found, bytes) = found(datum, back, |view| at_path(view, path, whole)).unwrap();
    match (found, expected(tree, path)) {
        (Some((kind, written, text, document)), Some((tree, expected))) => {
            assert_eq!(kind, tree.kind());
            match (&tree, written) {
                (Tree::Number(number), Text::Numeric) => assert_eq!(text, numeric(number)),
                _ => assert!(text == expected, "{path:?}"),
            }
            assert!(!whole || document == tree.document(), "{path:?}");
        }
        (None, None) => {}
        (found, expected) => panic!("{found:?} but {expected:?} at {path:?}"),
    }
    bytes
}

fn large(rng: &mut Rng) -> Tree {
    match rng.below(6) {
        5 => Tree::Array((0..rng.between(1, 200)).map(|_| anything(rng, 1)).collect()),
        0 => Tree::Array((0..rng.between(1, 300)).map(|_| order(rng)).collect()),
        1 => Tree::Array((0..rng.between(1, 60)).map(|_| any_object(rng, 3)).collect()),
        2 => object((0..rng.between(1, 900)).map(|at| (format!("key {at}"), anything(rng, 1)))),
        3 => {
            let items = Tree::Array((0..rng.between(1, 200)).map(|_| measurement(rng)).collect());
            let notes = ["note", "text", "body"].map(|key| (key, text(prose(rng, 2500))));
            let Tree::Object(pairs) = order(rng) else { panic!() };
            let more = notes.into_iter().chain([("items", items)]).map(|(key, value)| (key.into(), value));
            object(pairs.into_iter().chain(more))
        }
        _ => text(prose(rng, 4000)),
    }
}

#[test]
fn values_of_slices_are_those_of_the_whole() {
    let mut rng = Seed::from_env_or_time().rng();
    let back = reading(4, shaped_always());
    let mut lengths = [0, 0];
    for _ in 0..150 {
        let (tree, datum) = large_with_datum(&mut rng);
        lengths[usize::from(datum.len() > 8192)] += 1;
        for _ in 0..30 {
            let path = path(&mut rng, &tree);
            let whole = rng.chance(50);
            compare(&tree, &datum, &back, &path, whole);
        }
        for text in [&b"note"[..], b"id", b"key 17", b"no such key"] {
            let has = |view: &View<'_>| view.has(text, &mut Vec::new(), &mut Scratch::default());
            assert_eq!(found(&datum, &back, has).unwrap().0, tree.has(text));
        }
    }
    assert!(lengths[1] > 50, "{lengths:?}");
}

#[test]
fn further_keys_are_found_wherever_a_slice_ends() {
    let mut rng = Seed(17).rng();
    let back = reading(4, shaped_always());
    for padding in 0..24 {
        let items = (0..250).map(|at| {
            object([
                ("sku", text(format!("SKU-{at:06}"))),
                ("quantity", number(rng.between(1, 9))),
                ("price", number("1.25")),
                ("tags", Tree::Array(vec![])),
                ("x", number(at)),
            ])
        });
        let items = Tree::Array(items.collect());
        let tree = object([("id", text("x".repeat(padding))), ("items", items)]);
        let datum = datum_of(&tree);
        assert!(datum.len() > 4096 + 500, "{}", datum.len());
        for at in 0..250 {
            for key in [&b"quantity"[..], b"x"] {
                compare(&tree, &datum, &back, &[Step::Key(b"items"), Step::Index(at), Step::Key(key)], false);
            }
        }
    }
}

#[test]
fn a_field_of_a_large_document_needs_few_slices() {
    let mut rng = Seed::from_env_or_time().rng();
    let back = reading(4, shaped_always());
    let mut long = || text(prose(&mut rng, 40_000));
    let tree = object([("id", text("first")), ("body", long()), ("name", text("x")), ("text", long())]);
    let datum = datum_of(&tree);
    for key in ["id", "name", "missing"] {
        let bytes = compare(&tree, &datum, &back, &[Step::Key(key.as_bytes())], true);
        assert!(bytes < 4 * 4096, "{key}: {bytes} of {}", datum.len());
    }
    let bytes = compare(&tree, &datum, &back, &[Step::Key(b"body")], false);
    assert!(bytes < datum.len() * 3 / 5, "{bytes} of {}", datum.len());
}

#[test]
fn a_text_is_looked_for_in_an_array_with_one_more_fetch() {
    let mut rng = Seed::from_env_or_time().rng();
    let back = reading(4, shaped_always());
    let tree = Tree::Array((0..60).map(|_| text(prose(&mut rng, 900))).collect());
    let datum = datum_of(&tree);
    let mut rounds = 0;
    for wanted in [&b"no such text"[..], b""] {
        let has = |view: &View<'_>| {
            rounds += 1;
            view.has(wanted, &mut Vec::new(), &mut Scratch::default())
        };
        assert!(!found(&datum, &back, has).unwrap().0);
    }
    assert_eq!(rounds, 4, "the head and all that is left, twice");
}

#[test]
fn damage_gives_an_error_or_is_in_what_was_not_read() {
    let mut rng = Seed::from_env_or_time().rng();
    let back = reading(4, shaped_always());
    let mut refused = 0;
    for _ in 0..40 {
        let (tree, datum) = large_with_datum(&mut rng);
        for _ in 0..60 {
            let path = path(&mut rng, &tree);
            let mut damaged = datum.clone();
            // Tag and header too.
            let at = if rng.chance(20) { rng.below(damaged.len().min(40)) } else { rng.below(damaged.len()) };
            damaged[at] ^= 1 << rng.below(8);
            let head = &damaged[..Sliced::head_len(damaged.len())];
            if matches!(Sliced::new(head, damaged.len(), &back), Ok(None) | Err(_)) {
                refused += 1;
                continue;
            }
            let look = |view: &View<'_>| at_path(view, &path, true);
            let Ok((whole, _)) = found(&damaged, &back, look) else {
                refused += 1;
                continue;
            };
            let right = found(&datum, &back, look).unwrap().0;
            assert!(whole == right, "byte {at} of {}", datum.len());
        }
    }
    assert!(refused > 200, "{refused}");
}

#[test]
fn heads_that_are_cut_and_lengths_that_are_wrong_are_errors() {
    let mut rng = Seed::from_env_or_time().rng();
    let back = reading(4, shaped_always());
    for orders in [1, 40, 300] {
        let tree = Tree::Array((0..orders).map(|_| order(&mut rng)).collect());
        let datum = datum_of(&tree);
        let head = &datum[..Sliced::head_len(datum.len())];
        assert!(Sliced::new(head, datum.len(), &back).unwrap().is_some());
        for wrong in
            [0, 1, 8, datum.len() / 2, datum.len() - 1, datum.len() + 1, 2 * datum.len(), usize::MAX / 2]
        {
            assert!(Sliced::new(head, wrong, &back).is_err(), "{wrong} instead of {}", datum.len());
        }
        let needed = datum.len() - current(&datum).unwrap().payload().len();
        for cut in (1..needed + 1).chain([needed + 100]).filter(|cut| *cut < head.len()) {
            assert!(Sliced::new(&head[..cut], datum.len(), &back).is_err(), "{cut}");
        }
        let mut sliced = Sliced::new(head, datum.len(), &back).unwrap().unwrap();
        assert_eq!(sliced.needed(), None);
        sliced.fill(b"").unwrap();
        if orders == 300 {
            let look = |view: &View<'_>| at_path(view, &[], true);
            assert_eq!(look(&sliced.view(&back).unwrap()), Err(Error::Missing));
            let needed = sliced.needed().unwrap();
            let right = &datum[needed.clone()];
            // Nothing, less, more, and others.
            assert!(sliced.fill(&right[..right.len() - 1]).is_err());
            assert!(sliced.fill(&[right, b"x"].concat()).is_err());
            assert!(sliced.fill(&right[..4096]).is_err());
            assert!(sliced.fill(&datum[needed.start - 4096..needed.end - 4096]).is_err());
            assert_eq!(look(&sliced.view(&back).unwrap()), Err(Error::Missing));
            sliced.fill(right).unwrap();
            assert!(look(&sliced.view(&back).unwrap()).unwrap().unwrap().3 == tree.document());
        }
        assert!(sliced.view(&reading(5, shaped_always())).is_err());
        assert!(Sliced::new(head, datum.len(), &reading(4, trained())).is_err());
        assert!(Sliced::new(head, datum.len(), &reading(5, shaped_always())).is_err());
    }
}

#[test]
fn datums_of_other_methods_are_not_read_by_slices() {
    let document = order(&mut Seed(3).rng()).document();
    let back = reading(4, shaped_always());
    for text in ["none", "lz4", "zstd:3"] {
        let datum = encode(choice(text), None, &document);
        assert!(Sliced::new(&datum, datum.len(), &back).unwrap().is_none(), "{text}");
    }
    assert!(Sliced::new(b"", 0, &back).unwrap().is_none());
}
