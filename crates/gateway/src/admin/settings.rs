//! A configuration as rows of SHOW CONFIG, and its servers as rows of SHOW SERVERS.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::Value;

use crate::config::{ConnectorConfig, GatewayConfig, SslMode, TargetConfig};
use crate::registry::{ServerInfo, Setting};

/// What stays as it was at the start: sockets are not moved, threads not added.
const FIXED: &[&str] = &["listen", "unix_socket", "metrics_listen", "tcp.backlog", "threads"];

/// Arrays of tables.
const TABLES: &[&str] = &["server", "target"];
/// Settings without a default: shown empty while they are not set.
const OPTIONAL: &[&str] = &["admin.password_file", "metrics_listen", "tls", "unix_socket", "threads"];

/// Every setting in force beside its default.
pub(crate) fn settings<C: Serialize + Default>(config: &C) -> Vec<Setting> {
    let (mut now, default) = (flat(config), flat(&C::default()));
    for name in OPTIONAL {
        if !now.keys().any(|key| is_under(key, name)) {
            now.insert((*name).to_string(), String::new());
        }
    }
    let mut keys: Vec<&String> = now.keys().chain(default.keys()).collect();
    keys.sort();
    keys.dedup();
    let text = |values: &BTreeMap<String, String>, key: &str| values.get(key).cloned().unwrap_or_default();
    let row = |key: &String| Setting {
        key: key.clone(),
        value: text(&now, key),
        default: text(&default, key),
        reloadable: !FIXED.iter().any(|fixed| is_under(key, fixed)),
    };
    keys.into_iter().map(row).collect()
}

fn is_under(key: &str, table: &str) -> bool {
    key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn flat(config: &impl Serialize) -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    match Value::try_from(config) {
        Ok(value) => flatten(String::new(), &value, &mut rows),
        // A path that is not UTF-8: the process can use it, a table cannot show it.
        Err(error) => tracing::warn!(%error, "settings cannot be shown"),
    }
    rows
}

fn flatten(key: String, value: &Value, rows: &mut BTreeMap<String, String>) {
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                flatten(key, value, rows);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_table) => {
            // Numbered as in the messages of `config::check`.
            for (index, item) in items.iter().enumerate() {
                let several = format!("{key}[{}]", index + 1);
                flatten(if items.len() > 1 { several } else { key.clone() }, item, rows);
            }
        }
        // The list of servers in a configuration that has none.
        Value::Array(items) if items.is_empty() && TABLES.contains(&key.as_str()) => {}
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            rows.insert(key, items.join(", "));
        }
        single => {
            rows.insert(key, plain(single));
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The servers of a gateway.
pub(crate) fn gateway_servers(config: &GatewayConfig) -> Vec<ServerInfo> {
    config
        .servers
        .iter()
        .map(|server| {
            let any = |what: &str, names: &[String]| match names {
                [] => format!("any {what}"),
                some => format!("{what} {}", some.join(", ")),
            };
            let name = server.name.clone().unwrap_or_else(|| server.target.describe());
            let serves = format!("{}; {}", any("database", &server.database), any("user", &server.user));
            info(name, serves, &server.target)
        })
        .collect()
}

/// The targets of a connector, tried in order.
pub(crate) fn connector_servers(config: &ConnectorConfig) -> Vec<ServerInfo> {
    let place = |index: usize| format!("any; tried as number {}", index + 1);
    config.targets.iter().enumerate().map(|(i, t)| info(t.describe(), place(i), t)).collect()
}

fn info(name: String, serves: String, target: &TargetConfig) -> ServerInfo {
    let sslmode = match target.tls.sslmode {
        SslMode::Disable => "disable",
        SslMode::Allow => "allow",
        SslMode::Prefer => "prefer",
        SslMode::Require => "require",
        SslMode::VerifyCa => "verify-ca",
        SslMode::VerifyFull => "verify-full",
    };
    ServerInfo { name, address: target.describe(), serves, sslmode }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ListenTlsConfig, ServerConfig, UnixSocketConfig};

    #[test]
    fn settings_that_are_not_set_are_shown_too() {
        let keys = |config: &ConnectorConfig| settings(config).into_iter().map(|s| s.key).collect::<Vec<_>>();
        let bare = keys(&ConnectorConfig::default());
        let mut full = ConnectorConfig {
            unix_socket: Some(UnixSocketConfig::new("/run", 1)),
            metrics_listen: Some("h:1".into()),
            threads: Some(1),
            tls: Some(ListenTlsConfig {
                cert: "c".into(),
                key: "k".into(),
                client_ca: None,
                require_client_cert: false,
                required: false,
            }),
            ..ConnectorConfig::default()
        };
        full.admin.password_file = Some("p".into());
        let full = keys(&full);
        for name in OPTIONAL {
            assert!(bare.iter().any(|k| k == name), "{name}");
            assert!(full.iter().any(|k| is_under(k, name)), "{name}");
        }
        for table in TABLES {
            assert!(!bare.iter().any(|k| k == table), "{table}");
        }
    }

    #[test]
    fn every_setting_stands_beside_its_default() {
        let target = TargetConfig::new("db", 5432);
        let mut config = GatewayConfig {
            listen: vec!["127.0.0.1:1".into(), "[::1]:2".into()],
            servers: vec![ServerConfig {
                name: Some("a".into()),
                database: vec!["x".into()],
                ..ServerConfig::new(target)
            }],
            ..GatewayConfig::default()
        };
        config.limits.max_clients = 7;
        let rows = settings(&config);
        let row = |key: &str| rows.iter().find(|r| r.key == key).unwrap();
        assert_eq!(row("listen").value, "127.0.0.1:1, [::1]:2");
        assert!(
            !row("listen").reloadable
                && !row("tcp.backlog").reloadable
                && row("tcp.keepalive_count").reloadable
        );
        let max = row("limits.max_clients");
        assert_eq!((max.value.as_str(), max.default.as_str(), max.reloadable), ("7", "10000", true));
        assert_eq!(row("server.host").value, "db");
        assert_eq!(row("server.sslmode").value, "disable");
        let server = &gateway_servers(&config)[0];
        assert_eq!((server.name.as_str(), server.serves.as_str()), ("a", "database x; any user"));
    }

    #[test]
    fn servers_have_the_numbers_of_messages() {
        let server = |port| ServerConfig::new(TargetConfig::new("db", port));
        for ports in [&[0][..], &[5432, 0], &[0, 5432, 5433]] {
            let servers = ports.iter().map(|port| server(*port)).collect();
            let config =
                GatewayConfig { listen: vec!["127.0.0.1:1".into()], servers, ..GatewayConfig::default() };
            let Err(crate::Error::Config { item, .. }) = config.validate() else { panic!("a port is 0") };
            let shown = settings(&config).into_iter().find(|setting| setting.key == item);
            assert_eq!(shown.map(|setting| setting.value).as_deref(), Some("0"), "{item}");
        }
    }
}
