//! The numbers that settings may have: one table for checks, messages and documentation.

use std::fmt;

use crate::error::Error;

/// What a setting may be, both ends included. Prints as `1 to 1024`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SettingRange {
    /// As in the file: `limits.max_clients`.
    pub key: &'static str,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl fmt::Display for SettingRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

const DAY_S: f64 = 86_400.0;
/// `MAX_TCP_KEEPIDLE` and `MAX_TCP_KEEPINTVL`, `MAX_TCP_KEEPCNT` of Linux (`include/net/tcp.h`): with more, no session
/// would get a socket.
const KEEPALIVE_S_MAX: f64 = 32_767.0;
const KEEPALIVE_COUNT_MAX: f64 = 127.0;

/// Every setting that has a range.
pub const RANGES: [SettingRange; 21] = [
    range("threads", 1.0, 1024.0),
    range("observe_cpu_percent", 0.01, 50.0),
    range("observe_write_s", 1.0, 3600.0),
    range("observe_days", 1.0, 366.0),
    range("observe_clients", 1.0, 1000.0),
    range("limits.max_clients", 1.0, 1_048_576.0),
    range("limits.max_auth_message_size", 1024.0, 1_048_576.0),
    range("limits.max_codec_memory_mib", 1.0, 16_777_216.0),
    range("timeouts.login_timeout_s", 1.0, DAY_S),
    range("timeouts.connect_timeout_s", 1.0, DAY_S),
    range("timeouts.cancel_timeout_s", 1.0, DAY_S),
    range("timeouts.idle_release_s", 1.0, DAY_S),
    range("timeouts.drain_timeout_s", 0.0, 7.0 * DAY_S),
    range("policy.min_group_size", 0.0, 1_048_576.0),
    range("policy.frame_size", 1024.0, 1_048_576.0),
    range("policy.window_log", 10.0, 23.0),
    range("tcp.keepalive_idle_s", 0.0, KEEPALIVE_S_MAX),
    range("tcp.keepalive_interval_s", 1.0, KEEPALIVE_S_MAX),
    range("tcp.keepalive_count", 1.0, KEEPALIVE_COUNT_MAX),
    range("tcp.user_timeout_s", 0.0, DAY_S),
    range("tcp.backlog", 1.0, 65_536.0),
];

const fn range(key: &'static str, min: f64, max: f64) -> SettingRange {
    SettingRange { key, min, max }
}

/// Checks a whole number.
pub(super) fn check_range(key: &'static str, value: u64) -> Result<(), Error> {
    // A number that f64 rounds is far above every maximum.
    check(key, value as f64, &value)
}

/// Checks any number.
pub(super) fn check_float(key: &'static str, value: f64) -> Result<(), Error> {
    check(key, value, &value)
}

fn check(key: &'static str, value: f64, shown: &dyn fmt::Display) -> Result<(), Error> {
    match RANGES.iter().find(|range| range.key == key) {
        Some(range) if !(range.min..=range.max).contains(&value) => {
            Err(Error::config(key, format!("{shown}: allowed are {range}")))
        }
        found => {
            assert!(found.is_some(), "{key} has no range");
            Ok(())
        }
    }
}
