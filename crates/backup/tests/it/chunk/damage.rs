//! Payloads that nobody encoded. They carry no checksum, their pack has it: what is asked is an error or as many
//! bytes as were promised, and no panic.

use pgshrink_backup::chunk::{CHUNK_BYTES_MAX, ChunkDecoder, ChunkError, Codec, Content, Habit};
use pgshrink_testkit::Seed;

use super::{BLOCK, PAGE_SIZE, decode, encoder, heap, pages, real_pages, there_and_back};

/// Chunks of every codec.
fn payloads() -> Vec<(Codec, Vec<u8>, Content, usize)> {
    let mut rng = Seed::from_env_or_time().rng();
    let kinds: Vec<u8> = real_pages().into_iter().flat_map(|(_, page)| page).collect();
    let chunks = [
        (heap(3, &mut rng), pages(0)),
        (kinds, pages(BLOCK)),
        (vec![0; 3 * PAGE_SIZE], pages(0)),
        (rng.text(3_000), Content::Plain),
        (rng.bytes(300), Content::Plain),
    ];
    let payloads = chunks.into_iter().map(|(raw, content)| {
        let (codec, payload) = there_and_back(&mut encoder(), &raw, content, &mut Habit::default());
        (codec, payload, content, raw.len())
    });
    payloads.collect()
}

#[test]
fn a_payload_cut_at_any_byte_is_an_error() {
    let mut met = std::collections::HashSet::new();
    for (codec, payload, content, raw_len) in payloads() {
        met.insert(codec);
        let step = if payload.len() > 10_000 { 97 } else { 1 };
        for len in (0..payload.len()).step_by(step).chain([payload.len() - 1]) {
            let done = decode(codec, &payload[..len], content, raw_len);
            assert!(done.is_err(), "{codec:?}, {len} of {}", payload.len());
        }
        let longer = [&payload[..], &[0]].concat();
        assert!(decode(codec, &longer, content, raw_len).is_err(), "{codec:?}, a byte more");
    }
    assert_eq!(met.len(), 3, "not all codecs");
}

#[test]
fn another_raw_size_than_the_right_one_is_an_error() {
    for (codec, payload, content, raw_len) in payloads() {
        let wrong = [0, 1, raw_len - 1, raw_len + 1, raw_len + PAGE_SIZE, CHUNK_BYTES_MAX];
        let less = raw_len.checked_sub(PAGE_SIZE);
        for wrong in wrong.into_iter().chain(less) {
            assert!(decode(codec, &payload, content, wrong).is_err(), "{codec:?}: {wrong} for {raw_len}");
        }
    }
}

#[test]
fn flipped_bits_give_an_error_or_the_promised_size() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut decoder = ChunkDecoder::new();
    for (codec, mut payload, content, raw_len) in payloads() {
        for _ in 0..2_000 {
            let (at, bit) = (rng.below(payload.len()), 1 << rng.below(8));
            payload[at] ^= bit;
            let mut out = Vec::new();
            let done = decoder.decode(codec, &payload, content, raw_len, &mut out);
            assert_eq!(out.len(), if done.is_ok() { raw_len } else { 0 });
            payload[at] ^= bit;
        }
        // What went wrong before has left nothing behind.
        decoder.decode(codec, &payload, content, raw_len, &mut Vec::new()).unwrap();
    }
}

#[test]
fn random_bytes_are_an_error_or_the_promised_size() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut decoder = ChunkDecoder::new();
    for round in 0..4_000 {
        let len = rng.below(200);
        let mut payload = rng.bytes(len);
        if let Some(first) = payload.first_mut().filter(|_| round % 2 == 0) {
            *first %= 17;
        }
        for codec in [Codec::Zstd, Codec::Columns] {
            let mut out = Vec::new();
            let done = decoder.decode(codec, &payload, pages(3), 4 * PAGE_SIZE, &mut out);
            assert_eq!(out.len(), if done.is_ok() { 4 * PAGE_SIZE } else { 0 });
        }
    }
}

#[test]
fn streams_longer_than_pages_can_have_are_refused_before_memory_is_taken() {
    // No row streams; head, body and loose bits of 0x7f * 2^21 bytes each.
    let long = [0xff, 0xff, 0xff, 0x7f];
    let payload = [&[0][..], &long, &long, &long].concat();
    let done = decode(Codec::Columns, &payload, pages(0), PAGE_SIZE);
    assert!(matches!(done, Err(ChunkError::Limit { .. })), "{done:?}");
    let five = [&[0][..], &[0x80; 5]].concat();
    let done = decode(Codec::Columns, &five, pages(0), PAGE_SIZE);
    assert!(matches!(done, Err(ChunkError::Corrupt { .. })), "{done:?}");
    let done = decode(Codec::Columns, &[17; 60], pages(0), PAGE_SIZE);
    assert!(matches!(done, Err(ChunkError::Corrupt { .. })), "{done:?}");
}
