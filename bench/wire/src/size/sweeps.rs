//! COPY OUT at zstd:1 with other windows and frame sizes.

use pgshrink_bench_report::{Result, Table, Unit, Value};
use pgshrink_wire::policy::{FRAME_SIZE_DEFAULT, WINDOW_LOG_DEFAULT};
use pgshrink_wire::{Dialect, LinkConfig, WindowLog};

use super::{Bench, percent_over, policy};
use crate::pair::Pair;
use crate::session::text_of;
use crate::source::Form;
use crate::yardstick::zstd_in_one_piece;

const WINDOW_LOGS: [u32; 5] = [16, 17, 18, 19, 23];
const FRAME_SIZES_KIB: [usize; 5] = [8, 16, 32, 64, 128];
/// Smaller texts fit into every window and frame.
const TEXT_SIZE_MIN: usize = 256 << 10;

pub(super) fn windows(bench: &Bench) -> Result<Table> {
    let about = format!(
        "COPY OUT of the corpora over 256 KiB at zstd:1, ack dialect, by zstd window log: wire bytes over `zstd -1` of \
         the text in one piece. The default is {WINDOW_LOG_DEFAULT}. What each costs in memory is in the table of memory. \
         `auto` is invited to 23 here, as by a peer with a memory limit of 2 GiB."
    );
    let windows = WINDOW_LOGS.map(WindowLog::Fixed).into_iter().chain([WindowLog::Auto]);
    let (heads, configs): (Vec<_>, Vec<_>) = windows
        .map(|window| {
            let head = match window {
                WindowLog::Fixed(log) => format!("log {log}"),
                WindowLog::Auto => "auto".to_string(),
            };
            (head, policy(|policy| policy.window_log = window))
        })
        .unzip();
    sweep(bench, "windows", "Window log", &about, &heads, &configs)
}

pub(super) fn frames(bench: &Bench) -> Result<Table> {
    let about = format!(
        "COPY OUT of the corpora over 256 KiB at zstd:1, ack dialect, by raw bytes in a frame at most: wire bytes over \
         `zstd -1` of the text in one piece. The default is {} KiB.",
        FRAME_SIZE_DEFAULT >> 10
    );
    let heads = FRAME_SIZES_KIB.map(|size| format!("{size} KiB"));
    // The sender must be able to hold a frame until it is full.
    let configs = FRAME_SIZES_KIB.map(|size| {
        let mut config = policy(|policy| policy.frame_size = size << 10);
        config.limits.pending_max = config.limits.pending_max.max(2 * (size << 10));
        config
    });
    sweep(bench, "frames", "Frame size", &about, &heads, &configs)
}

fn sweep(
    bench: &Bench,
    id: &str,
    title: &str,
    about: &str,
    heads: &[String],
    configs: &[LinkConfig],
) -> Result<Table> {
    let mut columns =
        vec![("corpus", Unit::Text), ("text", Unit::Bytes), ("zstd -1 of the text", Unit::Bytes)];
    columns.extend(heads.iter().map(|head| (head.as_str(), Unit::Percent)));
    let mut table = Table::new(id, title, about, &columns);
    for corpus in bench.with_source(|source| source.corpora())? {
        let messages = bench.with_source(|source| source.answer(&corpus, Form::Copy))?;
        let text = text_of(&messages)?;
        if text.len() < TEXT_SIZE_MIN {
            continue;
        }
        let yardstick = zstd_in_one_piece(&text)?;
        let mut row: Vec<Value> = vec![corpus.name.into(), text.len().into(), yardstick.into()];
        for config in configs {
            let cost = Pair::new(Dialect::Ack, "zstd:1", config.clone())?.carry_answer(&messages)?;
            row.push(percent_over(cost.wire, yardstick).into());
        }
        table.push(row);
    }
    Ok(table)
}
