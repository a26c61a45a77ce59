//! Shapes from anywhere. The first byte tells what the others are:
//! - a payload, with its sums made right: an error, or the document that a view of it gives, of exactly its size
//! - the schema of a dictionary: refused, or what it writes comes back
//! - a document: it comes back, by its shape or otherwise
#![no_main]

use std::ops::ControlFlow;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pgshrink_codec::Dictionary;
use pgshrink_zson::datum::{BLOCK_BYTES, Header, OVERHEAD_BYTES_MAX, Stored, parse};
use pgshrink_zson::shapes::{Known, Scratch, Step, Text, Type, Value, View};
use pgshrink_zson::{
    Codec, Decoder, DictionaryId, Earlier, Encoder, Error, ReadingDictionary, Sliced, WritingDictionary,
};
use twox_hash::XxHash3_64;

const ID: DictionaryId = DictionaryId::new(7).unwrap();
/// Documents are no longer.
const RAW_BYTES_MAX: usize = 1 << 20;
/// Values that are looked at.
const LOOKS_MAX: usize = 100;

/// Some of the dictionaries', and some that they do not have.
const KEYS: [&str; 13] = [
    "id",
    "any",
    "where",
    "customer",
    "items",
    "name",
    "price",
    "hash",
    "at",
    "total",
    "status",
    "is_gift",
    "created_at",
];

static FILES: [&[u8]; 2] = [
    include_bytes!("../../formats/zson/golden/shapes.dictionary"),
    include_bytes!("../../formats/zson/golden/shapes-by-hand.dictionary"),
];
static DOCUMENTS: [&[u8]; 3] = [
    include_bytes!("../../formats/zson/golden/shapes-record.jsonb"),
    include_bytes!("../../formats/zson/golden/shapes-everything.jsonb"),
    include_bytes!("../../formats/zson/golden/shapes-strange.jsonb"),
];
static KNOWN: LazyLock<[Both; 2]> =
    LazyLock::new(|| FILES.map(|file| Both::of(file.to_vec()).expect("a golden dictionary")));

/// A dictionary in both directions.
struct Both {
    dictionary: Dictionary,
    writing: WritingDictionary,
    reading: ReadingDictionary,
}

impl Both {
    fn of(bytes: Vec<u8>) -> Option<Both> {
        let dictionary = Dictionary::new(bytes).ok()?;
        let writing = WritingDictionary::new(ID, &dictionary, Codec::shapes());
        let reading = ReadingDictionary::new(ID, &dictionary);
        assert_eq!(writing.is_ok(), reading.is_ok());
        Some(Both { writing: writing.ok()?, reading: reading.ok()?, dictionary })
    }

    fn comes_back(&self, document: &[u8]) {
        let mut datum = Vec::new();
        let choice = self.writing.choice();
        Encoder::new().encode(choice, Some(&self.writing), document, &mut datum).unwrap();
        assert!(datum.len() <= document.len() + OVERHEAD_BYTES_MAX);
        let header = header(&datum);
        let mut back = vec![0x5a; header.raw_len()];
        Decoder::new().decode(&header, Some(&self.reading), &mut back).unwrap();
        assert!(back == document);
        if let Some(view) = self.reading.view(&header).unwrap() {
            let root = view.root().unwrap();
            let length = view.document(root, &mut back, &mut Scratch::default()).unwrap();
            assert!(back[..length] == *document);
            self.by_slices(&datum, document);
            look(&view, root, &mut back, &mut LOOKS_MAX.clone()).unwrap();
            self.keys(&datum, &view);
        }
        DOCUMENTS.iter().for_each(|update| self.updates(update, &datum, document));
    }

    /// A document that is written after another one comes back, whatever it takes over from that.
    fn updates(&self, update: &[u8], datum: &[u8], document: &[u8]) {
        let (earlier, mut out) = (Earlier { datum, document }, Vec::new());
        let choice = self.writing.choice();
        Encoder::new()
            .encode_after(choice, Some(&self.writing), (update, Some(earlier)), &mut out, &mut || {
                ControlFlow::Continue(())
            })
            .unwrap();
        let header = header(&out);
        let mut back = vec![0x5a; header.raw_len()];
        Decoder::new().decode(&header, Some(&self.reading), &mut back).unwrap();
        assert!(back == update);
    }

    /// What is found in fewer steps is what the view finds, unless it looks at damage that these steps pass by.
    fn keys(&self, datum: &[u8], view: &View<'_>) {
        let (header, mut known) = (header(datum), Known::default());
        for key in KEYS.iter().chain(&KEYS) {
            let key = key.as_bytes();
            let Ok(found) = view.root().and_then(|root| view.next(root, Step::Key(key))) else { continue };
            let shortly = view.key(&mut known, key).unwrap();
            assert_eq!(found.is_some(), shortly.is_some());
            let document = |value: Value<'_>| {
                let mut target = vec![0; view.raw_len()];
                let length = view.document(value, &mut target, &mut Scratch::default()).ok()?;
                target.truncate(length);
                Some(target)
            };
            assert!(found.and_then(document) == shortly.and_then(document));
            let mut text = vec![0x5a; view.raw_len() + 64];
            if let Some((what, length)) = self.reading.text_of_key(&mut known, &header, key, &mut text) {
                let mut expected = Vec::new();
                let told = match found {
                    Some(value) => view.text(value, &mut expected).unwrap(),
                    None => Text::Null,
                };
                assert!((what, &text[..length]) == (told, &expected[..]));
            }
        }
    }

    /// Reads of a datum only what is asked for: a part of it, and then the whole.
    fn by_slices(&self, datum: &[u8], document: &[u8]) {
        let head = &datum[..Sliced::head_len(datum.len())];
        let mut sliced = Sliced::new(head, datum.len(), &self.reading).unwrap().unwrap();
        let mut target = vec![0x5a; document.len()];
        let mut found = [None, None];
        for (step, found) in [Some(Step::Index(-1)), None].into_iter().zip(&mut found) {
            for _ in 0..datum.len() / BLOCK_BYTES + 2 {
                match at_step(&sliced.view(&self.reading).unwrap(), step, &mut target) {
                    Err(Error::Missing) => {
                        let needed = sliced.needed().unwrap();
                        sliced.fill(&datum[needed]).unwrap();
                    }
                    other => {
                        *found = Some(other.unwrap());
                        break;
                    }
                }
            }
        }
        assert_eq!(found[1], Some(Some(document.len())));
        assert!(target == document && found[0].is_some());
    }

    fn reads(&self, payload: &[u8]) {
        let datum = self.sealed(RAW_BYTES_MAX, payload);
        let view = self.reading.view(&header(&datum)).unwrap().unwrap();
        self.keys(&datum, &view);
        let Ok(root) = view.root() else { return };
        let mut document = vec![0; RAW_BYTES_MAX];
        let _ = look(&view, root, &mut document, &mut LOOKS_MAX.clone());
        let found = view.document(root, &mut document, &mut Scratch::default());
        for size in [found.as_ref().map_or(100, |length| *length), 64] {
            if size == 0 {
                continue;
            }
            let datum = self.sealed(size, payload);
            let mut decoded = vec![0x5a; size];
            if Decoder::new().decode(&header(&datum), Some(&self.reading), &mut decoded).is_ok() {
                assert_eq!(found, Ok(size));
                assert!(decoded == document[..size]);
                self.updates(&decoded, &datum, &decoded);
                DOCUMENTS.iter().for_each(|update| self.updates(update, &datum, &decoded));
            }
        }
    }

    /// A datum of this payload with the right sums, as `formats/zson.md` has them.
    fn sealed(&self, size: usize, payload: &[u8]) -> Vec<u8> {
        let identity = u64::from_le_bytes(*self.dictionary.hash().first_chunk().unwrap());
        let seed = (identity ^ (size as u64) << 28 ^ payload.len() as u64)
            .wrapping_add(u64::from(ID.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let hash =
            |more: usize, bytes: &[u8]| XxHash3_64::oneshot_with_seed(seed.wrapping_add(more as u64), bytes);
        let mut blocks = payload.chunks(BLOCK_BYTES).enumerate();
        let (_, first) = blocks.next().unwrap();
        let sums: Vec<u8> = blocks.flat_map(|(at, block)| (hash(at, block) as u32).to_le_bytes()).collect();
        let of_sums = if sums.is_empty() { 0 } else { hash(0, &sums).rotate_left(1) };
        let check = (hash(0, first) ^ of_sums) as u32;
        let mut datum = vec![0x2c, ID.get() as u8];
        push_varint(size, &mut datum);
        datum.extend_from_slice(&check.to_le_bytes());
        [&datum, &sums, payload].concat()
    }
}

fn push_varint(mut value: usize, out: &mut Vec<u8>) {
    while value > 127 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

fn header(datum: &[u8]) -> Header<'_> {
    match parse(datum) {
        Ok(Stored::Current(header)) => header,
        other => panic!("our own datum is refused: {other:?}"),
    }
}

/// Writes what is one step on, or the whole, to `target`. Returns its length.
fn at_step(view: &View<'_>, step: Option<Step<'_>>, target: &mut [u8]) -> Result<Option<usize>, Error> {
    let root = view.root()?;
    let value = match step {
        Some(step) => view.next(root, step)?,
        None => Some(root),
    };
    value.map(|value| view.document(value, target, &mut Scratch::default())).transpose()
}

/// Looks at a value and at some of those in it.
fn look(view: &View<'_>, value: Value<'_>, target: &mut [u8], left: &mut usize) -> Result<(), Error> {
    let Some(less) = left.checked_sub(1) else { return Ok(()) };
    *left = less;
    let mut text = Vec::new();
    let scratch = &mut Scratch::default();
    view.text(value, &mut text, scratch)?;
    view.document(value, target, scratch)?;
    view.has(b"id", &mut text, scratch)?;
    if view.type_of(value)? == Type::Array {
        let mut at = 0;
        while *left > 0
            && let Some(element) = view.next(value, Step::Index(at))?
        {
            look(view, element, target, left)?;
            at += 1;
        }
    }
    for key in KEYS {
        if let Some(inside) = view.next(value, Step::Key(key.as_bytes()))? {
            look(view, inside, target, left)?;
        }
    }
    let _ = view.next(value, Step::Index(-1))?;
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let Some((what, data)) = data.split_first() else { return };
    match what % 3 {
        0 if !data.is_empty() => KNOWN.iter().for_each(|known| known.reads(data)),
        1 => {
            let mut bytes = b"\xffzshape1\x64".to_vec();
            bytes.extend_from_slice(&[255; 58]);
            push_varint(data.len(), &mut bytes);
            bytes.extend_from_slice(data);
            if let Some(both) = Both::of(bytes) {
                DOCUMENTS.iter().for_each(|document| both.comes_back(document));
                both.comes_back(data);
            }
        }
        _ => KNOWN.iter().for_each(|known| known.comes_back(data)),
    }
});
