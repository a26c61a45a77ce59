//! TLS towards servers: what is read from files, and how a server's certificate is verified.
//!
//! rustls with the `ring` provider. No session is ever resumed, as libpq resumes none. Files are read when a
//! configuration is made, so a broken file is reported before anybody connects.
//!
//! This module makes configurations and connects nowhere: [`connection`](crate::connection) uses them with blocking
//! sockets, the gateway with tokio's.

mod binding;
mod identity;
mod verifier;

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, SupportedProtocolVersion};

use crate::Error;
pub use binding::server_end_point;
use verifier::Verifier;

/// The word that stands for the system's certificate store.
pub const SYSTEM_ROOTS: &str = "system";
/// The protocol name of PostgreSQL 17, required when TLS begins with the first byte.
pub const ALPN: &[u8] = b"postgresql";

/// What a client needs for TLS to one server.
#[derive(Debug, Clone, Copy)]
pub struct ClientTls<'a> {
    /// How far the server's certificate is verified.
    pub check: Check<'a>,
    /// Certificate and key to present when the server asks.
    pub identity: Option<Identity<'a>>,
    /// The protocol versions to offer.
    pub versions: &'a [&'static SupportedProtocolVersion],
}

/// How far a server's certificate is verified.
#[derive(Debug, Clone, Copy)]
pub enum Check<'a> {
    /// Any certificate will do.
    Nothing,
    /// It must descend from a root.
    Chain(Roots<'a>),
    /// It must also be for this host.
    ChainAndName(Roots<'a>, &'a str),
}

/// The certificates that a server's certificate is verified against.
#[derive(Debug, Clone, Copy)]
pub enum Roots<'a> {
    /// The operating system's.
    System,
    /// Those in a PEM file.
    File(&'a Path),
}

/// A client certificate.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// PEM, the certificate itself first.
    pub cert: &'a Path,
    /// PEM, not encrypted.
    pub key: &'a Path,
}

impl ClientTls<'_> {
    /// Reads the files and makes a configuration for rustls.
    ///
    /// # Errors
    /// [`Error::File`] for a file that cannot be used, [`Error::Tls`] for contents that do not fit together.
    pub fn load(&self) -> Result<ClientConfig, Error> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(self.versions)
            .map_err(tls_error("sslmode"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier::load(self.check)?));
        let mut client = match self.identity {
            Some(Identity { cert, key }) => builder
                .with_client_auth_cert(read_certificates("sslcert", cert)?, read_key("sslkey", key)?)
                .map_err(tls_error("sslcert and sslkey"))?,
            None => builder.with_no_client_auth(),
        };
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        Ok(client)
    }
}

/// The name to give to rustls for a host. A host that is no DNS name is replaced by its address.
///
/// # Errors
/// [`Error::Tls`] when there is no address either.
pub fn server_name(host: &str, hostaddr: Option<IpAddr>) -> Result<ServerName<'static>, Error> {
    match (ServerName::try_from(host.to_string()), hostaddr) {
        (Ok(name), _) => Ok(name),
        (Err(_), Some(address)) => Ok(ServerName::from(address)),
        (Err(e), None) => Err(Error::Tls { what: "host", reason: format!("'{host}': {e}") }),
    }
}

/// The one cryptography provider of the process.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

/// Reads a PEM file of one certificate or more. `what` names the setting in errors.
///
/// # Errors
/// [`Error::File`].
pub fn read_certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let fail = |reason: String| Error::File { what, path: path.into(), reason };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(|items| items.collect::<Result<Vec<_>, _>>())
        .map_err(|e| fail(e.to_string()))?;
    if certificates.is_empty() {
        return Err(fail("it contains no PEM certificate".into()));
    }
    Ok(certificates)
}

/// Reads a key whose permissions PostgreSQL would accept: nobody else reads it, or root owns it and the group does.
///
/// # Errors
/// [`Error::File`].
pub fn read_key(what: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let fail = |reason: String| Error::File { what, path: path.into(), reason };
    let meta = std::fs::metadata(path).map_err(|e| fail(e.to_string()))?;
    let open_to = if meta.uid() == 0 { 0o037 } else { 0o077 };
    if meta.mode() & open_to != 0 {
        return Err(fail(format!(
            "mode {:04o} gives other users access; set 0600, or 0640 if root owns it",
            meta.mode() & 0o777
        )));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|e| fail(format!("{e}; expected an unencrypted PEM key")))
}

/// Names the setting that rustls complains about.
pub fn tls_error(what: &'static str) -> impl Fn(rustls::Error) -> Error {
    move |e| Error::Tls { what, reason: e.to_string() }
}
