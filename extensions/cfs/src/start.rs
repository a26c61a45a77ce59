//! The server's start: what it must be, the hooks in its imports, the memory that its processes share.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::path::Path;

use pgrx::pg_sys::{self, BackendType};
use pgrx::{PgSqlErrorCode as Code, pg_guard};

use pgshrink_cfs_server::server::{self, Config};
use pgshrink_cfs_server::setting::Setting;
use pgshrink_cfs_server::{Problem, Room, ServerFront, keys, owner, saved, secrets};

use crate::report::{error, fatal, warning};
use crate::{board, settings};

static FRONT: ServerFront = ServerFront;
/// Processes beside those that `MaxBackends` counts: auxiliary ones and workers of asynchronous I/O.
const AUXILIARY_PROCESSES: u32 = 64;

static mut NEXT_SHMEM_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Only the postmaster, or a server with a single user, may load the library.
pub fn require_preload() {
    // SAFETY: reads a flag of the server.
    if !unsafe { pg_sys::process_shared_preload_libraries_in_progress } {
        error(
            Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "cfs must be loaded when the server starts",
            "Add cfs to shared_preload_libraries in postgresql.conf, and restart the server.",
        );
    }
}

fn option(name: &CStr) -> Option<String> {
    // SAFETY: a string that ends with a zero; the value is copied at once.
    unsafe {
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
    }
}

/// What pages and segments must be like, and how files must be read.
pub fn check_server() {
    for (name, expected) in [(c"block_size", "8192"), (c"segment_size", "131072")] {
        let found = option(name).unwrap_or_default();
        // Shown in units by some versions.
        if found != expected && !(name == c"segment_size" && found == "1GB") {
            let name = name.to_string_lossy();
            fatal(
                Code::ERRCODE_FEATURE_NOT_SUPPORTED,
                format!("cfs works only with {name} = {expected}, this server has {found}"),
                "Use a server that was built with the default sizes, or remove cfs from shared_preload_libraries.",
            );
        }
    }
    if option(c"io_method").as_deref() == Some("io_uring") {
        fatal(
            Code::ERRCODE_INVALID_PARAMETER_VALUE,
            "cfs does not work with io_method = io_uring: its reads would not pass through the library",
            "Set io_method = worker (the default) or sync, and restart the server.",
        );
    }
}

/// Puts the hooks in.
pub fn install() {
    if let Err(refused) = pgshrink_interpose::install(&FRONT) {
        fatal(
            Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            format!("cfs cannot work in this server program: {refused}"),
            "Run \"pgshrink cfs check-server\" for details. Without cfs in shared_preload_libraries the \
             server starts, but compressed tables cannot be read.",
        );
    }
    // SAFETY: while the server starts, in its only process.
    unsafe {
        NEXT_SHMEM_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(shmem_startup);
    }
}

/// Runs when the server starts, and again after a crash of one of its processes, when all others have ended.
#[pg_guard]
unsafe extern "C-unwind" fn shmem_startup() {
    // SAFETY: what was there before; in the postmaster or a single-user server.
    unsafe {
        if let Some(next) = NEXT_SHMEM_STARTUP {
            next();
        }
    }
    board::begin();
    let Err(error) = begin() else { return };
    let (code, hint) = match error.downcast_ref::<Problem>() {
        Some(Problem::InUse { link, .. }) => (
            Code::ERRCODE_LOCK_FILE_EXISTS,
            format!(
                "Stop that server, or point {link} of this data directory to a copy of the tablespace. Two \
                 servers on one directory would destroy each other's data."
            ),
        ),
        Some(Problem::Copied { .. }) => (
            Code::ERRCODE_DATA_CORRUPTED,
            "Files of a running server that were copied one by one are not a backup: restore one that \
             pg_basebackup made. If these were copied from an atomic snapshot, or while no server was \
             running, confirm it with \"pgshrink cfs accept DIRECTORY\"."
                .to_owned(),
        ),
        Some(Problem::Key(_)) => (
            Code::ERRCODE_CONFIG_FILE_ERROR,
            "Set cfs.key_command or cfs.key_file. If the master key was being changed, also set \
             cfs.old_key_command or cfs.old_key_file to get the previous key."
                .to_owned(),
        ),
        _ => (Code::ERRCODE_SYSTEM_ERROR, "Compressed tables cannot be read without it.".to_owned()),
    };
    fatal(code, format!("cfs cannot start: {error}"), hint);
}

// tidy: long, what the server says of itself, field by field
fn begin() -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: variables of the server that are set by now.
    let (backends, buffers, fsync, is_postmaster) = unsafe {
        (pg_sys::MaxBackends, pg_sys::NBuffers, pg_sys::enableFsync, pg_sys::IsPostmasterEnvironment)
    };
    let processes_max = backends.unsigned_abs() + AUXILIARY_PROCESSES;
    let room = Room { segments_max: settings::segments_max(), processes_max };
    server::start(Config {
        version: version_directory()?,
        room,
        backend_memory: settings::backend_memory(),
        dirty_pages_max: u64::from(buffers.unsigned_abs()),
        reserve_bytes_max: settings::reserve_bytes(),
        limit_percent: settings::limit_percent(),
        is_checkpointer,
        // SAFETY: a setting, read in the postmaster.
        files_max: unsafe { pg_sys::max_files_per_process }.unsigned_abs(),
        is_fsync_on,
        is_last,
        is_redo,
        is_recovering,
        is_postmaster,
        tool: None,
    })?;
    let saved::Saved { settings: known, errors } = saved::read_all(Path::new("."))?;
    // Before anything in their directories is touched.
    let tablespaces = known.iter().map(|(tablespace, _)| *tablespace);
    for tablespace in tablespaces.chain(errors.iter().filter_map(saved::SavedError::tablespace)) {
        owner::own(tablespace)?;
    }
    server::begin(fsync)?;
    // A standby replays for ever, and an archive for long.
    let is_replica = ["standby.signal", "recovery.signal"].iter().any(|name| Path::new(name).exists());
    if is_postmaster && !is_replica {
        server::begin_recovery();
    }
    // What redo has dropped may have its setting here for a while.
    let is_there = |tablespace: u32| Path::new(&format!("pg_tblspc/{tablespace}")).symlink_metadata().is_ok();
    let encrypted: Vec<_> = known
        .iter()
        .filter(|(tablespace, setting)| setting.is_encrypted && is_there(*tablespace))
        .map(|(tablespace, _)| *tablespace)
        .collect();
    keys::begin(Path::new("."), &settings::key_sources(), &encrypted)?;
    // Not for the commands that the server runs.
    // SAFETY: the process has one thread while the server starts.
    unsafe { std::env::remove_var(secrets::VARIABLE) };
    for (tablespace, setting) in known {
        server::set(tablespace, setting)?;
    }
    for error in errors {
        // What is compressed can be read all the same, and the launcher knows the label.
        // With a key it may be encrypted, and is taken for that.
        let setting = if keys::has_key() { Setting::SAFE } else { Setting::PLAIN };
        if let Some(tablespace) = error.tablespace() {
            server::set(tablespace, setting)?;
        }
        let hint = match setting.is_encrypted {
            true => {
                "New files of the tablespace are encrypted until the cfs launcher has saved its setting again."
            }
            false => {
                "New files of the tablespace are plain until the cfs launcher has saved its setting again."
            }
        };
        warning(Code::ERRCODE_IO_ERROR, error.to_string(), hint);
    }
    Ok(())
}

fn is_checkpointer() -> bool {
    // SAFETY: reads a variable of the process.
    unsafe { pg_sys::MyBackendType == BackendType::B_CHECKPOINTER }
}

/// A misspelt `cfs.` setting is an error from here on, and a warning for those that are there.
pub fn reserve_setting_names() {
    // SAFETY: a constant string; while the server loads the library.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"cfs".as_ptr()) };
}

fn is_redo() -> bool {
    // SAFETY: reads a variable of the process.
    unsafe { pg_sys::MyBackendType == BackendType::B_STARTUP }
}

fn is_recovering() -> bool {
    // SAFETY: looks at shared memory that every process has which writes.
    unsafe { pg_sys::RecoveryInProgress() }
}

fn is_fsync_on() -> bool {
    // SAFETY: reads a variable of the process.
    unsafe { pg_sys::enableFsync }
}

/// A server with a single user makes its last checkpoint in its only process.
fn is_last() -> bool {
    // SAFETY: reads variables of the process.
    is_checkpointer() || unsafe { !pg_sys::IsPostmasterEnvironment }
}

/// `TABLESPACE_VERSION_DIRECTORY`: with the catalog's version, which headers that are bound do not have. It is in
/// the control file, behind the system's identifier and the control file's own version.
fn version_directory() -> Result<String, std::io::Error> {
    let control = std::fs::read("global/pg_control")?;
    let catalog = control.get(12..16).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let catalog = catalog.ok_or_else(|| std::io::Error::other("global/pg_control is too short"))?;
    let major = CString::from(pg_sys::PG_MAJORVERSION);
    Ok(format!("PG_{}_{catalog}", major.to_string_lossy()))
}
