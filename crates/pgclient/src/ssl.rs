//! How libpq would encrypt a connection and verify its server.
//!
//! The rules that surprise:
//! - a root certificate file that exists is used in every mode, so `require` (and even `prefer`) beside
//!   `~/.postgresql/root.crt` verifies the chain; only `verify-full` looks at the name;
//! - `sslrootcert=system` insists on `verify-full`, and makes it the default;
//! - a client certificate file that does not exist is no error, one without its key is;
//! - everything here is ignored on Unix sockets.

use crate::{Error, Parameters, Surroundings};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Everything about TLS, defaults filled in, files looked for.
#[derive(Clone, PartialEq, Eq)]
pub struct SslParameters {
    /// Whether to encrypt, and whether to insist.
    pub mode: SslMode,
    /// How TLS is negotiated.
    pub negotiation: SslNegotiation,
    /// What the server's certificate is verified against, in every mode.
    pub root_cert: RootCertificate,
    /// Client certificate, if its file is there.
    pub cert: Option<PathBuf>,
    /// Its key; `Some` whenever `cert` is.
    pub key: Option<PathBuf>,
    /// For an encrypted key.
    pub key_password: Option<Vec<u8>>,
    /// Whether to present the certificate.
    pub cert_mode: SslCertMode,
    /// Revoked certificates, if the file is there.
    pub crl: Option<PathBuf>,
    /// The same in OpenSSL's hashed directory.
    pub crl_dir: Option<PathBuf>,
    /// Whether to send the host as TLS server name.
    pub sni: bool,
    /// Oldest version to accept.
    pub min_version: Option<TlsVersion>,
    /// Newest version to offer.
    pub max_version: Option<TlsVersion>,
    /// What the client's SCRAM is to do; nobody but the client can.
    pub channel_binding: ChannelBinding,
}

/// `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// Plain only.
    Disable,
    /// Plain, then TLS if the server wants it.
    Allow,
    /// TLS, then plain if the server has none or it fails.
    Prefer,
    /// TLS only.
    Require,
    /// TLS only, from a known authority.
    VerifyCa,
    /// TLS only, from a known authority and for this host.
    VerifyFull,
}

/// `sslnegotiation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslNegotiation {
    /// SSLRequest first.
    Postgres,
    /// TLS from the first byte, with ALPN `postgresql`.
    Direct,
}

/// `sslcertmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslCertMode {
    /// Never present a certificate.
    Disable,
    /// Present it if the server asks.
    Allow,
    /// The server must ask for the certificate.
    Require,
}

/// `channel_binding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Not used.
    Disable,
    /// Used over TLS where the server offers it.
    Prefer,
    /// No session without it.
    Require,
}

/// TLS versions libpq has names for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// RFC 2246.
    Tls10,
    /// RFC 4346.
    Tls11,
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// What server certificates are verified against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootCertificate {
    /// Nothing: any certificate will do.
    None,
    /// The authorities in a file, which exists.
    File(PathBuf),
    /// The operating system's authorities.
    System,
}

/// How far a server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verification {
    /// Not at all.
    None,
    /// It must descend from a root certificate.
    Chain,
    /// It must also bear the host's name.
    ChainAndName,
}

const MODES: &[(&str, SslMode)] = &[
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

const VERSIONS: &[(&str, TlsVersion)] = &[
    ("TLSv1", TlsVersion::Tls10),
    ("TLSv1.1", TlsVersion::Tls11),
    ("TLSv1.2", TlsVersion::Tls12),
    ("TLSv1.3", TlsVersion::Tls13),
];

impl SslParameters {
    /// Reads the `ssl*` parameters and looks for the files they name or imply. With `sslmode=disable` no file
    /// is looked for.
    pub fn resolve(parameters: &Parameters, around: &Surroundings<'_>) -> Result<Self, Error> {
        let negotiations = [("postgres", SslNegotiation::Postgres), ("direct", SslNegotiation::Direct)];
        let cert_modes = [
            ("disable", SslCertMode::Disable),
            ("allow", SslCertMode::Allow),
            ("require", SslCertMode::Require),
        ];
        let bindings = [
            ("disable", ChannelBinding::Disable),
            ("prefer", ChannelBinding::Prefer),
            ("require", ChannelBinding::Require),
        ];
        let channel_binding = choice(parameters, "channel_binding", "disable, prefer, require", &bindings)?
            .unwrap_or(ChannelBinding::Prefer);
        let all_modes = "disable, allow, prefer, require, verify-ca, verify-full";
        let mode = choice(parameters, "sslmode", all_modes, MODES)?.unwrap_or(SslMode::Prefer);
        let system_roots = parameters.get("sslrootcert") == Some(b"system");
        if system_roots && mode != SslMode::VerifyFull {
            return Err(Error::WeakModeForSystemRoots { mode: mode.name() });
        }
        let negotiation = choice(parameters, "sslnegotiation", "postgres, direct", &negotiations)?;
        let negotiation = negotiation.unwrap_or(SslNegotiation::Postgres);
        if negotiation == SslNegotiation::Direct && mode < SslMode::Require {
            return Err(Error::WeakModeForDirect { mode: mode.name() });
        }
        let (min_version, max_version) = versions(parameters)?;
        let cert_mode = choice(parameters, "sslcertmode", "disable, allow, require", &cert_modes)?;
        let mut resolved = Self {
            mode,
            negotiation,
            root_cert: RootCertificate::None,
            cert: None,
            key: None,
            key_password: parameters.get_nonempty("sslpassword").map(<[u8]>::to_vec),
            cert_mode: cert_mode.unwrap_or(SslCertMode::Allow),
            crl: None,
            crl_dir: None,
            sni: parameters.get("sslsni").is_some_and(|value| value.starts_with(b"1")),
            min_version,
            max_version,
            channel_binding,
        };
        if mode != SslMode::Disable {
            resolved.find_root(parameters, around)?;
            resolved.find_certificate(parameters, around)?;
        }
        Ok(resolved)
    }

    /// How far libpq would go.
    pub fn verification(&self) -> Verification {
        match (self.mode, &self.root_cert) {
            (SslMode::VerifyFull, _) => Verification::ChainAndName,
            (SslMode::Disable, _) => Verification::None,
            (SslMode::VerifyCa, _) => Verification::Chain,
            (_, RootCertificate::None) => Verification::None,
            (_, _) => Verification::Chain,
        }
    }

    fn find_root(&mut self, parameters: &Parameters, around: &Surroundings<'_>) -> Result<(), Error> {
        if parameters.get("sslrootcert") == Some(b"system") {
            self.root_cert = RootCertificate::System;
            return Ok(());
        }
        let named = parameters.path("sslrootcert").or_else(|| around.home_file(".postgresql/root.crt"));
        let verifies = self.mode >= SslMode::VerifyCa;
        let Some(path) = named else {
            return if verifies { Err(Error::NoHomeForRootCertificate) } else { Ok(()) };
        };
        if !around.exists(&path) {
            return if verifies { Err(Error::RootCertificateMissing { path }) } else { Ok(()) };
        }
        self.root_cert = RootCertificate::File(path);
        (self.crl, self.crl_dir) = (parameters.path("sslcrl"), parameters.path("sslcrldir"));
        if self.crl.is_none() && self.crl_dir.is_none() {
            self.crl = around.home_file(".postgresql/root.crl");
        }
        // libpq takes a list that is not there for an empty one, named or not.
        self.crl.take_if(|path| !around.exists(path));
        self.crl_dir.take_if(|path| !around.exists(path));
        Ok(())
    }

    fn find_certificate(&mut self, parameters: &Parameters, around: &Surroundings<'_>) -> Result<(), Error> {
        if self.cert_mode == SslCertMode::Disable {
            return Ok(());
        }
        let named = parameters.path("sslcert").or_else(|| around.home_file(".postgresql/postgresql.crt"));
        let Some(cert) = named else { return Ok(()) };
        match around.files.stat(&cert) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(());
            }
            Err(error) => {
                return Err(Error::Unreadable {
                    what: "certificate file",
                    path: cert,
                    reason: error.to_string(),
                });
            }
        }
        let key = parameters.path("sslkey").or_else(|| around.home_file(".postgresql/postgresql.key"));
        let key = key.unwrap_or_default();
        check_key(&key, around)?;
        (self.cert, self.key) = (Some(cert), Some(key));
        Ok(())
    }
}

impl SslMode {
    /// As written in connection strings.
    pub fn name(self) -> &'static str {
        MODES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }
}

impl TlsVersion {
    /// As written in connection strings.
    pub fn name(self) -> &'static str {
        VERSIONS.iter().find(|(_, version)| *version == self).map_or("", |(name, _)| name)
    }
}

impl fmt::Debug for SslParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SslParameters")
            .field("mode", &self.mode)
            .field("negotiation", &self.negotiation)
            .field("root_cert", &self.root_cert)
            .field("cert", &self.cert)
            .field("cert_mode", &self.cert_mode)
            .field("min_version", &self.min_version)
            .field("max_version", &self.max_version)
            .field("channel_binding", &self.channel_binding)
            .finish_non_exhaustive()
    }
}

fn choice<T: Copy>(
    parameters: &Parameters,
    keyword: &'static str,
    allowed: &'static str,
    words: &[(&str, T)],
) -> Result<Option<T>, Error> {
    let Some(value) = parameters.get(keyword) else { return Ok(None) };
    let found = words.iter().find(|(word, _)| word.as_bytes() == value);
    let wrong =
        || Error::InvalidValue { keyword, value: String::from_utf8_lossy(value).into_owned(), allowed };
    found.map(|&(_, meaning)| Some(meaning)).ok_or_else(wrong)
}

fn versions(parameters: &Parameters) -> Result<(Option<TlsVersion>, Option<TlsVersion>), Error> {
    let read = |keyword: &'static str| {
        let Some(value) = parameters.get_nonempty(keyword) else { return Ok(None) };
        let found = VERSIONS.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(value));
        let value = || String::from_utf8_lossy(value).into_owned();
        let allowed = "TLSv1, TLSv1.1, TLSv1.2, TLSv1.3";
        let wrong = || Error::InvalidValue { keyword, value: value(), allowed };
        found.map(|&(_, version)| Some(version)).ok_or_else(wrong)
    };
    let (min, max) = (read("ssl_min_protocol_version")?, read("ssl_max_protocol_version")?);
    match (min, max) {
        (Some(low), Some(high)) if low > high => {
            Err(Error::SslVersionRange { min: low.name(), max: high.name() })
        }
        _ => Ok((min, max)),
    }
}

/// libpq's checks before it loads a key.
fn check_key(path: &Path, around: &Surroundings<'_>) -> Result<(), Error> {
    let path = || path.to_owned();
    let stat = around.files.stat(&path()).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::KeyMissing { path: path() },
        _ => Error::Unreadable { what: "private key file", path: path(), reason: error.to_string() },
    })?;
    if !stat.is_file {
        return Err(Error::KeyNotAFile { path: path() });
    }
    // Root's files may be readable by a group, which is how distributions share system-wide keys.
    let forbidden = if stat.owned_by_root { 0o037 } else { 0o077 };
    if stat.mode & forbidden != 0 {
        return Err(Error::KeyExposed { path: path() });
    }
    Ok(())
}
