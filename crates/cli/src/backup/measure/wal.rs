//! Recent WAL, streamed as for a standby: real bytes of this cluster, for a role with REPLICATION and nothing else.
//!
//! It begins at the segment that is being written, or the one before it where that has little yet. A server has those, as it
//! needs them itself or has not removed them.

use super::{PIECE_BYTES, PIECES_MAX, Piece};
use pgshrink_pgclient::Error;
use pgshrink_pgclient::connection::Connection;
use pgshrink_pgclient::protocol::Lsn;
use pgshrink_pgclient::replication::{self, Start, WalEvent};
use std::time::{Duration, Instant};

/// Bytes that are received, at most.
pub(super) const BYTES_MAX: usize = 16 << 20;
/// If the newest segment has less than this, the one before it comes too.
const ENOUGH: u64 = 4 << 20;
/// Less than this says nothing about a link.
const LINK_BYTES_MIN: usize = 512 << 10;
/// How long it may take.
const TIME_MAX: Duration = Duration::from_secs(1);
const PAGE: usize = 8 << 10;

/// What came.
pub(super) struct Recent {
    /// Bytes per second. None: too little came.
    pub(super) rate: Option<f64>,
    /// Whether the server compresses the pages in its WAL.
    pub(super) is_compressed: bool,
    /// What it consists of, without empty pages.
    pub(super) pieces: Vec<Piece>,
}

/// Receives recent WAL.
pub(super) fn receive(connection: &mut Connection, until: Instant) -> Result<Recent, Error> {
    let system = replication::identify_system(connection)?;
    let is_compressed = replication::show(connection, "wal_compression")? != "off";
    let segment = replication::show(connection, "wal_segment_size")?;
    let segment = crate::backup::source::segment_bytes(&segment).unwrap_or(16 << 20).max(1);
    let end = system.position.0;
    let begin = end / segment * segment;
    let until = until.max(Instant::now() + TIME_MAX / 2).min(Instant::now() + TIME_MAX);
    let mut came = None;
    if end - begin < ENOUGH && begin > segment {
        // It may have been removed, or be of another timeline.
        let start = (begin - segment).max(end.saturating_sub(BYTES_MAX as u64) / PAGE as u64 * PAGE as u64);
        came = stream(connection, start..end, system.timeline, until).ok();
    }
    let Came { raw, rate } = match came {
        Some(came) => came,
        None => {
            let start = begin.max(end.saturating_sub(BYTES_MAX as u64) / PAGE as u64 * PAGE as u64);
            stream(connection, start..end, system.timeline, until)?
        }
    };
    Ok(Recent { rate, is_compressed, pieces: pieces(&raw) })
}

struct Came {
    raw: Vec<u8>,
    rate: Option<f64>,
}

/// Receives a range, or what comes of it in time. Then the server's stream is ended as far as there is time.
fn stream(
    connection: &mut Connection,
    range: std::ops::Range<u64>,
    timeline: u32,
    until: Instant,
) -> Result<Came, Error> {
    let start = Start { slot: None, position: Lsn(range.start), timeline };
    let mut stream = replication::start_physical(connection, &start)?;
    let began = Instant::now();
    let (mut raw, mut marks) = (Vec::new(), Vec::new());
    let wanted = ((range.end - range.start) as usize).min(BYTES_MAX);
    let mut has_stopped = false;
    while Instant::now() < until {
        match stream.next(until.saturating_duration_since(Instant::now()))? {
            Some(WalEvent::Wal { .. }) if has_stopped => {}
            Some(WalEvent::Wal { data, .. }) => {
                let room = BYTES_MAX.saturating_sub(raw.len());
                raw.extend_from_slice(&data[..data.len().min(room)]);
                marks.push((began.elapsed(), raw.len()));
            }
            Some(WalEvent::Keepalive { .. }) => {}
            Some(WalEvent::End { .. }) | None => break,
        }
        if !has_stopped && raw.len() >= wanted {
            has_stopped = true;
            stream.stop()?;
        }
    }
    // What did not come in time says how slow the link is. If all came, it may have been too little.
    let is_enough = raw.len() >= LINK_BYTES_MIN || !has_stopped;
    let rate = rate(&marks).filter(|_| is_enough);
    Ok(Came { raw, rate })
}

/// Bytes per second of the second half, by how many bytes had come when.
fn rate(marks: &[(Duration, usize)]) -> Option<f64> {
    let (end, all) = *marks.last()?;
    let half = marks.iter().find(|(_, bytes)| *bytes >= all / 2);
    let (at, before) = half.copied().filter(|(_, bytes)| *bytes < all).unwrap_or_default();
    super::rate((all - before) as u64, end - at)
}

/// Pieces at equal distances of what is not empty: the rest of a segment that was ended early is zeros.
fn pieces(raw: &[u8]) -> Vec<Piece> {
    let full: Vec<&[u8]> = raw.chunks(PAGE).filter(|page| page.iter().any(|byte| *byte != 0)).collect();
    let pages_per_piece = PIECE_BYTES / PAGE;
    let count = (full.len() / pages_per_piece).min(PIECES_MAX);
    let at = |index: usize| index * full.len() / count;
    (0..count)
        .map(|index| Piece { first_block: None, raw: full[at(index)..][..pages_per_piece].concat() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_second_half() {
        let mark = |ms, bytes| (Duration::from_millis(ms), bytes);
        assert_eq!(rate(&[]), None);
        assert_eq!(rate(&[mark(500, 1000)]), Some(2000.0), "of one message, since the begin");
        assert_eq!(rate(&[mark(500, 100), mark(600, 500), mark(700, 1000)]), Some(5000.0));
    }

    #[test]
    fn pieces_of_wal_have_no_empty_pages() {
        let mut raw = vec![0; 1 << 20];
        assert!(pieces(&raw).is_empty());
        raw.extend(vec![7; PIECE_BYTES - 1]);
        assert_eq!(pieces(&raw).len(), 1, "its last page is not full");
        raw.extend(vec![7; 4 << 20]);
        let found = pieces(&raw);
        assert_eq!(found.len(), PIECES_MAX);
        assert!(found.iter().all(|piece| piece.raw.len() <= PIECE_BYTES && !piece.raw.contains(&0)));
        assert!(pieces(&[1; 100]).is_empty(), "too little");
    }
}
