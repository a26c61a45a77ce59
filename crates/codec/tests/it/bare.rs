use std::ops::ControlFlow;

use pgshrink_codec::bare::{Compressor, Decompressor, Shape};
use pgshrink_codec::prepared::{CompressorDictionary, DecompressorDictionary};
use pgshrink_codec::{Algorithm, AlgorithmList, Choice, Dictionary, Error};

use crate::random::Random;

fn choices() -> Vec<Choice> {
    let one = |text: &&str| text.parse::<AlgorithmList>().unwrap().get(0).unwrap();
    ["zstd:-5", "zstd:1", "zstd", "zstd:19", "lz4", "lz4:30"].iter().map(one).collect()
}

fn decompress(
    shape: Shape,
    dictionary: Option<&DecompressorDictionary>,
    payload: &[u8],
    raw_len: usize,
) -> Result<Vec<u8>, Error> {
    let mut target = vec![0x5a; raw_len];
    Decompressor::new().decompress(shape, dictionary, payload, &mut target).map(|()| target)
}

#[test]
fn payloads_come_back_with_and_without_a_dictionary() {
    let mut random = Random::seeded("payloads");
    let dictionary = Dictionary::new(random.rows(70_000)).unwrap();
    let back = DecompressorDictionary::new(&dictionary).unwrap();
    let prepared: Vec<CompressorDictionary> =
        choices().iter().map(|choice| CompressorDictionary::new(&dictionary, *choice).unwrap()).collect();
    let mut compressor = Compressor::new();
    let large = random.rows(500_000);
    for raw in (0..60).map(|_| random.chunk()).chain([vec![], vec![1], vec![0; 200_000], large]) {
        for with in &prepared {
            let mut payload = b"earlier".to_vec();
            let shape = compressor.compress(with.choice(), Some(with), &raw, &mut payload).unwrap();
            assert!(decompress(shape, Some(&back), &payload[7..], raw.len()).unwrap() == raw);
            assert!(raw.len() <= shape.raw_size_max(payload.len() - 7));
            payload.truncate(7);
            let shape = compressor.compress(with.choice(), None, &raw, &mut payload).unwrap();
            assert_eq!(&payload[..7], b"earlier");
            assert!(decompress(shape, None, &payload[7..], raw.len()).unwrap() == raw);
        }
    }
}

#[test]
fn a_small_zstd_payload_has_neither_frame_nor_block_header() {
    let raw = Random::fixed(1).rows(2000);
    let (mut frame, mut payload) = (Vec::new(), Vec::new());
    pgshrink_codec::block::Compressor::new().compress(Algorithm::Zstd.into(), &raw, &mut frame).unwrap();
    let shape = Compressor::new().compress(Algorithm::Zstd.into(), None, &raw, &mut payload).unwrap();
    assert_eq!(shape, Shape::ZstdBlock);
    // Magic number, descriptor, window, block header.
    assert_eq!(&frame[9..], payload);
}

#[test]
fn a_payload_cut_extended_or_of_another_size_is_corrupt() {
    let raw = Random::fixed(2).rows(3000);
    for choice in choices() {
        let mut payload = Vec::new();
        let shape = Compressor::new().compress(choice, None, &raw, &mut payload).unwrap();
        let refused = |payload: &[u8], raw_len| {
            matches!(decompress(shape, None, payload, raw_len), Err(Error::Corrupt { .. }))
        };
        for len in 0..payload.len() {
            assert!(refused(&payload[..len], raw.len()), "{choice}: {len} of {}", payload.len());
        }
        assert!(refused(&payload, raw.len() - 1) && refused(&payload, raw.len() + 1), "{choice}");
        payload.push(0);
        assert!(refused(&payload, raw.len()), "{choice}");
    }
}

#[test]
fn a_payload_whose_size_nothing_says_is_decoded_where_there_is_room() {
    let raw: Vec<u8> = (0..300_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8 & 15).collect();
    for (choice, len) in choices().into_iter().flat_map(|choice| [3000, 300_000].map(|len| (choice, len))) {
        let (raw, mut payload) = (&raw[..len], Vec::new());
        let shape = Compressor::new().compress(choice, None, raw, &mut payload).unwrap();
        let within = |room: usize| {
            let mut target = vec![0x5a; room];
            let found = Decompressor::new().decompress_within(shape, None, &payload, &mut target);
            found.map(|found| target[..found].to_vec())
        };
        for room in [len, len + 1, 2 * len] {
            assert!(within(room).unwrap() == raw, "{choice:?} {len} {room}");
        }
        for room in [0, 1, len / 2, len - 1] {
            assert!(matches!(within(room), Err(Error::Corrupt { .. })), "{choice:?} {len} {room}");
        }
    }
}

#[test]
fn damage_gives_an_error_or_bytes_but_nothing_else() {
    let mut random = Random::seeded("damaged payloads");
    let raw = random.rows(1500);
    let dictionary = Dictionary::new(random.rows(5000)).unwrap();
    let back = DecompressorDictionary::new(&dictionary).unwrap();
    for choice in choices() {
        let with = CompressorDictionary::new(&dictionary, choice).unwrap();
        let mut payload = Vec::new();
        let shape = Compressor::new().compress(choice, Some(&with), &raw, &mut payload).unwrap();
        for bit in 0..payload.len() * 8 {
            payload[bit / 8] ^= 1 << (bit % 8);
            for shape in [shape, Shape::ZstdBlocks] {
                if let Err(error) = decompress(shape, Some(&back), &payload, raw.len()) {
                    assert!(matches!(error, Error::Corrupt { .. }), "{choice}: {error}");
                }
            }
            payload[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn a_size_beyond_what_a_payload_can_hold_is_refused() {
    for (shape, len, allowed) in
        [(Shape::ZstdBlock, 10, 128 << 10), (Shape::ZstdBlocks, 9, 256 << 10), (Shape::Lz4, 10, 2550)]
    {
        assert_eq!(shape.raw_size_max(len), allowed);
        let refused = decompress(shape, None, &vec![0; len], allowed + 1).unwrap_err();
        assert!(refused.to_string().contains("too short for the promised size"), "{refused}");
    }
}

#[test]
fn other_algorithms_and_other_levels_than_prepared_are_unsupported() {
    let dictionary = Dictionary::new(b"any bytes are a dictionary".to_vec()).unwrap();
    for algorithm in [Algorithm::Zlib, Algorithm::Pglz, Algorithm::Snappy, Algorithm::Lzfse, Algorithm::None]
    {
        let mut out = Vec::new();
        let refused = Compressor::new().compress(algorithm.into(), None, b"raw", &mut out);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{algorithm}");
        assert!(CompressorDictionary::new(&dictionary, algorithm.into()).is_err());
    }
    let with = CompressorDictionary::new(&dictionary, Algorithm::Zstd.into()).unwrap();
    let refused = Compressor::new().compress(Algorithm::Lz4.into(), Some(&with), b"raw", &mut Vec::new());
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
}

/// What one call may take, and where the input begins to go in pieces of 128 KiB.
const ONE_CALL: [(i64, usize); 4] = [(-5, 1 << 20), (12, 1 << 20), (13, 128 << 10), (19, 128 << 10)];

/// Rows, and as many bytes that do not compress.
fn half_rows(random: &mut Random, len: usize) -> Vec<u8> {
    let mut raw = random.rows(len / 2);
    raw.resize_with(len, || random.next() as u8);
    raw
}

#[test]
fn a_large_input_comes_back_and_is_asked_for_before_each_piece() {
    let mut random = Random::seeded("pieces");
    let dictionary = Dictionary::new(random.rows(50_000)).unwrap();
    let back = DecompressorDictionary::new(&dictionary).unwrap();
    for (level, one_call) in ONE_CALL {
        let choice = Choice::new(Algorithm::Zstd, level).unwrap();
        let with = CompressorDictionary::new(&dictionary, choice).unwrap();
        let mut compressor = Compressor::new();
        for (len, pieces) in [(one_call, 0), (one_call + 1, one_call / (128 << 10) + 1)] {
            let raw = half_rows(&mut random, len);
            for with in [None, Some(&with)] {
                let (mut payload, mut plain, mut asked) = (b"earlier".to_vec(), b"earlier".to_vec(), 0);
                let mut proceed = || {
                    asked += 1;
                    ControlFlow::Continue(())
                };
                let shape =
                    compressor.compress_while(choice, with, &raw, &mut payload, &mut proceed).unwrap();
                assert_eq!(asked, pieces, "level {level}, {len} bytes");
                let back = decompress(shape, with.map(|_| &back), &payload[7..], len).unwrap();
                assert!(back == raw, "level {level}, {len} bytes");
                compressor.compress(choice, with, &raw, &mut plain).unwrap();
                assert!(plain == payload, "level {level}, {len} bytes: other bytes when nobody asks");
            }
        }
    }
}

#[test]
fn a_stop_between_two_pieces_leaves_nothing_behind() {
    let mut random = Random::fixed(4);
    let (choice, raw) = (Choice::new(Algorithm::Zstd, 13).unwrap(), half_rows(&mut random, 400_000));
    let mut compressor = Compressor::new();
    for stop_at in 1..=4 {
        let (mut out, mut asked) = (b"earlier".to_vec(), 0);
        let stopped = compressor.compress_while(choice, None, &raw, &mut out, &mut || {
            asked += 1;
            if asked == stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(stopped.unwrap_err(), Error::Interrupted);
        assert_eq!((asked, &out[..]), (stop_at, &b"earlier"[..]), "it went on after the stop");
    }
}

#[test]
fn rows_in_pieces_take_about_as_many_bytes_as_in_one_call() {
    let raw = Random::fixed(3).rows(3 << 19);
    for level in [3, 13] {
        let choice = Choice::new(Algorithm::Zstd, level).unwrap();
        let (mut payload, mut frame) = (Vec::new(), Vec::new());
        Compressor::new().compress(choice, None, &raw, &mut payload).unwrap();
        pgshrink_codec::block::Compressor::new().compress(choice, &raw, &mut frame).unwrap();
        let (ours, theirs) = (payload.len(), frame.len());
        assert!(ours <= theirs + theirs / 100, "level {level}: {ours} bytes, {theirs} in one call");
    }
}
