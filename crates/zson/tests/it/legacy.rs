//! Datums of the original, built byte by byte from the description of its format.

use pgshrink_zson::Error;
use pgshrink_zson::datum::{Stored, parse};
use pgshrink_zson::legacy::{Datum, Words};

const DICTIONARY: u32 = 3;

/// Header and hint, then tokens.
fn datum(raw_len: u32, tokens: &[u8]) -> Vec<u8> {
    let mut datum = vec![0];
    datum.extend_from_slice(&DICTIONARY.to_le_bytes());
    datum.extend_from_slice(&raw_len.to_le_bytes());
    datum.extend_from_slice(&[0; 32]);
    datum.extend_from_slice(tokens);
    datum
}

fn words() -> Words {
    let rows: [(i32, &[u8]); 6] =
        [(1, b"name"), (2, b"x"), (3, b"city"), (258, b"Andorra"), (65_534, b"last"), (70_000, b"wrapped")];
    Words::new(rows.into_iter().map(|(id, word)| (id, word.to_vec()))).unwrap()
}

fn legacy(datum: &[u8]) -> Result<Datum<'_>, Error> {
    match parse(datum)? {
        Stored::Legacy(datum) => Ok(datum),
        Stored::Current(_) => panic!("not the original's"),
    }
}

fn decode(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let (datum, words) = (legacy(bytes)?, words());
    let verified = words.verify(&datum);
    let mut document = vec![0x5a; datum.raw_len()];
    let decoded = words.decode(&datum, &mut document);
    assert_eq!(verified, decoded, "the check before memory is taken says something else");
    decoded.map(|()| document)
}

#[test]
fn literals_and_words_follow_one_another() {
    // "name" | "=" "Andorra" | "; " "city" | "..."
    let bytes = datum(21, b"\0\0\x01\x01=\x01\x02\x02; \0\x03\x03...");
    assert_eq!(decode(&bytes).unwrap(), b"name=Andorra; city...");
    let parsed = legacy(&bytes).unwrap();
    assert_eq!((parsed.dictionary_id(), parsed.raw_len()), (DICTIONARY, 21));
}

#[test]
fn the_last_token_has_no_code_and_may_be_empty() {
    assert_eq!(decode(&datum(4, b"\0\0\x01\0")).unwrap(), b"name");
    assert_eq!(decode(&datum(0, b"\0")).unwrap(), b"");
    assert_eq!(decode(&datum(3, b"\x03abc")).unwrap(), b"abc");
}

#[test]
fn runs_of_255_literals_close_with_code_zero() {
    let run: Vec<u8> = (0..=254).collect();
    let mut tokens = [&[255], &run[..], &[0, 0]].concat();
    // Exactly 255: an empty token closes the datum.
    assert_eq!(decode(&datum(255, &[&tokens[..], &[0]].concat())).unwrap(), run);
    // 510 and one more.
    tokens.extend_from_within(..);
    tokens.extend_from_slice(b"\x01!");
    assert_eq!(decode(&datum(511, &tokens)).unwrap(), [&run[..], &run, b"!"].concat());
    // A word directly behind a run.
    let tokens = [&[255], &run[..], &[0, 0], b"\0\x01\x02\0"].concat();
    assert_eq!(decode(&datum(262, &tokens)).unwrap(), [&run[..], b"Andorra"].concat());
}

#[test]
fn codes_are_big_endian_and_reach_the_largest() {
    assert_eq!(decode(&datum(4, b"\0\xff\xfe\0")).unwrap(), b"last");
    // 70000 is 0x11170: the original keeps the low 16 bits.
    assert_eq!(decode(&datum(7, b"\0\x11\x70\0")).unwrap(), b"wrapped");
}

#[test]
fn an_unknown_code_is_an_error_that_names_it() {
    for (code, tokens) in [(4, b"\0\0\x04\0"), (2, b"\0\0\x02\0"), (65_535, b"\0\xff\xff\0")] {
        let error = decode(&datum(4, tokens)).unwrap_err();
        assert!(error.is_corruption());
        assert!(matches!(error, Error::UnknownCode { dictionary: 3, code: found, .. } if found == code));
    }
}

#[test]
fn a_code_of_several_words_is_an_error() {
    let rows = [
        (5, b"one".to_vec()),
        (5 + 65_536, b"two".to_vec()),
        (6, b"same".to_vec()),
        (6 + 65_536, b"same".to_vec()),
    ];
    let words = Words::new(rows.into_iter()).unwrap();
    let ask = |bytes: &[u8]| words.verify(&legacy(bytes).unwrap());
    assert!(matches!(ask(&datum(3, b"\0\0\x05\0")), Err(Error::UnknownCode { code: 5, .. })));
    assert_eq!(ask(&datum(4, b"\0\0\x06\0")), Ok(()));
}

#[test]
fn whatever_the_hint_holds_is_accepted() {
    let mut bytes = datum(4, b"\0\0\x01\0");
    bytes[9..41].fill(0xee);
    assert_eq!(decode(&bytes).unwrap(), b"name");
}

#[test]
fn a_datum_cut_anywhere_is_an_error() {
    let bytes = datum(21, b"\0\0\x01\x01=\x01\x02\x02; \0\x03\x03...");
    for len in 1..bytes.len() {
        assert!(decode(&bytes[..len]).is_err_and(|error| error.is_corruption()), "{len}");
    }
}

#[test]
fn a_wrong_size_is_an_error_in_both_directions() {
    for raw_len in [0, 20, 22, 1000] {
        let bytes = datum(raw_len, b"\0\0\x01\x01=\x01\x02\x02; \0\x03\x03...");
        assert!(decode(&bytes).is_err_and(|error| error.is_corruption()), "{raw_len}");
    }
    // A word that does not fit, a literal that does not, and bytes behind the end.
    for tokens in [&b"\0\0\x01\0"[..], b"\x05abcde", b"\x03abc\0\0\0"] {
        let raw_len = if tokens[0] == 3 { 2 } else { 3 };
        assert!(decode(&datum(raw_len, tokens)).is_err(), "{tokens:?}");
    }
}

#[test]
fn a_size_over_the_limit_of_jsonb_is_refused_at_once() {
    assert!(legacy(&datum(0x1000_0000, b"\0")).is_err_and(|error| error.is_corruption()));
    assert_eq!(legacy(&datum(0x0fff_ffff, b"\0")).unwrap().raw_len(), 0x0fff_ffff);
    // And one below it costs no memory either.
    let bytes = datum(0x0fff_ffff, b"\0");
    assert!(words().verify(&legacy(&bytes).unwrap()).is_err());
}

#[test]
fn a_buffer_of_another_size_is_refused() {
    let bytes = datum(4, b"\0\0\x01\0");
    let refused = words().decode(&legacy(&bytes).unwrap(), &mut [0; 5]);
    assert_eq!(refused, Err(Error::Target { needed: 4, given: 5 }));
}

#[test]
fn a_full_dictionary_takes_as_much_memory_as_its_words_and_its_codes() {
    let rows = (1..=65_534).map(|id| (id, format!("word {id}").into_bytes()));
    let words = Words::new(rows).unwrap();
    assert!(words.memory_size() < 65_536 * (8 + 10) + 100, "{}", words.memory_size());
    assert!(Words::new(std::iter::empty()).unwrap().memory_size() < 100);
}
