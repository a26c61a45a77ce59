//! Documents that look like jsonb, and dictionaries made of such.

use std::sync::OnceLock;

use pgshrink_codec::{Algorithm, Choice, Dictionary};
use pgshrink_testkit::seed::{Rng, Seed};
use pgshrink_zson::datum::{Header, Stored, parse};
use pgshrink_zson::training::{Options, Report, Shapes, train};
use pgshrink_zson::{Codec, Decoder, DictionaryId, Encoder, Error, ReadingDictionary, WritingDictionary};

use crate::records::{measurement, order};

pub const CHOICES: [&str; 5] = ["zstd:-5", "zstd:1", "zstd:3", "zstd:19", "lz4"];

pub fn choice(text: &str) -> Choice {
    text.parse::<pgshrink_codec::AlgorithmList>().unwrap().get(0).unwrap()
}

pub fn id(number: u32) -> DictionaryId {
    DictionaryId::new(number).unwrap()
}

/// An object as jsonb keeps it: a header with the count, an entry with the length of each key and value, and then
/// the keys and values themselves.
pub fn object(rng: &mut Rng, fields: usize) -> Vec<u8> {
    const KEYS: [&str; 8] = ["city", "count", "created", "description", "id", "kind", "name", "state"];
    const VALUES: [&str; 6] =
        ["Andorra la Vella", "open", "closed", "2024-05-17T12:00:00Z", "shipped", "node"];
    let keys: Vec<Vec<u8>> =
        (0..fields).map(|field| format!("{}{}", KEYS[field % 8], field / 8).into_bytes()).collect();
    let values: Vec<Vec<u8>> = (0..fields)
        .map(|_| match rng.below(3) {
            0 => rng.bytes(6),
            _ => rng.pick(&VALUES).as_bytes().to_vec(),
        })
        .collect();
    let mut document = (fields as u32 | 0x2000_0000).to_le_bytes().to_vec();
    for part in keys.iter().chain(&values) {
        document.extend_from_slice(&(part.len() as u32).to_le_bytes());
    }
    keys.iter().chain(&values).for_each(|part| document.extend_from_slice(part));
    document
}

/// Documents of every sort and size, up to several zstd blocks.
pub fn documents(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut documents: Vec<Vec<u8>> = [0, 1, 2, 3, 4, 7, 8, 23, 24, 60, 300, 2000, 9000]
        .iter()
        .flat_map(|len| [rng.bytes(*len), rng.text(*len), vec![7; *len]])
        .collect();
    documents.extend((0..60).map(|fields| object(rng, fields)));
    documents.extend([
        rng.text(127 << 10),
        rng.text(128 << 10),
        rng.text((128 << 10) + 1),
        rng.text(700_000),
    ]);
    documents.extend([rng.bytes(200_000), vec![0; 1 << 20]]);
    documents
}

/// A dictionary as training makes them.
pub fn trained() -> &'static Dictionary {
    static TRAINED: OnceLock<Dictionary> = OnceLock::new();
    TRAINED.get_or_init(|| {
        let mut rng = Seed(42).rng();
        let samples: Vec<Vec<u8>> = (0..3000)
            .map(|_| {
                let fields = rng.between(3, 20);
                object(&mut rng, fields)
            })
            .collect();
        Dictionary::train(&samples, 8 << 10).unwrap()
    })
}

/// Any bytes are a dictionary.
pub fn raw_content() -> Dictionary {
    Dictionary::new(object(&mut Seed(43).rng(), 40)).unwrap()
}

/// A dictionary of shapes, of orders and some measurements.
pub fn shaped() -> &'static Dictionary {
    static SHAPED: OnceLock<Dictionary> = OnceLock::new();
    SHAPED.get_or_init(|| {
        let mut rng = Seed(44).rng();
        let mut samples: Vec<Vec<u8>> = (0..1500).map(|_| order(&mut rng).document()).collect();
        samples.extend((0..300).map(|_| measurement(&mut rng).document()));
        learned(&samples, Shapes::Only).winner.unwrap()
    })
}

/// The same, by whose rule zstd is never tried.
pub fn shaped_always() -> &'static Dictionary {
    static SHAPED: OnceLock<Dictionary> = OnceLock::new();
    SHAPED.get_or_init(|| {
        let mut bytes = shaped().bytes().to_vec();
        // Behind the name and the factor: from which part of a document on, by the bits of its length.
        bytes[9..9 + 29].fill(255);
        Dictionary::new(bytes).unwrap()
    })
}

/// A dictionary of shapes, of measurements alone.
pub fn shaped_short() -> &'static Dictionary {
    static SHAPED: OnceLock<Dictionary> = OnceLock::new();
    SHAPED.get_or_init(|| {
        let mut rng = Seed(45).rng();
        let samples: Vec<Vec<u8>> = (0..1000).map(|_| measurement(&mut rng).document()).collect();
        learned(&samples, Shapes::Only).winner.unwrap()
    })
}

/// What training for zstd:3 finds, with shapes or without.
pub fn learned(samples: &[Vec<u8>], shapes: Shapes) -> Report {
    let mut options = Options::new(choice("zstd:3"));
    options.shapes = shapes;
    options.sizes = vec![16 << 10];
    train(samples, &options, &mut |_| std::ops::ControlFlow::Continue(())).unwrap()
}

pub fn writing(number: u32, dictionary: &Dictionary, codec: impl Into<Codec>) -> WritingDictionary {
    WritingDictionary::new(id(number), dictionary, codec).unwrap()
}

pub fn reading(number: u32, dictionary: &Dictionary) -> ReadingDictionary {
    ReadingDictionary::new(id(number), dictionary).unwrap()
}

pub fn encode(choice: Choice, dictionary: Option<&WritingDictionary>, document: &[u8]) -> Vec<u8> {
    let mut datum = b"earlier".to_vec();
    Encoder::new().encode(choice, dictionary, document, &mut datum).unwrap();
    assert_eq!(&datum[..7], b"earlier");
    datum.split_off(7)
}

pub fn current(datum: &[u8]) -> Result<Header<'_>, Error> {
    match parse(datum)? {
        Stored::Current(header) => Ok(header),
        Stored::Legacy(_) => panic!("a datum of the original"),
    }
}

pub fn decode(datum: &[u8], dictionary: Option<&ReadingDictionary>) -> Result<Vec<u8>, Error> {
    let header = current(datum)?;
    // What was there before must not show.
    let mut document = vec![0x5a; header.raw_len()];
    Decoder::new().decode(&header, dictionary, &mut document)?;
    Ok(document)
}

/// A datum for every choice with and without each dictionary, and the dictionary to read it.
pub fn datums(document: &[u8]) -> Vec<(Vec<u8>, Option<ReadingDictionary>)> {
    let mut datums = vec![(encode(Algorithm::None.into(), None, document), None)];
    for choice in CHOICES.map(choice) {
        datums.push((encode(choice, None, document), None));
        for (number, dictionary) in [(1, trained().clone()), (300, raw_content())] {
            let datum = encode(choice, Some(&writing(number, &dictionary, choice)), document);
            datums.push((datum, Some(reading(number, &dictionary))));
        }
    }
    datums
}
