//! The private connectors of one run: one per stand-in, in this process.

use super::error::RunError;
use super::plan::{Plan, StandIn};
use super::summary::Summary;
use crate::target_spec;
use pgshrink_gateway::config::UnixSocketConfig;
use pgshrink_gateway::{ConnectorConfig, Control, Running, start_connector};
use pgshrink_pgclient::target::Keepalive;

/// libpq waits as long as the kernel tries, about two minutes; `connect_timeout` ends it earlier.
const CONNECT_TIMEOUT_S: u64 = 130;
/// The server has its own limit (`authentication_timeout`); this one only ends what no server would.
const LOGIN_TIMEOUT_S: u64 = 3600;
/// Sessions that outlive the command (a background process of a script) get this long.
const DRAIN_TIMEOUT_S: u64 = 10;

/// Starts every connector of a plan.
pub(crate) fn start(plan: &Plan, dialect: &str, required: bool) -> Result<Connectors, RunError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (processors / plan.stand_ins.len().max(1)).max(1);
    let mut running = Vec::new();
    for stand_in in &plan.stand_ins {
        let config = config(stand_in, dialect, required, threads)?;
        let failed = |error: pgshrink_gateway::Error| connector_error(stand_in, error.to_string());
        running.push(start_connector(config).map_err(failed)?);
    }
    Ok(Connectors { running })
}

/// Connectors that serve until they are ended.
pub(crate) struct Connectors {
    running: Vec<Running>,
}

impl Connectors {
    /// Lets bytes under way arrive, ends, and returns what was done.
    pub(crate) fn end(self) -> Summary {
        let mut summary = Summary::default();
        self.running.iter().for_each(|running| running.order(Control::Drain));
        for running in self.running {
            let registry = running.registry().clone();
            if let Err(error) = running.end(Control::Drain) {
                tracing::warn!(%error, "connector ended with an error");
            }
            summary.add(&registry);
        }
        summary
    }
}

fn config(
    stand_in: &StandIn,
    dialect: &str,
    required: bool,
    threads: usize,
) -> Result<ConnectorConfig, RunError> {
    let target = target_spec::config(&stand_in.target, &stand_in.ssl);
    let target = target.map_err(|reason| connector_error(stand_in, reason))?;
    let mut unix_socket = UnixSocketConfig::new(&stand_in.dir, stand_in.target.port);
    unix_socket.mode = "0600".to_owned();
    let mut config = ConnectorConfig {
        unix_socket: Some(unix_socket),
        targets: vec![target],
        compression: stand_in.compression.clone(),
        dialect: dialect.to_owned(),
        required,
        threads: Some(threads),
        ..ConnectorConfig::default()
    };
    config.timeouts.connect_timeout_s = CONNECT_TIMEOUT_S;
    config.timeouts.login_timeout_s = LOGIN_TIMEOUT_S;
    config.timeouts.drain_timeout_s = DRAIN_TIMEOUT_S;
    let Keepalive { enabled, idle_seconds, interval_seconds, count, user_timeout_ms } = stand_in.keepalive;
    let tcp = &mut config.tcp;
    tcp.keepalive_idle_s = if enabled { idle_seconds.map_or(tcp.keepalive_idle_s, u64::from) } else { 0 };
    tcp.keepalive_interval_s = interval_seconds.map_or(tcp.keepalive_interval_s, u64::from);
    tcp.keepalive_count = count.unwrap_or(tcp.keepalive_count);
    // As for libpq: without the parameter the kernel decides.
    tcp.user_timeout_s = user_timeout_ms.map_or(0, |ms| u64::from(ms).div_ceil(1000));
    Ok(config)
}

fn connector_error(stand_in: &StandIn, reason: String) -> RunError {
    let target = &stand_in.target;
    let host = target.host.as_ref().or(target.hostaddr.as_ref()).map_or("the local server", |host| host);
    RunError::Connector { target: format!("{host} port {}", target.port), reason }
}
