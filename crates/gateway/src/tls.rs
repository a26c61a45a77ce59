//! TLS towards clients ([`server`]) and towards servers ([`client`]).
//!
//! rustls with the `ring` provider. No session is ever resumed: PostgreSQL's clients do not, and tickets would be
//! bytes for nothing. Files are read when a configuration is loaded, so a reload takes new certificates for new
//! sessions and a broken file never replaces a working one.

pub(crate) mod client;
mod identity;
pub(crate) mod server;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::Error;

/// The word that stands for the system's certificate store.
pub const SYSTEM_ROOTS: &str = "system";
/// The protocol name of PostgreSQL 17, required when TLS begins with the first byte.
pub(crate) const ALPN: &[u8] = b"postgresql";

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

fn read_certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let fail = |reason: String| Error::File { what, path: path.into(), reason };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(|items| items.collect::<Result<Vec<_>, _>>())
        .map_err(|e| fail(e.to_string()))?;
    if certificates.is_empty() {
        return Err(fail("no PEM certificate in it".into()));
    }
    Ok(certificates)
}

/// Reads a key whose permissions PostgreSQL would accept: nobody else reads it, or root owns it and the group does.
fn read_key(what: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let meta = std::fs::metadata(path).map_err(|e| Error::File {
        what,
        path: path.into(),
        reason: e.to_string(),
    })?;
    let open_to = if meta.uid() == 0 { 0o037 } else { 0o077 };
    if meta.mode() & open_to != 0 {
        let reason =
            format!("mode {:04o} lets others use it; set 0600, or 0640 if root owns it", meta.mode() & 0o777);
        return Err(Error::File { what, path: path.into(), reason });
    }
    PrivateKeyDer::from_pem_file(path).map_err(|e| Error::File {
        what,
        path: path.into(),
        reason: format!("{e}; expected an unencrypted PEM key"),
    })
}

fn tls_error(what: &'static str) -> impl Fn(rustls::Error) -> Error {
    move |e| Error::Tls { what, reason: e.to_string() }
}
