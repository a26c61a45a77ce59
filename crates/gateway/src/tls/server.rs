//! The certificate shown to clients and what is asked of theirs.

use std::sync::Arc;

use pgshrink_pgclient::tls::{provider, read_certificates, read_key, tls_error};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::ALPN;
use crate::config::ListenTlsConfig;
use crate::error::Error;

/// TLS towards clients, ready to use.
#[derive(Clone)]
pub(crate) struct ListenTls {
    pub(crate) acceptor: TlsAcceptor,
    /// The certificate shown, in DER: channel binding works end to end when the server has the same one.
    pub(crate) certificate: Arc<[u8]>,
    /// Refuse clients that are not local and do not encrypt.
    pub(crate) required: bool,
}

impl ListenTls {
    /// Everything that [`load`](Self::load) could refuse, not only the first.
    pub(crate) fn problems(config: &ListenTlsConfig) -> Vec<Error> {
        let ca = config.client_ca.as_ref().and_then(|path| read_certificates("tls.client_ca", path).err());
        let files =
            [read_certificates("tls.cert", &config.cert).err(), read_key("tls.key", &config.key).err(), ca];
        let mut found: Vec<Error> = files.into_iter().flatten().map(Error::from).collect();
        found.extend(without_authority(config));
        if found.is_empty() { Self::load(config).err().into_iter().collect() } else { found }
    }

    pub(crate) fn load(config: &ListenTlsConfig) -> Result<Self, Error> {
        without_authority(config).map_or(Ok(()), Err)?;
        let chain = read_certificates("tls.cert", &config.cert)?;
        let key = read_key("tls.key", &config.key)?;
        let certificate: Arc<[u8]> = chain.first().map(|c| c.as_ref().into()).unwrap_or_default();
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(tls_error("tls"))?;
        let builder = match &config.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for root in read_certificates("tls.client_ca", path)? {
                    roots.add(root).map_err(tls_error("tls.client_ca"))?;
                }
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
                if !config.require_client_cert {
                    verifier = verifier.allow_unauthenticated();
                }
                let verifier = verifier
                    .build()
                    .map_err(|e| Error::Tls { what: "tls.client_ca", reason: e.to_string() })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut server = builder.with_single_cert(chain, key).map_err(tls_error("tls.cert and tls.key"))?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(server)), certificate, required: config.required })
    }
}

fn without_authority(config: &ListenTlsConfig) -> Option<Error> {
    let lacks = config.require_client_cert && config.client_ca.is_none();
    lacks.then(|| Error::config("tls.require_client_cert", "needs tls.client_ca"))
}
