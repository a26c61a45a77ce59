//! The extension's settings (GUCs).
#![allow(unsafe_code)]

use std::ffi::CString;
use std::time::Duration;

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

static CACHE_SIZE_KB: GucSetting<i32> = GucSetting::<i32>::new(32 << 10);

static LEARN_DATABASES: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static LEARN_INTERVAL_S: GucSetting<i32> = GucSetting::<i32>::new(24 * 3600);

/// Tells the server of them; once, when the library is loaded.
pub fn define() {
    GucRegistry::define_string_guc(
        c"zson.auto_learn_databases",
        c"Databases in which a background worker retrains profiles and re-encodes old documents.",
        c"Comma-separated names; empty: off. Needs zson in shared_preload_libraries.",
        &LEARN_DATABASES,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"zson.auto_learn_interval",
        c"Time from one round of zson.auto_learn_databases to the next.",
        c"",
        &LEARN_INTERVAL_S,
        1,
        30 * 24 * 3600,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"zson.cache_size",
        c"Memory that a backend keeps for prepared dictionaries and recently decoded documents.",
        c"A single document may take more than this.",
        &CACHE_SIZE_KB,
        1 << 10,
        1 << 20,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
}

/// `zson.cache_size` in bytes.
pub fn cache_bytes() -> usize {
    usize::try_from(CACHE_SIZE_KB.get()).unwrap_or(0) << 10
}

/// `zson.auto_learn_databases`.
pub fn learn_databases() -> Vec<String> {
    let list = LEARN_DATABASES.get().map(|list| list.to_string_lossy().into_owned()).unwrap_or_default();
    list.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// `zson.auto_learn_interval`.
pub fn learn_interval() -> Duration {
    Duration::from_secs(u64::try_from(LEARN_INTERVAL_S.get()).unwrap_or(1))
}
