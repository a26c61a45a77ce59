//! The verifier of servers' certificates.
//!
//! webpki alone would refuse the self-signed certificates that PostgreSQL's documentation tells people to make:
//! a server certificate that is itself among the roots is trusted here, as OpenSSL does.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::{Check, Roots, identity, provider, read_certificates};
use crate::Error;

#[derive(Debug)]
pub(super) struct Verifier {
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
    pub(super) fn load(check: Check<'_>) -> Result<Self, Error> {
        let (roots, host) = match check {
            Check::Nothing => (None, None),
            Check::Chain(roots) => (Some(roots), None),
            Check::ChainAndName(roots, host) => (Some(roots), Some(host.to_owned())),
        };
        let roots = match roots {
            None => None,
            Some(Roots::System) => Some(system_roots()?),
            Some(Roots::File(path)) => Some(read_certificates("sslrootcert", path)?),
        };
        let chain = roots.map(Chain::new).transpose()?;
        Ok(Self { chain, host })
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
            return Err(Error::Tls {
                what: "sslrootcert",
                reason: "it contains no usable certificate".into(),
            });
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

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use std::time::Duration;

    fn self_signed() -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap().der().clone()
    }

    /// As PostgreSQL's documentation tells people to make them. OpenSSL looks at their dates, too.
    #[test]
    fn a_certificate_that_is_its_own_root_is_trusted_until_it_expires() {
        let (own, other) = (self_signed(), self_signed());
        let name = ServerName::try_from("localhost").unwrap();
        let chain = Chain::new(vec![own.clone()]).unwrap();
        let verify = |certificate: &CertificateDer<'_>, seconds| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            chain.verify(certificate, &[], &name, &[], now)
        };
        assert!(verify(&own, 1_700_000_000).is_ok());
        assert!(verify(&own, 1).is_err() && verify(&own, 90_000_000_000).is_err());
        assert!(verify(&other, 1_700_000_000).is_err());
    }
}
