//! From what the core says to an ERROR of the server, with its SQLSTATE.
//!
//! Everything here unwinds, so it is called below a guard only (see [`pg_function`](crate::sys::pg_function)).

use pgrx::pg_sys::elog::PgLogLevel;
use pgrx::pg_sys::errcodes::PgSqlErrorCode as Code;
use pgrx::pg_sys::panic::ErrorReport;

pub use pgrx::pg_sys::errcodes::PgSqlErrorCode;

/// Ends the statement with an ERROR. Empty texts are left out.
pub fn raise(code: Code, message: impl Into<String>, detail: &str, hint: &str) -> ! {
    report(PgLogLevel::ERROR, code, message, detail, hint);
    unreachable!("an ERROR was reported")
}

/// Sends a NOTICE.
pub fn notice(message: impl Into<String>, detail: &str) {
    report(PgLogLevel::NOTICE, Code::ERRCODE_SUCCESSFUL_COMPLETION, message, detail, "");
}

/// Sends a WARNING.
pub fn warning(message: impl Into<String>, hint: &str) {
    report(PgLogLevel::WARNING, Code::ERRCODE_WARNING, message, "", hint);
}

/// Writes to the server's log.
pub fn log(message: impl Into<String>) {
    report(PgLogLevel::LOG, Code::ERRCODE_SUCCESSFUL_COMPLETION, message, "", "");
}

fn report(level: PgLogLevel, code: Code, message: impl Into<String>, detail: &str, hint: &str) {
    if code == Code::ERRCODE_OUT_OF_MEMORY {
        // To report it takes some.
        crate::reserve::drop_ballast();
    }
    let mut report = ErrorReport::new(code, message.into(), "zson");
    if !detail.is_empty() {
        report = report.set_detail(detail.to_owned());
    }
    if !hint.is_empty() {
        report = report.set_hint(hint.to_owned());
    }
    report.report(level);
}

/// Ends the statement with what the core found wrong.
#[cold]
pub fn raise_core(error: &pgshrink_zson::Error) -> ! {
    use pgshrink_zson::Error;
    let (code, hint) = match error {
        _ if error.is_corruption() => (
            Code::ERRCODE_DATA_CORRUPTED,
            "Other documents are not affected. Restore this one from a backup or a replica.",
        ),
        _ if error.is_memory() => (Code::ERRCODE_OUT_OF_MEMORY, ""),
        Error::Limit { .. } => (Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, ""),
        Error::Unsupported { .. } => (
            Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            "A newer version of zson wrote this. Install the library \
                of that version.",
        ),
        _ => (Code::ERRCODE_INTERNAL_ERROR, ""),
    };
    raise(code, format!("zson: {error}"), "", hint)
}

/// Ends the statement because a document needs a dictionary that is not here.
#[cold]
pub fn raise_missing_dictionary(id: i64) -> ! {
    raise(
        Code::ERRCODE_DATA_CORRUPTED,
        format!("zson: a document needs dictionary {id}, which this database does not have"),
        "Expected a row of that id in zson_dictionary (in zson_dict for documents of version 1.1).",
        "Restore the table from a backup or a replica of this same database: ids are local to a database.",
    )
}
