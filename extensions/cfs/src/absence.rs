//! Statements that need a database for themselves: CREATE DATABASE needs its template, and DROP DATABASE, ALTER DATABASE …
//! SET TABLESPACE and … RENAME TO need their own.
//!
//! The server waits five seconds for others to leave the database, and then refuses the statement. On a busy machine a
//! dispatcher ([`crate::dispatcher`]) may be there for longer: it waits for the disk. So the statement says on the board
//! which database it needs, waits until no dispatcher is in it, and only then begins. No dispatcher is sent there until its
//! transaction ends.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pgrx::pg_guard;
use pgrx::pg_sys::{self, NodeTag, Oid};

use crate::{board, conversion};

/// Between two looks whether the dispatcher has gone.
const PERIOD: Duration = Duration::from_millis(20);
/// After so long the server decides, with its own error. Nothing that a dispatcher waits for takes as long.
const PATIENCE: Duration = Duration::from_secs(60);
/// The template of a database that names none.
const TEMPLATE: &CStr = c"template1";

/// The transaction's places on the board, a bit for each. There may be several: ALTER DATABASE … RENAME TO runs in a
/// transaction with others.
static PLACES: AtomicU64 = AtomicU64::new(0);

/// Has databases given back at the transaction's end, also when the session is ended.
pub fn register() {
    // SAFETY: while the server starts; a function that lives as long as the library.
    unsafe { pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut()) };
}

#[pg_guard]
unsafe extern "C-unwind" fn at_transaction_end(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PREPARE};
    if matches!(event, XACT_EVENT_ABORT | XACT_EVENT_COMMIT | XACT_EVENT_PREPARE) {
        let places = PLACES.swap(0, Ordering::Relaxed);
        (0..board::STATEMENTS).filter(|place| places >> place & 1 != 0).for_each(board::need_no_more);
    }
}

/// Keeps dispatchers away until the transaction's end; false if too many transactions do.
fn keep_away(database: u32) -> bool {
    let own = PLACES.load(Ordering::Relaxed);
    let has = |place: usize| own >> place & 1 != 0 && board::needed(place) == database;
    if (0..board::STATEMENTS).any(has) {
        return true;
    }
    let place = board::need(database);
    if let Some(place) = place {
        PLACES.store(own | 1 << place, Ordering::Relaxed);
    }
    place.is_some()
}

/// Whether statements of this kind may need a database for themselves.
pub fn is_for(tag: NodeTag) -> bool {
    matches!(
        tag,
        NodeTag::T_CreatedbStmt
            | NodeTag::T_DropdbStmt
            | NodeTag::T_AlterDatabaseStmt
            | NodeTag::T_RenameStmt
    )
}

/// Waits until no dispatcher is in the database that the statement needs for itself, if it needs one and the user may
/// run it. Raises an ERROR if it is cancelled.
///
/// # Safety
/// A statement of the kind that the tag says, in a transaction.
pub unsafe fn wait_for(statement: *mut pg_sys::Node, tag: NodeTag) {
    // SAFETY: by the caller; names are strings of the statement.
    let database = unsafe {
        let Some(name) = needed(statement, tag) else { return };
        pg_sys::get_database_oid(name, true)
    };
    // SAFETY: in a transaction.
    if database == Oid::INVALID || !unsafe { may(database, tag) } {
        return;
    }
    let database = database.to_u32();
    // With all places taken it does not wait: another dispatcher might come, and wait for a lock of this transaction.
    if !keep_away(database) {
        return;
    }
    let begun = Instant::now();
    while board::is_visited(database) && begun.elapsed() < PATIENCE {
        conversion::pause(PERIOD);
    }
}

/// The database that the statement needs for itself.
unsafe fn needed(statement: *mut pg_sys::Node, tag: NodeTag) -> Option<*const c_char> {
    // SAFETY: by the caller.
    unsafe {
        match tag {
            NodeTag::T_CreatedbStmt => {
                let options = (*statement.cast::<pg_sys::CreatedbStmt>()).options;
                Some(option(options, b"template").unwrap_or(TEMPLATE.as_ptr()))
            }
            NodeTag::T_DropdbStmt => Some((*statement.cast::<pg_sys::DropdbStmt>()).dbname.cast_const()),
            NodeTag::T_AlterDatabaseStmt => {
                let alter = statement.cast::<pg_sys::AlterDatabaseStmt>();
                option((*alter).options, b"tablespace").map(|_| (*alter).dbname.cast_const())
            }
            NodeTag::T_RenameStmt => {
                let rename = statement.cast::<pg_sys::RenameStmt>();
                let is_database = (*rename).renameType == pg_sys::ObjectType::OBJECT_DATABASE;
                is_database.then_some((*rename).subname.cast_const())
            }
            _ => None,
        }
    }
}

/// The value of an option of this name. Where one is given twice, the server refuses the statement.
unsafe fn option(options: *mut pg_sys::List, name: &[u8]) -> Option<*const c_char> {
    // SAFETY: by the caller: options of the server's. A missing value raises the ERROR that the server would.
    unsafe {
        let mut given = crate::ddl::list(options);
        let given = given.find(|option| CStr::from_ptr((**option).defname).to_bytes() == name)?;
        (!(*given).arg.is_null()).then(|| pg_sys::defGetString(given).cast_const())
    }
}

/// Whether the user may run the statement, as far as can be seen: nobody else keeps dispatchers away.
unsafe fn may(database: Oid, tag: NodeTag) -> bool {
    // SAFETY: in a transaction.
    unsafe {
        let user = pg_sys::GetUserId();
        #[cfg(feature = "pg15")]
        let is_owner = pg_sys::pg_database_ownercheck(database, user);
        #[cfg(not(feature = "pg15"))]
        let is_owner = pg_sys::object_ownercheck(pg_sys::DatabaseRelationId, database, user);
        // True for superusers.
        is_owner || tag == NodeTag::T_CreatedbStmt && may_create(user)
    }
}

/// Whether a role may make databases.
unsafe fn may_create(role: Oid) -> bool {
    // SAFETY: in a transaction; a tuple of this catalog, read before it is released.
    unsafe {
        let key = pg_sys::SysCacheIdentifier::AUTHOID as i32;
        let tuple = pg_sys::SearchSysCache1(key, pg_sys::Datum::from(role));
        if tuple.is_null() {
            return false;
        }
        let may = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_authid>()).rolcreatedb;
        pg_sys::ReleaseSysCache(tuple);
        may
    }
}
