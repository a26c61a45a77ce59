//! Damaged, truncated, oversized and malicious streams.

use pgshrink_codec::stream::{Decoder, DecoderOptions, Encoder, EncoderOptions};
use pgshrink_codec::{Algorithm, Choice, Error};

use crate::random::Random;
use crate::stream::{decode_all, decoder, encode, encoder, pair};

#[test]
fn noise_grows_by_no_more_than_block_headers() {
    let mut random = Random::fixed(31);
    for (text, overhead_max) in [("zstd:1", 30), ("zlib:1", 10), ("zlib:9", 10), ("lz4", 300)] {
        let mut encoder = encoder(text);
        for len in [1, 70, 500, 5000, 60_000] {
            let raw: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            let wire = encode(&mut encoder, &raw);
            encoder.commit();
            assert!(wire.len() <= len + overhead_max, "{text}: {len} bytes became {}", wire.len());
        }
    }
}

#[test]
fn a_chunk_over_the_maximum_is_refused_and_leaves_the_stream_usable() {
    for text in ["lz4", "zlib", "zstd"] {
        let (mut encoder, mut decoder) = pair(text);
        let raw = vec![b'x'; encoder.chunk_max() + 1];
        let mut out = Vec::new();
        assert!(matches!(encoder.encode(&raw, &mut out), Err(Error::Limit { .. })));
        assert!(out.is_empty());
        let wire = encode(&mut encoder, &raw[1..]);
        encoder.commit();
        assert_eq!(decode_all(&mut decoder, &wire, 1 << 20).unwrap(), &raw[1..]);
    }
}

#[test]
fn a_stream_cut_anywhere_gives_a_prefix_and_no_error_where_it_could_go_on() {
    for text in ["zlib:1", "zstd:1"] {
        let (mut encoder, _) = pair(text);
        let mut random = Random::fixed(13);
        let raw: Vec<Vec<u8>> = (0..4).map(|_| random.rows(700)).collect();
        let wire: Vec<u8> = raw
            .iter()
            .flat_map(|raw| {
                let wire = encode(&mut encoder, raw);
                encoder.commit();
                wire
            })
            .collect();
        let raw = raw.concat();
        for cut in 0..=wire.len() {
            let mut decoder = decoder(encoder.choice().algorithm);
            let mut head = decode_all(&mut decoder, &wire[..cut], 1000).unwrap();
            assert!(raw.starts_with(&head), "{text}, cut at {cut}");
            head.extend(decode_all(&mut decoder, &wire[cut..], 1000).unwrap());
            assert_eq!(head, raw, "{text}, cut at {cut}");
        }
    }
}

#[test]
fn a_truncated_lz4_block_is_corrupt_or_a_shorter_one() {
    let mut encoder = encoder("lz4");
    let raw = Random::fixed(13).rows(900);
    let wire = encode(&mut encoder, &raw);
    for cut in 1..wire.len() {
        let mut out = Vec::new();
        match decoder(Algorithm::Lz4).decode(&wire[..cut], &mut out, 65_536) {
            Ok(_) => assert!(raw.starts_with(&out) && out.len() < raw.len()),
            Err(error) => assert!(matches!(error, Error::Corrupt { .. }) && out.is_empty(), "{error}"),
        }
    }
}

#[test]
fn flipped_bits_never_make_a_decoder_overproduce_and_damage_sticks_until_a_restart() {
    for text in ["lz4", "zlib:1", "zstd:1", "zstd:12"] {
        let (mut encoder, mut decoder) = pair(text);
        let raw = Random::fixed(17).rows(1500);
        let good = encode(&mut encoder, &raw);
        let mut refused = 0;
        for bit in 0..good.len() * 8 {
            let mut wire = good.clone();
            wire[bit / 8] ^= 1 << (bit % 8);
            decoder.restart();
            let mut out = Vec::with_capacity(20_000);
            let (mut at, room) = (0, 4000);
            loop {
                let before = out.len();
                match decoder.decode(&wire[at..], &mut out, room) {
                    Ok(progress) => {
                        assert!(progress.produced <= room && out.len() - before == progress.produced);
                        at += progress.consumed;
                        if !progress.more_output {
                            break;
                        }
                        assert!(progress.consumed + progress.produced > 0, "{text} bit {bit}: no progress");
                    }
                    Err(error) => {
                        refused += 1;
                        assert!(out.len() - before <= room);
                        if !matches!(error, Error::Limit { what: "lz4 block's raw size", .. }) {
                            assert_eq!(decoder.decode(&good, &mut out, room), Err(error));
                        }
                        break;
                    }
                }
            }
        }
        assert!(refused > 0, "{text}");
        decoder.restart();
        assert_eq!(decode_all(&mut decoder, &good, 65_536).unwrap(), raw);
    }
}

#[test]
fn a_bomb_gives_at_most_its_room_per_call_and_little_memory() {
    for text in ["zlib:9", "zstd:3"] {
        let (mut encoder, mut decoder) = pair(text);
        let raw = vec![0; 1 << 20];
        let wire = encode(&mut encoder, &raw);
        assert!(wire.len() < 2000);
        let (mut at, mut produced) = (0, 0);
        loop {
            let mut out = Vec::new();
            let progress = decoder.decode(&wire[at..], &mut out, 10_000).unwrap();
            assert!(progress.produced <= 10_000 && out.capacity() <= 20_000);
            at += progress.consumed;
            produced += progress.produced;
            if !progress.more_output {
                break;
            }
        }
        assert_eq!(produced, raw.len());
        assert!(!decoder.decode(b"", &mut Vec::new(), 0).unwrap().more_output);
    }
}

#[test]
fn an_lz4_block_over_its_room_is_a_limit_and_can_be_tried_again() {
    let (mut encoder, mut decoder) = pair("lz4");
    let raw = Random::fixed(19).rows(5000);
    for round in 0..30 {
        let wire = encode(&mut encoder, &raw);
        encoder.commit();
        let mut out = Vec::new();
        let limit = Error::Limit { what: "lz4 block's raw size", found: 5000, allowed: 4999 };
        assert_eq!(decoder.decode(&wire, &mut out, 4999), Err(limit), "round {round}");
        assert_eq!(decoder.decode(&wire, &mut out, 5000).unwrap().produced, 5000);
        assert_eq!(out, raw);
    }
    let mut options = DecoderOptions::from(Algorithm::Lz4);
    options.block_raw_max = 100;
    let mut decoder = Decoder::new(options).unwrap();
    let limit = Error::Limit { what: "lz4 block's raw size", found: 101, allowed: 100 };
    assert_eq!(
        decoder.decode(
            &encode(
                &mut {
                    encoder.restart();
                    encoder
                },
                &[7; 101]
            ),
            &mut Vec::new(),
            9999
        ),
        Err(limit)
    );
    options.block_raw_max = usize::MAX;
    assert!(matches!(Decoder::new(options), Err(Error::Limit { .. })));
}

#[test]
fn a_zstd_window_over_the_maximum_is_refused_before_it_is_allocated() {
    let choice = Choice::from(Algorithm::Zstd);
    let mut options = DecoderOptions { window_log_max: 18, ..DecoderOptions::from(Algorithm::Zstd) };
    let mut encoder = Encoder::new(EncoderOptions { choice, window_log: 19 }).unwrap();
    let raw = Random::fixed(21).rows(5000);
    let wire = encode(&mut encoder, &raw);
    let limit = Error::Limit { what: "zstd window size", found: 1 << 19, allowed: 1 << 18 };
    for step in [wire.len(), 1] {
        let mut decoder = Decoder::new(options).unwrap();
        let mut error = None;
        for part in wire.chunks(step) {
            if let Err(found) = decoder.decode(part, &mut Vec::new(), 100) {
                error = Some(found);
                break;
            }
        }
        assert_eq!(error, Some(limit.clone()), "in steps of {step}");
        assert!(decoder.memory_bytes() < 1 << 18);
    }
    options.window_log_max = 19;
    let mut decoder = Decoder::new(options).unwrap();
    assert_eq!(decoder.memory_bytes(), 0);
    assert_eq!(decode_all(&mut decoder, &wire, 100).unwrap(), raw);
    assert!(decoder.memory_bytes() > 1 << 19);
    for window_log in [9, 28] {
        options.window_log_max = window_log;
        assert!(matches!(Decoder::new(options), Err(Error::Limit { .. })));
        assert!(matches!(Encoder::new(EncoderOptions { choice, window_log }), Err(Error::Limit { .. })));
    }
}

/// Payloads whose last frame declares 8 MiB and stays open.
fn window_bombs() -> Vec<Vec<u8>> {
    let open = [0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3, 0, 0, 0];
    let small = [0x28, 0xb5, 0x2f, 0xfd, 0, 0, 1, 0, 0];
    let single_segment = [0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0x80, 0, 0, 0, 0];
    let skippable = [0x5f, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let empty = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0];
    vec![
        open.to_vec(),
        single_segment.to_vec(),
        [&small[..], &open].concat(),
        [&small[..], &small, &single_segment].concat(),
        [&skippable[..], &open].concat(),
        [&empty[..], &small, &skippable, &open].concat(),
    ]
}

#[test]
fn a_decoder_holds_no_more_memory_than_it_is_allowed_however_a_header_comes() {
    const ALLOWED: usize = 1 << 20;
    for bomb in window_bombs() {
        for first in 0..=bomb.len() {
            for piece in [1, 2, bomb.len()] {
                let mut decoder = decoder(Algorithm::Zstd);
                decoder.allow_memory(ALLOWED);
                let (head, tail) = bomb.split_at(first);
                let (mut wanted, mut rest) = (None, &[][..]);
                for part in [head].into_iter().chain(tail.chunks(piece)) {
                    let progress = decoder.decode(part, &mut Vec::new(), 100).unwrap();
                    assert!(decoder.memory_bytes() <= ALLOWED, "{bomb:x?} cut at {first}");
                    rest = &part[progress.consumed..];
                    wanted = progress.wants_memory;
                    if wanted.is_some() {
                        break;
                    }
                }
                let wanted = wanted.unwrap_or_else(|| panic!("{bomb:x?} cut at {first} asks for nothing"));
                assert!(wanted > 8 << 20, "{wanted}");
                decoder.allow_memory(wanted);
                decoder.decode(rest, &mut Vec::new(), 100).unwrap();
                assert!((8 << 20..=wanted).contains(&decoder.memory_bytes()), "{bomb:x?} cut at {first}");
            }
        }
    }
}

#[test]
fn a_decoder_that_is_allowed_memory_step_by_step_gives_back_all() {
    for text in ["lz4", "zlib:1", "zstd:1"] {
        let (mut encoder, mut decoder) = pair(text);
        decoder.allow_memory(0);
        let raw = Random::fixed(23).rows(40_000);
        let wire = encode(&mut encoder, &raw);
        let step = if decoder.needs_whole_payload() { wire.len() } else { 3 };
        let (mut out, mut asked) = (Vec::new(), 0);
        for mut part in wire.chunks(step) {
            loop {
                let progress = decoder.decode(part, &mut out, 1 << 20).unwrap();
                part = &part[progress.consumed..];
                let Some(bytes) = progress.wants_memory else { break };
                assert_eq!((progress.produced, decoder.memory_bytes()), (0, 0), "{text}");
                decoder.allow_memory(bytes);
                asked += 1;
            }
            assert!(part.is_empty());
        }
        assert_eq!((out == raw, asked), (true, 1), "{text}");
    }
}

#[test]
fn bytes_after_the_end_of_a_zlib_stream_are_corrupt() {
    // "a" as RFC 1950 with its checksum.
    let whole = [0x78, 0x9c, 0x4b, 0x04, 0x00, 0x00, 0x62, 0x00, 0x62];
    let mut decoder = decoder(Algorithm::Zlib);
    assert_eq!(decode_all(&mut decoder, &whole, 10).unwrap(), b"a");
    let error = decoder.decode(b"x", &mut Vec::new(), 10).unwrap_err();
    assert_eq!(error.to_string(), "corrupt zlib data at byte 9: bytes after the end of the stream");
}

#[test]
fn a_zlib_stream_with_a_preset_dictionary_is_unsupported() {
    let error =
        decoder(Algorithm::Zlib).decode(&[0x78, 0xbb, 0, 1, 2, 3, 4], &mut Vec::new(), 9).unwrap_err();
    assert_eq!(error.to_string(), "zlib does not support streams with a preset dictionary");
}
