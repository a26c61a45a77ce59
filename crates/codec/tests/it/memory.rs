//! Contexts are measured: zstd's by its own count, the others by what this thread allocates.
use pgshrink_codec::prepared::{CompressorDictionary, DecompressorDictionary};
use pgshrink_codec::{Algorithm, Choice, Dictionary, Level, bare, block, memory};
use pgshrink_testkit::allocations::{Counting, held_bytes};

use crate::random::Random;

#[global_allocator]
static COUNTING: Counting = Counting;

const INPUT_MAX: usize = 9216;

fn choices() -> Vec<Choice> {
    let zstd = [-100, -5, -1].into_iter().chain(1..=22).map(|level| (Algorithm::Zstd, level));
    let zlib = (1..=9).map(|level| (Algorithm::Zlib, level));
    let rest = [Algorithm::Lz4, Algorithm::Pglz, Algorithm::Snappy, Algorithm::Lzfse].map(|one| (one, 0));
    zstd.chain(zlib).chain(rest).map(|(algorithm, level)| Choice::new(algorithm, level).unwrap()).collect()
}

fn inputs(random: &mut Random) -> Vec<Vec<u8>> {
    vec![random.rows(INPUT_MAX), random.rows(700), vec![0; INPUT_MAX], random.payload(INPUT_MAX), vec![3]]
}

#[test]
fn contexts_of_zstd_and_lz4_take_no_more_than_is_said_beforehand() {
    let mut random = Random::seeded("contexts");
    let inputs = inputs(&mut random);
    for len in [600, 16 << 10, 100_000, 256 << 10] {
        let dictionary = Dictionary::new(random.rows(len)).unwrap();
        let reading = DecompressorDictionary::new(&dictionary).unwrap();
        assert!(reading.memory_size() <= memory::decompressor_dictionary_max(len), "{len}");
        for choice in choices() {
            if !matches!(choice.algorithm, Algorithm::Zstd | Algorithm::Lz4) {
                continue;
            }
            let writing = CompressorDictionary::new(&dictionary, choice).unwrap();
            let (found, allowed) = (writing.memory_size(), memory::compressor_dictionary_max(choice, len));
            assert!(found <= allowed && allowed <= 3 * found, "{choice} {len}: {found} of {allowed}");
            let (mut compressor, mut decompressor) = (bare::Compressor::new(), bare::Decompressor::new());
            for with in [None, Some(&writing)] {
                for input in &inputs {
                    let mut payload = Vec::new();
                    let shape = compressor.compress(choice, with, input, &mut payload).unwrap();
                    let mut back = vec![0; input.len()];
                    decompressor.decompress(shape, with.map(|_| &reading), &payload, &mut back).unwrap();
                }
                let len = if with.is_some() { len } else { 0 };
                let (found, allowed) =
                    (compressor.memory_size(), memory::compressor_max(choice, INPUT_MAX, len));
                assert!(found <= allowed, "{choice} with {len}: {found} of {allowed}");
            }
            let allowed = memory::decompressor_max(choice.algorithm, INPUT_MAX + 300);
            assert!(
                decompressor.memory_size() <= allowed,
                "{choice}: {} of {allowed}",
                decompressor.memory_size()
            );
        }
    }
}

#[test]
fn contexts_written_in_rust_take_no_more_than_is_said_beforehand() {
    let mut random = Random::seeded("contexts");
    let inputs = inputs(&mut random);
    for choice in choices() {
        if choice.algorithm == Algorithm::Zstd {
            continue;
        }
        let (mut payloads, mut back) = (Vec::new(), Vec::with_capacity(2 * INPUT_MAX));
        for _ in &inputs {
            payloads.push(Vec::with_capacity(4 * INPUT_MAX));
        }
        let start = held_bytes();
        let mut compressor = block::Compressor::new();
        for (input, payload) in inputs.iter().zip(&mut payloads) {
            compressor.compress(choice, input, payload).unwrap();
        }
        let (found, allowed) = (held_bytes() - start, memory::compressor_max(choice, INPUT_MAX, 0));
        let start = held_bytes();
        let mut decompressor = block::Decompressor::new();
        for (input, payload) in inputs.iter().zip(&payloads) {
            back.clear();
            decompressor.decompress(choice.algorithm, payload, input.len(), &mut back).unwrap();
        }
        let back = held_bytes() - start;
        let allowed_back = memory::decompressor_max(choice.algorithm, INPUT_MAX);
        println!("{choice}: {found} of {allowed}, {back} of {allowed_back}");
        assert!(found <= allowed as isize && back <= allowed_back as isize, "{choice}");
    }
}

#[test]
fn parts_take_no_more_than_is_said_beforehand() {
    let mut random = Random::seeded("parts' contexts");
    let parts = [random.rows(400_000), random.payload(300_000), vec![0; 300_000]];
    let parts = parts.each_ref().map(|part| &part[..]);
    let len = parts.iter().map(|part| part.len()).sum();
    for level in 1..=19 {
        let mut compressor = block::Compressor::new();
        compressor.compress_zstd_parts(Level(level), &parts, &mut Vec::new()).unwrap();
        let (found, allowed) =
            (compressor.zstd_memory_size(), memory::zstd_parts_compressor_max(Level(level), len));
        assert!(found <= allowed && allowed <= 3 * found, "level {level}: {found} of {allowed}");
    }
}
