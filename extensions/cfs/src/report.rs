//! Messages to the client or the log, with a hint.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

/// Raises an ERROR that says what to do.
pub fn error(code: PgSqlErrorCode, message: impl Into<String>, hint: impl Into<String>) -> ! {
    ErrorReport::new(code, message.into(), "cfs").set_hint(hint).report(PgLogLevel::ERROR);
    unreachable!("an ERROR does not return")
}

/// Ends the process: while the postmaster starts, the start.
pub fn fatal(code: PgSqlErrorCode, message: impl Into<String>, hint: impl Into<String>) -> ! {
    ErrorReport::new(code, message.into(), "cfs").set_hint(hint).report(PgLogLevel::FATAL);
    unreachable!("a FATAL does not return")
}

/// Says what is wrong, and what to do.
pub fn warning(code: PgSqlErrorCode, message: impl Into<String>, hint: impl Into<String>) {
    ErrorReport::new(code, message.into(), "cfs").set_hint(hint).report(PgLogLevel::WARNING);
}

/// Says what the session may want to know.
pub fn notice(message: impl Into<String>, hint: impl Into<String>) {
    let code = PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;
    ErrorReport::new(code, message.into(), "cfs").set_hint(hint).report(PgLogLevel::NOTICE);
}

/// Says something at a level of the caller's choice, below an ERROR.
pub fn log(level: PgLogLevel, code: PgSqlErrorCode, message: impl Into<String>, hint: impl Into<String>) {
    ErrorReport::new(code, message.into(), "cfs").set_hint(hint).report(level);
}
