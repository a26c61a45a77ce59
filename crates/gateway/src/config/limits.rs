//! Named counts, sizes and durations, with the reason for each default.

use serde::{Deserialize, Serialize};

/// Counts and sizes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Maximum number of sessions; more clients get 53300.
    pub max_clients: usize,
    /// Maximum number of sessions from one address, 0: no limit. Unix sockets count as one address and are exempt.
    pub max_clients_per_address: usize,
    /// Largest message during authentication, bytes. PostgreSQL takes tokens of at most 65,535.
    pub max_auth_message_size: usize,
    /// Memory limit for all codecs together, MiB.
    pub max_codec_memory_mib: u64,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            max_clients: 10_000,
            max_clients_per_address: 0,
            max_auth_message_size: 65_535 + 5,
            max_codec_memory_mib: pgshrink_wire::budget::BUDGET_BYTES_DEFAULT >> 20,
        }
    }
}

/// How long things may take.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutsConfig {
    /// From the first byte to AuthenticationOk, seconds (pgbouncer's `client_login_timeout`).
    pub login_timeout_s: u64,
    /// One connection attempt to a server, TLS included, seconds.
    pub connect_timeout_s: u64,
    /// A relayed cancel request, seconds.
    pub cancel_timeout_s: u64,
    /// A session without traffic for this long releases its compression memory, seconds.
    pub idle_release_s: u64,
    /// From SIGTERM until sessions that are not finished are closed, seconds.
    pub drain_timeout_s: u64,
}

impl Default for TimeoutsConfig {
    fn default() -> Self {
        Self {
            login_timeout_s: 60,
            connect_timeout_s: 15,
            cancel_timeout_s: 10,
            idle_release_s: 30,
            drain_timeout_s: 60,
        }
    }
}

/// Options of TCP sockets, on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpConfig {
    /// Seconds without traffic before the first keepalive probe, at most 32767; 0: no keepalive.
    pub keepalive_idle_s: u64,
    /// Seconds between probes, 1 to 32767.
    pub keepalive_interval_s: u64,
    /// Probes without answer that end the connection, 1 to 127.
    pub keepalive_count: u32,
    /// Seconds for which a peer may acknowledge nothing of what was sent to it, 0: as long as the kernel tries, which is about
    /// 15 minutes. A peer that lives but does not read is left alone.
    pub user_timeout_s: u64,
    /// Connections the kernel holds before they are accepted, and no more than `net.core.somaxconn`, whose own
    /// default this is. Of more it drops the first packet, which clients repeat after 1 s and 3 s.
    pub backlog: i32,
}

impl Default for TcpConfig {
    fn default() -> Self {
        // Cloud load balancers forget idle flows after about 350 s; stay well below.
        Self {
            keepalive_idle_s: 120,
            keepalive_interval_s: 20,
            keepalive_count: 5,
            user_timeout_s: 120,
            backlog: 4096,
        }
    }
}

/// When compressing pays.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Letters of the message types to compress (`dDQ`); empty: all after authentication.
    pub message_types: String,
    /// Groups of pending messages smaller than this are not compressed at a flush, bytes.
    pub min_group_size: usize,
    /// Maximum uncompressed bytes in one frame.
    pub frame_size: usize,
    /// `preserved`, `per-transaction` or `per-frame`.
    pub context: String,
    /// zstd window log of what this end sends: 10 to 23, or `auto`.
    pub window_log: WindowSetting,
    /// Leave out message headers of rows if the other end is pgshrink too.
    pub pack_rows: bool,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        let policy = pgshrink_wire::Policy::default();
        Self {
            message_types: String::new(),
            min_group_size: policy.group_size_min,
            frame_size: policy.frame_size,
            context: "preserved".into(),
            window_log: WindowSetting::Log(policy.window_log.at_start()),
            pack_rows: true,
        }
    }
}

/// The word for [`pgshrink_wire::WindowLog::Auto`].
pub(crate) const WINDOW_AUTO: &str = "auto";

/// A window log as an operator writes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "allowed are auto and 10 to 23")]
pub enum WindowSetting {
    /// A power of two.
    Log(u32),
    /// `auto`; any other word is an error of the configuration.
    Word(String),
}

impl std::str::FromStr for WindowSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(log) => Ok(Self::Log(log)),
            Err(_) if text == WINDOW_AUTO => Ok(Self::Word(text.into())),
            Err(_) => Err(format!("allowed are {WINDOW_AUTO} and 10 to 23")),
        }
    }
}

impl std::fmt::Display for WindowSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Log(log) => log.fmt(f),
            Self::Word(word) => word.fmt(f),
        }
    }
}
