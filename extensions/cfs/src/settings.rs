//! The extension's settings (GUCs).
// Check hooks, and strings of the server.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::time::Duration;

use pgrx::pg_sys::{self, GucSource};
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_guard};
use pgshrink_cfs::{Budget, Rules};
use pgshrink_cfs_server::keys::Sources;
use pgshrink_cfs_server::setting::Setting;

static GC: GucSetting<bool> = GucSetting::<bool>::new(true);
static DICTIONARIES: GucSetting<bool> = GucSetting::<bool>::new(true);
static GC_WORKERS: GucSetting<i32> = GucSetting::<i32>::new(1);
static GC_THRESHOLD: GucSetting<i32> = GucSetting::<i32>::new(25);
static GC_LIMIT: GucSetting<i32> = GucSetting::<i32>::new(50);
static GC_PERIOD_MS: GucSetting<i32> = GucSetting::<i32>::new(5000);
static GC_DELAY_MS: GucSetting<i32> = GucSetting::<i32>::new(1);
static GC_RATE_KB: GucSetting<i32> = GucSetting::<i32>::new(32 << 10);
static SEGMENTS_MAX: GucSetting<i32> = GucSetting::<i32>::new(10_000);
static BACKEND_MEMORY_KB: GucSetting<i32> = GucSetting::<i32>::new(16 << 10);
static RESERVE_KB: GucSetting<i32> = GucSetting::<i32>::new(256 << 10);

static KEY_COMMAND: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
static KEY_FILE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
static OLD_KEY_COMMAND: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
static OLD_KEY_FILE: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

static CONVERT: GucSetting<bool> = GucSetting::<bool>::new(true);
static CONVERT_WORKERS: GucSetting<i32> = GucSetting::<i32>::new(1);
/// Transactions beside it keep 0.88 of their rate, on two processors: bench/results/cfs-server.md.
static CONVERT_RATE_KB: GucSetting<i32> = GucSetting::<i32>::new(32 << 10);
static NODE_COMPRESSION: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
static NAPTIME_S: GucSetting<i32> = GucSetting::<i32>::new(30);

/// Converters that there may be.
const CONVERT_WORKERS_MAX: i32 = 16;

/// Workers that there may be: the original's limit.
pub const GC_WORKERS_MAX: i32 = 100;

/// Extents that are nearly full are not worth moving, so less garbage than this cannot be promised.
const GC_LIMIT_MIN: i32 = 20;
/// Enough for no garbage to be that much.
const NEVER_PERCENT: u32 = 1_000_000;

/// Tells the server of them; once, when the library is loaded.
pub fn define() {
    define_collection();
    define_limits();
    define_keys();
    define_conversion();
}

fn define_conversion() {
    GucRegistry::define_bool_guc(
        c"cfs.convert",
        c"Compress and decompress relations in the background according to their settings.",
        c"Off: no conversion starts, and running ones are paused.",
        &CONVERT,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"cfs.convert_workers",
        c"Number of background workers that convert files.",
        c"Each needs space for one more file of up to 1 GB.",
        &CONVERT_WORKERS,
        0,
        CONVERT_WORKERS_MAX,
        GucContext::Postmaster,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"cfs.convert_rate",
        c"Maximum bytes per second that each of these workers converts, counted uncompressed; 0: no limit.",
        c"",
        &CONVERT_RATE_KB,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"cfs.naptime",
        c"Time between checks of a database for relations to convert.",
        c"Changed settings take effect when they are committed; these checks find new and grown files.",
        &NAPTIME_S,
        1,
        24 * 3600,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    // SAFETY: hooks that live as long as the library.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"cfs.node_compression",
            c"Compression of all tables of this server, overriding their own settings; empty: use their \
             own settings.",
            c"Not replicated: a standby can be compressed while its primary is not.",
            &NODE_COMPRESSION,
            GucContext::Sighup,
            GucFlags::default(),
            Some(check_node_compression),
            None,
            None,
        );
    }
}

/// Whether a value of `cfs.node_compression` means something.
#[pg_guard]
unsafe extern "C-unwind" fn check_node_compression(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: GucSource::Type,
) -> bool {
    // SAFETY: the server's: a place with a string that ends with a zero, or none.
    unsafe {
        if (*value).is_null() {
            return true;
        }
        let text = CStr::from_ptr(*value).to_string_lossy();
        let Err(error) = text.parse::<Setting>() else { return true };
        if text.trim().is_empty() {
            return true;
        }
        let hint = CString::new(error.hint()).unwrap_or_default();
        pg_sys::GUC_check_errhint_string = pg_sys::pstrdup(hint.as_ptr());
        false
    }
}

fn define_keys() {
    let define = |name, short, long, setting| {
        GucRegistry::define_string_guc(
            name,
            short,
            long,
            setting,
            GucContext::Sighup,
            GucFlags::SUPERUSER_ONLY,
        );
    };
    define(
        c"cfs.key_command",
        c"Command that prints the master key of encrypted tablespaces.",
        c"Runs when the server starts, and in cfs_rotate_key().",
        &KEY_COMMAND,
    );
    define(
        c"cfs.key_file",
        c"File with the master key of encrypted tablespaces.",
        c"Read when the server starts, and in cfs_rotate_key(), where cfs.key_command is not set.",
        &KEY_FILE,
    );
    define(
        c"cfs.old_key_command",
        c"Command that prints the previous master key, while a change of the master key is unfinished.",
        c"Runs when the server starts.",
        &OLD_KEY_COMMAND,
    );
    define(
        c"cfs.old_key_file",
        c"File with the previous master key, while a change of the master key is unfinished.",
        c"Read when the server starts.",
        &OLD_KEY_FILE,
    );
}

fn define_collection() {
    GucRegistry::define_bool_guc(
        c"cfs.gc",
        c"Collects garbage in compressed files in the background.",
        c"Off: only sessions that write to a file collect its garbage, when there is far too much.",
        &GC,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"cfs.gc_workers",
        c"Number of background workers that collect garbage in compressed files.",
        c"",
        &GC_WORKERS,
        0,
        GC_WORKERS_MAX,
        GucContext::Postmaster,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"cfs.gc_threshold",
        c"Percentage of a file that must be garbage before it is collected.",
        c"0 collects all garbage, 100 none: then writers collect at cfs.gc_limit.",
        &GC_THRESHOLD,
        0,
        100,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"cfs.gc_limit",
        c"Percentage of a file that is garbage at which writers to the file must wait and collect it themselves.",
        c"Applies regardless of the other settings. 100: no limit.",
        &GC_LIMIT,
        GC_LIMIT_MIN,
        100,
        GucContext::Postmaster,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"cfs.gc_period",
        c"Time that a garbage collector sleeps when there is nothing to collect.",
        c"",
        &GC_PERIOD_MS,
        10,
        3_600_000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"cfs.gc_delay",
        c"Time that a garbage collector sleeps between two pieces of a file.",
        c"",
        &GC_DELAY_MS,
        0,
        60_000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"cfs.gc_rate",
        c"Maximum bytes per second that each garbage collector moves; 0: no limit.",
        c"",
        &GC_RATE_KB,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_KB,
    );
}

fn define_limits() {
    GucRegistry::define_bool_guc(
        c"cfs.dictionaries",
        c"Trains dictionaries for compressed files, and rewrites older pages with them, in the background.",
        c"Off: no new ones are trained; files that have one continue to use it.",
        &DICTIONARIES,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"cfs.max_open_segments",
        c"Maximum number of compressed segments (of up to 1 GB) that can be open at the same time.",
        c"Each takes 4 MB of address space, and 16 kB to 4 MB of memory when it is used.",
        &SEGMENTS_MAX,
        64,
        1 << 20,
        GucContext::Postmaster,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"cfs.backend_memory",
        c"Maximum memory that each process keeps for compression contexts and dictionaries.",
        c"",
        &BACKEND_MEMORY_KB,
        4 << 10,
        1 << 20,
        GucContext::Postmaster,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"cfs.reserve_size",
        c"Maximum space that each tablespace with compressed files reserves for writes that must not fail \
         on a full filesystem.",
        c"A checkpoint needs it if pages grow.",
        &RESERVE_KB,
        0,
        i32::MAX,
        GucContext::Postmaster,
        GucFlags::UNIT_KB,
    );
}

fn bytes(kilobytes: i32) -> u64 {
    u64::try_from(kilobytes).unwrap_or(0) << 10
}

fn milliseconds(time: i32) -> Duration {
    Duration::from_millis(u64::try_from(time).unwrap_or(0))
}

/// Garbage in percent of live bytes, from its share of the file: 50 % of a file is as much as what lives.
fn of_live(share: i32) -> u32 {
    let share = share.clamp(0, 100).unsigned_abs();
    (share * 100).checked_div(100 - share).unwrap_or(NEVER_PERCENT)
}

/// Where keys are.
pub fn key_sources() -> Sources {
    let text = |setting: &GucSetting<Option<CString>>| {
        let text = setting.get()?.to_string_lossy().into_owned();
        (!text.is_empty()).then_some(text)
    };
    Sources {
        command: text(&KEY_COMMAND),
        file: text(&KEY_FILE).map(Into::into),
        old_command: text(&OLD_KEY_COMMAND),
        old_file: text(&OLD_KEY_FILE).map(Into::into),
    }
}

/// `cfs.convert`.
pub fn converts() -> bool {
    CONVERT.get()
}

/// `cfs.convert_workers`.
pub fn converters() -> i32 {
    CONVERT_WORKERS.get()
}

/// `cfs.convert_rate` in bytes per second; 0: no limit.
pub fn convert_rate() -> u64 {
    bytes(CONVERT_RATE_KB.get())
}

/// `cfs.node_compression`; `None`: labels decide.
pub fn node_compression() -> Option<Setting> {
    NODE_COMPRESSION.get()?.to_string_lossy().parse().ok()
}

/// `cfs.naptime`.
pub fn naptime() -> Duration {
    Duration::from_secs(NAPTIME_S.get().max(1).unsigned_abs().into())
}

/// `cfs.gc_limit`, in percent of live bytes.
pub fn limit_percent() -> u32 {
    of_live(GC_LIMIT.get())
}

/// `cfs.gc`.
pub fn collects() -> bool {
    GC.get()
}

/// `cfs.dictionaries`.
pub fn trains() -> bool {
    DICTIONARIES.get()
}

/// `cfs.gc_workers`.
pub fn workers() -> i32 {
    GC_WORKERS.get()
}

/// Whether `cfs.gc_threshold` lets anything be collected.
pub fn has_threshold() -> bool {
    GC_THRESHOLD.get() < 100
}

/// How garbage is collected.
pub fn rules() -> Rules {
    let defaults = Rules::default();
    Rules {
        budget: Budget { garbage_percent: of_live(GC_THRESHOLD.get()), ..defaults.budget },
        period: milliseconds(GC_PERIOD_MS.get()),
        delay: milliseconds(GC_DELAY_MS.get()),
        rate: bytes(GC_RATE_KB.get()),
        ..defaults
    }
}

/// `cfs.max_open_segments`.
pub fn segments_max() -> u32 {
    SEGMENTS_MAX.get().unsigned_abs()
}

/// `cfs.backend_memory` in bytes.
pub fn backend_memory() -> usize {
    bytes(BACKEND_MEMORY_KB.get()) as usize
}

/// `cfs.reserve_size` in bytes.
pub fn reserve_bytes() -> u64 {
    bytes(RESERVE_KB.get())
}
