//! The configuration's defaults, for the help: taken from where they are in force, so that they cannot differ.

use crate::settings::SOCKET_DIR;
use clap::Command;
use pgshrink_gateway::config::{
    ConnectorConfig, GatewayConfig, LimitsConfig, PolicyConfig, TimeoutsConfig, UnixSocketConfig,
};

/// Appends `[default: …]` to the help of each flag that has one.
pub(super) fn state(command: Command) -> Command {
    let gateway = GatewayConfig::default();
    let mut of_gateway = common(&gateway.policy, &gateway.limits, &gateway.timeouts);
    of_gateway.extend([
        ("unix_socket_directory", format!("{SOCKET_DIR} if it is writable")),
        ("libpq_compression", gateway.libpq_compression),
        ("allow_unchallenged", gateway.allow_unchallenged.to_string()),
        ("observe", gateway.observe.to_string()),
        ("observe_file", "none".to_owned()),
        ("observe_cpu_percent", gateway.observe_cpu_percent.to_string()),
        ("admin_database", gateway.admin.database),
        ("admin_users", gateway.admin.users.join(",")),
    ]);
    let connector = ConnectorConfig::default();
    let mut of_connector = common(&connector.policy, &connector.limits, &connector.timeouts);
    of_connector.extend([
        ("unix_socket_directory", "none".to_owned()),
        ("compression", connector.compression),
        ("dialect", connector.dialect.clone()),
        ("required", connector.required.to_string()),
        ("admin_database", "none".to_owned()),
        ("admin_users", connector.admin.users.join(",")),
    ]);
    command
        .mut_subcommand("gateway", |command| append(command, of_gateway))
        .mut_subcommand("connect", |command| append(command, of_connector))
        .mut_subcommand("run", |command| append(command, vec![("dialect", connector.dialect)]))
}

fn common(
    policy: &PolicyConfig,
    limits: &LimitsConfig,
    timeouts: &TimeoutsConfig,
) -> Vec<(&'static str, String)> {
    vec![
        ("context", policy.context.clone()),
        ("window_log", policy.window_log.to_string()),
        ("min_group_size", policy.min_group_size.to_string()),
        ("frame_size", policy.frame_size.to_string()),
        ("pack_rows", policy.pack_rows.to_string()),
        ("max_clients", limits.max_clients.to_string()),
        ("max_clients_per_address", limits.max_clients_per_address.to_string()),
        ("max_codec_memory_mib", limits.max_codec_memory_mib.to_string()),
        ("login_timeout_s", timeouts.login_timeout_s.to_string()),
        ("connect_timeout_s", timeouts.connect_timeout_s.to_string()),
        ("idle_release_s", timeouts.idle_release_s.to_string()),
        ("drain_timeout_s", timeouts.drain_timeout_s.to_string()),
        ("unix_socket_mode", UnixSocketConfig::new("/", 1).mode),
        ("tls_require_client_cert", "false".to_owned()),
        ("tls_required", "false".to_owned()),
        ("log_level", "info".to_owned()),
        ("log_format", "text".to_owned()),
    ]
}

fn append(command: Command, defaults: Vec<(&'static str, String)>) -> Command {
    defaults.into_iter().fold(command, |command, (id, default)| {
        command.mut_arg(id, |arg| {
            let with = |help: Option<String>| help.map(|help| stated(&help, &default));
            let short = with(arg.get_help().map(ToString::to_string));
            let long = with(arg.get_long_help().map(ToString::to_string));
            let arg = short.into_iter().fold(arg, clap::Arg::help);
            long.into_iter().fold(arg, clap::Arg::long_help)
        })
    })
}

/// The default stands behind the first line, which is what the short help shows.
fn stated(help: &str, default: &str) -> String {
    match help.split_once('\n') {
        Some((first, rest)) => format!("{first} [default: {default}]\n{rest}"),
        None => format!("{help} [default: {default}]"),
    }
}
