//! What was found damaged, in the message that a client sees.
//!
//! A hook of a file call can give the server a number or a page that its own check refuses; the message is the
//! server's then, and does not say what is wrong. It gets a DETAIL and a HINT on its way to the log and the client.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};

use pgrx::PgSqlErrorCode as Code;
use pgrx::pg_guard;
use pgrx::pg_sys::{self, ErrorData};
use pgshrink_cfs::segment::BASE_NAME;
use pgshrink_cfs_server::last_failure;

/// A failure that is older belongs to another message.
const RECENT_SECONDS: u64 = 2;
const HINT: &CStr =
    c"Restore the relation from a backup. Pages that are not damaged can be read. With the server stopped, \
     \"pgshrink cfs salvage\" recovers the intact pages into a new container.";

static mut NEXT_EMIT_LOG: pg_sys::emit_log_hook_type = None;

/// Puts the hook in.
pub fn register() {
    // SAFETY: while the server starts, in its only process.
    unsafe {
        NEXT_EMIT_LOG = pg_sys::emit_log_hook;
        pg_sys::emit_log_hook = Some(emit_log);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn emit_log(edata: *mut ErrorData) {
    // SAFETY: the server's record of the message, which the hook may look at and add to: texts in its own context.
    unsafe {
        let message = &mut *edata;
        let is_damage = message.sqlerrcode == Code::ERRCODE_DATA_CORRUPTED as i32
            || message.sqlerrcode == Code::ERRCODE_IO_ERROR as i32;
        if is_damage
            && message.elevel >= pg_sys::WARNING as i32
            && message.detail.is_null()
            && let Some(detail) = last_failure(RECENT_SECONDS).and_then(|text| CString::new(text).ok())
        {
            let kept = |text: &CStr| pg_sys::MemoryContextStrdup(message.assoc_context, text.as_ptr());
            message.detail = kept(&detail);
            // Of a container whose plain file is missing, the detail says what to do.
            if message.hint.is_null() && !detail.to_string_lossy().contains(BASE_NAME) {
                message.hint = kept(HINT);
            }
        }
        if let Some(next) = NEXT_EMIT_LOG {
            next(edata);
        }
    }
}
