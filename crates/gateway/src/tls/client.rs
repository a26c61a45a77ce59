//! Verifying the servers and gateways this process connects to, as libpq does.
//!
//! | sslmode | roots given | checked |
//! |---|---|---|
//! | allow, prefer, require | no | nothing |
//! | allow, prefer | yes | nothing |
//! | require, verify-ca | yes | chain |
//! | verify-full | yes, or `system` | chain and name |
//!
//! `require` with a root file checks the chain for the reason libpq gives: backwards compatibility.
//! A server certificate that is itself among the roots is trusted, as OpenSSL does; webpki alone would refuse
//! the self-signed certificates that PostgreSQL's documentation tells people to make.

use std::path::Path;
use std::sync::Arc;

use pgshrink_pgclient::tls::{
    Check, ClientTls, Identity, Roots, SYSTEM_ROOTS, read_certificates, read_key, server_name,
};
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::config::{SslMode, TargetConfig, TargetTlsConfig};
use crate::error::Error;

/// TLS towards one target, ready to use.
#[derive(Clone)]
pub(crate) struct TargetTls {
    pub(crate) connector: TlsConnector,
    /// What the certificate must be for, and the name sent to it.
    pub(crate) name: ServerName<'static>,
}

impl TargetTls {
    /// Everything that [`load`](Self::load) could refuse, not only the first. `item` is the table of the target.
    pub(crate) fn problems(item: &str, target: &TargetConfig) -> Vec<Error> {
        let tls = &target.tls;
        if tls.sslmode == SslMode::Disable || target.unix_path().is_some() {
            return Vec::new();
        }
        let roots =
            tls.sslrootcert.as_ref().filter(|path| tls.sslmode >= SslMode::Require && *path != SYSTEM_ROOTS);
        let files = [
            ("sslrootcert", roots.and_then(|path| read_certificates("sslrootcert", path).err())),
            ("sslcert", tls.sslcert.as_ref().and_then(|path| read_certificates("sslcert", path).err())),
            ("sslkey", tls.sslkey.as_ref().and_then(|path| read_key("sslkey", path).err())),
        ];
        let named = |(key, error): (&str, Option<_>)| {
            error.map(|error| Error::config(format!("{item}.{key}"), Error::from(error).to_string()))
        };
        let found: Vec<Error> = files.into_iter().filter_map(named).collect();
        if found.is_empty() { Self::load(target).err().into_iter().collect() } else { found }
    }

    /// `None` when the target never uses TLS: `disable`, or a Unix socket.
    pub(crate) fn load(target: &TargetConfig) -> Result<Option<Self>, Error> {
        let tls = &target.tls;
        if tls.sslmode == SslMode::Disable || target.unix_path().is_some() {
            return Ok(None);
        }
        let host = tls.sslhost.as_deref().unwrap_or(&target.host);
        let identity = match (&tls.sslcert, &tls.sslkey) {
            (Some(cert), Some(key)) => Some(Identity { cert, key }),
            _ => None,
        };
        let client = ClientTls { check: check(tls, host), identity, versions: rustls::DEFAULT_VERSIONS };
        let connector = TlsConnector::from(Arc::new(client.load()?));
        Ok(Some(Self { connector, name: server_name(host, target.hostaddr)? }))
    }
}

/// What is checked; the table above.
fn check<'a>(tls: &'a TargetTlsConfig, host: &'a str) -> Check<'a> {
    let full = tls.sslmode == SslMode::VerifyFull;
    let roots = match &tls.sslrootcert {
        _ if tls.sslmode < SslMode::Require => return Check::Nothing,
        Some(path) if path == Path::new(SYSTEM_ROOTS) => Roots::System,
        Some(path) => Roots::File(path),
        None if full => Roots::System,
        None => return Check::Nothing,
    };
    if full { Check::ChainAndName(roots, host) } else { Check::Chain(roots) }
}
