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

/// Algorithms and levels: the two that a gateway offers unless something else is asked for, the default first, and zlib.
pub const ALGORITHMS: [&str; 3] = ["zstd:1", "lz4:1", "zlib:6"];

/// The part of a run of rows that teaches the encoder what comes before the others.
const TEACHING_ONE_IN: usize = 4;
/// Bytes of it at most: twice the usual window.
const TEACHING_BYTES_MAX: usize = 2 << pgshrink_wire::policy::WINDOW_LOG_DEFAULT;
/// What a server writes at once while a result goes on (`PQ_SEND_BUFFER_SIZE` in `src/backend/libpq/pqcomm.c`).
const SERVER_PIECE_BYTES: usize = 8192;
/// The tag of CopyData.
const COPY_DATA: u8 = b'd';

/// Bytes of the table's COPY text, and what each algorithm makes of them. 0 and nothing: values are not here, or the budget is
/// spent.
pub fn measure(table: &Table, budget: &mut Budget, clock: Clock<'_>) -> (u64, Vec<CodecFigure>) {
    let nothing = (0, Vec::new());
    if budget.copy_bytes_total == 0 {
        return nothing;
    }
    let [first_max, others_max] = budget.copy_bytes;
    let Some(copy) = CopyText::of(table, first_max) else { return nothing };
    let fewer = if copy.text.len() > others_max { CopyText::of(table, others_max) } else { None };
    let copies = ALGORITHMS.iter().enumerate().map(|(at, _)| match &fewer {
        Some(fewer) if at > 0 => fewer,
        _ => &copy,
    });
    let cost: usize = copies.clone().map(|copy| copy.text.len()).sum();
    let Some(left) = budget.copy_bytes_total.checked_sub(cost as u64) else {
        budget.copy_bytes_total = 0;
        return nothing;
    };
    budget.copy_bytes_total = left;
    let figure = |(algorithms, copy): (&&str, &CopyText)| {
        let (bytes, time) = sent(copy, algorithms, clock)?;
        let megabytes = copy.text.len() as f64 / 1e6;
        Some(CodecFigure {
            codec: (*algorithms).to_owned(),
            bytes,
            compress_mb_s: time.filter(|time| !time.is_zero()).map(|time| megabytes / time.as_secs_f64()),
            decompress_mb_s: None,
        })
    };
    let figures: Option<Vec<_>> = ALGORITHMS.iter().zip(copies).map(figure).collect();
    (copy.of_all(copy.text.len() as u64), figures.unwrap_or_default())
}

/// Bytes on the wire for all rows of the table, and the time that the sampled ones took. None: the algorithm is not there.
///
/// Rows are cheap where the encoder knows those before them, as it does in the table, but not where a run of sampled blocks begins.
/// So the first quarter of each run, or a megabyte of it, only teaches, and what the rest takes is what rows of the table take.
/// Those at the table's beginning have nothing before them, as the first ones here.
fn sent(copy: &CopyText, algorithms: &str, clock: Clock<'_>) -> Option<(u64, Option<Duration>)> {
    let mut link = link(algorithms)?;
    let begun = clock.map(|clock| clock());
    let lines: Vec<&[u8]> = copy.lines().collect();
    let size = |lines: &[&[u8]]| lines.iter().map(|line| line.len() as u64).sum::<u64>();
    let bytes = if copy.is_whole {
        push(&mut link, &lines)?
    } else {
        let (mut counted, mut counted_size) = (0u64, 0u64);
        let mut beginning = None;
        for run in copy.runs() {
            let run = &lines[run];
            let (teaching, rest) = run.split_at(teaching(run));
            let taught = push(&mut link, teaching)?;
            beginning.get_or_insert((taught, size(teaching)));
            counted += push(&mut link, rest)?;
            counted_size += size(rest);
        }
        let usual = |size: u64| u128::from(size) * u128::from(counted) / u128::from(counted_size.max(1));
        let (taught, taught_size) = beginning.unwrap_or_default();
        let all = usual(copy.of_all(size(&lines)));
        (all + u128::from(taught).saturating_sub(usual(taught_size))) as u64
    };
    let time = clock.zip(begun).map(|(clock, begun)| clock().saturating_sub(begun));
    Some((bytes, time))
}

/// How many lines of a run teach.
fn teaching(run: &[&[u8]]) -> usize {
    let mut bytes = 0;
    let fitting = run.iter().take_while(|line| {
        bytes += line.len();
        bytes <= TEACHING_BYTES_MAX
    });
    fitting.count().min(run.len() / TEACHING_ONE_IN)
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

/// Sends rows as CopyData, a message each, in pieces as the server writes them to a gateway that is faster. Bytes on the wire.
fn push(link: &mut Link, lines: &[&[u8]]) -> Option<u64> {
    let (mut sent, mut out, mut piece) = (0, Vec::new(), Vec::with_capacity(SERVER_PIECE_BYTES));
    for line in lines {
        let message = message::message(COPY_DATA, line);
        let mut rest = &message[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(SERVER_PIECE_BYTES - piece.len()));
            piece.extend_from_slice(now);
            rest = later;
            if piece.len() == SERVER_PIECE_BYTES {
                sent += push_piece(link, &piece, &mut out)?;
                piece.clear();
            }
        }
    }
    sent += push_piece(link, &piece, &mut out)?;
    Some(sent + pump(link, Flush::Force, &mut out)?)
}

fn push_piece(link: &mut Link, mut piece: &[u8], out: &mut Vec<u8>) -> Option<u64> {
    let mut sent = 0;
    while !piece.is_empty() {
        if link.plain_room() == 0 {
            sent += pump(link, Flush::Force, out)?;
        }
        let taken = piece.len().min(link.plain_room());
        if taken == 0 {
            return None;
        }
        link.plain_buffer().extend_from_slice(&piece[..taken]);
        piece = &piece[taken..];
        sent += pump(link, Flush::Idle, out)?;
    }
    Some(sent)
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
