//! Which server a session goes to: the first whose databases and users match.

use std::sync::Arc;

use pgshrink_codec::AlgorithmList;
use pgshrink_egress::Simulation;
use pgshrink_wire::LinkConfig;

use crate::config::{GatewayConfig, ServerConfig};
use crate::error::{Error, Refusal, sqlstate};
use crate::tls::client::TargetTls;
use crate::upstream::Target;

/// A server as sessions use it.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) target: Target,
    databases: Vec<String>,
    users: Vec<String>,
    /// What clients may use on this route.
    pub(crate) allowed: AlgorithmList,
    /// How this end sends on it.
    pub(crate) link: Arc<LinkConfig>,
    pub(crate) pack_rows: bool,
    pub(crate) send_proxy: Option<u8>,
    /// What a session would have used, where nothing is compressed but measured.
    pub(crate) simulation: Option<Arc<Simulation>>,
}

impl Server {
    /// A server of this gateway's configuration.
    pub(crate) fn load(config: &ServerConfig, gateway: &GatewayConfig) -> Result<Arc<Self>, Error> {
        let policy = gateway.policy_of(config)?;
        let allowed = gateway.allowed_of(config)?;
        let link = Arc::new(LinkConfig { policy: policy.to_policy()?, ..LinkConfig::default() });
        let measured = gateway.observe.then(|| Simulation::new(&allowed, policy.pack_rows, link.clone()));
        Ok(Arc::new(Self {
            simulation: measured.flatten().map(Arc::new),
            allowed,
            link,
            pack_rows: policy.pack_rows,
            name: config.name.clone().unwrap_or_else(|| config.target.describe()),
            target: Target { tls: TargetTls::load(&config.target)?, config: config.target.clone() },
            databases: config.database.clone(),
            users: config.user.clone(),
            send_proxy: config.send_proxy,
        }))
    }

    fn serves(&self, database: &str, user: &str) -> bool {
        let any = |patterns: &[String], name: &str| {
            patterns.is_empty() || patterns.iter().any(|p| matches_pattern(p, name))
        };
        any(&self.databases, database) && any(&self.users, user)
    }
}

/// The first server for `database` and `user`.
pub(crate) fn choose<'a>(
    servers: &'a [Arc<Server>],
    database: &str,
    user: &str,
) -> Result<&'a Arc<Server>, Refusal> {
    servers.iter().find(|s| s.serves(database, user)).ok_or_else(|| {
        let list = |name: &str, patterns: &[String]| match patterns {
            [] => format!("any {name}"),
            some => format!("{name}s {}", some.join(", ")),
        };
        let known: Vec<_> = servers
            .iter()
            .map(|s| format!("{} ({}, {})", s.name, list("database", &s.databases), list("user", &s.users)))
            .collect();
        Refusal::new(
            sqlstate::INVALID_CATALOG,
            format!("no server is configured for database \"{database}\" and user \"{user}\""),
        )
        .detail(format!("Configured: {}.", known.join("; ")))
    })
}

fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TargetConfig;

    fn server(name: &str, databases: &[&str], users: &[&str]) -> Arc<Server> {
        let own = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
        let config = ServerConfig {
            name: Some(name.into()),
            database: own(databases),
            user: own(users),
            ..ServerConfig::new(TargetConfig::new("h", 1))
        };
        Server::load(&config, &GatewayConfig::default()).unwrap()
    }

    #[test]
    fn the_first_server_that_matches_both_is_taken() {
        let servers =
            [server("a", &["app", "log_*"], &[]), server("b", &[], &["bob"]), server("c", &["x"], &[])];
        let name = |database, user| choose(&servers, database, user).map(|s| s.name.clone());
        assert_eq!(name("app", "bob").unwrap(), "a");
        assert_eq!(name("log_2026", "eve").unwrap(), "a");
        assert_eq!(name("x", "bob").unwrap(), "b");
        assert_eq!(name("x", "eve").unwrap(), "c");
        let refusal = name("none", "eve").unwrap_err();
        assert_eq!(refusal.sqlstate, "3D000");
        assert!(refusal.detail.unwrap().contains("a (databases app, log_*, any user)"));
    }
}
