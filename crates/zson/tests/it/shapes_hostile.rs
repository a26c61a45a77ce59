//! Damaged datums and dictionaries of shapes: an error, never another document.

use std::ops::ControlFlow;

use pgshrink_codec::Dictionary;
use pgshrink_testkit::seed::{Rng, Seed};
use pgshrink_zson::datum::{BLOCK_BYTES, Method, Stored, parse, parse_shapes};
use pgshrink_zson::limits::SHAPES_RAW_BYTES_MAX;
use pgshrink_zson::shapes::{Known, Scratch, Step, Text, Type, Value, View};
use pgshrink_zson::{Codec, Encoder, Error, ReadingDictionary, Sliced, WritingDictionary};

use crate::fixtures::{current, decode, encode, id, reading, shaped, shaped_always, shaped_short, writing};
use crate::golden_shapes::{by_hand, everything, strange, varint};
use crate::independent::{schema, sealed};
use crate::jsonb::{Tree, nested, number, object, text};
use crate::records::{any_object, anything, article, letter, measurement, order};

fn datum_of(dictionary: &Dictionary, tree: &Tree) -> Vec<u8> {
    let with = writing(4, dictionary, Codec::shapes());
    let datum = encode(with.choice(), Some(&with), &tree.document());
    assert_eq!(current(&datum).unwrap().method(), Method::Shapes);
    datum
}

/// That a damaged datum is neither decoded nor viewed.
fn is_refused(damaged: &[u8], back: &ReadingDictionary) -> bool {
    let viewed = match parse(damaged) {
        Ok(Stored::Current(header)) => back.view(&header).map(|view| view.is_some()),
        // The original's: its reader is asked, and its dictionaries are others.
        Ok(Stored::Legacy(_)) => return true,
        Err(error) => Err(error),
    };
    let text_of_key = |header| back.text_of_key(&mut Known::default(), &header, b"id", &mut [0; 500]);
    let is_unread = parse_shapes(damaged).and_then(text_of_key).is_none();
    is_unread && !matches!(viewed, Ok(true)) && decode(damaged, Some(back)).is_err()
}

#[test]
fn a_flipped_bit_is_an_error() {
    let mut rng = Seed::from_env_or_time().rng();
    let trees = [
        order(&mut rng),
        measurement(&mut rng),
        any_object(&mut rng, 2),
        article(&mut rng, 350),
        text("a scalar that is not short"),
    ];
    for tree in trees {
        let datum = datum_of(shaped_always(), &tree);
        let back = reading(4, shaped_always());
        for bit in 0..datum.len() * 8 {
            let mut damaged = datum.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(is_refused(&damaged, &back), "bit {bit} of {}", datum.len());
        }
    }
}

#[test]
fn a_datum_cut_or_filled_up_anywhere_is_an_error() {
    let mut rng = Seed::from_env_or_time().rng();
    let datum = datum_of(shaped_always(), &order(&mut rng));
    let back = reading(4, shaped_always());
    for at in 0..datum.len() {
        assert!(is_refused(&datum[..at], &back), "cut at {at}");
        let (before, behind) = datum.split_at(at);
        for more in [&[0][..], &[rng.bits() as u8], &[255, 255], &datum] {
            let longer = [before, more, behind].concat();
            assert!(is_refused(&longer, &back), "{} bytes at {at}", more.len());
        }
        let shorter = [before, &behind[1..]].concat();
        assert!(is_refused(&shorter, &back), "byte {at} left out");
    }
    let twice = [&datum[..], &datum].concat();
    assert!(is_refused(&twice, &back));
}

#[test]
fn damage_in_any_block_is_an_error() {
    let mut rng = Seed::from_env_or_time().rng();
    for orders in [35, 60, 400] {
        let tree = Tree::Array((0..orders).map(|_| order(&mut rng)).collect());
        let datum = datum_of(shaped_always(), &tree);
        let back = reading(4, shaped_always());
        let payload = current(&datum).unwrap().payload().len();
        let blocks = payload.div_ceil(BLOCK_BYTES);
        assert!(blocks > 1, "{payload} bytes");
        let (first, header) = (datum.len() - payload, datum.len() - payload - 4 * (blocks - 1));
        // Header and sums bit by bit, the payload here and there, and around the ends of blocks.
        let ends = (1..blocks)
            .flat_map(|block| [-1, 0, 1].map(|by| first + block * BLOCK_BYTES - 1 + (1 + by) as usize - 1));
        let places = (0..first).chain(ends).chain((0..300).map(|_| rng.between(first, datum.len() - 1)));
        for at in places.collect::<Vec<usize>>() {
            let mut damaged = datum.clone();
            damaged[at] ^= 1 << rng.below(8);
            assert!(is_refused(&damaged, &back), "byte {at} of {}", datum.len());
        }
        for at in (0..datum.len()).step_by(1 + datum.len() / 200) {
            assert!(is_refused(&datum[..at], &back), "cut at {at} of {}", datum.len());
        }
        // Two blocks that changed places, with their sums.
        if blocks > 3 {
            let mut damaged = datum.clone();
            let (one, two) = damaged[first + BLOCK_BYTES..first + 3 * BLOCK_BYTES].split_at_mut(BLOCK_BYTES);
            one.swap_with_slice(two);
            assert!(is_refused(&damaged, &back));
            let (one, two) = damaged[header..header + 8].split_at_mut(4);
            one.swap_with_slice(two);
            assert!(is_refused(&damaged, &back));
        }
    }
}

#[test]
fn blocks_of_another_datum_are_an_error() {
    let back = reading(4, shaped_always());
    let mut rng = Seed::from_env_or_time().rng();
    let mut noise = || {
        let elements =
            (0..40).map(|_| object([("status", text("paid")), ("reference", text(rng.bytes(600)))]));
        datum_of(shaped_always(), &Tree::Array(elements.collect()))
    };
    let (one, two) = (noise(), noise());
    assert_eq!(one.len(), two.len());
    let payload = current(&one).unwrap().payload().len();
    let first = one.len() - payload;
    let blocks = payload.div_ceil(BLOCK_BYTES);
    for block in 1..blocks {
        let (from, to) = (first + block * BLOCK_BYTES, (first + (block + 1) * BLOCK_BYTES).min(one.len()));
        let sum = first - 4 * (blocks - block);
        let mut mixed = one.clone();
        mixed[from..to].copy_from_slice(&two[from..to]);
        mixed[sum..sum + 4].copy_from_slice(&two[sum..sum + 4]);
        assert!(mixed == one || is_refused(&mixed, &back), "block {block}");
    }
}

#[test]
fn a_size_over_the_limit_is_refused_before_memory_is_taken() {
    let dictionary = by_hand();
    for (size, is_right) in
        [(SHAPES_RAW_BYTES_MAX, true), (SHAPES_RAW_BYTES_MAX + 1, false), (0x0fff_ffff, false)]
    {
        let datum = sealed(&dictionary, 4, size, &[125]);
        assert_eq!(parse(&datum).is_ok(), is_right, "{size}");
        assert_eq!(Sliced::new(&datum, datum.len(), &reading(4, &dictionary)).is_ok(), is_right, "{size}");
    }
}

#[test]
fn another_dictionary_of_the_same_id_is_an_error() {
    let mut rng = Seed::from_env_or_time().rng();
    let dictionaries = [shaped(), shaped_always(), shaped_short(), crate::fixtures::trained()];
    for _ in 0..100 {
        let inside = if rng.chance(50) { measurement(&mut rng) } else { any_object(&mut rng, 2) };
        let tree = object([("id", number(7)), ("customer", inside)]);
        let datum = datum_of(shaped_always(), &tree);
        for other in dictionaries {
            let error = decode(&datum, Some(&reading(4, other))).err();
            assert_eq!(error.is_none(), other.hash() == shaped_always().hash());
            assert!(error.is_none_or(|error| error.is_corruption()));
        }
    }
    let tree = order(&mut rng);
    let datum = datum_of(shaped_always(), &tree);
    assert!(matches!(decode(&datum, None), Err(Error::DictionaryMissing { needed }) if needed == id(4)));
    let wrong = decode(&datum, Some(&reading(5, shaped_always())));
    assert!(matches!(wrong, Err(Error::WrongDictionary { needed, .. }) if needed == id(4)));
    let header = current(&datum).unwrap();
    assert!(matches!(reading(5, shaped_always()).view(&header), Err(Error::WrongDictionary { .. })));
}

/// Looks at all values of a view that may be of a payload that nobody wrote. Errors are fine.
fn look(view: &View<'_>, value: Value<'_>, target: &mut [u8], left: &mut usize) -> Result<(), Error> {
    let Some(less) = left.checked_sub(1) else { return Ok(()) };
    *left = less;
    let mut text = Vec::new();
    let read = view.text(value, &mut text, &mut Scratch::default());
    assert!(read.is_err() || text.len() <= view.raw_len().max(4096), "{} bytes of text", text.len());
    let _ = view.document(value, target, &mut Scratch::default());
    let _ = view.has(b"id", &mut text, &mut Scratch::default());
    if view.type_of(value)? == Type::Array {
        let mut at = 0;
        while let Some(element) = view.next(value, Step::Index(at))? {
            look(view, element, target, left)?;
            at += 1;
            if *left == 0 {
                break;
            }
        }
    }
    for step in
        [Step::Index(-1), Step::Key(b"id"), Step::Key(b"items"), Step::Key(b"where"), Step::Key(b"new")]
    {
        if let Some(inside) = view.next(value, step)? {
            look(view, inside, target, left)?;
        }
    }
    Ok(())
}

fn mutated(rng: &mut Rng, bytes: &[u8], times: usize) -> Vec<u8> {
    const BYTES: [u8; 14] = [0, 1, 2, 4, 5, 6, 7, 8, 124, 125, 127, 128, 129, 255];
    let mut bytes = bytes.to_vec();
    for _ in 0..times {
        let at = rng.below(bytes.len());
        match rng.below(6) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = *rng.pick(&BYTES),
            2 => bytes[at] = rng.bits() as u8,
            3 => bytes.insert(at, *rng.pick(&BYTES)),
            4 if bytes.len() > 1 => drop(bytes.remove(at)),
            _ => {
                let to = rng.between(at, bytes.len().min(at + 9));
                bytes.extend_from_within(at..to);
            }
        }
    }
    bytes
}

#[test]
fn payloads_that_nobody_wrote_are_what_the_page_says_or_an_error() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut counts = [0, 0, 0];
    let patches =
        [("id", number(1234)), ("name", text("open")), ("status", text("paid")), ("lat", Tree::Null)]
            .map(|pair| object([pair]).document());
    for dictionary in [&by_hand(), shaped_always()] {
        let back = reading(4, dictionary);
        let by_page = schema(dictionary.bytes()).unwrap();
        for _ in 0..12_000 {
            let tree = match rng.below(6) {
                0 => everything(),
                1 => strange(),
                5 => letter(&mut rng),
                2 => anything(&mut rng, 2),
                3 => measurement(&mut rng),
                _ => order(&mut rng),
            };
            let with = writing(4, dictionary, Codec::shapes());
            let datum = encode(with.choice(), Some(&with), &tree.document());
            let header = current(&datum).unwrap();
            if header.method() != Method::Shapes {
                continue;
            }
            let times = rng.between(1, 3);
            let payload = mutated(&mut rng, header.payload(), times);
            let expected = by_page.tree(&payload).map(|tree| tree.document());
            let size = expected.as_ref().map_or(header.raw_len(), Vec::len);
            if !(1..1 << 20).contains(&size) {
                continue;
            }
            let crafted = sealed(dictionary, 4, size, &payload);
            let found = decode(&crafted, Some(&back));
            counts[usize::from(found.is_ok())] += 1;
            let is_unsure = by_page.has_refused.take() && expected.is_none();
            assert!(is_unsure || found.as_ref().ok() == expected.as_ref(), "{payload:02x?}");
            // The same for one byte less or more.
            for size in [size - 1, size + 1].into_iter().filter(|size| *size > 0) {
                let other = decode(&sealed(dictionary, 4, size, &payload), Some(&back));
                assert!(is_unsure || other.is_err());
            }
            for patch in &patches {
                let mut new = Vec::new();
                let mut proceed = || ControlFlow::Continue(());
                // What comes of it may be no document either.
                if Encoder::new().patch(&with, &crafted, patch, &mut new, &mut proceed).unwrap() {
                    let _ = decode(&new, Some(&back));
                    counts[2] += 1;
                }
            }
            let header = current(&crafted).unwrap();
            let view = back.view(&header).unwrap().unwrap();
            if let Ok(root) = view.root() {
                let _ = look(&view, root, &mut vec![0; size], &mut 60);
            }
        }
    }
    assert!(counts[0] > 2000 && counts[1] > 1000 && counts[2] > 1000, "{counts:?}");
}

#[test]
fn any_bytes_as_a_payload_are_an_error_or_a_document() {
    let mut rng = Seed::from_env_or_time().rng();
    for dictionary in [&by_hand(), shaped_always()] {
        let back = reading(4, dictionary);
        let by_page = schema(dictionary.bytes()).unwrap();
        for _ in 0..20_000 {
            let length = rng.between(1, 60);
            let mut payload = rng.bytes(length);
            payload[0] |= 0x80;
            let expected = by_page.tree(&payload).map(|tree| tree.document());
            let size = expected.as_ref().map_or(100, Vec::len).max(1);
            let found = decode(&sealed(dictionary, 4, size, &payload), Some(&back)).ok();
            assert!(found == expected.filter(|document| document.len() == size), "{payload:02x?}");
        }
    }
}

/// Writes and reads with a dictionary that may be any; false if it is refused.
fn is_usable(bytes: Vec<u8>, trees: &[Tree]) -> bool {
    let Ok(dictionary) = Dictionary::new(bytes) else { return false };
    let reading = ReadingDictionary::new(id(4), &dictionary);
    let with = match WritingDictionary::new(id(4), &dictionary, Codec::shapes()) {
        Ok(with) => with,
        Err(error) => {
            assert!(error.is_corruption() || matches!(error, Error::Codec(_)), "{error}");
            return false;
        }
    };
    let reading = reading.unwrap();
    let by_page = schema(dictionary.bytes());
    let mut encoder = Encoder::new();
    for tree in trees {
        let (mut datum, document) = (Vec::new(), tree.document());
        encoder.encode(with.choice(), Some(&with), &document, &mut datum).unwrap();
        assert!(decode(&datum, Some(&reading)).unwrap() == document, "{tree:?}");
        let header = current(&datum).unwrap();
        if let Some(view) = reading.view(&header).unwrap() {
            look(&view, view.root().unwrap(), &mut vec![0; document.len()], &mut 40).unwrap();
            let found = by_page.as_ref().unwrap().tree(header.payload()).unwrap();
            assert!(found.document() == document, "{tree:?}");
        }
    }
    true
}

#[test]
fn a_mutated_dictionary_is_refused_or_works() {
    let mut rng = Seed::from_env_or_time().rng();
    let trees = [
        everything(),
        strange(),
        order(&mut rng),
        number(7),
        object([("id", number(1))]),
        measurement(&mut rng),
    ];
    let mut counts = [0, 0];
    for (dictionary, turns) in [(by_hand(), 8000), (shaped_short().clone(), 300), (shaped().clone(), 100)] {
        assert!(is_usable(dictionary.bytes().to_vec(), &trees));
        for _ in 0..turns {
            let times = rng.between(1, 4);
            let bytes = mutated(&mut rng, dictionary.bytes(), times);
            counts[usize::from(is_usable(bytes, &trees))] += 1;
        }
    }
    assert!(counts[0] > 1000 && counts[1] > 500, "{counts:?}");
}

#[test]
fn a_dictionary_cut_anywhere_is_refused_or_works() {
    let dictionary = by_hand();
    for at in 8..dictionary.bytes().len() {
        assert!(!is_usable(dictionary.bytes()[..at].to_vec(), &[]), "cut at {at}");
    }
    // What is behind the schema is for zstd: any bytes are.
    let longer = [dictionary.bytes(), b"some bytes"].concat();
    assert!(is_usable(longer, &[everything(), strange()]));
}

/// A payload of the dictionary by hand: an object of its shape without a member but an `id`, and further keys with values of
/// any kind.
fn with_further(further: &[(&[u8], Vec<u8>)]) -> Vec<u8> {
    // The number of the shape; ten slots, all but one absent; the integer 1000 + 1 of its column.
    let mut record = [&[121][..], &[124, 129], &[124; 8], &[2], &[further.len() as u8]].concat();
    for (key, _) in further {
        record.extend_from_slice(&[0, key.len() as u8]);
        record.extend_from_slice(key);
    }
    record.extend(further.iter().map(|_| 255));
    for (_, value) in further {
        record.extend(varint(2 * value.len()));
        record.extend_from_slice(value);
    }
    [&[255][..], &varint(2 * record.len()), &record].concat()
}

/// The number 1 as a value of any kind.
fn one() -> Vec<u8> {
    vec![3, 0, 2]
}

/// Arrays in arrays, as values of any kind.
fn arrays(depth: usize) -> Vec<u8> {
    (1..depth).fold(vec![5, 0], |inside, _| [&[5, 1, 255][..], &varint(2 * inside.len()), &inside].concat())
}

/// That keys are found in each way, and the same.
fn is_found_in_each_way(datum: &[u8], back: &ReadingDictionary) {
    let (header, mut known) = (current(datum).unwrap(), Known::default());
    let view = back.view(&header).unwrap().unwrap();
    for key in [&b"id"[..], b"at", b"z", b"name", b"where", b"none"] {
        let text = |value: Option<Value<'_>>| {
            let mut text = Vec::new();
            value.map(|value| (view.text(value, &mut text, &mut Scratch::default()).unwrap(), text))
        };
        let found = text(view.next(view.root().unwrap(), Step::Key(key)).unwrap());
        assert_eq!(text(view.key(&mut known, key).unwrap()), found, "{key:?}");
        let mut out = [0x5a; 200];
        if let Some((told, length)) = back.text_of_key(&mut known, &header, key, &mut out) {
            let (expected, text) = found.unwrap_or((Text::Null, Vec::new()));
            assert_eq!((told, &out[..length]), (expected, &text[..]), "{key:?}");
        }
    }
}

#[test]
fn further_keys_that_nobody_wrote_are_what_the_page_says() {
    let dictionary = by_hand();
    let (back, by_page) = (reading(4, &dictionary), schema(dictionary.bytes()).unwrap());
    let payloads = [
        with_further(&[]),
        with_further(&[(b"z", one())]),
        // Of keys whose member is absent.
        with_further(&[(b"at", one()), (b"name", vec![1]), (b"where", one())]),
        // Of a key that the shape has, too; out of order; the same twice.
        with_further(&[(b"id", vec![1])]),
        with_further(&[(b"zz", one()), (b"id", vec![1]), (b"a", one())]),
        with_further(&[(b"ig", vec![1]), (b"ig", one())]),
        with_further(&[(b"z", arrays(62))]),
        with_further(&[(b"z", arrays(63))]),
    ];
    for payload in payloads {
        let expected = by_page.tree(&payload).unwrap().document();
        let datum = sealed(&dictionary, 4, expected.len(), &payload);
        assert!(decode(&datum, Some(&back)).unwrap() == expected, "{payload:02x?}");
        is_found_in_each_way(&datum, &back);
    }
    // With a byte behind, and nested too deeply.
    let mut longer = with_further(&[(b"z", one())]);
    longer.push(0);
    longer[1] += 2;
    let deeper = with_further(&[(b"z", arrays(64))]);
    for (payload, z) in [(longer, number(1)), (deeper, nested(63, Tree::Array(vec![])))] {
        assert!(by_page.tree(&payload).is_none(), "{payload:02x?}");
        let size = object([("id", number(1001)), ("z", z)]).document().len();
        assert!(decode(&sealed(&dictionary, 4, size, &payload), Some(&back)).is_err(), "{payload:02x?}");
    }
}
