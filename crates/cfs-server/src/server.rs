//! The library's life in a server: what the postmaster makes, and what the extension asks for.
// Handlers of fork and exit.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use pgshrink_cfs::reserve::{bytes_for_commits, bytes_for_pages};
use pgshrink_cfs::slots::{Access, Segment, SegmentKey, Usage};
use pgshrink_cfs::{Error, LIMIT_PERCENT_MAX, Tuning};
use pgshrink_interpose::Errno;

use crate::activity::{Progress, Totals};
use crate::databases;
pub use crate::databases::Content;
use crate::descriptors;
use crate::directories::Exchanging;
use crate::error::Problem;
use crate::file::ServerOpener;
use crate::front::{is_gone, sync};
use crate::names::{self, VERSION_BYTES_MAX};
use crate::owner;
use crate::process;
use crate::region::{Region, Room};
use crate::report::{errno_of, reported};
use crate::reserve;
use crate::setting::Setting;

/// What the server says of itself.
#[derive(Clone, Debug)]
pub struct Config {
    /// `TABLESPACE_VERSION_DIRECTORY`, as `PG_15_202209061`: 1 to 40 bytes.
    pub version: String,
    /// How much there may be at the same time.
    pub room: Room,
    /// Files that the server has open at most in each process, by its own count.
    pub files_max: u32,
    /// Bytes at most for codecs and dictionaries of each process.
    pub backend_memory: usize,
    /// Pages that a checkpoint may have to write on a full filesystem: the shared buffers.
    pub dirty_pages_max: u64,
    /// Bytes at most that a tablespace's reserve has.
    pub reserve_bytes_max: u64,
    /// Garbage of a file, in percent of its live bytes, above which writers wait and collect; more than
    /// [`pgshrink_cfs::LIMIT_PERCENT_MAX`]: there is no limit.
    pub limit_percent: u32,
    /// Whether this process makes checkpoints for all others.
    pub is_checkpointer: fn() -> bool,
    /// Whether the server asks for fsyncs now: a reload changes it.
    pub is_fsync_on: fn() -> bool,
    /// Whether this process, if it ends well, is the last one that writes, and has made the shutdown's checkpoint.
    pub is_last: fn() -> bool,
    /// Whether this process replays WAL.
    pub is_redo: fn() -> bool,
    /// Whether the server has not ended its recovery.
    pub is_recovering: fn() -> bool,
    /// Whether this process forks all others, and so must not touch what they share.
    pub is_postmaster: bool,
    /// What a program that is no server says of itself.
    pub tool: Option<Tool>,
}

/// A program that is no server ([`crate::tool`]).
#[derive(Clone, Debug)]
pub struct Tool {
    /// The data directory's absolute path. A server's is its working directory.
    pub data_directory: PathBuf,
    /// Whether nothing is locked or written: a server may run.
    pub is_read_only: bool,
}

/// What all processes of the server have from the postmaster.
pub(crate) struct Shared {
    pub(crate) region: Region,
    pub(crate) backend_memory: usize,
    pub(crate) reserve_pages: u64,
    pub(crate) reserve_commits: u64,
    pub(crate) tuning: Tuning,
    is_checkpointer: fn() -> bool,
    is_fsync_on: fn() -> bool,
    is_last: fn() -> bool,
    is_redo: fn() -> bool,
    is_recovering: fn() -> bool,
    version: String,
    /// The data directory's absolute path, as the system says it.
    data: Vec<u8>,
    access: FileAccess,
    number: u32,
}

/// Who this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileAccess {
    /// A server.
    Server,
    /// A program beside a stopped server.
    Tool,
    /// A program that locks and writes nothing.
    ToolReads,
}

impl Shared {
    /// The data directory's absolute path.
    pub(crate) fn data_directory(&self) -> &[u8] {
        &self.data
    }

    /// From now on a directory of a database may have containers. A guard is in it by now ([`enter_directory`]).
    pub(crate) fn note_directory(&self, tablespace: u32, database: u32) {
        self.region.noted().note(tablespace, database);
    }

    /// How often names were exchanged; to be asked about with [`Shared::is_still`].
    pub(crate) fn generation(&self) -> u64 {
        self.region.generation().now()
    }

    /// Whether no name was being exchanged then, and none has been since.
    pub(crate) fn is_still(&self, generation: u64) -> bool {
        self.region.generation().is_still(generation)
    }

    /// Raises the generation before a name is exchanged, and again when the value is dropped.
    pub(crate) fn begin_exchange(&self) -> Exchanging {
        self.region.generation().begin_exchange()
    }

    /// Whether this is a program that is no server.
    pub(crate) fn is_tool(&self) -> bool {
        self.access != FileAccess::Server
    }

    /// Whether nothing is locked or written.
    pub(crate) fn is_read_only(&self) -> bool {
        self.access == FileAccess::ToolReads
    }

    /// The version directory's name.
    pub(crate) fn version(&self) -> &[u8] {
        self.version.as_bytes()
    }

    /// The same, as a text.
    pub(crate) fn version_text(&self) -> &str {
        &self.version
    }

    /// This server's number among those that lock files, for as long as its postmaster lives.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Whether the server asks for fsyncs.
    pub(crate) fn is_fsync_on(&self) -> bool {
        (self.is_fsync_on)()
    }

    /// Whether this process replays WAL.
    pub(crate) fn is_redo(&self) -> bool {
        (self.is_redo)()
    }

    /// Whether the server recovers from a crash, and nobody can connect yet.
    pub(crate) fn is_recovering(&self) -> bool {
        if !self.region.is_recovering() {
            return false;
        }
        let is_recovering = (self.is_recovering)();
        if !is_recovering {
            self.region.end_recovery();
        }
        is_recovering
    }

    /// Whether this process makes checkpoints.
    pub(crate) fn is_checkpointer(&self) -> bool {
        (self.is_checkpointer)()
    }
}

static SHARED: OnceLock<Shared> = OnceLock::new();
static IS_POSTMASTER: AtomicBool = AtomicBool::new(false);

/// What the postmaster made; `None` in a process without.
pub(crate) fn shared() -> Option<&'static Shared> {
    SHARED.get()
}

/// Whether this process must not touch what others share.
pub(crate) fn is_postmaster() -> bool {
    IS_POSTMASTER.load(Ordering::Relaxed)
}

/// Makes the memory that processes share, before the first fork; [`begin`] follows. Again after a crash of a process it
/// changes nothing.
///
/// # Errors
/// [`Problem::Setting`] for what is out of range; [`Problem::System`], [`Problem::Engine`] where there is no
/// such memory.
pub fn start(config: Config) -> Result<(), Problem> {
    let setting = |what, found: &dyn ToString, allowed| {
        Err(Problem::Setting { what, found: found.to_string(), allowed })
    };
    if config.version.is_empty() || config.version.len() > VERSION_BYTES_MAX {
        return setting("name of the version directory", &config.version, "1 to 40 bytes");
    }
    if SHARED.get().is_some() {
        return Ok(());
    }
    if let Some(Tool { data_directory, .. }) = &config.tool
        && !names::set_root(data_directory)
    {
        return setting("path of the data directory", &data_directory.display(), "at most 511 bytes");
    }
    let region = Region::new(config.room)?;
    let for_pages = bytes_for_pages(config.dirty_pages_max);
    let commit_bytes = u64::from(region.capacity().geometry.extents_max) * 16 + (1 << 20);
    let for_commits = bytes_for_commits(16, commit_bytes).min(config.reserve_bytes_max / 4);
    let shared = Shared {
        region,
        backend_memory: config.backend_memory,
        reserve_pages: for_pages.min(config.reserve_bytes_max - for_commits),
        reserve_commits: for_commits,
        tuning: tuning(config.limit_percent),
        is_checkpointer: config.is_checkpointer,
        is_fsync_on: config.is_fsync_on,
        is_last: config.is_last,
        is_redo: config.is_redo,
        is_recovering: config.is_recovering,
        version: config.version,
        // Where it is not known, absolute paths are not ours.
        data: match &config.tool {
            Some(tool) => tool.data_directory.clone(),
            None => std::env::current_dir().unwrap_or_default(),
        }
        .into_os_string()
        .into_encoded_bytes(),
        access: match config.tool {
            None => FileAccess::Server,
            Some(Tool { is_read_only: false, .. }) => FileAccess::Tool,
            Some(Tool { is_read_only: true, .. }) => FileAccess::ToolReads,
        },
        number: random()?,
    };
    IS_POSTMASTER.store(config.is_postmaster, Ordering::Relaxed);
    descriptors::reserve(config.files_max);
    if SHARED.set(shared).is_err() {
        return Ok(());
    }
    // SAFETY: functions that may run in any child, and at any exit.
    let handlers = unsafe {
        (libc::pthread_atfork(Some(forking), None, Some(forked)), on_exit(ended, std::ptr::null_mut()))
    };
    match handlers {
        (0, 0) => Ok(()),
        (errno, _) => Err(Problem::System { call: "pthread_atfork", errno }),
    }
}

/// Writers move pages before they are at the limit.
fn tuning(limit_percent: u32) -> Tuning {
    Tuning {
        limit_percent,
        ceiling_percent: limit_percent.min(LIMIT_PERCENT_MAX) / 5 * 4,
        ..Tuning::default()
    }
}

/// Begins the life of a server, or a new one after a crash of one of its processes, when all others have ended.
/// `fsync`: whether the server waits for the disk. Settings are gone; the caller makes them again ([`set`]).
///
/// # Errors
/// [`Problem::NotStarted`], [`Problem::System`]; [`Problem::Copied`] and [`Problem::Directory`] as of the tablespaces'
/// directories.
pub fn begin(fsync: bool) -> Result<(), Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    let guarded = match shared.is_read_only() {
        false => databases::begin(&shared.version)?,
        true => databases::guarded(&shared.version)?,
    };
    shared.region.begin(shared.number, !fsync)?;
    for (tablespace, database) in guarded {
        shared.note_directory(tablespace, database);
    }
    Ok(())
}

/// A directory of a database is to have containers, whatever its tablespace's setting: makes its guard, durably, and lets
/// all processes know. Before the first container of the directory has its name.
///
/// # Errors
/// [`Problem::NotStarted`]; [`Problem::InUse`] names another server that has the directory; [`Problem::System`] where
/// the guard cannot be made.
pub fn enter_directory(tablespace: u32, database: u32) -> Result<(), Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    owner::own(tablespace)?;
    crate::front::enter(shared, tablespace, database)
        .map_err(|Errno(errno)| Problem::System { call: "making a guard", errno })
}

/// Before a name is exchanged for another kind of file, until the value is dropped: whoever opens the name meanwhile looks
/// at it again.
///
/// # Errors
/// [`Problem::NotStarted`].
pub fn begin_exchange() -> Result<Exchanging, Problem> {
    Ok(shared().ok_or(Problem::NotStarted)?.begin_exchange())
}

/// The server is about to replay the log of a crash, if there was one: until it has ([`Config::is_recovering`]), pages
/// are written in a form that takes little time, and stored anew later.
pub fn begin_recovery() {
    if let Some(shared) = shared() {
        shared.region.begin_recovery();
    }
}

fn random() -> Result<u32, Problem> {
    let mut number = [0u8; 4];
    // SAFETY: a buffer of the length that is given.
    if unsafe { libc::getrandom(number.as_mut_ptr().cast(), number.len(), 0) } != number.len() as isize {
        return Err(Problem::System { call: "getrandom", errno: crate::host::errno() });
    }
    Ok(u32::from_ne_bytes(number))
}

/// Puts a tablespace's setting in force for all processes: files that are made from now on, and pages that are
/// written. What is compressed or encrypted stays readable.
///
/// # Errors
/// [`Problem::NotStarted`], [`Problem::Tablespaces`].
pub fn set(tablespace: u32, setting: Setting) -> Result<(), Problem> {
    shared().ok_or(Problem::NotStarted)?.region.set(tablespace, setting)
}

/// The setting in force; `None`: there never was one.
pub fn setting(tablespace: u32) -> Option<Setting> {
    shared()?.region.setting(tablespace)
}

/// How often redo has asked for settings that it does not know; who looks at the labels afterwards says so with
/// [`answer`].
pub fn asked() -> u64 {
    shared().map_or(0, |shared| shared.region.asked())
}

/// All settings of labels that could be seen when [`asked`] gave this number are in force.
pub fn answer(asked: u64) {
    if let Some(shared) = shared() {
        shared.region.answer(asked);
    }
}

/// What a tablespace's directories hold.
///
/// # Errors
/// [`Problem::NotStarted`], [`Problem::Directory`].
pub fn content(tablespace: u32) -> Result<Content, Problem> {
    databases::content(&shared().ok_or(Problem::NotStarted)?.version, tablespace)
}

/// Collectors at work.
pub fn progress() -> Vec<Progress> {
    shared().map(|shared| shared.region.activity().progress()).unwrap_or_default()
}

/// What collectors have done, by tablespace, since the server started.
pub fn totals() -> Vec<Totals> {
    let Some(shared) = shared() else { return Vec::new() };
    let activity = shared.region.activity();
    let tablespaces = shared.region.tablespaces().enumerate();
    tablespaces.map(|(place, tablespace)| activity.totals(place, tablespace)).collect()
}

/// When [`totals`] began.
pub fn totals_since() -> Option<SystemTime> {
    Some(shared()?.region.activity().since())
}

/// Whether collection in the background is switched off ([`switch_collection`]).
pub fn collection_is_off() -> bool {
    shared().is_some_and(|shared| shared.region.activity().is_off())
}

/// Switches collection in the background off or on, until the server restarts; returns whether it was off.
pub fn switch_collection(off: bool) -> bool {
    shared().is_some_and(|shared| shared.region.activity().switch(off))
}

/// What the region is used for; `None` in a process that cannot join it.
pub fn usage() -> Option<Usage> {
    process::with(|process| Ok(process.member.usage())).ok()
}

/// Fills a tablespace's reserve as far as there is space; returns its bytes. For a worker.
///
/// # Errors
/// [`Problem::NotStarted`]; [`Problem::Engine`] as of the file.
pub fn fill_reserve(tablespace: u32) -> Result<u64, Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    let failed = |source| Error::Device { operation: "fill the reserve", offset: 0, length: 0, source };
    Ok(reserve::fill(shared, tablespace).map_err(failed)?)
}

/// Fills the reserves of tablespaces that may have containers without a setting. Where the last directory that had some
/// is gone, the reserve goes too. `filled`: what the last call filled. For a worker.
pub fn follow_directories(filled: &mut HashSet<u32>) {
    let Some(shared) = shared() else { return };
    let is_plain =
        |tablespace: &u32| setting(*tablespace).is_none_or(|setting| setting.compression.is_none());
    let noted = shared.region.noted().directories().map(|(tablespace, _)| tablespace);
    let noted: HashSet<u32> = noted.filter(is_plain).collect();
    for tablespace in &noted {
        // What fails is tried again; who draws on a reserve that is not there says so.
        let _ = reserve::fill_beside_others(shared, *tablespace);
    }
    for tablespace in filled.difference(&noted).filter(|tablespace| is_plain(tablespace)) {
        let _ = reserve::remove(shared, *tablespace);
    }
    *filled = noted;
}

/// Commits every segment that has something to commit, and says in its root that nothing follows; then in the guards
/// that all are closed. What fails stays what the last commit made of it. A server does this at its end by itself
/// ([`Config::is_last`]); a program that is none, in whichever way it ends.
///
/// # Errors
/// The error number of what failed last; the log says more.
pub fn close_all() -> Result<(), Errno> {
    let closed = process::with(|process| {
        let shared = process.shared;
        let keys = process.member.open_segments(false).map_err(|error| errno_of(&error))?;
        let mut closed = Ok(());
        for key in keys {
            let opener = ServerOpener { shared, descriptor: None };
            match close(process.member, key, &opener) {
                // Looked for where there is none, plain again, or removed with its database: nothing is to be closed.
                Err(error) if is_gone(&error) || sync::is_absent(&error) => {}
                Err(error) => closed = Err(reported(&key, &error)),
                Ok(()) => {}
            }
        }
        closed
    });
    closed?;
    let Some(shared) = shared() else { return Ok(()) };
    // Guards that say "running" refuse a copy, and a reserve that is left takes space, nothing else.
    let _ = databases::end(shared);
    Ok(())
}

fn close(member: &'static process::Joined, key: SegmentKey, opener: &ServerOpener) -> Result<(), Error> {
    Segment::new(member, key)?.pin(Access::Write, opener)?.close().map(drop)
}

extern "C" fn forking() {
    if is_postmaster() {
        owner::release_removed();
    }
}

extern "C" fn forked() {
    IS_POSTMASTER.store(false, Ordering::Relaxed);
    owner::forget();
    process::forget();
}

unsafe extern "C" {
    /// glibc's: the function runs at exit, with the exit's status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn ended(status: c_int, _: *mut c_void) {
    if is_postmaster() {
        return;
    }
    // One that fails is no last one: others go on until they are told.
    let closes = status == 0 && shared().is_some_and(|shared| (shared.is_last)());
    // Nothing may unwind into exit.
    let _ = std::panic::catch_unwind(|| {
        if closes {
            let _ = close_all();
        }
        process::leave();
    });
}
