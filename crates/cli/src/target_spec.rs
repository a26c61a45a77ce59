//! `--target`: a host, a host with a port, or a connection string.

use crate::args::ConnectArgs;
use crate::error::Error;
use crate::settings::flag_or_variable;
use crate::surroundings::Disk;
use pgshrink_gateway::config::TargetConfig;
use pgshrink_pgclient::conninfo::{self, Conninfo, Setting};
use pgshrink_pgclient::ssl::{RootCertificate, SslMode, SslNegotiation, SslParameters};
use pgshrink_pgclient::target::{self, Target};
use pgshrink_pgclient::{Parameters, Surroundings};
use std::path::PathBuf;

/// All targets, in order; a connection string may name several.
pub(crate) fn parse_all(args: &ConnectArgs) -> Result<Vec<TargetConfig>, Error> {
    let lists = args.target.iter().map(|text| parse(text, args)).collect::<Result<Vec<_>, _>>();
    lists.map(|lists| lists.concat()).map_err(|reason| {
        let flag = flag_or_variable("--target", "PGSHRINK_TARGET", &args.target);
        Error::Flag { flag, reason }
    })
}

fn parse(text: &str, args: &ConnectArgs) -> Result<Vec<TargetConfig>, String> {
    let mut settings = flags(args);
    match conninfo::is_recognized(text.as_bytes()) {
        true => {
            let info = Conninfo::parse_strict(text.as_bytes()).map_err(|error| error.to_string())?;
            settings.extend(info.settings());
        }
        false => settings.extend(host_and_port(text)?),
    }
    if let Some(right) = with_blanks(text, &settings) {
        return Err(format!("\"{text}\": settings of a target are separated by blanks: {right}"));
    }
    roots(&mut settings)?;
    // A service is told everything explicitly: no home directory, no environment of whoever starts it.
    let around = Surroundings { env: Default::default(), home: None, files: &Disk };
    let parameters = Parameters::merge(&settings, &around).map_err(|error| error.to_string())?;
    let targets = target::targets(&parameters, &around).map_err(|error| error.to_string())?;
    let ssl = SslParameters::resolve(&parameters, &around).map_err(|error| error.to_string())?;
    targets.iter().map(|target| config(target, &ssl)).collect()
}

fn flags(args: &ConnectArgs) -> Vec<Setting> {
    let given = [
        ("sslmode", &args.sslmode),
        ("sslrootcert", &args.sslrootcert),
        ("sslcert", &args.sslcert),
        ("sslkey", &args.sslkey),
        ("sslnegotiation", &args.sslnegotiation),
    ];
    let given = given.into_iter().filter_map(|(keyword, value)| Some((keyword, value.as_ref()?)));
    given.map(|(keyword, value)| setting(keyword, value)).collect()
}

/// The right form of what is written with commas, as a server of a gateway is: `host=a,port=6432` would be two hosts.
fn with_blanks(text: &str, settings: &[Setting]) -> Option<String> {
    let host = settings.iter().find(|setting| setting.keyword == b"host")?;
    (!host.value.starts_with(b"/") && host.value.contains(&b'=')).then(|| text.replace(',', " "))
}

/// The certificates to verify with, if they are not named: those of the system, as for a target in a file. libpq looks
/// into the home directory, and a service has none.
fn roots(settings: &mut Vec<Setting>) -> Result<(), String> {
    let last = |keyword: &str| {
        let setting = settings.iter().rfind(|setting| setting.keyword == keyword.as_bytes());
        setting.map(|setting| setting.value.as_slice())
    };
    match last("sslmode") {
        _ if last("sslrootcert").is_some() => {}
        Some(b"verify-full") => settings.push(setting("sslrootcert", "system")),
        Some(b"verify-ca") => {
            return Err("sslmode=verify-ca needs root certificates: name them with sslrootcert".to_owned());
        }
        _ => {}
    }
    Ok(())
}

/// `host`, `host:port`, `[v6]:port`, `v6`, `/directory` or `/directory:port`.
fn host_and_port(text: &str) -> Result<Vec<Setting>, String> {
    if text.is_empty() {
        return Err("expected HOST:PORT".to_owned());
    }
    if text.contains(',') {
        return Err(format!("\"{text}\": expected one HOST:PORT; repeat --target for several"));
    }
    // A zone such as %eth0 is the resolver's.
    let is_v6 = |text: &str| text.split('%').next().is_some_and(|a| a.parse::<std::net::Ipv6Addr>().is_ok());
    if !text.starts_with(['[', '/', '@']) && text.matches(':').count() > 1 && !is_v6(text) {
        return Err(format!("\"{text}\": expected HOST:PORT, or [ADDRESS]:PORT for IPv6"));
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or("expected [ADDRESS]:PORT")?)),
        None if text.matches(':').count() > 1 => (text, None),
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map(|port| setting("port", port));
    Ok([setting("host", host)].into_iter().chain(port).collect())
}

fn setting(keyword: &str, value: &str) -> Setting {
    Setting { keyword: keyword.into(), value: value.into() }
}

/// The gateway crate's words for a target, or why it has none.
pub(crate) fn config(target: &Target, ssl: &SslParameters) -> Result<TargetConfig, String> {
    let unix =
        target.hostaddr.is_none() && target.host.as_ref().is_none_or(|host| host.starts_with(['/', '@']));
    let host = match (&target.host, &target.hostaddr) {
        (Some(host), _) => host.clone(),
        (None, Some(address)) => address.clone(),
        (None, None) => target.default_socket_dir.to_owned(),
    };
    let mut config = TargetConfig::new(host, target.port);
    let address =
        |text: &String| text.parse().map_err(|_| format!("hostaddr \"{text}\" is not an IP address"));
    config.hostaddr = target.hostaddr.as_ref().map(address).transpose()?;
    if unix || ssl.mode == SslMode::Disable {
        return Ok(config);
    }
    if let Some(keyword) = unsupported(ssl) {
        return Err(format!("{keyword} is not supported with compression in between"));
    }
    use pgshrink_gateway::config as gateway;
    config.tls.sslmode = match ssl.mode {
        SslMode::Disable => gateway::SslMode::Disable,
        SslMode::Allow => gateway::SslMode::Allow,
        SslMode::Prefer => gateway::SslMode::Prefer,
        SslMode::Require => gateway::SslMode::Require,
        SslMode::VerifyCa => gateway::SslMode::VerifyCa,
        SslMode::VerifyFull => gateway::SslMode::VerifyFull,
    };
    config.tls.sslnegotiation = match ssl.negotiation {
        SslNegotiation::Postgres => gateway::SslNegotiation::Postgres,
        SslNegotiation::Direct => gateway::SslNegotiation::Direct,
    };
    config.tls.sslrootcert = match &ssl.root_cert {
        RootCertificate::None => None,
        RootCertificate::File(path) => Some(path.clone()),
        RootCertificate::System => Some(PathBuf::from("system")),
    };
    (config.tls.sslcert, config.tls.sslkey) = (ssl.cert.clone(), ssl.key.clone());
    Ok(config)
}

/// What libpq can and the connector's TLS cannot: better an error than less than what was asked for.
fn unsupported(ssl: &SslParameters) -> Option<&'static str> {
    use pgshrink_pgclient::ssl::{SslCertMode, TlsVersion};
    let cases = [
        (ssl.crl.is_some(), "a certificate revocation list (sslcrl, ~/.postgresql/root.crl)"),
        (ssl.crl_dir.is_some(), "sslcrldir"),
        (ssl.key_password.is_some() && ssl.key.is_some(), "sslpassword"),
        (ssl.cert_mode == SslCertMode::Require, "sslcertmode=require"),
        (ssl.min_version > Some(TlsVersion::Tls12), "ssl_min_protocol_version above TLSv1.2"),
        (
            ssl.max_version.is_some_and(|max| max < TlsVersion::Tls13),
            "ssl_max_protocol_version below TLSv1.3",
        ),
    ];
    cases.into_iter().find(|(asked, _)| *asked).map(|(_, keyword)| keyword)
}
