//! Documents that look like jsonb, and dictionaries made of such.

use std::sync::OnceLock;

use pgshrink_codec::{Algorithm, Choice, Dictionary};
use pgshrink_testkit::seed::{Rng, Seed};
use pgshrink_zson::datum::{Header, Stored, parse};
use pgshrink_zson::{Decoder, DictionaryId, Encoder, Error, ReadingDictionary, WritingDictionary};

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

pub fn writing(number: u32, dictionary: &Dictionary, choice: Choice) -> WritingDictionary {
    WritingDictionary::new(id(number), dictionary, choice).unwrap()
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
