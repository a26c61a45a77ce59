use pgshrink_codec::stream::{Decoder, DecoderOptions, Encoder, EncoderOptions};
use pgshrink_codec::{Algorithm, Choice, Error, Level};

use crate::random::Random;

const STREAMS: [Algorithm; 3] = [Algorithm::Lz4, Algorithm::Zlib, Algorithm::Zstd];

pub fn encoder(text: &str) -> Encoder {
    let list: pgshrink_codec::AlgorithmList = text.parse().unwrap();
    Encoder::new(EncoderOptions::from(list.get(0).unwrap())).unwrap()
}

pub fn decoder(algorithm: Algorithm) -> Decoder {
    Decoder::new(DecoderOptions::from(algorithm)).unwrap()
}

pub fn pair(text: &str) -> (Encoder, Decoder) {
    let encoder = encoder(text);
    let decoder = decoder(encoder.choice().algorithm);
    (encoder, decoder)
}

/// Decodes one whole payload in steps of at most `room`.
pub fn decode_all(decoder: &mut Decoder, payload: &[u8], room: usize) -> Result<Vec<u8>, Error> {
    let (mut out, mut at) = (Vec::new(), 0);
    loop {
        let before = out.len();
        let progress = decoder.decode(&payload[at..], &mut out, room)?;
        assert!(progress.produced <= room && out.len() == before + progress.produced);
        at += progress.consumed;
        if !progress.more_output {
            assert_eq!(at, payload.len());
            return Ok(out);
        }
        assert!(progress.consumed > 0 || progress.produced > 0 || at == payload.len(), "no progress");
    }
}

pub fn encode(encoder: &mut Encoder, raw: &[u8]) -> Vec<u8> {
    let mut out = b"earlier".to_vec();
    let bound = encoder.bound(raw.len());
    encoder.encode(raw, &mut out).unwrap();
    assert!(out.len() - 7 <= bound, "{} bytes became {}", raw.len(), out.len() - 7);
    out.split_off(7)
}

const CHOICES: [&str; 12] = [
    "lz4",
    "lz4:9",
    "lz4:65537",
    "zlib:1",
    "zlib",
    "zlib:9",
    "zstd:1",
    "zstd",
    "zstd:-7",
    "zstd:9",
    "zstd:12",
    "zstd:19",
];

#[test]
fn a_stream_of_flushed_chunks_comes_back_chunk_by_chunk() {
    comes_back_chunk_by_chunk(decode_all);
}

#[test]
fn bytes_are_the_same_in_slices() {
    comes_back_chunk_by_chunk(decode_all_into_slices);
}

type DecodeAll = fn(&mut Decoder, &[u8], usize) -> Result<Vec<u8>, Error>;

/// Decodes each chunk by `decode`, with some room.
fn comes_back_chunk_by_chunk(decode: DecodeAll) {
    for text in CHOICES {
        let mut random = Random::seeded(text);
        let (mut encoder, mut decoder) = pair(text);
        for _ in 0..60 {
            let raw = random.chunk();
            let wire = encode(&mut encoder, &raw);
            encoder.commit();
            let room = if decoder.needs_whole_payload() { 65_536 } else { 1 + random.below(100_000) };
            assert_eq!(decode(&mut decoder, &wire, room).unwrap(), raw, "{text}");
        }
    }
}

/// As [`decode_all`], but each step goes into a slice of `room` bytes.
fn decode_all_into_slices(decoder: &mut Decoder, payload: &[u8], room: usize) -> Result<Vec<u8>, Error> {
    let (mut out, mut at) = (Vec::new(), 0);
    loop {
        let mut slice = vec![0xa5; room];
        let progress = decoder.decode_into(&payload[at..], &mut slice)?;
        out.extend_from_slice(&slice[..progress.produced]);
        at += progress.consumed;
        if !progress.more_output {
            assert_eq!(at, payload.len());
            return Ok(out);
        }
    }
}

#[test]
fn a_decoder_that_saw_only_the_committed_chunks_gives_exactly_their_bytes() {
    for text in CHOICES {
        let mut random = Random::seeded(text);
        let (mut encoder, mut decoder) = pair(text);
        let levels = encoder.choice().algorithm.levels();
        for step in 0..400 {
            let raw = random.chunk();
            let mut wire = Vec::new();
            let bound = encoder.bound(raw.len());
            if random.chance(10) {
                encoder.encode_independent(&raw, &mut wire).unwrap();
            } else {
                encoder.encode(&raw, &mut wire).unwrap();
            }
            assert!(wire.len() <= bound);
            if random.chance(30) {
                encoder.abandon();
            } else {
                encoder.commit();
                let back = decode_all(&mut decoder, &wire, 65_536).unwrap();
                assert!(back == raw, "{text}, step {step}: {} bytes differ", raw.len());
            }
            match random.below(50) {
                0 => {
                    encoder.restart();
                    decoder.restart();
                }
                1 => {
                    let level = levels.min.0.max(-9) + random.below(levels.max.0.min(16) as usize) as i32;
                    encoder.set_level(Level(level)).unwrap();
                }
                _ => {}
            }
        }
    }
}

#[test]
fn an_abandoned_chunk_costs_at_most_nine_bytes_for_zstd_and_none_for_the_others() {
    let raw = Random::fixed(7).rows(2000);
    for text in ["lz4", "zlib:1", "zstd:1"] {
        let mut encoder = encoder(text);
        let plain = encode(&mut encoder, &raw).len();
        encoder.abandon();
        assert_eq!(encode(&mut encoder, &raw).len(), plain, "{text}: nothing was open");
        encoder.commit();
        let continued = encode(&mut encoder, &raw).len();
        encoder.abandon();
        let after = encode(&mut encoder, &raw).len();
        match encoder.choice().algorithm {
            Algorithm::Zstd => assert_eq!(after, plain + 3, "the open frame is closed first"),
            _ => assert!(after <= continued + 4, "{text}: {continued} bytes, then {after}"),
        }
    }
}

#[test]
fn an_abandoned_independent_chunk_leaves_the_frame_open_for_the_next() {
    for text in ["lz4", "zlib:1", "zstd:1"] {
        let (mut encoder, mut decoder) = pair(text);
        let mut random = Random::fixed(3);
        for abandoned in [true, true, false, true, false] {
            let raw = random.rows(500);
            let mut wire = Vec::new();
            encoder.encode_independent(&raw, &mut wire).unwrap();
            if abandoned {
                encoder.abandon();
            } else {
                encoder.commit();
                assert_eq!(decode_all(&mut decoder, &wire, 65_536).unwrap(), raw, "{text}");
            }
            let wire = encode(&mut encoder, &raw);
            encoder.commit();
            assert_eq!(decode_all(&mut decoder, &wire, 65_536).unwrap(), raw, "{text}");
        }
    }
}

#[test]
fn a_fresh_decoder_reads_an_independent_unit_in_mid_stream() {
    let mut random = Random::fixed(11);
    for text in ["lz4", "zstd:1", "zlib:1", "zlib"] {
        let mut encoder = encoder(text);
        for _ in 0..20 {
            let raw = random.rows(3000);
            encode(&mut encoder, &raw);
            encoder.commit();
            let mut unit = Vec::new();
            encoder.encode_independent(&raw, &mut unit).unwrap();
            encoder.commit();
            let mut fresh = decoder(encoder.choice().algorithm);
            match encoder.choice().algorithm {
                // The stream's header stands at its begin only.
                Algorithm::Zlib => unit.splice(0..0, [0x78, 0x01]).for_each(drop),
                // The end of the frame that was open.
                Algorithm::Zstd => assert_eq!(unit.drain(..3).collect::<Vec<_>>(), [1, 0, 0]),
                _ => {}
            }
            assert_eq!(decode_all(&mut fresh, &unit, 65_536).unwrap(), raw, "{text}");
        }
    }
}

#[test]
fn a_second_copy_of_a_chunk_is_a_reference_to_the_first_even_after_an_abandon() {
    for text in ["lz4", "zlib:1", "zstd:1"] {
        let mut encoder = encoder(text);
        let raw = Random::fixed(5).rows(4000);
        let first = encode(&mut encoder, &raw).len();
        encoder.commit();
        if encoder.choice().algorithm != Algorithm::Zstd {
            encode(&mut encoder, &Random::fixed(6).rows(4000));
            encoder.abandon();
        }
        let again = encode(&mut encoder, &raw).len();
        assert!(again * 10 < first, "{text}: {first} bytes, then {again}");
    }
}

#[test]
fn a_changed_level_is_read_by_the_same_decoder_and_an_unknown_one_refused() {
    for (text, level) in [("lz4", 20), ("zlib:1", 9), ("zstd:1", 12)] {
        let (mut encoder, mut decoder) = pair(text);
        let mut random = Random::fixed(8);
        for level in [level, 1, level] {
            let raw = random.rows(5000);
            let wire = encode(&mut encoder, &raw);
            encoder.commit();
            assert_eq!(decode_all(&mut decoder, &wire, 65_536).unwrap(), raw);
            encoder.set_level(Level(level)).unwrap();
            assert_eq!(encoder.choice().level, Level(level));
        }
        let levels = encoder.choice().algorithm.levels();
        let error = encoder.set_level(Level(levels.max.0 + 1)).unwrap_err();
        assert!(matches!(error, Error::Level { .. }), "{error}");
        assert_eq!(encoder.choice().level, Level(level));
    }
}

#[test]
fn a_restart_begins_a_stream_that_a_fresh_decoder_reads() {
    for text in ["lz4", "zlib", "zstd"] {
        let mut encoder = encoder(text);
        let raw = Random::fixed(9).rows(4000);
        for pending in [false, true] {
            encode(&mut encoder, &raw);
            if !pending {
                encoder.commit();
            }
            encoder.restart();
            let wire = encode(&mut encoder, &raw);
            encoder.abandon();
            let mut fresh = decoder(encoder.choice().algorithm);
            assert_eq!(decode_all(&mut fresh, &wire, 65_536).unwrap(), raw, "{text}");
        }
    }
}

#[test]
fn a_stream_goes_on_after_its_encoder_forgot_or_was_put_away() {
    for text in ["lz4", "zlib:1", "zstd:1"] {
        let (mut encoder, mut decoder) = pair(text);
        let options = EncoderOptions::from(encoder.choice());
        let raw = Random::fixed(12).rows(3000);
        let first = encode(&mut encoder, &raw).len();
        encoder.abandon();
        for round in 0..6 {
            match round % 3 {
                0 => encoder.forget(),
                1 => encoder = Encoder::resume(options, encoder.into_resume()).unwrap(),
                _ => {
                    encode(&mut encoder, b"never sent");
                    encoder = Encoder::resume(options, encoder.into_resume()).unwrap();
                }
            }
            for again in [false, true] {
                let wire = encode(&mut encoder, &raw);
                encoder.commit();
                assert_eq!(decode_all(&mut decoder, &wire, 65_536).unwrap(), raw, "{text}, round {round}");
                assert_eq!(wire.len() < first / 5, again, "{text}, round {round}: {} bytes", wire.len());
            }
        }
    }
}

/// Messages as of an application that says nearly the same again and again.
fn dialogue(random: &mut Random) -> Vec<u8> {
    let sql = format!("SELECT abalance FROM pgbench_accounts WHERE aid = {};", random.below(100_000));
    let mut message = b"Q\0\0\0\x3d".to_vec();
    message.extend_from_slice(sql.as_bytes());
    message
}

#[test]
fn a_long_dialogue_survives_abandons_and_bursts_of_bulk_at_every_window_log() {
    for text in ["zstd:1", "zstd:3", "zlib:1", "lz4"] {
        for window_log in [10, 12, 16, 19] {
            let mut random = Random::seeded(text);
            let choice = encoder(text).choice();
            let mut encoder = Encoder::new(EncoderOptions { choice, window_log }).unwrap();
            let mut options = DecoderOptions::from(choice.algorithm);
            options.window_log_max = window_log;
            let mut decoder = Decoder::new(options).unwrap();
            let mut history: Vec<Vec<u8>> = Vec::new();
            for step in 0..4000 {
                let raw = match random.below(1000) {
                    0..5 => random.rows(6000),
                    5..20 => random.rows(700),
                    20..200 => random.rows(40),
                    200..300 if !history.is_empty() => history[random.below(history.len())].clone(),
                    _ => dialogue(&mut random),
                };
                let wire = encode(&mut encoder, &raw);
                if random.chance(10) {
                    encoder.abandon();
                    continue;
                }
                encoder.commit();
                let back = decode_all(&mut decoder, &wire, 65_536).unwrap();
                assert!(back == raw, "{text}, window log {window_log}, step {step}");
                history.push(raw);
                history.drain(..history.len().saturating_sub(900));
            }
        }
    }
}

#[test]
fn a_dialogue_of_small_messages_shrinks_to_a_third_and_needs_little_memory() {
    for (text, bytes_max, memory_max) in
        [("zstd:1", 19, 256 << 10), ("zlib:1", 19, 512 << 10), ("lz4", 19, 256 << 10)]
    {
        let (mut encoder, mut decoder) = pair(text);
        let mut random = Random::fixed(23);
        let (mut raw_bytes, mut wire_bytes) = (0, 0);
        for _ in 0..2000 {
            let raw = dialogue(&mut random);
            let wire = encode(&mut encoder, &raw);
            encoder.commit();
            decode_all(&mut decoder, &wire, 65_536).unwrap();
            raw_bytes += raw.len();
            wire_bytes += wire.len();
        }
        assert!(raw_bytes / 2000 > 55);
        assert!(wire_bytes / 2000 < bytes_max, "{text}: {} bytes each", wire_bytes / 2000);
        assert!(encoder.memory_bytes() < memory_max, "{text}: {}", encoder.memory_bytes());
        assert!(decoder.memory_bytes() < 512 << 10, "{text}: {}", decoder.memory_bytes());
    }
}

#[test]
fn a_small_zstd_chunk_is_taken_back_exactly_and_a_large_one_costs_the_context() {
    let mut encoder = encoder("zstd:1");
    let mut random = Random::fixed(29);
    for _ in 0..500 {
        let raw = dialogue(&mut random);
        let first = encode(&mut encoder, &raw);
        assert!(encoder.abandon());
        let noise = random.chunk();
        if noise.len() <= 160 {
            encode(&mut encoder, &noise);
            assert!(encoder.abandon());
        }
        assert_eq!(encode(&mut encoder, &raw), first);
        encoder.commit();
    }
    let bulk = random.rows(20_000);
    encode(&mut encoder, &bulk);
    assert!(encoder.abandon(), "the dialogue's frame can go on");
    let raw = dialogue(&mut random);
    assert!(encode(&mut encoder, &raw).len() < 25);
    encoder.commit();
    encode(&mut encoder, &bulk);
    encoder.commit();
    encode(&mut encoder, &bulk);
    assert!(!encoder.abandon());
}

#[test]
fn an_empty_chunk_is_no_bytes() {
    for text in ["lz4", "zlib", "zstd"] {
        let (mut encoder, mut decoder) = pair(text);
        for _ in 0..2 {
            assert_eq!(encode(&mut encoder, b""), b"");
            encoder.commit();
            let mut unit = Vec::new();
            encoder.encode_independent(b"", &mut unit).unwrap();
            encoder.abandon();
            assert_eq!(unit, b"");
            assert_eq!(decode_all(&mut decoder, b"", 10).unwrap(), b"");
            let wire = encode(&mut encoder, b"abc");
            encoder.commit();
            assert_eq!(decode_all(&mut decoder, &wire, 10).unwrap(), b"abc");
        }
    }
}

#[test]
fn a_zstd_decoder_gives_its_window_back_between_frames_only() {
    let (mut encoder, mut decoder) = pair("zstd:1");
    assert!(decoder.at_frame_end());
    let wire = encode(&mut encoder, b"open frame");
    encoder.commit();
    decode_all(&mut decoder, &wire, 100).unwrap();
    assert!(!decoder.at_frame_end());
    decoder.release();
    assert!(decoder.memory_bytes() > 0, "the frame is open");
    let mut unit = Vec::new();
    encoder.encode_independent(b"unit", &mut unit).unwrap();
    encoder.commit();
    assert_eq!(decode_all(&mut decoder, &unit, 1).unwrap(), b"unit");
    assert!(decoder.at_frame_end());
    decoder.release();
    assert_eq!(decoder.memory_bytes(), 0);
    let wire = encode(&mut encoder, b"again");
    assert_eq!(decode_all(&mut decoder, &wire, 100).unwrap(), b"again");
}

#[test]
fn only_lz4_zlib_and_zstd_have_streams() {
    for &algorithm in Algorithm::ALL {
        let streams = STREAMS.contains(&algorithm);
        assert_eq!(Encoder::new(EncoderOptions::from(Choice::from(algorithm))).is_ok(), streams);
        assert_eq!(Decoder::new(DecoderOptions::from(algorithm)).is_ok(), streams);
    }
    let choice = Choice { algorithm: Algorithm::Zlib, level: Level(10) };
    let error = Encoder::new(EncoderOptions::from(choice)).unwrap_err();
    assert_eq!(error.to_string(), "zlib level 10 is out of range: allowed are 1 to 9, and -1 for 6");
}

#[test]
#[should_panic(expected = "without commit or abandon")]
fn encoding_twice_without_a_verdict_is_a_programmers_error() {
    let mut encoder = encoder("zstd:1");
    encode(&mut encoder, b"a");
    encode(&mut encoder, b"b");
}
