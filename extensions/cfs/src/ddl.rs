//! `CREATE TABLESPACE … WITH (compression = …, encryption = …)` and `ALTER TABLESPACE … SET (…)`.
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
use pgshrink_cfs_server::server;
use pgshrink_cfs_server::setting::{DEFAULT, Setting};

use crate::{absence, labels, mend, report};

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
        wanted: Wanted,
        is_new: bool,
    },
    /// Forget the tablespace.
    Dropped(Oid),
}

/// Our options of a statement.
#[derive(Clone, Copy, Default)]
struct Wanted {
    compression: Option<Setting>,
    is_encrypted: Option<bool>,
}

impl Wanted {
    /// The setting that follows from the one of before.
    fn after(self, before: Setting) -> Setting {
        let plain = Setting { is_encrypted: false, ..before };
        let compression = self.compression.unwrap_or(plain);
        if !self.is_encrypted.unwrap_or(before.is_encrypted) {
            return compression;
        }
        // Alone it brings compression along.
        let recommended = Setting { compression: Some(DEFAULT), ..compression };
        let compression = if self.compression.is_none() && compression.compression.is_none() {
            recommended
        } else {
            compression
        };
        compression.encrypted().unwrap_or_else(|| {
            report::error(
                Code::ERRCODE_INVALID_PARAMETER_VALUE,
                "cannot encrypt a tablespace with \"compression\" = \"none\": plain files are never encrypted",
                "Choose another compression, or set encryption = off as well.",
            )
        })
    }
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
                | NodeTag::T_CreatedbStmt
                | NodeTag::T_AlterDatabaseStmt
        );
        if is_ours {
            (pstmt, then) = guarded(|| prepare(pstmt, tag));
        }
        if absence::is_for(tag) {
            guarded(|| absence::wait_for((*pstmt).utilityStmt, tag));
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
        if let Some(options) = database_options((*pstmt).utilityStmt, tag) {
            refuse_catalogs(options);
            return (pstmt, Then::Nothing);
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
        let (mut kept, mut wanted) = (std::ptr::null_mut(), Wanted::default());
        for option in list(*options) {
            if !is_ours(option) {
                kept = pg_sys::lappend(kept, option.cast());
                continue;
            }
            wanted.take(option, is_reset);
        }
        *options = kept;
        if is_new && wanted.after(Setting::PLAIN).is_encrypted {
            labels::check_encryption(None);
        }
        (pstmt, Then::Label { name, wanted, is_new })
    }
}

impl Wanted {
    /// Reads an option of ours.
    ///
    /// # Safety
    /// An option of the server's.
    unsafe fn take(&mut self, option: *mut pg_sys::DefElem, is_reset: bool) {
        // SAFETY: by the caller.
        unsafe {
            let name = CStr::from_ptr((*option).defname).to_string_lossy();
            if is_reset && !(*option).arg.is_null() {
                // As the server says it of its own.
                report::error(
                    Code::ERRCODE_SYNTAX_ERROR,
                    "RESET must not include values for parameters",
                    format!("Write RESET ({name})."),
                );
            }
            let is_compression = name == "compression";
            if if is_compression { self.compression.is_some() } else { self.is_encrypted.is_some() } {
                report::error(
                    Code::ERRCODE_SYNTAX_ERROR,
                    format!("parameter \"{name}\" specified more than once"),
                    "Specify it once.",
                );
            }
            if is_compression {
                self.compression = Some(if is_reset { Setting::PLAIN } else { value_of(option) });
            } else {
                // Raises an ERROR as the server's own options do.
                self.is_encrypted = Some(!is_reset && pg_sys::defGetBoolean(option));
            }
        }
    }
}

/// The options of a statement that makes a database or moves it.
unsafe fn database_options(statement: *mut pg_sys::Node, tag: NodeTag) -> Option<*mut pg_sys::List> {
    // SAFETY: a statement of the kind that the tag says.
    unsafe {
        match tag {
            NodeTag::T_CreatedbStmt => Some((*statement.cast::<pg_sys::CreatedbStmt>()).options),
            NodeTag::T_AlterDatabaseStmt => Some((*statement.cast::<pg_sys::AlterDatabaseStmt>()).options),
            _ => None,
        }
    }
}

/// Everything is plain in a database's default tablespace, so that is no encrypted one.
unsafe fn refuse_catalogs(options: *mut pg_sys::List) {
    // SAFETY: by the caller: options of the server's.
    unsafe {
        for option in list(options) {
            if CStr::from_ptr((*option).defname).to_bytes() != b"tablespace" || (*option).arg.is_null() {
                continue;
            }
            let tablespace = pg_sys::get_tablespace_oid(pg_sys::defGetString(option), true);
            if server::setting(tablespace.to_u32()).is_some_and(|setting| setting.is_encrypted) {
                report::error(
                    Code::ERRCODE_FEATURE_NOT_SUPPORTED,
                    "an encrypted tablespace cannot be a database's default: catalogs, and tables beside them, stay plain",
                    "Keep the database in another tablespace, and set default_tablespace for its tables.",
                );
            }
        }
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
pub(crate) unsafe fn list(list: *mut pg_sys::List) -> impl Iterator<Item = *mut pg_sys::DefElem> {
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
        Then::Label { name, wanted, is_new } => {
            // SAFETY: in the statement's transaction; the name is of the copy, which lives as long as the statement.
            let tablespace = unsafe {
                pg_sys::CommandCounterIncrement();
                pg_sys::get_tablespace_oid(name, false)
            };
            let setting = wanted_setting(tablespace, wanted, is_new);
            let is_compressed = setting.compression.is_some();
            labels::set(tablespace, setting, is_new);
            if is_new && is_compressed {
                // At once: a filesystem may fill before the launcher looks. It tries again, and says nothing either.
                let _ = server::fill_reserve(tablespace.to_u32());
            }
        }
    }
}

/// What the statement makes of the tablespace's setting.
fn wanted_setting(tablespace: Oid, wanted: Wanted, is_new: bool) -> Setting {
    if is_new {
        return wanted.after(Setting::PLAIN);
    }
    mend::lock(tablespace);
    let before = labels::read(tablespace).unwrap_or(Setting::PLAIN);
    let setting = wanted.after(before);
    if setting.is_encrypted && !before.is_encrypted && !labels::is_of_catalogs(tablespace) {
        labels::check_encryption(Some(tablespace));
    }
    setting
}
