//! What a stream costs: `cargo run --release -p pgshrink-codec --example stream_cost -- corpus.csv`
//!
//! For each algorithm: nanoseconds per flushed chunk of a pgbench -S dialogue in a warm context, then MB/s and
//! ratio over a corpus in 32 KiB chunks, and the memory of both halves.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::time::Instant;

use pgshrink_codec::stream::{Decoder, DecoderOptions, Encoder, EncoderOptions};
use pgshrink_codec::{AlgorithmList, Choice};

const CHUNK_BYTES: usize = 32 << 10;
const DIALOGUE_ROUNDS: usize = 50_000;
/// The best of so many passes counts, as other processes disturb.
const PASSES: usize = 9;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let corpus = args.get(1).map(|path| std::fs::read(path).unwrap()).unwrap_or_default();
    let cases = args
        .get(2)
        .map_or("zstd:1/18,zstd:1/19,zstd:3/18,zstd:3/19,zstd:3/23,lz4/19,zlib:1/19,zlib:6/19", |s| s);
    println!(
        "| choice/window log | query: ns out, ns in, bytes | reply: the same | query alone: ns out, bytes | \
              abandoned query: ns | bulk: MB/s out, MB/s in, ratio | dialogue KiB out, in | bulk KiB out, in |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for case in cases.split(',') {
        let (choice, window_log) = case.split_once('/').unwrap();
        let choice = choice.parse::<AlgorithmList>().unwrap().get(0).unwrap();
        let options = EncoderOptions { choice, window_log: window_log.parse().unwrap() };
        let (query, small) = dialogue(options, &queries());
        let (reply, _) = dialogue(options, &replies());
        let (alone, abandoned) = (alone(options, &queries()), abandoned(options, &queries()));
        let (bulk, large) = bulk(options, &corpus);
        println!("| {case} | {query} | {reply} | {alone} | {abandoned} | {bulk} | {small} | {large} |");
    }
}

fn decoder(choice: Choice) -> Decoder {
    Decoder::new(DecoderOptions::from(choice.algorithm)).unwrap()
}

fn queries() -> Vec<Vec<u8>> {
    let mut seed = 1u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % 1_000_000
    };
    let message = |aid| {
        let sql = format!("SELECT abalance FROM pgbench_accounts WHERE aid = {aid};\0");
        [b"Q", &(sql.len() as u32 + 4).to_be_bytes()[..], sql.as_bytes()].concat()
    };
    (0..DIALOGUE_ROUNDS).map(|_| message(next())).collect()
}

fn replies() -> Vec<Vec<u8>> {
    let message = |balance: usize| {
        let value = balance.to_string();
        let length = value.len() as u32;
        [
            &b"T\0\0\0\x21\0\x01abalance\0\0\0\x40\x0a\0\x03\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0"[..],
            b"D",
            &(length + 10).to_be_bytes(),
            b"\0\x01",
            &length.to_be_bytes(),
            value.as_bytes(),
            b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I",
        ]
        .concat()
    };
    (0..DIALOGUE_ROUNDS).map(|i| message(i * 7919 % 9973)).collect()
}

fn dialogue(options: EncoderOptions, messages: &[Vec<u8>]) -> (String, String) {
    let passes: Vec<_> = (0..PASSES).map(|_| dialogue_pass(options, messages)).collect();
    let out_ns = passes.iter().map(|pass| pass.0).min().unwrap();
    let in_ns = passes.iter().map(|pass| pass.1).min().unwrap();
    let raw: usize = messages.iter().map(Vec::len).sum();
    let count = messages.len() as f64;
    let bytes = format!("{out_ns}, {in_ns}, {:.0} -> {:.1}", raw as f64 / count, passes[0].2 as f64 / count);
    (bytes, passes[0].3.clone())
}

fn dialogue_pass(options: EncoderOptions, messages: &[Vec<u8>]) -> (u128, u128, usize, String) {
    let mut encoder = Encoder::new(options).unwrap();
    let mut decoder = decoder(options.choice);
    let (mut wire, mut ends) = (Vec::with_capacity(64 << 20), Vec::with_capacity(messages.len()));
    let start = Instant::now();
    for message in messages {
        encoder.encode(message, &mut wire).unwrap();
        encoder.commit();
        ends.push(wire.len());
    }
    let out_ns = start.elapsed().as_nanos() / messages.len() as u128;
    let (mut at, mut back) = (0, Vec::with_capacity(1 << 20));
    let start = Instant::now();
    for (&end, message) in ends.iter().zip(messages) {
        back.clear();
        decoder.decode(&wire[at..end], &mut back, 1 << 20).unwrap();
        assert!(back == *message);
        at = end;
    }
    let in_ns = start.elapsed().as_nanos() / messages.len() as u128;
    (out_ns, in_ns, wire.len(), memory(&encoder, &decoder))
}

fn bulk(options: EncoderOptions, corpus: &[u8]) -> (String, String) {
    let mut encoder = Encoder::new(options).unwrap();
    let mut decoder = decoder(options.choice);
    let (mut wire, mut ends) = (Vec::with_capacity(corpus.len() + 4096), Vec::new());
    let start = Instant::now();
    for chunk in corpus.chunks(CHUNK_BYTES) {
        encoder.encode(chunk, &mut wire).unwrap();
        encoder.commit();
        ends.push(wire.len());
    }
    let out_s = start.elapsed().as_secs_f64();
    let (mut at, mut back) = (0, Vec::with_capacity(1 << 20));
    let start = Instant::now();
    for (&end, chunk) in ends.iter().zip(corpus.chunks(CHUNK_BYTES)) {
        back.clear();
        while at < end || back.len() < chunk.len() {
            let rest = chunk.len() - back.len();
            at += decoder.decode(&wire[at..end], &mut back, rest.max(1)).unwrap().consumed;
        }
        assert!(back == chunk);
    }
    let in_s = start.elapsed().as_secs_f64();
    let mb = corpus.len() as f64 / 1e6;
    let ratio = corpus.len() as f64 / wire.len().max(1) as f64;
    let rates = format!("{:.0}, {:.0}, {ratio:.3}", mb / out_s, mb / in_s);
    (rates, memory(&encoder, &decoder))
}

/// Each message a unit of its own.
fn alone(options: EncoderOptions, messages: &[Vec<u8>]) -> String {
    let pass = || {
        let (mut encoder, mut wire) = (Encoder::new(options).unwrap(), Vec::with_capacity(64 << 20));
        let start = Instant::now();
        for message in messages {
            encoder.encode_independent(message, &mut wire).unwrap();
            encoder.commit();
        }
        (start.elapsed().as_nanos() / messages.len() as u128, wire.len() / messages.len())
    };
    let (ns, bytes) = (0..PASSES).map(|_| pass()).min().unwrap();
    format!("{ns}, {bytes}")
}

/// Each message twice: first abandoned, then sent. What the first costs.
fn abandoned(options: EncoderOptions, messages: &[Vec<u8>]) -> u128 {
    let pass = |abandon: bool| {
        let (mut encoder, mut wire) = (Encoder::new(options).unwrap(), Vec::with_capacity(64 << 20));
        let start = Instant::now();
        for message in messages {
            if abandon {
                let len = wire.len();
                encoder.encode(message, &mut wire).unwrap();
                encoder.abandon();
                wire.truncate(len);
            }
            encoder.encode(message, &mut wire).unwrap();
            encoder.commit();
        }
        start.elapsed().as_nanos() / messages.len() as u128
    };
    let with = (0..3).map(|_| pass(true)).min().unwrap();
    with.saturating_sub((0..3).map(|_| pass(false)).min().unwrap())
}

fn memory(encoder: &Encoder, decoder: &Decoder) -> String {
    format!("{}, {}", encoder.memory_bytes() >> 10, decoder.memory_bytes() >> 10)
}
