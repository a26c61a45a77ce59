//! Statements of the extension's own: as its owner, with a search path of its own, past the guard of its tables.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_int;

use pgrx::datum::DatumWithOid;
use pgrx::pg_sys::{self, Oid};
use pgrx::spi::Spi;

use crate::error::{PgSqlErrorCode as Code, raise};

struct Flag(Cell<u32>);
// SAFETY: only the one thread of the backend that runs server code comes here.
unsafe impl Sync for Flag {}
static DEPTH: Flag = Flag(Cell::new(0));

/// Whether the extension itself changes its tables now.
pub fn is_internal() -> bool {
    DEPTH.0.get() > 0
}

/// Runs `work` as the role `owner`, so that it does not depend on the caller's privileges, with a search path in
/// which nobody but the system has functions and operators.
pub fn as_owner<R>(owner: Oid, work: impl FnOnce() -> R) -> R {
    let _guard = Guard::enter(owner, 0, true);
    work()
}

/// Runs `work` as the owner of a table, so that code of theirs (of triggers, of index expressions) has their rights
/// and no more.
pub fn as_table_owner<R>(owner: Oid, work: impl FnOnce() -> R) -> R {
    let _guard = Guard::enter(owner, pg_sys::SECURITY_RESTRICTED_OPERATION, false);
    work()
}

struct Guard {
    user: Oid,
    context: c_int,
    settings: c_int,
    internal: bool,
}

impl Guard {
    fn enter(owner: Oid, flags: u32, internal: bool) -> Guard {
        let (mut user, mut context) = (pg_sys::InvalidOid, 0);
        // SAFETY: both are given back when the guard goes, or by the end of a failed transaction.
        unsafe {
            pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
            let flags = (flags | pg_sys::SECURITY_LOCAL_USERID_CHANGE) as c_int;
            pg_sys::SetUserIdAndSecContext(owner, context | flags);
            let settings = pg_sys::NewGUCNestLevel();
            pg_sys::set_config_option(
                c"search_path".as_ptr(),
                c"pg_catalog, pg_temp".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
            DEPTH.0.set(DEPTH.0.get() + u32::from(internal));
            Guard { user, context, settings, internal }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        DEPTH.0.set(DEPTH.0.get() - u32::from(self.internal));
        if std::thread::panicking() {
            // The failed transaction gives role and settings back.
            return;
        }
        // SAFETY: what `enter` saved, in the order reversed.
        unsafe {
            pg_sys::AtEOXact_GUC(true, self.settings);
            pg_sys::SetUserIdAndSecContext(self.user, self.context);
        }
    }
}

/// Runs a statement that changes something.
pub fn run(statement: &str, arguments: &[DatumWithOid<'_>]) {
    if let Err(error) = Spi::run_with_args(statement, arguments) {
        raise(Code::ERRCODE_INTERNAL_ERROR, format!("zson: {error}"), statement, "");
    }
}

/// Lets the server handle a cancel, a shutdown.
pub fn check_interrupts() {
    // SAFETY: pgrx turns the ERROR it may raise into a panic.
    unsafe {
        if pg_sys::InterruptPending != 0 {
            pg_sys::ProcessInterrupts();
        }
    }
}
