//! What a session holds, by algorithm, level and window.

use pgshrink_bench_report::{Result, Table, Unit};
use pgshrink_codec::stream::{Decoder, DecoderOptions, Encoder, EncoderOptions};
use pgshrink_codec::{Algorithm, Choice};
use pgshrink_testkit::corpora;
use pgshrink_wire::policy::WINDOW_LOG_DEFAULT;
use pgshrink_wire::{Dialect, LinkConfig, WindowLog};

use super::{Bench, policy};
use crate::pair::{Pair, SERVER_PIECE_SIZE};
use crate::recording::{Piece, Way};
use crate::session::whole_messages_size;
use crate::source::Form;

/// One end of an active zstd:1 session, both directions.
const ACTIVE_BYTES_MAX: usize = 4 << 20;
/// One end of a session that is quiet.
const IDLE_BYTES_MAX: usize = 64 << 10;
/// Enough to fill every window.
const CARRIED_SIZE: usize = 16 << 20;

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "Bytes on the heap after 16 MiB of COPY went each way. Encoder and decoder: the codec's own figures for one \
        direction. Link: one end of a session, that is an encoder, a decoder and the buffers between. Idle: the same link \
        after it was told that the session is quiet.";
    let columns = [
        ("algorithm", Unit::Text),
        ("window log", Unit::Count),
        ("encoder", Unit::Bytes),
        ("decoder", Unit::Bytes),
        ("link", Unit::Bytes),
        ("link, idle", Unit::Bytes),
    ];
    let mut table = Table::new("memory", "Memory of a session", about, &columns);
    let corpus = corpora::find("deb_package")?;
    let mut answer = bench.with_source(|source| source.answer(&corpus, Form::Copy))?;
    answer.truncate(whole_messages_size(&answer, CARRIED_SIZE)?);
    for (algorithm, level, window_logs) in [
        (Algorithm::Zstd, 1, &[16, 18, 19, 20, 23][..]),
        (Algorithm::Zstd, 3, &[16, 18, 19, 20, 23]),
        (Algorithm::Lz4, 1, &[WINDOW_LOG_DEFAULT]),
        (Algorithm::Zlib, 1, &[WINDOW_LOG_DEFAULT]),
        (Algorithm::Zlib, 6, &[WINDOW_LOG_DEFAULT]),
    ] {
        let choice = Choice::new(algorithm, level)?;
        for window_log in window_logs {
            let (encoder, decoder) = codec(choice, *window_log, &answer)?;
            let (active, idle) = link(choice, *window_log, &answer)?;
            let log = if algorithm == Algorithm::Zstd { (*window_log as usize).into() } else { "".into() };
            table.row([
                choice.to_string().into(),
                log,
                encoder.into(),
                decoder.into(),
                active.into(),
                idle.into(),
            ]);
            if (choice, *window_log) == (Choice::new(Algorithm::Zstd, 1)?, WINDOW_LOG_DEFAULT) {
                table.verdict(
                    "memory of an active zstd:1 link, both directions",
                    "at most 4 MiB",
                    format!("{} bytes", pgshrink_bench_report::markdown::grouped(active as f64)),
                    active <= ACTIVE_BYTES_MAX,
                );
                table.verdict(
                    "memory of a zstd:1 link that carried bulk and is idle now",
                    "at most 64 KiB",
                    format!("{} bytes", pgshrink_bench_report::markdown::grouped(idle as f64)),
                    idle <= IDLE_BYTES_MAX,
                );
            }
        }
    }
    Ok(table)
}

fn codec(choice: Choice, window_log: u32, raw: &[u8]) -> Result<(usize, usize)> {
    let mut encoder = Encoder::new(EncoderOptions { choice, window_log })?;
    let mut decoder = Decoder::new(DecoderOptions::from(choice.algorithm))?;
    let (mut wire, mut back) = (Vec::new(), Vec::new());
    for chunk in raw.chunks(LinkConfig::default().policy.frame_size.min(encoder.chunk_max())) {
        wire.clear();
        back.clear();
        encoder.encode(chunk, &mut wire)?;
        encoder.commit();
        decoder.decode(&wire, &mut back, 2 * chunk.len())?;
    }
    Ok((encoder.memory_bytes(), decoder.memory_bytes()))
}

fn link(choice: Choice, window_log: u32, raw: &[u8]) -> Result<(usize, usize)> {
    let config = policy(|policy| policy.window_log = WindowLog::Fixed(window_log));
    let mut pair = Pair::new(Dialect::Ack, &choice.to_string(), config)?;
    let pieces: Vec<Piece> = raw
        .chunks(SERVER_PIECE_SIZE)
        .flat_map(|bytes| Way::BOTH.map(|way| Piece { way, bytes: bytes.to_vec() }))
        .collect();
    pair.carry_dialogue(&pieces)?;
    let active = pair.link_memory_bytes();
    pair.release_idle()?;
    Ok((active, pair.link_memory_bytes()))
}
