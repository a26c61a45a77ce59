//! `zson_vacuum_dictionaries`: removes dictionaries that provably nothing needs, and says why it keeps the others.
//!
//! The proof: no document that needs the dictionary is visible to a snapshot taken now, and no session exists that
//! could hold one which is not. So:
//!
//! 1. the dictionary is not the newest of its profile, and the transaction that made the newer one is committed;
//! 2. no session can enter the database until the end: the lock that DROP DATABASE takes;
//! 3. no other session is in it, and no prepared transaction is of it; nobody's snapshot holds deleted rows back;
//! 4. under a snapshot taken after that nothing of [`References`] needs it;
//! 5. B-trees over documents, whose pages keep keys of rows long gone, are rebuilt before anything is removed.
//!
//! A reader with an older snapshot on a standby, or under logical decoding, still finds the removed row: see
//! [`Objects::dictionary`].
#![allow(unsafe_code)]

use std::ffi::c_int;

use pgrx::IntoDatum;
use pgrx::pg_sys::{self, Datum, Oid};

use crate::backend::objects;
use crate::catalog::{Objects, text_datum};
use crate::internal::{as_owner, run};
use crate::query::{Session, statement};
use crate::references::{References, Snapshot, count, indexes};
use crate::sys::{self, pg_function};

pg_function! {
    /// `zson_vacuum_dictionaries()`.
    fn zson_vacuum_dictionaries(fcinfo) {
        let objects = objects();
        let outcomes = as_owner(objects.owner, || vacuum(&objects));
        let rows = outcomes.into_iter().map(|(id, reason)| {
            let removed = reason.is_none();
            let reason = reason.unwrap_or_else(|| "nothing needed it".to_owned());
            [Some(Datum::from(id)), removed.into_datum(), Some(text_datum(&reason))]
        });
        sys::return_rows(fcinfo, rows)
    }
}

/// Each superseded dictionary, with the reason why it stays, if it does.
fn vacuum(objects: &Objects) -> Vec<(i32, Option<String>)> {
    // Sessions take it, in a weaker mode, when they enter.
    // SAFETY: the lock goes with the transaction.
    unsafe {
        let database = Oid::from(DATABASE_TABLE);
        pg_sys::LockSharedObject(database, pg_sys::MyDatabaseId, 0, pg_sys::AccessExclusiveLock as c_int);
    }
    let mut session = Session::open();
    let superseded = superseded(&mut session, objects);
    let keep_all = |reason: String| superseded.iter().map(|id| (*id, Some(reason.clone()))).collect();
    if superseded.is_empty() {
        return Vec::new();
    }
    if let Some(reason) = obstacle(&mut session).or_else(|| held_back(objects)) {
        return keep_all(reason);
    }
    let snapshot = Snapshot::take();
    let references = References::find(&mut session, objects);
    drop(snapshot);
    let outcomes: Vec<_> = superseded
        .iter()
        .map(|id| (*id, references.reason(*id).map(|place| format!("needed by {place}"))))
        .collect();
    if outcomes.iter().any(|(_, reason)| reason.is_none()) {
        for index in indexes(&mut session, objects) {
            session.run(&statement(&[b"REINDEX INDEX ", &index.name]));
        }
    }
    drop(session);
    let table = objects.qualified("zson_dictionary");
    for (id, _) in outcomes.iter().filter(|(_, reason)| reason.is_none()) {
        run(&format!("DELETE FROM {table} WHERE id = $1"), &[(*id).into()]);
    }
    outcomes
}

fn superseded(session: &mut Session, objects: &Objects) -> Vec<i32> {
    let view = objects.qualified("zson_dictionaries");
    let query = format!("SELECT id FROM {view} WHERE NOT current ORDER BY id");
    let rows = session.rows(&statement(&[query.as_bytes()]));
    let id = |row: &Vec<Option<Vec<u8>>>| std::str::from_utf8(row.first()?.as_deref()?).ok()?.parse().ok();
    rows.iter().filter_map(id).collect()
}

/// What could hold a document that no snapshot of ours sees.
fn obstacle(session: &mut Session) -> Option<String> {
    // SAFETY: reads the backend's own state.
    if unsafe {
        pg_sys::IsTransactionBlock() || pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as c_int
    } {
        return Some("run zson_vacuum_dictionaries() outside of a transaction block".to_owned());
    }
    // What other sessions do is read anew each time.
    // SAFETY: forgets the backend's copy of the statistics.
    unsafe { pg_sys::pgstat_clear_snapshot() };
    let others = count(
        session,
        c"SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity \
          WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database() \
          AND pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid() \
          AND backend_type OPERATOR(pg_catalog.<>) 'walsender'",
    );
    if others > 0 {
        return Some(format!(
            "{others} other sessions are in this database and may hold documents; try again after they \
             have disconnected"
        ));
    }
    let prepared = count(
        session,
        c"SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_xacts \
          WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database()",
    );
    if prepared > 0 {
        return Some(format!(
            "{prepared} prepared transactions may hold documents; commit or roll them back"
        ));
    }
    let own = count(
        session,
        c"SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_statements) OPERATOR(pg_catalog.+) \
          (SELECT pg_catalog.count(*) FROM pg_catalog.pg_cursors WHERE is_holdable)",
    );
    (own > 0).then(|| "this session has prepared statements or cursors that may hold documents".to_owned())
}

/// Whether rows deleted in this database by now may have to stay for somebody's snapshot: then an index is rebuilt
/// with their keys, too.
fn held_back(objects: &Objects) -> Option<String> {
    // SAFETY: the table is open while its horizon is read; the lock on it goes with the transaction.
    unsafe {
        // Nobody else deletes here, so every deletion has an older id than this.
        let own = pg_sys::GetCurrentTransactionId();
        let exclusive = pg_sys::AccessExclusiveLock as c_int;
        let table = pg_sys::table_open(objects.dictionary_table(), exclusive);
        let horizon = pg_sys::GetOldestNonRemovableTransactionId(table);
        pg_sys::table_close(table, pg_sys::NoLock as c_int);
        pg_sys::TransactionIdPrecedes(horizon, own).then(|| {
            "a transaction in another database, a prepared transaction or a replication slot holds back \
             cleanup; try again after it has ended"
                .to_owned()
        })
    }
}

/// `pg_database` (`src/include/catalog/pg_database.h`).
const DATABASE_TABLE: u32 = 1262;
