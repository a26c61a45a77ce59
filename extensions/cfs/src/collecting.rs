//! What SQL sees and does of collection: progress, statistics, the original's functions.
#![allow(unsafe_code)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pgrx::iter::TableIterator;
use pgrx::pg_sys::Oid;
use pgrx::{PgSqlErrorCode, name, pg_extern};
use pgshrink_cfs::Budget;
use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs_server::activity::{Phase, Progress, Totals};
use pgshrink_cfs_server::collecting::{Collector, Turn, is_in_vain, path_of};
use pgshrink_cfs_server::{Problem, server, work};

use crate::functions::{FORKS, keys, raise};
use crate::{report, settings, worker};

/// Moved at once by a collection that somebody waits for.
const PIECE_BYTES: u64 = 4 << 20;
/// Garbage in percent of live bytes down to which it goes.
const GARBAGE_PERCENT: u32 = 10;
/// Between two looks at collectors that are to end.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// Collects a relation's files now, down to a tenth; returns how many there were to collect.
#[pg_extern]
fn cfs_gc_file(tablespace: Oid, file: Oid) -> i32 {
    let collector = Collector::new().unwrap_or_else(|problem| raise(&problem));
    let mut collected = 0;
    for (fork, _) in FORKS {
        for key in keys(tablespace, file, fork) {
            let info = work::info(&key).unwrap_or_else(|problem| raise(&problem));
            let Some(info) = info else { break };
            if matches!(info.form, work::Form::Container { .. }) {
                let mut turn = collector.turn(key, 0);
                let done = collect_whole(&mut turn, || {
                    pgrx::check_for_interrupts!();
                    true
                });
                drop(turn);
                collected += i32::from(done.unwrap_or_else(|problem| raise(&problem)));
            }
        }
    }
    collected
}

/// Collects a file until there is nothing more to be moved, or moving frees nothing more, and commits; whether there was anything to do, unless
/// `goes_on` said no.
pub fn collect_whole(turn: &mut Turn<'_>, goes_on: impl Fn() -> bool) -> Result<bool, Problem> {
    let budget = Budget { bytes: PIECE_BYTES, garbage_percent: GARBAGE_PERCENT };
    let (mut has_done, mut moved_bytes) = (false, 0);
    while goes_on() {
        let Some(found) = turn.piece(budget)? else { return Ok(has_done) };
        if found.live_bytes == 0 {
            // Another process is collecting the file: no file has no live bytes.
            turn.rest(|| std::thread::sleep(LOOK_PERIOD));
            continue;
        }
        let frees = found.freed_by_commit_bytes > 0;
        has_done |= found.moved_records > 0 || found.punched_bytes > 0 || frees;
        if found.moved_records == 0 && !frees {
            break;
        }
        turn.commit()?;
        moved_bytes += found.moved_bytes;
        if found.moved_records == 0 || is_in_vain(moved_bytes, found.live_bytes) {
            // What the commit freed is given back.
            turn.piece(budget)?;
            break;
        }
    }
    Ok(has_done)
}

/// Starts workers that collect everything once, and waits for them; returns how many could be started.
#[pg_extern]
fn cfs_start_gc(n_workers: i32) -> i32 {
    let (count, max) = (n_workers, settings::GC_WORKERS_MAX);
    if !(1..=max).contains(&count) {
        report::error(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("number of workers is {count}"),
            format!("Choose 1 to {max}."),
        );
    }
    let started: Vec<_> = (0..count).map_while(|number| worker::start_once(number, count)).collect();
    let number = started.len() as i32;
    for worker in started {
        // The postmaster's death ends this process as well.
        let _ = worker.wait_for_shutdown();
    }
    number
}

/// Switches collection in the background on or off, until the server restarts; returns what it was. When it is
/// switched off, waits until no worker collects.
#[pg_extern]
fn cfs_enable_gc(enabled: bool) -> bool {
    let was_off = server::switch_collection(!enabled);
    while !enabled && worker::is_any_at_work() {
        pgrx::check_for_interrupts!();
        std::thread::sleep(LOOK_PERIOD);
    }
    !was_off && settings::collects()
}

/// For `to_timestamp`.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

fn fork_name(key: &SegmentKey) -> &'static str {
    FORKS.iter().find(|(fork, _)| *fork == key.fork).map_or("", |(_, name)| name)
}

/// Collectors that have a file in hand.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn cfs_gc_progress_rows() -> TableIterator<
    'static,
    (
        name!(pid, i32),
        name!(database, Oid),
        name!(tablespace, Oid),
        name!(file, Oid),
        name!(fork, &'static str),
        name!(segment, i32),
        name!(path, String),
        name!(phase, &'static str),
        name!(bytes_total, i64),
        name!(bytes_done, i64),
        name!(pages_moved, i64),
        name!(bytes_moved, i64),
        name!(bytes_freed, i64),
        name!(commits, i64),
        name!(started, f64),
        name!(rate, i64),
        name!(waited_ms, f64),
    ),
> {
    let row = |found: Progress| {
        let key = found.segment?;
        let phase = match found.phase {
            Phase::Idle => return None,
            Phase::Moving => "moving pages",
            Phase::Committing => "committing",
            Phase::Resting => "resting",
            Phase::Training => "training",
        };
        Some((
            found.pid as i32,
            Oid::from(key.database),
            Oid::from(key.tablespace),
            Oid::from(key.relation),
            fork_name(&key),
            key.segment as i32,
            path_of(&key),
            phase,
            found.garbage_at_first as i64,
            found.garbage_at_first.saturating_sub(found.garbage) as i64,
            found.moved_pages as i64,
            found.moved_bytes as i64,
            found.freed_bytes as i64,
            found.commits as i64,
            seconds(found.started),
            found.rate as i64,
            milliseconds(found.waited),
        ))
    };
    TableIterator::new(server::progress().into_iter().filter_map(row).collect::<Vec<_>>())
}

/// What collection has done, by tablespace.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn cfs_stat_gc_rows() -> TableIterator<
    'static,
    (
        name!(tablespace, Oid),
        name!(files_scanned, i64),
        name!(files_collected, i64),
        name!(pages_moved, i64),
        name!(bytes_moved, i64),
        name!(bytes_freed, i64),
        name!(commits, i64),
        name!(worked_ms, f64),
        name!(waited_ms, f64),
        name!(damaged_pages, i64),
        name!(bytes_moved_by_writers, i64),
        name!(commits_by_writers, i64),
        name!(errors, i64),
        name!(last_error, Option<String>),
        name!(last_error_at, Option<f64>),
        name!(stats_since, Option<f64>),
    ),
> {
    let since = server::totals_since().map(seconds);
    let row = |found: Totals| {
        let (at, text) = found.last_error.unzip();
        (
            Oid::from(found.tablespace),
            found.looks as i64,
            found.files as i64,
            found.moved_pages as i64,
            found.moved_bytes as i64,
            found.freed_bytes as i64,
            found.commits as i64,
            milliseconds(found.worked),
            milliseconds(found.waited),
            found.damaged as i64,
            found.writer_bytes as i64,
            found.writer_commits as i64,
            found.errors as i64,
            text,
            at.map(seconds),
            since,
        )
    };
    TableIterator::new(server::totals().into_iter().map(row).collect::<Vec<_>>())
}

fn total(count: impl Fn(&Totals) -> u64) -> i64 {
    server::totals().iter().map(count).sum::<u64>() as i64
}

/// Files that collectors have looked at.
#[pg_extern]
fn cfs_gc_activity_scanned_files() -> i64 {
    total(|found| found.looks)
}

/// Files that collectors have collected.
#[pg_extern]
fn cfs_gc_activity_processed_files() -> i64 {
    total(|found| found.files)
}

/// Pages that collectors have moved.
#[pg_extern]
fn cfs_gc_activity_processed_pages() -> i64 {
    total(|found| found.moved_pages)
}

/// Bytes that collectors have moved.
#[pg_extern]
fn cfs_gc_activity_processed_bytes() -> i64 {
    total(|found| found.moved_bytes)
}
