use pgshrink_codec::Error;
use pgshrink_codec::pglz::{self, Strategy, Workspace};

use crate::random::Random;

fn compress(strategy: &Strategy, raw: &[u8]) -> Option<Vec<u8>> {
    let mut out = b"earlier".to_vec();
    let paid = pglz::compress(&mut Workspace::new(), strategy, raw, &mut out);
    assert!(paid || out == b"earlier");
    assert!(out.len() - 7 <= pglz::bound(raw.len()));
    paid.then(|| out.split_off(7))
}

fn decompress(block: &[u8], raw_len: usize) -> Result<Vec<u8>, Error> {
    let mut out = b"earlier".to_vec();
    pglz::decompress(block, raw_len, &mut out)?;
    Ok(out.split_off(7))
}

#[test]
fn a_value_round_trips_with_a_used_workspace() {
    let mut random = Random::seeded("pglz");
    let mut workspace = Workspace::new();
    for _ in 0..300 {
        let raw = random.chunk();
        let mut block = Vec::new();
        assert!(pglz::compress(&mut workspace, &Strategy::UNCONDITIONAL, &raw, &mut block));
        assert!(decompress(&block, raw.len()).unwrap() == raw);
        assert_eq!(
            compress(&Strategy::UNCONDITIONAL, &raw),
            Some(block),
            "the workspace left something behind"
        );
    }
}

#[test]
fn the_strategies_refuse_what_the_server_refuses() {
    let incompressible: Vec<u8> = {
        let mut random = Random::fixed(1);
        (0..2000).map(|_| random.next() as u8).collect()
    };
    assert_eq!(compress(&Strategy::DEFAULT, &[b'a'; 31]), None, "under 32 bytes");
    assert!(compress(&Strategy::DEFAULT, &[b'a'; 32]).is_some());
    assert_eq!(compress(&Strategy::DEFAULT, &incompressible), None);
    assert_eq!(compress(&Strategy::ALWAYS, &incompressible), None);
    assert_eq!(compress(&Strategy::UNCONDITIONAL, &incompressible).unwrap().len(), 2250);
    // A fifth saved is too little for the default strategy.
    let mut fifth = incompressible[..800].to_vec();
    fifth.extend_from_within(..400);
    assert_eq!(compress(&Strategy::DEFAULT, &fifth), None);
    assert!(compress(&Strategy::ALWAYS, &fifth).is_some());
    // Nothing found in the first 1024 bytes.
    let late = [&incompressible[..1500], &[b'a'; 8000]].concat();
    assert_eq!(compress(&Strategy::DEFAULT, &late), None);
}

#[test]
fn references_are_written_as_the_format_says() {
    // 273 + 1: a literal and the longest reference.
    assert_eq!(compress(&Strategy::ALWAYS, &[b'a'; 274]).unwrap(), [0b10, b'a', 0x0f, 1, 255]);
    assert_eq!(compress(&Strategy::ALWAYS, &[b'a'; 18]).unwrap(), [0b10, b'a', 0x0e, 1]);
    assert_eq!(decompress(&[0b10, b'a', 0x0f, 1, 0], 19).unwrap(), [b'a'; 19]);
    let mut raw: Vec<u8> = (0..0x400u32).flat_map(|i| (i as u16 | 0x8000).to_be_bytes()).collect();
    raw.extend_from_within(raw.len() - 0x7f0..raw.len() - 0x7e0);
    let block = compress(&Strategy::UNCONDITIONAL, &raw).unwrap();
    assert_eq!(decompress(&block, raw.len()).unwrap(), raw);
}

#[test]
fn a_reference_to_nowhere_or_past_the_end_is_corrupt() {
    for (block, raw_len, detail) in [
        (&[0b01, 0x00, 1][..], 3, "reference to before the begin"),
        (&[0b10, b'a', 0x00, 0], 4, "reference to before the begin"),
        (&[0b10, b'a', 0x00, 2], 4, "reference to before the begin"),
        (&[0b10, b'a', 0x00, 1], 3, "longer than the promised size"),
        (&[0b10, b'a', 0x00, 1], 5, "shorter than the promised size"),
        (&[0b10, b'a', 0x00], 4, "truncated reference"),
        (&[0b10, b'a', 0x0f, 1], 20, "truncated reference"),
        (&[0b00, b'a', b'b'], 1, "bytes after the promised size"),
        (&[0b00, b'a', b'b'], 0, "bytes after the promised size"),
        (&[], 1, "shorter than the promised size"),
        (&[], 1000, "too short for the promised size"),
    ] {
        match decompress(block, raw_len).unwrap_err() {
            Error::Corrupt { detail: found, .. } => assert_eq!(found, detail, "{block:?}"),
            error => panic!("{error}"),
        }
    }
}

/// What was stored in a PostgreSQL 15 table (column of type bytea, storage main, compression pglz; read with
/// pageinspect) to get tests/data/pglz.golden. Text, bytes with the high bit, runs, and more than the history holds.
fn golden_values() -> Vec<Vec<u8>> {
    let mut seed = 1u64;
    let mut next = move |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    let words =
        ["Müller", "straße", "order", "total", "2024-05-17", "\t", "customer", "Øre", "naïve", "0000"];
    let mut text = |len: usize| {
        let mut out = Vec::new();
        while out.len() < len {
            out.extend_from_slice(words[next(10) as usize].as_bytes());
            out.extend_from_slice(next(300).to_string().as_bytes());
        }
        out.truncate(len);
        out
    };
    let (short, medium, long) = (text(2100), text(5000), text(15_000));
    let mut binary: Vec<u8> = (0..700).map(|i| (next(40) as u8).wrapping_mul(i as u8 | 0x80)).collect();
    for _ in 0..160 {
        let from = next(binary.len() as u64 - 40) as usize;
        binary.extend_from_within(from..from + 3 + next(37) as usize);
    }
    let mut runs = vec![0; 4000];
    runs.extend((0..500).flat_map(|i| vec![(i * 7) as u8; 1 + next(20) as usize]));
    vec![short, medium, long, binary, runs, vec![0xff; 100_000]]
}

#[test]
fn the_result_is_the_servers_byte_for_byte() {
    let golden = include_bytes!("../data/pglz.golden");
    let mut rest = &golden[..];
    let mut workspace = Workspace::new();
    for (index, raw) in golden_values().into_iter().enumerate() {
        let (size, after) = rest.split_first_chunk().unwrap();
        let (stored, after) = after.split_at(u32::from_be_bytes(*size) as usize);
        rest = after;
        assert!(decompress(stored, raw.len()).unwrap() == raw, "value {index}");
        let mut block = Vec::new();
        assert!(pglz::compress(&mut workspace, &Strategy::DEFAULT, &raw, &mut block));
        assert!(block == stored, "value {index}: {} bytes, the server {}", block.len(), stored.len());
    }
    assert!(rest.is_empty());
}

#[test]
#[ignore = "prints the golden values for psql, to make the golden file anew"]
fn print_golden_values() {
    for (id, raw) in golden_values().iter().enumerate() {
        let hex: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        println!("insert into t values ({id}, '\\x{hex}');");
    }
}
