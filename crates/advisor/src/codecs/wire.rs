//! What a table's COPY text takes on the wire, sent through a gateway's link.

use std::sync::Arc;
use std::time::Duration;

use pgshrink_codec::AlgorithmList;
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;
use pgshrink_wire::{Agreed, Dialect, Flush, Held, Link, LinkConfig, MemoryBudget, Offer, Role, message};

use super::copy::CopyText;
use super::{Budget, Clock};
use crate::finding::CodecFigure;
use crate::snapshot::Table;

/// Algorithms and levels: the two that a gateway offers unless something else is asked for, and zlib.
pub const ALGORITHMS: [&str; 3] = ["zstd:1", "lz4:1", "zlib:6"];

/// The tag of CopyData.
const COPY_DATA: u8 = b'd';

/// Bytes of the table's COPY text, and what each algorithm makes of them. 0 and nothing: values are not here, or the budget is
/// spent.
pub fn measure(table: &Table, budget: &mut Budget, clock: Clock<'_>) -> (u64, Vec<CodecFigure>) {
    let nothing = (0, Vec::new());
    if budget.copy_bytes_total == 0 {
        return nothing;
    }
    let Some(copy) = CopyText::of(table, budget.copy_bytes) else { return nothing };
    let cost = (copy.text.len() * ALGORITHMS.len()) as u64;
    let Some(left) = budget.copy_bytes_total.checked_sub(cost) else {
        budget.copy_bytes_total = 0;
        return nothing;
    };
    budget.copy_bytes_total = left;
    let figure = |algorithms: &&str| {
        let (bytes, time) = sent(&copy, algorithms, clock)?;
        let megabytes = copy.text.len() as f64 / 1e6;
        Some(CodecFigure {
            codec: (*algorithms).to_owned(),
            bytes,
            compress_mb_s: time.filter(|time| !time.is_zero()).map(|time| megabytes / time.as_secs_f64()),
            decompress_mb_s: None,
        })
    };
    let figures: Option<Vec<_>> = ALGORITHMS.iter().map(figure).collect();
    (copy.of_all(copy.text.len() as u64), figures.unwrap_or_default())
}

/// Bytes on the wire for all rows of the table, and the time that the sampled ones took. None: the algorithm is not there.
fn sent(copy: &CopyText, algorithms: &str, clock: Clock<'_>) -> Option<(u64, Option<Duration>)> {
    let mut link = link(algorithms)?;
    let begun = clock.map(|clock| clock());
    // The first rows teach the encoder. They are a part of the sample, and a small one of the table: the rest says what
    // further rows take.
    let lines: Vec<&[u8]> = copy.lines().collect();
    let (first, rest) = lines.split_at(lines.len() / 4);
    let first_bytes = push(&mut link, first)?;
    let rest_bytes = push(&mut link, rest)?;
    let time = clock.zip(begun).map(|(clock, begun)| clock().saturating_sub(begun));
    let size = |lines: &[&[u8]]| lines.iter().map(|line| line.len() as u64).sum::<u64>();
    let (first_size, rest_size) = (size(first), size(rest));
    let others = copy.of_all(first_size + rest_size).saturating_sub(first_size);
    let others = u128::from(others) * u128::from(rest_bytes) / u128::from(rest_size.max(1));
    Some((first_bytes + others as u64, time))
}

/// A gateway's end of a session that agreed on these.
fn link(algorithms: &str) -> Option<Link> {
    let list = AlgorithmList::parse(algorithms, WIRE_ALGORITHMS).ok()?;
    let window = pgshrink_wire::policy::WINDOW_LOG_DEFAULT;
    let answer = Offer::new(Dialect::Ack, &list).invite_window(window).answer(&list, window);
    let agreed: Agreed = answer.agreed?;
    let config = Arc::new(LinkConfig::default());
    Some(Link::new(Role::Gateway, agreed, config, MemoryBudget::default()))
}

/// Sends rows as CopyData, a message each as the server does. Bytes on the wire.
fn push(link: &mut Link, lines: &[&[u8]]) -> Option<u64> {
    let mut sent = 0;
    let mut out = Vec::new();
    for line in lines {
        let message = message::message(COPY_DATA, line);
        let mut rest = &message[..];
        while !rest.is_empty() {
            let taken = rest.len().min(link.plain_room());
            if taken == 0 {
                sent += pump(link, Flush::No, &mut out)?;
                if link.plain_room() == 0 {
                    sent += pump(link, Flush::Force, &mut out)?;
                }
                if link.plain_room() == 0 {
                    return None;
                }
                continue;
            }
            link.plain_buffer().extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
        }
    }
    Some(sent + pump(link, Flush::Force, &mut out)?)
}

fn pump(link: &mut Link, flush: Flush, out: &mut Vec<u8>) -> Option<u64> {
    let mut sent = 0;
    loop {
        out.clear();
        let held = link.pump(flush, out).ok()?.held;
        sent += out.len() as u64;
        if held != Held::OutputFull {
            return Some(sent);
        }
    }
}
