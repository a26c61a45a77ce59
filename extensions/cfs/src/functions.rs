//! What SQL sees of compressed files.
#![allow(unsafe_code)]

use std::path::Path;

use pgrx::iter::TableIterator;
use pgrx::pg_sys::{self, Oid};
use pgrx::{name, pg_extern};
use pgshrink_cfs::seal::{HexId, KeyId};
use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs_server::work::{self, Form};
use pgshrink_cfs_server::{Problem, keys, server};

use crate::report;

/// Forks of a relation that may be compressed or plain.
pub const FORKS: [(u8, &str); 4] = [(0, "main"), (1, "fsm"), (2, "vm"), (3, "init")];

/// Raises an ERROR.
pub fn raise(problem: &Problem) -> ! {
    report::error(
        pgrx::PgSqlErrorCode::ERRCODE_SYSTEM_ERROR,
        format!("cfs: {problem}"),
        "See the server's log for details.",
    )
}

/// All segments that a fork may have.
pub fn keys(tablespace: Oid, file: Oid, fork: u8) -> impl Iterator<Item = SegmentKey> {
    // SAFETY: reads a variable of the session.
    let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let (tablespace, relation) = (tablespace.to_u32(), file.to_u32());
    (0..).map(move |segment| SegmentKey { tablespace, database, relation, fork, segment })
}

/// A key's id, as every message has it.
fn hex(id: KeyId) -> String {
    HexId(id).to_string()
}

/// The version of the library.
#[pg_extern]
fn cfs_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Segments of a relation's file in a tablespace of this database: what each takes, and what is in it.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn cfs_segments(
    tablespace: Oid,
    file: Oid,
) -> TableIterator<
    'static,
    (
        name!(fork, &'static str),
        name!(segment, i32),
        name!(form, &'static str),
        name!(virtual_bytes, i64),
        name!(disk_bytes, i64),
        name!(live_bytes, Option<i64>),
        name!(garbage_bytes, Option<i64>),
        name!(dictionaries, Option<i32>),
        name!(key_id, Option<String>),
    ),
> {
    let mut rows = Vec::new();
    for (fork, fork_name) in FORKS {
        for key in keys(tablespace, file, fork) {
            pgrx::check_for_interrupts!();
            let info = work::info(&key).unwrap_or_else(|problem| raise(&problem));
            let Some(info) = info else { break };
            let (form, live, garbage, dictionaries) = match info.form {
                Form::Plain => ("plain", None, None, None),
                Form::Unreadable => ("unreadable", None, None, None),
                Form::Container { stats, dictionaries } => {
                    let live = stats.live_bytes;
                    let used = stats.allocated_bytes.saturating_sub(stats.free_bytes);
                    // What is allocated may not be written yet.
                    let garbage = used.min(info.disk_bytes).saturating_sub(live);
                    ("compressed", Some(live as i64), Some(garbage as i64), Some(dictionaries as i32))
                }
            };
            let (virtual_bytes, disk_bytes) = (info.virtual_bytes as i64, info.disk_bytes as i64);
            let segment = key.segment as i32;
            let key_id = info.key_id.map(hex);
            rows.push((
                fork_name,
                segment,
                form,
                virtual_bytes,
                disk_bytes,
                live,
                garbage,
                dictionaries,
                key_id,
            ));
        }
    }
    TableIterator::new(rows)
}

/// Settings in force, as the file layer has them.
#[pg_extern]
fn cfs_setting_in_force(tablespace: Oid) -> Option<String> {
    server::setting(tablespace.to_u32()).map(|setting| setting.to_string())
}

/// Fetches the master key anew and wraps the key of every encrypted file with it; returns their number.
#[pg_extern]
fn cfs_rotate_key() -> i64 {
    // SAFETY: in a transaction.
    if !unsafe { pg_sys::superuser() } {
        report::error(
            pgrx::PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            "permission denied to change the master key",
            "Only superusers may do this.",
        );
    }
    let sources = crate::settings::key_sources();
    let rotated = keys::rotate(Path::new("."), &sources, || {
        pgrx::check_for_interrupts!();
    });
    if let Err(problem) = &rotated {
        // A cancelled statement's signal ends the key command too.
        pgrx::check_for_interrupts!();
        raise(problem);
    }
    rotated.map_or(0, |rotated| rotated.files as i64)
}

/// Master keys that the server has.
#[pg_extern]
fn cfs_known_keys() -> TableIterator<'static, (name!(id, String), name!(is_current, bool))> {
    TableIterator::new(keys::known().into_iter().map(|key| (key.id, key.is_current)))
}
