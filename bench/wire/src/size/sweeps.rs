//! COPY OUT at zstd:1 with other windows and frame sizes.

use pgshrink_bench_report::{Result, Table, Unit, Value};
use pgshrink_wire::policy::{FRAME_SIZE_DEFAULT, WINDOW_LOG_DEFAULT};
use pgshrink_wire::{Dialect, LinkConfig, MemoryBudget, WindowLog};

use super::{Bench, percent_over, policy};
use crate::pair::Pair;
use crate::session::text_of;
use crate::source::Form;
use crate::yardstick::zstd_in_one_piece;

const WINDOW_LOGS: [u32; 6] = [16, 17, 18, 19, 22, 23];
/// Event data, whose rows repeat far apart: what `auto` is for.
const FAR_CORPUS: &str = "windows_events";
/// Percent of `zstd -1` that `auto` has to save there.
const FAR_PERCENT_MIN: f64 = 15.0;
const FRAME_SIZES_KIB: [usize; 5] = [8, 16, 32, 64, 128];
/// Smaller texts fit into every window and frame.
const TEXT_SIZE_MIN: usize = 256 << 10;

pub(super) fn windows(bench: &Bench) -> Result<Table> {
    let invited = MemoryBudget::default().window_log_invited();
    let about = format!(
        "COPY OUT of the corpora over 256 KiB at zstd:1, ack dialect, by zstd window log: wire bytes over `zstd -1` of \
         the text in one piece. The default is {WINDOW_LOG_DEFAULT}. What each costs in memory is in the table of memory. \
         `auto` is invited to {invited}, as by every peer with the default memory limit."
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
    let (mut table, found) = sweep(bench, "windows", "Window log", &about, &heads, &configs)?;
    if let Some(auto) = found.iter().find(|(corpus, _)| corpus == FAR_CORPUS).and_then(|(_, all)| all.last())
    {
        table.verdict(
            &format!("{FAR_CORPUS}, COPY OUT at zstd:1 with window_log = auto and the default memory limit"),
            &format!("at least {FAR_PERCENT_MIN} % below `zstd -1` of the text in one piece"),
            format!("{auto:+.2} %, window log {invited}"),
            *auto <= -FAR_PERCENT_MIN,
        );
    }
    Ok(table)
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
    Ok(sweep(bench, "frames", "Frame size", &about, &heads, &configs)?.0)
}

/// The table, and each corpus' percents.
type Swept = (Table, Vec<(String, Vec<f64>)>);

fn sweep(
    bench: &Bench,
    id: &str,
    title: &str,
    about: &str,
    heads: &[String],
    configs: &[LinkConfig],
) -> Result<Swept> {
    let mut found = Vec::new();
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
        let mut percents = Vec::new();
        for config in configs {
            let cost = Pair::new(Dialect::Ack, "zstd:1", config.clone())?.carry_answer(&messages)?;
            percents.push(percent_over(cost.wire, yardstick));
        }
        found.push((corpus.name.clone(), percents.clone()));
        let mut row: Vec<Value> = vec![corpus.name.into(), text.len().into(), yardstick.into()];
        row.extend(percents.into_iter().map(Value::from));
        table.push(row);
    }
    Ok((table, found))
}
