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

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

use super::{ALPN, SYSTEM_ROOTS, identity, provider, read_certificates, read_key, tls_error};
use crate::config::{SslMode, TargetConfig};
use crate::error::Error;

/// TLS towards one target, ready to use.
#[derive(Clone)]
pub(crate) struct TargetTls {
    pub(crate) connector: TlsConnector,
    /// What the certificate must be for, and the name sent to it.
    pub(crate) name: ServerName<'static>,
}

impl TargetTls {
    /// Everything that [`load`](Self::load) could refuse, not only the first.
    pub(crate) fn problems(target: &TargetConfig) -> Vec<Error> {
        let tls = &target.tls;
        if tls.sslmode == SslMode::Disable || target.unix_path().is_some() {
            return Vec::new();
        }
        let roots =
            tls.sslrootcert.as_ref().filter(|path| tls.sslmode >= SslMode::Require && *path != SYSTEM_ROOTS);
        let files = [
            roots.and_then(|path| read_certificates("sslrootcert", path).err()),
            tls.sslcert.as_ref().and_then(|path| read_certificates("sslcert", path).err()),
            tls.sslkey.as_ref().and_then(|path| read_key("sslkey", path).err()),
        ];
        let found: Vec<Error> = files.into_iter().flatten().collect();
        if found.is_empty() { Self::load(target).err().into_iter().collect() } else { found }
    }

    /// `None` when the target never uses TLS: `disable`, or a Unix socket.
    pub(crate) fn load(target: &TargetConfig) -> Result<Option<Self>, Error> {
        let tls = &target.tls;
        if tls.sslmode == SslMode::Disable || target.unix_path().is_some() {
            return Ok(None);
        }
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(tls_error("sslmode"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier::load(target)?));
        let mut client = match (&tls.sslcert, &tls.sslkey) {
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(read_certificates("sslcert", cert)?, read_key("sslkey", key)?)
                .map_err(tls_error("sslcert and sslkey"))?,
            _ => builder.with_no_client_auth(),
        };
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        let host = tls.sslhost.as_deref().unwrap_or(&target.host);
        let name = match (ServerName::try_from(host.to_string()), target.hostaddr) {
            (Ok(name), _) => name,
            (Err(_), Some(address)) => ServerName::from(address),
            (Err(e), None) => return Err(Error::Tls { what: "host", reason: format!("'{host}': {e}") }),
        };
        Ok(Some(Self { connector: TlsConnector::from(Arc::new(client)), name }))
    }
}

#[derive(Debug)]
struct Verifier {
    /// `None`: any certificate will do.
    chain: Option<Chain>,
    /// The name is checked as well.
    host: Option<String>,
}

#[derive(Debug)]
struct Chain {
    webpki: Arc<WebPkiServerVerifier>,
    roots: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn load(target: &TargetConfig) -> Result<Self, Error> {
        let tls = &target.tls;
        let host = tls.sslhost.clone().unwrap_or_else(|| target.host.clone());
        let full = tls.sslmode == SslMode::VerifyFull;
        let roots = match &tls.sslrootcert {
            _ if tls.sslmode < SslMode::Require => None,
            Some(path) if path == Path::new(SYSTEM_ROOTS) => Some(system_roots()?),
            Some(path) => Some(read_certificates("sslrootcert", path)?),
            None if full => Some(system_roots()?),
            None => None,
        };
        let chain = roots.map(Chain::new).transpose()?;
        Ok(Self { chain, host: full.then_some(host) })
    }
}

fn system_roots() -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let reason = found.errors.first().map_or("the system has none".into(), ToString::to_string);
        return Err(Error::Tls { what: "sslrootcert=system", reason });
    }
    Ok(found.certs)
}

impl Chain {
    fn new(roots: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(roots.iter().cloned());
        if added == 0 {
            return Err(Error::Tls { what: "sslrootcert", reason: "no usable certificate in it".into() });
        }
        let webpki = WebPkiServerVerifier::builder_with_provider(store.into(), provider())
            .build()
            .map_err(|e| Error::Tls { what: "sslrootcert", reason: e.to_string() })?;
        Ok(Self { webpki, roots })
    }

    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        use rustls::Error::InvalidCertificate;
        match self.webpki.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Ok(_) => Ok(()),
            // webpki checks the name last: the chain is good.
            Err(InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(()),
            Err(_) if self.roots.iter().any(|root| root.as_ref() == certificate.as_ref()) => {
                identity::check_validity(certificate, now)
            }
            Err(e) => Err(e),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(chain) = &self.chain {
            chain.verify(certificate, intermediates, name, ocsp, now)?;
        }
        if let Some(host) = &self.host {
            identity::check_host(certificate, host)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// True for a host given as an address.
pub(super) fn host_address(host: &str) -> Option<IpAddr> {
    host.parse().ok()
}
