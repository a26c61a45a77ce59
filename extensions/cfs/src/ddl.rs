//! `CREATE TABLESPACE … WITH (compression = …)` and `ALTER TABLESPACE … SET (compression = …)`.
//!
//! The server knows no such option. So it is taken out of a copy of the statement, the server runs the rest, and the
//! setting becomes the tablespace's label, in the same transaction.
//!
//! The hook itself is not guarded: a guard would make each statement's error a panic and back, which loses its
//! context, constraint names and positions. It holds nothing that needs dropping while the server runs the statement.
#![allow(unsafe_code)]

use std::ffi::CStr;

use pgrx::PgSqlErrorCode as Code;
use pgrx::pg_sys::{self, NodeTag, Oid};
use pgshrink_cfs_server::setting::Setting;

use crate::{labels, report};

/// The server's own way, and other libraries' hooks, called past pgrx's guard.
type Hook = pg_sys::ProcessUtility_hook_type;

static mut NEXT: Hook = None;

mod raw {
    use std::ffi::c_char;

    use pgrx::pg_sys;

    unsafe extern "C-unwind" {
        pub fn standard_ProcessUtility(
            pstmt: *mut pg_sys::PlannedStmt,
            query: *const c_char,
            read_only: bool,
            context: pg_sys::ProcessUtilityContext::Type,
            params: pg_sys::ParamListInfo,
            environment: *mut pg_sys::QueryEnvironment,
            dest: *mut pg_sys::DestReceiver,
            completion: *mut pg_sys::QueryCompletion,
        );
    }
}

/// Puts the hook in.
pub fn register() {
    // SAFETY: while the server starts, in its only process.
    unsafe {
        NEXT = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

/// What is left to do after the server's part. Nothing in it needs dropping.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    /// Give the tablespace of this name its label.
    Label {
        name: *const std::ffi::c_char,
        setting: Setting,
        is_new: bool,
    },
    /// Forget the tablespace.
    Dropped(Oid),
}

/// See the header.
unsafe extern "C-unwind" fn process_utility(
    pstmt: *mut pg_sys::PlannedStmt,
    query: *const std::ffi::c_char,
    read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    dest: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the server calls it with valid arguments, which are handed on as they are.
    unsafe {
        let (mut pstmt, mut then) = (pstmt, Then::Nothing);
        let tag = (*(*pstmt).utilityStmt).type_;
        let is_ours = matches!(
            tag,
            NodeTag::T_CreateTableSpaceStmt
                | NodeTag::T_AlterTableSpaceOptionsStmt
                | NodeTag::T_DropTableSpaceStmt
        );
        if is_ours {
            (pstmt, then) = guarded(|| prepare(pstmt, tag));
        }
        match NEXT {
            Some(next) => next(pstmt, query, read_only, context, params, environment, dest, completion),
            None => raw::standard_ProcessUtility(
                pstmt,
                query,
                read_only,
                context,
                params,
                environment,
                dest,
                completion,
            ),
        }
        if is_ours {
            guarded(|| finish(then));
        }
    }
}

/// Panics of `body` become ERRORs.
unsafe fn guarded<R: Copy>(body: impl FnOnce() -> R) -> R {
    // SAFETY: in the server's main thread.
    unsafe { pg_sys::submodules::panic::pgrx_extern_c_guard(std::panic::AssertUnwindSafe(body)) }
}

/// Reads our options, and takes them out of a copy of the statement if there are any.
fn prepare(pstmt: *mut pg_sys::PlannedStmt, tag: NodeTag) -> (*mut pg_sys::PlannedStmt, Then) {
    // SAFETY: a statement of the kind that the tag says, valid for the call.
    unsafe {
        if tag == NodeTag::T_DropTableSpaceStmt {
            let statement = (*pstmt).utilityStmt.cast::<pg_sys::DropTableSpaceStmt>();
            let tablespace = pg_sys::get_tablespace_oid((*statement).tablespacename, true);
            let then = if tablespace == Oid::INVALID { Then::Nothing } else { Then::Dropped(tablespace) };
            return (pstmt, then);
        }
        let is_new = tag == NodeTag::T_CreateTableSpaceStmt;
        if !list(*options_of((*pstmt).utilityStmt, is_new)).any(|option| is_ours(option)) {
            return (pstmt, Then::Nothing);
        }
        let pstmt = pg_sys::copyObjectImpl(pstmt.cast()).cast::<pg_sys::PlannedStmt>();
        let statement = (*pstmt).utilityStmt;
        let options = options_of(statement, is_new);
        let (name, is_reset) = if is_new {
            ((*statement.cast::<pg_sys::CreateTableSpaceStmt>()).tablespacename, false)
        } else {
            let alter = statement.cast::<pg_sys::AlterTableSpaceOptionsStmt>();
            ((*alter).tablespacename, (*alter).isReset)
        };
        let (mut kept, mut setting) = (std::ptr::null_mut(), None);
        for option in list(*options) {
            if !is_ours(option) {
                kept = pg_sys::lappend(kept, option.cast());
                continue;
            }
            refuse_encryption(option);
            if is_reset && !(*option).arg.is_null() {
                // As the server says it of its own.
                report::error(
                    Code::ERRCODE_SYNTAX_ERROR,
                    "RESET must not include values for parameters",
                    "Write RESET (compression).",
                );
            }
            if setting.is_some() {
                report::error(
                    Code::ERRCODE_SYNTAX_ERROR,
                    "parameter \"compression\" specified more than once",
                    "Give it once.",
                );
            }
            setting = Some(if is_reset { Setting::PLAIN } else { value_of(option) });
        }
        *options = kept;
        let then = setting.map_or(Then::Nothing, |setting| Then::Label { name, setting, is_new });
        (pstmt, then)
    }
}

/// The statement's list of options.
unsafe fn options_of(statement: *mut pg_sys::Node, is_new: bool) -> *mut *mut pg_sys::List {
    // SAFETY: by the caller.
    unsafe {
        if is_new {
            &raw mut (*statement.cast::<pg_sys::CreateTableSpaceStmt>()).options
        } else {
            &raw mut (*statement.cast::<pg_sys::AlterTableSpaceOptionsStmt>()).options
        }
    }
}

/// The elements of a list of options.
unsafe fn list(list: *mut pg_sys::List) -> impl Iterator<Item = *mut pg_sys::DefElem> {
    // SAFETY: by the caller: a list of the server's, or none.
    let count = if list.is_null() { 0 } else { unsafe { (*list).length } };
    // SAFETY: inside the list.
    (0..count).map(move |at| unsafe { (*(*list).elements.add(at as usize)).ptr_value.cast() })
}

unsafe fn is_ours(option: *mut pg_sys::DefElem) -> bool {
    // SAFETY: an option of the server's.
    unsafe {
        let name = CStr::from_ptr((*option).defname).to_bytes();
        (*option).defnamespace.is_null() && matches!(name, b"compression" | b"encryption")
    }
}

unsafe fn refuse_encryption(option: *mut pg_sys::DefElem) {
    // SAFETY: an option of the server's.
    if unsafe { CStr::from_ptr((*option).defname) }.to_bytes() == b"encryption" {
        report::error(
            Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            "encryption of tablespaces is not supported by this version of cfs",
            "Leave the option out.",
        );
    }
}

unsafe fn value_of(option: *mut pg_sys::DefElem) -> Setting {
    // SAFETY: an option of the server's.
    unsafe {
        // As the server's own options: alone it means true.
        let text = if (*option).arg.is_null() {
            "true".to_owned()
        } else {
            CStr::from_ptr(pg_sys::defGetString(option)).to_string_lossy().into_owned()
        };
        text.parse().unwrap_or_else(|error| labels::raise(&error))
    }
}

/// After the server's part.
fn finish(then: Then) {
    match then {
        Then::Nothing => {}
        Then::Dropped(tablespace) => labels::dropped(tablespace),
        Then::Label { name, setting, is_new } => {
            // SAFETY: in the statement's transaction; the name is of the copy, which lives as long as the statement.
            let tablespace = unsafe {
                pg_sys::CommandCounterIncrement();
                pg_sys::get_tablespace_oid(name, false)
            };
            labels::set(tablespace, setting, is_new);
        }
    }
}
