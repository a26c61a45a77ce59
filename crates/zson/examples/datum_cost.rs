//! What datums cost beside bare zstd: `cargo run --release -p pgshrink-zson --example datum_cost -- lines.ndjson...`
//!
//! For each file, its lines being the documents, and for zstd:1, zstd:3 and lz4 with the dictionary that training
//! prefers: bytes per held-out document as jsonb, as a magicless zstd frame (content size, check sum and dictionary
//! id off) and as a datum, then nanoseconds per document of the bare calls with a digested dictionary and of ours.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::ops::ControlFlow;
use std::time::Instant;

use pgshrink_codec::{Algorithm, Choice, Dictionary};
use pgshrink_zson::training::{Options, train};
use pgshrink_zson::{Decoder, DictionaryId, Encoder, ReadingDictionary, WritingDictionary, datum};
use zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict, FrameFormat};

const SAMPLES: usize = 20_000;
const HOLDOUT: usize = 2_000;
const BUFFER_BYTES: usize = 64 << 20;
/// The best of so many passes counts, as other processes disturb.
const PASSES: usize = 9;

fn main() {
    println!(
        "| file | choice | dictionary | jsonb | magicless | datum | more | encode ns bare, ours, x | \
         decode ns bare, ours, x | training s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for path in std::env::args().skip(1) {
        let text = std::fs::read(&path).unwrap();
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let step = (lines.len() / (SAMPLES + HOLDOUT)).max(1);
        let picked: Vec<&[u8]> = lines.iter().step_by(step).copied().collect();
        let (holdout, training): (Vec<_>, Vec<_>) =
            picked.into_iter().enumerate().partition(|(index, _)| index % 11 == 5);
        let holdout: Vec<&[u8]> = holdout.into_iter().map(|(_, line)| line).take(HOLDOUT).collect();
        let training: Vec<&[u8]> = training.into_iter().map(|(_, line)| line).collect();
        let name = path.rsplit('/').next().unwrap();
        for choice in [
            Choice::new(Algorithm::Zstd, 1).unwrap(),
            Choice::new(Algorithm::Zstd, 3).unwrap(),
            Algorithm::Lz4.into(),
        ] {
            row(name, choice, &training, &holdout);
        }
    }
}

/// Bytes of all documents, and nanoseconds for encoding and decoding them.
struct Cost {
    bytes: usize,
    encode: f64,
    decode: f64,
}

fn row(name: &str, choice: Choice, training: &[&[u8]], holdout: &[&[u8]]) {
    let begin = Instant::now();
    let report = train(training, &Options::new(choice), &mut |_| ControlFlow::Continue(())).unwrap();
    let seconds = begin.elapsed().as_secs_f64();
    let winner = report.candidates[report.winner_index];
    let Some(dictionary) = report.winner else {
        println!("| {name} | {choice} | none |");
        return;
    };
    let (bare, ours) = (bare(choice, &dictionary, holdout), ours(choice, &dictionary, holdout));
    let count = holdout.len() as f64;
    let raw: usize = holdout.iter().map(|document| document.len()).sum();
    println!(
        "| {name} | {choice} | {} {} | {:.0} | {:.1} | {:.1} | {:+.2} | {:.0}, {:.0}, {:.2} | \
         {:.0}, {:.0}, {:.2} | {seconds:.1} |",
        winner.kind,
        winner.size,
        raw as f64 / count,
        bare.bytes as f64 / count,
        ours.bytes as f64 / count,
        (ours.bytes as f64 - bare.bytes as f64) / count,
        bare.encode / count,
        ours.encode / count,
        ours.encode / bare.encode,
        bare.decode / count,
        ours.decode / count,
        ours.decode / bare.decode,
    );
    for candidate in report.candidates {
        let average = candidate.holdout_bytes as f64 / report.holdout_documents as f64;
        eprintln!("  {name} {choice} {} {}: {average:.1}", candidate.kind, candidate.size);
    }
}

/// zstd's own calls with a digested dictionary; for LZ4 those of zstd at level 3.
fn bare(choice: Choice, dictionary: &Dictionary, documents: &[&[u8]]) -> Cost {
    let level = if choice.algorithm == Algorithm::Zstd { choice.level.0 } else { 3 };
    let (cdict, ddict) = (CDict::create(dictionary.bytes(), level), DDict::create(dictionary.bytes()));
    let mut magicless = CCtx::create();
    for parameter in [
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::DictIdFlag(false),
    ] {
        magicless.set_parameter(parameter).unwrap();
    }
    magicless.ref_cdict(&cdict).unwrap();
    let mut buffer = vec![0; BUFFER_BYTES];
    let bytes =
        documents.iter().map(|document| magicless.compress2(&mut buffer[..], document).unwrap()).sum();

    let (mut context, mut out, mut ends) = (CCtx::create(), Vec::with_capacity(BUFFER_BYTES), Vec::new());
    let encode = time(|| {
        out.clear();
        ends.clear();
        for document in documents {
            let size = context.compress_using_cdict(&mut buffer[..], document, &cdict).unwrap();
            out.extend_from_slice(&buffer[..size]);
            ends.push(out.len());
        }
    });
    let mut context = DCtx::create();
    let decode = time(|| {
        let mut start = 0;
        for end in &ends {
            context.decompress_using_ddict(&mut buffer[..], &out[start..*end], &ddict).unwrap();
            start = *end;
        }
    });
    Cost { bytes, encode, decode }
}

fn ours(choice: Choice, dictionary: &Dictionary, documents: &[&[u8]]) -> Cost {
    let id = DictionaryId::new(7).unwrap();
    let writing = WritingDictionary::new(id, dictionary, choice).unwrap();
    let reading = ReadingDictionary::new(id, dictionary).unwrap();
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let (mut buffer, mut out) = (vec![0; BUFFER_BYTES], Vec::with_capacity(BUFFER_BYTES));
    let mut ends = Vec::new();
    let encode = time(|| {
        out.clear();
        ends.clear();
        for document in documents {
            encoder.encode(choice, Some(&writing), document, &mut out).unwrap();
            ends.push(out.len());
        }
    });
    let decode = time(|| {
        let mut start = 0;
        for end in &ends {
            let datum::Stored::Current(header) = datum::parse(&out[start..*end]).unwrap() else { panic!() };
            decoder.decode(&header, Some(&reading), &mut buffer[..header.raw_len()]).unwrap();
            start = *end;
        }
    });
    Cost { bytes: out.len(), encode, decode }
}

/// Nanoseconds of the quickest pass.
fn time(mut pass: impl FnMut()) -> f64 {
    (0..PASSES)
        .map(|_| {
            let start = Instant::now();
            pass();
            start.elapsed().as_nanos() as f64
        })
        .fold(f64::MAX, f64::min)
}
