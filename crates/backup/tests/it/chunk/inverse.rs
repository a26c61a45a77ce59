//! What goes in comes out.

use pgshrink_backup::chunk::{CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MAX, ChunkEncoder, ChunkError, Level};
use pgshrink_backup::chunk::{Codec, Content, Habit};
use pgshrink_testkit::{Rng, Seed};

use super::{BLOCK, PAGE_SIZE, decode, encoder, heap, pages, real_pages, there_and_back};

/// Pages of all kinds, some of them damaged, some of zeros, some of noise.
fn mixture(rng: &mut Rng, length: usize) -> Vec<u8> {
    let real = real_pages();
    let mut raw = Vec::new();
    while raw.len() < length * PAGE_SIZE {
        let mut page = match rng.below(10) {
            0 => vec![0; PAGE_SIZE],
            1 => rng.bytes(PAGE_SIZE),
            2 => rng.text(PAGE_SIZE),
            _ => rng.pick(&real).1.clone(),
        };
        for _ in 0..if rng.chance(40) { rng.between(1, 8) } else { 0 } {
            let range = if rng.chance(50) { 300 } else { PAGE_SIZE };
            page[rng.below(range)] = rng.below(256) as u8;
        }
        raw.extend_from_slice(&page);
    }
    raw
}

#[test]
fn chunks_of_pages_of_all_kinds_come_back() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut encoder = encoder();
    for round in 0..60 {
        let raw_pages = rng.between(1, 128);
        let raw = mixture(&mut rng, raw_pages);
        let first_block = if round % 10 == 0 { u32::MAX - 1 } else { BLOCK };
        there_and_back(&mut encoder, &raw, pages(first_block), &mut Habit::default());
        there_and_back(&mut encoder, &raw, Content::Plain, &mut Habit::default());
    }
}

#[test]
fn any_bytes_of_any_length_come_back_whatever_they_are_said_to_be() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut encoder = encoder();
    let lengths = (0..70).chain([PAGE_SIZE - 1, PAGE_SIZE, PAGE_SIZE + 1, 3 * PAGE_SIZE]).chain([
        CHUNK_BYTES_DEFAULT - 1,
        CHUNK_BYTES_DEFAULT + PAGE_SIZE,
        CHUNK_BYTES_MAX,
    ]);
    for length in lengths {
        for raw in [rng.bytes(length), rng.text(length), vec![0; length], vec![0xff; length]] {
            for content in [Content::Plain, pages(0), pages(u32::MAX)] {
                there_and_back(&mut encoder, &raw, content, &mut Habit::default());
            }
        }
    }
}

#[test]
fn every_level_decodes_the_same() {
    let mut rng = Seed::from_env_or_time().rng();
    let raw = heap(16, &mut rng);
    let mut sizes = Vec::new();
    for level in Level::MIN.to_i32()..=Level::MAX.to_i32() {
        let mut encoder = ChunkEncoder::new(Level::new(level).unwrap());
        let (codec, payload) = there_and_back(&mut encoder, &raw, pages(0), &mut Habit::default());
        assert_eq!(codec, Codec::Columns);
        sizes.push(payload.len());
    }
    assert!(sizes.last() < sizes.first());
}

#[test]
fn tables_become_columns_and_are_smaller_than_by_zstd() {
    let mut rng = Seed::from_env_or_time().rng();
    let raw = heap(64, &mut rng);
    let mut encoder = encoder();
    let (codec, columns) = there_and_back(&mut encoder, &raw, pages(0), &mut Habit::default());
    let (plain, zstd) = there_and_back(&mut encoder, &raw, Content::Plain, &mut Habit::default());
    assert_eq!((codec, plain), (Codec::Columns, Codec::Zstd));
    assert!(columns.len() * 13 < zstd.len() * 10, "{}, {}", columns.len(), zstd.len());
}

#[test]
fn what_columns_make_larger_goes_by_zstd() {
    let mut rng = Seed::from_env_or_time().rng();
    let raw = rng.bytes(PAGE_SIZE).repeat(64);
    let (codec, payload) = there_and_back(&mut encoder(), &raw, pages(0), &mut Habit::default());
    let (_, zstd) = there_and_back(&mut encoder(), &raw, Content::Plain, &mut Habit::default());
    assert_eq!((codec, payload.len()), (Codec::Zstd, zstd.len()));
}

#[test]
fn a_habit_of_one_kind_of_chunks_changes_with_them() {
    let mut rng = Seed::from_env_or_time().rng();
    let table = heap(16, &mut rng);
    // Columns of these are larger by a few bytes, and much larger than those of the table.
    let others = rng.bytes(PAGE_SIZE).repeat(2);
    let (mut encoder, mut habit) = (encoder(), Habit::default());
    for _ in 0..5 {
        assert_eq!(there_and_back(&mut encoder, &table, pages(0), &mut habit).0, Codec::Columns);
    }
    // So the first of them is tried both ways at once.
    assert_eq!(there_and_back(&mut encoder, &others, pages(0), &mut habit).0, Codec::Zstd);
    assert_eq!(there_and_back(&mut encoder, &others, pages(0), &mut habit).0, Codec::Zstd);
    let codecs: Vec<Codec> =
        (0..40).map(|_| there_and_back(&mut encoder, &table, pages(0), &mut habit).0).collect();
    assert!(codecs[..5].contains(&Codec::Zstd), "a habit is kept for some chunks");
    assert!(codecs[17..].iter().all(|codec| *codec == Codec::Columns), "{codecs:?}");
}

#[test]
fn zeros_take_next_to_nothing_and_noise_nothing_more() {
    let mut rng = Seed::from_env_or_time().rng();
    for length in [CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MAX, CHUNK_BYTES_DEFAULT - 5] {
        for content in [Content::Plain, pages(9)] {
            let (_, zeros) = there_and_back(&mut encoder(), &vec![0; length], content, &mut Habit::default());
            assert!(zeros.len() < 100, "{}", zeros.len());
            let noise = rng.bytes(length);
            let (codec, payload) = there_and_back(&mut encoder(), &noise, content, &mut Habit::default());
            assert_eq!((codec, payload.len()), (Codec::Raw, length));
        }
    }
}

#[test]
fn a_checksum_comes_back_by_its_block_and_by_no_other() {
    let real = real_pages();
    let page = &real.iter().find(|(name, _)| name == "heap-checksum").unwrap().1;
    let raw = [&vec![0; PAGE_SIZE][..], page].concat();
    let content = pages(BLOCK - 1);
    let (codec, payload) = there_and_back(&mut encoder(), &raw, content, &mut Habit::default());
    assert_eq!(codec, Codec::Columns);
    let elsewhere = decode(codec, &payload, pages(BLOCK), raw.len()).unwrap();
    assert!(elsewhere != raw);
    assert!(matches!(decode(codec, &payload, Content::Plain, raw.len()), Err(ChunkError::Corrupt { .. })));
    // The page after the last block there can be has no number.
    let last = pages(u32::MAX);
    assert!(matches!(decode(codec, &payload, last, raw.len()), Err(ChunkError::Pages(_))));
    there_and_back(&mut encoder(), &raw, last, &mut Habit::default());
}

#[test]
fn sizes_and_levels_out_of_range_are_refused() {
    let mut out = Vec::new();
    let large = vec![0; CHUNK_BYTES_MAX + 1];
    let done = encoder().encode(&large, Content::Plain, &mut Habit::default(), &mut out);
    assert!(matches!(done, Err(ChunkError::Limit { found, allowed, .. }) if found == allowed + 1));
    assert!(out.is_empty());
    for codec in [Codec::Raw, Codec::Zstd, Codec::Columns] {
        for raw_len in [CHUNK_BYTES_MAX + 1, usize::MAX] {
            let done = decode(codec, &[], pages(0), raw_len);
            assert!(matches!(done, Err(ChunkError::Limit { .. })));
        }
    }
    for level in [0, -1, 20, i32::MIN, i32::MAX] {
        assert!(matches!(Level::new(level), Err(ChunkError::Limit { .. })));
    }
    for byte in (0..=u8::MAX).filter(|byte| !(1..=3).contains(byte)) {
        assert_eq!(Codec::from_byte(byte), Err(ChunkError::Codec { found: byte }));
    }
    for codec in [Codec::Raw, Codec::Zstd, Codec::Columns] {
        assert_eq!(Codec::from_byte(codec.byte()), Ok(codec));
    }
}

#[test]
fn an_encoder_says_what_memory_it_takes() {
    let bytes = |level: i32| ChunkEncoder::bytes_max(Level::new(level).unwrap());
    assert!((1..=3).all(|level| bytes(level) <= 9 << 20), "{:?}", [1, 2, 3].map(bytes));
    assert!(bytes(19) <= 64 << 20, "{}", bytes(19));
}
