//! Payloads that nobody encoded. They carry no check sum, their record does: what is asked is an error or
//! some page, but no panic.

use pgshrink_cfs::page::{Error, Mode, PAGE_SIZE, PageCodec, PageDictionary};
use pgshrink_testkit::Seed;

use super::{BLOCK, policies, real_pages, there_and_back};

#[test]
fn a_payload_cut_anywhere_is_an_error() {
    let mut codec = PageCodec::new();
    for (name, page) in real_pages() {
        for policy in policies() {
            let (encoded, payload) = there_and_back(&mut codec, &page, Some(BLOCK), &policy, None);
            let step = if payload.len() > 600 { 97 } else { 1 };
            let mut back = [0; PAGE_SIZE];
            for len in (0..payload.len()).step_by(step) {
                // A zstd or LZ4 block whose last byte goes may still decode; then its content must be found
                // short.
                let done = codec.decode(encoded.mode.byte(), &payload[..len], Some(BLOCK), None, &mut back);
                assert!(done.is_err() || back == page, "{name}, {policy:?}, {len} of {}", payload.len());
            }
        }
    }
}

#[test]
fn flipped_bits_do_not_panic() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut codec = PageCodec::new();
    for (_, page) in real_pages() {
        for policy in policies() {
            let (encoded, payload) = there_and_back(&mut codec, &page, Some(BLOCK), &policy, None);
            let mut back = [0; PAGE_SIZE];
            for _ in 0..if payload.is_empty() { 0 } else { 60 } {
                let mut payload = payload.clone();
                let at = rng.below(payload.len());
                payload[at] ^= 1 << rng.below(8);
                let _ = codec.decode(encoded.mode.byte(), &payload, Some(BLOCK), None, &mut back);
            }
        }
    }
}

#[test]
fn unknown_modes_are_named() {
    let known = |byte: u8| Mode::from_byte(byte).is_ok();
    assert!(!known(0));
    assert!((0x80..=0xff).all(|byte| !known(byte)));
    assert_eq!(Mode::from_byte(0), Err(Error::Mode { mode: 0 }));
    // pglz has no dictionaries, LZ4 no zstd blocks, and a plain page keeps its checksum.
    assert!([0x11, 0x22, 0x44].into_iter().all(|byte| !known(byte)));
    for byte in (0..=0xff).filter(|byte| known(*byte)) {
        assert_eq!(Mode::from_byte(byte).unwrap().byte(), byte);
    }
}

#[test]
fn what_needs_a_dictionary_says_so() {
    let pages = real_pages();
    let bytes = PageDictionary::train(pages.iter().cycle().take(100).map(|(_, page)| page), 8 << 10).unwrap();
    let policy = policies()[0];
    let dictionary = PageDictionary::new(bytes, &[policy.choice]).unwrap();
    let mut codec = PageCodec::new();
    let (encoded, payload) = there_and_back(&mut codec, &pages[3].1, None, &policy, Some(&dictionary));
    assert!(encoded.mode.has_dictionary());
    let mut back = [0; PAGE_SIZE];
    let done = codec.decode(encoded.mode.byte(), &payload, None, None, &mut back);
    assert_eq!(done, Err(Error::DictionaryMissing));
}
