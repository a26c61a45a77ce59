//! From flags, environment and file to what the gateway crate runs.

use crate::args::{
    ConnectArgs, GatewayArgs, LogArgs, LogFormat, LogLevel, ObservationArgs, PolicyArgs, ServiceArgs,
    SocketArgs,
};
use crate::config_file::{self, ConfigFile, LogTable};
use crate::error::Error;
use crate::server_spec;
use crate::target_spec;
use crate::toml_words;
use pgshrink_gateway::config::{
    AdminConfig, LimitsConfig, ListenTlsConfig, PolicyConfig, ServerConfig, TimeoutsConfig, UnixSocketConfig,
};
use pgshrink_gateway::{ConnectorConfig, GatewayConfig};
use std::path::Path;

/// A configuration in force, and how to log.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings<T> {
    /// What the service runs with.
    pub config: T,
    /// Least severe messages.
    pub log_level: LogLevel,
    /// Shape of a message.
    pub log_format: LogFormat,
    /// What the log should say at the start.
    pub warnings: Vec<String>,
}

/// Where servers of this system put their sockets, and so where clients without a host look.
pub(crate) const SOCKET_DIR: &str = "/var/run/postgresql";

/// The gateway's settings, checked.
pub fn gateway(args: &GatewayArgs) -> Result<Settings<GatewayConfig>, Error> {
    let (settings, file) = read_gateway(args)?;
    settings.config.validate().map_err(|error| locate(error, file.as_ref()))?;
    Ok(settings)
}

/// Everything that a start of the gateway would refuse: all at once, but for what cannot be read at all.
pub fn gateway_problems(args: &GatewayArgs) -> Vec<Error> {
    let found = |(settings, file): Read<GatewayConfig>| {
        settings.config.problems().into_iter().map(|error| locate(error, file.as_ref())).collect()
    };
    match servers(args).filter_map(Result::err).collect::<Vec<_>>() {
        wrong if wrong.is_empty() => read_gateway(args).map_or_else(|error| vec![error], found),
        wrong => wrong,
    }
}

/// The same for the connector.
pub fn connector_problems(args: &ConnectArgs) -> Vec<Error> {
    let found = |(settings, file): Read<ConnectorConfig>| {
        settings.config.problems().into_iter().map(|error| locate(error, file.as_ref())).collect()
    };
    read_connector(args).map_or_else(|error| vec![error], found)
}

/// Settings that are not checked yet, and the file they come from.
type Read<T> = (Settings<T>, Option<ConfigFile<T>>);

fn read_gateway(args: &GatewayArgs) -> Result<Read<GatewayConfig>, Error> {
    let file = file::<GatewayConfig>(&args.service)?;
    let mut config = file.as_ref().map(|file| file.config.clone()).unwrap_or_default();
    listening(&args.socket, &mut config.listen, &mut config.unix_socket, &mut config.tls)?;
    let mut warnings = Vec::new();
    if config.unix_socket.is_none() && args.socket.unix_socket_directory.is_none() {
        match default_socket(Path::new(SOCKET_DIR), &config.listen) {
            Ok(unix) => config.unix_socket = unix,
            Err(warning) => warnings.push(warning),
        }
    }
    if !args.server.is_empty() {
        config.servers = servers(args).collect::<Result<_, _>>()?;
    }
    put(&mut config.libpq_compression, &args.libpq_compression);
    put(&mut config.allow_unchallenged, &args.allow_unchallenged);
    put_list(&mut config.trusted_proxies, &args.trusted_proxies);
    put_list(&mut config.ignore_startup_parameters, &args.ignore_startup_parameters);
    put(&mut config.observe, &args.observe);
    put(&mut config.observe_file, &args.observe_file);
    put(&mut config.observe_cpu_percent, &args.observe_cpu_percent);
    observation(&args.observation, &mut config.metrics_listen, &mut config.admin);
    policy(&args.policy, &mut config.policy);
    service(&args.service, &mut config.limits, &mut config.timeouts, &mut config.threads);
    let settings = with_log(config, &args.log, file.as_ref().map(|file| file.log.clone()));
    Ok((Settings { warnings, ..settings }, file))
}

/// Those of flags or the variable.
fn servers(args: &GatewayArgs) -> impl Iterator<Item = Result<ServerConfig, Error>> {
    let flag = flag_or_variable("--server", "PGSHRINK_SERVER", &args.server);
    let server = move |text: &String| server_spec::parse(text).map_err(|reason| Error::Flag { flag, reason });
    args.server.iter().map(server)
}

/// The connector's settings, checked.
pub fn connector(args: &ConnectArgs) -> Result<Settings<ConnectorConfig>, Error> {
    let (settings, file) = read_connector(args)?;
    settings.config.validate().map_err(|error| locate(error, file.as_ref()))?;
    Ok(settings)
}

fn read_connector(args: &ConnectArgs) -> Result<Read<ConnectorConfig>, Error> {
    let file = file::<ConnectorConfig>(&args.service)?;
    let mut config = file.as_ref().map(|file| file.config.clone()).unwrap_or_default();
    listening(&args.socket, &mut config.listen, &mut config.unix_socket, &mut config.tls)?;
    if !args.target.is_empty() {
        config.targets = target_spec::parse_all(args)?;
    }
    put(&mut config.compression, &args.compression);
    put(&mut config.dialect, &args.dialect.map(|dialect| dialect.name().to_owned()));
    put(&mut config.required, &args.required);
    observation(&args.observation, &mut config.metrics_listen, &mut config.admin);
    let warnings = without_console(&args.observation, &config.admin);
    policy(&args.policy, &mut config.policy);
    service(&args.service, &mut config.limits, &mut config.timeouts, &mut config.threads);
    let settings = with_log(config, &args.log, file.as_ref().map(|file| file.log.clone()));
    Ok((Settings { warnings, ..settings }, file))
}

/// Where a flag's values come from: they are the variable's if they are what it says.
pub(crate) fn flag_or_variable(
    flag: &'static str,
    variable: &'static str,
    values: &[String],
) -> &'static str {
    match std::env::var(variable) {
        Ok(text) if text.split(';').eq(values) => variable,
        _ => flag,
    }
}

fn file<T: config_file::Setup>(args: &ServiceArgs) -> Result<Option<ConfigFile<T>>, Error> {
    args.config.as_deref().map(config_file::read).transpose()
}

fn listening(
    args: &SocketArgs,
    listen: &mut Vec<String>,
    unix_socket: &mut Option<UnixSocketConfig>,
    tls: &mut Option<ListenTlsConfig>,
) -> Result<(), Error> {
    put_list(listen, &args.listen);
    match args.unix_socket_directory.as_deref() {
        None => {}
        Some(none) if none.as_os_str().is_empty() => *unix_socket = None,
        Some(dir) => {
            let port = args.unix_socket_port.or(first_port(listen));
            let port = port
                .ok_or(Error::Incomplete { flag: "--unix-socket-directory", other: "--unix-socket-port" })?;
            *unix_socket = Some(UnixSocketConfig::new(dir, port));
        }
    }
    if unix_socket.is_none() && args.unix_socket_directory.is_none() {
        let alone = [
            ("--unix-socket-mode", args.unix_socket_mode.is_some()),
            ("--unix-socket-port", args.unix_socket_port.is_some()),
        ];
        if let Some((flag, _)) = alone.into_iter().find(|(_, is_given)| *is_given) {
            return Err(Error::Incomplete { flag, other: "--unix-socket-directory" });
        }
    }
    if let Some(unix) = unix_socket {
        put(&mut unix.port, &args.unix_socket_port);
        put(&mut unix.mode, &args.unix_socket_mode);
    }
    listen_tls(args, tls)
}

fn listen_tls(args: &SocketArgs, tls: &mut Option<ListenTlsConfig>) -> Result<(), Error> {
    match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => {
            let (cert, key) = (cert.clone(), key.clone());
            let rest = tls.take();
            *tls = Some(ListenTlsConfig {
                cert,
                key,
                client_ca: rest.as_ref().and_then(|tls| tls.client_ca.clone()),
                require_client_cert: rest.as_ref().is_some_and(|tls| tls.require_client_cert),
                required: rest.is_some_and(|tls| tls.required),
            });
        }
        (None, None) => {}
        (Some(_), None) => return Err(Error::Incomplete { flag: "--tls-cert", other: "--tls-key" }),
        (None, Some(_)) => return Err(Error::Incomplete { flag: "--tls-key", other: "--tls-cert" }),
    }
    let asks = [
        ("--tls-client-ca", args.tls_client_ca.is_some()),
        ("--tls-require-client-cert", args.tls_require_client_cert == Some(true)),
        ("--tls-required", args.tls_required == Some(true)),
    ];
    let Some(tls) = tls else {
        let lonely = asks.iter().find(|(_, asked)| *asked);
        return lonely
            .map_or(Ok(()), |(flag, _)| Err(Error::Incomplete { flag, other: "--tls-cert and --tls-key" }));
    };
    if args.tls_client_ca.is_some() {
        tls.client_ca = args.tls_client_ca.clone();
    }
    put(&mut tls.require_client_cert, &args.tls_require_client_cert);
    put(&mut tls.required, &args.tls_required);
    // Of the file alone, the gateway's own check tells it with the line.
    if args.tls_require_client_cert == Some(true) && tls.client_ca.is_none() {
        return Err(Error::Incomplete { flag: "--tls-require-client-cert", other: "--tls-client-ca" });
    }
    Ok(())
}

fn first_port(listen: &[String]) -> Option<u16> {
    let port = |address: &String| address.rsplit_once(':')?.1.parse().ok();
    listen.iter().find_map(port).filter(|&port| port > 0)
}

/// Beside a TCP port also the socket that clients without a host look for, if it can be made and nobody has it; a
/// warning otherwise.
fn default_socket(dir: &Path, listen: &[String]) -> Result<Option<UnixSocketConfig>, String> {
    let Some(port) = first_port(listen) else { return Ok(None) };
    let unix = UnixSocketConfig::new(dir, port);
    let writable = rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    let reason = match writable {
        Err(error) => format!("directory {}: {error}", dir.display()),
        Ok(()) if std::os::unix::net::UnixStream::connect(unix.path()).is_ok() => {
            "another process listens on it".to_owned()
        }
        Ok(()) => return Ok(Some(unix)),
    };
    Err(format!(
        "no Unix socket {}: {reason}; clients that give no host do not reach this gateway, and its console \
         cannot be used without a password (psql -p {port} pgshrink); name a directory that this user may \
         write to with --unix-socket-directory or [unix_socket], or no directory with --unix-socket-directory=",
        unix.path().display()
    ))
}

fn observation(args: &ObservationArgs, metrics_listen: &mut Option<String>, admin: &mut AdminConfig) {
    if args.metrics_listen.is_some() {
        metrics_listen.clone_from(&args.metrics_listen);
    }
    put(&mut admin.database, &args.admin_database);
    put_list(&mut admin.users, &args.admin_users);
    put_list(&mut admin.stats_users, &args.admin_stats_users);
    if args.admin_password_file.is_some() {
        admin.password_file.clone_from(&args.admin_password_file);
    }
}

/// Flags for a console that a connector does not have.
fn without_console(args: &ObservationArgs, admin: &AdminConfig) -> Vec<String> {
    let given = [
        ("admin.users", !args.admin_users.is_empty()),
        ("admin.stats_users", !args.admin_stats_users.is_empty()),
        ("admin.password_file", args.admin_password_file.is_some()),
    ];
    let idle = given.iter().find(|(_, given)| *given && admin.database.is_empty());
    let warning = |(name, _): &(&str, bool)| {
        format!("{name} has no effect without admin.database: there is no console")
    };
    idle.map(warning).into_iter().collect()
}

fn policy(args: &PolicyArgs, config: &mut PolicyConfig) {
    put(&mut config.context, &args.context);
    put(&mut config.window_log, &args.window_log);
    put(&mut config.min_group_size, &args.min_group_size);
    put(&mut config.frame_size, &args.frame_size);
    put(&mut config.message_types, &args.message_types);
    put(&mut config.pack_rows, &args.pack_rows);
}

fn service(
    args: &ServiceArgs,
    limits: &mut LimitsConfig,
    timeouts: &mut TimeoutsConfig,
    threads: &mut Option<usize>,
) {
    put(&mut limits.max_clients, &args.max_clients);
    put(&mut limits.max_clients_per_address, &args.max_clients_per_address);
    put(&mut limits.max_codec_memory_mib, &args.max_codec_memory_mib);
    put(&mut timeouts.login_timeout_s, &args.login_timeout_s);
    put(&mut timeouts.connect_timeout_s, &args.connect_timeout_s);
    put(&mut timeouts.idle_release_s, &args.idle_release_s);
    put(&mut timeouts.drain_timeout_s, &args.drain_timeout_s);
    *threads = args.threads.or(*threads);
}

fn with_log<T>(config: T, args: &LogArgs, file: Option<LogTable>) -> Settings<T> {
    let file = file.unwrap_or_default();
    Settings {
        config,
        log_level: args.log_level.or(file.level).unwrap_or_default(),
        log_format: args.log_format.or(file.format).unwrap_or_default(),
        warnings: Vec::new(),
    }
}

/// Where the file has the setting that is wrong, the message names the line; otherwise it came from a flag or variable.
fn locate<T>(error: pgshrink_gateway::Error, file: Option<&ConfigFile<T>>) -> Error {
    let error = match error {
        pgshrink_gateway::Error::Config { item, reason } => {
            pgshrink_gateway::Error::Config { item, reason: toml_words::of_value(&reason) }
        }
        other => other,
    };
    if let pgshrink_gateway::Error::Config { item, reason } = &error
        && let Some((file, line)) = file.and_then(|file| Some((file, file.line(item)?)))
    {
        return Error::ConfigFile { path: file.path.clone(), line, reason: format!("{item}: {reason}") };
    }
    Error::Service(error)
}

fn put<T: Clone>(setting: &mut T, given: &Option<T>) {
    if let Some(given) = given {
        setting.clone_from(given);
    }
}

/// A list that was given replaces the file's.
fn put_list(setting: &mut Vec<String>, given: &[String]) {
    if !given.is_empty() {
        *setting = given.iter().filter(|item| !item.is_empty()).cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_socket_that_cannot_be_made_is_a_warning_with_its_path() {
        let listen = ["127.0.0.1:6432".to_owned()];
        let warning = default_socket(Path::new("/nonexistent"), &listen).unwrap_err();
        assert!(warning.starts_with("no Unix socket /nonexistent/.s.PGSQL.6432: "), "{warning}");
        assert!(warning.contains("No such file") && warning.contains("console"), "{warning}");
        let dir = pgshrink_testkit::TempDir::new().expect("a directory");
        let unix = default_socket(dir.path(), &listen).expect("can be made").expect("has a port");
        let taken = std::os::unix::net::UnixListener::bind(unix.path()).expect("a socket");
        let warning = default_socket(dir.path(), &listen).unwrap_err();
        assert!(warning.contains("another process listens on it"), "{warning}");
        drop(taken);
        assert_eq!(default_socket(dir.path(), &["systemd".to_owned()]), Ok(None));
    }
}
