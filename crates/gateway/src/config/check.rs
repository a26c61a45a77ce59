//! Checks: every fault names the setting, what was found and what is allowed.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use pgshrink_codec::AlgorithmList;
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;
use pgshrink_wire::{ContextMode, Dialect, MessageTypes, Policy, WindowLog};

use super::listening::{check_addresses, check_listen, check_machine, check_metrics, split_host_port};
use super::ranges::{check_float, check_range};
use super::{
    ConnectorConfig, GatewayConfig, LimitsConfig, PolicyConfig, ServerConfig, SslMode, SslNegotiation,
    TargetConfig, TcpConfig, TimeoutsConfig, WindowSetting,
};
use crate::admin::Access;
use crate::error::Error;
use crate::listen::Address;
use crate::own_address;
use crate::tls::client::TargetTls;
use crate::tls::server::ListenTls;

/// Linux's `sun_path`, closing zero byte included.
const SUN_PATH_MAX: usize = 108;

impl GatewayConfig {
    /// Everything that can be checked without looking at the machine; the first fault.
    pub fn validate(&self) -> Result<(), Error> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// The same, every fault.
    fn faults(&self) -> Vec<Error> {
        let mut checks: Vec<_> =
            check_listen(&self.listen, self.unix_socket.as_ref()).into_iter().map(Err).collect();
        checks.push(self.allowed().map(drop));
        if self.servers.is_empty() {
            checks.push(Err(Error::config("server", "no server is configured: name at least one host")));
        }
        for (index, server) in self.servers.iter().enumerate() {
            let number = |error| numbered(error, index, self.servers.len());
            checks.extend(self.check_server(server).into_iter().map(number).map(Err));
        }
        checks.extend(self.trusted_proxies.iter().map(|proxy| proxy.parse::<Network>().map(drop)));
        checks.push(check_metrics(self.metrics_listen.as_deref()));
        checks.extend(check_common(&self.limits, &self.timeouts, &self.tcp, self.threads));
        checks.extend(self.policy.problems().into_iter().map(Err));
        checks.extend(self.check_observe());
        checks.into_iter().filter_map(Result::err).collect()
    }

    fn check_observe(&self) -> Vec<Result<(), Error>> {
        let mut checks = vec![
            check_float("observe_cpu_percent", self.observe_cpu_percent),
            check_range("observe_write_s", self.observe_write_s),
            check_range("observe_days", self.observe_days as u64),
            check_range("observe_clients", self.observe_clients as u64),
        ];
        let off = |server: &ServerConfig| self.allowed_of(server).is_ok_and(|list| list.is_empty());
        if self.observe && !self.servers.is_empty() && self.servers.iter().all(off) {
            checks.push(Err(Error::config(
                "observe",
                "libpq_compression allows no algorithm, so nothing would be saved: name what to measure, such as zstd:1",
            )));
        }
        checks
    }

    /// What an operator should know although the configuration can be used.
    pub fn warnings(&self) -> Vec<String> {
        let idle = !self.observe && self.observe_path().is_some();
        let text = "observe_file is set, but observe is not: nothing is measured";
        idle.then(|| text.to_owned()).into_iter().collect()
    }

    fn check_server(&self, server: &ServerConfig) -> Vec<Error> {
        let mut found = check_target("server", &server.target);
        // What a route has from the gateway is checked once, as the gateway's.
        if server.libpq_compression.is_some() {
            found.extend(self.allowed_of(server).err());
        }
        found.extend(self.check_policy(server).1);
        if let Some(version) = server.send_proxy.filter(|v| !(1..=2).contains(v)) {
            found.push(Error::config("server.send_proxy", format!("{version}: allowed are 1 and 2")));
        }
        found
    }

    /// Everything that a start would refuse, from the settings themselves and the files they name. Opens no socket.
    pub fn problems(&self) -> Vec<Error> {
        let mut found = self.faults();
        found.extend(self.tls.iter().flat_map(ListenTls::problems));
        found.extend(Access::load(&self.admin).err());
        for (index, server) in self.servers.iter().enumerate() {
            let problems = TargetTls::problems("server", &server.target).into_iter();
            found.extend(problems.map(|error| numbered(error, index, self.servers.len())));
        }
        found.extend(self.observe_path().filter(|_| self.observe).and_then(crate::observe::file_problem));
        let (metrics, unix) = (self.metrics_listen.as_deref(), self.unix_socket.as_ref());
        found.extend(check_machine(&self.listen, metrics, unix));
        found.extend(check_addresses(&self.listen, metrics));
        let listening = own_address::configured(&self.listen, self.unix_socket.as_ref());
        found.extend(self.own_servers(&listening));
        found
    }

    /// Refuses a server that is one of the addresses this process listens on.
    pub(crate) fn check_servers(&self, listening: &[Address]) -> Result<(), Error> {
        self.own_servers(listening).into_iter().next().map_or(Ok(()), Err)
    }

    fn own_servers(&self, listening: &[Address]) -> Vec<Error> {
        let faults = |(index, server): (usize, &ServerConfig)| {
            let found = own_address::fault("server", &server.target, listening);
            found.map(|error| numbered(error, index, self.servers.len()))
        };
        self.servers.iter().enumerate().filter_map(faults).collect()
    }

    /// What a client may use on a server's route.
    pub(crate) fn allowed_of(&self, server: &ServerConfig) -> Result<AlgorithmList, Error> {
        match &server.libpq_compression {
            Some(text) => parse_list("server.libpq_compression", text),
            None => self.allowed(),
        }
    }

    /// `[policy]` with what a server's route has of its own.
    pub(crate) fn policy_of(&self, server: &ServerConfig) -> Result<PolicyConfig, Error> {
        let (policy, found) = self.check_policy(server);
        found.into_iter().next().map_or(Ok(policy), Err)
    }

    /// The same, with every fault of the route's own settings.
    fn check_policy(&self, server: &ServerConfig) -> (PolicyConfig, Vec<Error>) {
        let mut policy = self.policy.clone();
        let mut found = Vec::new();
        // Key by key, because the error itself names no key.
        for (key, value) in &server.policy {
            let merged =
                toml::Table::try_from(&policy).map_err(|error| error.to_string()).and_then(|mut table| {
                    table.insert(key.clone(), value.clone());
                    table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
                });
            match merged {
                Ok(merged) => policy = merged,
                Err(reason) => found.push(Error::config(format!("server.policy.{key}"), reason.trim())),
            }
        }
        let is_own =
            |item: &str| item.strip_prefix("policy.").is_some_and(|key| server.policy.contains_key(key));
        found.extend(policy.problems().into_iter().filter_map(|error| match error {
            Error::Config { item, reason } if is_own(&item) => {
                Some(Error::config(format!("server.{item}"), reason))
            }
            _ => None,
        }));
        (policy, found)
    }

    /// [`libpq_compression`](Self::libpq_compression) as a list.
    pub fn allowed(&self) -> Result<AlgorithmList, Error> {
        parse_list("libpq_compression", &self.libpq_compression)
    }
}

impl ConnectorConfig {
    /// Everything that can be checked without looking at the machine; the first fault.
    pub fn validate(&self) -> Result<(), Error> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// The same, every fault.
    fn faults(&self) -> Vec<Error> {
        let mut checks: Vec<_> =
            check_listen(&self.listen, self.unix_socket.as_ref()).into_iter().map(Err).collect();
        checks.push(match self.asked() {
            Ok(list) if self.required && list.is_empty() => {
                Err(Error::config("required", "compression is required, but the compression list is empty"))
            }
            asked => asked.map(drop),
        });
        checks.push(self.dialect().map(drop));
        if self.targets.is_empty() {
            checks.push(Err(Error::config("target", "no target is configured: name at least one host")));
        }
        for (index, target) in self.targets.iter().enumerate() {
            let number = |error| numbered(error, index, self.targets.len());
            checks.extend(check_target("target", target).into_iter().map(number).map(Err));
        }
        checks.push(check_metrics(self.metrics_listen.as_deref()));
        checks.extend(check_common(&self.limits, &self.timeouts, &self.tcp, self.threads));
        checks.extend(self.policy.problems().into_iter().map(Err));
        checks.into_iter().filter_map(Result::err).collect()
    }

    /// Everything that a start would refuse, from the settings themselves and the files they name. Opens no socket.
    pub fn problems(&self) -> Vec<Error> {
        let mut found = self.faults();
        found.extend(self.tls.iter().flat_map(ListenTls::problems));
        found.extend(Access::load(&self.admin).err());
        for (index, target) in self.targets.iter().enumerate() {
            let problems = TargetTls::problems("target", target).into_iter();
            found.extend(problems.map(|error| numbered(error, index, self.targets.len())));
        }
        let (metrics, unix) = (self.metrics_listen.as_deref(), self.unix_socket.as_ref());
        found.extend(check_machine(&self.listen, metrics, unix));
        found.extend(check_addresses(&self.listen, metrics));
        let listening = own_address::configured(&self.listen, self.unix_socket.as_ref());
        found.extend(self.own_targets(&listening));
        found
    }

    /// Refuses a target that is one of the addresses this process listens on.
    pub(crate) fn check_targets(&self, listening: &[Address]) -> Result<(), Error> {
        self.own_targets(listening).into_iter().next().map_or(Ok(()), Err)
    }

    fn own_targets(&self, listening: &[Address]) -> Vec<Error> {
        let faults = |(index, target): (usize, &TargetConfig)| {
            let found = own_address::fault("target", target, listening);
            found.map(|error| numbered(error, index, self.targets.len()))
        };
        self.targets.iter().enumerate().filter_map(faults).collect()
    }

    /// What an operator should know although the configuration can be used.
    pub fn warnings(&self) -> Vec<String> {
        let public = self.listen.iter().find(|address| !listens_on_loopback(address));
        let near = self.targets.iter().find(|target| is_on_this_machine(target));
        let (Some(address), Some(target)) = (public, near) else { return Vec::new() };
        vec![format!(
            "listen {address} is more than loopback, and target {} is on this machine: to the target, \
             everybody who reaches this connector is a local client, and trust rules meant for local users \
             let them in; listen on 127.0.0.1, or make pg_hba.conf require scram-sha-256",
            target.describe()
        )]
    }

    /// [`compression`](Self::compression) as a list.
    pub fn asked(&self) -> Result<AlgorithmList, Error> {
        parse_list("compression", &self.compression)
    }

    /// [`dialect`](Self::dialect) as a dialect.
    pub fn dialect(&self) -> Result<Dialect, Error> {
        Dialect::from_name(&self.dialect).ok_or_else(|| {
            Error::config("dialect", format!("'{}': allowed are ack and restart", self.dialect))
        })
    }
}

impl PolicyConfig {
    /// As the engine wants it.
    pub fn to_policy(&self) -> Result<Policy, Error> {
        if let Some(error) = self.problems().into_iter().next() {
            return Err(error);
        }
        Ok(Policy {
            types: self.types()?,
            group_size_min: self.min_group_size,
            frame_size: self.frame_size,
            context: self.context_mode()?,
            window_log: self.window()?,
        })
    }

    /// Everything that [`to_policy`](Self::to_policy) would refuse.
    fn problems(&self) -> Vec<Error> {
        let checks = [
            self.context_mode().map(drop),
            self.types().map(drop),
            check_range("policy.min_group_size", self.min_group_size as u64),
            check_range("policy.frame_size", self.frame_size as u64),
            self.window().map(drop),
        ];
        checks.into_iter().filter_map(Result::err).collect()
    }

    fn context_mode(&self) -> Result<ContextMode, Error> {
        match self.context.as_str() {
            "preserved" => Ok(ContextMode::Preserved),
            "per-transaction" => Ok(ContextMode::PerTransaction),
            "per-frame" => Ok(ContextMode::PerFrame),
            other => Err(Error::config(
                "policy.context",
                format!("'{other}': allowed are preserved, per-transaction and per-frame"),
            )),
        }
    }

    fn types(&self) -> Result<MessageTypes, Error> {
        if self.message_types.is_empty() {
            Ok(MessageTypes::All)
        } else if self.message_types.bytes().all(|b| b.is_ascii_alphanumeric()) {
            Ok(MessageTypes::Only(self.message_types.bytes().collect()))
        } else {
            Err(Error::config(
                "policy.message_types",
                format!("'{}': message types are letters and digits, such as Dd", self.message_types),
            ))
        }
    }

    fn window(&self) -> Result<WindowLog, Error> {
        match &self.window_log {
            WindowSetting::Log(log) => {
                check_range("policy.window_log", (*log).into())?;
                Ok(WindowLog::Fixed(*log))
            }
            WindowSetting::Word(word) if word == super::limits::WINDOW_AUTO => Ok(WindowLog::Auto),
            WindowSetting::Word(word) => {
                Err(Error::config("policy.window_log", format!("'{word}': allowed are auto and 10 to 23")))
            }
        }
    }
}

/// Of several tables of one name, which one it is: `server[2].port`, counted from 1.
fn numbered(error: Error, index: usize, count: usize) -> Error {
    match error {
        Error::Config { item, reason } if count > 1 => {
            let (table, rest) = item.split_at(item.find('.').unwrap_or(item.len()));
            Error::Config { item: format!("{table}[{}]{rest}", index + 1), reason }
        }
        other => other,
    }
}

fn parse_list(item: &str, text: &str) -> Result<AlgorithmList, Error> {
    if ["off", "none"].iter().any(|off| text.trim().eq_ignore_ascii_case(off)) {
        return Ok(AlgorithmList::default());
    }
    if text.trim().is_empty() {
        return Err(Error::config(item, "is empty: name algorithms, such as zstd:1, or off for none"));
    }
    AlgorithmList::parse(text, WIRE_ALGORITHMS).map_err(|e| Error::config(item, e.to_string()))
}

pub(super) fn check_socket_path(item: &str, path: &Path) -> Result<(), Error> {
    let size = path.as_os_str().len();
    if size >= SUN_PATH_MAX {
        return Err(Error::config(
            item,
            format!("{}: {size} bytes, a socket path has at most {}", path.display(), SUN_PATH_MAX - 1),
        ));
    }
    Ok(())
}

fn check_target(item: &str, target: &TargetConfig) -> Vec<Error> {
    let mut found = Vec::new();
    let mut fault = |key: &str, reason: &str| found.push(Error::config(format!("{item}.{key}"), reason));
    if target.host.is_empty() && target.hostaddr.is_none() {
        fault("host", "must not be empty");
    }
    let is_name = |host: &str| !host.contains(|c: char| c.is_whitespace() || "=,:".contains(c));
    // A zone such as %eth0 is the resolver's.
    let address = target.host.trim_matches(['[', ']']).split('%').next().unwrap_or_default();
    let is_address = address.parse::<IpAddr>().is_ok();
    if target.unix_path().is_none() && !is_address && !is_name(&target.host) {
        fault("host", &format!("'{}' is not a host name", target.host));
    }
    if target.port == 0 {
        fault("port", "0: allowed are 1 to 65535");
    }
    let tls = &target.tls;
    if tls.sslnegotiation == SslNegotiation::Direct && tls.sslmode < SslMode::Require {
        fault("sslnegotiation", "direct needs sslmode require, verify-ca or verify-full");
    }
    if tls.sslmode == SslMode::Disable && target.unix_path().is_none() {
        let idle = [
            ("sslrootcert", tls.sslrootcert.is_some()),
            ("sslcert", tls.sslcert.is_some()),
            ("sslkey", tls.sslkey.is_some()),
            ("sslhost", tls.sslhost.is_some()),
        ];
        if let Some((key, _)) = idle.iter().find(|(_, given)| *given) {
            fault(key, "has no effect with sslmode=disable: add sslmode=verify-full, or remove it");
        }
    }
    let system = tls.sslrootcert.as_deref() == Some(Path::new(crate::tls::SYSTEM_ROOTS));
    if system && !matches!(tls.sslmode, SslMode::VerifyFull | SslMode::Disable) {
        fault("sslrootcert", "system needs sslmode=verify-full");
    }
    if tls.sslmode == SslMode::VerifyCa && tls.sslrootcert.is_none() {
        fault("sslrootcert", "sslmode=verify-ca needs root certificates");
    }
    if tls.sslcert.is_some() != tls.sslkey.is_some() {
        fault("sslcert", "sslcert and sslkey must be given together");
    }
    if let Some(path) = target.unix_path() {
        found.extend(check_socket_path(&format!("{item}.host"), &path).err());
    }
    found
}

fn check_common(
    limits: &LimitsConfig,
    timeouts: &TimeoutsConfig,
    tcp: &TcpConfig,
    threads: Option<usize>,
) -> Vec<Result<(), Error>> {
    vec![
        check_range("limits.max_clients", limits.max_clients as u64),
        check_range("limits.max_auth_message_size", limits.max_auth_message_size as u64),
        check_range("limits.max_codec_memory_mib", limits.max_codec_memory_mib),
        check_range("timeouts.login_timeout_s", timeouts.login_timeout_s),
        check_range("timeouts.connect_timeout_s", timeouts.connect_timeout_s),
        check_range("timeouts.cancel_timeout_s", timeouts.cancel_timeout_s),
        check_range("timeouts.idle_release_s", timeouts.idle_release_s),
        check_range("timeouts.drain_timeout_s", timeouts.drain_timeout_s),
        check_range("tcp.keepalive_idle_s", tcp.keepalive_idle_s),
        check_range("tcp.keepalive_interval_s", tcp.keepalive_interval_s),
        check_range("tcp.keepalive_count", tcp.keepalive_count.into()),
        check_range("tcp.user_timeout_s", tcp.user_timeout_s),
        check_range("tcp.backlog", tcp.backlog.max(0) as u64),
        check_range("threads", threads.unwrap_or(1) as u64),
    ]
}

/// An address or a network in CIDR notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// Whether `address` lies in it; an IPv4 address in IPv6 clothes counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(a)) => {
                (u32::from(net) ^ u32::from(a)).checked_shr(32 - self.prefix).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(a)) => {
                (u128::from(net) ^ u128::from(a)).checked_shr(128 - self.prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::config("trusted_proxies", format!("'{text}': expected an address or network"));
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(bits), str::parse).map_err(|_| bad())?;
        if prefix > bits {
            return Err(bad());
        }
        Ok(Self { address, prefix })
    }
}

/// Whether only this machine reaches the address. Sockets of socket activation are not known here, and count as public.
fn listens_on_loopback(address: &str) -> bool {
    split_host_port(address).is_ok_and(|(host, _)| is_loopback_host(&host))
}

fn is_on_this_machine(target: &TargetConfig) -> bool {
    target.unix_path().is_some()
        || target
            .hostaddr
            .map_or_else(|| is_loopback_host(&target.host), |ip| ip.to_canonical().is_loopback())
}

fn is_loopback_host(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Peers on this machine, or whose real address a trusted proxy reported as such.
pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TargetTlsConfig;

    fn gateway() -> GatewayConfig {
        let target = TargetConfig {
            host: "127.0.0.1".into(),
            port: 5432,
            hostaddr: None,
            tls: TargetTlsConfig::default(),
        };
        GatewayConfig {
            listen: vec!["127.0.0.1:0".into()],
            servers: vec![ServerConfig::new(target)],
            ..Default::default()
        }
    }

    fn fault(change: impl FnOnce(&mut GatewayConfig)) -> String {
        let mut config = gateway();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn each_fault_names_its_setting_and_what_is_allowed() {
        gateway().validate().unwrap();
        assert!(
            fault(|c| c.libpq_compression = "zstd:99".into()).contains("libpq_compression: zstd level 99")
        );
        assert!(fault(|c| c.libpq_compression = "zstd,zstd".into()).contains("listed twice"));
        for empty in ["", " "] {
            let found = fault(|c| c.libpq_compression = empty.into());
            assert_eq!(
                found,
                "libpq_compression: is empty: name algorithms, such as zstd:1, or off for none"
            );
        }
        assert!(fault(|c| c.listen.clear()).contains("nothing to listen on"));
        assert!(fault(|c| c.listen = vec!["::1:5".into()]).contains("brackets"));
        assert!(fault(|c| c.policy.context = "x".into()).contains("per-transaction"));
        assert!(fault(|c| c.limits.max_clients = 0).contains("1 to 1048576"));
        assert!(fault(|c| c.trusted_proxies = vec!["10.0.0.0/33".into()]).contains("10.0.0.0/33"));
        assert!(fault(|c| c.servers[0].target.tls.sslmode = SslMode::VerifyCa).contains("sslrootcert"));
        assert!(fault(|c| c.observe_cpu_percent = 0.0).contains("0.01 to 50"));
        assert!(fault(|c| c.observe_cpu_percent = f64::NAN).contains("observe_cpu_percent: NaN"));
        let found = fault(|c| c.servers[0].target.tls.sslrootcert = Some("/nope".into()));
        assert!(found.starts_with("server.sslrootcert: has no effect with sslmode=disable"), "{found}");
        assert!(fault(|c| c.policy.message_types = "?!".into()).contains("policy.message_types: '?!'"));
        assert!(
            fault(|c| c.unix_socket = Some(crate::config::UnixSocketConfig::new("/x", 0)))
                .contains("port: 0")
        );
        for host in ["a port=6432", "a,b", "host=a", "a:6432", "a:6432:1"] {
            let found = fault(|c| c.servers[0].target.host = host.into());
            assert_eq!(found, format!("server.host: '{host}' is not a host name"));
        }
        assert!(fault(|c| c.observe_clients = 0).contains("1 to 1000"));
    }

    #[test]
    fn observing_needs_something_to_measure_on_one_route_at_least() {
        let off = |c: &mut GatewayConfig| {
            c.observe = true;
            c.libpq_compression = "off".into();
        };
        assert!(fault(off).starts_with("observe: libpq_compression allows no algorithm"));
        let mut config = gateway();
        off(&mut config);
        config.servers[0].libpq_compression = Some("zstd:1".into());
        assert_eq!((config.validate().map_err(|e| e.to_string()), config.warnings()), (Ok(()), Vec::new()));
        config.observe_file = "/nonexistent/dir/egress".into();
        assert!(
            config.problems()[0].to_string().starts_with("observe_file: /nonexistent/dir/egress: cannot be")
        );
        config.observe = false;
        assert_eq!((config.problems().len(), config.warnings().len()), (0, 1));
    }

    #[test]
    fn every_fault_is_found_at_once_and_files_are_loaded() {
        let mut config = gateway();
        config.libpq_compression = "zstd:99".into();
        config.policy.context = "x".into();
        config.limits.max_clients = 0;
        config.servers[0].libpq_compression = Some("lz5".into());
        config.policy.frame_size = 1;
        config.servers[0].policy = "window_log = 99\nframe_size = 2\npack_rows = 1".parse().unwrap();
        config.servers[0].target.port = 0;
        config.servers[0].target.tls.sslcert = Some("/nonexistent/client.crt".into());
        config.listen = vec!["a".into(), "b".into()];
        config.admin.password_file = Some("/nonexistent/userlist.txt".into());
        config.tls = Some(crate::config::ListenTlsConfig {
            cert: "/nonexistent/server.crt".into(),
            key: "/nonexistent/server.key".into(),
            client_ca: None,
            require_client_cert: false,
            required: false,
        });
        let found = config.problems().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        for part in [
            "libpq_compression: zstd level 99",
            "server.libpq_compression: ",
            "server.policy.window_log: 99",
            "server.policy.frame_size: 2",
            "server.policy.pack_rows: invalid type",
            "server.port: 0",
            "server.sslcert: sslcert and sslkey",
            "listen: 'a'",
            "listen: 'b'",
            "policy.context: ",
            "policy.frame_size: 1:",
            "limits.max_clients: 0",
            "/nonexistent/server.crt",
            "/nonexistent/server.key",
            "/nonexistent/userlist.txt",
        ] {
            assert!(found.contains(part), "no {part} in:\n{found}");
        }
    }

    #[test]
    fn a_route_has_the_gateways_policy_but_for_its_own_settings() {
        let mut config = gateway();
        config.policy.context = "per-frame".into();
        config.servers[0].policy = "window_log = 16\npack_rows = false".parse().unwrap();
        let policy = config.policy_of(&config.servers[0]).unwrap();
        assert_eq!((policy.context.as_str(), policy.pack_rows), ("per-frame", false));
        assert_eq!(policy.to_policy().unwrap().window_log, WindowLog::Fixed(16));
        assert!(fault(|c| c.servers[0].policy = "window = 16".parse().unwrap()).contains("unknown field"));
    }

    #[test]
    fn a_connector_that_makes_strangers_local_to_its_gateway_warns() {
        let warnings = |listen: &str, host: &str| {
            let target = TargetConfig::new(host, 6432);
            ConnectorConfig { listen: vec![listen.into()], targets: vec![target], ..Default::default() }
                .warnings()
        };
        for (listen, host) in [("0.0.0.0:5433", "127.0.0.1"), ("*:5433", "localhost"), ("[::]:1", "/run/pg")]
        {
            assert!(warnings(listen, host)[0].contains(listen), "{listen} {host}");
        }
        for (listen, host) in
            [("127.0.0.1:5433", "127.0.0.1"), ("[::1]:5433", "::1"), ("*:5433", "db.example")]
        {
            assert!(warnings(listen, host).is_empty(), "{listen} {host}");
        }
    }

    #[test]
    fn networks_match_by_prefix_in_both_families() {
        let has = |net: &str, a: &str| net.parse::<Network>().unwrap().contains(a.parse().unwrap());
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && has("::/0", "::1") && !has("::/0", "1.2.3.4"));
        assert!(has("127.0.0.1", "::ffff:127.0.0.1") && !has("127.0.0.1", "127.0.0.2"));
        assert!(has("fd00::/16", "fd00:1::1") && !has("fd00::/16", "fd01::1"));
    }
}
