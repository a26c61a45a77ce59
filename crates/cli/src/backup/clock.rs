//! The time by this machine's clock. No decision hangs on it that could remove a backup: see `pgshrink_backup::retention`.

use super::Failure;
use pgshrink_backup::ServerTime;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970; 0 for a clock that is before.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The same as a time.
///
/// # Errors
/// A year above 9999.
pub(super) fn now() -> Result<ServerTime, Failure> {
    Ok(ServerTime::from_unix_seconds(i64::try_from(unix_seconds()).unwrap_or(i64::MAX))?)
}
