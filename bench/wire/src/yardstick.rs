//! What the product is held against in process: the library over everything at once, and the codec without a link.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use pgshrink_bench_report::{Result, cpu_seconds_of_thread};
use pgshrink_codec::Choice;
use pgshrink_codec::stream::{Decoder, DecoderOptions, Encoder, EncoderOptions};

use crate::pair::Cost;

/// Bytes of `text` after `zstd -1` in one piece: of the library that the codec uses or of the machine's program,
/// whichever makes it smaller.
pub fn zstd_in_one_piece(text: &[u8]) -> Result<u64> {
    let mut packed = Vec::with_capacity(zstd_safe::compress_bound(text.len()));
    let library = zstd_safe::compress(&mut packed, text, 1).map_err(zstd_safe::get_error_name)?;
    drop(packed);
    Ok((library as u64).min(zstd_program(text)?))
}

fn zstd_program(text: &[u8]) -> Result<u64> {
    let mut child = Command::new("zstd")
        .args(["-1", "-q", "-c", "--no-check"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("zstd: {error}"))?;
    let (Some(mut input), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("zstd has no pipes".into());
    };
    let size = std::thread::scope(|scope| -> Result<u64> {
        let writer = scope.spawn(move || input.write_all(text));
        let (mut size, mut buffer) = (0, vec![0; 256 << 10]);
        loop {
            match output.read(&mut buffer)? {
                0 => break,
                n => size += n as u64,
            }
        }
        writer.join().map_err(|_| "the thread that feeds zstd panicked")??;
        Ok(size)
    })?;
    if !child.wait()?.success() {
        return Err("zstd failed".into());
    }
    Ok(size)
}

/// The codec on chunks of this size, each flushed with a context that lasts, without messages, frames or policy.
pub fn codec_alone(choice: Choice, window_log: u32, raw: &[u8], chunk_size: usize) -> Result<Cost> {
    let mut encoder = Encoder::new(EncoderOptions { choice, window_log })?;
    let mut decoder = Decoder::new(DecoderOptions::from(choice.algorithm))?;
    let mut cost = Cost::default();
    let (mut wire, mut back) = (Vec::new(), Vec::new());
    for chunk in raw.chunks(chunk_size.min(encoder.chunk_max())) {
        wire.clear();
        back.clear();
        let began = cpu_seconds_of_thread();
        encoder.encode(chunk, &mut wire)?;
        encoder.commit();
        let encoded = cpu_seconds_of_thread();
        let mut used = 0;
        loop {
            let progress = decoder.decode(&wire[used..], &mut back, 2 * chunk.len())?;
            used += progress.consumed;
            if !progress.more_output && used == wire.len() {
                break;
            }
        }
        let decoded = cpu_seconds_of_thread();
        cost.raw += chunk.len() as u64;
        cost.wire += wire.len() as u64;
        cost.send_seconds += encoded - began;
        cost.receive_seconds += decoded - encoded;
        if back != chunk {
            return Err("the codec gave other bytes back".into());
        }
    }
    Ok(cost)
}

/// One permanent stream without any framing: bytes after each of these pieces was flushed into it.
pub fn permanent_stream<'a>(
    choice: Choice,
    window_log: u32,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<u64> {
    let mut encoder = Encoder::new(EncoderOptions { choice, window_log })?;
    let chunk_max = encoder.chunk_max();
    let (mut wire, mut size) = (Vec::new(), 0);
    for chunk in pieces.flat_map(|piece| piece.chunks(chunk_max)) {
        wire.clear();
        encoder.encode(chunk, &mut wire)?;
        encoder.commit();
        size += wire.len() as u64;
    }
    Ok(size)
}
