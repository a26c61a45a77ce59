//! The link, by random bytes that the server makes in SQL.
//!
//! Random, so that nothing on the way compresses them. Each request asks for four times as much as the one before, until one
//! takes long enough to be measured. What counts is the second half of it: the first one has the link's latency and TCP's
//! slow start.

use crate::backup::source::Address;
use pgshrink_pgclient::Error;
use pgshrink_pgclient::connection::Connection;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a row.
const ROW_BYTES: u64 = 16 << 10;
/// Rows of the first request, and how many times more the next one has.
const ROWS_MIN: u64 = 4;
const GROWTH: u64 = 4;
/// Rows of the last request.
const ROWS_MAX: u64 = 4096;
/// A request that takes so long can be measured.
const LONG: Duration = Duration::from_millis(200);
/// Bytes of all requests: those of the last one, the smaller ones before it, and the same again over several connections.
pub(super) const BYTES_MAX: u64 = 2 * ROWS_MAX * ROW_BYTES + ROWS_MAX * ROW_BYTES / 3;
/// A link that is slower is measured over one connection only: what is compressed is faster there.
pub(super) const SEVERAL_FROM: f64 = 60e6;

/// How many bytes per second one connection carries. None: there was no time.
pub(super) fn one(connection: &mut Connection, until: Instant) -> Result<Option<f64>, Error> {
    let (mut rows, mut rate) = (ROWS_MIN, None);
    while Instant::now() < until {
        let Timed { rate: found, took } = transfer(connection, rows, until)?;
        rate = found.or(rate);
        if took >= LONG || rows >= ROWS_MAX {
            break;
        }
        rows *= GROWTH;
    }
    Ok(rate)
}

/// The same over several connections together, by about as much as one carries in the time that is measured.
pub(super) fn several(address: &Address<'_>, connections: usize, one: f64) -> Option<f64> {
    let rows = (one * LONG.as_secs_f64() / ROW_BYTES as f64) as u64 / connections as u64;
    let rows = rows.clamp(ROWS_MIN, ROWS_MAX / connections as u64);
    let until = Instant::now() + 2 * LONG;
    let opened: Result<Vec<_>, _> = (0..connections).map(|_| address.database()).collect();
    let barrier = Barrier::new(connections);
    let rates: Option<Vec<f64>> = thread::scope(|scope| {
        let threads: Vec<_> = opened
            .ok()?
            .into_iter()
            .map(|mut connection| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    transfer(&mut connection, rows, until).ok()?.rate
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    Some(rates?.iter().sum())
}

struct Timed {
    /// None: too little came.
    rate: Option<f64>,
    /// From the first row to the last.
    took: Duration,
}

/// Receives so many rows. If the time is over before, the connection cannot be used any more.
fn transfer(connection: &mut Connection, rows: u64, until: Instant) -> Result<Timed, Error> {
    let last = rows - 1;
    // 2 MiB of them are made once.
    let sql = format!(
        "COPY (SELECT pg_catalog.substring(made.block, 1 + {ROW_BYTES} * (piece % 128), {ROW_BYTES}) FROM \
         (SELECT pg_catalog.string_agg(pg_catalog.sha512(n::text::bytea), ''::bytea) AS block \
         FROM pg_catalog.generate_series(1, 32768) AS n) AS made \
         CROSS JOIN pg_catalog.generate_series(0, {last}) AS piece) TO STDOUT (FORMAT binary)"
    );
    let mut copy = connection.copy_out(&sql)?;
    let (mut bytes, mut first, mut half) = (0, None, None);
    let mut rate = None;
    let mut took = Duration::ZERO;
    while let Some(payload) = copy.next()? {
        let now = Instant::now();
        bytes += payload.len() as u64;
        let began = *first.get_or_insert(now);
        took = now - began;
        if let Some((at, before)) = half {
            rate = super::rate(bytes - before, now - at);
        } else if bytes >= rows * ROW_BYTES / 2 {
            half = Some((now, bytes));
        }
        if now > until {
            return Ok(Timed { rate: rate.or(super::rate(bytes, took)), took });
        }
    }
    copy.finish()?;
    Ok(Timed { rate, took })
}
