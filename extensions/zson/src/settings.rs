//! The extension's settings (GUCs).
#![allow(unsafe_code)]

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

static CACHE_SIZE_KB: GucSetting<i32> = GucSetting::<i32>::new(32 << 10);

/// Tells the server of them; once, when the library is loaded.
pub fn define() {
    GucRegistry::define_int_guc(
        c"zson.cache_size",
        c"Memory a backend keeps for dictionaries made ready and documents decoded last.",
        c"What one document needs is kept even if it is more.",
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
