//! Whether a certificate is for a host, by libpq's rules (`fe-secure-common.c`, `fe-secure-openssl.c`).
//!
//! webpki knows only subject alternative names; libpq falls back to the common name when no alternative name is of
//! the host's kind, and a client behind the connector must get the answer it would get without it.

use std::net::IpAddr;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, Error};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    X509Certificate::from_der(certificate.as_ref())
        .map(|(_, parsed)| parsed)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))
}

/// Checks the dates of a certificate that is trusted by itself.
pub(super) fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let parsed = parse(certificate)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < parsed.validity().not_before.timestamp() {
        return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
    }
    if now > parsed.validity().not_after.timestamp() {
        return Err(Error::InvalidCertificate(CertificateError::Expired));
    }
    Ok(())
}

/// Checks that the certificate is for `host`.
pub(super) fn check_host(certificate: &CertificateDer<'_>, host: &str) -> Result<(), Error> {
    let parsed = parse(certificate)?;
    let address = host_address(host);
    let mut names = Vec::new();
    let mut fall_back = true;
    if let Ok(Some(alternatives)) = parsed.subject_alternative_name() {
        for name in &alternatives.value.general_names {
            match name {
                GeneralName::DNSName(pattern) => {
                    fall_back &= address.is_some();
                    if matches_pattern(pattern, host) {
                        return Ok(());
                    }
                    names.push((*pattern).to_string());
                }
                GeneralName::IPAddress(bytes) => {
                    fall_back &= address.is_none();
                    if address.is_some_and(|a| is_address(bytes, a)) {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
    }
    if fall_back {
        let common = parsed.subject().iter_common_name().next().and_then(|cn| cn.as_str().ok());
        if common.is_some_and(|cn| matches_pattern(cn, host)) {
            return Ok(());
        }
        names.extend(common.map(str::to_string));
    }
    Err(Error::General(format!(
        "server certificate for \"{}\" does not match host name \"{host}\"",
        names.join("\", \"")
    )))
}

/// A host given as an address.
fn host_address(host: &str) -> Option<IpAddr> {
    host.parse().ok()
}

fn is_address(bytes: &[u8], address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => bytes == a.octets(),
        IpAddr::V6(a) => bytes == a.octets(),
    }
}

/// A `*` stands for exactly the first label, and only with two more behind it.
fn matches_pattern(pattern: &str, host: &str) -> bool {
    if pattern.contains('\0') {
        return false;
    }
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some(suffix) = pattern.strip_prefix('*').filter(|s| s.starts_with('.') && s.len() > 1) else {
        return false;
    };
    match host.find('.') {
        Some(dot) => dot > 0 && host[dot..].eq_ignore_ascii_case(suffix),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    fn certificate(common: &str, names: &[&str]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names = names
            .iter()
            .map(|name| match host_address(name) {
                Some(address) => SanType::IpAddress(address),
                None => SanType::DnsName((*name).try_into().unwrap()),
            })
            .collect();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn is_for(common: &str, names: &[&str], host: &str) -> bool {
        check_host(&certificate(common, names), host).is_ok()
    }

    #[test]
    fn the_common_name_counts_only_without_an_alternative_of_the_hosts_kind() {
        assert!(is_for("db.example", &[], "DB.example"));
        assert!(!is_for("db.example", &["other.example"], "db.example"));
        assert!(is_for("db.example", &["10.0.0.1"], "db.example"));
        assert!(is_for("x", &["10.0.0.1"], "10.0.0.1") && !is_for("x", &["10.0.0.1"], "10.0.0.2"));
        assert!(is_for("x", &["::1"], "::1"));
    }

    #[test]
    fn a_star_is_one_label() {
        assert!(is_for("*.example.org", &[], "db.example.org"));
        assert!(!is_for("*.example.org", &[], "a.db.example.org"));
        assert!(!is_for("*.example.org", &[], ".example.org") && !is_for("*", &[], "db"));
    }

    #[test]
    fn the_error_names_certificate_and_host() {
        let text = check_host(&certificate("a", &["b.example"]), "c.example").unwrap_err().to_string();
        assert!(text.contains("\"b.example\"") && text.contains("\"c.example\""), "{text}");
    }

    #[test]
    fn a_certificate_trusted_by_itself_still_expires() {
        let der = certificate("a", &[]);
        let at = |secs| UnixTime::since_unix_epoch(std::time::Duration::from_secs(secs));
        assert!(check_validity(&der, at(1_700_000_000)).is_ok());
        assert_eq!(
            check_validity(&der, at(1)).unwrap_err(),
            Error::InvalidCertificate(CertificateError::NotValidYet)
        );
        assert_eq!(
            check_validity(&der, at(90_000_000_000)).unwrap_err(),
            Error::InvalidCertificate(CertificateError::Expired)
        );
    }
}
