//! Processor time of the links against the codec alone.

use pgshrink_bench_report::{Result, Samples, Table, Unit};
use pgshrink_codec::{Algorithm, Choice};
use pgshrink_testkit::corpora;
use pgshrink_wire::policy::{FRAME_SIZE_DEFAULT, WINDOW_LOG_DEFAULT};
use pgshrink_wire::{Dialect, LinkConfig};

use super::Bench;
use crate::TIMED_CORPORA;
use crate::pair::Pair;
use crate::session::whole_messages_size;
use crate::source::Form;
use crate::yardstick::codec_alone;

/// Of each answer.
const SIZE_MAX: usize = 32 << 20;
/// The links may not use up what sockets need of the limit for the whole way, 1.5.
const LINK_TO_CODEC_MAX: f64 = 1.15;

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "COPY OUT through both links (grouping, policy, frames, checks, codec) against the codec alone on chunks of \
        120 KiB, round by round in turn: user and system seconds of the thread per 10^9 plain bytes, compression and \
        decompression together. The machine has no counters of instructions. What sockets add is in the table of hops.";
    let columns = [
        ("corpus", Unit::Text),
        ("algorithm", Unit::Text),
        ("codec alone, s/GB", Unit::Seconds),
        ("links, s/GB", Unit::Seconds),
        ("links to codec", Unit::Ratio),
    ];
    let mut table = Table::new("cpu", "Processor time in process", about, &columns);
    let rounds = if bench.full { 9 } else { 3 };
    let mut worst = (f64::MIN, String::new());
    for name in TIMED_CORPORA {
        let corpus = corpora::find(name)?;
        let mut answer = bench.with_source(|source| source.answer(&corpus, Form::Copy))?;
        answer.truncate(whole_messages_size(&answer, SIZE_MAX)?);
        let gigabytes = answer.len() as f64 / 1e9;
        for (algorithm, level) in [(Algorithm::Zstd, 1), (Algorithm::Lz4, 1), (Algorithm::Zlib, 1)] {
            let choice = Choice::new(algorithm, level)?;
            let (mut alone, mut links) = (Samples::default(), Samples::default());
            for _ in 0..rounds {
                let cost = codec_alone(choice, WINDOW_LOG_DEFAULT, &answer, FRAME_SIZE_DEFAULT)?;
                alone.push(cost.seconds() / gigabytes);
                let mut pair = Pair::new(Dialect::Restart, &choice.to_string(), LinkConfig::default())?;
                links.push(pair.carry_answer(&answer)?.seconds() / gigabytes);
            }
            let ratio = links.over(&alone);
            if choice.algorithm == Algorithm::Zstd && ratio.median() > worst.0 {
                worst = (ratio.median(), name.to_owned());
            }
            table.row([
                name.into(),
                choice.to_string().into(),
                alone.spread(),
                links.spread(),
                ratio.spread(),
            ]);
        }
    }
    table.verdict(
        "CPU of both links at zstd:1 against the codec alone, in process",
        &format!("at most {LINK_TO_CODEC_MAX} (own line, so that sockets fit into 1.5)"),
        format!("{:.3} at worst ({})", worst.0, worst.1),
        worst.0 <= LINK_TO_CODEC_MAX,
    );
    Ok(table)
}
