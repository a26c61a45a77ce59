//! Files and memory follow the labels of tablespaces: what a crash between a commit and its files leaves, and what a
//! primary sends to a standby.
//!
//! A worker without a database sees few catalogs: those that are there before any was chosen. `pg_shseclabel` is one
//! of them, its index is not, and neither is `pg_tablespace`. So the labels are read by a scan, and whether a
//! tablespace without a label exists is asked of its link in `pg_tblspc`.
//!
//! Whoever changes a label holds a lock on the tablespace until file and memory have followed ([`lock`]). A tablespace
//! that is locked is left alone until the next look. On a standby nobody else writes.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;

use pgrx::PgSqlErrorCode as Code;
use pgrx::bgworkers::BackgroundWorker;
use pgrx::pg_sys::{self, Datum, Oid};
use pgshrink_cfs_server::setting::Setting;
use pgshrink_cfs_server::{saved, server};

use crate::{labels, report};

/// `pg_shseclabel`, which the server's bound headers do not name, and its columns.
const LABELS: u32 = 3592;
const COLUMNS: usize = 4;
/// Of an object of all databases, in a lock's name.
const NO_DATABASE: u32 = 0;
const DEFAULT_LOCK_METHOD: u8 = 1;

/// Makes every tablespace's file and memory say what its label says; returns the labelled ones' settings.
pub fn mend() -> BTreeMap<u32, Setting> {
    // Before the labels: a tablespace that is made later is no business of this look.
    let files = match saved::read_all(Path::new(".")) {
        Ok(saved) => saved.settings.into_iter().collect::<BTreeMap<_, _>>(),
        Err(error) => {
            let hint = "The cfs launcher will retry; make sure that the directory is readable.";
            report::warning(Code::ERRCODE_IO_ERROR, format!("settings cannot be compared: {error}"), hint);
            return BTreeMap::new();
        }
    };
    let labelled = BackgroundWorker::transaction(labels);
    let mut tablespaces: Vec<_> = labelled.keys().chain(files.keys()).copied().collect();
    tablespaces.sort_unstable();
    tablespaces.dedup();
    for tablespace in tablespaces {
        let wanted = labelled.get(&tablespace).copied();
        if !agrees(tablespace, wanted, files.get(&tablespace).copied()) {
            BackgroundWorker::transaction(|| mend_one(tablespace));
        }
    }
    labelled
}

/// Whether a tablespace's file and memory say what its label says, or plain where it has none.
fn agrees(tablespace: u32, label: Option<Setting>, file: Option<Setting>) -> bool {
    let memory = server::setting(tablespace);
    match label {
        Some(label) => file == Some(label) && memory == Some(label),
        None => file.is_none() || (is_there(tablespace) && file == Some(Setting::PLAIN) && memory == file),
    }
}

/// Whether the data directory has a tablespace of this number.
fn is_there(tablespace: u32) -> bool {
    Path::new("pg_tblspc").join(tablespace.to_string()).symlink_metadata().is_ok()
}

/// Looks again, with the tablespace locked.
fn mend_one(tablespace: u32) {
    // SAFETY: in a transaction.
    let is_standby = unsafe { pg_sys::RecoveryInProgress() };
    if !is_standby && !try_lock(tablespace) {
        return;
    }
    match labels().get(&tablespace) {
        Some(setting) => labels::follow(tablespace, *setting),
        // Its label was taken away: what is compressed stays readable.
        None if is_there(tablespace) => labels::follow(tablespace, Setting::PLAIN),
        None => labels::forget(tablespace),
    }
}

/// Keeps others from changing a tablespace's label until the transaction, with what follows it, has ended.
/// `SECURITY LABEL` takes the same lock.
pub fn lock(tablespace: Oid) {
    let mode = pg_sys::ShareUpdateExclusiveLock as i32;
    // SAFETY: in a transaction.
    unsafe { pg_sys::LockSharedObject(pg_sys::TableSpaceRelationId, tablespace, 0, mode) };
}

fn try_lock(tablespace: u32) -> bool {
    let tag = pg_sys::LOCKTAG {
        locktag_field1: NO_DATABASE,
        locktag_field2: pg_sys::TableSpaceRelationId.to_u32(),
        locktag_field3: tablespace,
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
        locktag_lockmethodid: DEFAULT_LOCK_METHOD,
    };
    let mode = pg_sys::ShareUpdateExclusiveLock as i32;
    // SAFETY: in a transaction, at whose end the lock goes.
    let got = unsafe { pg_sys::LockAcquire(&tag, mode, false, true) };
    got != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// All labels of ours, in a transaction.
fn labels() -> BTreeMap<u32, Setting> {
    let mut found = BTreeMap::new();
    // SAFETY: in a transaction: a scan of a shared catalog that a session without a database can open.
    unsafe {
        let lock = pg_sys::AccessShareLock as i32;
        let relation = pg_sys::table_open(Oid::from(LABELS), lock);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let (mut values, mut nulls) = ([Datum::null(); COLUMNS], [true; COLUMNS]);
            pg_sys::heap_deform_tuple(tuple, (*relation).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
            let [object, class, provider, label] = values;
            let is_ours = class.value() as u32 == pg_sys::TableSpaceRelationId.to_u32()
                && text(provider).as_bytes() == labels::PROVIDER.to_bytes();
            if is_ours {
                found.insert(object.value() as u32, labels::understood(&text(label)));
            }
        }
        pg_sys::heap_endscan(scan);
        pg_sys::table_close(relation, lock);
    }
    found
}

/// # Safety
/// The datum is a text, and not null.
unsafe fn text(datum: Datum) -> String {
    // SAFETY: by the caller; the text is copied at once.
    unsafe {
        let bytes = pg_sys::text_to_cstring(datum.cast_mut_ptr());
        let text = std::ffi::CStr::from_ptr(bytes).to_string_lossy().into_owned();
        pg_sys::pfree(bytes.cast());
        text
    }
}
