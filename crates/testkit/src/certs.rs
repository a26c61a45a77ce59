//! A private certificate authority for one test.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::error::{Doing, Error};

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate_pem: String,
    /// Its private key (PKCS #8).
    pub key_pem: String,
}

impl Identity {
    /// Writes `<name>.crt` and `<name>.key` into `dir`, the key for its owner's eyes only as libpq demands.
    pub fn write_to(&self, dir: &Path, name: &str) -> Result<(PathBuf, PathBuf), Error> {
        let (certificate, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        std::fs::write(&certificate, &self.certificate_pem)
            .doing(|| format!("writing {}", certificate.display()))?;
        OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&key)
            .and_then(|mut file| file.write_all(self.key_pem.as_bytes()))
            .doing(|| format!("writing {}", key.display()))?;
        Ok((certificate, key))
    }
}

/// An authority that nobody else trusts.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority.
    pub fn new() -> Result<Authority, Error> {
        // Under one name, a certificate of the wrong authority would look like a damaged one of the right.
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut params = named(&format!("pgshrink test authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, new_key()?).map_err(failed)?;
        Ok(Authority { issuer })
    }

    /// Its own certificate, in PEM: what `sslrootcert` wants.
    pub fn certificate_pem(&self) -> String {
        self.issuer.pem()
    }

    /// A server certificate for these DNS names and addresses; the first is also its common name.
    pub fn server(&self, names: &[&str]) -> Result<Identity, Error> {
        let alternatives: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(alternatives).map_err(failed)?;
        params.distinguished_name = named(names.first().copied().unwrap_or("server")).distinguished_name;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A client certificate whose common name is `role`.
    pub fn client(&self, role: &str) -> Result<Identity, Error> {
        let mut params = named(role);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Result<Identity, Error> {
        let key = new_key()?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Identity { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn new_key() -> Result<KeyPair, Error> {
    KeyPair::generate().map_err(failed)
}

fn failed(error: rcgen::Error) -> Error {
    Error::Usage(format!("making a certificate: {error}"))
}
