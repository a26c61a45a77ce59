//! Channel binding of type `tls-server-end-point` (RFC 5929, section 4.1).

use ring::digest::{self, Algorithm};
use x509_parser::oid_registry::{
    OID_HASH_SHA1, OID_NIST_HASH_SHA256, OID_NIST_HASH_SHA384, OID_NIST_HASH_SHA512, OID_PKCS1_MD5WITHRSAENC,
    OID_PKCS1_RSASSAPSS, OID_PKCS1_SHA1WITHRSA, OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA,
    OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512,
    Oid,
};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::signature_algorithm::SignatureAlgorithm;
use x509_parser::x509::AlgorithmIdentifier;

/// The hash of the server's certificate that ties an authentication to this TLS connection.
///
/// The hash function is the one of the certificate's signature, SHA-256 in place of MD5 and SHA-1. `None` when
/// the signature has no hash function of its own (Ed25519) or one that is not known here.
pub fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let algorithm = hash_of(&parsed.signature_algorithm)?;
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

fn hash_of(signature: &AlgorithmIdentifier<'_>) -> Option<&'static Algorithm> {
    if signature.algorithm != OID_PKCS1_RSASSAPSS {
        return hash_by_oid(&signature.algorithm);
    }
    match SignatureAlgorithm::try_from(signature).ok()? {
        SignatureAlgorithm::RSASSA_PSS(parameters) => hash_by_oid(parameters.hash_algorithm_oid()),
        _ => None,
    }
}

fn hash_by_oid(oid: &Oid<'_>) -> Option<&'static Algorithm> {
    let known = [
        (OID_PKCS1_MD5WITHRSAENC, &digest::SHA256),
        (OID_PKCS1_SHA1WITHRSA, &digest::SHA256),
        (OID_HASH_SHA1, &digest::SHA256),
        (OID_PKCS1_SHA256WITHRSA, &digest::SHA256),
        (OID_SIG_ECDSA_WITH_SHA256, &digest::SHA256),
        (OID_NIST_HASH_SHA256, &digest::SHA256),
        (OID_PKCS1_SHA384WITHRSA, &digest::SHA384),
        (OID_SIG_ECDSA_WITH_SHA384, &digest::SHA384),
        (OID_NIST_HASH_SHA384, &digest::SHA384),
        (OID_PKCS1_SHA512WITHRSA, &digest::SHA512),
        (OID_SIG_ECDSA_WITH_SHA512, &digest::SHA512),
        (OID_NIST_HASH_SHA512, &digest::SHA512),
    ];
    known.into_iter().find(|(known, _)| known == oid).map(|(_, algorithm)| algorithm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    #[test]
    fn the_hash_is_the_one_of_the_certificates_signature() {
        let bound = |algorithm| {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let certificate = CertificateParams::default().self_signed(&key).unwrap();
            (server_end_point(certificate.der()), certificate.der().to_vec())
        };
        let (hash, certificate) = bound(&PKCS_ECDSA_P256_SHA256);
        assert_eq!(hash.unwrap(), digest::digest(&digest::SHA256, &certificate).as_ref());
        let (hash, certificate) = bound(&PKCS_ECDSA_P384_SHA384);
        assert_eq!(hash.unwrap(), digest::digest(&digest::SHA384, &certificate).as_ref());
        assert_eq!(bound(&PKCS_ED25519).0, None);
        assert_eq!(server_end_point(b"no certificate"), None);
    }
}
