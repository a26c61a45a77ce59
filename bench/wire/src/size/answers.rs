//! COPY OUT and JSON results of every corpus, algorithm by algorithm.

use pgshrink_bench_report::{Result, Table, Unit, Value};
use pgshrink_wire::{Dialect, LinkConfig};

use super::{Bench, DIALECTS, percent_over};
use crate::pair::Pair;
use crate::session::text_of;
use crate::source::Form;
use crate::yardstick::zstd_in_one_piece;

const ALGORITHMS: [&str; 5] = ["zstd:1", "zstd:3", "lz4:1", "zlib:1", "zlib:6"];
/// What zstd:1 may cost beyond `zstd -1` in one piece.
const OVER_PERCENT_MAX: f64 = 2.0;
/// Below this a text is shorter than a network packet or two, and the fixed messages around it are what is measured.
const JUDGED_TEXT_SIZE_MIN: usize = 4096;

pub(super) fn copy(bench: &Bench) -> Result<Table> {
    of_form(bench, "copy", "COPY OUT", Form::Copy)
}

pub(super) fn json(bench: &Bench) -> Result<Table> {
    of_form(bench, "json", "JSON results", Form::Json)
}

fn of_form(bench: &Bench, id: &str, title: &str, form: Form) -> Result<Table> {
    let about = "Wire bytes of a server's whole answer, frames, message headers and fixed messages counted, as a gateway \
        gets it in flushes of 8 KiB. Two yardsticks, both `zstd -1` in one piece, the smaller of library and program: \
        of the *text* alone, and of the *messages*, which are the text with PostgreSQL's header before each row (5 bytes \
        with COPY, 11 with a result of one column). `headers` is what those headers cost the yardstick itself. The ack \
        dialect sends packed rows, as between two pgshrinks; the restart dialect, which others speak, sends messages. The \
        last columns are plain messages to wire, ack dialect. windows_events compresses about 70:1: keep it out of averages.";
    let mut columns = vec![
        ("corpus", Unit::Text),
        ("messages", Unit::Bytes),
        ("text", Unit::Bytes),
        ("zstd -1 of the text", Unit::Bytes),
        ("headers", Unit::Percent),
        ("zstd:1 ack to text", Unit::Percent),
        ("zstd:1 restart to text", Unit::Percent),
        ("zstd:1 ack to messages", Unit::Percent),
        ("zstd:1 restart to messages", Unit::Percent),
    ];
    columns.extend(ALGORITHMS.map(|name| (name, Unit::Ratio)));
    let mut table = Table::new(id, title, about, &columns);
    let mut worst = [(f64::MIN, String::new()), (f64::MIN, String::new())];
    let (mut judged, mut within) = (0, [0; 2]);
    for corpus in bench.with_source(|source| source.corpora())? {
        let messages = bench.with_source(|source| source.answer(&corpus, form))?;
        let text = text_of(&messages)?;
        let (text_size, yardsticks) =
            (text.len(), [zstd_in_one_piece(&text)?, zstd_in_one_piece(&messages)?]);
        drop(text);
        let restart = carried(Dialect::Restart, ALGORITHMS[0], &messages)?;
        let mut wires = Vec::new();
        for algorithm in ALGORITHMS {
            wires.push(carried(Dialect::Ack, algorithm, &messages)?);
        }
        let over = yardsticks.map(|yardstick| [wires[0], restart].map(|wire| percent_over(wire, yardstick)));
        if text_size >= JUDGED_TEXT_SIZE_MIN {
            judged += 1;
            // Only packed rows can be held against the bare text.
            let judged_by = [over[0][0], over[1][0].max(over[1][1])];
            for ((worst, within), larger) in worst.iter_mut().zip(&mut within).zip(judged_by) {
                *within += u32::from(larger <= OVER_PERCENT_MAX);
                if larger > worst.0 {
                    *worst = (larger, corpus.name.clone());
                }
            }
        }
        let mut row = vec![corpus.name.into(), messages.len().into(), text_size.into(), yardsticks[0].into()];
        row.push(percent_over(yardsticks[1], yardsticks[0]).into());
        row.extend(over.concat().into_iter().map(Value::from));
        row.extend(wires.into_iter().map(|wire| Value::from(messages.len() as f64 / wire as f64)));
        table.push(row);
    }
    let yardsticks = [("text", "packed rows"), ("messages", "both dialects")];
    for (((of, how), (percent, corpus)), within) in yardsticks.into_iter().zip(&worst).zip(within) {
        table.verdict(
            &format!("{title} at zstd:1, corpora of {JUDGED_TEXT_SIZE_MIN} bytes and more, {how}"),
            &format!("at most {OVER_PERCENT_MAX} % over `zstd -1` of the {of} in one piece"),
            format!("{within} of {judged} corpora; {percent:+.2} % at worst ({corpus})"),
            *percent <= OVER_PERCENT_MAX,
        );
    }
    Ok(table)
}

/// The two dialects beside each other.
pub(super) fn dialects(bench: &Bench) -> Result<Table> {
    let about = "All corpora but windows_events, COPY OUT: what each dialect's frames cost. lz4 blocks are 16 KiB in the \
        ack dialect, whose one shipping reader has a ring for no more, and 64 KiB in the restart dialect.";
    let columns = [
        ("algorithm", Unit::Text),
        ("messages", Unit::Bytes),
        ("ack", Unit::Bytes),
        ("restart", Unit::Bytes),
        ("restart to ack", Unit::Percent),
        ("ratio ack", Unit::Ratio),
        ("ratio restart", Unit::Ratio),
    ];
    let mut table = Table::new("dialects", "The two dialects", about, &columns);
    let mut sums = [[0u64; 2]; ALGORITHMS.len()];
    let mut plain = 0;
    for corpus in bench.with_source(|source| source.corpora())? {
        if corpus.name == "windows_events" {
            continue;
        }
        let messages = bench.with_source(|source| source.answer(&corpus, Form::Copy))?;
        plain += messages.len() as u64;
        for (algorithm, sum) in ALGORITHMS.iter().zip(&mut sums) {
            for (dialect, sum) in DIALECTS.iter().zip(sum) {
                *sum += carried(*dialect, algorithm, &messages)?;
            }
        }
    }
    for (algorithm, [ack, restart]) in ALGORITHMS.iter().zip(sums) {
        let ratio = |wire: u64| Value::from(plain as f64 / wire as f64);
        let difference = percent_over(restart, ack).into();
        table.row([
            (*algorithm).into(),
            plain.into(),
            ack.into(),
            restart.into(),
            difference,
            ratio(ack),
            ratio(restart),
        ]);
    }
    Ok(table)
}

fn carried(dialect: Dialect, algorithm: &str, messages: &[u8]) -> Result<u64> {
    let cost = Pair::new(dialect, algorithm, LinkConfig::default())?.carry_answer(messages)?;
    Ok(cost.wire)
}
