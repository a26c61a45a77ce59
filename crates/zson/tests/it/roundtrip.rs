//! Documents come back, and datums are as small as promised.

use std::ops::ControlFlow;

use pgshrink_codec::{Algorithm, Choice, Dictionary};
use pgshrink_testkit::seed::Seed;
use pgshrink_zson::datum::{Method, OVERHEAD_BYTES_MAX};
use pgshrink_zson::{Decoder, DictionaryId, Encoder, Error, WritingDictionary};

use crate::fixtures::{
    CHOICES, choice, current, datums, decode, documents, encode, id, object, reading, trained, writing,
};

#[test]
fn every_document_comes_back_from_every_codec() {
    let mut rng = Seed::from_env_or_time().rng();
    for document in documents(&mut rng) {
        for (datum, dictionary) in datums(&document) {
            let back = decode(&datum, dictionary.as_ref()).unwrap();
            assert!(
                back == document,
                "{} bytes differ: {:?}",
                document.len(),
                current(&datum).unwrap().method()
            );
        }
    }
}

#[test]
fn one_encoder_and_one_decoder_serve_all_codecs_in_turn() {
    let mut rng = Seed::from_env_or_time().rng();
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let dictionaries = CHOICES.map(|text| writing(9, trained(), choice(text)));
    let reading = reading(9, trained());
    let (mut datum, mut document) = (Vec::new(), Vec::new());
    for raw in documents(&mut rng) {
        let with = rng.pick(&dictionaries);
        let dictionary = rng.chance(70).then_some(with);
        datum.clear();
        encoder.encode(with.choice(), dictionary, &raw, &mut datum).unwrap();
        assert_eq!(datum, encode(with.choice(), dictionary, &raw), "contexts leave traces");
        let header = current(&datum).unwrap();
        document.resize(header.raw_len(), 0);
        decoder.decode(&header, Some(&reading), &mut document).unwrap();
        assert!(document == raw);
    }
}

#[test]
fn a_datum_is_at_most_five_bytes_longer_than_its_document() {
    let mut rng = Seed::from_env_or_time().rng();
    for document in documents(&mut rng) {
        for (datum, _) in datums(&document) {
            assert!(datum.len() <= document.len() + OVERHEAD_BYTES_MAX, "{} bytes", document.len());
        }
    }
    let noise = rng.bytes(5000);
    for (datum, _) in datums(&noise) {
        assert_eq!((datum.len(), current(&datum).unwrap().method()), (5005, Method::Raw));
    }
}

#[test]
fn a_datum_is_three_bytes_longer_than_the_shortest_zstd_frame() {
    use zstd_safe::{CCtx, CDict, CParameter, FrameFormat};
    let mut rng = Seed::from_env_or_time().rng();
    let zstd = choice("zstd:3");
    let dictionary = writing(7, trained(), zstd);
    let digest = CDict::create(trained().bytes(), 3);
    let mut context = CCtx::create();
    for parameter in [
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::DictIdFlag(false),
    ] {
        context.set_parameter(parameter).unwrap();
    }
    context.ref_cdict(&digest).unwrap();
    let (mut frames, mut datums) = (0, 0);
    for _ in 0..500 {
        let fields = rng.between(2, 30);
        let document = object(&mut rng, fields);
        let mut frame = vec![0; document.len() + 100];
        frames += context.compress2(&mut frame[..], &document).unwrap();
        datums += encode(zstd, Some(&dictionary), &document).len();
    }
    // A dictionary id below 128 and a size below 16384: tag, id, two bytes of size and four of check sum, less the
    // five of frame and block header.
    assert!(datums <= frames + 500 * 3 + 500 / 10, "{datums} bytes, frames have {frames}");
}

#[test]
fn the_header_tells_what_is_inside() {
    let document = object(&mut Seed(5).rng(), 20);
    let alone = encode(choice("zstd"), None, &document);
    let header = current(&alone).unwrap();
    assert_eq!(
        (header.method(), header.dictionary(), header.raw_len()),
        (Method::Zstd, None, document.len())
    );
    assert_eq!(header.payload().len(), alone.len() - 7);
    let largest = id(i32::MAX as u32);
    for (text, method) in [("zstd:1", Method::Zstd), ("lz4", Method::Lz4)] {
        let datum = encode(choice(text), Some(&writing(largest.get(), trained(), choice(text))), &document);
        let header = current(&datum).unwrap();
        assert_eq!((header.method(), header.dictionary()), (method, Some(largest)));
    }
    let raw = encode(Algorithm::None.into(), None, &document);
    assert_eq!(current(&raw).unwrap().payload(), document);
}

#[test]
fn documents_over_the_limit_of_jsonb_are_refused() {
    let document = vec![0; pgshrink_zson::limits::RAW_BYTES_MAX + 1];
    let mut datum = Vec::new();
    let refused = Encoder::new().encode(choice("zstd:1"), None, &document, &mut datum);
    assert!(matches!(refused, Err(Error::Limit { found: 0x1000_0000, .. })));
    Encoder::new().encode(choice("zstd:1"), None, &document[1..], &mut datum).unwrap();
    assert_eq!(decode(&datum, None).unwrap().len(), document.len() - 1);
}

#[test]
fn a_dictionary_prepared_for_another_choice_is_refused_and_nothing_appended() {
    let document = object(&mut Seed(5).rng(), 20);
    let mut datum = b"earlier".to_vec();
    let dictionary = writing(1, trained(), choice("zstd:1"));
    for text in ["zstd:3", "lz4", "zlib"] {
        let refused = Encoder::new().encode(choice(text), Some(&dictionary), &document, &mut datum);
        assert!(matches!(refused, Err(Error::Codec(_))), "{text}");
    }
    assert_eq!(datum, b"earlier");
    for text in ["zlib", "snappy", "none"] {
        assert!(WritingDictionary::new(id(1), trained(), choice(text)).is_err());
    }
}

#[test]
fn ids_are_what_a_sequence_of_int4_gives() {
    assert_eq!(DictionaryId::new(0), None);
    assert_eq!(DictionaryId::new(1).unwrap().get(), 1);
    assert_eq!(DictionaryId::new(i32::MAX as u32).unwrap().to_string(), "2147483647");
    assert_eq!(DictionaryId::new(i32::MAX as u32 + 1), None);
}

#[test]
fn dictionaries_outlive_what_they_were_made_of_and_say_what_they_hold() {
    let bytes = object(&mut Seed(8).rng(), 60);
    let dictionary = Dictionary::new(bytes.clone()).unwrap();
    let made: Vec<(Choice, WritingDictionary)> = ["zstd:1", "zstd:19", "lz4"]
        .map(choice)
        .map(|choice| (choice, writing(1, &dictionary, choice)))
        .into();
    let back = reading(1, &dictionary);
    drop(dictionary);
    for (choice, with) in &made {
        assert!(with.memory_size() > bytes.len());
        let datum = encode(*choice, Some(with), &bytes);
        assert!(datum.len() < 40, "{choice}: {} bytes", datum.len());
        assert_eq!(decode(&datum, Some(&back)).unwrap(), bytes);
    }
    assert!(back.memory_size() > bytes.len());
}

#[test]
fn a_damaged_trained_dictionary_is_refused() {
    let mut bytes = trained().bytes()[..200].to_vec();
    bytes[8..].fill(0xff);
    let damaged = Dictionary::new(bytes).unwrap();
    assert!(WritingDictionary::new(id(1), &damaged, choice("zstd")).is_err());
    assert!(pgshrink_zson::ReadingDictionary::new(id(1), &damaged).is_err());
}

#[test]
fn a_large_document_can_be_interrupted_and_is_none_the_worse() {
    let mut rng = Seed::from_env_or_time().rng();
    let document = object(&mut rng, 20_000);
    let with = writing(9, trained(), choice("zstd:19"));
    let (mut encoder, mut datum) = (Encoder::new(), b"earlier".to_vec());
    for dictionary in [None, Some(&with)] {
        let mut asked = 0;
        let stopped = encoder.encode_while(with.choice(), dictionary, &document, &mut datum, &mut || {
            asked += 1;
            if asked == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((stopped.unwrap_err(), asked, &datum[..]), (Error::Interrupted, 2, &b"earlier"[..]));
        let mut whole = Vec::new();
        encoder.encode(with.choice(), dictionary, &document, &mut whole).unwrap();
        assert!(decode(&whole, dictionary.map(|_| reading(9, trained())).as_ref()).unwrap() == document);
    }
}
