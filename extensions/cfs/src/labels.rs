//! Labels, and settings of tablespaces: a shared security label, which is the truth; a file in the data directory, which redo
//! and a start can read; and the server's memory, which is in force.
//!
//! A statement changes the label, as any transaction changes a catalog. Before its commit it is read once more, with
//! what savepoints have undone, and after it file and memory follow. A crash in between is mended by the launcher
//! ([`crate::mend`]), which compares labels with files; on a standby that is how a setting arrives.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;

use pgrx::pg_sys::{self, Oid, XactEvent};
use pgrx::{PgSqlErrorCode as Code, pg_guard};
use pgshrink_cfs_server::setting::{Setting, SettingError};
use pgshrink_cfs_server::{keys, saved, server};

use crate::{board, functions, mend, report, targets};

/// The provider's name.
pub const PROVIDER: &CStr = c"cfs";

/// What the transaction has done about tablespaces.
#[derive(Default)]
struct Pending {
    /// Labels that were set.
    touched: Vec<u32>,
    /// Tablespaces that were made: their files go if the transaction fails.
    made: Vec<u32>,
    /// Tablespaces that were dropped.
    dropped: Vec<u32>,
    /// Settings as they are at the commit.
    decided: Vec<(u32, Setting)>,
    /// Databases that got a label, or in which a relation got one.
    converted: Vec<u32>,
}

thread_local! {
    /// Never destroyed: a process that ends by exit(3) aborts its transaction after its thread's values are gone.
    static PENDING: ManuallyDrop<RefCell<Pending>> = const { ManuallyDrop::new(RefCell::new(Pending::NONE)) };
}

impl Pending {
    const NONE: Pending = Pending {
        touched: Vec::new(),
        made: Vec::new(),
        dropped: Vec::new(),
        decided: Vec::new(),
        converted: Vec::new(),
    };
}

/// Uses what this process's transaction has done.
fn pending<T>(use_it: impl FnOnce(&mut Pending) -> T) -> T {
    PENDING.with(|pending| use_it(&mut pending.borrow_mut()))
}

/// Tells the server of the provider, and of what has to be done at a transaction's end.
pub fn register() {
    // SAFETY: while the server starts; functions that live as long as the library.
    unsafe {
        pg_sys::register_label_provider(PROVIDER.as_ptr(), Some(relabel));
        pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut());
    }
}

/// Raises an ERROR for a value that means nothing.
pub fn raise(error: &SettingError) -> ! {
    report::error(Code::ERRCODE_INVALID_PARAMETER_VALUE, error.to_string(), error.hint())
}

/// `SECURITY LABEL FOR cfs ON …`: what pg_dumpall writes for a tablespace.
#[pg_guard]
unsafe extern "C-unwind" fn relabel(object: *const pg_sys::ObjectAddress, label: *const c_char) {
    // SAFETY: the server's, valid for the call.
    let object = unsafe { *object };
    if object.classId != pg_sys::TableSpaceRelationId {
        // SAFETY: a string of the server's, or none.
        let text = (!label.is_null()).then(|| unsafe { CStr::from_ptr(label) }.to_string_lossy());
        targets::check_label(&object, text.as_deref());
        note_conversion(targets::database_of(&object));
        return;
    }
    if !label.is_null() {
        // SAFETY: a string of the server's.
        let text = unsafe { CStr::from_ptr(label) }.to_string_lossy();
        match Setting::from_label(&text) {
            Ok(setting) if setting != Setting::PLAIN && is_of_catalogs(object.objectId) => {
                refuse_catalogs(object.objectId)
            }
            Ok(setting) if setting.is_encrypted => check_encryption(Some(object.objectId)),
            Ok(_) => {}
            Err(error) => raise(&error),
        }
    }
    pending(|pending| pending.touched.push(object.objectId.to_u32()));
}

/// Whether these are the tablespaces of the server's own, in which nothing is compressed.
pub fn is_of_catalogs(tablespace: Oid) -> bool {
    [pg_sys::DEFAULTTABLESPACE_OID, pg_sys::GLOBALTABLESPACE_OID].contains(&tablespace)
}

fn refuse_catalogs(tablespace: Oid) -> ! {
    let name = if tablespace == pg_sys::GLOBALTABLESPACE_OID { "pg_global" } else { "pg_default" };
    report::error(
        Code::ERRCODE_FEATURE_NOT_SUPPORTED,
        format!("tablespace \"{name}\" cannot be compressed as a whole: it contains catalogs"),
        "Compress its tables with cfs_compress_relation or cfs_compress_database, or create a tablespace \
         for them with CREATE TABLESPACE … WITH (compression = …).",
    )
}

/// Raises an ERROR where a tablespace cannot be encrypted, and warns of what is not by this alone. `None`: a new one.
pub fn check_encryption(tablespace: Option<Oid>) {
    if !keys::has_key() {
        report::error(
            Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "cannot encrypt a tablespace: the server has no key",
            "Generate one with \"openssl rand -hex 32\", set cfs.key_command or cfs.key_file, and restart \
             the server.",
        );
    }
    let Some(tablespace) = tablespace else { return };
    let was_encrypted = server::setting(tablespace.to_u32()).is_some_and(|setting| setting.is_encrypted);
    if was_encrypted {
        return;
    }
    let content = server::content(tablespace.to_u32()).unwrap_or_else(|problem| functions::raise(&problem));
    if content.has_catalogs {
        report::error(
            Code::ERRCODE_OBJECT_IN_USE,
            "cannot encrypt the default tablespace of a database: its catalogs, and tables beside them, stay plain",
            "Create another tablespace for the tables, and move them to it with ALTER TABLE … SET TABLESPACE.",
        );
    }
    if content.has_relations {
        report::warning(
            Code::ERRCODE_WARNING,
            "files in the tablespace that are already compressed do not change: only new files, and plain \
             files that are compressed from now on, are encrypted",
            "VACUUM FULL, CLUSTER and REINDEX create new files; cfs_relations shows which relations are encrypted.",
        );
    }
}

/// At the commit the launcher is to look at a database.
pub fn note_conversion(database: Oid) {
    pending(|pending| pending.converted.push(database.to_u32()));
}

/// Whether this transaction has changed a setting of the session's database, or of a relation in it.
pub fn has_changed(database: Oid) -> bool {
    pending(|pending| pending.converted.contains(&database.to_u32()))
}

fn address(tablespace: Oid) -> pg_sys::ObjectAddress {
    pg_sys::ObjectAddress { classId: pg_sys::TableSpaceRelationId, objectId: tablespace, objectSubId: 0 }
}

/// Sets a tablespace's label, in the transaction that runs.
pub fn set(tablespace: Oid, setting: Setting, is_new: bool) {
    if setting != Setting::PLAIN && is_of_catalogs(tablespace) {
        refuse_catalogs(tablespace);
    }
    let label = CString::new(setting.label()).unwrap_or_default();
    let object = address(tablespace);
    // Until file and memory have followed: statements at the same time, and the launcher, come one after another.
    mend::lock(tablespace);
    // SAFETY: strings that end with a zero, in a transaction.
    unsafe { pg_sys::SetSecurityLabel(&object, PROVIDER.as_ptr(), label.as_ptr()) };
    let number = tablespace.to_u32();
    if is_new {
        pending(|pending| pending.made.push(number));
        // Before the commit: after a crash redo makes the tablespace, and its files, again.
        if let Err(error) = saved::save(Path::new("."), number, setting) {
            report::error(
                Code::ERRCODE_IO_ERROR,
                format!("cannot save the tablespace's compression: {error}"),
                "Make sure that the data directory is writable.",
            );
        }
    }
    pending(|pending| pending.touched.push(number));
}

/// A tablespace is being dropped.
pub fn dropped(tablespace: Oid) {
    pending(|pending| pending.dropped.push(tablespace.to_u32()));
}

/// A label of a later version may mean what is not known here, and plain is always allowed but where it would show
/// what is to be encrypted.
pub fn understood(label: &str) -> Setting {
    let unknown = if label.contains("encryption=on") { Setting::SAFE } else { Setting::PLAIN };
    Setting::from_label(label).unwrap_or(unknown)
}

/// The setting that a tablespace's label says; `None`: it has no label.
pub fn read(tablespace: Oid) -> Option<Setting> {
    let object = address(tablespace);
    // SAFETY: in a transaction; the label is copied at once.
    let label = unsafe {
        let label = pg_sys::GetSecurityLabel(&object, PROVIDER.as_ptr());
        (!label.is_null()).then(|| CStr::from_ptr(label).to_string_lossy().into_owned())
    };
    label.map(|label| understood(&label))
}

#[pg_guard]
unsafe extern "C-unwind" fn at_transaction_end(event: XactEvent::Type, _argument: *mut c_void) {
    match event {
        XactEvent::XACT_EVENT_PRE_COMMIT => decide(),
        XactEvent::XACT_EVENT_PRE_PREPARE => {
            let is_pending = pending(|pending| !pending.touched.is_empty() || !pending.converted.is_empty());
            if is_pending {
                report::error(
                    Code::ERRCODE_FEATURE_NOT_SUPPORTED,
                    "cannot PREPARE a transaction that changed the compression of a tablespace, table or database",
                    "Change it in a separate transaction.",
                );
            }
        }
        XactEvent::XACT_EVENT_COMMIT => apply(),
        XactEvent::XACT_EVENT_ABORT => {
            let pending = pending(std::mem::take);
            for tablespace in pending.made {
                note(saved::remove(Path::new("."), tablespace), tablespace);
            }
        }
        _ => {}
    }
}

/// Reads the labels as they will be committed.
fn decide() {
    let touched = pending(|pending| std::mem::take(&mut pending.touched));
    if !touched.is_empty() {
        // What the last statement did is to be seen.
        // SAFETY: in a transaction that is about to commit.
        unsafe { pg_sys::CommandCounterIncrement() };
    }
    for tablespace in touched {
        // A label that was taken away leaves what is compressed readable: the setting is kept, as plain.
        let setting = read(Oid::from(tablespace)).unwrap_or(Setting::PLAIN);
        pending(|pending| pending.decided.push((tablespace, setting)));
    }
}

/// After the commit: no errors any more.
fn apply() {
    let Pending { decided, dropped, converted, .. } = pending(std::mem::take);
    for (tablespace, setting) in decided {
        follow(tablespace, setting);
    }
    for tablespace in dropped {
        forget(tablespace);
    }
    converted.into_iter().for_each(board::put);
}

/// Makes file and memory say what the label says.
pub fn follow(tablespace: u32, setting: Setting) {
    note(saved::save(Path::new("."), tablespace, setting), tablespace);
    if let Err(problem) = server::set(tablespace, setting) {
        report::warning(
            Code::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            format!("compression of tablespace {tablespace} is not in effect: {problem}"),
            "Restart the server: it forgets tablespaces that were dropped.",
        );
    }
}

/// Removes what is left of a tablespace that is gone.
pub fn forget(tablespace: u32) {
    note(saved::remove(Path::new("."), tablespace), tablespace);
    if server::setting(tablespace).is_some() {
        let _ = server::set(tablespace, Setting::PLAIN);
    }
}

fn note(done: Result<(), saved::SavedError>, tablespace: u32) {
    if let Err(error) = done {
        report::warning(
            Code::ERRCODE_IO_ERROR,
            format!("the setting of compressed tablespace {tablespace} was not saved: {error}"),
            "The cfs launcher will retry; make sure that the data directory is writable.",
        );
    }
}
